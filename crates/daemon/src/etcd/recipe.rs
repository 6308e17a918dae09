//! The requests of etcd's client-side recipes for locks and elections.
//!
//! A daemon is not a key-value store. It serves those requests that the recipes send, recognized by their shape; everything
//! else is refused. In this table K is the key of a lock and a lease, P the range of all keys of a lock.
//!
//! | transaction | sent by | meaning |
//! |---|---|---|
//! | if create(K) = 0 then Put K, first of P, else Range K, first of P | Go: Lock, TryLock | [`Enqueue`](Transaction::Enqueue) |
//! | if create(K) = 0 then Put K, else nothing or Range K | Go, node: Campaign | [`Campaign`](Transaction::Campaign) |
//! | the same with a bare key | python-etcd3, aetcd, node: Lock | [`Try`](Transaction::Try) |
//! | if create(K) = fence then Put K | Go, node: Proclaim | [`Proclaim`](Transaction::Proclaim) |
//! | if create(K) = fence then Delete K | Go: Resign | [`Resign`](Transaction::Resign) |
//! | if value(key) = x then Delete key | python-etcd3, aetcd: release | [`ReleaseByValue`](Transaction::ReleaseByValue) |

use super::keys::{lock_by_lease, lock_of_prefix};
use super::pb::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::pb::etcdserverpb::range_request::{SortOrder, SortTarget};
use super::pb::etcdserverpb::request_op::Request;
use super::pb::etcdserverpb::watch_create_request::FilterType;
use super::pb::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};
use crate::leases::LeaseId;
use tonic::Status;

/// The first part of the error for requests that no recipe sends.
const SERVED: &str = "this is lockkeeper, which is not a key-value store: of etcd's KV and Watch it serves the requests that \
     the recipes for locks and elections send (etcdctl lock and elect, Go's concurrency package, python-etcd3, aetcd and \
     node's etcd3); this request is not one of them";

/// The description of a request that no recipe sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(String);

impl Refused {
    /// The explanation for the client.
    pub fn message(&self) -> String {
        format!("{SERVED}: {}", self.0)
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        Self::unimplemented(refused.message())
    }
}

fn refused<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(what.into()))
}

/// A key in the form that a client has sent, with the lock and the lease that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryKey {
    pub key: Vec<u8>,
    pub lock: String,
    pub lease: LeaseId,
}

/// A transaction of the recipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    /// Takes a place in the queue, and holds the lock if it is free.
    Enqueue { at: EntryKey, value: Vec<u8> },
    /// Waits for the lock as a candidate of an election. `reads`: the key is read if it exists.
    Campaign { at: EntryKey, value: Vec<u8>, reads: bool },
    /// Acquires the lock of a bare key if it is free.
    Try { key: Vec<u8>, lease: LeaseId, value: Vec<u8>, reads: bool },
    /// Changes the value of a hold with this fence.
    Proclaim { at: EntryKey, fence: u64, value: Vec<u8> },
    /// Releases a hold with this fence.
    Resign { key: Vec<u8>, fence: u64 },
    /// Releases the lock of a bare key if its holder has this value.
    ReleaseByValue { key: Vec<u8>, value: Vec<u8> },
}

/// A read of the recipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A single key.
    Key(Vec<u8>),
    /// The first key of a lock: its holder.
    First(Vec<u8>),
    /// The last key of a lock before the one with this create revision: whether that one has to wait.
    Before(Vec<u8>, i64),
}

/// The keys that a watch of the recipes follows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// A single key.
    Key(Vec<u8>),
    /// The holder of a lock.
    Holder(Vec<u8>),
}

/// A watch of the recipes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WatchRequest {
    pub watched: Watched,
    /// The first revision to report; 0: changes from now on.
    pub start: i64,
    pub puts: bool,
    pub deletes: bool,
}

/// The condition of a transaction.
enum Test {
    Created(u64),
    Value(Vec<u8>),
}

/// An operation of a transaction.
#[derive(Debug, PartialEq, Eq)]
enum Operation {
    Put { key: Vec<u8>, value: Vec<u8>, lease: i64 },
    Read(Read),
    Delete(Vec<u8>),
}

/// Recognizes a transaction.
pub(super) fn transaction(request: TxnRequest) -> Result<Transaction, Refused> {
    let TxnRequest { compare, success, failure } = request;
    let [condition] = match <[Compare; 1]>::try_from(compare) {
        Ok(one) => one,
        Err(all) => return refused(format!("a transaction with {} comparisons", all.len())),
    };
    let (key, test) = condition_of(condition)?;
    let [success, failure] = [success, failure]
        .map(|operations| operations.into_iter().map(operation).collect::<Result<Vec<_>, _>>());
    let (success, failure) = (success?, failure?);
    let other = || refused("a transaction of another form");
    let reads_key = matches!(&failure[..], [Operation::Read(Read::Key(read))] if *read == key);
    match (test, <[Operation; 1]>::try_from(success)) {
        (Test::Created(0), Ok([Operation::Put { key: put, value, lease }]))
            if put == key && (reads_key || failure.is_empty()) =>
        {
            let lease = lease_of(lease)?;
            match entry_key(&key, lease) {
                Some(at) => Ok(Transaction::Campaign { at, value, reads: reads_key }),
                None => Ok(Transaction::Try { key, lease, value, reads: reads_key }),
            }
        }
        (Test::Created(0), Err(success)) => enqueue(key, success, &failure).map_or_else(other, Ok),
        (Test::Created(fence @ 1..), Ok([Operation::Put { key: put, value, lease }]))
            if put == key && failure.is_empty() =>
        {
            match entry_key(&key, lease_of(lease)?) {
                Some(at) => Ok(Transaction::Proclaim { at, fence, value }),
                None => other(),
            }
        }
        (Test::Created(fence @ 1..), Ok([Operation::Delete(deleted)]))
            if deleted == key && failure.is_empty() =>
        {
            Ok(Transaction::Resign { key, fence })
        }
        (Test::Value(value), Ok([Operation::Delete(deleted)])) if deleted == key && failure.is_empty() => {
            Ok(Transaction::ReleaseByValue { key, value })
        }
        _ => other(),
    }
}

