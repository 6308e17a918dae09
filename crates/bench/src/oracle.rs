//! Watches, while it is measured, that nobody is inside beside somebody else, and that fences rise.
//!
//! It must find two processes inside at once, need no server of its own, and cost little. Whoever enters says so in the memory of its
//! process, and, if there are other processes, takes flock(2) on a file of that lock, which must be free. The file holds the highest
//! fence so far; that of whoever enters must be higher.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One process's part of the watch: shared by its clients.
pub struct Oracle {
    /// Where the files are; without it, all clients are in this process.
    folder: Option<PathBuf>,
    locks: Vec<Watched>,
    checked: AtomicU64,
}

/// What is known of one lock.
#[derive(Default)]
struct Watched {
    inside: AtomicBool,
    /// The highest fence, if there is no file for it.
    fence: AtomicU64,
    file: OnceLock<File>,
}

impl Oracle {
    /// A watch over so many locks; with a folder, over all processes that name the same.
    pub fn new(folder: Option<&Path>, locks: usize) -> Oracle {
        let locks = (0..locks).map(|_| Watched::default()).collect();
        Oracle { folder: folder.map(Path::to_owned), locks, checked: AtomicU64::new(0) }
    }

    /// Somebody has acquired this lock, with this fence if the engine has them. The error says what is wrong.
    pub fn enter(&self, lock: usize, fence: Option<u64>) -> Result<(), Violation> {
        let watched = &self.locks[lock];
        if watched.inside.swap(true, Ordering::AcqRel) {
            return Err(Violation::together(lock));
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
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Violation::together(lock)),
            Err(error) => return Err(Violation::unseen(&error)),
        }
        let Some(fence) = fence else { return Ok(()) };
        let mut highest = [0; 8];
        let read = file.read_at(&mut highest, 0).map_err(|error| Violation::unseen(&error))?;
        // An empty file is one that nobody has written yet.
        let highest = if read == 8 { u64::from_le_bytes(highest) } else { 0 };
        rises(lock, highest, fence)?;
        file.write_all_at(&fence.to_le_bytes(), 0).map_err(|error| Violation::unseen(&error))
    }

    /// Called BEFORE the lock is given up.
    pub fn exit(&self, lock: usize) -> Result<(), Violation> {
        if let Some(file) = self.file(lock)? {
            flock(file, FlockOperation::Unlock).map_err(|error| Violation::unseen(&error))?;
        }
        self.locks[lock].inside.store(false, Ordering::Release);
        Ok(())
    }

    /// How many entries were looked at.
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
        let file = opened.map_err(|error| Violation::unseen(&error))?;
        Ok(Some(place.get_or_init(|| file)))
    }
}

fn rises(lock: usize, highest: u64, fence: u64) -> Result<(), Violation> {
    if fence > highest {
        return Ok(());
    }
    Err(Violation(format!(
        "the fence of lock {lock} did not rise: {fence} came after {highest}, so that a late write would not be refused"
    )))
}

/// What must not be.
#[derive(Debug)]
pub struct Violation(pub String);

impl Violation {
    fn together(lock: usize) -> Violation {
        Violation(format!("two clients were inside lock {lock} at the same time"))
    }

    fn unseen(error: &dyn std::fmt::Display) -> Violation {
        Violation(format!("exclusivity could not be watched: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes are two of these with one folder: each opens the files for itself, as flock(2) wants it.
    fn two(folder: &Path) -> [Oracle; 2] {
        [Oracle::new(Some(folder), 2), Oracle::new(Some(folder), 2)]
    }

    #[test]
    fn two_inside_are_caught() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = two(folder.path());
        one.enter(0, Some(1)).unwrap();
        assert!(other.enter(0, Some(2)).unwrap_err().0.contains("two clients were inside lock 0"));
        other.enter(1, Some(1)).unwrap();
        // Also two clients of one process, who share a file.
        assert!(one.enter(0, Some(3)).unwrap_err().0.contains("two clients"));
        let alone = Oracle::new(None, 1);
        alone.enter(0, None).unwrap();
        assert!(alone.enter(0, None).unwrap_err().0.contains("two clients"));
    }

    #[test]
    fn one_after_the_other_is_right() {
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
    fn a_fence_that_does_not_rise_is_caught() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = two(folder.path());
        one.enter(0, Some(7)).unwrap();
        one.exit(0).unwrap();
        assert!(other.enter(0, Some(7)).unwrap_err().0.contains("7 came after 7"));
        let alone = Oracle::new(None, 1);
        alone.enter(0, Some(7)).unwrap();
        alone.exit(0).unwrap();
        assert!(alone.enter(0, Some(6)).unwrap_err().0.contains("6 came after 7"));
    }
}
