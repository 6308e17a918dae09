//! The `file` engine for several users: `file:///run/lock/lockkeeper?shared`.
//!
//! # The directory
//!
//! ```text
//! DIR/        owned by root, mode 1777 or 1770: its users create files, and cannot remove or rename those of others
//!   locks     empty, owned by root, mode 0666 or 0660; a hold is a lock on a range of its bytes
//!   fences    the last fence, with the same owner and mode
//!   h-ID      the record of a hold, owned and locked by its holder: for display
//! ```
//!
//! # A hold is a lock of the kernel
//!
//! A name has a range of [`ranges::PERMITS_MAX`] bytes of `locks`, at a position that is a hash of the name, far beyond
//! the end of the file. A mutex is a write lock on the range, a shared hold a read lock, and a permit a write lock on one
//! byte of it. The locks belong to an open file description (OFD), so that they end with the last process that has it
//! open: the holder, or a child that works under the hold.
//!
//! So exclusion depends on no data that another user could change. Two names with the same hash exclude each other,
//! which is safe; the hash has 50 bits.
//!
//! # What other users can do
//!
//! As with flock(1) on a file that others can open:
//!
//! - They can hold any lock for any time, all of them at once, and fill the file system. No lock is then granted, and none
//!   is granted twice.
//! - They can truncate or overwrite `locks`, which has no effect, and `fences`. A fence is at least the time in
//!   microseconds, so that it rises in spite of that, unless a user first sets the number far into the future and then
//!   back: **fences protect against paused holders, not against hostile users of the same directory**.
//! - They can write records that name holders which do not exist. The record's owner is shown as `user`.
//!
//! They cannot remove, rename or replace `locks`: the directory is sticky, and the file is root's. Symbolic links, hard
//! links, FIFOs and files of others in its place are refused.
//!
//! # Waiting
//!
//! The kernel notifies waiters (inotify) when a descriptor of `locks` is closed. A killed process closes its descriptors
//! just before its locks end, so a waiter tries again some times, and at least once per second. Waiters have no order.
//!
//! # The fence
//!
//! The last fence plus one, or the time in microseconds if that is more, so that fences rise although /run is empty after
//! a boot.

mod directory;
#[cfg(test)]
mod golden;
mod ranges;
mod records;

use self::directory::SharedDirectory;
use self::ranges::{RangeLock, TryLock};
use self::records::{Record, RecordFile};
use super::live;
use crate::diagnose::Finding;
use crate::engine::{Acquired, BoxFuture, Capabilities, Changes, Engine, Hold, Request, WhenBusy, catalogue};
use crate::info::{LockInfo, LockMode, lock_type};
use crate::lease::Lease;
use crate::{Error, Fence, LockName, Result};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::FdFlags;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The name of the engine.
const NAME: &str = "shared-file";

/// The longest time between two attempts of a waiter.
const LOOK: Duration = Duration::from_secs(1);

/// The first pause after an attempt. It doubles up to [`LOOK`]: the lock of a killed process ends shortly after the
/// notification.
const PAUSE: Duration = Duration::from_millis(1);

/// The engine of `file:` URLs with `?shared`.
pub(crate) struct SharedFileEngine {
    directory: Arc<SharedDirectory>,
}

impl SharedFileEngine {
    /// Opens the directory, which exists.
    pub fn open(path: &Path) -> Result<SharedFileEngine> {
        Ok(SharedFileEngine { directory: Arc::new(SharedDirectory::open(path)?) })
    }

