//! The diagnosis of servers that are configured, deliberately, in risky ways.

use crate::backend::{Backend, TIMEOUT, open, open_url};
use lockkeeper::{Diagnosis, Finding, Severity};
use lockkeeper_testbed::clock::FiveSecondsAhead;

/// Diagnoses a backend once it serves.
async fn diagnosis(backend: &dyn Backend) -> Diagnosis {
    open(backend).await.diagnose().await.unwrap()
}

/// The finding of one check.
#[track_caller]
pub fn found<'a>(diagnosis: &'a Diagnosis, check: &str) -> &'a Finding {
    let finding = diagnosis.findings.iter().find(|finding| finding.check == check);
    finding.unwrap_or_else(|| panic!("no finding of `{check}`: {diagnosis:#?}"))
}

#[track_caller]
pub fn none(diagnosis: &Diagnosis, checks: &[&str]) {
    let unexpected = diagnosis.findings.iter().find(|finding| checks.contains(&finding.check));
    assert!(unexpected.is_none(), "{diagnosis:#?}");
}

/// Checks that a server with [`FiveSecondsAhead`] is found to be ahead.
async fn is_found_ahead(backend: &dyn Backend, severity: Severity) {
    // A difference that the round trip explains is no finding: on a busy machine it can take seconds.
    let found = async {
        loop {
            let diagnosis = diagnosis(backend).await;
            if let Some(finding) = diagnosis.findings.into_iter().find(|finding| finding.check == "clock") {
                return finding;
            }
        }
    };
    let finding = tokio::time::timeout(TIMEOUT, found).await.expect("the clock is found to be ahead");
    assert_eq!(finding.severity, severity, "{finding:?}");
    let seconds =
        finding.found.strip_prefix("the server's clock is ").and_then(|rest| rest.split_once(" s "));
    let (seconds, rest) = seconds.unwrap_or_else(|| panic!("{finding:?}"));
    let seconds: f64 = seconds.parse().unwrap();
    assert!((1.0..=5.0).contains(&seconds) && rest.starts_with("ahead of this machine's"), "{finding:?}");
}

/// The checks of the trial: with these, a client cannot use the locks.
pub const TRIAL: [&str; 4] = ["open", "acquire", "release", "list"];

#[tokio::test]
async fn the_trial_leaves_nothing_and_other_locks_are_not_changed() {
    let place = tempfile::tempdir().unwrap();
    let locks = open_url(&format!("file://{}", place.path().display())).await;
    let guard = locks.mutex("mine").acquire().await.unwrap();
    let diagnosis = locks.diagnose().await.unwrap();
    none(&diagnosis, &TRIAL);
    let held: Vec<String> = locks.list().await.unwrap().into_iter().map(|lock| lock.name).collect();
    assert_eq!(held, ["mine"]);
    guard.release().await.unwrap();
}

/// Fences start again with the machine if their counter is in memory.
#[tokio::test]
async fn a_directory_in_memory_is_reported() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let diagnosis = lockkeeper::diagnose(format!("file://{}", memory.path().display())).await.unwrap();
    assert_eq!(found(&diagnosis, "file-system").severity, Severity::Warning);
    assert!(diagnosis.has_risks());
}

#[tokio::test]
async fn a_diagnosis_of_files_names_the_users_who_can_use_the_locks() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("file://{}", place.path().display());
    let own = lockkeeper::diagnose(url.as_str()).await.unwrap();
    assert!(found(&own, "users").found.contains("other users of this machine have locks of their own"));
    assert_eq!(found(&own, "users").severity, Severity::Note);

    let shared = tempfile::tempdir().unwrap();
    for (mode, users) in [(0o1777, "all users of this machine"), (0o1770, "the members of group")] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(shared.path(), permissions).unwrap();
        let url = format!("file://{}?shared", shared.path().display());
        let diagnosis = lockkeeper::diagnose(url).await.unwrap();
        none(&diagnosis, &TRIAL);
        assert!(found(&diagnosis, "users").found.starts_with(users), "{diagnosis:#?}");
        assert!(!diagnosis.has_risks(), "{diagnosis:#?}");
    }
}

