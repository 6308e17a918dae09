//! Constructors for the messages of etcd's API that the engine sends.

use super::keys::Range;
use lockkeeper_etcd_api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use lockkeeper_etcd_api::etcdserverpb::request_op::Request;
use lockkeeper_etcd_api::etcdserverpb::watch_create_request::FilterType;
use lockkeeper_etcd_api::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, WatchCreateRequest};

/// The number of keys with values per reply: each has at most 16 KiB, and gRPC rejects messages over 4 MiB.
const PAGE: i64 = 200;

/// The part of each key to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Keys,
    Values,
}

/// Reads the first keys of a range, as many as fit one reply.
pub(super) fn page(range: &Range, read: Read) -> RangeRequest {
    RangeRequest {
        key: range.start.clone().into(),
        range_end: range.end.clone().into(),
        limit: PAGE,
        keys_only: read == Read::Keys,
        ..RangeRequest::default()
    }
}

/// The condition that a key has this create revision; 0 means that it does not exist.
pub(super) fn created_at(key: &str, revision: i64) -> Compare {
    compare_create(CompareResult::Equal, key.into(), String::new(), revision)
}

/// The condition that a key was last written at this revision.
pub(super) fn written_at(key: &str, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..created_at(key, 0)
    }
}

/// The condition that no key of the range exists.
pub(super) fn absent(range: Range) -> Compare {
    compare_create(CompareResult::Equal, range.start, range.end, 0)
}

/// The condition that every key of the range was created at this revision or before.
pub(super) fn created_by(range: Range, revision: i64) -> Compare {
    compare_create(CompareResult::Less, range.start, range.end, revision + 1)
}

fn compare_create(result: CompareResult, key: String, range_end: String, revision: i64) -> Compare {
    Compare {
        result: result.into(),
        target: CompareTarget::Create.into(),
        key: key.into(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        range_end: range_end.into(),
    }
}

/// Writes a key and attaches it to a lease.
pub(super) fn put_with_lease(key: &str, value: Vec<u8>, lease: i64) -> RequestOp {
    put(PutRequest { key: key.into(), value, lease, ..PutRequest::default() })
}

/// Writes a key that exists; it stays attached to its lease.
pub(super) fn put_again(key: &str, value: Vec<u8>) -> RequestOp {
    put(PutRequest { key: key.into(), value, ignore_lease: true, ..PutRequest::default() })
}

fn put(request: PutRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestPut(request)) }
}

/// Reads within a transaction.
pub(super) fn read(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(request)) }
}

/// Watches a range for changes at `start_revision` and later.
pub(super) fn changes(range: &Range, start_revision: i64) -> WatchCreateRequest {
    let (key, range_end) = (range.start.clone().into(), range.end.clone().into());
    WatchCreateRequest { key, range_end, start_revision, ..WatchCreateRequest::default() }
}

/// Watches a range for deletions at `start_revision` and later.
pub(super) fn deletions(range: &Range, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { filters: vec![FilterType::Noput.into()], ..changes(range, start_revision) }
}
