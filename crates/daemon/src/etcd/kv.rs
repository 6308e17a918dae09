//! `etcdserverpb.KV`: the requests of etcd's client-side recipes. See [`recipe`](super::recipe) for their shapes and
//! [`keys`](super::keys) for tickets and gates.
//!
//! # Revisions
//! Every revision that a client can take for a fence is the fence of a grant, or one that a proclamation has drawn since:
//! the header's revision of a transaction that has acquired the lock, of a read of the held key, and of the read by which a
//! waiter learns that it is its turn; and the create and modification revisions of a held key. While a client waits, it
//! gets its ticket instead, and 1 where etcd has a revision to watch from.

use super::election::LeadershipKey;
use super::keys::{Ticket, entries_of, parse_gate};
use super::pb::etcdserverpb::kv_server::Kv;
use super::pb::etcdserverpb::response_op::Response as Reply;
use super::pb::etcdserverpb::*;
use super::pb::mvccpb::KeyValue;
use super::recipe::{self, EntryKey, Read, Transaction};
use super::{Caller, Etcd, no_such_lease, signed, status, text, with_receipt};
use crate::leases::{
    Enqueued, Granted, Hold, HoldRef, HoldRequest, LeaseError, LeaseId, LeaseOperation, OperationReply, Slot,
    Turn,
};
use crate::listing;
use crate::rights::Action;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The revision in replies that have none for the client. etcd's first revision is 1; clients of etcd take 0 for "from
/// now on" when they begin a watch at this revision.
pub(super) const NO_REVISION: i64 = 1;
/// Maximum duration of an attempt to acquire the lock of a bare key while its holder is changing.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(1);
/// Pause before such an attempt is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// The key that `etcdctl endpoint health` reads.
const HEALTH: &[u8] = b"health";

/// The state of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeyState {
    Absent,
    /// A place in the queue.
    Waiting(KeyValue),
    /// The key of a hold.
    Held(KeyValue),
}

/// The meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The gate of a waiter.
    Gate(String, LeaseId),
    /// The hold of a lease, or its place in the queue.
    Entry(String, LeaseId),
    /// A bare key: a lock with the whole key as its name.
    Bare(String),
}

impl Meaning {
    /// The lock's name.
    pub fn lock(&self) -> &str {
        match self {
            Self::Gate(lock, _) | Self::Entry(lock, _) | Self::Bare(lock) => lock,
        }
    }
}

/// The key of a hold, under the name that the client has used for it.
pub(super) fn held_key(hold: &Hold, key: Vec<u8>) -> KeyValue {
    KeyValue {
        key,
        create_revision: signed(hold.fence),
        mod_revision: signed(hold.revision),
        version: signed(hold.version),
        value: hold.value.clone(),
        lease: hold.lease.number(),
    }
}

/// The key of a place in the queue.
fn waiting_key(key: Vec<u8>, ticket: Ticket) -> KeyValue {
    let (number, lease) = (ticket.number(), ticket.lease().number());
    KeyValue { key, create_revision: number, mod_revision: number, version: 1, value: Vec::new(), lease }
}

/// The key for which a ticket waits: the one created last before it.
fn gate_key(lock: &str, ticket: Ticket) -> KeyValue {
    let (key, before) = (ticket.gate(lock), ticket.number() - 1);
    KeyValue {
        key,
        create_revision: before,
        mod_revision: NO_REVISION,
        version: 1,
        value: Vec::new(),
        lease: 0,
    }
}

/// A ticket for a lease. Its id leaves room for one, unless a client has chosen an id of 2^62 or above.
fn ticket(lease: LeaseId) -> Result<Ticket, Status> {
    Ticket::of(lease).ok_or_else(|| {
        let message = format!("the lease {lease} cannot wait in a queue: its number must be below 2^62");
        Status::invalid_argument(message)
    })
}

impl Etcd {
    /// A header with exactly this revision, which is no fence.
    pub(super) fn plain_header(&self, revision: i64) -> Option<ResponseHeader> {
        self.header(None).map(|header| ResponseHeader { revision, ..header })
    }

