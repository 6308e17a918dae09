//! The URLs of Redis, and the connections to its servers.
//!
//! ```text
//! redis://[user:password@]host[:port][/database]        one server; several hosts are Redlock
//! redis-sentinel://[…@]host,host,host/SERVICE[/database]  the master of a service, according to Sentinel
//! redis-cluster://[…@]host,host,host                    a Redis Cluster
//! rediss://…, rediss-sentinel://…, rediss-cluster://…   the same over TLS
//! ```

use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::PASSWORD_FILE;
use crate::engine::servers::{Login, Servers};
use crate::engine::tls::{ServerTls, Stream, Tls, dial};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};

const OPTIONS: [&str; 5] = ["ca", "cert", "key", PASSWORD_FILE, "unfenced"];

/// A parsed URL.
pub(super) struct RedisUrl {
    pub topology: Topology,
    /// The servers, sentinels, or nodes of the cluster: `host:port`.
    pub hosts: Vec<Host>,
    pub access: Access,
    /// Whether holds without a fence are accepted, which only Redlock has.
    pub unfenced: bool,
}

/// The arrangement of the servers.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) enum Topology {
    /// One server, or several independent ones.
    Servers,
    /// A master with replicas, which sentinels watch.
    Sentinel { service: String },
    /// A Redis Cluster.
    Cluster,
}

/// The credentials and the TLS, the same for all servers.
#[derive(Clone)]
pub(super) struct Access {
    pub info: RedisConnectionInfo,
    tls: Option<Tls>,
}

/// The address of a server.
#[derive(Clone)]
pub(super) struct Host {
    pub address: String,
    tls: Option<ServerTls>,
}

impl Host {
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }
}

impl RedisUrl {
    pub fn parse(url: &EngineUrl) -> Result<RedisUrl> {
        let scheme = url.scheme().unwrap_or_default();
        let (base, with_tls) = match scheme.strip_prefix("rediss") {
            Some(rest) => (format!("redis{rest}"), true),
            None => (scheme.into(), false),
        };
        let port = if base == "redis-sentinel" { 26379 } else { 6379 };
        let servers = Servers::parse(url, port, &OPTIONS)?;
        let mut path = servers.path.split('/').skip(1);
        let topology = match base.as_str() {
            "redis-sentinel" => match path.next() {
                None | Some("") => {
                    return Err(url.bad("it lacks the service: redis-sentinel://host,host,host/SERVICE"));
                }
                Some(service) => {
                    let service = crate::engine::options::decoded(service);
                    let service =
                        service.ok_or_else(|| url.bad("its service is not percent-encoded UTF-8"))?;
                    Topology::Sentinel { service }
                }
            },
            "redis-cluster" => Topology::Cluster,
            _ => Topology::Servers,
        };
        let database: i64 = match (path.next(), path.next()) {
            (None, None) => 0,
            (Some(_), _) if topology == Topology::Cluster => {
                return Err(url.bad("a Redis Cluster has no numbered databases: leave the path out"));
            }
            (Some(number), None) => {
                number.parse().ok().filter(|number| *number >= 0).ok_or_else(|| {
                    url.bad("its path is not the number of a database, as in redis://host/0")
                })?
            }
            _ => return Err(url.bad("its path has too many parts")),
        };
        let tls = match with_tls {
            true => Some(Tls::of(url, &servers.options)?),
            false => {
                if crate::engine::options::TLS.iter().any(|name| servers.options.get(name).is_some()) {
                    return Err(url.bad("ca, cert and key are for TLS: write rediss:// instead of redis://"));
                }
                None
            }
        };
        let info = RedisConnectionInfo::default().set_db(database);
        let access = Access { info: log_in(url, &servers, info)?, tls };
        let hosts = servers.hosts.iter().map(|host| access.host(host));
        let hosts = hosts.collect::<Option<Vec<Host>>>();
        let hosts = hosts.ok_or_else(|| url.bad("a host is no name that a certificate can have"))?;
        let unfenced = servers.options.flag(url, "unfenced")?;
        Ok(RedisUrl { topology, hosts, access, unfenced })
    }
}

