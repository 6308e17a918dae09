//! The FIFO of an entry: it shows whether the owner is alive, notifies watchers of its death, and wakes it. See the
//! parent module.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW);

/// Creates a FIFO and opens it as its owner. Fails with `EXIST` if the name is in use.
pub(super) fn create(live: BorrowedFd<'_>, id: &str) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mknodat(live, id, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // Opened for reading and writing: a reader alone would see a hang-up each time a watcher closes its end.
    rustix::fs::openat(live, id, FLAGS | OFlags::RDWR, Mode::empty())
}

/// Opens the write end if the owner is alive. It reports an error when the owner closes its end or dies.
pub(super) fn watch(live: BorrowedFd<'_>, id: &str) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(live, id, FLAGS | OFlags::WRONLY, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NXIO | Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Wakes the owner. The write may fail: a dead owner need not be woken, and an owner whose pipe is full is already
/// going to wake.
pub(super) fn wake(live: BorrowedFd<'_>, id: &str) {
    if let Ok(Some(fd)) = watch(live, id) {
        let _ = rustix::io::write(&fd, b"!");
    }
}

/// Registers a descriptor with the runtime's reactor.
#[expect(
    deprecated,
    reason = "its successor is `unsafe` for the sake of types that lie about their descriptor; \
                               an OwnedFd keeps the promise that it asks for"
)]
pub(super) fn register(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Resolves when the watched owner is gone.
pub(super) async fn gone(write_end: OwnedFd) -> std::io::Result<()> {
    let fd = register(write_end, Interest::ERROR)?;
    let _ = fd.ready(Interest::ERROR).await?;
    Ok(())
}

/// Resolves when the process behind a pidfd has ended.
pub(super) async fn ended(pidfd: OwnedFd) -> std::io::Result<()> {
    let fd = register(pidfd, Interest::READABLE)?;
    let _ = fd.readable().await?;
    Ok(())
}

/// Resolves when another process has woken this one since the last call.
pub(super) async fn woken(own: &AsyncFd<OwnedFd>) -> std::io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        let mut ready = own.readable().await?;
        match rustix::io::read(own.get_ref(), &mut bytes) {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
