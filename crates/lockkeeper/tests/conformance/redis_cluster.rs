//! Redis Cluster, with TLS and passwords: the suite, also while the node that has the locks dies and its replica takes
//! over.

use crate::backend::{Backend, Guarantee, Nodes, Server, Step, TIMEOUT, until};
use crate::failover::Clients;
use crate::redis::Redis;
use crate::redis_sentinel::{PASSWORD, start};
use crate::shared::{Shared, Used};
use lockkeeper_testbed::certificates::Certificates;
use lockkeeper_testbed::ports;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A Redis Cluster of three masters, with or without one replica each.
struct Cluster {
    nodes: Vec<Redis>,
    certificates: Certificates,
}

impl Cluster {
    /// Returns `None` if there is no redis-server and the user is not root.
    fn start() -> Option<Cluster> {
        Self::with_replicas(1)
    }

    /// The same, with this number of replicas for each master.
    fn with_replicas(replicas: usize) -> Option<Cluster> {
        let certificates = Certificates::new();
        let node = |_| {
            let bus = ports::free().unwrap().to_string();
            let mut options =
                vec!["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
            options.extend(["--cluster-node-timeout", "3000"]);
            start(&certificates, &options)
        };
        let nodes = (0..3 + 3 * replicas).map(node).collect::<Option<Vec<Redis>>>()?;
        let cluster = Cluster { nodes, certificates };
        let addresses: Vec<String> = cluster.nodes.iter().map(Redis::address).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(addresses.iter().map(String::as_str));
        let number = replicas.to_string();
        create.extend(["--cluster-replicas", &number, "--cluster-yes"]);
        let created = cluster.nodes[0].cli(&create);
        assert!(created.contains("All 16384 slots covered"), "{created}");
        while !cluster.is_complete(3 * replicas) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(cluster)
    }

    /// Whether all nodes consider the cluster complete, and so many replicas follow their masters.
    fn is_complete(&self, replicas: usize) -> bool {
        let agree = |node: &Redis| {
            let known = node.cli(&["CLUSTER", "NODES"]);
            node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") && !known.contains("fail")
        };
        let follows = |node: &&Redis| node.cli(&["INFO", "replication"]).contains("master_link_status:up");
        self.nodes.iter().all(agree) && self.nodes.iter().filter(follows).count() == replicas
    }

    /// The master that serves the slot of the locks, according to `node`.
    fn server_of_locks(&self, node: &Redis) -> Option<&Redis> {
        let slot: u32 = node.cli(&["CLUSTER", "KEYSLOT", "{lockkeeper}:fence"]).parse().ok()?;
        let list = node.cli(&["CLUSTER", "NODES"]);
        let line = list.lines().find(|line| {
            let ranges = line.split(' ').skip(8).filter_map(|range| range.split_once('-'));
            let mut ranges = ranges.filter_map(|(a, b)| Some(a.parse::<u32>().ok()?..=b.parse().ok()?));
            line.contains("master") && !line.contains("fail") && ranges.any(|range| range.contains(&slot))
        })?;
        let address = line.split(' ').nth(1)?.split('@').next()?;
        self.nodes.iter().find(|node| node.address() == address)
    }
}

impl Backend for Cluster {
    fn url(&self) -> String {
        // Any node of a cluster leads to the others.
        let hosts: Vec<String> = self.nodes.iter().take(5).map(Redis::address).collect();
        let ca = self.certificates.authority().display();
        format!("rediss-cluster://:{PASSWORD}@{}?ca={ca}", hosts.join(","))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    fn nodes(&self) -> Option<&dyn Nodes> {
        Some(self)
    }

    fn kills(&self) -> usize {
        4
    }
}

/// Stops and starts all nodes.
impl Server for Cluster {
    fn stop(&self) {
        self.nodes.iter().for_each(Server::stop);
    }

