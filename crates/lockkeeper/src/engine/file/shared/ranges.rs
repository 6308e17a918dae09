//! Locks on ranges of bytes of one file: see the parent module.

use crate::LockName;
use crate::engine::file::queue::fnv128;
use crate::info::LockMode;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::os::fd::OwnedFd;

/// The most permits of a semaphore, and the length of the range of a name.
pub(super) const PERMITS_MAX: u32 = 1 << RANGE_BITS;
const RANGE_BITS: u32 = 12;

/// The bits of a name's hash. Positions have 62 bits, so that the end of each range fits a signed number.
const HASH_BITS: u32 = 62 - RANGE_BITS;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryLock {
    Locked,
    Busy,
}

/// The first byte of the range of a name.
fn position(name: &str) -> i64 {
    let hash = fnv128(name.as_bytes());
    // Folded, so that every bit of the long hash counts.
    let folded = (hash ^ (hash >> 64)) as u64 >> (64 - HASH_BITS);
    (folded << RANGE_BITS) as i64
}

/// A lock on the range of a name, or a part of it, held by an open file description of its own.
pub(super) struct RangeLock {
    fd: OwnedFd,
    start: i64,
}

impl RangeLock {
    /// Prepares a lock on the range of a name.
    pub fn new(fd: OwnedFd, name: &LockName) -> RangeLock {
        RangeLock { fd, start: position(name.as_str()) }
    }

    /// Prepares a lock on the whole file.
    pub fn whole(fd: OwnedFd) -> RangeLock {
        RangeLock { fd, start: 0 }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Locks the range in a mode, if that is possible now.
    pub fn attempt(&mut self, mode: LockMode) -> std::io::Result<TryLock> {
        let whole = i64::from(PERMITS_MAX);
        match mode {
            LockMode::Exclusive => self.set(libc::F_WRLCK, self.start, whole),
            LockMode::Shared => self.set(libc::F_RDLCK, self.start, whole),
            LockMode::Permit { of } => {
                for permit in 0..i64::from(of.min(PERMITS_MAX)) {
                    if self.set(libc::F_WRLCK, self.start + permit, 1)? == TryLock::Locked {
                        return Ok(TryLock::Locked);
                    }
                }
                Ok(TryLock::Busy)
            }
        }
    }

    /// Locks or unlocks `length` bytes; 0 bytes are all up to the largest position.
    fn set(&self, kind: i32, start: i64, length: i64) -> std::io::Result<TryLock> {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            // 0 for locks of open file descriptions.
            l_pid: 0,
        };
        loop {
            match fcntl(&self.fd, FcntlArg::F_OFD_SETLK(&lock)) {
                Ok(_) => return Ok(TryLock::Locked),
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => return Ok(TryLock::Busy),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Drop for RangeLock {
    /// Unlocks BEFORE the descriptor is closed, which notifies the waiters. A child that has inherited the descriptor
    /// does not hold the lock any more.
    fn drop(&mut self) {
        let _ = self.set(libc::F_UNLCK, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    fn lock(path: &std::path::Path, name: &str) -> RangeLock {
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap();
        RangeLock::new(fd, &LockName::new(name).unwrap())
    }

    #[test]
    fn modes_exclude_each_other_as_one_lock_per_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let new = |name: &str| lock(file.path(), name);
        let (mut writer, mut other, mut elsewhere) = (new("a"), new("a"), new("b"));
        assert_eq!(writer.attempt(LockMode::Exclusive).unwrap(), TryLock::Locked);
        for mode in [LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 3 }] {
            assert_eq!(other.attempt(mode).unwrap(), TryLock::Busy, "{mode}");
        }
        assert_eq!(elsewhere.attempt(LockMode::Exclusive).unwrap(), TryLock::Locked);
        drop(writer);
        let mut second = new("a");
        assert_eq!(other.attempt(LockMode::Shared).unwrap(), TryLock::Locked);
        assert_eq!(second.attempt(LockMode::Shared).unwrap(), TryLock::Locked);
        assert_eq!(new("a").attempt(LockMode::Exclusive).unwrap(), TryLock::Busy);
        drop((other, second));
        let mut permits: Vec<RangeLock> = (0..4).map(|_| new("a")).collect();
        let granted: Vec<TryLock> =
            permits.iter_mut().map(|permit| permit.attempt(LockMode::Permit { of: 3 }).unwrap()).collect();
        assert_eq!(granted, [TryLock::Locked, TryLock::Locked, TryLock::Locked, TryLock::Busy]);
    }

    /// Programs of different versions must lock the same bytes.
    #[test]
    fn the_position_of_a_name_does_not_change() {
        for (name, expected) in [("a", 0x2aae780648540000), ("orders/42", 0x20fca6fea79c6000)] {
            assert_eq!(position(name), expected, "{name}: {:#x}", position(name));
            assert_eq!(position(name) % i64::from(PERMITS_MAX), 0);
        }
        assert!(position(&"x".repeat(512)) > 0);
    }
}
