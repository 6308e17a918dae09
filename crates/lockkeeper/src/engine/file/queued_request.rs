//! One acquisition, from the request to the release: an entry in a queue, and its FIFO.

use super::queue::{Entry, Key, Queue};
use super::store::{Edit, Store};
use super::{detached, live};
use crate::engine::{BoxFuture, Detach, Hold, Request, WhenBusy};
use crate::info::lock_type;
use crate::{Error, Result};
use lockkeeper_system::lease_clock;
use rustix::io::FdFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::Interest;

/// An entry in a queue. Dropping it removes the entry: when its FIFO closes, all other processes consider it dead,
/// unless it is detached.
pub(super) struct QueuedRequest {
    store: Arc<Store>,
    key: Key,
    name: String,
    id: String,
    /// The owner's end of the FIFO; taken when the entry leaves the queue.
    fifo: Option<OwnedFd>,
    /// Whether the entry stays in the queue until its deadline.
    detached: bool,
}

/// The result of reading the queue.
enum QueuePosition {
    Granted(u64),
    Wait(Vec<super::store::Watch>),
}

impl QueuedRequest {
    /// Joins the queue; with [`WhenBusy::Try`] only if the lock is granted at once. The fence is `Some` if it is
    /// granted.
    pub async fn enter(
        store: &Arc<Store>,
        request: Request,
        when_busy: WhenBusy,
    ) -> Result<Option<(QueuedRequest, Option<u64>)>> {
        let edit = store.edit().await?;
        let (key, name) = (Key::of(&request.name), request.name.to_string());
        let mut queue = edit.load(&key, &name)?;
        check_mode(&edit, &mut queue, &request)?;
        let (id, fifo) = new_fifo(&edit, &queue)?;
        let request_entry =
            QueuedRequest { store: store.clone(), key, name, id, fifo: Some(fifo), detached: false };
        queue.entries.push(Entry {
            id: request_entry.id.clone(),
            mode: request.mode,
            tag: request.tag,
            owner: store.me,
            pid_namespace: store.pid_namespace.clone(),
            held: None,
            child: None,
            detached: None,
        });
        let mut granted = edit.settle_with(&mut queue, Some(&request_entry.id))?;
        let fence = queue.entries.last().and_then(|mine| mine.held).map(|held| held.fence);
        if !granted.is_empty() {
            granted.extend(queue.first_waiter().map(str::to_owned));
            granted.retain(|id| *id != request_entry.id);
        }
        let published = match (fence, when_busy) {
            (None, WhenBusy::Try) => Ok(None),
            // Our entry is the last in the queue, so it has no watchers yet, but settling may have granted other
            // entries.
            _ => edit.publish(&request_entry.key, &queue, &granted).map(|()| Some(())),
        };
        match published {
            Ok(Some(())) => Ok(Some((request_entry, fence))),
            not_in_queue => {
                request_entry.discard(&edit);
                not_in_queue.map(|_| None)
            }
        }
    }

    /// Discards a request that was never in a published queue.
    fn discard(mut self, edit: &Edit<'_>) {
        self.fifo = None;
        edit.remove_fifo(&self.id);
    }

    /// Waits for the grant, and returns the fence.
    pub async fn granted(&self) -> Result<u64> {
        loop {
            let watches = match self.look().await? {
                QueuePosition::Granted(fence) => return Ok(fence),
                QueuePosition::Wait(watches) => watches,
            };
            self.until_changed(watches).await.map_err(|e| self.io("wait for", e))?;
        }
    }

    async fn look(&self) -> Result<QueuePosition> {
        let edit = self.store.edit().await?;
        let before = edit.load(&self.key, &self.name)?;
        // The usual case: the previous holder has granted the lock to us on its release.
        if let Some(held) = before.position(&self.id).and_then(|i| before.entries[i].held) {
            return Ok(QueuePosition::Granted(held.fence));
        }
        let mut queue = before.clone();
        let mut wake = edit.settle(&mut queue)?;
        let position_of = self.position_of(&edit, &mut queue, &mut wake)?;
        if queue != before {
            wake.extend(queue.first_waiter().map(str::to_owned));
            wake.retain(|id| *id != self.id);
            edit.publish(&self.key, &queue, &wake)?;
        }
        Ok(position_of)
    }