    async fn acquire_one(&self, request: Request, when_busy: WhenBusy) -> Result<Option<Acquired>> {
        if let LockMode::Permit { of } = request.mode
            && of > ranges::PERMITS_MAX
        {
            let most = ranges::PERMITS_MAX;
            return Err(Error::BadOption(format!("{of} permits: at most {most} are possible with {NAME}")));
        }
        self.check_mode(&request)?;
        let mut lock = RangeLock::new(self.directory.open_locks()?, &request.name);
        // The watch begins BEFORE the attempt, so that no release is missed.
        let watch = match when_busy {
            WhenBusy::Wait => Some(Watch::start(&self.directory, WatchFlags::CLOSE)?),
            WhenBusy::Try => None,
        };
        let mut pause = PAUSE;
        while self.locked(lock.attempt(request.mode))? == TryLock::Busy {
            let Some(watch) = &watch else { return Ok(None) };
            tokio::select! {
                changed = watch.changed() => {
                    changed?;
                    pause = PAUSE;
                }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK),
            }
        }
        let fence = self.directory.next_fence().await?;
        let Request { name, mode, tag, .. } = request;
        let record = RecordFile::create(&self.directory, &Record::new(name.as_str(), mode, tag, fence))?;
        let hold = Box::new(SharedHold { record, lock });
        let (fence, lease) = (Fence::new(fence), Lease::forever());
        Ok(Some(Acquired { fence, lease, ttl: None, hold }))
    }

    fn locked<T>(&self, attempt: std::io::Result<T>) -> Result<T> {
        attempt.map_err(|e| Error::io("lock", self.directory.path("locks"), e))
    }

    /// Rejects a name that is held as another type of lock.
    fn check_mode(&self, request: &Request) -> Result<()> {
        let other = records::read_all(&self.directory)?
            .into_iter()
            .find(|record| record.name == request.name.as_str() && !record.mode.same_lock_as(request.mode));
        match other {
            None => Ok(()),
            Some(record) => Err(Error::KindMismatch {
                name: record.name,
                used_as: lock_type(record.mode),
                asked_as: lock_type(request.mode),
            }),
        }
    }
}

impl Engine for SharedFileEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::SHARED_FILE
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(self.acquire_one(request, when_busy))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let none = LockInfo { name: name.to_string(), holders: Vec::new(), waiters: Vec::new() };
            let records = records::read_all(&self.directory)?;
            let found = records::by_lock(records).into_iter().find(|lock| lock.name == name.as_str());
            Ok(found.unwrap_or(none))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async { records::read_all(&self.directory).map(records::by_lock) })
    }

    fn changes<'a>(&'a self, _name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async {
            let watch = Watch::start(&self.directory, WatchFlags::CLOSE | WatchFlags::MODIFY)?;
            Ok(Box::new(watch) as Box<dyn Changes>)
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { self.directory.diagnose() })
    }
}

/// A hold: its record and its lock. The record is removed BEFORE the lock ends, so that the next holder does not find it.
struct SharedHold {
    record: RecordFile,
    lock: RangeLock,
}

impl SharedHold {
    fn set_inherited(&self, inherited: bool) -> Result<()> {
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        for fd in [self.lock.fd(), self.record.fd()] {
            rustix::io::fcntl_setfd(fd, flags).map_err(|e| Error::io("pass on", self.record.path(), e))?;
        }
        Ok(())
    }
}

impl Hold for SharedHold {
    /// Dropping it does everything, and cannot block.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            drop(self);
            Ok(())
        })
    }

    fn before_spawn(&self) -> Result<()> {
        self.set_inherited(true)
    }

    fn after_spawn(&self, _child: Option<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.set_inherited(false) })
    }
}

/// A watch on `locks`: each release closes a descriptor of it, and each grant has written to `fences`.
struct Watch {
    inotify: AsyncFd<OwnedFd>,
    directory: Arc<SharedDirectory>,
}

impl Watch {
    fn start(directory: &Arc<SharedDirectory>, flags: WatchFlags) -> Result<Watch> {
        let open = || -> std::io::Result<AsyncFd<OwnedFd>> {
            let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&fd, directory.path("locks"), flags)?;
            if flags.contains(WatchFlags::MODIFY) {
                inotify::add_watch(&fd, directory.path("fences"), WatchFlags::MODIFY)?;
            }
            live::register(fd, Interest::READABLE)
        };
        let inotify = open().map_err(|e| Error::io("watch", directory.path("locks"), e))?;
        Ok(Watch { inotify, directory: directory.clone() })
    }

    async fn changed(&self) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("watch", self.directory.path("locks"), e);
        let mut ready = self.inotify.readable().await.map_err(failed)?;
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(self.inotify.get_ref(), &mut buffer) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(e) => return Err(failed(e.into())),
            }
        }
        ready.clear_ready();
        Ok(())
    }
}

impl Changes for Watch {
    /// Resolves at least once per [`LOOK`]: the record of a killed process ends shortly after the notification.
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            tokio::select! {
                changed = self.changed() => changed,
                () = tokio::time::sleep(LOOK) => Ok(()),
            }
        })
    }
}