#[tokio::test]
async fn a_wrong_url_is_an_error_and_no_finding() {
    assert!(lockkeeper::diagnose("gopher://x").await.unwrap_err().is_usage());
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use crate::backend::Server;
    use crate::redis::Redis;

    #[tokio::test]
    async fn redis_without_persistence_is_critical() {
        let Some(redis) = Redis::start(&["--appendonly", "no"]) else { return };
        let diagnosis = diagnosis(&redis).await;
        let finding = found(&diagnosis, "persistence");
        assert_eq!(finding.severity, Severity::Critical);
        assert!(finding.found.contains("nothing is stored on disk"), "{finding:?}");
        assert!(finding.advice.contains("appendonly yes"), "{finding:?}");
        assert_eq!(&diagnosis.findings[0], finding, "the most severe finding comes first");
    }

    #[tokio::test]
    async fn redis_that_evicts_keys_is_critical_once_its_memory_is_limited() {
        let options = ["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"];
        let Some(redis) = Redis::start(&options) else { return };
        let limited = diagnosis(&redis).await;
        let finding = found(&limited, "eviction");
        assert!(
            finding.severity == Severity::Critical && finding.found.contains("allkeys-lru"),
            "{finding:?}"
        );
        redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        let unlimited = diagnosis(&redis).await;
        assert_eq!(found(&unlimited, "eviction").severity, Severity::Warning);
    }

    #[tokio::test]
    async fn a_careful_redis_is_still_one_server() {
        let Some(redis) = Redis::start(&[]) else { return };
        let diagnosis = diagnosis(&redis).await;
        none(&diagnosis, &TRIAL);
        none(&diagnosis, &["persistence", "eviction", "clock", "settings"]);
        assert_eq!(found(&diagnosis, "replication").severity, Severity::Warning);
    }

    #[tokio::test]
    async fn redis_whose_clock_is_five_seconds_ahead_is_reported() {
        let Some(ahead) = FiveSecondsAhead::new() else { return };
        let Some(server) = Redis::start_in(&ahead.environment(), &[], &[]) else { return };
        is_found_ahead(&server, Severity::Warning).await;
    }

    #[tokio::test]
    async fn independent_servers_are_diagnosed_one_by_one() {
        let Some(redlock) = crate::redlock::Redlock::start() else { return };
        let all = diagnosis(&redlock).await;
        none(&all, &TRIAL);
        none(&all, &["size", "health", "replication"]);
        assert_eq!(found(&all, "fences").severity, Severity::Warning);
        redlock.0[1].daemon.stop();
        redlock.0[2].cli(&["CONFIG", "SET", "appendfsync", "no"]);
        let missing = diagnosis(&redlock).await;
        none(&missing, &TRIAL);
        assert!(found(&missing, "health").found.contains(&redlock.0[1].address()), "{missing:#?}");
        assert!(found(&missing, "persistence").found.contains(&redlock.0[2].address()), "{missing:#?}");
        // The scheme of one server names two independent ones here.
        let two = format!("redis://{},{}?unfenced", redlock.0[0].address(), redlock.0[2].address());
        let two = lockkeeper::diagnose(two).await.unwrap();
        assert!(found(&two, "size").found.contains("two servers"), "{two:#?}");
    }

    #[tokio::test]
    async fn a_missing_permission_is_a_finding() {
        let Some(redis) = Redis::start(&[]) else { return };
        redis.cli(&[
            "ACL", "SETUSER", "weak", "on", ">x", "~*", "&*", "+@all", "-eval", "-evalsha", "-script",
        ]);
        redis.cli(&["ACL", "SETUSER", "blind", "on", ">x", "~*", "&*", "+@all", "-config", "-info", "-acl"]);
        let weak = lockkeeper::diagnose(format!("redis://weak:x@{}", redis.address())).await.unwrap();
        let finding = found(&weak, "open");
        assert_eq!(finding.severity, Severity::Critical);
        assert!(finding.found.contains("keeper script") && !finding.advice.is_empty(), "{finding:?}");
        let blind = lockkeeper::diagnose(format!("redis://blind:x@{}", redis.address())).await.unwrap();
        none(&blind, &TRIAL);
        assert_eq!(found(&blind, "settings").severity, Severity::Note);
    }
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_of_one_node_is_reported() {
    let Some(etcd) = crate::etcd::Etcd::start() else { return };
    let diagnosis = diagnosis(&etcd).await;
    none(&diagnosis, &TRIAL);
    let finding = found(&diagnosis, "size");
    assert!(finding.severity == Severity::Warning && finding.found.contains("one server"), "{finding:?}");
    none(&diagnosis, &["health", "alarms"]);
}

/// The quota of its store is used up, so that no lock can be acquired. The findings are read nevertheless.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_without_space_has_an_alarm() {
    let Some(etcd) = crate::etcd::Etcd::start_with(&["--quota-backend-bytes", "1048576"]) else { return };
    none(&diagnosis(&etcd).await, &["alarms"]);
    let value = "x".repeat(100_000);
    for key in 0.. {
        if etcd.ctl(&["alarm", "list"]).contains("NOSPACE") {
            break;
        }
        let _ = etcd.try_ctl(&["put", &format!("key-{key}"), &value]);
    }
    let full = lockkeeper::diagnose(etcd.url()).await.unwrap();
    let finding = found(&full, "alarms");
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.found.contains("its quota is used up"), "{finding:?}");
    assert_eq!(found(&full, "acquire").severity, Severity::Critical);
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_of_one_server_is_reported() {
    let Some(zookeeper) = crate::zookeeper::ZooKeeper::start() else { return };
    let diagnosis = diagnosis(&zookeeper).await;
    none(&diagnosis, &TRIAL);
    assert_eq!(found(&diagnosis, "size").severity, Severity::Warning);
    none(&diagnosis, &["clock"]);
}

