//! The suite on a directory that several users share, and tests of its checks. Tests with several users are those of the
//! command, in `crates/cli/tests/basics/shared_directory.rs`.

use crate::backend::{Backend, open, open_url};
use lockkeeper::{Error, Lockkeeper};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A new directory that this user owns.
struct Shared(tempfile::TempDir);

impl Shared {
    fn new() -> Shared {
        let place = tempfile::tempdir().unwrap();
        allow(place.path(), 0o1777);
        Shared(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Backend for Shared {
    fn url(&self) -> String {
        format!("file://{}?shared", self.path().display())
    }
}

crate::conformance! { Shared::new() }

async fn refusal(shared: &Shared) -> String {
    let error = Lockkeeper::open(shared.url()).await.expect_err("must be refused");
    assert!(matches!(error, Error::UnsafeDirectory { .. } | Error::Io { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_directory_in_which_others_could_replace_files_is_refused() {
    let shared = Shared::new();
    for mode in [0o777, 0o770, 0o700, 0o1755] {
        allow(shared.path(), mode);
        let reason = refusal(&shared).await;
        assert!(reason.contains("chmod 1777"), "{mode:o}: {reason}");
    }
    allow(shared.path(), 0o1770);
    open(&shared).await;
    let url = format!("file://{}?shared", shared.path().join("missing").display());
    assert!(Lockkeeper::open(url).await.is_err(), "a shared directory is not created");
}

#[tokio::test]
async fn files_in_the_place_of_the_file_of_locks_are_refused() {
    for plant in ["symlink", "directory", "hard link"] {
        let shared = Shared::new();
        let (locks, other) = (shared.path().join("locks"), shared.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        match plant {
            "symlink" => symlink(&other, &locks).unwrap(),
            "hard link" => std::fs::hard_link(&other, &locks).unwrap(),
            _ => std::fs::create_dir(&locks).unwrap(),
        }
        let reason = refusal(&shared).await;
        assert!(reason.contains("locks"), "{plant}: {reason}");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
    }
}

#[tokio::test]
async fn a_number_of_fences_out_of_range_is_reported() {
    let shared = Shared::new();
    let locks = open(&shared).await;
    let first = locks.mutex("a").acquire().await.unwrap().fence().unwrap();
    std::fs::write(shared.path().join("fences"), u64::MAX.to_le_bytes()).unwrap();
    let error = locks.mutex("a").acquire().await.unwrap_err();
    assert!(
        matches!(error, Error::Damaged { .. }) && error.to_string().contains("Empty the file"),
        "{error}"
    );
    std::fs::write(shared.path().join("fences"), "").unwrap();
    assert!(locks.mutex("a").acquire().await.unwrap().fence().unwrap() > first);
}

/// The record that a killed process leaves is removed when the records are read.
#[tokio::test]
async fn records_without_a_holder_are_not_shown() {
    let shared = Shared::new();
    let locks = open_url(&shared.url()).await;
    let _guard = locks.mutex("held").acquire().await.unwrap();
    let records = || std::fs::read_dir(shared.path()).unwrap().flatten().map(|entry| entry.path());
    let mine = records().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("h-")).unwrap();
    std::fs::copy(&mine, shared.path().join("h-dead")).unwrap();
    std::fs::write(shared.path().join("h-garbage"), "{").unwrap();
    let held = locks.list().await.unwrap();
    assert_eq!((held.len(), held[0].holders.len()), (1, 1), "{held:?}");
    assert!(held[0].holders[0].tag.metadata.contains_key("user"));
    assert!(!shared.path().join("h-dead").exists());
}
