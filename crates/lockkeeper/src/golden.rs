//! The JSON that `lockkeeper locks --json` prints, and the records in etcd and ZooKeeper. Clients with different versions of this
//! library share the records of a server.

use crate::Fence;
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag};
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
