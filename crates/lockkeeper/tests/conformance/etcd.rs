//! The suite on etcd, and tests of the guarantees of this engine.

use crate::backend::{Backend, Server, acquire, open, until, until_waiting};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// An etcd server with its own data.
pub struct Etcd {
    pub daemon: LocalServer,
    _data: Arc<tempfile::TempDir>,
}

impl Etcd {
    /// Returns `None` if there is no etcd and the user is not root.
    pub fn start() -> Option<Etcd> {
        Self::start_with(&[])
    }

    /// The same, with further options.
    pub fn start_with(options: &[&str]) -> Option<Etcd> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let program = servers::program("etcd", &[], "etcd-server")?;
        servers::program("etcdctl", &[], "etcd-client")?;
        let data = Arc::new(tempfile::tempdir().unwrap());
        let directory = data.clone();
        let daemon = LocalServer::start(move |port| {
            // Ends with this process, even if that is killed.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&program).env_clear();
            let clients = format!("http://127.0.0.1:{port}");
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            // The cluster has no other members: any port will do for them.
            command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error"]);
            command.args(&options).arg("--data-dir").arg(directory.path());
            command
        });
        Some(Etcd { daemon, _data: data })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    /// Runs one command of etcdctl.
    pub fn ctl(&self, args: &[&str]) -> String {
        self.try_ctl(args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// Runs one command of etcdctl, and returns what it printed, or its error.
    pub fn try_ctl(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.address()])
            .args(args)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// All keys in the store.
    fn keys(&self) -> Vec<String> {
        let keys = self.ctl(&["get", "", "--from-key", "--keys-only"]);
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Backend for Etcd {
    fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.daemon)
    }

    /// Fewer kills, as each kill of a holder costs a lease.
    fn kills(&self) -> usize {
        6
    }
}

/// Starts the server, or returns from the test.
macro_rules! etcd {
    () => {
        match Etcd::start() {
            Some(etcd) => etcd,
            None => return,
        }
    };
}

crate::conformance! { etcd!() }

#[tokio::test]
async fn an_idle_lock_leaves_nothing_behind() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    for n in 0..5 {
        locks.mutex(format!("lock {n}")).acquire().await.unwrap().release().await.unwrap();
    }
    drop(locks.semaphore("dropped", 3).acquire().await.unwrap());
    let held = locks.mutex("held").acquire().await.unwrap();
    assert!(locks.mutex("held").try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    until(|| async { etcd.keys().is_empty() }).await;
    until(|| async { etcd.ctl(&["lease", "list"]) == "found 0 leases" }).await;
}

/// The keys of a detached hold have a lease of their own, and nothing of them is left.
#[tokio::test]
async fn a_detached_hold_is_two_keys_with_one_lease() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    let hour = Duration::from_secs(3600);
    locks.mutex("a/b").hold_as("web 3", hour).acquire().await.unwrap();
    let keys = etcd.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_eq!(keys[0], "/lockkeeper/.as/a%2Fb/web%203");
    assert!(keys[1].starts_with("/lockkeeper/a%2Fb/m/x."), "{keys:?}");
    assert!(etcd.ctl(&["get", &keys[1]]).contains(r#""detached":{"owner":"web 3","fence":"#));
    assert_eq!(etcd.ctl(&["lease", "list"]).lines().count(), 2, "one lease below the heading");
    locks.mutex("a/b").hold_as("web 3", hour * 2).acquire().await.unwrap();
    assert_eq!(etcd.ctl(&["lease", "list"]).lines().count(), 2, "one lease below the heading");
    let left = locks.detached("a/b", "web 3").await.unwrap().unwrap().left;
    assert!(left > hour && left <= hour * 2, "the server counts: {left:?}");
    assert!(locks.release_as("a/b", "web 3").await.unwrap());
    assert!(etcd.keys().is_empty());
    let kept = locks.mutex("b").ttl(Duration::from_secs(5)).at_least(hour).acquire().await.unwrap();
    let holder = kept.holder().to_owned();
    assert!(!locks.release_as("b", &holder).await.unwrap(), "its process holds it");
    drop(kept);
    until(|| async { locks.release_as("b", &holder).await.unwrap() }).await;
    until(|| async { etcd.keys().is_empty() }).await;
    until(|| async { etcd.ctl(&["lease", "list"]) == "found 0 leases" }).await;
}

/// A holder or waiter whose key or lease an administrator removes is notified at once, not when the lease would have
/// expired.
#[tokio::test]
async fn a_forced_release_is_noticed_at_once() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    let hour = Duration::from_secs(3600);
    let holder = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("a").ttl(hour).acquire());
    until_waiting(&locks, "a", 1).await;
    let next = acquire(locks.mutex("a").ttl(hour));
    until_waiting(&locks, "a", 2).await;
    // By create revision: the second key is the waiter's.
    let in_order = etcd.ctl(&["get", "/lockkeeper/", "--prefix", "--keys-only", "--sort-by=CREATE"]);
    let in_order: Vec<&str> = in_order.lines().filter(|line| !line.is_empty()).collect();
    etcd.ctl(&["del", in_order[1]]);
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::SessionLost { .. }), "{error}");
    etcd.ctl(&["del", in_order[0]]);
    assert!(holder.lost().await.to_string().contains("by another client"));
    assert!(!holder.is_valid());
    let fence = holder.fence();
    let error = holder.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(next.await.unwrap().fence() > fence);
}

