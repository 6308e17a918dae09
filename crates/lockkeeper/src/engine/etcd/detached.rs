//! Detached holds: a key that stays until a deadline, without a process.
//!
//! ```text
//! /lockkeeper/.as/NAME/OWNER     the path of the owner's key; attached to the same lease as that key
//! ```
//!
//! etcd counts a lease from its last renewal, always for its full time. So a hold with a deadline uses two leases, one
//! after the other: its key is attached to a lease of the whole **period**, which is never renewed, and it moves to the
//! short lease that its process renews when only that much is left of the period:
//!
//! ```text
//!   granted             period − ttl        period                     the process dies
//!      │── period lease ─────│── the lease that is renewed ─────────────────│── ttl ──│
//! ```
//!
//! Whenever the process dies, the key stays until the end of the period, and not much longer than its time to live. A
//! release during the period moves the key to a lease of the rest. Each of these moves is conditional on the last write
//! of the key, so that a delayed one has no effect after a later one.

use super::keys::{Range, Root};
use super::requests::{self, Read};
use super::server::{CALL_TIMEOUT, Server};
use crate::engine::request_queue::{DetachedRecord, RequestRecord};
use crate::engine::{Detach, DetachedState};
use crate::lease::{self, Lease, LeaseTime, NotRenewed};
use crate::{Error, Fence, LockName, Result};
use lockkeeper_etcd_api::etcdserverpb::TxnRequest;
use lockkeeper_etcd_api::etcdserverpb::response_op::Response;
use lockkeeper_etcd_api::mvccpb::KeyValue;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failed attempt to move a key.
const RETRY: Duration = Duration::from_millis(50);

/// The duration in whole seconds, rounded up, as etcd counts them.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The keys of a detached hold.
#[derive(Clone)]
pub(super) struct HoldKeys {
    pub server: Arc<Server>,
    /// The key of the hold.
    pub own: String,
    /// Its create revision.
    pub number: i64,
    /// The owner's key.
    pub owner: String,
}

impl HoldKeys {
    /// The transaction that writes both keys and attaches them to a lease, on a condition.
    fn put(
        &self,
        compare: Vec<lockkeeper_etcd_api::etcdserverpb::Compare>,
        record: &RequestRecord,
        lease: i64,
    ) -> Result<TxnRequest> {
        let hold = requests::put_with_lease(&self.own, record.to_json()?, lease);
        let owner = requests::put_with_lease(&self.owner, self.own.clone().into_bytes(), lease);
        let read = |key: &str| requests::read(requests::page(&Range::from(key), Read::Values));
        let failure = vec![read(&self.own), read(&self.owner)];
        Ok(TxnRequest { compare, success: vec![hold, owner], failure })
    }

