//! etcd with three nodes, TLS and users: the suite, and clients that take turns while nodes die or hang.

use crate::backend::{Backend, Guarantee, Nodes, Server, Step, TIMEOUT, open, until};
use crate::doctor::{TRIAL, found};
use crate::etcd_tls::{ctl, enable_users, text, tls_options};
use crate::failover::Clients;
use crate::shared::{Shared, Used};
use lockkeeper::{Error, HoldState, Loss, Severity};
use lockkeeper_testbed::certificates::{Certificates, Files};
use lockkeeper_testbed::ports;
use lockkeeper_testbed::servers::{self, LocalServer};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Three nodes with their own data.
struct EtcdCluster {
    nodes: Vec<LocalServer>,
    certificates: Certificates,
    client: Files,
    _data: Arc<tempfile::TempDir>,
}

impl EtcdCluster {
    /// Returns `None` if there is no etcd and the user is not root.
    fn start() -> Option<EtcdCluster> {
        let program = servers::program("etcd", &[], "etcd-server")?;
        servers::program("etcdctl", &[], "etcd-client")?;
        let certificates = Certificates::new();
        let (own, client) = (certificates.server(), certificates.client("transport"));
        let options = tls_options(certificates.authority(), &own);
        let data = Arc::new(tempfile::tempdir().unwrap());
        let peers: Vec<String> =
            (0..3).map(|_| format!("http://127.0.0.1:{}", ports::free().unwrap())).collect();
        let all: Vec<String> = peers.iter().enumerate().map(|(n, peer)| format!("n{n}={peer}")).collect();
        let all = all.join(",");
        let node = |n: usize| {
            let (program, options, data) = (program.clone(), options.clone(), data.clone());
            let (peer, all) = (peers[n].clone(), all.clone());
            LocalServer::start(move |port| {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--"]).arg(&program).env_clear();
                let clients = format!("https://127.0.0.1:{port}");
                command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
                command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                command.args(["--name", &format!("n{n}"), "--initial-cluster", &all, "--log-level", "error"]);
                // Longer timeouts than by default, for a machine with many servers.
                command.args(["--heartbeat-interval", "200", "--election-timeout", "2000"]);
                command.args(&options).arg("--data-dir").arg(data.path().join(format!("n{n}")));
                command
            })
        };
        let nodes = (0..3).map(node).collect();
        let cluster = EtcdCluster { nodes, certificates, client, _data: data };
        let endpoints = cluster.endpoints();
        enable_users(|args| ctl(&endpoints, cluster.certificates.authority(), &cluster.client, args));
        Some(cluster)
    }

    fn endpoints(&self) -> String {
        let each = self.nodes.iter().map(|node| format!("https://127.0.0.1:{}", node.port()));
        each.collect::<Vec<_>>().join(",")
    }

