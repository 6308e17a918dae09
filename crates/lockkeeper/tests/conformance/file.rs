//! The suite on the `file` engine, and tests of the guarantees of this engine.

use crate::backend::{Backend, open};
use lockkeeper::{Error, Fence, Lockkeeper};
use std::os::unix::fs::PermissionsExt;

pub struct FileBackend(tempfile::TempDir);

impl FileBackend {
    pub fn new() -> FileBackend {
        FileBackend(tempfile::tempdir().unwrap())
    }
}

impl Backend for FileBackend {
    fn url(&self) -> String {
        format!("file://{}", self.0.path().join("state").display())
    }
}

crate::conformance! { FileBackend::new() }

#[tokio::test]
async fn an_idle_lock_leaves_nothing_behind() {
    let backend = FileBackend::new();
    let locks = open(&backend).await;
    for n in 0..20 {
        locks.mutex(format!("lock {n}")).acquire().await.unwrap().release().await.unwrap();
    }
    drop(locks.mutex("dropped").acquire().await.unwrap());
    for part in ["locks", "live"] {
        let left = std::fs::read_dir(backend.0.path().join("state").join(part)).unwrap().count();
        assert_eq!(left, 0, "files left in {part}");
    }
}

#[tokio::test]
async fn nothing_outside_the_directory_is_touched() {
    let backend = FileBackend::new();
    let locks = open(&backend).await;
    for name in ["../../escape", "/escape", "..", "locks/../../escape", "%2e%2e/escape"] {
        let guard = locks.mutex(name).acquire().await.unwrap();
        let outside: Vec<_> = std::fs::read_dir(backend.0.path()).unwrap().collect();
        assert_eq!(outside.len(), 1, "{name:?} made {outside:?}");
        guard.release().await.unwrap();
    }
}

async fn open_error(path: &std::path::Path) -> Error {
    Lockkeeper::open(&format!("file://{}", path.display())).await.expect_err("must be refused")
}

#[tokio::test]
async fn a_directory_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o770, 0o707, 0o1777] {
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        let error = open_error(dir.path()).await;
        assert!(error.to_string().contains("other users can write"), "{mode:o}: {error}");
        // A directory below it is rejected too: other users could replace it.
        if mode & 0o1000 == 0 && mode & 0o002 != 0 {
            std::fs::create_dir_all(dir.path().join("mine")).unwrap();
            assert!(matches!(open_error(&dir.path().join("mine")).await, Error::UnsafeDirectory { .. }));
        }
    }
}

#[tokio::test]
async fn a_symbolic_link_inside_the_directory_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (state, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&elsewhere).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.join("locks")).unwrap();
    let error = open_error(&state).await.to_string();
    assert!(error.contains("should be a directory"), "{error}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// `fs.protected_symlinks` would help only below a sticky directory, and only where it is on.
#[tokio::test]
async fn a_symbolic_link_of_another_user_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (state, link) = (dir.path().join("state"), dir.path().join("link"));
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&state, &link).unwrap();
    for path in [link.clone(), link.join("below"), link.join("../link/./below")] {
        let locks = Lockkeeper::open(format!("file://{}", path.display())).await;
        assert!(locks.is_ok(), "one's own link is followed: {locks:?}");
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    for path in [link.clone(), link.join("below")] {
        let error = open_error(&path).await;
        assert!(matches!(error, Error::UnsafeDirectory { .. }), "{error}");
        assert!(error.to_string().contains("symbolic link of user 65534"), "{error}");
    }
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "nothing was made behind the link");
}

