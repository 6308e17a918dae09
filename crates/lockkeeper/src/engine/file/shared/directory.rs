//! The directory of the engine for several users: its checks, the file of locks, and the fence.

use super::ranges::{RangeLock, TryLock};
use crate::diagnose::{Finding, Severity};
use crate::engine::file::{diagnose, directory};
use crate::info::LockMode;
use crate::{Error, Result};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file whose byte ranges are locked, and the file of the last fence.
const FILES: [&str; 2] = ["locks", "fences"];

/// Above this number no fence is issued: the time in microseconds takes 146,000 years to get there. A user who writes a
/// higher one stops the grants; no other user's fence falls.
const LAST: u64 = 1 << 62;

/// The time limit for the file of the last fence, which each grant locks for some microseconds.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The bits of a mode for reading and writing that its group has, and those of other users.
const GROUP: u32 = 0o060;
const OTHERS: u32 = 0o006;

/// An open directory.
pub(super) struct SharedDirectory {
    path: PathBuf,
    fd: OwnedFd,
    /// The mode of the directory, and its group.
    stat: Stat,
}

impl SharedDirectory {
    pub fn open(path: &Path) -> Result<SharedDirectory> {
        let (path, fd) = directory::open_shared(path)?;
        let stat = fs::fstat(&fd).map_err(|e| Error::io("look at", &path, e))?;
        let directory = SharedDirectory { path, fd, stat };
        for name in FILES {
            directory.open_file(name)?;
        }
        Ok(directory)
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A new open file description of the file of locks.
    pub fn open_locks(&self) -> Result<OwnedFd> {
        self.open_file(FILES[0])
    }

    /// Gives a new file the directory's group, and those of the rights `mode` that the directory gives its users.
    pub fn open_to_users(&self, file: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
        let owner = Mode::RUSR | Mode::WUSR;
        // A user who may read a file can lock it. So other users have no rights unless they may use the directory.
        let others = if self.stat.st_mode & 0o002 != 0 { OTHERS } else { 0 };
        let directory = Mode::from_raw_mode(self.stat.st_mode & (GROUP | others));
        let group = rustix::fs::Gid::from_raw(self.stat.st_gid);
        // Members of the group may set it; for others, the directory is open anyway.
        let _ = fs::fchown(file, None, Some(group));
        fs::fchmod(file, owner | (mode & directory))
    }

    /// Opens one of the two files, for which no other user's file is accepted. The owner of the directory creates it.
    fn open_file(&self, name: &str) -> Result<OwnedFd> {
        // Without CREATE: `fs.protected_regular` refuses it for files of others.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if self.stat.st_uid == geteuid().as_raw() => self.create_file(name, flags),
            other => other,
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                return Err(self.unsafe_because(format!(
                    "it has no file `{name}`; user {} creates it by any use of the directory, such as `lockkeeper \
                     locks`, and systemd-tmpfiles at the boot",
                    self.stat.st_uid
                )));
            }
            Err(e) => return Err(Error::io("open", self.path(name), e)),
        };
        let stat = fs::fstat(&fd).map_err(|e| Error::io("look at", self.path(name), e))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_nlink != 1 || stat.st_uid != self.stat.st_uid {
            return Err(self.unsafe_because(format!(
                "`{name}` is not a regular file with one name that belongs to user {}, the owner of the directory; its \
                 owner could replace it while locks are held. Remove it",
                self.stat.st_uid
            )));
        }
        Ok(fd)
    }

    fn create_file(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        match fs::openat(&self.fd, name, new, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                let all = Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
                self.open_to_users(&fd, all).map(|()| fd)
            }
            // Another process of this user was faster.
            Err(Errno::EXIST) => fs::openat(&self.fd, name, flags, Mode::empty()),
            Err(e) => Err(e),
        }
    }

    fn unsafe_because(&self, reason: String) -> Error {
        Error::UnsafeDirectory { path: self.path.clone(), reason }
    }

    /// Draws a fence above all earlier ones. Called AFTER the lock was granted.
    pub async fn next_fence(&self) -> Result<u64> {
        let path = || self.path(FILES[1]);
        let mut lock = RangeLock::whole(self.open_file(FILES[1])?);
        let start = Instant::now();
        while lock.attempt(LockMode::Exclusive).map_err(|e| Error::io("lock", path(), e))? == TryLock::Busy {
            if start.elapsed() > FENCE_TIMEOUT {
                let reason = format!("another process has locked {} for {FENCE_TIMEOUT:?}", path().display());
                return Err(Error::unavailable(super::NAME, reason));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let fd = lock.fd();
        let mut bytes = [0; 8];
        let last = match rustix::io::pread(fd, &mut bytes, 0).map_err(|e| Error::io("read", path(), e))? {
            8 => u64::from_le_bytes(bytes),
            _ => 0,
        };
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let fence = last.saturating_add(1).max(micros);
        if fence > LAST {
            return Err(Error::Damaged {
                path: path(),
                reason: "its number is far above every fence; a user of the directory has written it. Empty the file: \
                         fences then continue at the time in microseconds"
                    .into(),
            });
        }
        match rustix::io::pwrite(fd, &fence.to_le_bytes(), 0) {
            Ok(8) => Ok(fence),
            Ok(_) => Err(Error::io("write", path(), Errno::NOSPC)),
            Err(e) => Err(Error::io("write", path(), e)),
        }
    }

    /// The findings about the directory.
    pub fn diagnose(&self) -> Result<Vec<Finding>> {
        let stat =
            fs::fstatvfs(&self.fd).map_err(|e| Error::io("look at the file system of", &self.path, e))?;
        let mut findings: Vec<Finding> = diagnose::room(&stat).into_iter().collect();
        let users = match self.stat.st_mode & 0o002 {
            0 => format!("the members of group {}", self.stat.st_gid),
            _ => "all users of this machine".into(),
        };
        findings.push(Finding::new(
            Severity::Note,
            "users",
            format!("{users} can hold any of these locks for any time; none of them can take a lock from its holder"),
            "make a directory for each group of users who trust each other",
        ));
        Ok(findings)
    }
}
