//! The suite on a cluster of lockkeeper's own daemons, and tests of the guarantees of this engine.

use crate::backend::{Backend, Server, TIMEOUT, acquire, open_url, until, until_waiting};
use crate::doctor::found;
use lockkeeper::cluster::{ClusterStatus, Operator};
use lockkeeper::{Error, HoldState, Lockkeeper, Loss};
use lockkeeper_daemon::{ClientTls, Config, MemberConfig, MemberId};
use lockkeeper_testbed::certificates::{Certificates, Files};
use lockkeeper_testbed::ports;
use lockkeeper_testbed::servers::LocalServer;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The factor by which all times of these clusters are longer than the defaults.
const SLOWER: u32 = 4;

/// The daemons of one cluster, each in a separate process.
pub struct Cluster {
    daemons: Vec<LocalServer>,
    /// With TLS: what a client needs.
    credentials: Option<Credentials>,
    _data: Arc<tempfile::TempDir>,
}

/// The authority of the daemons, and a certificate of a client.
struct Credentials {
    authority: Certificates,
    client: Files,
}

/// A token for everything, `test`.
const TOKENS: &str = r#"
[[token]]
name = "root"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
acquire = [""]
observe = [""]
admin = [""]
"#;

/// The command that runs this test binary as a daemon. It ends with this process, even if that is killed.
///
/// `secured` are the files of a certificate, its key and the authority of clients, and the file of tokens.
fn daemon(data: &Path, id: u32, clients: u16, members: &[u16], secured: Option<&[PathBuf; 4]>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "cluster::daemon_process", "--ignored", "--nocapture"]);
    let members: Vec<String> = members.iter().map(u16::to_string).collect();
    let words = [id.to_string(), clients.to_string(), members.join(",")];
    command.env("LOCKKEEPER_TEST_DAEMON", data).env("LOCKKEEPER_TEST_MEMBER", words.join(" "));
    if let Some(files) = secured {
        command.env("LOCKKEEPER_TEST_SECURED", std::env::join_paths(files).unwrap());
    }
    command
}

/// The body of a daemon's process; it is of use only if a [`Cluster`] started it.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn daemon_process() {
    let data = std::env::var("LOCKKEEPER_TEST_DAEMON").expect("only daemons run this");
    let words = std::env::var("LOCKKEEPER_TEST_MEMBER").unwrap();
    let words: Vec<&str> = words.split(' ').collect();
    let ports: Vec<u16> = words[2].split(',').map(|port| port.parse().unwrap()).collect();
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let id: u32 = words[0].parse().unwrap();
    let mut member = MemberConfig::new(MemberId(id), at(ports[id as usize - 1]), data);
    member.first_members = (1..).map(MemberId).zip(ports.iter().map(|port| at(*port).to_string())).collect();
    // The join token, the same for all processes of all runs.
    let join_token = lockkeeper_daemon::JoinToken::parse(&format!("lkjoin_{}", "7e".repeat(32)));
    member.join_token = Some(join_token.unwrap());
    member.times = member.times.times(SLOWER);
    let mut config = Config::of(member, at(words[1].parse().unwrap()), at(0));
    if let Some(files) = std::env::var_os("LOCKKEEPER_TEST_SECURED") {
        let files: Vec<PathBuf> = std::env::split_paths(&files).collect();
        let [certificate, key, authority, tokens] = files.try_into().unwrap();
        config.client_tls = Some(ClientTls { certificate, key, client_authority: Some(authority) });
        config.tokens = Some(tokens);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let daemon = lockkeeper_daemon::Daemon::start(config).await.unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        tokio::select! {
            _ = daemon.ends() => {}
            _ = terminate.recv() => daemon.leave().await,
        }
    });
}

impl Cluster {
    /// Starts a cluster with this number of members. Leases are longer than the defaults: many processes share few
    /// cores here, and holds have to be renewed in time.
    pub fn of(members: u32) -> Cluster {
        Self::start(members, None)
    }

    /// The same, with daemons that require TLS, a certificate of the client and a token.
    pub fn secured(members: u32) -> Cluster {
        let authority = Certificates::new();
        let client = authority.client("me");
        Self::start(members, Some(Credentials { authority, client }))
    }