    fn range_reply(&self, header: Option<ResponseHeader>, kv: Option<KeyValue>) -> RangeResponse {
        let kvs: Vec<KeyValue> = kv.into_iter().collect();
        RangeResponse { header, count: kvs.len() as i64, kvs, more: false }
    }

    /// Finds out what a key means. An entry comes first: its lease has to exist, so that the last part of a bare key is
    /// hardly ever taken for one.
    pub(super) async fn meaning(&self, caller: &Caller, key: &[u8]) -> Result<Meaning, Status> {
        let see = |lock: &str| self.may(caller, Action::See, lock);
        if let Some((lock, ticket)) = parse_gate(key) {
            let lock = text(lock.into())?;
            see(&lock)?;
            return Ok(Meaning::Gate(lock, ticket.lease()));
        }
        for (lock, lease) in entries_of(key) {
            let Ok(lock) = text(lock.into()) else { continue };
            if caller.who.sees(&lock) && self.turn(lease, &lock).await? != Turn::Absent {
                return Ok(Meaning::Entry(lock, lease));
            }
        }
        let lock = text(key.to_vec())?;
        see(&lock)?;
        Ok(Meaning::Bare(lock))
    }

    /// The place of a lease in the queue of a lock. A lease that does not exist has none.
    async fn turn(&self, lease: LeaseId, lock: &str) -> Result<Turn, Status> {
        match self.0.leases.turn(lease, lock).await {
            Err(LeaseError::NoSuchLease(_)) => Ok(Turn::Absent),
            turn => turn.map_err(status),
        }
    }

    /// The state of a key with this meaning.
    pub(super) async fn state_of(&self, key: &[u8], meaning: &Meaning) -> Result<KeyState, Status> {
        match meaning {
            Meaning::Gate(lock, lease) => Ok(match self.turn(*lease, lock).await? {
                Turn::Waiting => KeyState::Waiting(gate_key(lock, ticket(*lease)?)),
                Turn::Absent | Turn::Held(_) => KeyState::Absent,
            }),
            Meaning::Entry(lock, lease) => Ok(match self.turn(*lease, lock).await? {
                Turn::Absent => KeyState::Absent,
                Turn::Waiting => KeyState::Waiting(waiting_key(key.to_vec(), ticket(*lease)?)),
                Turn::Held(hold) => KeyState::Held(held_key(&hold, key.to_vec())),
            }),
            Meaning::Bare(lock) => Ok(self.bare_holder(lock).await?.map_or(KeyState::Absent, KeyState::Held)),
        }
    }

    /// The key of the holder of a bare key's lock. The holder may be a client of any protocol.
    async fn bare_holder(&self, lock: &str) -> Result<Option<KeyValue>, Status> {
        let member = &self.0.context.member;
        let view = listing::read_lock(member, lock).await.map_err(|error| status(error.into()))?;
        let by_lease = self.0.leases.holder(lock).await.map_err(status)?;
        let fence = view.holders.iter().map(|party| party.who.fence.map_or(0, |fence| fence.number())).max();
        let key = lock.as_bytes().to_vec();
        Ok(match (by_lease, fence) {
            (Some(hold), fence) if fence.is_none_or(|fence| fence <= hold.fence) => {
                Some(held_key(&hold, key))
            }
            (_, Some(fence)) => {
                // A permit has no fence.
                let revision = signed(fence).max(NO_REVISION);
                let (create_revision, mod_revision) = (revision, revision);
                Some(KeyValue { key, create_revision, mod_revision, version: 1, ..KeyValue::default() })
            }
            (_, None) => None,
        })
    }

