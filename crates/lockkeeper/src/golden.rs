//! The JSON that the commands print with `--json`, and the records in etcd and ZooKeeper. Clients with different versions of
//! this library share the records of a server.

use crate::diagnose::{Diagnosis, Finding, Severity};
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag};
use crate::{Fence, engines};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use std::collections::BTreeMap;

fn tag() -> Tag {
    Tag {
        holder: "web-3/1/2".into(),
        host: "web-3".into(),
        pid: 1,
        since_ms: 2,
        metadata: BTreeMap::from([("purpose".into(), "backup".into())]),
    }
}

fn modes() -> Vec<(&'static str, LockMode)> {
    every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    })
}

#[test]
fn json_of_locks_does_not_change() {
    let mut golden = Golden::default();
    let participant = |mode, fence| Participant { tag: tag(), mode, since_ms: 4, fence, detached: None };
    let holders = vec![participant(LockMode::Exclusive, Fence::new(5))];
    let waiters = modes().into_iter().map(|(_, mode)| participant(mode, None)).collect();
    golden.json("locks", &[LockInfo { name: "nightly".into(), holders, waiters }]);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/locks.txt");
}

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
#[test]
fn json_of_records_on_servers_does_not_change() {
    let mut golden = Golden::default();
    for (name, mode) in modes() {
        let record = record(mode, Some(6));
        golden.text(&format!("record {name}"), std::str::from_utf8(&record.to_json().unwrap()).unwrap());
    }
    let waiter = record(LockMode::Exclusive, None);
    golden.text("record waiter", std::str::from_utf8(&waiter.to_json().unwrap()).unwrap());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/server-records.txt");
}

/// Versions that do not know detached holds ignore the field, on etcd; on ZooKeeper they reject its node by name.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
#[test]
fn json_of_detached_holds_on_servers_does_not_change() {
    use crate::engine::{DetachedRecord, RequestRecord};
    let mut golden = Golden::default();
    for (name, mode) in modes() {
        let owner = "web-3".into();
        let detached = DetachedRecord { owner, fence: 7, lasts_ms: 8, until_ms: 9, attached: true };
        let record = RequestRecord { detached: Some(detached), ..record(mode, Some(6)) };
        let json = record.to_json().unwrap();
        assert_eq!(serde_json::from_slice::<RequestRecord>(&json).unwrap(), record);
        golden.text(&format!("record {name}"), std::str::from_utf8(&json).unwrap());
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/detached-records.txt");
}

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
fn record(mode: LockMode, held_ms: Option<u64>) -> crate::engine::RequestRecord {
    crate::engine::RequestRecord { name: "nightly".into(), mode, tag: tag(), held_ms, detached: None }
}

/// The JSON of a lock that is kept without a process.
#[test]
fn json_of_detached_holds_does_not_change() {
    let mut golden = Golden::default();
    let detached = Some(Detached { owner: "web-3".into(), until_ms: 6 });
    let holder =
        |(_, mode)| Participant { tag: tag(), mode, since_ms: 4, fence: None, detached: detached.clone() };
    let holders = modes().into_iter().map(holder).collect();
    golden.json("locks", &[LockInfo { name: "nightly".into(), holders, waiters: Vec::new() }]);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/detached-locks.txt");
}

/// The JSON of `lockkeeper doctor --json`. The names of checks are part of it; texts are for people and may change.
#[test]
fn json_of_diagnoses_does_not_change() {
    let severities = every_variant!(Severity {
        "note": Severity::Note => Severity::Note,
        "warning": Severity::Warning => Severity::Warning,
        "critical": Severity::Critical => Severity::Critical,
    });
    let finding = |(check, severity)| Finding::new(severity, check, "found", "advice");
    let findings = severities.into_iter().map(finding).collect();
    let mut golden = Golden::default();
    golden.json("diagnosis", &Diagnosis { engine: "redis", findings });
    golden.json("diagnosis without-findings", &Diagnosis { engine: "file", findings: Vec::new() });
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/doctor.txt");
}

/// The JSON of `lockkeeper engines --json`, in a build with all engines.
#[test]
fn json_of_engines_does_not_change() {
    let mut golden = Golden::default();
    for mut engine in engines() {
        engine.built_in = true;
        golden.json(engine.name, &engine);
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/engines.txt");
}

/// The JSON of `lockkeeper status --json`, and of `lockkeeper members --json`.
#[cfg(feature = "cluster")]
#[test]
fn json_of_the_status_and_of_the_members_does_not_change() {
    use crate::cluster::{ClusterStatus, MemberStatus};
    let member = |id, address: &str, [votes, in_view, connected]: [bool; 3]| MemberStatus {
        id,
        address: address.into(),
        votes,
        in_view,
        connected,
    };
    let status = ClusterStatus {
        cluster: "canal".into(),
        algorithm: "raymond (tree=line)".into(),
        member: 1,
        serves: true,
        trouble: Some("frozen".into()),
        epoch: 5,
        lease_ms: 6,
        leader: Some(7),
        members: vec![
            member(8, "a:7420", [true, false, false]),
            member(9, "b:7420", [false, true, false]),
            member(10, "c:7420", [false, false, true]),
        ],
        settings: vec![("lease".into(), "1200ms".into())],
    };
    let mut golden = Golden::default();
    golden.json("status", &status);
    golden.json("members", &status.members);
    let nothing_known = ClusterStatus { trouble: None, leader: None, members: Vec::new(), ..status };
    golden.json("status-without-options", &nothing_known);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/status.txt");
}