    fn start(members: u32, credentials: Option<Credentials>) -> Cluster {
        let data = Arc::new(tempfile::tempdir().unwrap());
        let secured = credentials.as_ref().map(|credentials| {
            let (own, tokens) = (credentials.authority.server(), data.path().join("tokens.toml"));
            std::fs::write(&tokens, TOKENS).unwrap();
            std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
            [own.certificate, own.key, credentials.authority.authority().into(), tokens]
        });
        let ports: Vec<u16> = (0..members).map(|_| ports::free().unwrap()).collect();
        let start = |id: u32| {
            let (folder, ports, secured) = (data.path().join(id.to_string()), ports.clone(), secured.clone());
            LocalServer::start(move |port| daemon(&folder, id, port, &ports, secured.as_ref()))
        };
        let daemons = (1..=members).map(start).collect();
        let cluster = Cluster { daemons, credentials, _data: data };
        cluster.serves();
        cluster
    }

    /// Waits until the daemons grant locks. A new cluster waits for one lease first, which is longer than a client's
    /// timeout.
    fn serves(&self) {
        let url = self.url();
        let asking = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let serves = async {
                while !status(&url).await.is_ok_and(|line| line.serves) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            runtime.block_on(async { timeout(TIMEOUT, serves).await })
        });
        asking.join().unwrap().expect("the daemons grant locks");
    }
}

impl Cluster {
    /// Opens a client with some of the daemons, the first of them preferred.
    async fn open(&self, places: &[usize]) -> Lockkeeper {
        let hosts: Vec<String> =
            places.iter().map(|place| format!("127.0.0.1:{}", self.daemons[*place].port())).collect();
        open_url(&format!("lockkeeper://{}?in-order", hosts.join(","))).await
    }
}

async fn status(url: &str) -> Result<ClusterStatus, Error> {
    Operator::open(url).await?.cluster().await
}

impl Backend for Cluster {
    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.daemons.iter().map(|daemon| format!("127.0.0.1:{}", daemon.port())).collect();
        let hosts = hosts.join(",");
        match &self.credentials {
            None => format!("lockkeeper://{hosts}"),
            Some(Credentials { authority, client }) => format!(
                "lockkeeper://root:test@{hosts}?ca={}&cert={}&key={}",
                authority.authority().display(),
                client.certificate.display(),
                client.key.display()
            ),
        }
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    /// Fewer kills, as each of them costs a lease.
    fn kills(&self) -> usize {
        8
    }
}

impl Server for Cluster {
    fn stop(&self) {
        self.daemons.iter().for_each(|daemon| daemon.stop());
    }

    fn start(&self) {
        self.daemons.iter().for_each(Server::start);
        self.serves();
    }
}

mod alone {
    use super::Cluster;
    crate::conformance! { Cluster::of(1) }
}

