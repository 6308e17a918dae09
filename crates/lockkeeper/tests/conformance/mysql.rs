//! The suite on MariaDB, and tests of the guarantees of this engine.

use crate::backend::{Backend, Environment, Server, acquire, open, until, until_waiting};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::golden::Golden;
use lockkeeper_testbed::servers::{self, LocalServer};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Row};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The settings that keep a server for tests small.
const SMALL: [&str; 3] =
    ["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", "--aria-pagecache-buffer-size=1M"];

/// The data of a new server, created once and copied for each test.
static DATA: LazyLock<Option<(PathBuf, tempfile::TempDir)>> = LazyLock::new(|| {
    let program = servers::program("mariadbd", &[], "mariadb-server")?;
    let install = servers::program("mariadb-install-db", &[], "mariadb-server")?;
    let directory = tempfile::tempdir().unwrap();
    give_to_mysql(directory.path());
    let output = as_mysql(&install)
        .arg("--no-defaults")
        .arg(format!("--datadir={}", directory.path().join("data").display()))
        .arg(own_tmpdir(directory.path()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(SMALL)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((program, directory))
});

/// Root runs the server as the user `mysql`, which its package creates. It ends with this process, even if that is killed.
fn as_mysql(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if servers::is_root() {
        command.args(["--reuid=mysql", "--regid=mysql", "--clear-groups"]).current_dir("/");
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A server that starts removes the temporary tables of others that share its folder for them.
fn own_tmpdir(directory: &Path) -> String {
    format!("--tmpdir={}", directory.display())
}

pub fn give_to_mysql(path: &Path) {
    if servers::is_root() {
        let given = Command::new("chown").arg("-R").arg("mysql:mysql").arg(path).status().unwrap();
        assert!(given.success());
    }
}

/// A MariaDB server with its own data.
pub struct MariaDb {
    pub daemon: LocalServer,
    _data: Arc<tempfile::TempDir>,
}

impl MariaDb {
    /// Returns `None` if there is no MariaDB and the user is not root.
    pub fn start() -> Option<MariaDb> {
        Self::start_with(Vec::new(), |_| {})
    }

    /// Starts a server with further variables in its environment.
    pub fn start_in(environment: &Environment) -> Option<MariaDb> {
        Self::start_any(environment, Vec::new(), |_| {})
    }

    /// Starts a server with further options, and with changes of its directory before the start.
    pub fn start_with(settings: Vec<String>, prepare: impl FnOnce(&Path)) -> Option<MariaDb> {
        Self::start_any(&[], settings, prepare)
    }

    fn start_any(
        environment: &Environment,
        settings: Vec<String>,
        prepare: impl FnOnce(&Path),
    ) -> Option<MariaDb> {
        let environment = environment.to_vec();
        let (program, installed) = DATA.as_ref()?;
        let data = Arc::new(tempfile::tempdir().unwrap());
        let copied =
            Command::new("cp").arg("-a").arg(installed.path().join("data")).arg(data.path()).status();
        assert!(copied.unwrap().success());
        std::fs::write(data.path().join("init.sql"), "CREATE DATABASE IF NOT EXISTS locks;\n").unwrap();
        prepare(data.path());
        give_to_mysql(data.path());
        let directory = data.path().to_owned();
        let daemon = LocalServer::start(move |port| {
            let mut command = as_mysql(program);
            command.envs(environment.clone());
            command.args(["--no-defaults", "--bind-address=127.0.0.1", "--max-connections=400"]).args(SMALL);
            command.arg(format!("--port={port}")).arg(own_tmpdir(&directory));
            for (option, file) in [("datadir", "data"), ("socket", "socket"), ("init-file", "init.sql")] {
                command.arg(format!("--{option}={}", directory.join(file).display()));
            }
            // Only the server is killed, not the machine: no fsync is needed.
            command.arg("--innodb-flush-log-at-trx-commit=2").args(&settings);
            command
        });
        Some(MariaDb { daemon, _data: data })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    pub fn url_of(&self, login: &str, database: &str) -> String {
        format!("mysql://{login}@{}/{database}", self.address())
    }

    /// Opens a connection beside the engine's.
    pub async fn client(&self) -> Conn {
        let url = format!("mysql://root@{}/locks?prefer_socket=false", self.address());
        loop {
            // The port is open some moments before the server serves.
            match Conn::new(Opts::from_url(&url).unwrap()).await {
                Ok(connection) => return connection,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

impl Backend for MariaDb {
    fn url(&self) -> String {
        self.url_of("root:", "locks")
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.daemon)
    }
}

macro_rules! mariadb {
    () => {
        match MariaDb::start() {
            Some(mariadb) => mariadb,
            None => return,
        }
    };
}

crate::conformance! { mariadb!() }

async fn count(client: &mut Conn, table: &str) -> i64 {
    client.query_first(format!("SELECT COUNT(*) FROM {table}")).await.unwrap().unwrap()
}

async fn refused(url: &str) -> String {
    let error = Lockkeeper::open(url).await.expect_err("must be refused").to_string();
    assert!(!error.contains("s3cret"), "{error}");
    error
}

#[tokio::test]
async fn an_error_of_the_server_names_the_cause() {
    let mariadb = mariadb!();
    let mut client = mariadb.client().await;
    for statement in [
        "CREATE USER known IDENTIFIED BY 's3cret'",
        "GRANT ALL ON locks.* TO known",
        "CREATE USER poor IDENTIFIED BY 's3cret'",
        "GRANT SELECT ON locks.* TO poor",
        "FLUSH PRIVILEGES",
    ] {
        client.query_drop(statement).await.unwrap();
    }
    let sentence = async |login: &str, database: &str| refused(&mariadb.url_of(login, database)).await;
    let poor = sentence("poor:s3cret", "locks").await;
    assert!(poor.contains("does not permit this") && poor.contains("grant SELECT, INSERT"), "{poor}");
    assert!(Lockkeeper::open(&mariadb.url_of("known:s3cret", "locks")).await.is_ok());
    assert!(sentence("known:s3cret2", "locks").await.contains("does not accept this user and password"));
    assert!(sentence("nobody:s3cret", "locks").await.contains("does not accept this user and password"));
    assert!(sentence("root:", "nowhere").await.contains("has no database `nowhere`"));
    client.query_drop("SET GLOBAL read_only = ON").await.unwrap();
    let locks = Lockkeeper::open(&mariadb.url_of("known:s3cret", "locks")).await.unwrap();
    let error = locks.mutex("a").acquire().await.unwrap_err().to_string();
    assert!(error.contains("is read-only; name the server that accepts writes"), "{error}");
    mariadb.daemon.stop();
    assert!(sentence("root:", "locks").await.contains("refuses connections"));
    for (url, part) in [
        ("mysql://", "host is empty"),
        ("mysql://u:s3cret@h", "names no database"),
        ("mysql://u:s3cret@h/a/b", "names no database"),
        ("mariadb://u:s3cret@a,b/d", "more than one server"),
        ("mysql://h/d", "names no user"),
    ] {
        let error = refused(url).await;
        assert!(error.contains("bad engine URL") && error.contains(part), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_mysql_is_reported() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..], b"\x05\0\0\0\xff\x10\x04no"]
    {
        // These clients wait for the server's greeting.
        let address = crate::network::impostor(answer).await;
        let error = refused(&format!("mysql://u:s3cret@{address}/d")).await;
        assert!(error.contains("MySQL") || error.contains(&address), "{error}");
    }
    let mute = crate::impostor::start(b"").await;
    let error = refused(&format!("mysql://u:s3cret@{mute}/d")).await;
    assert!(error.contains("did not answer as MySQL does within 5s"), "{error}");
}

#[tokio::test]
async fn many_may_open_a_fresh_database_at_once() {
    let mariadb = mariadb!();
    drop(mariadb.client().await);
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = mariadb.url();
            tokio::spawn(async move { Lockkeeper::open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    let mut client = mariadb.client().await;
    client.query_drop("UPDATE lockkeeper_schema SET version = 2").await.unwrap();
    let error = refused(&mariadb.url()).await;
    assert!(error.contains("have version 2") && error.contains("up to 1: update it"), "{error}");
}

#[tokio::test]
async fn an_idle_lock_leaves_nothing_behind() {
    let mariadb = mariadb!();
    let locks = open(&mariadb).await;
    for n in 0..20 {
        locks.mutex(format!("lock {n}")).acquire().await.unwrap().release().await.unwrap();
    }
    drop(locks.mutex("dropped").acquire().await.unwrap());
    let mut client = mariadb.client().await;
    while count(&mut client, "lockkeeper_queue").await > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(
        (count(&mut client, "lockkeeper_kept").await, count(&mut client, "lockkeeper_shard").await),
        (0, 256)
    );
}

/// No session is a part of a hold: all connections may end.
#[tokio::test]
async fn connections_that_end_lose_nothing() {
    let mariadb = mariadb!();
    let (locks, other) = (open(&mariadb).await, open(&mariadb).await);
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let waiter = acquire(other.mutex("a"));
    until_waiting(&locks, "a", 1).await;
    let mut client = mariadb.client().await;
    let me: u64 = client.query_first("SELECT CONNECTION_ID()").await.unwrap().unwrap();
    let others: Vec<u64> = client
        .exec("SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> ?", (me,))
        .await
        .unwrap();
    assert!(others.len() >= 2, "{others:?}");
    for id in others {
        // A connection of a pool may have ended by itself.
        let _ = client.query_drop(format!("KILL {id}")).await;
    }
    assert!(guard.is_valid() && locks.mutex("a").try_acquire().await.unwrap().is_none());
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().fence() > fence);
}

#[tokio::test]
async fn a_restart_of_the_server_within_the_lease_loses_nothing() {
    let mariadb = mariadb!();
    let (locks, other) = (open(&mariadb).await, open(&mariadb).await);
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    mariadb.daemon.stop();
    mariadb.daemon.start();
    assert!(guard.is_valid());
    until(|| async { other.mutex("a").try_acquire().await.is_ok_and(|guard| guard.is_none()) }).await;
    let waiter = acquire(other.mutex("a"));
    until_waiting(&locks, "a", 1).await;
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().fence() > fence);
}

/// A failover or a backup without the last grants: the fence is at least the server's time.
#[tokio::test]
async fn fences_rise_also_when_the_data_is_lost() {
    let mariadb = mariadb!();
    let locks = open(&mariadb).await;
    let before = locks.mutex("a").acquire().await.unwrap().fence();
    let mut client = mariadb.client().await;
    for table in ["lockkeeper_schema", "lockkeeper_queue", "lockkeeper_kept", "lockkeeper_shard"] {
        client.query_drop(format!("DROP TABLE {table}")).await.unwrap();
    }
    let after = open(&mariadb).await.mutex("a").acquire().await.unwrap().fence();
    assert!(after > before, "{after:?} after {before:?}");
    // A clock that is set back does not lower it.
    client.query_drop("UPDATE lockkeeper_shard SET fence = fence + 1000000000000000").await.unwrap();
    until(|| async { locks.inspect("a").await.unwrap().holders.is_empty() }).await;
    let ahead = locks.mutex("a").acquire().await.unwrap().fence().unwrap();
    assert!(ahead.get() > after.unwrap().get() + 900_000_000_000_000);
}

/// The waiter is removed when it has not looked in time; it joins the queue again, at its end.
#[tokio::test]
async fn a_waiter_whose_presence_has_ended_queues_again() {
    let mariadb = mariadb!();
    let locks = open(&mariadb).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let waiter = acquire(locks.mutex("a"));
    until_waiting(&locks, "a", 1).await;
    let mut client = mariadb.client().await;
    client.query_drop("DELETE FROM lockkeeper_queue WHERE fence IS NULL").await.unwrap();
    until_waiting(&locks, "a", 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_forced_release_is_noticed_by_the_next_renewal() {
    let mariadb = mariadb!();
    let locks = open(&mariadb).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    mariadb.client().await.query_drop("DELETE FROM lockkeeper_queue").await.unwrap();
    let loss = guard.lost().await.to_string();
    assert!(
        loss.contains("does not know this hold any more") || loss.contains("without a renewal"),
        "{loss}"
    );
    assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
}

#[tokio::test]
async fn lost_replies_do_nothing_twice() {
    let mariadb = mariadb!();
    open(&mariadb).await;
    let url = |address: &str| format!("mysql://root:@{address}/locks");
    crate::network::lost_replies_do_nothing_twice(url, mariadb.address()).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_noticed() {
    let mariadb = mariadb!();
    crate::network::a_server_that_hangs_is_noticed(&mariadb, &mariadb.daemon).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_stops_before_the_next_enters() {
    let mariadb = mariadb!();
    let url = |address: &str| format!("mysql://root:@{address}/locks");
    let direct = open(&mariadb).await;
    crate::lossy::a_holder_that_is_cut_off_stops_before_the_next_enters(direct, mariadb.address(), url).await;
}

#[tokio::test]
async fn a_release_wakes_one_and_not_the_whole_queue() {
    let mariadb = mariadb!();
    let locks = open(&mariadb).await;
    let hour = Duration::from_secs(3600);
    let guard = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..5 {
        let other = open(&mariadb).await;
        waiting.push(acquire(other.mutex("a").ttl(hour)));
        until_waiting(&locks, "a", n + 1).await;
    }
    guard.release().await.unwrap();
    let _next = waiting.remove(0).await.unwrap();
    let mut client = mariadb.client().await;
    let granted: i64 = client
        .query_first("SELECT COUNT(*) FROM lockkeeper_queue WHERE fence IS NOT NULL")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((granted, count(&mut client, "lockkeeper_queue").await), (1, 5));
    waiting.iter().for_each(|task| task.abort());
}

/// The columns of the tables, and the values of their rows except those that differ from run to run.
#[tokio::test]
async fn rows_of_the_tables_do_not_change() {
    let mariadb = mariadb!();
    let (locks, mut client) = (open(&mariadb).await, mariadb.client().await);
    let mut golden = Golden::default();
    let columns = "SELECT CONCAT(table_name, ' ', column_name), CONCAT(column_type, ' ', is_nullable, ' ', column_key)
                     FROM information_schema.columns WHERE table_schema = 'locks' ORDER BY table_name, ordinal_position";
    for (name, column) in client.query::<(String, String), _>(columns).await.unwrap() {
        golden.text(&name, &column);
    }
    let hour = Duration::from_secs(3600);
    let _exclusive = locks.mutex("one").ttl(hour).metadata("purpose", "backup").acquire().await.unwrap();
    let _shared = locks.shared("two").ttl(hour).acquire().await.unwrap();
    let _permit = locks.semaphore("three", 3).ttl(hour).acquire().await.unwrap();
    let waiter = acquire(locks.mutex("one").ttl(hour));
    until_waiting(&locks, "one", 1).await;
    locks.semaphore("four", 4).hold_as("web-3", hour).acquire().await.unwrap();
    for (table, times) in [
        ("queue", "claimed, ttl, fence > held_since - 1000000, asked <= held_since, ends > asked"),
        ("kept", "owner, ends - held_since > 3500000000, fence > 0"),
    ] {
        let sql = format!(
            "SELECT name, kind, permits, holder, tag, {times} FROM lockkeeper_{table} ORDER BY name, kind, fence"
        );
        for row in client.query::<Row, _>(sql).await.unwrap() {
            let (name, holder, tag): (String, String, String) =
                (row.get(0).unwrap(), row.get(3).unwrap(), row.get(4).unwrap());
            let tag = crate::golden::stable_tag(&tag, &holder);
            let values: Vec<String> = [1, 2, 5, 6, 7, 8, 9]
                .into_iter()
                .filter_map(|column| row.get::<Option<String>, _>(column))
                .map(|value| value.unwrap_or("NULL".into()))
                .collect();
            golden.text(&format!("{table} {name}"), &format!("{} {tag}", values.join(" ")));
        }
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/mysql-rows.txt");
    waiter.abort();
}
