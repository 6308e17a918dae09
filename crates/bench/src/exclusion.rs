//! Checks during the measurement that no two clients hold a lock at once, and that fences rise.
//!
//! The check must detect two processes that hold a lock at once, must need no server of its own, and must cost little.
//! A client that enters records this in the memory of its process and, if there are several processes, takes flock(2)
//! on a file of that lock, which must be free. The file contains the highest fence so far; the fence of the entering
//! client must be higher.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Checks the entries of the clients of one process, which share this value.
pub struct ExclusionChecker {
    /// The directory of the files. `None` if all clients are in this process.
    folder: Option<PathBuf>,
    locks: Vec<Watched>,
    checked: AtomicU64,
}

/// The state of one lock.
#[derive(Default)]
struct Watched {
    inside: AtomicBool,
    /// The highest fence, if there is no file for it.
    fence: AtomicU64,
    file: OnceLock<File>,
}

impl ExclusionChecker {
    /// Creates the check of a number of locks; with a directory, of all processes that use the same one.
    pub fn new(folder: Option<&Path>, locks: usize) -> ExclusionChecker {
        let locks = (0..locks).map(|_| Watched::default()).collect();
        ExclusionChecker { folder: folder.map(Path::to_owned), locks, checked: AtomicU64::new(0) }
    }

    /// Records that a client has acquired this lock, with this fence if the engine has fences. The error describes the
    /// violation.
    pub fn enter(&self, lock: usize, fence: Option<u64>) -> Result<(), Violation> {
        let watched = &self.locks[lock];
        if watched.inside.swap(true, Ordering::AcqRel) {
            return Err(Violation::Together { lock });
        }
        self.checked.fetch_add(1, Ordering::Relaxed);
        let Some(file) = self.file(lock)? else {
            return match fence {
                Some(fence) => rises(lock, watched.fence.swap(fence, Ordering::AcqRel), fence),
                None => Ok(()),
            };
        };
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Violation::Together { lock }),
            Err(error) => return Err(Violation::Unchecked(error.into())),
        }
        let Some(fence) = fence else { return Ok(()) };
        let mut highest = [0; 8];
        let read = file.read_at(&mut highest, 0).map_err(Violation::Unchecked)?;
        // An empty file has not been written yet.
        let highest = if read == 8 { u64::from_le_bytes(highest) } else { 0 };
        rises(lock, highest, fence)?;
        file.write_all_at(&fence.to_le_bytes(), 0).map_err(Violation::Unchecked)
    }

    /// Records that a client is about to release this lock. Call this BEFORE the release.
    pub fn exit(&self, lock: usize) -> Result<(), Violation> {
        if let Some(file) = self.file(lock)? {
            flock(file, FlockOperation::Unlock).map_err(|error| Violation::Unchecked(error.into()))?;
        }
        self.locks[lock].inside.store(false, Ordering::Release);
        Ok(())
    }

    /// Number of checked entries.
    pub fn checked(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    fn file(&self, lock: usize) -> Result<Option<&File>, Violation> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let place = &self.locks[lock].file;
        if let Some(file) = place.get() {
            return Ok(Some(file));
        }
        let path = folder.join(lock.to_string());
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(Violation::Unchecked)?;
        Ok(Some(place.get_or_init(|| file)))
    }
}

fn rises(lock: usize, highest: u64, fence: u64) -> Result<(), Violation> {
    if fence > highest {
        return Ok(());
    }
    Err(Violation::FenceDidNotRise { lock, highest, fence })
}

/// A violation of mutual exclusion or of rising fences.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// Two clients held a lock at once.
    #[error("two clients were inside lock {lock} at the same time")]
    Together {
        /// The number of the lock.
        lock: usize,
    },
    /// A fence was not higher than the one before it.
    #[error(
        "the fence of lock {lock} did not rise: {fence} came after {highest}, so a late write would not be rejected"
    )]
    FenceDidNotRise {
        /// The number of the lock.
        lock: usize,
        /// The highest fence before.
        highest: u64,
        /// The fence of the entering client.
        fence: u64,
    },
    /// The files of the check cannot be used, so a violation could not be detected.
    #[error("exclusivity could not be checked: {0}")]
    Unchecked(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two checks with one directory stand for two processes: each opens the files itself, as flock(2) requires.
    fn two(folder: &Path) -> [ExclusionChecker; 2] {
        [ExclusionChecker::new(Some(folder), 2), ExclusionChecker::new(Some(folder), 2)]
    }

    #[test]
    fn two_holders_at_once_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = two(folder.path());
        one.enter(0, Some(1)).unwrap();
        let violation = other.enter(0, Some(2)).unwrap_err();
        assert_eq!(violation.to_string(), "two clients were inside lock 0 at the same time");
        other.enter(1, Some(1)).unwrap();
        // The same for two clients of one process, which share a file.
        assert!(matches!(one.enter(0, Some(3)), Err(Violation::Together { lock: 0 })));
        let alone = ExclusionChecker::new(None, 1);
        alone.enter(0, None).unwrap();
        assert!(matches!(alone.enter(0, None), Err(Violation::Together { lock: 0 })));
    }

    #[test]
    fn successive_holders_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = two(folder.path());
        for turn in 0..10 {
            one.enter(0, Some(2 * turn + 1)).unwrap();
            one.exit(0).unwrap();
            other.enter(0, Some(2 * turn + 2)).unwrap();
            other.exit(0).unwrap();
        }
        assert_eq!((one.checked(), other.checked()), (10, 10));
    }

    #[test]
    fn fence_that_does_not_rise_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = two(folder.path());
        one.enter(0, Some(7)).unwrap();
        one.exit(0).unwrap();
        let violation = other.enter(0, Some(7)).unwrap_err();
        assert!(violation.to_string().contains("7 came after 7"), "{violation}");
        let alone = ExclusionChecker::new(None, 1);
        alone.enter(0, Some(7)).unwrap();
        alone.exit(0).unwrap();
        assert!(matches!(
            alone.enter(0, Some(6)),
            Err(Violation::FenceDidNotRise { lock: 0, highest: 7, fence: 6 })
        ));
    }
}
