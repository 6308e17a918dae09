//! The suite on one Redis server, and tests of the guarantees of this engine.

use crate::backend::{Backend, Environment, Server, acquire, open, until};
use lockkeeper::{Acquire, Error, Lockkeeper, Loss};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A redis-server with its own data.
pub struct Redis {
    pub daemon: LocalServer,
    /// The options of redis-cli.
    cli: Vec<String>,
    _data: Arc<tempfile::TempDir>,
}

impl Redis {
    /// Returns `None` if there is no redis-server and the user is not root.
    pub fn start(options: &[&str]) -> Option<Redis> {
        Redis::start_with(options, &[])
    }

    /// The same, with options for redis-cli. `{port}` in an option of the server is its port.
    pub fn start_with(options: &[&str], cli: &[&str]) -> Option<Redis> {
        Redis::start_in(&[], options, cli)
    }

    /// The same, with further variables in the environment of the server.
    pub fn start_in(environment: &Environment, options: &[&str], cli: &[&str]) -> Option<Redis> {
        let environment = environment.to_vec();
        let cli: Vec<String> = cli.iter().map(|option| (*option).to_owned()).collect();
        let program = servers::program("redis-server", &[], "redis-server")?;
        let data = Arc::new(tempfile::tempdir().unwrap());
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        loop {
            let (program, options, directory) = (program.clone(), options.clone(), data.clone());
            let environment = environment.clone();
            let daemon = LocalServer::start(move |port| {
                let mut command = Command::new(&program);
                command.envs(environment.clone());
                // Every write is on disk before its reply, which is the careful configuration for locks.
                command.args(["--bind", "127.0.0.1", "--save", ""]);
                command.args(["--appendonly", "yes", "--appendfsync", "always"]);
                let options = options.iter().map(|option| option.replace("{port}", &port.to_string()));
                command.args(["--port", &port.to_string()]).args(options).arg("--dir").arg(directory.path());
                command
            });
            let redis = Redis { daemon, cli: cli.clone(), _data: data.clone() };
            if redis.serves() {
                return Some(redis);
            }
        }
    }