    /// The leader, once there is one.
    async fn leader(&self) -> &LocalServer {
        loop {
            for node in &self.nodes {
                let endpoint = format!("https://127.0.0.1:{}", node.port());
                let status = [
                    "--user",
                    "root:s3cr3t",
                    "endpoint",
                    "status",
                    "--write-out",
                    "fields",
                    "--command-timeout",
                    "2s",
                ];
                let status = ctl(&endpoint, self.certificates.authority(), &self.client, &status);
                let fields = status.unwrap_or_default();
                let field = |name: &str| {
                    let line = fields.lines().find(|line| line.starts_with(&format!("\"{name}\"")));
                    line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
                };
                let (leader, me) = (field("Leader"), field("MemberID"));
                if leader.is_some() && leader == me {
                    return node;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl EtcdCluster {
    /// The URL of the locks below a path.
    fn url_of(&self, path: &str) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("localhost:{}", node.port())).collect();
        let ca = text(self.certificates.authority());
        let (cert, key) = (text(&self.client.certificate), text(&self.client.key));
        format!("etcds://root:s3cr3t@{}{path}?ca={ca}&cert={cert}&key={key}", hosts.join(","))
    }
}

impl Backend for EtcdCluster {
    fn url(&self) -> String {
        self.url_of("")
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

impl Nodes for EtcdCluster {
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exclusion
    }

    fn fail_over(&self) -> Step<'_> {
        Box::pin(async {
            self.leader().await.stop();
            self.leader().await;
        })
    }

    fn repair(&self) -> Step<'_> {
        Box::pin(async {
            self.nodes.iter().filter(|node| !node.is_running()).for_each(Server::start);
            let endpoints = self.endpoints();
            let health = ["--user", "root:s3cr3t", "endpoint", "health"];
            let healthy = || ctl(&endpoints, self.certificates.authority(), &self.client, &health).is_ok();
            until(|| async { healthy() }).await;
        })
    }
}

/// A part of the keys of a cluster that several tests use at the same time.
struct Part {
    cluster: Used<EtcdCluster>,
    path: String,
}

impl Part {
    async fn new() -> Option<Part> {
        static CLUSTER: Shared<EtcdCluster> = Shared::new();
        static PARTS: AtomicUsize = AtomicUsize::new(0);
        let cluster = CLUSTER.get(EtcdCluster::start).await?;
        Some(Part { cluster, path: format!("/part-{}", PARTS.fetch_add(1, Ordering::Relaxed)) })
    }
}

impl Backend for Part {
    fn url(&self) -> String {
        self.cluster.url_of(&self.path)
    }

    fn kills(&self) -> usize {
        4
    }
}

/// Stops and starts all nodes.
impl Server for EtcdCluster {
    fn stop(&self) {
        self.nodes.iter().for_each(Server::stop);
    }

    fn start(&self) {
        self.nodes.iter().for_each(Server::start);
    }
}

macro_rules! etcd_cluster {
    () => {
        match EtcdCluster::start() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

mod in_part {
    use super::Part;

    macro_rules! part {
        () => {
            match Part::new().await {
                Some(part) => part,
                None => return,
            }
        };
    }

    crate::conformance_without_stops! { part!() }
}

mod alone {
    use super::EtcdCluster;

    crate::conformance! { etcd_cluster!();
        processes::a_server_that_goes_away_is_noticed,
        detached::detached_holds_survive_a_restart_of_the_server,
        // The other failovers are below, with nodes that hang or are in the minority.
        processes::a_stopped_holder_is_alone_or_learns_that_it_lost,
        kills::random_kills_never_admit_two_and_never_block,
    }
}

#[tokio::test]
async fn a_node_that_is_down_and_a_user_without_rights_are_findings() {
    let cluster = etcd_cluster!();
    let whole = open(&cluster).await.diagnose().await.unwrap();
    assert!(!whole.has_risks(), "{whole:#?}");
    let endpoints = cluster.endpoints();
    let admin = |args: &[&str]| {
        let args: Vec<&str> = ["--user", "root:s3cr3t"].iter().chain(args).copied().collect();
        ctl(&endpoints, cluster.certificates.authority(), &cluster.client, &args).unwrap()
    };
    admin(&["user", "add", "weak:s3cr3t"]);
    let weak = lockkeeper::diagnose(cluster.url().replace("root:", "weak:")).await.unwrap();
    assert_eq!(found(&weak, "open").severity, Severity::Critical);
    cluster.nodes[2].stop();
    let mut partial = open(&cluster).await.diagnose().await.unwrap();
    // While the others elect a leader, a lock may not be granted in time.
    partial.findings.retain(|finding| !TRIAL.contains(&finding.check));
    assert!(found(&partial, "health").found.contains("`n2` cannot be reached"), "{partial:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_take_turns_while_the_leader_dies_or_hangs() {
    let cluster = etcd_cluster!();
    let test = async {
        let clients = Clients::start(&cluster.url(), Duration::from_secs(10)).await;
        clients.enter().await;
        let leader = cluster.leader().await;
        leader.stop();
        clients.enter().await;
        leader.start();
        clients.enter().await;
        // To the others and to its clients, a node that hangs is as one whose network is cut.
        let leader = cluster.leader().await;
        leader.signal("STOP");
        clients.enter().await;
        leader.signal("CONT");
        clients.enter().await;
        clients.end().await;
    };
    tokio::time::timeout(TIMEOUT, test).await.expect("the test is stuck");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_its_leader_and_is_lost_with_the_majority() {
    let cluster = etcd_cluster!();
    let test = async {
        let locks = open(&cluster).await;
        let guard = locks.mutex("a").ttl(Duration::from_secs(15)).acquire().await.unwrap();
        let leader = cluster.leader().await;
        leader.stop();
        // Another node has taken over when it grants another lock. The hold is still in the store, and renewed.
        until(|| async { locks.mutex("b").acquire().await.is_ok() }).await;
        assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
        assert!(guard.is_valid(), "{:?}", guard.state());
        leader.start();
        cluster.nodes.iter().take(2).for_each(Server::stop);
        let loss = guard.lost().await;
        assert!(matches!(loss, Loss::Unreachable(_) | Loss::Expired), "{loss}");
        assert!(matches!(guard.state(), HoldState::Lost(_)));
        assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
    };
    tokio::time::timeout(TIMEOUT, test).await.expect("the test is stuck");
}