    /// Stores the record if the owner has no detached hold of this lock. Returns whether it did.
    async fn create(&self, name: &LockName, record: &RequestRecord, lease: i64) -> Result<bool> {
        let compare =
            vec![requests::created_at(&self.own, self.number), requests::created_at(&self.owner, 0)];
        let reply = self.server.transact(CALL_TIMEOUT, self.put(compare, record, lease)?).await?;
        if reply.succeeded {
            return Ok(true);
        }
        let mut found = reply.responses.into_iter().map(|response| match response.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let (own, owner) = (found.next().flatten(), found.next().flatten());
        match own.filter(|kv| kv.create_revision == self.number) {
            None => Err(Error::Lost { name: name.to_string(), reason: "its key is gone".into() }),
            // The first of two requests, whose reply was lost, has stored it.
            Some(_) => Ok(owner.is_some_and(|kv| kv.value == self.own.as_bytes())),
        }
    }

    /// Attaches the keys to another lease. Returns false if they are gone.
    async fn move_to(&self, record: &RequestRecord, lease: i64) -> Result<bool> {
        loop {
            let Some(kv) = read(&self.server, &self.own).await? else { return Ok(false) };
            if kv.create_revision != self.number {
                return Ok(false);
            }
            let (record, lease) = merged(record, lease, &kv);
            let compare = vec![requests::written_at(&self.own, kv.mod_revision)];
            if self.server.transact(CALL_TIMEOUT, self.put(compare, &record, lease)?).await?.succeeded {
                return Ok(true);
            }
        }
    }
}

/// The record and the lease that a key gets when it is moved: those requested, unless another process of the owner has
/// set a new deadline since.
fn merged(record: &RequestRecord, lease: i64, kv: &KeyValue) -> (RequestRecord, i64) {
    let current = serde_json::from_slice::<RequestRecord>(&kv.value).ok().and_then(|stored| stored.detached);
    match (current, &record.detached) {
        (Some(current), Some(ours)) if current.until_ms != ours.until_ms => {
            let detached = DetachedRecord { attached: ours.attached, ..current };
            (RequestRecord { detached: Some(detached), ..record.clone() }, kv.lease)
        }
        _ => (record.clone(), lease),
    }
}

/// A hold with its record in the store.
pub(super) struct StoredHold {
    keys: HoldKeys,
    record: RequestRecord,
    /// The deadline by our clock, not before the server's.
    ends: LeaseTime,
    /// The leases that may have the keys: the renewed one, and that of the period.
    leases: [Option<i64>; 2],
    /// The task that moves the keys to the renewed lease.
    mover: Option<tokio::task::AbortHandle>,
}

impl Drop for StoredHold {
    fn drop(&mut self) {
        if let Some(mover) = &self.mover {
            mover.abort();
        }
    }
}

/// The leases of a hold.
pub(super) struct Leases {
    /// The lease that the process renews, and its time to live.
    pub renewed: i64,
    pub ttl: Duration,
    /// The lease of the period, if it is longer.
    pub period: Option<i64>,
    pub lease: Lease,
}

impl StoredHold {
    /// Stores a hold; `None` if the owner has a detached hold of this lock already.
    pub async fn store(
        keys: HoldKeys,
        name: &LockName,
        mut record: RequestRecord,
        detach: &Detach,
        leases: Leases,
    ) -> Result<Option<StoredHold>> {
        record.detached = Some(DetachedRecord::new(detach, keys.number.unsigned_abs()));
        let first = leases.period.unwrap_or(leases.renewed);
        if !keys.create(name, &record, first).await? {
            return Ok(None);
        }
        // From here on the period is counted.
        let sent = lease::now();
        renew(&keys.server, first).await.map_err(|failure| {
            let (NotRenewed::Gone(reason) | NotRenewed::TryAgain(reason)) = failure;
            Error::Lost { name: name.to_string(), reason: reason.into() }
        })?;
        let ends = lease::now().plus(detach.lasts);
        let mover = leases.period.map(|period| {
            let moving = Move {
                keys: keys.clone(),
                record: record.clone(),
                at: sent.plus(detach.lasts.saturating_sub(leases.ttl)),
                from: period,
                to: leases.renewed,
            };
            tokio::spawn(moving.run(leases.lease)).abort_handle()
        });
        let leases = [Some(leases.renewed), leases.period];
        Ok(Some(StoredHold { keys, record, ends, leases, mover }))
    }

    /// Whether the deadline has not been reached.
    pub fn lasts(&self) -> bool {
        self.ends.left().is_some()
    }