    /// Reads one key.
    async fn read_key(&self, caller: &Caller, key: &[u8]) -> Result<RangeResponse, Status> {
        if key == HEALTH && !caller.who.sees("health") {
            return Ok(self.range_reply(self.plain_header(NO_REVISION), None));
        }
        let meaning = self.meaning(caller, key).await?;
        Ok(match self.state_of(key, &meaning).await? {
            KeyState::Absent => self.range_reply(self.plain_header(NO_REVISION), None),
            KeyState::Waiting(kv) | KeyState::Held(kv) => {
                self.range_reply(self.plain_header(kv.mod_revision), Some(kv))
            }
        })
    }

    /// Reads the holder of a lock.
    async fn read_first(&self, lock: &str) -> Result<RangeResponse, Status> {
        let holder = self.0.leases.holder(lock).await.map_err(status)?;
        let kv = holder.map(|hold| held_key(&hold, hold.key()));
        let revision = kv.as_ref().map_or(NO_REVISION, |kv| kv.mod_revision);
        Ok(self.range_reply(self.plain_header(revision), kv))
    }

    /// Returns the gate for which a client with this ticket or fence has to wait, or nothing once it holds the lock. A
    /// client that has neither gets an error, since it would take "nothing" for a grant.
    async fn read_before(&self, lock: &str, revision: i64) -> Result<RangeResponse, Status> {
        if let Some(ticket) = Ticket::from_number(revision) {
            return match self.0.leases.turn(ticket.lease(), lock).await.map_err(status)? {
                Turn::Absent => Err(no_such_lease()),
                Turn::Waiting => {
                    Ok(self.range_reply(self.plain_header(NO_REVISION), Some(gate_key(lock, ticket))))
                }
                Turn::Held(hold) => Ok(self.range_reply(self.header(Some(hold.fence)), None)),
            };
        }
        let holder = self.0.leases.holder(lock).await.map_err(status)?;
        let held = holder.filter(|hold| signed(hold.fence) == revision).ok_or_else(no_such_lease)?;
        Ok(self.range_reply(self.header(Some(held.revision)), None))
    }

    async fn enqueue(&self, caller: &Caller, at: EntryKey, value: Vec<u8>) -> Result<TxnResponse, Status> {
        let EntryKey { key, lock, lease } = at;
        let lock = text(lock.into_bytes())?;
        self.may(caller, Action::Acquire, &lock)?;
        let ticket = ticket(lease)?;
        let request = HoldRequest { value, ..self.hold_request(caller, &lock) };
        let enqueued = self.0.leases.enqueue(&caller.identity, lease, request).await;
        let Enqueued { new, turn } = enqueued.map_err(status)?;
        let (header, own, first) = match turn {
            Turn::Absent => return Err(no_such_lease()),
            Turn::Waiting => {
                (self.plain_header(ticket.number()), waiting_key(key, ticket), gate_key(&lock, ticket))
            }
            Turn::Held(hold) => {
                let own = held_key(&hold, key);
                (self.header(Some(hold.fence)), own.clone(), own)
            }
        };
        let first = Reply::ResponseRange(self.range_reply(header, Some(first)));
        let own = if new {
            Reply::ResponsePut(PutResponse { header })
        } else {
            Reply::ResponseRange(self.range_reply(header, Some(own)))
        };
        Ok(txn_reply(header, new, [own, first]))
    }

    async fn campaign_by_key(
        &self,
        caller: &Caller,
        at: EntryKey,
        value: Vec<u8>,
        reads: bool,
    ) -> Result<Response<TxnResponse>, Status> {
        let lock = text(at.lock.into_bytes())?;
        self.may(caller, Action::Acquire, &lock)?;
        let granted = self.acquire_hold(caller, &lock, at.lease.number(), value.clone()).await?;
        let Granted { hold, receipt } = granted;
        let header = self.header(Some(hold.fence));
        // A hold with another value, or with a value that was changed, was there before.
        let new = hold.version == 1 && hold.value == value;
        let reply = match (new, reads) {
            (true, _) => Some(Reply::ResponsePut(PutResponse { header })),
            (false, true) => {
                Some(Reply::ResponseRange(self.range_reply(header, Some(held_key(&hold, at.key)))))
            }
            (false, false) => None,
        };
        Ok(with_receipt(txn_reply(header, new, reply), receipt))
    }

