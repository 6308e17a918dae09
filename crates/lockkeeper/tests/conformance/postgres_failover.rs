//! A primary and a standby of PostgreSQL, over TLS with a password: the suite, also while the primary is killed and the
//! standby promoted.

use crate::backend::{Backend, Guarantee, Nodes, Server, Step, answered};
use crate::postgres::Postgres;
use crate::postgres_tls::{self, AUTHORITY};
use crate::shared::{Shared, Used};
use lockkeeper::{Error, Lockkeeper};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Two servers, of which one is the primary, and the other one follows it.
struct Pair {
    servers: [Postgres; 2],
    /// The index of the primary.
    primary: AtomicUsize,
}

/// Clients and the standby need TLS and a password. The tests themselves use the socket in the server's directory.
const RULES: &str = "local replication all trust
hostssl all postgres 127.0.0.1/32 scram-sha-256
hostssl replication postgres 127.0.0.1/32 scram-sha-256";

impl Pair {
    fn start() -> Option<Pair> {
        let settings = || {
            let more = ["hot_standby=on", "max_connections=200"].map(String::from);
            [postgres_tls::settings(), more.to_vec()].concat()
        };
        let certificate = AUTHORITY.server();
        let primary =
            Postgres::start_with(settings(), |data| postgres_tls::prepare(data, &certificate, RULES))?;
        let primary = primary.wait_until_it_serves();
        let directory = tempfile::tempdir().unwrap();
        copy(&primary, directory.path());
        let standby = Postgres::serve(directory, Vec::new(), settings())?.wait_until_it_serves();
        let pair = Pair { servers: [primary, standby], primary: AtomicUsize::new(0) };
        pair.until_it_follows();
        Some(pair)
    }

    fn primary(&self) -> &Postgres {
        &self.servers[self.primary.load(Ordering::SeqCst)]
    }

    fn standby(&self) -> &Postgres {
        &self.servers[1 - self.primary.load(Ordering::SeqCst)]
    }

    /// Waits until the standby receives what the primary writes.
    fn until_it_follows(&self) {
        self.until(
            "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')",
            self.primary(),
        );
    }

    /// The first server is the last in the URL, so that the standby is passed over at first.
    fn url_of(&self, database: &str) -> String {
        let (first, second) = (self.servers[0].port(), self.servers[1].port());
        let options = postgres_tls::options();
        format!(
            "postgres://postgres:s3cret@127.0.0.1:{second},127.0.0.1:{first}/{database}\
             ?target_session_attrs=read-write&{options}"
        )
    }