/// Adds user and password. The user may be left out, and means the default user.
fn log_in(url: &EngineUrl, servers: &Servers, info: RedisConnectionInfo) -> Result<RedisConnectionInfo> {
    let (user, given) = match &servers.login {
        None => ("", None),
        Some(Login { user, password }) => (user.as_str(), password.clone()),
    };
    let environment = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
    match servers.options.password(url, given, environment)? {
        None if user.is_empty() => Ok(info),
        None => Err(url.bad(
            "it names a user without a password; write user:password@host, or user@host and ?password-file=FILE",
        )),
        Some(password) if user.is_empty() => Ok(info.set_password(password)),
        Some(password) => Ok(info.set_username(user).set_password(password)),
    }
}

impl Access {
    /// The server with this address. `None` if TLS is in use and the host is no name that a certificate can have.
    pub fn host(&self, address: &str) -> Option<Host> {
        let tls = match &self.tls {
            None => None,
            Some(tls) => Some(tls.to(address)?),
        };
        Some(Host { address: address.into(), tls })
    }

    /// Opens a connection with these credentials. Its task ends with its last handle.
    pub async fn connect(
        &self,
        host: &Host,
        info: &RedisConnectionInfo,
    ) -> Result<MultiplexedConnection, RedisError> {
        // No timeouts in the client: each operation has its own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let stream = self.dial(host).await?;
        let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config).await?;
        tokio::spawn(driver);
        Ok(connection)
    }

    pub async fn subscribe(&self, host: &Host) -> Result<PubSub, RedisError> {
        PubSub::new(&self.info, self.dial(host).await?).await
    }

    async fn dial(&self, host: &Host) -> std::io::Result<Box<dyn Stream>> {
        dial(&host.address, host.tls.as_ref()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn addresses(url: &str) -> Vec<String> {
        let parsed = RedisUrl::parse(&url.into()).unwrap();
        parsed.hosts.into_iter().map(|host| host.address).collect()
    }

    #[test]
    fn urls_are_parsed() {
        assert_eq!(addresses("redis://h"), ["h:6379"]);
        assert_eq!(addresses("redis://[::1]:7,b/?unfenced"), ["[::1]:7", "b:6379"]);
        let parsed = RedisUrl::parse(&"redis://u:p,@q@a:1,b:2/3".into()).unwrap();
        let info = &parsed.access.info;
        assert_eq!((info.username(), info.password(), info.db()), (Some("u"), Some("p,@q"), 3));
        assert!(!parsed.unfenced && parsed.topology == Topology::Servers);
        let parsed = RedisUrl::parse(&"redis://:p@a".into()).unwrap();
        assert_eq!((parsed.access.info.username(), parsed.access.info.password()), (None, Some("p")));
        let parsed = RedisUrl::parse(&"redis-sentinel://a,b:7/my%20master/2".into()).unwrap();
        assert_eq!(parsed.topology, Topology::Sentinel { service: "my master".into() });
        assert_eq!((parsed.hosts[0].address.as_str(), parsed.access.info.db()), ("a:26379", 2));
        assert_eq!(RedisUrl::parse(&"redis-cluster://a,b".into()).unwrap().topology, Topology::Cluster);
    }

    #[test]
    fn each_invalid_url_is_rejected_with_its_own_message() {
        for (url, part) in [
            ("redis:h", "lacks `//`"),
            ("redis://", "host is empty"),
            ("redis://a,,b", "host is empty"),
            ("redis:///0", "host is empty"),
            ("redis://h/database", "number of a database"),
            ("redis://h/-1", "number of a database"),
            ("redis://h/0/1", "too many parts"),
            ("redis://me@h", "without a password"),
            ("redis://h?x=1", "the options are ca, cert, key, password-file and unfenced"),
            ("redis://h?ca=/etc/ca.pem", "write rediss://"),
            ("rediss://h_1?ca=/nowhere/ca.pem", "option `ca`"),
            ("redis-sentinel://h", "lacks the service"),
            ("redis-cluster://h/0", "no numbered databases"),
        ] {
            let error = RedisUrl::parse(&url.into()).err().unwrap();
            assert!(
                matches!(error, Error::BadUrl { .. }) && error.to_string().contains(part),
                "{url}: {error}"
            );
        }
    }
}