    async fn try_bare(
        &self,
        caller: &Caller,
        key: Vec<u8>,
        lease: LeaseId,
        value: Vec<u8>,
        reads: bool,
    ) -> Result<Response<TxnResponse>, Status> {
        let lock = text(key)?;
        self.may(caller, Action::Acquire, &lock)?;
        // Each attempt has a hold of its own, so that a second one by the same lease finds the lock held.
        let number = getrandom::u64().map_err(|error| Status::unavailable(error.to_string()))?;
        let (slot, timeout) = (Slot::Key(number), Some(Duration::ZERO));
        let request = HoldRequest { slot, timeout, value, ..self.hold_request(caller, &lock) };
        let until = Instant::now() + LONGEST_ATTEMPT;
        let holder = loop {
            match self.0.leases.acquire(&caller.identity, lease, request.clone()).await {
                Ok(Granted { hold, receipt }) => {
                    let header = self.header(Some(hold.fence));
                    let put = Reply::ResponsePut(PutResponse { header });
                    return Ok(with_receipt(txn_reply(header, true, [put]), receipt));
                }
                Err(LeaseError::Busy(_)) => {}
                Err(error) => return Err(status(error)),
            }
            // A client that finds no key would try again at once: so the attempt lasts while the lock changes hands.
            let holder = self.bare_holder(&lock).await?;
            if holder.is_some() || Instant::now() >= until {
                break holder;
            }
            tokio::time::sleep(PAUSE).await;
        };
        let unknown = || {
            let (key, revision) = (lock.into_bytes(), NO_REVISION);
            KeyValue {
                key,
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                ..KeyValue::default()
            }
        };
        let holder = holder.unwrap_or_else(unknown);
        let header = self.plain_header(holder.mod_revision);
        let reply = reads.then(|| Reply::ResponseRange(self.range_reply(header, Some(holder))));
        Ok(Response::new(txn_reply(header, false, reply)))
    }

    async fn proclaim_by_key(
        &self,
        caller: &Caller,
        at: EntryKey,
        fence: u64,
        value: Vec<u8>,
    ) -> Result<TxnResponse, Status> {
        let lock = text(at.lock.into_bytes())?;
        self.may(caller, Action::Release, &lock)?;
        let key = LeadershipKey { lock, lease: at.lease.number(), fence };
        let hold = self.set_value(caller, key, value).await?;
        let header = self.header(hold.as_ref().map(|hold| hold.revision));
        let reply = hold.is_some().then_some(Reply::ResponsePut(PutResponse { header }));
        Ok(txn_reply(header, hold.is_some(), reply))
    }

    /// Releases a hold of a lease. Returns its last revision if it was held until now.
    async fn release(
        &self,
        caller: &Caller,
        lease: LeaseId,
        which: HoldRef,
        fence: Option<u64>,
    ) -> Result<Option<u64>, Status> {
        let release = LeaseOperation::Release(which, fence);
        match self.0.leases.perform(&caller.identity, lease, release).await {
            Ok(OperationReply::Released(last)) => Ok(last),
            Ok(_) | Err(LeaseError::NoSuchLease(_)) => Ok(None),
            Err(error) => Err(status(error)),
        }
    }

    async fn resign_by_key(&self, caller: &Caller, key: &[u8], fence: u64) -> Result<TxnResponse, Status> {
        let mut released = None;
        for (lock, lease) in entries_of(key) {
            let lock = text(lock.into())?;
            self.may(caller, Action::Release, &lock)?;
            released = self.release(caller, lease, HoldRef::OnlyOn(lock), Some(fence)).await?;
            if released.is_some() {
                break;
            }
        }
        Ok(self.deleted(released))
    }