    fn until(&self, condition: &str, server: &Postgres) {
        while query(server, condition) != "t" {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the standby has all that the primary has written.
    fn until_replicated(&self) {
        let position = query(self.primary(), "SELECT pg_current_wal_lsn()");
        self.until(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"), self.standby());
    }

    /// Makes the standby the primary.
    fn promote(&self) {
        let standby = self.standby();
        run(Postgres::tool("pg_ctl").args(["promote", "-w", "-D"]).arg(standby.directory().join("data")));
        self.primary.fetch_xor(1, Ordering::SeqCst);
    }
}

/// Copies the data of a server that serves into the directory of a standby, with the settings to follow it.
fn copy(primary: &Postgres, directory: &Path) {
    crate::postgres::give_to_postgres(directory);
    let authority = primary.directory().join("data/ca.pem");
    let source = format!(
        "host=127.0.0.1 port={} user=postgres password=s3cret sslmode=verify-full sslrootcert={}",
        primary.port(),
        authority.display()
    );
    let mut copy = Postgres::tool("pg_basebackup");
    run(copy.args(["-R", "-N", "-c", "fast", "-d", &source, "-D"]).arg(directory.join("data")));
}

/// Runs an SQL query over the socket of the server.
fn query(server: &Postgres, sql: &str) -> String {
    let mut psql = Postgres::tool("psql");
    psql.args(["-U", "postgres", "-d", "postgres", "-p", &server.port().to_string(), "-Atqc", sql, "-h"]);
    run(psql.arg(server.directory()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Backend for Pair {
    fn url(&self) -> String {
        self.url_of("postgres")
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

/// Stops and starts both servers.
impl Server for Pair {
    fn stop(&self) {
        self.servers.iter().for_each(Server::stop);
    }

    fn start(&self) {
        Server::start(self.primary());
        Server::start(self.standby());
    }
}

impl Nodes for Pair {
    /// All holds end with the primary. A holder that cannot notice this at once relies on its hold for too long.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Fence
    }

    fn fail_over(&self) -> Step<'_> {
        Box::pin(async {
            self.primary().stop();
            self.promote();
        })
    }

    /// The killed server begins again with a copy of the data of the other one.
    fn repair(&self) -> Step<'_> {
        Box::pin(async {
            let killed = self.standby();
            std::fs::remove_dir_all(killed.directory().join("data")).unwrap();
            copy(self.primary(), killed.directory());
            Server::start(killed);
            self.until_it_follows();
        })
    }
}

/// A database of servers that several tests use at the same time.
struct Part {
    pair: Used<Pair>,
    database: String,
}

impl Part {
    async fn new() -> Option<Part> {
        static PAIR: Shared<Pair> = Shared::new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let pair = PAIR.get(Pair::start).await?;
        let database = format!("part_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        query(pair.primary(), &format!("CREATE DATABASE {database}"));
        Some(Part { pair, database })
    }
}

impl Backend for Part {
    fn url(&self) -> String {
        self.pair.url_of(&self.database)
    }

    fn kills(&self) -> usize {
        10
    }
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

macro_rules! pair {
    () => {
        match Pair::start() {
            Some(pair) => pair,
            None => return,
        }
    };
}

mod alone {
    use super::Pair;

    crate::conformance! { pair!();
        processes::a_server_that_goes_away_is_noticed,
        detached::detached_holds_survive_a_restart_of_the_server,
    }
    crate::conformance_with_failovers! { pair!() }
}

#[tokio::test]
async fn a_standby_that_follows_asynchronously_is_a_finding() {
    let pair = pair!();
    let diagnosis = lockkeeper::diagnose(pair.url()).await.unwrap();
    let finding = crate::doctor::found(&diagnosis, "replication");
    assert!(finding.found.contains("1 standbys follow asynchronously"), "{finding:?}");
}

#[tokio::test]
async fn a_killed_primary_loses_its_holds_and_the_promoted_standby_grants() {
    let pair = pair!();
    let locks = Lockkeeper::open(&pair.url()).await.unwrap();
    let day = Duration::from_secs(24 * 3600);
    let guard = locks.mutex("a").ttl(day).acquire().await.unwrap();
    let detached = locks.mutex("b").hold_as("web-3", day).acquire().await.unwrap();
    pair.until_replicated();
    pair.primary().stop();
    let loss = guard.lost().await.to_string();
    assert!(loss.contains("the connection ended"), "{loss}");
    assert!(!guard.is_valid());
    let error = locks.mutex("a").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("none of its servers is a primary"), "{error}");
    assert!(error.contains("is a read-only standby") && error.contains("refuses connections"), "{error}");
    pair.promote();
    let next = answered(|| locks.mutex("a").acquire()).await;
    assert!(next.fence() > guard.fence(), "{:?} after {:?}", next.fence(), guard.fence());
    // The standby had received the detached hold.
    let found = locks.detached("b", "web-3").await.unwrap().expect("it survives the failover");
    assert_eq!(found.fence, detached.fence);
    assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
    next.release().await.unwrap();
}

/// The standby lacks the last values of the sequence, and all grants since then.
#[tokio::test]
async fn fences_rise_although_the_standby_was_behind() {
    let pair = pair!();
    let locks = Lockkeeper::open(&pair.url()).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    pair.until_replicated();
    query(pair.standby(), "ALTER SYSTEM SET primary_conninfo = ''");
    query(pair.standby(), "SELECT pg_reload_conf()");
    pair.until("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)", pair.standby());
    // A sequence writes to the log every 32 values.
    let mut last = None;
    for _ in 0..100 {
        let guard = locks.mutex("a").acquire().await.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        guard.release().await.unwrap();
    }
    let kept = locks.mutex("b").hold_as("web-3", Duration::from_secs(3600)).acquire().await.unwrap();
    pair.primary().stop();
    pair.promote();
    let next = answered(|| locks.mutex("a").acquire()).await;
    assert!(next.fence() > last, "{:?} after {last:?}", next.fence());
    // The price of asynchronous replication: a detached hold is lost, and its fence protects the resource.
    assert_eq!(locks.detached("b", "web-3").await.unwrap(), None);
    assert!(answered(|| locks.mutex("b").acquire()).await.fence() > kept.fence);
}

/// A killed server cannot remove its shared memory: it must not be outside of the directory of the test.
#[tokio::test]
async fn the_servers_of_tests_have_nothing_in_dev_shm() {
    let pair = pair!();
    for server in &pair.servers {
        let started = std::fs::read_to_string(server.directory().join("data/postmaster.pid")).unwrap();
        let pid = started.lines().next().unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let memory: Vec<&str> = maps.lines().filter(|line| line.contains("PostgreSQL")).collect();
        assert!(memory.is_empty() && maps.contains("pg_dynshmem"), "{memory:?}");
    }
}

#[tokio::test]
async fn a_standby_alone_is_refused() {
    let pair = pair!();
    let alone = pair.standby().url_of("postgres:s3cret", &format!("postgres?{}", postgres_tls::options()));
    let error = Lockkeeper::open(&alone).await.expect_err("must be refused").to_string();
    assert!(error.contains("is a read-only standby; name the primary"), "{error}");
}
