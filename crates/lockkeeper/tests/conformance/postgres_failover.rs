//! A primary and a standby of PostgreSQL: the primary is killed, and the standby promoted.

use crate::backend::{Backend, Server};
use crate::postgres::Postgres;
use lockkeeper::{Error, Guard, Lockkeeper};
use std::time::Duration;

struct Pair {
    primary: Postgres,
    standby: Postgres,
}

impl Pair {
    async fn start() -> Option<Pair> {
        let rules = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n";
        let primary = Postgres::start_with(Vec::new(), |data| {
            std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
        })?
        .wait_until_it_serves();
        let directory = tempfile::tempdir().unwrap();
        crate::postgres::give_to_postgres(directory.path());
        let copied = Postgres::tool("pg_basebackup")
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &primary.port().to_string(),
                "-U",
                "postgres",
                "-R",
                "-c",
                "fast",
                "-D",
            ])
            .arg(directory.path().join("data"))
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let standby =
            Postgres::serve(directory, Vec::new(), vec!["hot_standby=on".into()])?.wait_until_it_serves();
        let pair = Pair { primary, standby };
        pair.until(
            "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')",
            &pair.primary,
        )
        .await;
        Some(pair)
    }

    /// The standby is the first in the URL, so that it is passed over.
    fn url(&self) -> String {
        let (standby, primary) = (self.standby.port(), self.primary.port());
        format!(
            "postgres://postgres@127.0.0.1:{standby},127.0.0.1:{primary}/postgres?target_session_attrs=read-write"
        )
    }

    async fn until(&self, condition: &str, server: &Postgres) {
        let client = server.client().await;
        while !client.query_one(condition, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the standby has all that the primary has written.
    async fn until_replicated(&self) {
        let row =
            self.primary.client().await.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap();
        let position: String = row.get(0);
        self.until(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"), &self.standby).await;
    }

    fn promote(&self) {
        let mut promote = Postgres::tool("pg_ctl");
        let promoted = promote
            .args(["promote", "-w", "-D"])
            .arg(self.standby.directory().join("data"))
            .output()
            .unwrap();
        assert!(promoted.status.success(), "{}", String::from_utf8_lossy(&promoted.stderr));
    }
}

macro_rules! pair {
    () => {
        match Pair::start().await {
            Some(pair) => pair,
            None => return,
        }
    };
}

/// Repeats a request until a server grants it.
async fn acquire_somewhere(locks: &Lockkeeper, name: &str) -> Guard {
    loop {
        match locks.mutex(name).acquire().await {
            Ok(guard) => return guard,
            Err(error @ (Error::Unavailable { .. } | Error::SessionLost { .. })) => {
                eprintln!("not yet: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
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
    pair.until_replicated().await;
    pair.primary.stop();
    let loss = guard.lost().await.to_string();
    assert!(loss.contains("the connection ended"), "{loss}");
    assert!(!guard.is_valid());
    let error = locks.mutex("a").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("none of its servers is a primary"), "{error}");
    assert!(error.contains("is a read-only standby") && error.contains("refuses connections"), "{error}");
    pair.promote();
    let next = acquire_somewhere(&locks, "a").await;
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
    pair.until_replicated().await;
    let standby = pair.standby.client().await;
    standby.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").await.unwrap();
    standby.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    pair.until("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)", &pair.standby).await;
    // A sequence writes to the log every 32 values.
    let mut last = None;
    for _ in 0..100 {
        let guard = locks.mutex("a").acquire().await.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        guard.release().await.unwrap();
    }
    let kept = locks.mutex("b").hold_as("web-3", Duration::from_secs(3600)).acquire().await.unwrap();
    pair.primary.stop();
    pair.promote();
    let next = acquire_somewhere(&locks, "a").await;
    assert!(next.fence() > last, "{:?} after {last:?}", next.fence());
    // The price of asynchronous replication: a detached hold is lost, and its fence protects the resource.
    assert_eq!(locks.detached("b", "web-3").await.unwrap(), None);
    assert!(acquire_somewhere(&locks, "b").await.fence() > kept.fence);
}

#[tokio::test]
async fn a_standby_alone_is_refused() {
    let pair = pair!();
    let error = Lockkeeper::open(&pair.standby.url()).await.expect_err("must be refused").to_string();
    assert!(error.contains("is a read-only standby; name the primary"), "{error}");
}