    async fn release_by_value(
        &self,
        caller: &Caller,
        key: Vec<u8>,
        value: &[u8],
    ) -> Result<TxnResponse, Status> {
        let lock = text(key)?;
        self.may(caller, Action::Release, &lock)?;
        let holder = self.0.leases.holder(&lock).await.map_err(status)?;
        let released = match holder.filter(|hold| hold.bare && hold.value == value) {
            Some(hold) => {
                self.release(caller, hold.lease, HoldRef::Number(hold.number), Some(hold.fence)).await?
            }
            None => None,
        };
        Ok(self.deleted(released))
    }

    /// The reply to a transaction that deletes a key.
    fn deleted(&self, released: Option<u64>) -> TxnResponse {
        let header = self.header(released);
        let reply = DeleteRangeResponse { header, deleted: 1 };
        txn_reply(header, released.is_some(), released.map(|_| Reply::ResponseDeleteRange(reply)))
    }

    /// Leaves the queue or releases the lock. Returns once it is done where the lease lives: the client may request the
    /// lock again under the same key.
    async fn delete_key(&self, caller: &Caller, key: &[u8]) -> Result<DeleteRangeResponse, Status> {
        for (lock, lease) in entries_of(key) {
            let Ok(lock) = text(lock.into()) else { continue };
            if !caller.who.sees(&lock) {
                continue;
            }
            let waited = self.turn(lease, &lock).await? == Turn::Waiting;
            self.may(caller, Action::Release, &lock)?;
            let released = self.release(caller, lease, HoldRef::OnlyOn(lock), None).await?;
            if waited || released.is_some() {
                return Ok(DeleteRangeResponse { header: self.header(released), deleted: 1 });
            }
        }
        let lock = text(key.to_vec())?;
        self.may(caller, Action::Release, &lock)?;
        let mut released = None;
        if let Some(hold) = self.0.leases.holder(&lock).await.map_err(status)?.filter(|hold| hold.bare) {
            released =
                self.release(caller, hold.lease, HoldRef::Number(hold.number), Some(hold.fence)).await?;
        }
        Ok(DeleteRangeResponse { header: self.header(released), deleted: i64::from(released.is_some()) })
    }
}

fn txn_reply(
    header: Option<ResponseHeader>,
    succeeded: bool,
    replies: impl IntoIterator<Item = Reply>,
) -> TxnResponse {
    let responses = replies.into_iter().map(|reply| ResponseOp { response: Some(reply) }).collect();
    TxnResponse { header, succeeded, responses }
}

#[tonic::async_trait]
impl Kv for Etcd {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        let caller = self.caller(&request)?;
        let reply = match recipe::read(request.into_inner())? {
            Read::Key(key) => self.read_key(&caller, &key).await?,
            Read::First(lock) => {
                let lock = text(lock)?;
                self.may(&caller, Action::See, &lock)?;
                self.read_first(&lock).await?
            }
            Read::Before(lock, revision) => {
                let lock = text(lock)?;
                self.may(&caller, Action::See, &lock)?;
                self.read_before(&lock, revision).await?
            }
        };
        Ok(Response::new(reply))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let caller = self.caller(&request)?;
        let key = recipe::delete(request.into_inner())?;
        Ok(Response::new(self.delete_key(&caller, &key).await?))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let caller = self.caller(&request)?;
        let reply = match recipe::transaction(request.into_inner())? {
            Transaction::Enqueue { at, value } => self.enqueue(&caller, at, value).await?,
            Transaction::Campaign { at, value, reads } => {
                return self.campaign_by_key(&caller, at, value, reads).await;
            }
            Transaction::Try { key, lease, value, reads } => {
                return self.try_bare(&caller, key, lease, value, reads).await;
            }
            Transaction::Proclaim { at, fence, value } => {
                self.proclaim_by_key(&caller, at, fence, value).await?
            }
            Transaction::Resign { key, fence } => self.resign_by_key(&caller, &key, fence).await?,
            Transaction::ReleaseByValue { key, value } => self.release_by_value(&caller, key, &value).await?,
        };
        Ok(Response::new(reply))
    }
}
