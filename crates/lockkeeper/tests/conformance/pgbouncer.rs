//! PostgreSQL behind PgBouncer: pools that share sessions are refused, and pools that do not are used.

use crate::backend::{Backend, open};
use crate::postgres::{Postgres, as_postgres, give_to_postgres};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::sync::Arc;
use std::time::Duration;

/// A PgBouncer in front of a PostgreSQL server of its own.
struct PgBouncer {
    postgres: Postgres,
    daemon: LocalServer,
    _files: Arc<tempfile::TempDir>,
}

impl PgBouncer {
    /// Returns `None` if there is no PgBouncer or no PostgreSQL and the user is not root.
    fn start(pool_mode: &str, settings: &'static str) -> Option<PgBouncer> {
        let program = servers::program("pgbouncer", &[], "pgbouncer")?;
        let postgres = Postgres::start()?.wait_until_it_serves();
        let (files, pool_mode) = (Arc::new(tempfile::tempdir().unwrap()), pool_mode.to_owned());
        let (directory, server) = (files.path().to_owned(), postgres.port());
        std::fs::write(directory.join("users"), "\"postgres\" \"\"\n").unwrap();
        let daemon = LocalServer::start(move |port| {
            let config = directory.join("pgbouncer.ini");
            let text = format!(
                "[databases]\npostgres = host=127.0.0.1 port={server}\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n\
                 auth_file = {}\npool_mode = {pool_mode}\n{settings}\n",
                directory.join("users").display()
            );
            std::fs::write(&config, text).unwrap();
            give_to_postgres(&directory);
            let mut command = as_postgres(&program);
            command.arg("--quiet").arg(config);
            command
        });
        Some(PgBouncer { postgres, daemon, _files: files })
    }
}

impl Backend for PgBouncer {
    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.daemon.port())
    }
}

/// Starts the servers, or returns from the test.
macro_rules! pgbouncer {
    ($pool_mode:expr, $settings:expr) => {
        match PgBouncer::start($pool_mode, $settings) {
            Some(pgbouncer) => pgbouncer,
            None => return,
        }
    };
}

crate::conformance! { pgbouncer!("session", "default_pool_size = 50");
    basics::a_mutex_admits_one,
    basics::waiters_enter_first_come_first_served,
    basics::readers_share_and_a_writer_is_alone,
    basics::holders_and_waiters_can_be_seen,
    basics::an_election_has_one_leader_and_observers_follow,
    cancellation::an_acquire_can_be_dropped_at_every_await,
    processes::tasks_of_several_processes_take_turns,
    processes::a_killed_holder_lets_the_next_one_in,
    detached::a_detached_hold_belongs_to_its_owner,
}

/// Pools of one session and of many, which reuse the last or the first session that was returned.
#[tokio::test]
async fn a_pool_that_shares_sessions_is_refused() {
    for (pool_mode, settings) in [
        ("transaction", ""),
        ("transaction", "default_pool_size = 1"),
        ("transaction", "server_round_robin = 1"),
        ("transaction", "server_reset_query_always = 1"),
        ("statement", ""),
        ("statement", "default_pool_size = 1"),
    ] {
        let pgbouncer = pgbouncer!(pool_mode, settings);
        for _ in 0..3 {
            let error = Lockkeeper::open(&pgbouncer.url()).await.expect_err("must be refused").to_string();
            assert!(error.contains("use a pool with pool_mode=session"), "{pool_mode}, {settings}: {error}");
            assert!(error.contains("connect to the server directly"), "{error}");
        }
        let direct = open(&pgbouncer.postgres).await;
        direct.mutex("a").acquire().await.unwrap().release().await.unwrap();
    }
}

/// `lockkeeper::diagnose` reports it, where `Lockkeeper::open` fails.
#[tokio::test]
async fn a_pool_that_shares_sessions_is_a_finding() {
    let pgbouncer = pgbouncer!("transaction", "");
    let diagnosis = lockkeeper::diagnose(pgbouncer.url()).await.unwrap();
    assert_eq!((diagnosis.engine, diagnosis.findings.len()), ("postgres", 1), "{diagnosis:#?}");
    let finding = &diagnosis.findings[0];
    assert_eq!((finding.severity, finding.check), (lockkeeper::Severity::Critical, "open"));
    assert!(finding.found.contains("pool_mode=session"), "{finding:?}");
}

/// Without a second connection the pool is found when another session serves a request or a renewal.
#[tokio::test]
async fn a_session_that_is_exchanged_later_is_noticed() {
    let pgbouncer = pgbouncer!("transaction", "max_client_conn = 1");
    let locks = open(&pgbouncer).await;
    // A renewal in a third of this time is answered, also by a machine that is busy.
    let guard = locks.mutex("a").ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let client = pgbouncer.postgres.client().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'lockkeeper' AND pid <> pg_backend_pid()";
    client.execute(end, &[]).await.unwrap();
    let reason = guard.lost().await.to_string();
    assert!(reason.contains("use a pool with pool_mode=session"), "{reason}");
    let error = locks.mutex("b").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("use a pool with pool_mode=session"), "{error}");
    assert!(locks.inspect("b").await.unwrap().holders.is_empty(), "the refused request leaves nothing");
}
