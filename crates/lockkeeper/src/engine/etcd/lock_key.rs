//! One acquisition: its lease, its key, its position in the queue.

use super::detached::{HoldKeys, Leases, StoredHold, whole_seconds};
use super::keys::{LockKeys, Range, Root};
use super::requests::{self, Read};
use super::server::{CALL_TIMEOUT, Server};
use crate::engine::request_queue::{RequestQueue, RequestRecord, WatchedChange, mode_mismatch};
use crate::engine::{Acquired, BoxFuture, Detach, Hold, Request, WhenBusy};
use crate::info::{LockMode, now_ms};
use crate::lease::{self, Lease, Renewal};
use crate::{Error, Fence, LockName, Result};
use lockkeeper_etcd_api::etcdserverpb::TxnRequest;
use lockkeeper_etcd_api::etcdserverpb::response_op::Response;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// For calls that end with the loss of the lease.
const WHILE_LEASED: Duration = Duration::MAX;
/// The pause before reading again after a broken stream.
const RETRY: Duration = Duration::from_millis(50);

/// The queue of a lock at one revision of the store.
struct QueueSnapshot {
    queue: RequestQueue,
    revision: i64,
}

/// A lease and the key attached to it. Dropping this value gives both up.
struct LockKey {
    server: Arc<Server>,
    root: Arc<Root>,
    keys: LockKeys,
    name: LockName,
    mode: LockMode,
    own: String,
    lease_id: i64,
    /// The lease of the period of a detached hold, which may have the key instead.
    period_lease: Option<i64>,
    /// The time to live, in whole seconds.
    ttl: Duration,
    lease: Lease,
    renewal: Option<Renewal>,
    deletion_watch: Option<DeletionWatch>,
    /// The runtime on which `drop` spawns the revocation.
    runtime: Handle,
    given_up: bool,
    /// Set when the lock is granted: the create revision of the key, and its record.
    granted: Option<(i64, RequestRecord)>,
    /// Set when the hold is detached.
    stored: Option<StoredHold>,
}

/// Acquires a lock by the recipe in the parent module.
pub(super) async fn acquire(
    server: Arc<Server>,
    root: Arc<Root>,
    request: Request,
    when_busy: WhenBusy,
) -> Result<Option<Acquired>> {
    let Request { name, mode, tag, ttl, .. } = request;
    let record = RequestRecord { name: name.to_string(), mode, tag, held_ms: None, detached: None };
    // Reject a record that is too long BEFORE anything is sent.
    record.to_json()?;
    if when_busy == WhenBusy::Wait {
        let key = LockKey::grant(server, root, name, &record, ttl).await?;
        let snapshot = key.create(&record, None).await?;
        return key.enter(snapshot, record).await.map(Some);
    }
    // Read the queue first: a lock that is held costs one read and no lease.
    let mut snapshot = look(&server, &root.of(&name), CALL_TIMEOUT).await?;
    check_mode(&snapshot.queue, &name, mode)?;
    if !snapshot.queue.has_room_for(mode) {
        return Ok(None);
    }
    let key = LockKey::grant(server, root, name, &record, ttl).await?;
    while snapshot.queue.has_room_for(mode) {
        snapshot = key.create(&record, Some(snapshot.revision)).await?;
        if snapshot.queue.position(&key.own).is_some() {
            return key.enter(snapshot, record).await.map(Some);
        }
    }
    Ok(None)
}

async fn look(server: &Server, keys: &LockKeys, within: Duration) -> Result<QueueSnapshot> {
    let found = server.scan_within(within, keys.all(), Read::Keys).await?;
    Ok(QueueSnapshot { queue: keys.queue(&found.entries)?, revision: found.revision })
}

fn check_mode(queue: &RequestQueue, name: &LockName, mode: LockMode) -> Result<()> {
    match queue.requests().iter().find(|request| !request.mode.same_lock_as(mode)) {
        None => Ok(()),
        Some(other) => Err(mode_mismatch(name, other.mode, mode)),
    }
}

impl LockKey {
    /// Creates a lease and starts its renewal.
    async fn grant(
        server: Arc<Server>,
        root: Arc<Root>,
        name: LockName,
        record: &RequestRecord,
        ttl: Duration,
    ) -> Result<LockKey> {
        // etcd counts whole seconds; round up, and use the same value on both sides.
        let seconds = whole_seconds(ttl);
        let (ttl, keys) = (Duration::from_secs(seconds), root.of(&name));
        let own = keys.own(record.mode, &record.tag.holder);
        let mut key = LockKey {
            server,
            root,
            keys,
            name,
            mode: record.mode,
            own,
            lease_id: random_id(),
            period_lease: None,
            ttl,
            lease: Lease::expiring(lease::now(), ttl),
            renewal: None,
            deletion_watch: None,
            runtime: Handle::current(),
            given_up: false,
            granted: None,
            stored: None,
        };
        while !key.server.grant(key.lease_id, seconds as i64).await? {
            key.lease_id = random_id();
        }
        let (server, id) = (key.server.clone(), key.lease_id);
        key.renewal = Some(lease::keep_renewed(key.lease.clone(), ttl, move || {
            let server = server.clone();
            async move { server.renew(id).await }
        }));
        Ok(key)
    }

