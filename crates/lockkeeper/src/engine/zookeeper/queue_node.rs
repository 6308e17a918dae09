//! One acquisition: its node, and its position in the queue.

use super::ensemble::{Ensemble, Session, fresh_children, is_passing, is_session_end, retry, unavailable};
use super::nodes::{self, LockNode};
use crate::engine::request_queue::{RequestQueue, RequestRecord, WatchedChange, mode_mismatch};
use crate::engine::{Acquired, BoxFuture, Hold, Request, WhenBusy};
use crate::info::{LockMode, now_ms};
use crate::lease::{self, Lease, NotRenewed, Renewal};
use crate::{Error, Fence, LockName, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use zookeeper_client::{Client, CreateMode, Error as ZkError, EventType};

/// A node, and the obligation to remove it. Dropping the claim removes the node in the background.
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
}

/// Acquires a lock by the recipe in the parent module.
pub(super) async fn acquire(
    ensemble: &Arc<Ensemble>,
    request: Request,
    when_busy: WhenBusy,
) -> Result<Option<Acquired>> {
    let record =
        RequestRecord { name: request.name.to_string(), mode: request.mode, tag: request.tag, held_ms: None };
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
        session,
    };
    if when_busy == WhenBusy::Try && !node.current_queue().await?.has_room_for(node.mode) {
        return Ok(None);
    }
    let (zxid, queue) = node.join_queue(&json).await?;
    node.keep_session();
    if when_busy == WhenBusy::Try && !node.position(&queue).is_some_and(|i| queue.may_hold(i)) {
        Box::new(node).release().await?;
        return Ok(None);
    }
    node.enter(zxid, queue, record).await.map(Some)
}

impl QueueNode {
    fn client(&self) -> &Client {
        &self.session.client
    }

    /// The current queue; an error if the name is in use as another type of lock.
    async fn current_queue(&self) -> Result<RequestQueue> {
        let (lock, queue) = self.read_queue().await?;
        match lock.same_lock_as(self.mode) || queue.requests().is_empty() {
            true => Ok(queue),
            false => Err(mode_mismatch(&self.name, lock, self.mode)),
        }
    }

    /// The type of the lock, and its queue.
    async fn read_queue(&self) -> Result<(LockMode, RequestQueue)> {
        let path = self.lock.path();
        let ask = || {
            let (data, children) = (self.client().get_data(path), self.client().list_children(path));
            async { Ok((data.await?.0, children.await?)) }
        };
        let (data, children) = match self.leased(ask).await? {
            Err(ZkError::NoNode) => return Ok((self.mode, RequestQueue::default())),
            answer => answer.map_err(|e| self.ensemble.refused(&e))?,
        };
        let seen = nodes::lock_mode(&data).and_then(|lock| Some((lock, nodes::queue(lock, &children)?)));
        seen.ok_or_else(|| {
            unavailable(format!(
                "the node {path} or one below it is not Lockkeeper's; delete it or use another path"
            ))
        })
    }

