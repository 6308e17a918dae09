//! The files of a state directory. Processes with different versions of this library share a directory: a change of
//! `tests/golden/file-engine.txt` must be readable by the versions before, or use another directory.

use super::counter;
use super::detached::DetachedRecord;
use super::process::{Process, boot_id};
use super::queue::{Entry, Grant, Key, Queue};
use super::store::Store;
use crate::LockName;
use crate::info::{LockMode, Tag};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use std::collections::BTreeMap;

/// A queue with an entry for each mode: a holder with a child process, and waiters.
fn queue() -> Queue {
    let modes = every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    });
    let entry = |(name, mode): (&str, LockMode)| Entry {
        id: format!("1-2-{name}"),
        mode,
        tag: Tag {
            holder: "web-3/1/2".into(),
            host: "web-3".into(),
            pid: 4,
            since_ms: 5,
            metadata: BTreeMap::from([("purpose".into(), "backup".into())]),
        },
        owner: Process { pid: 6, started: 7 },
        pid_namespace: "pid:[8]".into(),
        held: None,
        child: None,
        detached: None,
    };
    let mut entries: Vec<Entry> = modes.into_iter().map(entry).collect();
    entries[0].held = Some(Grant { fence: 9, since_ms: 10 });
    entries[0].child = Some(Process { pid: 11, started: 12 });
    Queue { name: "nightly".into(), entries }
}

#[test]
fn files_of_the_file_engine_do_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(read("boot"), boot_id().unwrap());
    let mut golden = Golden::default();
    golden.json("ceiling new", &read("ceiling"));
    counter::next(&store.files, "00000000-boot", &Default::default()).unwrap();
    golden.json("ceiling", &read("ceiling"));
    golden.json("fence", &read("fence"));
    let long = "x/".repeat(200);
    for (name, lock) in [("name", "nightly"), ("path", "a/b.c"), ("dot", ".é"), ("long", &long)] {
        golden.text(&format!("key {name}"), &Key::of(&LockName::new(lock).unwrap()).0);
    }
    let edit = store.try_edit().unwrap().unwrap();
    let (key, queue) = (Key("nightly".into()), queue());
    edit.publish(&key, &queue, &[]).unwrap();
    golden.text("queue", &read("locks/nightly"));
    assert_eq!(edit.load(&key, "nightly").unwrap(), queue);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/file-engine.txt");
}

/// The queue of version 1.
#[derive(serde::Deserialize)]
struct Version1 {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "entries")]
    _entries: Vec<Entry>,
}

/// A queue with a detached hold has version 2, which programs that know only version 1 do not accept.
#[test]
fn queues_with_detached_holds_do_not_change() {
    let mut queue = queue();
    let json = String::from_utf8(queue.to_json().unwrap()).unwrap();
    assert!(serde_json::from_str::<Version1>(&json).is_ok(), "without one it has version 1");
    let boot = "00000000-boot".into();
    queue.entries[0].detached =
        Some(DetachedRecord { owner: "web-3".into(), boot, until_ns: 13, left_ns: 14 });
    let json = String::from_utf8(queue.to_json().unwrap()).unwrap();
    assert_eq!(Queue::from_json(json.as_bytes()).unwrap(), queue);
    let mut golden = Golden::default();
    golden.text("queue", &json);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/file-engine-2.txt");
    assert!(serde_json::from_str::<Version1>(&json).is_err(), "version 1 would remove the detached hold");
    let newer = json.replacen("\"version\":2", "\"version\":3", 1);
    let error = Queue::from_json(newer.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("version 3 is unknown to this version"), "{error}");
}