    /// Creates the key, unless it exists already or the name is another type of lock; with `seen`, only if no request
    /// has been queued since that revision. Returns the queue after that, with or without our key.
    async fn create(&self, record: &RequestRecord, seen: Option<i64>) -> Result<QueueSnapshot> {
        let mut compare = vec![requests::created_at(&self.own, 0)];
        compare.extend(self.keys.other_modes(self.mode).map(requests::absent));
        if let Some(revision) = seen {
            compare.push(requests::created_by(self.keys.same_mode(self.mode), revision));
        }
        let put = requests::put_with_lease(&self.own, record.to_json()?, self.lease_id);
        let read = requests::read(requests::page(&self.keys.all(), Read::Keys));
        let txn = TxnRequest { compare, success: vec![put, read.clone()], failure: vec![read] };
        let mut answer = self.leased(self.server.transact(WHILE_LEASED, txn)).await?;
        let snapshot = match answer.responses.pop().and_then(|last| last.response) {
            Some(Response::ResponseRange(found)) if !found.more => {
                let revision = answer.header.as_ref().map_or(0, |header| header.revision);
                QueueSnapshot { queue: self.keys.queue(&found.kvs)?, revision }
            }
            _ => self.leased(look(&self.server, &self.keys, WHILE_LEASED)).await?,
        };
        if !answer.succeeded && snapshot.queue.position(&self.own).is_none() {
            check_mode(&snapshot.queue, &self.name, self.mode)?;
        }
        Ok(snapshot)
    }

    /// Waits for the grant, and makes sure that our key still exists then.
    async fn enter(mut self, mut snapshot: QueueSnapshot, mut record: RequestRecord) -> Result<Acquired> {
        self.deletion_watch = Some(DeletionWatch::start(&self, snapshot.revision));
        let mut waited = false;
        let number = loop {
            let Some(i) = snapshot.queue.position(&self.own) else {
                return Err(self.session_lost("its key is gone"));
            };
            match snapshot.queue.watched_by(i) {
                Some(watched) if !snapshot.queue.may_hold(i) => {
                    waited = true;
                    self.leased(self.until_change(watched, snapshot.revision)).await?;
                }
                _ => break snapshot.queue.requests()[i].number,
            }
            snapshot = self.leased(look(&self.server, &self.keys, WHILE_LEASED)).await?;
        };
        if waited {
            record.held_ms = Some(now_ms());
            self.mark_entry(&record, number).await?;
        }
        if !self.lease.is_valid() {
            return Err(self.session_lost(&self.lease.lost().await.to_string()));
        }
        self.granted = Some((number, record));
        let (fence, lease) = (Fence::new(number.unsigned_abs()), self.lease.clone());
        let ttl = Some(self.ttl);
        Ok(Acquired { fence, lease, ttl, hold: Box::new(self) })
    }

    /// Resolves when the watched change happened, or may have happened: the caller reads the queue again.
    async fn until_change(&self, watched: WatchedChange<'_>, seen: i64) -> Result<()> {
        let (watch, requests) = match watched {
            WatchedChange::Leaves(request) => {
                (requests::deletions(&request.id.as_str().into(), seen + 1), std::slice::from_ref(request))
            }
            WatchedChange::LeavesOrEnters(request) => {
                (requests::changes(&request.id.as_str().into(), seen + 1), std::slice::from_ref(request))
            }
            WatchedChange::AnyLeaves(requests) => {
                (requests::deletions(&self.keys.same_mode(self.mode), seen + 1), requests)
            }
        };
        let mut stream = self.server.watch(WHILE_LEASED, watch).await?;
        while let Ok(Some(message)) = stream.message().await {
            let mut keys = message.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| &kv.key);
            if keys.any(|key| requests.iter().any(|request| request.id.as_bytes() == key)) {
                return Ok(());
            }
            if message.canceled {
                break;
            }
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }

    /// Writes the time of the grant into our key if the key still exists. This is the check at the moment of entry.
    async fn mark_entry(&self, record: &RequestRecord, number: i64) -> Result<()> {
        let still_there = requests::created_at(&self.own, number);
        let put = requests::put_again(&self.own, record.to_json()?);
        let txn = TxnRequest { compare: vec![still_there], success: vec![put], failure: Vec::new() };
        match self.leased(self.server.transact(WHILE_LEASED, txn)).await?.succeeded {
            true => Ok(()),
            false => Err(self.session_lost("its key is gone")),
        }
    }

