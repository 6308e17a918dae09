//! Redis Sentinel and Redis Cluster, with TLS and passwords: parts of the suite, and clients that take turns while the
//! server that has the locks dies and another one takes over.

use crate::backend::{Backend, Server, TIMEOUT, acquire, until};
use crate::failover::Clients;
use crate::redis::Redis;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::Certificates;
use lockkeeper_testbed::ports;
use lockkeeper_testbed::servers::{self, LocalServer};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The password of all servers.
const PASSWORD: &str = "s3cr3t";

/// The options of servers with TLS, to each other as well.
fn options(certificates: &Certificates) -> Vec<String> {
    let own = certificates.server();
    let files = [certificates.authority(), &own.certificate, &own.key].map(|file| file.display().to_string());
    let [ca, cert, key] = files;
    let mut options = vec!["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no"];
    options.extend(["--tls-replication", "yes", "--tls-ca-cert-file", &ca]);
    options.extend(["--tls-cert-file", &cert, "--tls-key-file", &key]);
    options.into_iter().map(String::from).collect()
}

/// Starts a server with a password, and further options.
fn start(certificates: &Certificates, more: &[&str]) -> Option<Redis> {
    let options = options(certificates);
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    all.extend(["--requirepass", PASSWORD, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0"]);
    all.extend(more);
    let ca = certificates.authority().to_str().unwrap();
    Redis::start_with(&all, &["--tls", "--cacert", ca, "--no-auth-warning", "--pass", PASSWORD])
}

/// A master with two replicas, and three sentinels.
struct Sentinel {
    servers: Vec<Redis>,
    sentinels: Vec<LocalServer>,
    certificates: Certificates,
    _data: Arc<tempfile::TempDir>,
}

impl Sentinel {
    /// Returns `None` if there is no redis-server and the user is not root.
    fn start() -> Option<Sentinel> {
        let program = servers::program("redis-server", &[], "redis-server")?;
        let certificates = Certificates::new();
        let master = start(&certificates, &[])?;
        let port = master.daemon.port().to_string();
        let replica = || start(&certificates, &["--replicaof", "127.0.0.1", &port]);
        let servers = vec![master, replica()?, replica()?];
        let data = Arc::new(tempfile::tempdir().unwrap());
        let text = format!(
            "sentinel monitor locks 127.0.0.1 {port} 2\nsentinel auth-pass locks {PASSWORD}\n\
             sentinel down-after-milliseconds locks 2000\nsentinel failover-timeout locks 10000\n"
        );
        let sentinel = |_| {
            let (program, data, text, options) =
                (program.clone(), data.clone(), text.clone(), options(&certificates));
            LocalServer::start(move |port| {
                // Sentinels write their state into this file.
                let file = data.path().join(format!("{port}.conf"));
                if !file.exists() {
                    std::fs::write(&file, &text).unwrap();
                }
                let mut command = Command::new(&program);
                command
                    .arg(&file)
                    .args(options.iter().map(|option| option.replace("{port}", &port.to_string())));
                command.arg("--sentinel");
                command
            })
        };
        let sentinels = (0..3).map(sentinel).collect();
        let sentinel = Sentinel { servers, sentinels, certificates, _data: data };
        // A failover needs replicas, and a majority of sentinels that know each other.
        while sentinel.servers[0].cli(&["INFO", "replication"]).matches("state=online").count() < 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        while !sentinel.ask(&["sentinel", "ckquorum", "locks"]).starts_with("OK 3")
            || sentinel.ask(&["sentinel", "replicas", "locks"]).matches("slave-priority").count() < 2
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(sentinel)
    }

    /// Sends a command to the first sentinel.
    fn ask(&self, args: &[&str]) -> String {
        let port = self.sentinels[0].port().to_string();
        let mut limited = Command::new("timeout");
        limited
            .args(["20", "redis-cli", "-p", &port, "--tls", "--cacert"])
            .arg(self.certificates.authority());
        let output = limited.args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The server that the sentinels consider the master.
    fn master(&self) -> &Redis {
        let reply = self.ask(&["sentinel", "get-master-addr-by-name", "locks"]);
        let port: u16 = reply.lines().nth(1).expect("it is known").parse().unwrap();
        self.servers.iter().find(|server| server.daemon.port() == port).expect("it is one of ours")
    }

    fn url_of(&self, service: &str) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        let ca = self.certificates.authority().display();
        format!("rediss-sentinel://:{PASSWORD}@{}/{service}?ca={ca}", hosts.join(","))
    }
}

impl Backend for Sentinel {
    fn url(&self) -> String {
        self.url_of("locks")
    }

    fn kills(&self) -> usize {
        4
    }
}

macro_rules! sentinel {
    () => {
        match Sentinel::start() {
            Some(sentinel) => sentinel,
            None => return,
        }
    };
}

#[tokio::test]
async fn replicas_that_follow_asynchronously_are_a_finding() {
    let sentinel = sentinel!();
    let diagnosis = lockkeeper::diagnose(sentinel.url()).await.unwrap();
    let finding = crate::doctor::found(&diagnosis, "replication");
    assert!(finding.found.contains("2 replicas follow asynchronously"), "{finding:?}");
}

mod sentinel_suite {
    use super::Sentinel;

    crate::conformance! { sentinel!();
        basics::a_mutex_admits_one,
        basics::fences_rise_and_are_never_zero,
        basics::a_semaphore_admits_as_many_as_it_has_permits,
        basics::an_election_has_one_leader_and_observers_follow,
        processes::tasks_of_several_processes_take_turns,
        kills::random_kills_never_admit_two_and_never_block,
        detached::a_detached_hold_belongs_to_its_owner,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_while_the_master_dies_and_a_replica_is_promoted() {
    let sentinel = sentinel!();
    let test = async {
        let clients = Clients::start(&sentinel.url(), Duration::from_secs(10)).await;
        clients.enter().await;
        for _ in 0..2 {
            let (master, port) = (sentinel.master(), sentinel.master().daemon.port());
            master.stop();
            until(|| async { sentinel.master().daemon.port() != port }).await;
            clients.enter().await;
            // It becomes a replica of the new master.
            master.start();
            until(|| async { master.cli(&["INFO", "replication"]).contains("master_link_status:up") }).await;
            clients.enter().await;
        }
        clients.end_with_rising_fences().await;
    };
    tokio::time::timeout(TIMEOUT, test).await.expect("the test is stuck");
}

/// A stopped process keeps its connections: only a time limit shows that it does not serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_a_master_that_falls_silent() {
    let sentinel = sentinel!();
    let test = async {
        let locks = crate::backend::open(&sentinel).await;
        let ttl = Duration::from_secs(120);
        let holder = locks.mutex("a").ttl(ttl).acquire().await.unwrap();
        let waiter = acquire(locks.mutex("a").ttl(ttl));
        until(|| async { sentinel.servers.iter().all(|server| server.cli(&["KEYS", "*"]).contains('a')) })
            .await;
        let (master, port) = (sentinel.master(), sentinel.master().daemon.port());
        master.daemon.signal("STOP");
        until(|| async { sentinel.master().daemon.port() != port }).await;
        let fence = holder.fence();
        holder.release().await.expect("the promoted server knows the hold");
        let next = waiter.await.unwrap();
        assert!(next.fence() > fence);
        next.release().await.unwrap();
    };
    tokio::time::timeout(TIMEOUT / 2, test).await.expect("the test is stuck");
}

#[tokio::test]
async fn unknown_services_and_dead_sentinels_are_explained() {
    let sentinel = sentinel!();
    let error = Lockkeeper::open(&sentinel.url_of("other")).await.unwrap_err();
    assert!(error.to_string().contains("do not know a service of the name"), "{error}");
    let wrong = sentinel.url().replace(PASSWORD, "other");
    let error = Lockkeeper::open(&wrong).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    // One sentinel is enough to find the master.
    sentinel.sentinels[0].stop();
    sentinel.sentinels[1].stop();
    crate::backend::open(&sentinel).await.mutex("a").acquire().await.unwrap().release().await.unwrap();
    sentinel.sentinels[2].stop();
    let error = Lockkeeper::open(&sentinel.url()).await.unwrap_err();
    assert!(error.to_string().contains("cannot find the master of `locks`"), "{error}");
}

/// A Redis Cluster of three masters with one replica each.
struct Cluster {
    nodes: Vec<Redis>,
    certificates: Certificates,
}

impl Cluster {
    /// Returns `None` if there is no redis-server and the user is not root.
    fn start() -> Option<Cluster> {
        let certificates = Certificates::new();
        let node = |_| {
            let bus = ports::free().unwrap().to_string();
            let mut options =
                vec!["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
            options.extend(["--cluster-node-timeout", "3000"]);
            start(&certificates, &options)
        };
        let nodes = (0..6).map(node).collect::<Option<Vec<Redis>>>()?;
        let cluster = Cluster { nodes, certificates };
        let addresses: Vec<String> = cluster.nodes.iter().map(Redis::address).collect();
        let mut create = vec!["--cluster", "create"];
        create.extend(addresses.iter().map(String::as_str));
        create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
        let created = cluster.nodes[0].cli(&create);
        assert!(created.contains("All 16384 slots covered"), "{created}");
        let all = |part: &str| cluster.nodes.iter().all(|node| node.cli(&["CLUSTER", "INFO"]).contains(part));
        let linked = || {
            let links = cluster.nodes.iter().map(|node| node.cli(&["INFO", "replication"]));
            links.filter(|info| info.contains("master_link_status:up")).count() == 3
        };
        while !all("cluster_state:ok") || !linked() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(cluster)
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

mod cluster_suite {
    use super::Cluster;

    crate::conformance! { cluster!();
        basics::a_mutex_admits_one,
        basics::fences_rise_and_are_never_zero,
        basics::a_semaphore_admits_as_many_as_it_has_permits,
        basics::several_locks_at_once_never_deadlock,
        basics::an_election_has_one_leader_and_observers_follow,
        processes::tasks_of_several_processes_take_turns,
        kills::random_kills_never_admit_two_and_never_block,
        detached::a_detached_hold_belongs_to_its_owner,
    }
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
