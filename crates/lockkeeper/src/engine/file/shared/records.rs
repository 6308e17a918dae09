//! Records of holds, one file each: for display. Every user can write records; the owner of the file is shown.

use super::directory::SharedDirectory;
use crate::info::{LockInfo, LockMode, Participant, Tag, now_ms};
use crate::{Error, Fence, LockName, Result};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest record that is read. Other users can write longer files.
const BYTES_MAX: usize = 64 * 1024;

/// The limit on the bytes of all records together: a user can write any number of them.
const ALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The beginning of the name of a record.
const PREFIX: &str = "h-";

/// A hold, as its holder describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub name: String,
    pub mode: LockMode,
    pub tag: Tag,
    pub fence: u64,
    pub since_ms: u64,
}

impl Record {
    pub fn new(name: &str, mode: LockMode, tag: Tag, fence: u64) -> Record {
        Record { name: name.into(), mode, tag, fence, since_ms: now_ms() }
    }
}

/// The file of a record, locked while the hold lasts, and removed with it.
pub(super) struct RecordFile {
    directory: Arc<SharedDirectory>,
    name: String,
    fd: OwnedFd,
}

impl RecordFile {
    /// Writes and locks a file, and then gives it its name: a record is complete and locked when others see it.
    pub fn create(directory: &Arc<SharedDirectory>, record: &Record) -> Result<RecordFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let bytes = serde_json::to_vec(record).map_err(|e| Error::BadOption(format!("the metadata: {e}")))?;
        if bytes.len() > BYTES_MAX {
            let length = bytes.len();
            return Err(Error::BadOption(format!(
                "the metadata makes a record of {length} bytes; at most {BYTES_MAX} are allowed"
            )));
        }
        loop {
            let (pid, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            // The time distinguishes processes of different pid namespaces, and earlier ones.
            let id = format!("{pid}-{:x}-{n}", record.since_ms);
            let (hidden, name) = (format!(".{PREFIX}{id}"), format!("{PREFIX}{id}"));
            let failed = |e: Errno| Error::io("write", directory.path(&name), e);
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match fs::openat(directory.fd(), &hidden, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => fd,
                Err(Errno::EXIST) => continue,
                Err(e) => return Err(failed(e)),
            };
            let written = directory
                .open_to_users(&fd, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)
                .and_then(|()| fs::flock(&fd, FlockOperation::NonBlockingLockExclusive))
                .and_then(|()| write_all(&fd, &bytes))
                .and_then(|()| {
                    fs::renameat_with(directory.fd(), &hidden, directory.fd(), &name, RenameFlags::NOREPLACE)
                });
            match written {
                Ok(()) => return Ok(RecordFile { directory: directory.clone(), name, fd }),
                Err(e) => {
                    let _ = fs::unlinkat(directory.fd(), &hidden, AtFlags::empty());
                    if e != Errno::EXIST {
                        return Err(failed(e));
                    }
                }
            }
        }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path(&self.name)
    }
}

impl Drop for RecordFile {
    /// Best effort: a record whose holder is gone is not shown.
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.directory.fd(), &self.name, AtFlags::empty());
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The records of holds that exist, up to a limit that only a hostile user reaches. Records of killed processes are
/// removed if they are this user's.
pub(super) fn read_all(directory: &SharedDirectory) -> Result<Vec<Record>> {
    let failed = |e: Errno| Error::io("list", directory.path(""), e);
    let mut records = Vec::new();
    let mut bytes = 0;
    let entries = fs::Dir::read_from(directory.fd()).map_err(failed)?;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with(PREFIX)
            && let Some((record, length)) = read(directory, name)
        {
            records.push(record);
            bytes += length;
        }
        if bytes > ALL_BYTES_MAX {
            break;
        }
    }
    Ok(records)
}

/// Reads one record, and returns its length too; `None` if the file is not the record of an existing hold.
fn read(directory: &SharedDirectory, name: &str) -> Option<(Record, usize)> {
    // A FIFO would block the open without this flag.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = fs::openat(directory.fd(), name, flags, Mode::empty()).ok()?;
    let stat = fs::fstat(&fd).ok()?;
    // Other names of one record would multiply it.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || stat.st_nlink != 1
        || stat.st_size as usize > BYTES_MAX
    {
        return None;
    }
    match fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {}
        // Its holder is gone. In a sticky directory, only its user and root can remove it.
        Ok(()) => {
            let _ = fs::unlinkat(directory.fd(), name, AtFlags::empty());
            return None;
        }
        Err(_) => return None,
    }
    let mut bytes = vec![0; BYTES_MAX];
    let mut length = 0;
    while length < bytes.len() {
        match rustix::io::read(&fd, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let mut record: Record = serde_json::from_slice(&bytes[..length]).ok()?;
    LockName::new(record.name.as_str()).ok()?;
    // The owner of the file, which the kernel reports and the writer of a record cannot choose.
    record.tag.metadata.insert("user".into(), stat.st_uid.to_string());
    Some((record, length))
}

/// Groups records by lock, ordered by name; the holders of a lock by fence.
pub(super) fn by_lock(mut records: Vec<Record>) -> Vec<LockInfo> {
    records.sort_by_key(|record| record.fence);
    let mut locks: BTreeMap<String, Vec<Participant>> = BTreeMap::new();
    for Record { name, mode, tag, fence, since_ms } in records {
        let participant = Participant { tag, mode, since_ms, fence: Fence::new(fence), detached: None };
        locks.entry(name).or_default().push(participant);
    }
    let info = |(name, holders)| LockInfo { name, holders, waiters: Vec::new() };
    locks.into_iter().map(info).collect()
}