/// Over TLS, with a certificate of the client and a token.
mod three {
    use super::Cluster;
    crate::conformance! { Cluster::secured(3) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diagnosis_names_the_size_of_a_cluster_its_dead_daemons_and_a_missing_token() {
    timeout(TIMEOUT, diagnosed()).await.expect("the test is stuck");
}

async fn diagnosed() {
    let risks = |diagnosis: &lockkeeper::Diagnosis| -> Vec<&'static str> {
        let risks = diagnosis.findings.iter().filter(|finding| finding.severity.is_risk());
        risks.map(|finding| finding.check).collect()
    };
    let alone = Cluster::of(1);
    assert_eq!(risks(&open_url(&alone.url()).await.diagnose().await.unwrap()), ["size"]);
    let three = Cluster::secured(3);
    let locks = open_url(&three.url()).await;
    until(|| async { risks(&locks.diagnose().await.unwrap()).is_empty() }).await;
    let wrong = lockkeeper::diagnose(three.url().replace("root:test@", "root:wrong@")).await.unwrap();
    assert!(found(&wrong, "open").found.contains("valid token"), "{wrong:#?}");
    Server::stop(&three.daemons[2]);
    until(|| async { risks(&locks.diagnose().await.unwrap()) == ["health"] }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_death_of_its_daemon_a_client_keeps_its_hold_and_its_requests_are_repeated_elsewhere_in_order()
 {
    timeout(TIMEOUT, its_daemon_dies()).await.expect("the test is stuck");
}

async fn its_daemon_dies() {
    let cluster = Cluster::of(3);
    let (holder, client) = (cluster.open(&[2]).await, cluster.open(&[0, 1]).await);
    let busy = holder.mutex("busy").acquire().await.unwrap();
    // With the times of these tests, the adoption takes several seconds.
    let mine = client.mutex("mine").ttl(Duration::from_secs(50)).acquire().await.unwrap();
    let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..5 {
        let (entered, client) = (entered.clone(), client.clone());
        tokio::spawn(async move {
            let guard = client.mutex("busy").acquire().await.unwrap();
            entered.send(n).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&holder, "busy", n + 1).await;
    }
    // Longer than the lease of a session, 4.8 s here: the cluster has recorded the hold.
    until(|| async { mine.valid_for() > Duration::from_secs(25) }).await;
    Server::stop(&cluster.daemons[0]);
    // The connection is lost, and the hold is not; another daemon ends the jeopardy.
    let jeopardy = mine.state_changed(&HoldState::Held).await;
    assert!(matches!(jeopardy, HoldState::Jeopardy(_)) && mine.is_valid(), "{jeopardy:?}");
    assert_eq!(mine.state_changed(&jeopardy).await, HoldState::Held);
    // All of them now wait at another daemon, in the same order.
    until_waiting(&holder, "busy", 5).await;
    // Another member has adopted the hold, or will.
    assert!(mine.is_valid());
    // The dead member does not answer: the hold is not listed before another one has adopted it.
    until(|| async { holder.inspect("mine").await.unwrap().holders.len() == 1 }).await;
    assert!(holder.mutex("mine").try_acquire().await.unwrap().is_none());
    let fence = mine.fence();
    mine.release().await.unwrap();
    let next = holder.mutex("mine").acquire().await.unwrap();
    assert!(next.fence() > fence);
    busy.release().await.unwrap();
    for n in 0..5 {
        assert_eq!(order.recv().await, Some(n));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_the_restart_of_all_daemons_at_once() {
    timeout(TIMEOUT, all_daemons_restart()).await.expect("the test is stuck");
}

async fn all_daemons_restart() {
    let cluster = Cluster::of(3);
    let client = cluster.open(&[0, 1, 2]).await;
    let ttl = Duration::from_secs(60);
    let mine = client.mutex("mine").ttl(ttl).acquire().await.unwrap();
    assert_eq!(mine.ttl(), Some(ttl));
    // Longer than any lease of a session: the cluster has recorded the hold.
    until(|| async { mine.valid_for() > ttl / 2 }).await;
    Server::stop(&cluster);
    Server::start(&cluster);
    cluster.serves();
    assert!(mine.is_valid());
    let other = cluster.open(&[2, 1, 0]).await;
    assert!(other.mutex("mine").try_acquire().await.unwrap().is_none());
    let fence = mine.fence();
    mine.release().await.unwrap();
    assert!(other.mutex("mine").acquire().await.unwrap().fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_its_daemon_leaves_a_client_keeps_its_holds_and_sends_requests_elsewhere() {
    timeout(TIMEOUT, its_daemon_leaves()).await.expect("the test is stuck");
}

async fn its_daemon_leaves() {
    let cluster = Cluster::of(3);
    let (other, client) = (cluster.open(&[2]).await, cluster.open(&[0, 1]).await);
    let mine = client.mutex("mine").acquire().await.unwrap();
    let busy = other.mutex("busy").acquire().await.unwrap();
    let waiting = acquire(client.mutex("busy"));
    until_waiting(&other, "busy", 1).await;
    cluster.daemons[0].signal("TERM");
    // The waiter has moved to another daemon and is granted the lock, while the other hold continues.
    busy.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    client.mutex("another").acquire().await.unwrap().release().await.unwrap();
    assert!(mine.is_valid(), "another member adopts the holds of a daemon that leaves");
    assert!(other.mutex("mine").try_acquire().await.unwrap().is_none());
    mine.release().await.unwrap();
    until(|| async { other.mutex("mine").try_acquire().await.unwrap().is_some() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_a_hold_that_was_taken_back_by_force_is_an_error() {
    timeout(TIMEOUT, taken_back_by_force()).await.expect("the test is stuck");
}

async fn taken_back_by_force() {
    let cluster = Cluster::of(1);
    let (holder, url) = (cluster.open(&[0]).await, cluster.url());
    let operator = Operator::open(&url).await.unwrap();
    // The holder has been notified before it releases.
    let noticed = holder.mutex("noticed").acquire().await.unwrap();
    assert_eq!(release_by_force(&operator, "noticed").await, 1);
    assert!(matches!(noticed.lost().await, Loss::Revoked { .. }));
    let error = noticed.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_hold_stays_with_its_holder_until_the_holder_has_stopped() {
    timeout(TIMEOUT, revoked_and_stops()).await.expect("the test is stuck");
}

/// Releases the holds of a lock by force. A member of a busy machine may not reply in time: then the error asks for a
/// repetition.
async fn release_by_force(operator: &Operator, name: &str) -> u32 {
    loop {
        match operator.release_by_force(name).await {
            Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            released => return released.unwrap(),
        }
    }
}

async fn revoked_and_stops() {
    let cluster = Cluster::of(3);
    let (holder, other) = (cluster.open(&[0]).await, cluster.open(&[1]).await);
    let ttl = Duration::from_secs(60);
    let mine = holder.mutex("mine").ttl(ttl).acquire().await.unwrap();
    // The cluster has recorded the hold.
    until(|| async { mine.valid_for() > ttl / 2 }).await;
    let operator = Operator::open(&cluster.url()).await.unwrap();
    assert_eq!(release_by_force(&operator, "mine").await, 1);
    let loss = mine.lost().await;
    assert!(matches!(&loss, Loss::Revoked { by: Some(by) } if !by.is_empty()), "{loss:?}");
    // The rest of the lease is there to stop in.
    if mine.valid_for() > Duration::from_secs(20) {
        assert!(other.mutex("mine").try_acquire().await.unwrap().is_none(), "the lease protects the holder");
    }
    let next = acquire(other.mutex("mine"));
    until_waiting(&other, "mine", 1).await;
    let (fence, left) = (mine.fence(), mine.valid_for());
    let error = mine.release().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { reason, .. } if *reason == loss), "{error}");
    let next = next.await.unwrap();
    assert!(next.fence() > fence && left <= ttl);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_a_hold_names_the_daemon_that_cannot_be_reached() {
    timeout(TIMEOUT, cause_of_loss()).await.expect("the test is stuck");
}

async fn cause_of_loss() {
    let cluster = Cluster::of(1);
    let holder = cluster.open(&[0]).await;
    let mine = holder.mutex("mine").acquire().await.unwrap();
    Server::stop(&cluster.daemons[0]);
    let loss = mine.lost().await;
    // On a machine too slow for an attempt to connect, the broken connection is the last failure.
    let address = format!("127.0.0.1:{}", cluster.daemons[0].port());
    let named = [address.as_str(), "the connection to the daemon broke", "no daemon can be reached"];
    assert!(named.iter().any(|cause| loss.to_string().contains(cause)), "{loss}");
    assert!(!mine.is_valid());
    assert_eq!(mine.lost().await, loss, "the first reason stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_lock_is_not_limited_by_the_longest_time_to_live_and_can_be_revoked() {
    timeout(TIMEOUT, kept_for_long()).await.expect("the test is stuck");
}

async fn kept_for_long() {
    let cluster = Cluster::of(1);
    let (locks, other) = (cluster.open(&[0]).await, cluster.open(&[0]).await);
    let day = Duration::from_secs(24 * 3600);
    let guard = locks.mutex("a").ttl(Duration::from_secs(60)).at_least(day).acquire().await.unwrap();
    let holders = other.inspect("a").await.unwrap().holders;
    assert!(holders[0].detached.as_ref().is_some_and(|detached| detached.left() > day / 2), "{holders:?}");
    assert!(!other.release_as("a", guard.holder()).await.unwrap(), "its process works under it");
    let operator = Operator::open(&cluster.url()).await.unwrap();
    assert_eq!(release_by_force(&operator, "a").await, 1);
    let loss = guard.lost().await;
    assert!(matches!(&loss, Loss::Revoked { by: Some(_) }), "{loss:?}");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { reason, .. } if *reason == loss), "{error}");
    // The daemon does not wait for the end of the promise: the process has stopped.
    let asked = std::time::Instant::now();
    let next = other.mutex("a").acquire().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(50), "{:?}", asked.elapsed());
    drop(next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_no_daemon_confirms_is_an_error() {
    timeout(TIMEOUT, unconfirmed_release()).await.expect("the test is stuck");
}

async fn unconfirmed_release() {
    let cluster = Cluster::of(1);
    let holder = cluster.open(&[0]).await;
    let guard = holder.mutex("a").acquire().await.unwrap();
    // The daemon receives the release, and dies before it replies.
    cluster.daemons[0].signal("STOP");
    assert!(guard.is_valid());
    let releasing = tokio::spawn(guard.release());
    tokio::task::yield_now().await;
    Server::stop(&cluster.daemons[0]);
    let error = releasing.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}