    fn start(&self) {
        self.nodes.iter().for_each(Server::start);
        while !self.is_complete(self.nodes.len() - 3) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Nodes for Cluster {
    fn guarantee(&self) -> Guarantee {
        Guarantee::Fence
    }

    fn fail_over(&self) -> Step<'_> {
        Box::pin(async {
            let first = self.server_of_locks(&self.nodes[0]).expect("it is served");
            first.stop();
            let replaced = |node: &Redis| {
                let now = self.server_of_locks(node);
                now.is_some_and(|now| now.address() != first.address())
            };
            let others = || self.nodes.iter().filter(|node| node.daemon.is_running());
            until(|| async { others().all(replaced) }).await;
        })
    }

    /// The node becomes a replica of the one that has replaced it.
    fn repair(&self) -> Step<'_> {
        Box::pin(async {
            self.nodes.iter().filter(|node| !node.daemon.is_running()).for_each(Server::start);
            until(|| async { self.is_complete(self.nodes.len() - 3) }).await;
        })
    }
}

/// Clusters of three masters that no test uses at the moment: a cluster has no databases that tests could share.
struct Pool(Mutex<Vec<Cluster>>);

impl Pool {
    fn start() -> Option<Pool> {
        Some(Pool(Mutex::new(vec![Cluster::with_replicas(0)?])))
    }

    fn take(&self) -> Option<Cluster> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.or_else(|| Cluster::with_replicas(0))
    }
}

/// A cluster of the pool, which returns to it without its locks.
struct Borrowed {
    pool: Used<Pool>,
    cluster: Option<Cluster>,
}

impl Borrowed {
    async fn new() -> Option<Borrowed> {
        static POOL: Shared<Pool> = Shared::new();
        let pool = POOL.get(Pool::start).await?;
        let cluster = Some(pool.take()?);
        Some(Borrowed { pool, cluster })
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // After a failed test, its requests may still be under way.
        if let Some(cluster) = self.cluster.take().filter(|_| !std::thread::panicking()) {
            for node in &cluster.nodes {
                node.cli(&["FLUSHALL"]);
            }
            self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(cluster);
        }
    }
}

impl Backend for Borrowed {
    fn url(&self) -> String {
        self.cluster.as_ref().expect("it is not dropped").url()
    }

    fn kills(&self) -> usize {
        4
    }
}

macro_rules! cluster {
    () => {
        match Cluster::start() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

mod borrowed {
    use super::Borrowed;

    macro_rules! borrowed {
        () => {
            match Borrowed::new().await {
                Some(borrowed) => borrowed,
                None => return,
            }
        };
    }

    crate::conformance_without_stops! { borrowed!() }
}

mod alone {
    use super::Cluster;

    crate::conformance! { cluster!();
        processes::a_server_that_goes_away_is_noticed,
        detached::detached_holds_survive_a_restart_of_the_server,
    }
    crate::conformance_with_failovers! { cluster!() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_while_the_node_of_the_locks_dies_and_its_replica_takes_over() {
    let cluster = cluster!();
    let test = async {
        let clients = Clients::start(&cluster.url(), Duration::from_secs(10)).await;
        clients.enter().await;
        let first = cluster.server_of_locks(&cluster.nodes[0]).expect("it is served");
        let other = cluster.nodes.iter().find(|node| node.address() != first.address()).unwrap();
        first.stop();
        let moved = || {
            let now = cluster.server_of_locks(other);
            now.is_some_and(|now| now.address() != first.address())
        };
        until(|| async { moved() }).await;
        clients.enter().await;
        first.start();
        clients.enter().await;
        clients.end_with_rising_fences().await;
        // All keys are on one node, and the idle lock has left none but the fence.
        let now = cluster.server_of_locks(other).expect("it is served");
        until(|| async { now.cli(&["KEYS", "*"]) == "{lockkeeper}:fence" }).await;
    };
    tokio::time::timeout(TIMEOUT, test).await.expect("the test is stuck");
}