/// Recognizes the transaction that takes a place in the queue.
fn enqueue(key: Vec<u8>, success: Vec<Operation>, failure: &[Operation]) -> Option<Transaction> {
    let [put, first] = <[Operation; 2]>::try_from(success).ok()?;
    let Operation::Put { key: put, value, lease } = put else { return None };
    let at = entry_key(&key, LeaseId::new(lease)?)?;
    let holder = Operation::Read(Read::First(at.lock.clone().into_bytes()));
    let reads = [Operation::Read(Read::Key(key.clone())), holder];
    (put == key && first == reads[1] && *failure == reads).then_some(Transaction::Enqueue { at, value })
}

fn entry_key(key: &[u8], lease: LeaseId) -> Option<EntryKey> {
    lock_by_lease(key, lease).map(|lock| EntryKey { key: key.to_vec(), lock: String::from(lock), lease })
}

fn lease_of(number: i64) -> Result<LeaseId, Refused> {
    LeaseId::new(number).map_or_else(|| refused("a transaction that puts a key without a lease"), Ok)
}

fn condition_of(compare: Compare) -> Result<(Vec<u8>, Test), Refused> {
    if !compare.range_end.is_empty() {
        return refused("a comparison of several keys");
    }
    if compare.result() != CompareResult::Equal {
        return refused("a comparison other than for equality");
    }
    let created = |revision| u64::try_from(revision).map(Test::Created);
    let test = match (compare.target(), compare.target_union) {
        (CompareTarget::Create, Some(TargetUnion::CreateRevision(revision))) => created(revision).ok(),
        (CompareTarget::Create, None) => Some(Test::Created(0)),
        (CompareTarget::Value, Some(TargetUnion::Value(value))) => Some(Test::Value(value)),
        _ => None,
    };
    match test {
        Some(test) => Ok((compare.key, test)),
        None => refused("a comparison of something other than a create revision or a value"),
    }
}

fn operation(operation: RequestOp) -> Result<Operation, Refused> {
    match operation.request {
        Some(Request::RequestPut(put)) => {
            let PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease } = put;
            if prev_kv || ignore_value || ignore_lease {
                return refused("a put with options");
            }
            Ok(Operation::Put { key, value, lease })
        }
        Some(Request::RequestRange(range)) => read(range).map(Operation::Read),
        Some(Request::RequestDeleteRange(delete)) => self::delete(delete).map(Operation::Delete),
        Some(Request::RequestTxn(_)) => refused("a transaction in a transaction"),
        None => refused("a transaction with an unknown operation"),
    }
}

/// Recognizes a read.
pub(super) fn read(request: RangeRequest) -> Result<Read, Refused> {
    let (order, target) = (request.sort_order(), request.sort_target());
    let bounds = [request.min_mod_revision, request.max_mod_revision, request.min_create_revision];
    if request.revision != 0 || bounds != [0; 3] {
        return refused("a read of earlier revisions, or with bounds");
    }
    if request.keys_only || request.count_only {
        return refused("a read of keys or counts alone");
    }
    if request.range_end.is_empty() {
        return match (request.limit, request.max_create_revision) {
            (0 | 1, 0) => Ok(Read::Key(request.key)),
            _ => refused("a read of one key with a limit or bounds"),
        };
    }
    let lock = lock_of_prefix(&request.key, &request.range_end).filter(|_| request.limit == 1);
    match (lock, target, order, request.max_create_revision) {
        (Some(lock), SortTarget::Create, SortOrder::Ascend, 0) => Ok(Read::First(lock.to_vec())),
        (Some(lock), SortTarget::Create, SortOrder::Descend, before @ 1..) => {
            Ok(Read::Before(lock.to_vec(), before.saturating_add(1)))
        }
        _ => {
            refused("a read of several keys (lockkeeper locks, or GET /v1/locks, lists holders and waiters)")
        }
    }
}

/// Recognizes a deletion, and returns the key.
pub(super) fn delete(request: DeleteRangeRequest) -> Result<Vec<u8>, Refused> {
    if !request.range_end.is_empty() {
        return refused("a deletion of several keys");
    }
    if request.prev_kv {
        return refused("a deletion that returns the previous value");
    }
    Ok(request.key)
}

/// Recognizes a watch.
pub(super) fn watch(request: &WatchCreateRequest) -> Result<WatchRequest, Refused> {
    let watched = if request.range_end.is_empty() {
        Watched::Key(request.key.clone())
    } else {
        match lock_of_prefix(&request.key, &request.range_end) {
            Some(lock) => Watched::Holder(lock.to_vec()),
            None => return refused("a watch of several keys that are not those of one lock"),
        }
    };
    let without = |filter: FilterType| request.filters().any(|of| of == filter);
    let (puts, deletes) = (!without(FilterType::Noput), !without(FilterType::Nodelete));
    Ok(WatchRequest { watched, start: request.start_revision.max(0), puts, deletes })
}

#[cfg(test)]
mod tests;
