//! The JSON that `lockkeeper locks --json` prints, and the records in etcd and ZooKeeper. Clients with different versions of this
//! library share the records of a server.

use crate::Fence;
use crate::info::{LockInfo, LockMode, Participant, Tag};
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
    let participant = |mode, fence| Participant { tag: tag(), mode, since_ms: 4, fence };
    let holders = vec![participant(LockMode::Exclusive, Fence::new(5))];
    let waiters = modes().into_iter().map(|(_, mode)| participant(mode, None)).collect();
    golden.json("locks", &[LockInfo { name: "nightly".into(), holders, waiters }]);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/locks.txt");
}

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
#[test]
fn json_of_records_on_servers_does_not_change() {
    use crate::engine::RequestRecord;
    let mut golden = Golden::default();
    for (name, mode) in modes() {
        let record = RequestRecord { name: "nightly".into(), mode, tag: tag(), held_ms: Some(6) };
        golden.text(&format!("record {name}"), std::str::from_utf8(&record.to_json().unwrap()).unwrap());
    }
    let waiter =
        RequestRecord { name: "nightly".into(), mode: LockMode::Exclusive, tag: tag(), held_ms: None };
    golden.text("record waiter", std::str::from_utf8(&waiter.to_json().unwrap()).unwrap());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/server-records.txt");
}
