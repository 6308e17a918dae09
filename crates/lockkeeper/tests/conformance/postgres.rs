//! The suite on PostgreSQL, tests of the guarantees of this engine, and the SQL fence checkers on a real database.

use crate::backend::{Backend, Environment, Server, acquire, open, until, until_waiting};
use crate::worker::Worker;
use lockkeeper::{Error, Lockkeeper, fence};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// The directories of the server's programs in Debian.
const DIRECTORIES: [&str; 4] = [
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/14/bin",
];

/// A new database cluster, created once and copied for each test.
static CLUSTER: LazyLock<Option<(PathBuf, tempfile::TempDir)>> = LazyLock::new(|| {
    let initdb = servers::program("initdb", &DIRECTORIES, "postgresql")?;
    let directory = tempfile::tempdir().unwrap();
    give_to_postgres(directory.path());
    let output = as_postgres(&initdb)
        .args([
            "--no-sync",
            "--auth-host=scram-sha-256",
            "--auth-local=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
        ])
        .arg(directory.path().join("data"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Passwords are slow on purpose, very slow in a debug build: only the tests of passwords use them.
    let rules = directory.path().join("data/pg_hba.conf");
    let others = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("host all postgres 127.0.0.1/32 trust\n{others}")).unwrap();
    Some((initdb.with_file_name("postgres"), directory))
});

/// PostgreSQL refuses to run as root: then it runs as the user `postgres`, which its package creates.
pub fn as_postgres(program: &Path) -> Command {
    let user: &[&str] = match servers::is_root() {
        true => &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"],
        false => &[],
    };
    let program = program.as_os_str();
    let mut words = user.iter().map(std::ffi::OsStr::new).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    // Its user may not read certificates in the home of another user, which libpq would send.
    command.args(words).current_dir("/").env_remove("HOME");
    command
}

pub fn give_to_postgres(path: &Path) {
    if servers::is_root() {
        let given = Command::new("chown").arg("-R").arg("postgres:postgres").arg(path).status().unwrap();
        assert!(given.success());
    }
}

pub struct Postgres {
    daemon: LocalServer,
    data: Arc<tempfile::TempDir>,
}

impl Postgres {
    /// Returns `None` if there is no PostgreSQL and the user is not root.
    pub fn start() -> Option<Postgres> {
        Self::start_with(Vec::new(), |_| {})
    }

    /// Starts a server with further variables in its environment.
    pub fn start_in(environment: &Environment) -> Option<Postgres> {
        Self::serve(Self::copy_of_cluster(|_| {})?, environment.to_vec(), Vec::new())
    }

    /// Starts a server with further settings, and with changes of its files before the start.
    pub fn start_with(settings: Vec<String>, prepare: impl FnOnce(&Path)) -> Option<Postgres> {
        Self::serve(Self::copy_of_cluster(prepare)?, Vec::new(), settings)
    }

    fn copy_of_cluster(prepare: impl FnOnce(&Path)) -> Option<tempfile::TempDir> {
        let (_, cluster) = CLUSTER.as_ref()?;
        let data = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-a").arg(cluster.path().join("data")).arg(data.path()).status();
        assert!(copied.unwrap().success());
        prepare(&data.path().join("data"));
        Some(data)
    }

    /// Starts a server on the files of a directory, in its folder `data`.
    pub fn serve(
        data: tempfile::TempDir,
        environment: Vec<(&'static str, String)>,
        settings: Vec<String>,
    ) -> Option<Postgres> {
        let (program, _) = CLUSTER.as_ref()?;
        give_to_postgres(data.path());
        let directory = data.path().to_owned();
        let daemon = LocalServer::start(move |port| {
            let mut command = as_postgres(program);
            command.envs(environment.clone());
            command.arg("-D").arg(directory.join("data")).args(["-p", &port.to_string()]);
            for setting in ["listen_addresses=127.0.0.1", "max_connections=60", "shared_buffers=8MB"] {
                command.args(["-c", setting]);
            }
            // Only the server is killed, not the machine: no fsync is needed.
            command.args(["-c", "fsync=off"]);
            // In its directory instead of `/dev/shm`, where a killed server would leave it behind.
            command.args(["-c", "dynamic_shared_memory_type=mmap"]).arg("-c");
            command.arg(format!("unix_socket_directories={}", directory.display()));
            for setting in &settings {
                command.args(["-c", setting]);
            }
            command
        });
        Some(Postgres { daemon, data: Arc::new(data) })
    }

    /// The directory with the server's files, in its folder `data`.
    pub fn directory(&self) -> &Path {
        self.data.path()
    }

    /// A program of PostgreSQL, to be run as the user of the server.
    pub fn tool(name: &str) -> Command {
        as_postgres(&CLUSTER.as_ref().expect("PostgreSQL is installed").0.with_file_name(name))
    }

    pub fn url_of(&self, login: &str, database: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/{database}", self.daemon.port())
    }

    /// Opens a connection beside the engine's.
    pub async fn client(&self) -> tokio_postgres::Client {
        loop {
            // The port is open some moments before the server serves.
            if let Ok((client, connection)) = tokio_postgres::connect(&self.url(), NoTls).await {
                tokio::spawn(connection);
                return client;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn port(&self) -> u16 {
        self.daemon.port()
    }

    pub fn wait_until_it_serves(self) -> Postgres {
        let isready = CLUSTER.as_ref().unwrap().0.with_file_name("pg_isready");
        wait_until_ready(&isready, self.daemon.port());
        self
    }
}

fn wait_until_ready(isready: &Path, port: u16) {
    let ready = || {
        let port = port.to_string();
        Command::new(isready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status().unwrap().success()
    };
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < servers::START_TIMEOUT, "the server does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Server for Postgres {
    fn stop(&self) {
        // All processes at once, as in a power failure. Otherwise one backend dies after the other, and the remaining
        // ones grant the locks of the dead.
        let pid = self.daemon.pid();
        self.daemon.signal("STOP");
        let children = servers::children_of(pid);
        for signal in ["STOP", "KILL"] {
            for child in &children {
                let _ = Command::new("kill").args(["-s", signal, &child.to_string()]).status();
            }
        }
        self.daemon.stop();
    }

    fn start(&self) {
        Server::start(&self.daemon);
        wait_until_ready(&CLUSTER.as_ref().unwrap().0.with_file_name("pg_isready"), self.daemon.port());
    }
}

impl Backend for Postgres {
    fn url(&self) -> String {
        self.url_of("postgres", "postgres")
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

macro_rules! postgres {
    () => {
        match Postgres::start() {
            Some(postgres) => postgres.wait_until_it_serves(),
            None => return,
        }
    };
}

crate::conformance! { postgres!() }

async fn refused(url: &str) -> String {
    let error = Lockkeeper::open(url).await.expect_err("must be refused").to_string();
    assert!(!error.contains("secret"), "{error}");
    error
}

#[tokio::test]
async fn an_error_of_the_server_names_the_cause() {
    let postgres = postgres!();
    let sentence = async |login: &str, database: &str| refused(&postgres.url_of(login, database)).await;
    let roles =
        "CREATE ROLE known SUPERUSER LOGIN PASSWORD 'secret'; CREATE ROLE poor LOGIN PASSWORD 'secret'";
    postgres.client().await.batch_execute(roles).await.unwrap();
    assert!(Lockkeeper::open(&postgres.url_of("known:secret", "template1")).await.is_ok());
    assert!(sentence("known:secret2", "postgres").await.contains("does not accept this user and password"));
    assert!(sentence("nobody:secret", "postgres").await.contains("does not accept this user and password"));
    assert!(sentence("postgres", "nowhere").await.contains("has no database `nowhere`"));
    let poor = sentence("poor:secret", "postgres").await;
    assert!(
        poor.contains("does not permit this") && poor.contains("create the schema `lockkeeper`"),
        "{poor}"
    );
    postgres.daemon.stop();
    // Its processes end one after the other, and until the last has ended, the system may still accept a connection.
    let mut stopped = sentence("postgres", "postgres").await;
    for _ in 0..600 {
        if stopped.contains("refuses connections") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stopped = sentence("postgres", "postgres").await;
    }
    assert!(stopped.contains("refuses connections"), "{stopped}");
    for url in ["postgres://", "postgres://h:port/x", "postgres:///x"] {
        assert!(refused(url).await.contains("bad engine URL"), "{url}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_postgres_is_reported() {
    let http = crate::impostor::start(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    let error = refused(&format!("postgres://u@{http}/d")).await;
    assert!(error.contains("is it PostgreSQL?"), "{error}");
    let closing = crate::impostor::start(b"E").await;
    let error = refused(&format!("postgres://u@{closing}/d")).await;
    assert!(error.contains("PostgreSQL"), "{error}");
    let mute = crate::impostor::start(b"").await;
    assert!(
        refused(&format!("postgres://u@{mute}/d"))
            .await
            .contains("did not answer as PostgreSQL does within 5s")
    );
}

#[tokio::test]
async fn many_may_open_a_fresh_database_at_once() {
    let postgres = postgres!();
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = postgres.url();
            tokio::spawn(async move { Lockkeeper::open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
}

/// Version 1 of the schema does not know detached holds. Its clients must not install their functions again.
#[tokio::test]
async fn an_older_schema_is_replaced_and_does_not_come_back() {
    let postgres = postgres!();
    let client = postgres.client().await;
    let version_1 = "CREATE SCHEMA IF NOT EXISTS lockkeeper;
        CREATE OR REPLACE FUNCTION lockkeeper.edit(name text) RETURNS void LANGUAGE sql VOLATILE AS
        $$ SELECT pg_advisory_xact_lock(19276, hashtext(name)) $$;
        COMMENT ON SCHEMA lockkeeper IS 'lockkeeper 1'";
    client.batch_execute(version_1).await.unwrap();
    let locks = open(&postgres).await;
    let hour = Duration::from_secs(3600);
    locks.mutex("a").hold_as("web-3", hour).acquire().await.unwrap();
    let error = client.batch_execute(version_1).await.unwrap_err();
    let error = error.as_db_error().expect("the server rejects it").message().to_owned();
    assert!(error.contains("cannot change return type of existing function"), "{error}");
    assert!(open(&postgres).await.mutex("a").try_acquire().await.unwrap().is_none());
    client.batch_execute("COMMENT ON SCHEMA lockkeeper IS 'lockkeeper 4'").await.unwrap();
    let error = refused(&postgres.url()).await;
    assert!(error.contains("has version 4") && error.contains("up to 3: update it"), "{error}");
}

/// The table of detached holds survives a crash of the server; its rows are these.
#[tokio::test]
async fn a_detached_hold_is_a_row_of_a_logged_table() {
    let postgres = postgres!();
    let (locks, client) = (open(&postgres).await, postgres.client().await);
    let day = Duration::from_secs(24 * 3600);
    let hold = locks.semaphore("a", 3).hold_as("web-3", day).acquire().await.unwrap();
    assert_eq!(hold.fence, None, "a permit has no fence");
    let sql = "SELECT owner, kind, permits, ends - held_since BETWEEN '23 h' AND '25 h',
                      (SELECT relpersistence::text FROM pg_class WHERE oid = 'lockkeeper.kept'::regclass),
                      (SELECT count(*) FROM lockkeeper.queue) FROM lockkeeper.kept";
    let row = client.query_one(sql, &[]).await.unwrap();
    let (owner, kind): (String, String) = (row.get(0), row.get(1));
    assert_eq!((owner.as_str(), kind.as_str(), row.get::<_, i32>(2)), ("web-3", "permit", 3));
    assert!(row.get::<_, bool>(3), "the server's clock counts");
    assert_eq!((row.get::<_, String>(4).as_str(), row.get::<_, i64>(5)), ("p", 0));
}

#[tokio::test]
async fn an_idle_lock_leaves_nothing_behind() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    for n in 0..20 {
        locks.mutex(format!("lock {n}")).acquire().await.unwrap().release().await.unwrap();
    }
    drop(locks.mutex("dropped").acquire().await.unwrap());
    let client = postgres.client().await;
    until(|| async {
        let row = client.query_one("SELECT count(*) FROM lockkeeper.queue", &[]).await.unwrap();
        row.get::<_, i64>(0) == 0
    })
    .await;
}

#[tokio::test]
async fn a_killed_holder_is_noticed_by_its_connection_not_by_its_lease() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    let mut holder = Worker::start(&postgres.url());
    let day_ms = 24 * 60 * 60 * 1000;
    assert!(holder.ask(&format!("lock {day_ms} a")).await.starts_with("held "));
    let next = acquire(locks.mutex("a"));
    until_waiting(&locks, "a", 1).await;
    holder.kill().await;
    next.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_terminated_session_loses_its_holds_and_its_waiters_at_once() {
    let postgres = postgres!();
    let (locks, other) = (open(&postgres).await, open(&postgres).await);
    let guard = locks.mutex("a").ttl(Duration::from_secs(24 * 60 * 60)).acquire().await.unwrap();
    let others = other.mutex("b").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("b").acquire());
    until_waiting(&other, "b", 1).await;
    let client = postgres.client().await;
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE application_name = 'lockkeeper' AND pid IN
                            (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
                              ORDER BY objid LIMIT 1)";
    client.execute(terminate, &[]).await.unwrap();
    let loss = guard.lost().await.to_string();
    assert!(loss.contains("terminating connection"), "the server's own words: {loss}");
    assert!(!guard.is_valid());
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::SessionLost { .. }), "{error}");
    assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
    others.release().await.unwrap();
    // The next request opens a new session.
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

/// Whether all threads of a process are stopped: a stop signal reaches one after the other.
fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats
        .into_iter()
        .all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')))
}

/// The waiter's lease expired before it could notice the grant: this is not an error, and it continues to wait.
#[tokio::test]
async fn a_waiter_that_missed_its_turn_queues_again() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    let guard = locks.mutex("a").acquire().await.unwrap();
    let mut waiter = Worker::start(&postgres.url());
    waiter.send("lock 200 a").await;
    until_waiting(&locks, "a", 1).await;
    waiter.signal("STOP").await;
    until(|| async { is_stopped(waiter.pid()) }).await;
    guard.release().await.unwrap();
    // Granted when the lease of the stopped client has expired.
    let next = locks.mutex("a").acquire().await.unwrap();
    waiter.signal("CONT").await;
    until_waiting(&locks, "a", 1).await;
    next.release().await.unwrap();
    assert!(waiter.answer().await.starts_with("held "));
}

#[tokio::test]
async fn a_server_that_falls_silent_is_noticed() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let client = postgres.client().await;
    let row = client
        .query_one("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted LIMIT 1", &[])
        .await
        .unwrap();
    let backend = row.get::<_, i32>(0).to_string();
    let signal = |name: &str| Command::new("kill").args(["-s", name, &backend]).status().unwrap().success();
    assert!(signal("STOP"));
    guard.lost().await;
    assert!(signal("CONT"));
}

/// The server's TCP timeouts are set for each lease: see `Session::allow_for`.
#[tokio::test]
async fn leases_of_all_lengths_are_accepted() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    for seconds in [1, 60, 24 * 60 * 60] {
        let guard = locks.mutex("a").ttl(Duration::from_secs(seconds)).acquire().await.unwrap();
        assert!(guard.valid_for() > Duration::from_secs(seconds) * 9 / 10);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_that_is_cut_off_stops_before_the_next_enters() {
    let postgres = postgres!();
    let target = format!("127.0.0.1:{}", postgres.daemon.port());
    let url = |address: &str| format!("postgres://postgres@{address}/postgres");
    crate::lossy::a_holder_that_is_cut_off_stops_before_the_next_enters(open(&postgres).await, target, url)
        .await;
}

#[tokio::test]
async fn a_release_wakes_one_and_not_the_whole_queue() {
    let postgres = postgres!();
    let locks = open(&postgres).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..5 {
        let other = open(&postgres).await;
        waiting.push(acquire(other.mutex("a").ttl(Duration::from_secs(3600))));
        until_waiting(&locks, "a", n + 1).await;
    }
    // A listener on the channels of all sessions.
    let (client, mut connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    let (notes, mut messages) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(note) = message {
                notes.send(note.channel().to_owned()).unwrap();
            }
        }
    });
    for session in 1..20 {
        client.batch_execute(&format!("LISTEN lockkeeper_{session}")).await.unwrap();
    }
    client.batch_execute("LISTEN the_end").await.unwrap();
    guard.release().await.unwrap();
    let _next = waiting.remove(0).await.unwrap();
    client.batch_execute("NOTIFY the_end").await.unwrap();
    let mut woken = Vec::new();
    while let Some(channel) = messages.recv().await.filter(|channel| channel != "the_end") {
        woken.push(channel);
    }
    assert_eq!(woken.len(), 1, "{woken:?}");
    waiting.iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn a_stale_writer_is_rejected_by_the_sql_checkers() {
    let postgres = postgres!();
    let client = postgres.client().await;
    let locks = open(&postgres).await;
    client
        .batch_execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, state text, fence bigint NOT NULL DEFAULT 0);
             INSERT INTO orders (id, state) VALUES (1, 'new'), (2, 'new');",
        )
        .await
        .unwrap();
    let stale = locks.mutex("orders").acquire().await.unwrap().fence().unwrap().get() as i64;
    until(|| async { locks.inspect("orders").await.unwrap().holders.is_empty() }).await;
    let newer = locks.mutex("orders").acquire().await.unwrap().fence().unwrap().get() as i64;
    assert!(newer > stale);

    let update = fence::sql::update("orders", "state = $1", "id = $3", "$2");
    let id = 1i64;
    assert_eq!(client.execute(&update, &[&"packed", &stale, &id]).await.unwrap(), 1);
    assert_eq!(client.execute(&update, &[&"sent", &newer, &id]).await.unwrap(), 1);
    assert_eq!(client.execute(&update, &[&"packed", &stale, &id]).await.unwrap(), 0, "stale");
    assert_eq!(client.execute(&update, &[&"lost", &0i64, &id]).await.unwrap(), 0, "no fence at all");
    assert_eq!(client.execute(&update, &[&"billed", &newer, &id]).await.unwrap(), 1, "the same holder again");

    client.batch_execute(fence::sql::GUARD_FUNCTION).await.unwrap();
    let trigger = "CREATE TRIGGER fence BEFORE UPDATE ON orders
                   FOR EACH ROW EXECUTE FUNCTION lockkeeper_reject_stale()";
    client.batch_execute(trigger).await.unwrap();
    let plain = "UPDATE orders SET state = $1, fence = $2 WHERE id = 2";
    assert_eq!(client.execute(plain, &[&"sent", &newer]).await.unwrap(), 1);
    let refused = client.execute(plain, &[&"packed", &stale]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "LK001", "{refused}");
    let row = client.query_one("SELECT state FROM orders WHERE id = 2", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "sent");
}