    /// Our fence, or the entries to watch until we get one. Removes dead entries that we would watch.
    fn position_of(
        &self,
        edit: &Edit<'_>,
        queue: &mut Queue,
        wake: &mut Vec<String>,
    ) -> Result<QueuePosition> {
        'again: loop {
            let Some(i) = queue.position(&self.id) else {
                let reason = "its entry was removed from the queue".into();
                return Err(Error::SessionLost { engine: "file", name: self.name.clone(), reason });
            };
            if let Some(held) = queue.entries[i].held {
                return Ok(QueuePosition::Granted(held.fence));
            }
            let mut watches = Vec::new();
            for w in queue.watched_by(i) {
                match edit.store.watch(&queue.entries[w])? {
                    Some(watch) => watches.push(watch),
                    None => {
                        edit.remove_fifo(&queue.entries.remove(w).id);
                        wake.extend(edit.settle(queue)?);
                        continue 'again;
                    }
                }
            }
            return Ok(QueuePosition::Wait(watches));
        }
    }

    async fn until_changed(&self, watches: Vec<super::store::Watch>) -> std::io::Result<()> {
        let Some(own) = &self.fifo else { return Ok(()) };
        let own = live::register(own.try_clone()?, Interest::READABLE)?;
        let mut fired: Vec<_> = watches.into_iter().map(|watch| Box::pin(watch.fired())).collect();
        let any_fired = std::future::poll_fn(|cx| {
            let ready = fired.iter_mut().map(|watch| watch.as_mut().poll(cx)).find(|poll| poll.is_ready());
            ready.unwrap_or(std::task::Poll::Pending)
        });
        tokio::select! {
            woken = live::woken(&own) => woken,
            fired = any_fired => fired,
        }
    }

    /// Removes the entry from the queue and grants the next one; or, if it `stays` until its deadline, leaves it there.
    fn leave(&mut self, edit: &Edit<'_>, stays: bool) -> Result<()> {
        let mut queue = edit.load(&self.key, &self.name)?;
        let now_ns = lease_clock::now_ns();
        let published = match queue.position(&self.id) {
            None => Ok(()),
            Some(i) => match &queue.entries[i].detached {
                Some(record) if stays && record.left(now_ns).is_some() => {
                    // This process continues, and does not count any more.
                    queue.entries[i].child = None;
                    let wake: Vec<String> = queue.watchers_of(i).map(str::to_owned).collect();
                    edit.publish(&self.key, &queue, &wake)
                }
                _ => edit.remove(&self.key, &mut queue, i),
            },
        };
        edit.remove_fifo(&self.id);
        self.fifo = None;
        published
    }

    /// Leaves the queue for good, and waits for the guard.
    async fn end(mut self: Box<Self>, stays: bool) -> Result<()> {
        let store = self.store.clone();
        let edit = store.edit().await?;
        // If the queue cannot be written (a full disk), closing the FIFO has released the lock all the same.
        self.leave(&edit, stays).or_else(|e| if matches!(e, Error::Io { .. }) { Ok(()) } else { Err(e) })
    }

    fn io(&self, action: &'static str, e: std::io::Error) -> Error {
        Error::io(action, self.store.files.path("live").join(&self.id), e)
    }
}

/// Rejects a name that is in use as another type of lock. Dead entries do not count.
fn check_mode(edit: &Edit<'_>, queue: &mut Queue, request: &Request) -> Result<()> {
    while let Some(i) = queue.entries.iter().position(|entry| !entry.mode.same_lock_as(request.mode)) {
        if edit.alive(&queue.entries[i])? {
            return Err(Error::KindMismatch {
                name: request.name.to_string(),
                used_as: lock_type(queue.entries[i].mode),
                asked_as: lock_type(request.mode),
            });
        }
        queue.entries.remove(i);
    }
    Ok(())
}

/// Creates a FIFO with a unique name; process ids repeat across namespaces and over time.
fn new_fifo(edit: &Edit<'_>, queue: &Queue) -> Result<(String, OwnedFd)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let (me, n) = (edit.store.me, COUNT.fetch_add(1, Ordering::Relaxed));
        let id = format!("{}-{}-{n}", me.pid, me.started);
        // A detached hold of an earlier process may be in the queue without a FIFO.
        if queue.position(&id).is_some() {
            continue;
        }
        match live::create(edit.store.live.as_fd(), &id) {
            Ok(fifo) => return Ok((id, fifo)),
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(Error::io("make", edit.store.files.path("live").join(&id), e)),
        }
    }
}

impl Drop for QueuedRequest {
    /// Removes the entry if the guard is free; otherwise closing the FIFO is enough.
    fn drop(&mut self) {
        if self.fifo.is_none() {
            return;
        }
        let store = self.store.clone();
        if let Ok(Some(edit)) = store.try_edit() {
            let _ = self.leave(&edit, self.detached);
        } else {
            let _ = rustix::fs::unlinkat(&store.live, &self.id, rustix::fs::AtFlags::empty());
        }
    }
}

impl Hold for QueuedRequest {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(true))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(false))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let edit = self.store.edit().await?;
            let detached = detached::detach(&edit, &self.key, &self.name, &self.id, detach)?;
            self.detached = detached;
            Ok(detached)
        })
    }

    fn before_spawn(&self) -> Result<()> {
        self.set_inherited(true)
    }

    fn after_spawn(&self, child: Option<u32>) -> BoxFuture<'_, Result<()>> {
        let child = child.map(super::process::Process::child);
        Box::pin(async move {
            self.set_inherited(false)?;
            if child.is_none() {
                return Ok(());
            }
            let edit = self.store.edit().await?;
            let mut queue = edit.load(&self.key, &self.name)?;
            let Some(i) = queue.position(&self.id) else { return Ok(()) };
            queue.entries[i].child = child;
            // Watchers of this entry must now watch the processes instead of the FIFO.
            let wake: Vec<String> = queue.watchers_of(i).map(str::to_owned).collect();
            edit.publish(&self.key, &queue, &wake)
        })
    }
}

impl QueuedRequest {
    fn set_inherited(&self, inherited: bool) -> Result<()> {
        let Some(fifo) = &self.fifo else { return Ok(()) };
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        rustix::io::fcntl_setfd(fifo, flags).map_err(|e| self.io("pass on", e.into()))
    }
}
