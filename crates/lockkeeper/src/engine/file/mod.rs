//! `file`: locks among the processes of one machine, without a server.
//!
//! # The directory
//!
//! ```text
//! DIR/            mode 0700, ours or root's, on a local file system
//!   guard         empty; whoever changes anything holds flock(2) on it, for some tens of microseconds
//!   boot          the boot in which this state was written
//!   fence         the last fence handed out in this boot, with a checksum
//!   ceiling       no fence above this one was ever handed out; replaced durably every 1000 fences
//!   locks/KEY     the queue of one lock, holders first, as JSON; absent when nobody wants the lock
//!   live/ID       a FIFO per queue entry, held open by the entry's owner
//! ```
//!
//! # One primitive: the FIFO of an entry
//!
//! The owner of an entry keeps its FIFO open for reading (and writing, so that it never sees end-of-file).
//! Everybody else can then, with the kernel's word and no thread and no polling,
//!
//! - **ask whether the owner lives**: opening it for writing without blocking fails with `ENXIO` if not;
//! - **be told when it dies**: the open write end becomes `POLLERR` when the last reader is gone, whether
//!   the owner released, dropped its guard, or was killed -9;
//! - **wake exactly this one**: by writing a byte.
//!
//! # The queue
//!
//! An entry may hold if no live entry ahead of it conflicts: strictly first come, first served. Every change
//! happens under the guard and ends with [`queue::Queue::settle`], which drops dead entries at the front
//! and grants whatever may now hold. A waiter watches the entry right ahead of it, as in Craig's and Landin and Hagersten's queue lock
//! (CLH); the first waiter for a semaphore watches every holder, since any of them may make room.
//!
//! *Nobody is forgotten.* An entry ahead goes away in two ways. Its owner dies or closes: the kernel tells
//! the one that watches it. Somebody edits it out: the editor wakes the one behind it and all that it granted.
//! The editor writes those bytes BEFORE it publishes the queue (by `rename`) and still holds the guard, so a
//! woken waiter first waits for the guard and then sees the new queue; if the editor was killed in
//! between, the waiter sees the old queue and settles it itself.
//!
//! *Killed in the middle of an edit*: the kernel drops the guard; the queue is the old or the new one,
//! since `rename` is atomic; a FIFO that no queue names is swept away later.
//!
//! *Dropping* a guard or a waiting future only has to close the FIFO: that cannot block or fail.
//!
//! # The fence
//!
//! One counter for the directory, so an idle lock keeps no state at all. Under the guard, in this order: raise
//! `ceiling` if needed (write aside, fsync, rename, fsync the directory), write `fence`, publish the grant.
//!
//! - *Killed in between*: a fence is skipped. A torn `fence` fails its checksum and counting goes on from `ceiling`.
//! - *Power cut*: the page cache is gone, `fence` may be old, torn or empty. `boot` does not name the new
//!   boot, so counting goes on from `ceiling`, which was durable before any fence below it was used.
//!   All entries of the old boot are dead and are swept away, torn or not.
//! - *Full disk*: the write fails, and the acquire with it; nothing was granted. Release needs no space.
//! - *`ceiling` unreadable or gone*: an error. A guess could repeat a fence.
//!
//! # Children
//!
//! For a hold with a child ([`crate::Guard::spawn`]) the FIFO is inherited by the child, so there is no
//! moment in which a killed parent looks dead while its child runs. As soon as the child's process id and
//! start time are in the queue, these two processes decide instead of the FIFO: the entry lives while the owner or the child
//! lives, and a daemon that the child left behind, with the FIFO still open, keeps nothing. Ids count only within one pid
//! namespace; across namespaces the FIFO decides.
//!
//! # What it does not do
//!
//! Network file systems are refused: a FIFO ends at the machine. A process stopped (`SIGSTOP`) in
//! the microseconds in which it has the guard stops the whole directory until it goes on. Rolling the disk back
//! to an old snapshot rolls the fence back.

mod changes;
mod claim;
mod counter;
mod directory;
mod live;
mod process;
mod queue;
mod store;

pub(crate) use directory::default_directory;

use crate::engine::{Acquired, BoxFuture, Capabilities, Changes, Engine, Patience, Request};
use crate::info::LockInfo;
use crate::lease::Lease;
use crate::{Fence, LockName, Result};
use std::path::Path;
use std::sync::Arc;

/// The engine of `file:` URLs.
pub(crate) struct FileEngine {
    store: Arc<store::Store>,
}

impl FileEngine {
    /// Opens the directory, and makes it if needed.
    pub fn open(directory: &Path) -> Result<FileEngine> {
        Ok(FileEngine { store: Arc::new(store::Store::open(directory)?) })
    }
}

impl Engine for FileEngine {
    fn name(&self) -> &'static str {
        "file"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fence: true,
            fifo: true,
            shared: true,
            semaphore: true,
            waiters: true,
            election: true,
            expires: false,
        }
    }

    fn acquire(&self, request: Request, patience: Patience) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let Some((claim, fence)) = claim::Claim::enter(&self.store, request, patience).await? else {
                return Ok(None);
            };
            let fence = match fence {
                Some(fence) => fence,
                None => claim.granted().await?,
            };
            let (fence, lease) = (Fence::new(fence), Lease::forever());
            Ok(Some(Acquired { fence, lease, ttl: None, hold: Box::new(claim) }))
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let edit = self.store.edit().await?;
            let queue = edit.tidy(&queue::Key::of(name), name.as_str())?;
            Ok(queue.info())
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
                    all.push(queue.info());
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
}