/// Its holds do not depend on clocks.
#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_whose_clock_is_five_seconds_ahead_is_reported() {
    let Some(ahead) = FiveSecondsAhead::new() else { return };
    let Some(server) = crate::zookeeper::ZooKeeper::start_in(&ahead.environment()) else { return };
    is_found_ahead(&server, Severity::Note).await;
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_of_another_user_is_a_finding() {
    let Some(zookeeper) = crate::zookeeper::ZooKeeper::start() else { return };
    let url = |user: &str| format!("zookeeper://{user}:x@{}", zookeeper.address());
    let owner = open_url(&url("owner")).await;
    owner.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let other = lockkeeper::diagnose(url("other")).await.unwrap();
    let finding = found(&other, "open");
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.found.contains("may not") && finding.advice.contains("right"), "{finding:?}");
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::*;
    use crate::mysql::MariaDb;
    use mysql_async::prelude::Queryable;

    /// The server of the tests does not sync its log.
    #[tokio::test]
    async fn mariadb_that_does_not_sync_its_log_is_critical() {
        let Some(mariadb) = MariaDb::start() else { return };
        let diagnosis = diagnosis(&mariadb).await;
        none(&diagnosis, &TRIAL);
        let finding = found(&diagnosis, "persistence");
        assert_eq!(finding.severity, Severity::Critical);
        assert!(finding.found.contains("innodb_flush_log_at_trx_commit = 2"), "{finding:?}");
        assert!(found(&diagnosis, "replication").found.contains("no binary log"), "{diagnosis:#?}");
        none(&diagnosis, &["clock"]);
    }

    #[tokio::test]
    async fn a_careful_mariadb_has_no_findings() {
        let options = ["--log-bin=bin", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"];
        let options = options.map(String::from).to_vec();
        let Some(mariadb) = MariaDb::start_with(options, |_| {}) else { return };
        let diagnosis = diagnosis(&mariadb).await;
        assert_eq!(diagnosis.findings, [], "{diagnosis:#?}");
        mariadb.client().await.query_drop("SET GLOBAL sync_binlog = 0").await.unwrap();
        let careless = super::diagnosis(&mariadb).await;
        assert!(found(&careless, "replication").found.contains("sync_binlog = 0"), "{careless:#?}");
    }

    #[tokio::test]
    async fn mariadb_whose_clock_is_five_seconds_ahead_is_reported() {
        let Some(ahead) = FiveSecondsAhead::new() else { return };
        let Some(server) = MariaDb::start_in(&ahead.environment()) else { return };
        is_found_ahead(&server, Severity::Warning).await;
    }

    #[tokio::test]
    async fn a_user_without_rights_is_a_finding() {
        let Some(mariadb) = MariaDb::start() else { return };
        open(&mariadb).await;
        mariadb.client().await.query_drop("CREATE USER weak IDENTIFIED BY 'x'").await.unwrap();
        let diagnosis = lockkeeper::diagnose(mariadb.url_of("weak:x", "locks")).await.unwrap();
        let finding = found(&diagnosis, "open");
        assert_eq!(finding.severity, Severity::Critical);
        assert!(finding.found.to_lowercase().contains("denie"), "{finding:?}");
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use crate::postgres::Postgres;

    /// The server of the tests runs without fsync.
    #[tokio::test]
    async fn postgres_without_fsync_and_standby_is_reported() {
        let Some(postgres) = Postgres::start() else { return };
        let diagnosis = diagnosis(&postgres).await;
        none(&diagnosis, &TRIAL);
        assert_eq!(found(&diagnosis, "persistence").severity, Severity::Critical);
        assert_eq!(found(&diagnosis, "replication").severity, Severity::Warning);
        none(&diagnosis, &["clock"]);
    }

    #[tokio::test]
    async fn postgres_whose_clock_is_five_seconds_ahead_is_reported() {
        let Some(ahead) = FiveSecondsAhead::new() else { return };
        let Some(server) = Postgres::start_in(&ahead.environment()) else { return };
        is_found_ahead(&server, Severity::Warning).await;
    }

    #[tokio::test]
    async fn a_role_without_the_right_to_create_is_a_finding() {
        let Some(postgres) = Postgres::start() else { return };
        open(&postgres).await;
        let client = postgres.client().await;
        client.batch_execute("CREATE ROLE weak LOGIN PASSWORD 'x'").await.unwrap();
        client.batch_execute("CREATE DATABASE other").await.unwrap();
        let diagnosis = lockkeeper::diagnose(postgres.url_of("weak:x", "other")).await.unwrap();
        let finding = found(&diagnosis, "open");
        assert_eq!(finding.severity, Severity::Critical);
        assert!(finding.found.contains("permission denied"), "{finding:?}");
    }
}