    /// Returns true when this process has loaded its data and serves; false if it ended. The process id is compared,
    /// because a server of another test may have taken the port at the same moment.
    fn serves(&self) -> bool {
        let pid = self.daemon.pid();
        let me = format!("process_id:{pid}");
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z')) {
                return false;
            }
            let answer = self.cli(&["INFO", "server"]);
            if answer.lines().any(|line| line == me) || answer.contains("NOAUTH") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    /// Runs one command of redis-cli.
    pub fn cli(&self, args: &[&str]) -> String {
        let port = self.daemon.port().to_string();
        // Without a time limit, a server that hangs would block the test forever.
        let mut limited = Command::new("timeout");
        let output =
            limited.args(["20", "redis-cli", "-p", &port]).args(&self.cli).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Server for Redis {
    fn stop(&self) {
        self.daemon.stop();
    }

    fn start(&self) {
        loop {
            Server::start(&self.daemon);
            if self.serves() {
                return;
            }
            self.daemon.stop();
        }
    }
}

impl Backend for Redis {
    fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    /// Fewer kills, as each kill of a holder costs a lease.
    fn kills(&self) -> usize {
        6
    }
}

/// Starts the server, or returns from the test.
macro_rules! redis {
    ($($option:expr),*) => { match Redis::start(&[$($option),*]) { Some(redis) => redis, None => return } };
}

crate::conformance! { redis!() }

async fn refused(url: &str) -> String {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("secret"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_error_of_the_server_names_the_cause() {
    let redis = redis!("--requirepass", "secret");
    let address = redis.address();
    assert!(refused(&format!("redis://{address}")).await.contains("asks for a password"));
    assert!(
        refused(&format!("redis://:secret2@{address}"))
            .await
            .contains("does not accept this user and password")
    );
    assert!(
        refused(&format!("redis://x:secret@{address}"))
            .await
            .contains("does not accept this user and password")
    );
    for url in [format!("redis://{address}"), format!("redis://:secret2@{address}")] {
        let error = Lockkeeper::open(&url).await.unwrap_err();
        assert!(matches!(error, Error::Unauthenticated { source: Some(_), .. }), "{error:?}");
    }
    assert!(Lockkeeper::open(&format!("redis://:secret@{address}")).await.is_ok());
    redis.daemon.stop();
    assert!(refused(&redis.url()).await.contains("refuses connections; is Redis running there?"));
    for url in ["redis://", "redis://h:port", "redis://h/database", "rediss://h?ca=/nowhere", "redis://a,,b"]
    {
        assert!(refused(url).await.contains("bad engine URL"), "{url}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_reported() {
    let http = crate::impostor::start(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    assert!(refused(&format!("redis://{http}")).await.contains("does not speak Redis's protocol"));
    let mute = crate::impostor::start(b"").await;
    assert!(refused(&format!("redis://{mute}")).await.contains("did not answer within 5s"));
}

#[tokio::test]
async fn a_read_only_replica_is_refused() {
    let primary = redis!();
    let replica = redis!("--replicaof", "127.0.0.1", &primary.daemon.port().to_string());
    let locks = Lockkeeper::open(&replica.url()).await.unwrap();
    let error = locks.mutex("a").try_acquire().await.unwrap_err();
    // While it still synchronises, it may reject requests with other errors.
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("read-only replica; name the primary"), "{error}");
}

#[tokio::test]
async fn an_idle_lock_leaves_nothing_but_the_fence() {
    let redis = redis!();
    let locks = open(&redis).await;
    for n in 0..20 {
        locks.mutex(format!("lock {n}")).acquire().await.unwrap().release().await.unwrap();
        locks.semaphore(format!("permits {n}"), 2).acquire().await.unwrap().release().await.unwrap();
    }
    drop(locks.mutex("dropped").acquire().await.unwrap());
    until(|| async { redis.cli(&["KEYS", "*"]) == "lockkeeper:fence" }).await;
}

#[tokio::test]
async fn leases_of_crashed_holders_are_removed_by_later_requests() {
    let redis = redis!();
    let url = redis.url();
    // Without its runtime, the lease is neither renewed nor released, as after a crash.
    let crashed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = Lockkeeper::open(&url).await.unwrap();
            for n in 0..5 {
                let request = locks.mutex(format!("crashed {n}")).ttl(Duration::from_millis(100));
                std::mem::forget(request.acquire().await.unwrap());
            }
        });
    });
    tokio::task::spawn_blocking(move || crashed.join().unwrap()).await.unwrap();
    let locks = open(&redis).await;
    until(|| async {
        locks.mutex("another").acquire().await.unwrap().release().await.unwrap();
        redis.cli(&["KEYS", "*"]) == "lockkeeper:fence"
    })
    .await;
}

/// Versions of the script that do not know detached holds keep to the score.
#[tokio::test]
async fn a_detached_hold_is_a_lease_with_a_record() {
    let redis = redis!();
    let locks = open(&redis).await;
    let hour = Duration::from_secs(3600);
    locks.mutex("a").hold_as("web 3", hour).acquire().await.unwrap();
    let records = redis.cli(&["HVALS", "lockkeeper:kept:a"]);
    let deadline = records.strip_suffix(" 0 web 3").expect("no process renews it");
    let score = redis.cli(&["ZRANGE", "lockkeeper:lock:a", "0", "-1", "WITHSCORES"]);
    assert_eq!(score.lines().last(), Some(deadline));
    let now: u64 = redis.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let left = deadline.parse::<u64>().unwrap() / 1000 - now;
    assert!((1800..=3600).contains(&left), "{left} s by the server's clock");
    assert!(locks.release_as("a", "web 3").await.unwrap());
    // A lease longer than the time for which the lock is kept is shortened by the release.
    let kept = locks.mutex("b").ttl(hour * 2).at_least(hour).acquire().await.unwrap();
    kept.release().await.unwrap();
    assert!(redis.cli(&["HVALS", "lockkeeper:kept:b"]).contains(" 0 "));
    let first_end = locks.inspect("b").await.unwrap().holders[0].detached.as_ref().unwrap().left();
    assert!(first_end <= hour, "{first_end:?}");
    redis.cli(&["DEL", "lockkeeper:lock:b", "lockkeeper:about:b"]);
    let next = locks.mutex("b").try_acquire().await.unwrap().expect("an older script has removed it");
    next.release().await.unwrap();
    assert_eq!(redis.cli(&["KEYS", "lockkeeper:kept:*"]), "");
}

#[tokio::test]
async fn databases_of_one_server_are_apart() {
    let redis = redis!();
    let one = Lockkeeper::open(&format!("{}/1", redis.url())).await.unwrap();
    let two = Lockkeeper::open(&format!("{}/2", redis.url())).await.unwrap();
    let guard = one.mutex("a").acquire().await.unwrap();
    assert!(two.mutex("a").try_acquire().await.unwrap().is_some());
    drop(guard);
}

#[tokio::test]
async fn fences_rise_also_when_the_data_is_lost() {
    let redis = redis!();
    let locks = open(&redis).await;
    let before = locks.mutex("a").acquire().await.unwrap();
    redis.cli(&["FLUSHALL"]);
    let after = locks.mutex("a").acquire().await.unwrap();
    assert!(after.fence() > before.fence(), "two clients hold the lock, and the fence orders them");
    let lost = before.release().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");
    assert_eq!(locks.inspect("a").await.unwrap().holders[0].tag.holder, after.holder(), "a late release");
}

#[tokio::test]
async fn a_hold_that_the_server_forgot_is_lost() {
    let redis = redis!();
    let guard = open(&redis).await.mutex("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    redis.cli(&["FLUSHALL"]);
    // On a machine too slow for one renewal, the process itself was the reason.
    assert!(matches!(guard.lost().await, Loss::Ended(_) | Loss::Expired));
}

#[tokio::test]
async fn a_waiter_is_notified_of_a_release_before_the_lease_ends() {
    let redis = redis!();
    let locks = open(&redis).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(24 * 60 * 60)).acquire().await.unwrap();
    let enter_and_leave =
        |request: Acquire| async { request.acquire().await.unwrap().release().await.unwrap() };
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(enter_and_leave(locks.mutex("a")))).collect();
    until(|| async { redis.cli(&["PUBSUB", "NUMSUB", "lockkeeper:0:free:a"]).ends_with('1') }).await;
    guard.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    // The last subscriber leaves the channel.
    until(|| async { redis.cli(&["PUBSUB", "NUMSUB", "lockkeeper:0:free:a"]).ends_with('0') }).await;
}

#[tokio::test]
async fn cut_connections_cost_nothing_while_the_lease_runs() {
    let redis = redis!();
    let locks = open(&redis).await;
    let guard = locks.mutex("a").acquire().await.unwrap();
    let waiter = acquire(locks.mutex("a"));
    for _ in 0..5 {
        until(|| async { redis.cli(&["PUBSUB", "NUMSUB", "lockkeeper:0:free:a"]).ends_with('1') }).await;
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_falls_silent_is_noticed() {
    let redis = redis!();
    let locks = open(&redis).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("a").acquire());
    until(|| async { redis.cli(&["PUBSUB", "NUMSUB", "lockkeeper:0:free:a"]).ends_with('1') }).await;
    redis.daemon.signal("STOP");
    let loss = guard.lost().await;
    // On a machine too slow for one renewal, the process itself was the reason.
    assert!(matches!(loss, Loss::Unreachable(_) | Loss::Expired), "{loss}");
    let error = waiter.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    redis.daemon.signal("CONT");
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn lost_replies_do_nothing_twice() {
    let redis = redis!();
    let proxy = crate::lossy::LossyProxy::start(redis.address()).await;
    let (direct, locks) =
        (open(&redis).await, Lockkeeper::open(&format!("redis://{}", proxy.address)).await.unwrap());
    let mut highest = None;
    while *proxy.lost.borrow() < 30 {
        let guard = locks.mutex("a").acquire().await.unwrap();
        assert!(guard.fence() > highest);
        highest = guard.fence();
        let holders = direct.inspect("a").await.unwrap().holders;
        assert_eq!((holders.len(), holders[0].fence), (1, guard.fence()), "the fence of the first grant");
        let permit = locks.semaphore("s", 2).acquire().await.unwrap();
        assert_eq!(
            direct.inspect("s").await.unwrap().holders.len(),
            1,
            "one permit, however often asked for"
        );
        permit.release().await.unwrap();
        guard.release().await.unwrap();
        assert!(direct.mutex("a").try_acquire().await.unwrap().is_some(), "free as soon as released");
    }
}

#[tokio::test]
async fn a_holder_that_is_cut_off_stops_before_the_next_enters() {
    let redis = redis!();
    let url = |address: &str| format!("redis://{address}");
    crate::lossy::a_holder_that_is_cut_off_stops_before_the_next_enters(
        open(&redis).await,
        redis.address(),
        url,
    )
    .await;
}

#[tokio::test]
async fn a_restart_of_the_server_within_the_lease_loses_nothing() {
    let redis = redis!();
    let (locks, other) = (open(&redis).await, open(&redis).await);
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    Server::stop(&redis);
    Server::start(&redis);
    assert!(guard.is_valid());
    assert!(other.mutex("a").try_acquire().await.unwrap().is_none(), "every write was on disk");
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(other.mutex("a").try_acquire().await.unwrap().unwrap().fence() > fence);
}