    /// Leaves the keys on a lease that ends at the deadline. Returns false if they are gone.
    pub async fn leave(mut self) -> Result<bool> {
        if let Some(mover) = self.mover.take() {
            mover.abort();
        }
        let left = self.ends.left().unwrap_or_default();
        let rest = grant(&self.keys.server, left).await?;
        if let Some(detached) = &mut self.record.detached {
            detached.attached = false;
        }
        let moved = self.keys.move_to(&self.record, rest).await?;
        for lease in self.leases.into_iter().flatten() {
            // They have no keys any more, and end by themselves if this fails.
            let _ = self.keys.server.revoke(lease).await;
        }
        Ok(moved)
    }
}

/// The move of the keys from the lease of the period to the one that is renewed.
struct Move {
    keys: HoldKeys,
    record: RequestRecord,
    at: LeaseTime,
    from: i64,
    to: i64,
}

impl Move {
    async fn run(self, lease: Lease) {
        lease::sleep_until(self.at).await;
        while lease.is_valid() {
            // The renewal makes this lease last beyond the end of the period, BEFORE it gets the keys.
            if self.keys.server.renew(self.to).await.is_ok() {
                match self.keys.move_to(&self.record, self.to).await {
                    Ok(_) => {
                        let _ = self.keys.server.revoke(self.from).await;
                        return;
                    }
                    Err(error) => lease.renewal_failed(error.into_reason()),
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Renews a lease, until the server replies or [`CALL_TIMEOUT`] has passed.
async fn renew(server: &Server, id: i64) -> Result<(), NotRenewed> {
    let start = tokio::time::Instant::now();
    loop {
        match server.renew(id).await {
            Ok(()) => return Ok(()),
            Err(NotRenewed::TryAgain(_)) if start.elapsed() <= CALL_TIMEOUT => {
                tokio::time::sleep(RETRY).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Grants a lease of at least this time.
async fn grant(server: &Server, time: Duration) -> Result<i64> {
    let seconds = i64::try_from(whole_seconds(time)).unwrap_or(i64::MAX).max(1);
    loop {
        let id = super::lock_key::random_id();
        if server.grant(id, seconds).await? {
            return Ok(id);
        }
    }
}

async fn read(server: &Server, key: &str) -> Result<Option<KeyValue>> {
    Ok(server.scan(Range::from(key), Read::Values).await?.entries.pop())
}

/// The key of an owner's detached hold, and its record.
async fn look(
    server: &Arc<Server>,
    root: &Root,
    name: &LockName,
    owner: &str,
) -> Result<Option<(HoldKeys, KeyValue, RequestRecord)>> {
    let owner_key = root.owner(name, owner);
    let Some(index) = read(server, &owner_key).await? else { return Ok(None) };
    let Ok(own) = String::from_utf8(index.value) else { return Ok(None) };
    let Some(kv) = read(server, &own).await? else { return Ok(None) };
    let record = serde_json::from_slice::<RequestRecord>(&kv.value).ok();
    let is_its = |record: &RequestRecord| record.detached.as_ref().is_some_and(|it| it.owner == owner);
    let Some(record) = record.filter(is_its) else { return Ok(None) };
    let number = kv.create_revision;
    Ok(Some((HoldKeys { server: server.clone(), own, number, owner: owner_key }, kv, record)))
}

/// The detached hold of an owner; with `lasts`, its deadline is first set to that time from now.
pub(super) async fn find(
    server: &Arc<Server>,
    root: &Root,
    name: &LockName,
    owner: &str,
    lasts: Option<Duration>,
) -> Result<Option<DetachedState>> {
    loop {
        let Some((keys, kv, mut record)) = look(server, root, name, owner).await? else { return Ok(None) };
        let state = |record: &RequestRecord, left| {
            let fence = record.detached.as_ref().and_then(|detached| Fence::new(detached.fence));
            Ok(Some(DetachedState { mode: record.mode, fence, left }))
        };
        let Some(lasts) = lasts else {
            match server.time_to_live(kv.lease).await? {
                Some(left) => return state(&record, left),
                None => return Ok(None),
            }
        };
        let attached = record.detached.as_ref().is_some_and(|detached| detached.attached);
        record.detached = record.detached.map(|detached| detached.lasting(lasts));
        let new = grant(server, lasts).await?;
        let compare = vec![requests::written_at(&keys.own, kv.mod_revision)];
        if server.transact(CALL_TIMEOUT, keys.put(compare, &record, new)?).await?.succeeded {
            if !attached {
                server.revoke(kv.lease).await?;
            }
            return state(&record, lasts);
        }
        server.revoke(new).await?;
    }
}

/// Releases the detached hold of an owner, unless its process may still work under it.
pub(super) async fn release(server: &Arc<Server>, root: &Root, name: &LockName, owner: &str) -> Result<bool> {
    let mut revoked = false;
    loop {
        let Some((_, kv, record)) = look(server, root, name, owner).await? else { return Ok(revoked) };
        if record.detached.is_some_and(|detached| detached.attached) {
            return Ok(false);
        }
        // A key that has moved to another lease since it was read is still there then.
        revoked |= server.revoke(kv.lease).await?;
    }
}