#[tokio::test]
async fn a_restart_of_the_server_within_the_lease_loses_nothing() {
    let etcd = etcd!();
    let (locks, other) = (open(&etcd).await, open(&etcd).await);
    let hour = Duration::from_secs(3600);
    let holder = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let waiter = acquire(other.mutex("a").ttl(hour));
    until_waiting(&locks, "a", 1).await;
    let mut watch = locks.watch().await.unwrap();
    etcd.daemon.stop();
    etcd.daemon.start();
    assert!(holder.is_valid());
    until(|| async { locks.mutex("a").try_acquire().await.is_ok_and(|guard| guard.is_none()) }).await;
    let fence = holder.fence();
    holder.release().await.unwrap();
    assert!(waiter.await.unwrap().fence() > fence);
    watch.changed().await.unwrap();
}

#[tokio::test]
async fn a_path_in_the_url_is_a_place_of_its_own() {
    let etcd = etcd!();
    let here = open(&etcd).await.mutex("a").acquire().await.unwrap();
    let elsewhere = Lockkeeper::open(&format!("{}/team/x/", etcd.url())).await.unwrap();
    let there = elsewhere.mutex("a").try_acquire().await.unwrap().expect("another lock");
    assert!(etcd.keys().iter().any(|key| key.starts_with("/team/x/a/m/x.")), "{:?}", etcd.keys());
    assert_eq!(elsewhere.list().await.unwrap().len(), 1);
    drop((here, there));
}

#[tokio::test]
async fn a_key_that_is_not_ours_is_named_not_guessed() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    etcd.ctl(&["put", "/lockkeeper/a/strange", "1"]);
    for error in
        [locks.mutex("a").acquire().await, locks.mutex("a").try_acquire().await.map(|_| unreachable!())]
    {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/lockkeeper/a/strange") && error.contains("not Lockkeeper's"), "{error}");
    }
    assert!(locks.inspect("a").await.unwrap().holders.is_empty());
    locks.mutex("b").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn metadata_that_is_too_long_is_rejected() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    let error = locks.mutex("a").metadata("novel", "x".repeat(1 << 20)).acquire().await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("at most 16384"), "{error}");
}

/// Uses more locks than fit one page.
#[tokio::test]
async fn many_locks_are_listed_page_by_page() {
    let etcd = etcd!();
    let locks = open(&etcd).await;
    let mut held = Vec::new();
    for n in 0..450 {
        held.push(locks.shared("s").metadata("n", n.to_string()).acquire().await.unwrap());
    }
    assert_eq!(locks.inspect("s").await.unwrap().holders.len(), 450);
    assert!(locks.mutex("s").try_acquire().await.unwrap().is_none());
}

async fn refused(url: &str) -> String {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("secret"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_error_of_the_server_names_the_cause() {
    let etcd = etcd!();
    let address = etcd.address();
    assert!(refused(&format!("etcd://u:secret@{address}")).await.contains("has no authentication"));
    for user in ["root:secret", "limited:secret"] {
        etcd.ctl(&["user", "add", user]);
    }
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    assert!(refused(&etcd.url()).await.contains("wants a user and a password"));
    assert!(refused(&format!("etcd://root:secret2@{address}")).await.contains("wrong user or password"));
    assert!(refused(&format!("etcd://nobody:secret@{address}")).await.contains("wrong user or password"));
    assert!(refused(&format!("etcd://limited:secret@{address}")).await.contains("may not read and write"));
    let locks = Lockkeeper::open(&format!("etcd://root:secret@{address}")).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    etcd.daemon.stop();
    let error = refused(&etcd.url()).await;
    assert!(error.contains("is it etcd, and does it run?") && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_etcd_is_reported() {
    for answer in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"\0\0\0\0"] {
        let error = refused(&format!("etcd://{}", crate::network::impostor(answer).await)).await;
        assert!(error.contains("is it etcd"), "{error}");
    }
}

#[tokio::test]
async fn lost_replies_do_nothing_twice() {
    let etcd = etcd!();
    crate::network::lost_replies_do_nothing_twice(|address| format!("etcd://{address}"), etcd.address())
        .await;
}

/// The connection stays open without replies: renewals are blocked past the time to live.
#[tokio::test]
async fn a_server_that_hangs_is_noticed() {
    let etcd = etcd!();
    crate::network::a_server_that_hangs_is_noticed(&etcd, &etcd.daemon).await;
}

/// One of two servers is down from the start; then the connection to the other one breaks.
#[tokio::test]
async fn a_server_that_is_down_is_passed_over() {
    let etcd = etcd!();
    let dead = lockkeeper_testbed::ports::free().unwrap();
    let url = format!("etcd://127.0.0.1:{dead},{}", etcd.address());
    let locks = Lockkeeper::open(&url).await.unwrap();
    let hour = Duration::from_secs(3600);
    for _ in 0..10 {
        locks.mutex("a").ttl(hour).acquire().await.unwrap().release().await.unwrap();
    }
    let held = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    etcd.daemon.stop();
    etcd.daemon.start();
    until(|| async { locks.mutex("a").try_acquire().await.is_ok_and(|guard| guard.is_none()) }).await;
    held.release().await.unwrap();
}

/// etcd discards its simple tokens when authentication is disabled, as it does after five minutes without a request.
#[tokio::test]
async fn a_token_that_the_server_forgot_is_renewed() {
    let etcd = etcd!();
    etcd.ctl(&["user", "add", "root:secret"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    let locks = Lockkeeper::open(&format!("etcd://root:secret@{}", etcd.address())).await.unwrap();
    let hour = Duration::from_secs(3600);
    let held = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    etcd.ctl(&["--user", "root:secret", "auth", "disable"]);
    etcd.ctl(&["auth", "enable"]);
    held.release().await.unwrap();
    locks.mutex("a").ttl(hour).acquire().await.unwrap().release().await.unwrap();
}
