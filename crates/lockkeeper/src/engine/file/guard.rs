//! The guard: flock(2) on a file of the directory, held during each change.

use super::store::{Edit, Store};
use crate::{Error, Result};
use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The number of attempts to lock the guard before blocking. The guard is held so briefly that retrying is mostly
/// faster.
const SPINS: usize = 32;

impl Store {
    /// Locks the guard: retries a few times, then waits on a blocking thread so that this one stays free.
    pub async fn edit(&self) -> Result<Edit<'_>> {
        loop {
            let guard = self.open_guard()?;
            let locked = lock_or_block(guard).await.map_err(|e| self.guard_error(e))?;
            if let Some(edit) = self.edit_under(locked)? {
                return Ok(edit);
            }
        }
    }

    /// Locks the guard if it is free.
    pub fn try_edit(&self) -> Result<Option<Edit<'_>>> {
        loop {
            let locked = match lock(self.open_guard()?, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                other => other.map_err(|e| self.guard_error(e.into()))?,
            };
            if let Some(edit) = self.edit_under(locked)? {
                return Ok(Some(edit));
            }
        }
    }

    pub(super) fn edit_blocking(&self) -> Result<Edit<'_>> {
        loop {
            let locked = lock(self.open_guard()?, FlockOperation::LockExclusive);
            if let Some(edit) = self.edit_under(locked.map_err(|e| self.guard_error(e.into()))?)? {
                return Ok(edit);
            }
        }
    }

    /// The edit under a locked guard; `None` if that file was removed, so that other processes lock another one.
    fn edit_under(&self, guard: OwnedFd) -> Result<Option<Edit<'_>>> {
        let links = fs::fstat(&guard).map_err(|e| self.guard_error(e.into()))?.st_nlink;
        Ok((links > 0).then(|| Edit { store: self, guard: Some(guard) }))
    }

    fn guard_error(&self, e: std::io::Error) -> Error {
        Error::io("lock", self.files.path("guard"), e)
    }

    /// An open guard file that no other edit uses, since flock(2) also has to exclude the tasks of one process. That of
    /// an earlier edit is used again, but not by a forked process, which shares it with its parent.
    fn open_guard(&self) -> Result<OwnedFd> {
        let idle = self.idle_guard.lock().ok().and_then(|mut idle| idle.take());
        match idle.filter(|_| self.me.pid == std::process::id()) {
            Some(guard) => Ok(guard),
            None => {
                let opened = self.files.open_at("guard", OFlags::RDWR | OFlags::CREATE);
                opened.map_err(|e| Error::io("write in", &self.files.path, e))
            }
        }
    }
}

impl Drop for Edit<'_> {
    /// Unlocks the guard, and keeps it open for the next edit.
    fn drop(&mut self) {
        let unlocked = self.guard.take().filter(|guard| fs::flock(guard, FlockOperation::Unlock).is_ok());
        if let (Some(guard), Ok(mut idle)) = (unlocked, self.store.idle_guard.lock()) {
            *idle = Some(guard);
        }
    }
}

async fn lock_or_block(guard: OwnedFd) -> std::io::Result<OwnedFd> {
    for _ in 0..SPINS {
        match fs::flock(&guard, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(guard),
            Err(Errno::WOULDBLOCK | Errno::INTR) => tokio::task::yield_now().await,
            Err(e) => return Err(e.into()),
        }
    }
    let locked = tokio::task::spawn_blocking(move || lock(guard, FlockOperation::LockExclusive)).await;
    Ok(locked.map_err(std::io::Error::other)??)
}

fn lock(guard: OwnedFd, how: FlockOperation) -> rustix::io::Result<OwnedFd> {
    loop {
        match fs::flock(&guard, how) {
            Err(Errno::INTR) => {}
            other => return other.map(|()| guard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_of_one_process_exclude_each_other_also_with_a_guard_that_was_used_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        drop(store.try_edit().unwrap().unwrap());
        let edit = store.try_edit().unwrap().unwrap();
        assert!(store.try_edit().unwrap().is_none());
        drop(edit);
        assert!(store.try_edit().unwrap().is_some());
    }

    #[test]
    fn a_guard_file_that_was_removed_is_not_locked_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, other) = (Store::open(dir.path()).unwrap(), Store::open(dir.path()).unwrap());
        drop(store.try_edit().unwrap().unwrap());
        std::fs::remove_file(dir.path().join("guard")).unwrap();
        let edit = other.try_edit().unwrap().unwrap();
        assert!(store.try_edit().unwrap().is_none(), "it would exclude no other process");
        drop(edit);
        assert!(store.try_edit().unwrap().is_some());
    }
}
