//! One acquisition: its node, and its position in the queue.

use super::detached;
use super::ensemble::{Ensemble, Session, is_passing, is_session_end, retry, unavailable};
use super::nodes::{self, LockNode};
use super::own_node::{DeletionWatch, find, remove, renew};
use crate::engine::request_queue::{
    DetachedRecord, RequestQueue, RequestRecord, WatchedChange, mode_mismatch,
};
use crate::engine::{Acquired, BoxFuture, Detach, Hold, Request, WhenBusy};
use crate::info::{LockMode, now_ms};
use crate::lease::{self, Lease, LeaseTime, Renewal};
use crate::{Error, Fence, LockName, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use zookeeper_client::{CheckWriteError, Client, CreateMode, Error as ZkError, EventType};

/// A node, and the obligation to remove it. Dropping this value removes the node in the background.
struct QueueNode {
    ensemble: Arc<Ensemble>,
    session: Arc<Session>,
    lock: LockNode,
    name: LockName,
    mode: LockMode,
    /// The name of our node without its sequence number. It is unique to this acquisition.
    prefix: String,
    /// The full name of our node, once it is known.
    own: Option<String>,
    lease: Lease,
    renewal: Option<Renewal>,
    deletion_watch: Option<DeletionWatch>,
    /// The runtime on which `drop` spawns the removal.
    runtime: Handle,
    given_up: bool,
    /// Set when the lock is granted: the zxid of our node, and its record.
    granted: Option<(i64, RequestRecord)>,
    stored: Stored,
}

/// The persistent node of a detached hold.
#[derive(Clone, Default)]
struct Stored {
    /// The path of the node, if it was requested.
    path: Option<String>,
    /// The deadline, once the node exists.
    ends: Option<LeaseTime>,
}

/// The queue as it was read.
struct Seen {
    /// The type of the lock.
    lock: LockMode,
    queue: RequestQueue,
    /// The first deadline of a detached hold.
    next_end: Option<LeaseTime>,
}

/// Acquires a lock by the recipe in the parent module.
pub(super) async fn acquire(
    ensemble: &Arc<Ensemble>,
    request: Request,
    when_busy: WhenBusy,
) -> Result<Option<Acquired>> {
    let (name, mode, tag) = (request.name.to_string(), request.mode, request.tag);
    let record = RequestRecord { name, mode, tag, held_ms: None, detached: None };
    // Reject a record that is too long BEFORE anything is sent.
    let json = record.to_json()?;
    let session = ensemble.session(request.ttl).await?;
    let mut node = QueueNode {
        ensemble: ensemble.clone(),
        lock: ensemble.root.of(&request.name),
        name: request.name,
        mode: request.mode,
        prefix: nodes::prefix(record.mode, &record.tag.holder),
        own: None,
        // The first request in the session renews it.
        lease: Lease::expiring(lease::now(), session.believed),
        renewal: None,
        deletion_watch: None,
        runtime: Handle::current(),
        // No request has been sent yet, so there is no node to remove.
        given_up: true,
        granted: None,
        stored: Stored::default(),
        session,
    };
    if when_busy == WhenBusy::Try && !node.current_queue().await?.has_room_for(node.mode) {
        return Ok(None);
    }
    let (zxid, seen) = node.join_queue(&json).await?;
    node.keep_session();
    let queue = &seen.queue;
    if when_busy == WhenBusy::Try && !node.position(queue).is_some_and(|i| queue.may_hold(i)) {
        Box::new(node).release().await?;
        return Ok(None);
    }
    node.enter(zxid, seen, record).await.map(Some)
}

impl QueueNode {
    fn client(&self) -> &Client {
        &self.session.client
    }

    /// The current queue; an error if the name is in use as another type of lock.
    async fn current_queue(&self) -> Result<RequestQueue> {
        let Seen { lock, queue, .. } = self.read_queue().await?;
        match lock.same_lock_as(self.mode) || queue.requests().is_empty() {
            true => Ok(queue),
            false => Err(mode_mismatch(&self.name, lock, self.mode)),
        }
    }

    /// Reads the queue, and removes detached holds whose deadline has passed.
    async fn read_queue(&self) -> Result<Seen> {
        let path = self.lock.path();
        let ask = || {
            let (data, children) = (self.client().get_data(path), self.client().list_children(path));
            async { Ok((data.await?.0, children.await?)) }
        };
        let none = || Seen { lock: self.mode, queue: RequestQueue::default(), next_end: None };
        let (data, children) = match self.leased(ask).await? {
            Err(ZkError::NoNode) => return Ok(none()),
            answer => answer.map_err(|e| self.ensemble.refused(&e))?,
        };
        let names: Vec<&String> = children.iter().filter(|child| nodes::is_detached(child)).collect();
        let live = self.leased(|| detached::live(self.client(), &self.lock, &data, &names)).await?;
        let live = live.map_err(|e| self.ensemble.refused(&e))?;
        let next_end = live.iter().map(|hold| hold.ends).min();
        let seen = nodes::lock_mode(&data).and_then(|lock| {
            let queue = nodes::queue(lock, &children, &live)?;
            Some(Seen { lock, queue, next_end })
        });
        seen.ok_or_else(|| {
            unavailable(format!(
                "the node {path} or one below it is not Lockkeeper's; delete it or use another path"
            ))
        })
    }

    /// Creates our node under a lock's node of the right type. Returns its zxid, and the queue that contains it.
    async fn join_queue(&mut self, json: &[u8]) -> Result<(i64, Seen)> {
        loop {
            let zxid = self.create(json).await?;
            let seen = self.read_queue().await?;
            let (lock, queue) = (seen.lock, &seen.queue);
            if lock.same_lock_as(self.mode) {
                return Ok((zxid, seen));
            }
            // The lock's node is of another type. It is either a leftover of an idle lock, or in use.
            self.remove().await?;
            self.given_up = true;
            let alone = queue.requests().iter().all(|request| Some(&request.id) == self.own.as_ref());
            self.own = None;
            if !alone {
                return Err(mode_mismatch(&self.name, lock, self.mode));
            }
            // This fails if another request was queued in the meantime, which the next round detects.
            let _ = self.leased(|| self.client().delete(self.lock.path(), None)).await?;
        }
    }

    /// Creates our node exactly once, even if the connection breaks repeatedly.
    async fn create(&mut self, json: &[u8]) -> Result<i64> {
        let path = self.lock.child(&self.prefix);
        let options = self.ensemble.options(CreateMode::EphemeralSequential);
        self.given_up = false;
        loop {
            let create = async { Ok(self.client().create(&path, json, &options).await) };
            match self.while_leased(create).await? {
                Ok((stat, number)) => {
                    self.own = Some(format!("{}{number}", self.prefix));
                    return Ok(stat.czxid);
                }
                Err(ZkError::NoNode) => self.make_lock_node().await?,
                Err(error) if is_passing(&error) => {
                    // The node may have been created, and only the reply lost.
                    if let Some(zxid) = self.find_own().await? {
                        return Ok(zxid);
                    }
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    async fn find_own(&mut self) -> Result<Option<i64>> {
        let found = self.leased(|| find(self.client(), &self.lock, &self.prefix)).await?;
        let Some(name) = found.map_err(|e| self.failed(&e))? else { return Ok(None) };
        let path = self.lock.child(&name);
        let stat = self.leased(|| self.client().check_stat(&path)).await?.map_err(|e| self.failed(&e))?;
        self.own = Some(name);
        match stat {
            Some(stat) => Ok(Some(stat.czxid)),
            None => Err(self.session_lost("its node is gone")),
        }
    }

    async fn make_lock_node(&self) -> Result<()> {
        let options = self.ensemble.options(CreateMode::Container);
        let mode = nodes::lock_data(self.mode);
        let make = || self.client().create(self.lock.path(), mode.as_bytes(), &options);
        match self.leased(make).await? {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(ZkError::NoNode) => self.ensemble.make_root().await,
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Starts the renewal of the session and the watch on our node.
    fn keep_session(&mut self) {
        let (session, own) = (self.session.clone(), self.own_path());
        let own_name = self.own.as_deref().unwrap_or_default();
        let watch = DeletionWatch::start(
            session.clone(),
            self.lock.clone(),
            self.lease.clone(),
            &self.prefix,
            own_name,
        );
        self.deletion_watch = Some(watch);
        let believed = session.believed;
        self.renewal = Some(lease::keep_renewed(self.lease.clone(), believed, move || {
            let (session, own) = (session.clone(), own.clone());
            async move { renew(&session.client, &own).await }
        }));
    }

    /// Waits for the grant, and makes sure that our node still exists then.
    async fn enter(mut self, zxid: i64, mut seen: Seen, mut record: RequestRecord) -> Result<Acquired> {
        let mut waited = false;
        loop {
            let queue = &seen.queue;
            let Some(i) = self.position(queue) else { return Err(self.session_lost("its node is gone")) };
            match queue.watched_by(i) {
                Some(watched) if !queue.may_hold(i) => {
                    waited = true;
                    tokio::select! {
                        changed = self.until_change(watched) => changed?,
                        () = until(seen.next_end) => {}
                    }
                }
                _ => break,
            }
            seen = self.read_queue().await?;
        }
        if waited {
            record.held_ms = Some(now_ms());
            let (own, json) = (self.own_path(), record.to_json()?);
            // A write goes through the leader, which makes it the check at the moment of entry.
            match self.leased(|| self.client().set_data(&own, &json, None)).await? {
                Ok(_) => {}
                Err(ZkError::NoNode) => return Err(self.session_lost("its node is gone")),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        if !self.lease.is_valid() {
            return Err(self.session_lost(&self.lease.lost().await.to_string()));
        }
        self.granted = Some((zxid, record));
        let (fence, lease) = (Fence::new(zxid.unsigned_abs()), self.lease.clone());
        let ttl = Some(self.session.believed);
        Ok(Acquired { fence, lease, ttl, hold: Box::new(self) })
    }

    /// Resolves when the watched change happened, or may have happened: the caller reads the queue again.
    async fn until_change(&self, watched: WatchedChange<'_>) -> Result<()> {
        let (request, entering_counts) = match watched {
            WatchedChange::AnyLeaves(requests) => {
                let gone =
                    |children: &[String]| requests.iter().any(|request| !children.contains(&request.id));
                return self.children_change(gone).await;
            }
            WatchedChange::Leaves(request) => (request, false),
            WatchedChange::LeavesOrEnters(request) => (request, true),
        };
        let path = self.lock.child(&request.id);
        // The watch does not report a write since the queue was read: compare the version before waiting.
        let mut version = 0;
        loop {
            let asked = self.leased(|| self.client().check_and_watch_stat(&path)).await?;
            let (Some(stat), watcher) = asked.map_err(|e| self.failed(&e))? else { return Ok(()) };
            if entering_counts && stat.version > version {
                return Ok(());
            }
            version = stat.version;
            let event = self.while_leased(async { Ok(watcher.changed().await) }).await?;
            match event.event_type {
                // A detached hold has a new deadline.
                EventType::NodeDataChanged if nodes::is_detached(&request.id) => return Ok(()),
                EventType::NodeDataChanged if !entering_counts => {}
                _ => return Ok(()),
            }
        }
    }

    /// Resolves when the children of the lock's node satisfy a condition.
    async fn children_change(&self, condition: impl Fn(&[String]) -> bool) -> Result<()> {
        loop {
            let path = self.lock.path();
            let (children, watcher) =
                match self.leased(|| self.client().list_and_watch_children(path)).await? {
                    Err(ZkError::NoNode) => return Ok(()),
                    answer => answer.map_err(|e| self.failed(&e))?,
                };
            if condition(&children) {
                return Ok(());
            }
            let event = self.while_leased(async { Ok(watcher.changed().await) }).await?;
            if event.event_type == EventType::Session {
                return Ok(());
            }
        }
    }

    /// Removes our node. Returns true if this call did, false if it was already gone.
    async fn remove(&self) -> Result<bool> {
        let end = timeout_of(&self.session);
        let removed =
            tokio::time::timeout(end, remove(self.client(), &self.lock, &self.prefix, &self.own)).await;
        match removed {
            Ok(Ok(by_us)) => Ok(by_us),
            Ok(Err(error)) if is_session_end(&error) => Ok(false),
            Ok(Err(error)) => Err(self.ensemble.refused(&error)),
            Err(_) => Err(unavailable("no answer to the release; the session's end will release the lock")),
        }
    }

    fn position(&self, queue: &RequestQueue) -> Option<usize> {
        queue.position(self.own.as_deref()?)
    }

    fn own_path(&self) -> String {
        self.lock.child(self.own.as_deref().unwrap_or_default())
    }

    /// Sends a request that is pointless once the lease is lost, and repeats it if the connection breaks.
    async fn leased<T, F>(&self, call: impl FnMut() -> F) -> Result<Result<T, ZkError>>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        self.while_leased(async { Ok(retry(call).await) }).await
    }

    async fn while_leased<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            loss = self.lease.lost() => Err(self.session_lost(&loss.to_string())),
            result = work => result,
        }
    }

    fn failed(&self, error: &ZkError) -> Error {
        match is_session_end(error) {
            true => self.session_lost(&error.to_string()),
            false => self.ensemble.refused(error),
        }
    }

    fn session_lost(&self, reason: &str) -> Error {
        Error::SessionLost { engine: "zookeeper", name: self.name.to_string(), reason: reason.into() }
    }
}

impl QueueNode {
    /// Creates the persistent node: see [`super::detached`].
    async fn detach(&mut self, detach: Detach) -> Result<bool> {
        let Some((zxid, mut record)) = self.granted.clone() else { return Ok(false) };
        // A hold of the same owner whose deadline has passed does not count.
        self.read_queue().await?;
        record.detached = Some(DetachedRecord::new(&detach, zxid.unsigned_abs()));
        let (json, own) = (record.to_json()?, self.own_path());
        let path = self.lock.child(&nodes::detached(self.mode, &detach.owner));
        let options = self.ensemble.options(CreateMode::Persistent);
        // BEFORE the first request, so that `drop` removes it.
        self.stored.path = Some(path.clone());
        loop {
            let create = || {
                let mut writer = self.client().new_check_writer(&own, None)?;
                writer.add_create(&path, &json, &options)?;
                Ok::<_, ZkError>(writer.commit())
            };
            let commit = create().map_err(|e| self.failed(&e))?;
            let error = match self.while_leased(async { Ok(commit.await) }).await? {
                Ok(_) => break,
                Err(CheckWriteError::CheckFailed { .. }) => return Err(self.session_lost("its node is gone")),
                Err(error) => ZkError::from(error),
            };
            match error {
                ZkError::NodeExists => {
                    // The first of two requests, whose reply was lost, may have created it.
                    let is_ours = self.leased(|| detached::is_of(self.client(), &path, &record.tag.holder));
                    if is_ours.await?.map_err(|e| self.failed(&e))? {
                        break;
                    }
                    self.stored.path = None;
                    return Ok(false);
                }
                error if is_passing(&error) => {}
                error => return Err(self.failed(&error)),
            }
        }
        self.stored.ends = Some(lease::now().plus(detach.lasts));
        Ok(true)
    }

    /// The persistent node to remove at the end of the hold, beside the ephemeral one: its path and holder. `None` if
    /// the hold stays until its deadline.
    fn stored_to_remove(&mut self) -> Option<(String, String)> {
        let Stored { path, ends } = std::mem::take(&mut self.stored);
        let stays = ends.is_some_and(|ends| ends.left().is_some());
        let holder = self.granted.as_ref().map(|(_, record)| record.tag.holder.clone());
        path.filter(|_| !stays).zip(holder)
    }

    async fn end(mut self: Box<Self>, stays: bool) -> Result<()> {
        self.renewal = None;
        self.deletion_watch = None;
        if !stays {
            self.stored.ends = None;
        }
        let reason = if !self.lease.is_valid() {
            // No confirmation to wait for: `drop` does the rest.
            self.lease.lost().await
        } else {
            if let Some((path, holder)) = self.stored_to_remove() {
                let removed = self.leased(|| detached::remove(self.client(), &path, &holder)).await?;
                removed.map_err(|e| self.failed(&e))?;
            }
            let removed = self.remove().await?;
            self.given_up = true;
            if removed {
                return Ok(());
            }
            "its node or session had ended before the release".into()
        };
        Err(Error::Lost { name: self.name.to_string(), reason })
    }
}

/// Resolves at a reading of the lease clock; never without one.
async fn until(time: Option<LeaseTime>) {
    match time {
        Some(time) => lease::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Hold for QueueNode {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(true))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(false))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(QueueNode::detach(self, detach))
    }
}

impl Drop for QueueNode {
    /// Removes the node in the background while the session lasts. If the runtime is gone, the session is not kept
    /// alive either, and its end removes the node. A detached hold stays until its deadline.
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        let stored = self.stored_to_remove();
        let (session, lock) = (self.session.clone(), self.lock.clone());
        let (prefix, own) = (std::mem::take(&mut self.prefix), self.own.take());
        self.runtime.spawn(async move {
            if let Some((path, holder)) = stored {
                detached::remove(&session.client, &path, &holder).await?;
            }
            remove(&session.client, &lock, &prefix, &own).await
        });
    }
}

fn timeout_of(session: &Session) -> Duration {
    session.client.session_timeout()
}
