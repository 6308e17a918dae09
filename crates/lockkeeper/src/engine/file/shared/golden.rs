//! The files of a shared directory. Programs of different versions use one directory at the same time. The bytes that a
//! lock occupies are pinned in `ranges.rs`.

use super::directory::SharedDirectory;
use super::records::{Record, RecordFile};
use crate::info::{LockMode, Tag};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

#[tokio::test]
async fn files_of_a_shared_directory_do_not_change() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o1777)).unwrap();
    let directory = Arc::new(SharedDirectory::open(place.path()).unwrap());
    let mut golden = Golden::default();
    let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().permissions().mode();
    for name in ["locks", "fences"] {
        golden.text(&format!("{name} mode"), &format!("{:o}", mode(name)));
        assert!(fs::read(place.path().join(name)).unwrap().is_empty(), "{name} is empty at first");
    }
    // Above the time in microseconds, so that the next fence depends on the file alone.
    fs::write(place.path().join("fences"), (1_u64 << 60).to_le_bytes()).unwrap();
    assert_eq!(directory.next_fence().await.unwrap(), (1 << 60) + 1);
    golden.bytes("fences", &fs::read(place.path().join("fences")).unwrap());
    let modes = every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    });
    for (name, mode) in modes {
        let tag = Tag {
            holder: "web-3/1/2".into(),
            host: "web-3".into(),
            pid: 4,
            since_ms: 5,
            metadata: BTreeMap::from([("purpose".into(), "backup".into())]),
        };
        let record = Record { name: "nightly".into(), mode, tag, fence: 6, since_ms: 7 };
        let file = RecordFile::create(&directory, &record).unwrap();
        let path = file.path();
        golden.text(&format!("record {name}"), &fs::read_to_string(&path).unwrap());
        let file_name = path.file_name().unwrap().to_str().unwrap();
        assert!(file_name.starts_with(&format!("h-{}-7-", std::process::id())), "{file_name}");
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/shared-directory.txt");
}