    /// Runs an operation that is pointless once the lease is lost.
    async fn leased<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            loss = self.lease.lost() => Err(self.session_lost(&loss.to_string())),
            result = work => result.map_err(|error| match error {
                Error::Unavailable { reason, .. } if reason.contains("lease not found") => {
                    self.session_lost("etcd reports that its lease has ended")
                }
                error => error,
            }),
        }
    }

    fn session_lost(&self, reason: &str) -> Error {
        Error::SessionLost { engine: "etcd", name: self.name.to_string(), reason: reason.into() }
    }
}

impl LockKey {
    /// Stores the hold: see [`super::detached`].
    async fn detach(&mut self, detach: Detach) -> Result<bool> {
        let Some((number, record)) = self.granted.clone() else { return Ok(false) };
        let seconds = whole_seconds(detach.lasts);
        if Duration::from_secs(seconds) > self.ttl {
            // BEFORE the first await, so that `drop` revokes it.
            let mut period = random_id();
            self.period_lease = Some(period);
            while !self.server.grant(period, i64::try_from(seconds).unwrap_or(i64::MAX)).await? {
                period = random_id();
                self.period_lease = Some(period);
            }
        }
        let (server, own) = (self.server.clone(), self.own.clone());
        let keys = HoldKeys { server, own, number, owner: self.root.owner(&self.name, &detach.owner) };
        let leases = Leases {
            renewed: self.lease_id,
            ttl: self.ttl,
            period: self.period_lease,
            lease: self.lease.clone(),
        };
        self.stored = StoredHold::store(keys, &self.name, record, &detach, leases).await?;
        Ok(self.stored.is_some())
    }

    async fn end(mut self: Box<Self>, stays: bool) -> Result<()> {
        self.renewal = None;
        self.deletion_watch = None;
        let name = self.name.to_string();
        if !stays {
            self.stored = None;
        }
        if !self.lease.is_valid() {
            // No confirmation to wait for: `drop` does the rest.
            let reason = self.lease.lost().await;
            return Err(Error::Lost { name, reason });
        }
        let ended = match self.stored.take().filter(StoredHold::lasts) {
            Some(stored) => {
                // If this fails, the keys stay on the lease that they have, which lasts until the deadline.
                self.given_up = true;
                stored.leave().await?
            }
            None => revoke(&self.server, [Some(self.lease_id), self.period_lease]).await?,
        };
        self.given_up = true;
        match ended {
            true => Ok(()),
            false => Err(Error::Lost { name, reason: "etcd had ended its lease before the release".into() }),
        }
    }
}

/// Revokes the leases of a key, of which one has it. Returns true if this call ended the first one.
async fn revoke(server: &Server, [renewed, period]: [Option<i64>; 2]) -> Result<bool> {
    let mut ended = false;
    for lease in [period, renewed].into_iter().flatten() {
        ended = server.revoke(lease).await?;
    }
    Ok(ended)
}

impl Hold for LockKey {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(true))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(false))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(LockKey::detach(self, detach))
    }
}

impl Drop for LockKey {
    /// Revokes the leases in the background, or leaves a detached hold until its deadline. If the runtime is gone, the
    /// renewal has stopped too, and the key stays as long as it would after the death of this process.
    fn drop(&mut self) {
        if self.given_up {
            return;
        }
        let (server, leases) = (self.server.clone(), [Some(self.lease_id), self.period_lease]);
        let stored = self.stored.take().filter(StoredHold::lasts);
        self.runtime.spawn(async move {
            match stored {
                Some(stored) => stored.leave().await,
                None => revoke(&server, leases).await,
            }
        });
    }
}

/// A task that watches our own key, so that its deletion by an operator is noticed at once.
struct DeletionWatch(tokio::task::AbortHandle);

impl DeletionWatch {
    fn start(key: &LockKey, seen: i64) -> DeletionWatch {
        let (server, lease, own) = (key.server.clone(), key.lease.clone(), key.own.clone());
        let task = tokio::spawn(async move {
            until_deleted(&server, &own, seen).await;
            lease.lose("its key was deleted, or its lease revoked, by another client");
        });
        DeletionWatch(task.abort_handle())
    }
}

impl Drop for DeletionWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn until_deleted(server: &Server, key: &str, mut seen: i64) {
    loop {
        let deletions = requests::deletions(&key.into(), seen + 1);
        if let Ok(mut stream) = server.watch(WHILE_LEASED, deletions).await {
            while let Ok(Some(message)) = stream.message().await {
                if !message.events.is_empty() {
                    return;
                }
                if message.canceled {
                    break;
                }
            }
        }
        tokio::time::sleep(RETRY).await;
        // The events in between may have been compacted: read the key.
        match server.scan_within(WHILE_LEASED, Range::from(key), Read::Keys).await {
            Ok(found) if found.entries.is_empty() => return,
            Ok(found) => seen = found.revision,
            Err(_) => {}
        }
    }
}

/// A random lease id. A hash with keys from the system is random enough for ids that are used for seconds. It is
/// never 0, which would make etcd choose an id.
pub(super) fn random_id() -> i64 {
    (RandomState::new().build_hasher().finish() >> 1) as i64 | 1
}
