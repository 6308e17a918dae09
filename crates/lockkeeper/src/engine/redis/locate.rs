//! Finding the server that has the locks: the one in the URL, the master of a service according to its sentinels, or
//! the node of a Redis Cluster that serves the slot of the locks.

use super::address::{Access, Host, RedisUrl, Topology};
use redis::{RedisConnectionInfo, RedisError, Value};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// The prefix of all keys.
const KEYS: &str = "lockkeeper:";
/// The prefix of all keys in a cluster: the part in braces decides the slot, and thus all of them have the same.
const CLUSTER_KEYS: &str = "{lockkeeper}:";

/// The time limit for one sentinel or node, before the next one is asked.
const ASK: Duration = Duration::from_secs(1);
/// The most nodes of a cluster that are remembered, with those in the URL: more are not learned.
const NODES: usize = 80;

/// The place of the locks.
pub(super) enum Locator {
    /// One server.
    Fixed(Host),
    /// The master of this service.
    Sentinel { sentinels: Hosts, service: String },
    /// The node of a cluster that serves the slot of the locks.
    Cluster { nodes: Hosts },
}

/// Hosts in the order in which they are asked.
pub(super) struct Hosts(Mutex<VecDeque<Host>>);

impl Hosts {
    fn new(hosts: Vec<Host>) -> Hosts {
        Hosts(Mutex::new(hosts.into()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Host>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host to ask, which becomes the last one: if it hangs and the search is given up, the next search begins with
    /// another host.
    fn next(&self) -> Option<Host> {
        let mut hosts = self.lock();
        let rotation = 1.min(hosts.len());
        hosts.rotate_left(rotation);
        hosts.back().cloned()
    }

    /// Asks this host first from now on.
    fn prefer(&self, host: &Host) {
        let mut hosts = self.lock();
        let known = hosts.iter().position(|other| other.address == host.address);
        if let Some(known) = known {
            hosts.remove(known);
        }
        if known.is_some() || hosts.len() < NODES {
            hosts.push_front(host.clone());
        }
    }

    fn listed(&self) -> String {
        self.lock().iter().map(|host| host.address.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// The reason why no server was found. The last of several failures is reported.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocateError {
    #[error("{address} did not answer within {ASK:?}")]
    Silent { address: String },
    #[error("{source}")]
    Failed { host: String, source: RedisError },
    #[error(
        "the sentinels do not know a service of the name in the URL; `redis-cli -p 26379 sentinel masters` lists them"
    )]
    UnknownService,
    #[error("{address}, to which the servers refer, is no name that a certificate can have")]
    NoName { address: String },
}

impl Locator {
    pub fn new(url: RedisUrl) -> Locator {
        let RedisUrl { topology, mut hosts, .. } = url;
        match topology {
            Topology::Sentinel { service } => Locator::Sentinel { sentinels: Hosts::new(hosts), service },
            Topology::Cluster => Locator::Cluster { nodes: Hosts::new(hosts) },
            Topology::Servers => Locator::Fixed(hosts.swap_remove(0)),
        }
    }

    /// The place, for messages.
    pub fn description(&self) -> String {
        match self {
            Locator::Fixed(host) => host.address.clone(),
            Locator::Sentinel { sentinels, service } => {
                format!("the master of `{service}` (sentinels {})", sentinels.listed())
            }
            Locator::Cluster { nodes } => format!("the cluster of {}", nodes.listed()),
        }
    }

    /// Whether another server may take over.
    pub fn fails_over(&self) -> bool {
        !matches!(self, Locator::Fixed(_))
    }

    /// The prefix of all keys.
    pub fn keys(&self) -> &'static str {
        match self {
            Locator::Cluster { .. } => CLUSTER_KEYS,
            _ => KEYS,
        }
    }

    /// Finds the server that has the locks now: the answer of the first sentinel or node that has one.
    pub async fn find(&self, access: &Access) -> Result<Host, LocateError> {
        let hosts = match self {
            Locator::Fixed(host) => return Ok(host.clone()),
            Locator::Sentinel { sentinels: hosts, .. } | Locator::Cluster { nodes: hosts } => hosts,
        };
        let (count, mut last) = (hosts.lock().len(), LocateError::UnknownService);
        for host in (0..count).map_while(|_| hosts.next()) {
            match timeout(ASK, self.ask(access, &host)).await {
                Ok(Ok(found)) => {
                    hosts.prefer(&host);
                    if let Locator::Cluster { nodes } = self {
                        nodes.prefer(&found);
                    }
                    return Ok(found);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = LocateError::Silent { address: host.address.clone() },
            }
        }
        Err(last)
    }

    async fn ask(&self, access: &Access, host: &Host) -> Result<Host, LocateError> {
        match self {
            Locator::Fixed(host) => Ok(host.clone()),
            Locator::Sentinel { service, .. } => ask_sentinel(access, host, service).await,
            Locator::Cluster { .. } => ask_node(access, host).await,
        }
    }
}

/// Asks a sentinel for the master of a service.
async fn ask_sentinel(access: &Access, sentinel: &Host, service: &str) -> Result<Host, LocateError> {
    let failed = |source| LocateError::Failed { host: sentinel.address.clone(), source };
    // Sentinels usually have no password of their own. If they have one, it must be that of the servers.
    let answer = match master_of(access, sentinel, service, &RedisConnectionInfo::default()).await {
        Err(error) if error.code() == Some("NOAUTH") => {
            master_of(access, sentinel, service, &access.info.clone().set_db(0)).await
        }
        answer => answer,
    };
    let Some((host, port)) = answer.map_err(failed)? else { return Err(LocateError::UnknownService) };
    named(access, &host, &port)
}

async fn master_of(
    access: &Access,
    sentinel: &Host,
    service: &str,
    info: &RedisConnectionInfo,
) -> Result<Option<(String, String)>, RedisError> {
    let mut connection = access.connect(sentinel, info).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(service).query_async(&mut connection).await
}

/// Asks a node of a cluster for the node that serves the slot of the locks: it answers a command about a key of that
/// slot, or refers to the other node.
async fn ask_node(access: &Access, node: &Host) -> Result<Host, LocateError> {
    let failed = |source| LocateError::Failed { host: node.address.clone(), source };
    let mut connection = access.connect(node, &access.info).await.map_err(failed)?;
    let fence = format!("{CLUSTER_KEYS}fence");
    match redis::cmd("GET").arg(fence).query_async::<Value>(&mut connection).await {
        Ok(_) => Ok(node.clone()),
        Err(error) => match error.redirect_node() {
            Some((address, _)) => {
                let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
                // Without a host, the same one is meant.
                let host = if host.is_empty() { crate::engine::tls::host_name(&node.address) } else { host };
                named(access, host, port)
            }
            None => Err(failed(error)),
        },
    }
}

fn named(access: &Access, host: &str, port: &str) -> Result<Host, LocateError> {
    let bare = host.contains(':') && !host.starts_with('[');
    let address = if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    access.host(&address).ok_or(LocateError::NoName { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_hangs_is_not_asked_first_again() {
        let url = RedisUrl::parse(&"redis-cluster://a:1,b:1,c:1".into()).unwrap();
        let access = url.access.clone();
        let Locator::Cluster { nodes } = Locator::new(url) else { panic!("it is a cluster") };
        let next = || nodes.next().unwrap().address;
        assert_eq!([next(), next()], ["a:1", "b:1"]);
        assert_eq!(nodes.listed(), "c:1,a:1,b:1");
        nodes.prefer(&access.host("b:1").unwrap());
        nodes.prefer(&access.host("d:1").unwrap());
        assert_eq!(nodes.listed(), "d:1,b:1,c:1,a:1");
        for port in 1..200 {
            nodes.prefer(&access.host(&format!("x:{port}")).unwrap());
        }
        assert_eq!(nodes.lock().len(), NODES);
    }
}