    /// Creates our node under a lock's node of the right type. Returns its zxid, and the queue that contains it.
    async fn join_queue(&mut self, json: &[u8]) -> Result<(i64, RequestQueue)> {
        loop {
            let zxid = self.create(json).await?;
            let (lock, queue) = self.read_queue().await?;
            if lock.same_lock_as(self.mode) {
                return Ok((zxid, queue));
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
        self.deletion_watch = Some(DeletionWatch::start(self));
        let believed = session.believed;
        self.renewal = Some(lease::keep_renewed(self.lease.clone(), believed, move || {
            let (session, own) = (session.clone(), own.clone());
            async move { renew(&session.client, &own).await }
        }));
    }

    /// Waits for the grant, and makes sure that our node still exists then.
    async fn enter(self, zxid: i64, mut queue: RequestQueue, mut record: RequestRecord) -> Result<Acquired> {
        let mut waited = false;
        loop {
            let Some(i) = self.position(&queue) else { return Err(self.session_lost("its node is gone")) };
            match queue.watched_by(i) {
                Some(watched) if !queue.may_hold(i) => {
                    waited = true;
                    self.until_change(watched).await?;
                }
                _ => break,
            }
            queue = self.read_queue().await?.1;
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
            return Err(self.session_lost(&self.lease.lost().await));
        }
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
            reason = self.lease.lost() => Err(self.session_lost(&reason)),
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

impl Hold for QueueNode {
    fn release(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.renewal = None;
            self.deletion_watch = None;
            let reason = if !self.lease.is_valid() {
                // No confirmation to wait for: `drop` does the rest.
                self.lease.lost().await
            } else if self.remove().await? {
                self.given_up = true;
                return Ok(());
            } else {
                self.given_up = true;
                "its node or session had ended before the release".into()
            };
            Err(Error::Lost { name: self.name.to_string(), reason })
        })
    }
}

impl Drop for QueueNode {
    /// Removes the node in the background while the session lasts. If the runtime is gone, the session is not kept
    /// alive either, and its end removes the node.
    fn drop(&mut self) {
        if !self.given_up {
            let (session, lock) = (self.session.clone(), self.lock.clone());
            let (prefix, own) = (std::mem::take(&mut self.prefix), self.own.take());
            self.runtime.spawn(async move { remove(&session.client, &lock, &prefix, &own).await });
        }
    }
}

fn timeout_of(session: &Session) -> Duration {
    session.client.session_timeout()
}

/// The name of the child that begins with `prefix`.
async fn find(client: &Client, lock: &LockNode, prefix: &str) -> Result<Option<String>, ZkError> {
    match fresh_children(client, lock.path()).await {
        Err(ZkError::NoNode) => Ok(None),
        children => Ok(children?.into_iter().find(|child| child.starts_with(prefix))),
    }
}

/// Removes a node, whether its name is known or not. Returns true if this call did, false if it did not exist.
async fn remove(
    client: &Client,
    lock: &LockNode,
    prefix: &str,
    own: &Option<String>,
) -> Result<bool, ZkError> {
    // Requests of a session are executed in order: a creation without a reply so far is executed before this.
    let name = match own {
        Some(name) => name.clone(),
        None => match retry(|| find(client, lock, prefix)).await? {
            Some(name) => name,
            None => return Ok(false),
        },
    };
    let path = lock.child(&name);
    let mut asked = false;
    let delete = || {
        let again = std::mem::replace(&mut asked, true);
        let deleted = client.delete(&path, None);
        async move {
            match deleted.await {
                Ok(()) => Ok(true),
                // In a repeated request: the first one may have been executed.
                Err(ZkError::NoNode) => Ok(again),
                Err(error) => Err(error),
            }
        }
    };
    retry(delete).await
}

/// Sends one renewal. The parent module explains why a ping is not enough.
async fn renew(client: &Client, own: &str) -> Result<(), NotRenewed> {
    let (synced, stat) = (client.sync(own), client.check_stat(own));
    let seen = async {
        synced.await?;
        stat.await
    };
    match seen.await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(NotRenewed::Gone("its node is gone".into())),
        Err(error) if is_session_end(&error) => Err(NotRenewed::Gone(error.to_string())),
        Err(_) => Err(NotRenewed::TryAgain),
    }
}

/// A task that watches our own node, so that its deletion by another client or the end of the session is noticed at
/// once. It also removes the node of a hold that is lost and not yet dropped, since the session may continue.
struct DeletionWatch(tokio::task::AbortHandle);

impl DeletionWatch {
    fn start(node: &QueueNode) -> DeletionWatch {
        let (session, lock, lease) = (node.session.clone(), node.lock.clone(), node.lease.clone());
        let (prefix, own, path) = (node.prefix.clone(), node.own.clone(), node.own_path());
        let task = tokio::spawn(async move {
            tokio::select! {
                reason = until_gone(&session.client, &path) => lease.lose(reason),
                _ = lease.lost() => {
                    // The holder was promised this time to stop.
                    tokio::time::sleep(lease.valid_for()).await;
                    let _ = remove(&session.client, &lock, &prefix, &own).await;
                }
            }
        });
        DeletionWatch(task.abort_handle())
    }
}

/// Resolves with the reason when the node is gone.
async fn until_gone(client: &Client, path: &str) -> String {
    loop {
        match retry(|| client.check_and_watch_stat(path)).await {
            Ok((Some(_), watcher)) => {
                watcher.changed().await;
            }
            Ok((None, _)) => return "its node was deleted by another client".into(),
            Err(error) => return error.to_string(),
        }
    }
}

impl Drop for DeletionWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