#[tokio::test]
async fn a_file_of_another_user_in_the_directory_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for name in ["guard", "ceiling"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(dir.path().join(name), "").unwrap();
        std::os::unix::fs::chown(dir.path().join(name), Some(65534), None).unwrap();
        let error = open_error(dir.path()).await.to_string();
        assert!(error.contains("belongs to user 65534"), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_path_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(open_error(&file).await.to_string().contains("cannot make the directory"));
}

#[tokio::test]
async fn a_damaged_queue_is_an_error_that_names_the_file() {
    let backend = FileBackend::new();
    let locks = open(&backend).await;
    let queue = backend.0.path().join("state/locks/a");
    for damage in [&b""[..], b"{", b"\xff\xff", b"[]", b"{\"name\":\"a\"}"] {
        std::fs::write(&queue, damage).unwrap();
        let error = locks.mutex("a").try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
    std::fs::remove_file(&queue).unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn after_a_reboot_old_holders_are_gone_and_fences_go_on_higher() {
    let backend = FileBackend::new();
    let state = backend.0.path().join("state");
    let before = open(&backend).await.mutex("a").acquire().await.unwrap();
    // The state after a power failure: the id of another boot, and torn, unsynced queues and counters.
    std::fs::write(state.join("boot"), "another boot").unwrap();
    std::fs::write(state.join("locks/a"), "{\"name").unwrap();
    std::fs::write(state.join("fence"), "").unwrap();
    let after = open(&backend).await.mutex("a").try_acquire().await.unwrap().expect("the old holder is dead");
    assert!(after.fence() > before.fence());
    assert_eq!(after.fence(), Fence::new(1001), "above the whole block that may have been handed out");
}

/// Replaces the id of the boot by another one in all files, as if they had been written before a reboot.
fn reboot(state: &std::path::Path) {
    let boot = std::fs::read_to_string(state.join("boot")).unwrap();
    for queue in std::fs::read_dir(state.join("locks")).unwrap() {
        let path = queue.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(boot.trim_end(), "another boot")).unwrap();
    }
    std::fs::write(state.join("boot"), "another boot").unwrap();
}

/// The lease clock of the new boot counts: it has to show as much as was left. The wall clock decides nothing.
#[tokio::test]
async fn after_a_reboot_detached_holds_last_and_all_others_are_gone() {
    let backend = FileBackend::new();
    let state = backend.0.path().join("state");
    let day = std::time::Duration::from_secs(24 * 3600);
    let locks = open(&backend).await;
    // This machine has not been up for a hundred days since the last boot, or not a hundred days longer.
    let held = locks.mutex("held").hold_as("web-3", day * 365).acquire().await.unwrap();
    locks.mutex("kept").at_least(day * 365).acquire().await.unwrap().release().await.unwrap();
    let _other = locks.mutex("other").acquire().await.unwrap();
    let _waits = tokio::spawn(locks.mutex("held").acquire());
    crate::backend::until_waiting(&locks, "held", 1).await;
    for _ in 0..2 {
        reboot(&state);
        let locks = open(&backend).await;
        assert!(locks.mutex("held").try_acquire().await.unwrap().is_none());
        assert!(locks.mutex("kept").try_acquire().await.unwrap().is_none());
        assert!(locks.mutex("other").try_acquire().await.unwrap().is_some(), "its process is gone");
        let again = locks.detached("held", "web-3").await.unwrap().expect("it lasts");
        assert!(again.fence == held.fence && again.left <= day * 365, "{again:?}");
    }
    // The rest that is stored was shorter than this machine has been up.
    let queue = state.join("locks/held");
    let text = std::fs::read_to_string(&queue).unwrap();
    let (before, left) = text.split_once("\"left_ns\":").unwrap();
    let left = left.trim_start_matches(|c: char| c.is_ascii_digit());
    std::fs::write(&queue, format!("{before}\"left_ns\":1{left}")).unwrap();
    reboot(&state);
    let locks = open(&backend).await;
    assert_eq!(locks.detached("held", "web-3").await.unwrap(), None);
    let next = locks.mutex("held").try_acquire().await.unwrap().expect("it has ended");
    assert!(next.fence() > held.fence);
}

/// A queue of a later version is not removed by a reboot.
#[tokio::test]
async fn after_a_reboot_a_queue_of_a_later_version_is_an_error() {
    let backend = FileBackend::new();
    let state = backend.0.path().join("state");
    open(&backend).await;
    let queue = state.join("locks/a");
    std::fs::write(&queue, r#"{"version":3,"name":"a","holds":[]}"#).unwrap();
    reboot(&state);
    let error = open_error(&state).await.to_string();
    assert!(error.contains("locks/a") && error.contains("version 3"), "{error}");
    assert!(queue.exists());
}
