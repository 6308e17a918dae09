//! The `file` engine: locks between the processes of one machine, without a server.
//!
//! # The directory
//!
//! ```text
//! DIR/            mode 0700, owned by this user or root, on a local file system
//!   guard         empty; a process holds flock(2) on it during each change, for some tens of microseconds
//!   boot          the id of the boot in which this state was written
//!   fence         the last fence issued in this boot, with a checksum
//!   ceiling       no fence above this one was ever issued; replaced durably every 1000 fences
//!   locks/KEY     the queue of one lock, holders first, as JSON; absent when the queue is empty. With detached holds
//!                 it has another form, and is replaced durably
//!   live/ID       a FIFO for each queue entry, held open by the entry's owner
//! ```
//!
//! # One primitive: the FIFO of an entry
//!
//! The owner of an entry keeps its FIFO open for reading (and writing, so that it never sees end-of-file). The kernel
//! then lets every other process, without a thread and without polling,
//!
//! - **check whether the owner is alive**: a non-blocking open for writing fails with `ENXIO` if it is not;
//! - **be notified of its death**: the open write end becomes `POLLERR` when the last reader is gone, whether the
//!   owner released the lock, dropped its guard, or was killed with `kill -9`;
//! - **wake exactly this owner**: by writing a byte.
//!
//! # The queue
//!
//! An entry may hold the lock if no live entry ahead of it conflicts: strictly first come, first served. Every change
//! happens under the guard and ends with [`queue::Queue::settle`], which removes dead entries at the front and grants
//! the entries that may now hold. A waiter watches the entry right ahead of it, as in the queue lock of Craig, Landin
//! and Hagersten (CLH). The first waiter for a semaphore watches every holder, since any of them may make room.
//!
//! *No waiter is forgotten.* An entry ahead goes away in one of two ways. If its owner dies or closes the FIFO, the
//! kernel notifies the watcher. If another process edits the queue and removes the entry, the editor wakes the entry
//! behind it and all entries that it granted. The editor writes the wake-up bytes BEFORE it publishes the queue (by
//! `rename`), while it holds the guard. So a woken waiter first waits for the guard and then sees the new queue. If
//! the editor was killed in between, the waiter sees the old queue and settles it itself.
//!
//! *A process killed during an edit*: the kernel releases the guard. The queue is the old or the new one, since
//! `rename` is atomic. A FIFO that no queue names is removed later.
//!
//! *Dropping* a guard or a waiting future only has to close the FIFO: that cannot block or fail.
//!
//! # The fence
//!
//! There is one counter for the directory, so an idle lock has no state at all. Under the guard, in this order: raise
//! `ceiling` if needed (write a temporary file, fsync, rename, fsync the directory), write `fence`, publish the
//! grant.
//!
//! - *Killed in between*: a fence is skipped. A torn `fence` fails its checksum, and counting continues from
//!   `ceiling`.
//! - *Power failure*: the page cache is lost; `fence` may be old, torn or empty. `boot` does not match the new boot,
//!   so counting continues from `ceiling`, which was durable before any fence below it was used. All entries of the
//!   old boot are dead and are removed, torn or not, except detached holds, which are never torn: see [`detached`].
//! - *Full disk*: the write fails, and the acquire with it; nothing was granted. A release needs no space.
//! - *`ceiling` unreadable or missing*: an error. A guess could repeat a fence.
//!
//! # Child processes
//!
//! For a hold with a child ([`crate::Guard::spawn`]), the child inherits the FIFO, so that a killed parent never
//! looks dead while its child runs. Once the process id and start time of the child are in the queue, the two
//! processes decide instead of the FIFO: the entry is alive while the owner or the child runs. A daemon that the
//! child left behind, with the FIFO still open, does not keep the lock. Process ids are valid only within one pid
//! namespace; across namespaces the FIFO decides.
//!
//! # Limitations
//!
//! Network file systems are rejected, as a FIFO works on one machine only. A process that is stopped (`SIGSTOP`) in
//! the microseconds in which it holds the guard blocks the whole directory until it continues. Restoring an old
//! snapshot of the disk also restores an old fence.

mod changes;
mod counter;
mod detached;
mod diagnose;
mod directory;
#[cfg(test)]
mod golden;
mod guard;
mod live;
mod process;
mod queue;
mod queued_request;
pub(crate) mod shared;
mod store;

pub(crate) use directory::default_directory;

use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, DetachedState, Engine, Request, WhenBusy, catalogue,
};
use crate::info::LockInfo;
use crate::lease::Lease;
use crate::{Fence, LockName, Result};
use lockkeeper_system::lease_clock;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The engine of `file:` URLs.
pub(crate) struct FileEngine {
    store: Arc<store::Store>,
}

impl FileEngine {
    /// Opens the directory, and creates it if it is missing.
    pub fn open(directory: &Path) -> Result<FileEngine> {
        Ok(FileEngine { store: Arc::new(store::Store::open(directory)?) })
    }
}

impl Engine for FileEngine {
    fn name(&self) -> &'static str {
        "file"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::FILE
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let Some((request_entry, fence)) =
                queued_request::QueuedRequest::enter(&self.store, request, when_busy).await?
            else {
                return Ok(None);
            };
            let fence = match fence {
                Some(fence) => fence,
                None => request_entry.granted().await?,
            };
            let (fence, lease) = (Fence::new(fence), Lease::forever());
            Ok(Some(Acquired { fence, lease, ttl: None, hold: Box::new(request_entry) }))
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let edit = self.store.edit().await?;
            let queue = edit.tidy(&queue::Key::of(name), name.as_str())?;
            Ok(queue.info(lease_clock::now_ns()))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            let edit = self.store.edit().await?;
            edit.sweep_live()?;
            let mut all = Vec::new();
            for key in edit.keys()? {
                let queue = edit.tidy(&key, "")?;
                if !queue.entries.is_empty() {
                    all.push(queue.info(lease_clock::now_ns()));
                }
            }
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        let key = name.map(queue::Key::of);
        Box::pin(async move {
            let changes = changes::FileChanges::watch(&self.store, key)?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(detached::find(&self.store, name, owner, lasts))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { diagnose::directory(&self.store.files) })
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(detached::release(&self.store, name, owner))
    }
}
