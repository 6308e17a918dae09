//! Each row of the table of requests that are served, and requests that are not.

use super::*;

const K: &[u8] = b"jobs/nightly/7b";

fn lease() -> LeaseId {
    LeaseId::new(0x7b).unwrap()
}

fn at(key: &[u8]) -> EntryKey {
    EntryKey { key: key.to_vec(), lock: String::from("jobs/nightly"), lease: lease() }
}

fn created(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

fn valued(key: &[u8], value: &[u8]) -> Compare {
    let target_union = Some(TargetUnion::Value(value.to_vec()));
    Compare { target: CompareTarget::Value.into(), target_union, ..created(key, 0) }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn put(key: &[u8], value: &[u8], lease: i64) -> RequestOp {
    let (key, value) = (key.to_vec(), value.to_vec());
    op(Request::RequestPut(PutRequest { key, value, lease, ..PutRequest::default() }))
}

fn get(key: &[u8]) -> RequestOp {
    op(Request::RequestRange(one(key)))
}

fn del(key: &[u8]) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest { key: key.to_vec(), ..Default::default() }))
}

fn one(key: &[u8]) -> RangeRequest {
    RangeRequest { key: key.to_vec(), ..RangeRequest::default() }
}

/// The read that Go's option `WithFirstCreate` sends.
fn first(key: &[u8], range_end: &[u8]) -> RangeRequest {
    RangeRequest {
        range_end: range_end.to_vec(),
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..one(key)
    }
}

/// Go's `WithLastCreate` and `WithMaxCreateRev`.
fn before(key: &[u8], range_end: &[u8], max_create_revision: i64) -> RangeRequest {
    RangeRequest { sort_order: SortOrder::Descend.into(), max_create_revision, ..first(key, range_end) }
}

fn first_op(key: &[u8], range_end: &[u8]) -> RequestOp {
    op(Request::RequestRange(first(key, range_end)))
}

fn txn(compare: &[Compare], success: &[RequestOp], failure: &[RequestOp]) -> TxnRequest {
    TxnRequest { compare: compare.to_vec(), success: success.to_vec(), failure: failure.to_vec() }
}

fn lock_txn() -> TxnRequest {
    let holder = || first_op(b"jobs/nightly/", b"jobs/nightly0");
    txn(&[created(K, 0)], &[put(K, b"", 0x7b), holder()], &[get(K), holder()])
}

#[test]
fn transaction_of_a_mutex_takes_a_place_in_the_queue() {
    let value = Vec::new();
    assert_eq!(transaction(lock_txn()), Ok(Transaction::Enqueue { at: at(K), value }));
}

#[test]
fn transaction_of_a_campaign_has_the_lease_in_its_key() {
    let value = b"web-3".to_vec();
    for key in [K, b"jobs/nightly/123"] {
        for (failure, reads) in [(vec![get(key)], true), (Vec::new(), false)] {
            let request = txn(&[created(key, 0)], &[put(key, &value, 0x7b)], &failure);
            let expected = Transaction::Campaign { at: at(key), value: value.clone(), reads };
            assert_eq!(transaction(request), Ok(expected));
        }
    }
}

#[test]
fn transaction_with_another_key_tries_a_bare_lock() {
    let value = b"uuid".to_vec();
    for key in [&b"/locks/nightly"[..], b"nightly", b"jobs/nightly/7c"] {
        for (failure, reads) in [(vec![get(key)], true), (Vec::new(), false)] {
            let request = txn(&[created(key, 0)], &[put(key, &value, 0x7b)], &failure);
            let key = key.to_vec();
            let expected = Transaction::Try { key, lease: lease(), value: value.clone(), reads };
            assert_eq!(transaction(request), Ok(expected));
        }
    }
}

#[test]
fn transactions_of_a_leader_name_its_fence() {
    let value = b"new".to_vec();
    let proclaim = txn(&[created(K, 9)], &[put(K, &value, 0x7b)], &[]);
    assert_eq!(transaction(proclaim), Ok(Transaction::Proclaim { at: at(K), fence: 9, value }));
    let resign = txn(&[created(K, 9)], &[del(K)], &[]);
    assert_eq!(transaction(resign), Ok(Transaction::Resign { key: K.to_vec(), fence: 9 }));
}

#[test]
fn transaction_of_a_release_names_the_value() {
    let (key, value) = (b"/locks/a".to_vec(), b"uuid".to_vec());
    let release = txn(&[valued(&key, &value)], &[del(&key)], &[]);
    assert_eq!(transaction(release), Ok(Transaction::ReleaseByValue { key, value }));
}

#[test]
fn other_transactions_are_refused() {
    let holder = || first_op(b"jobs/nightly/", b"jobs/nightly0");
    let other = || first_op(b"jobs/weekly/", b"jobs/weekly0");
    let options = PutRequest { key: K.to_vec(), lease: 0x7b, ignore_value: true, ..PutRequest::default() };
    let less = Compare { result: CompareResult::Less.into(), ..created(K, 0) };
    let several = Compare { range_end: b"jobs0".to_vec(), ..created(K, 0) };
    let by_mod = Compare {
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(1)),
        ..created(K, 0)
    };
    let mixed = Compare { target_union: Some(TargetUnion::Value(Vec::new())), ..created(K, 0) };
    let put_k = || put(K, b"", 0x7b);
    let refused = [
        TxnRequest::default(),
        txn(&[created(K, 0), created(K, 0)], &[put_k()], &[]),
        txn(&[created(K, 0)], &[], &[]),
        txn(&[created(K, 0)], &[put(b"other", b"", 0x7b)], &[]),
        txn(&[created(K, 0)], &[put_k(), put_k()], &[]),
        txn(&[created(K, 0)], &[put(K, b"", 0)], &[]),
        txn(&[created(K, 0)], &[op(Request::RequestPut(options))], &[]),
        txn(&[created(K, 0)], &[put_k()], &[get(b"other")]),
        txn(&[created(K, 0)], &[put_k(), other()], &[get(K), other()]),
        txn(&[created(K, 0)], &[put_k(), holder()], &[get(K)]),
        txn(&[created(K, 0)], &[put_k(), holder()], &[get(K), other()]),
        txn(&[created(K, 0)], &[holder(), put_k()], &[get(K), holder()]),
        txn(&[created(K, 0)], &[del(K)], &[]),
        txn(&[created(K, 9)], &[put(K, b"", 0x7c)], &[]),
        txn(&[created(K, 9)], &[put_k()], &[get(K)]),
        txn(&[created(K, 9)], &[get(K)], &[]),
        txn(&[created(K, -1)], &[put_k()], &[]),
        txn(&[less], &[put_k()], &[]),
        txn(&[several], &[put_k()], &[]),
        txn(&[by_mod], &[put_k()], &[]),
        txn(&[mixed], &[put_k()], &[]),
        txn(&[valued(K, b"x")], &[del(b"other")], &[]),
        txn(&[valued(K, b"x")], &[del(K)], &[get(K)]),
        txn(&[created(K, 0)], &[op(Request::RequestTxn(lock_txn()))], &[]),
        txn(&[created(K, 0)], &[RequestOp { request: None }], &[]),
    ];
    for request in refused {
        let shown = format!("{request:?}");
        let message = transaction(request).expect_err(&shown).message();
        assert!(message.starts_with("this is lockkeeper, which is not a key-value store"), "{message}");
    }
}

#[test]
fn reads_of_the_recipes_are_recognized() {
    let lock = b"jobs/nightly".to_vec();
    assert_eq!(read(one(K)), Ok(Read::Key(K.to_vec())));
    assert_eq!(read(RangeRequest { limit: 1, serializable: true, ..one(K) }), Ok(Read::Key(K.to_vec())));
    assert_eq!(read(first(b"jobs/nightly/", b"jobs/nightly0")), Ok(Read::First(lock.clone())));
    assert_eq!(read(first(b"jobs/nightly/\0", b"jobs/nightly0")), Ok(Read::First(lock.clone())), "node's");
    assert_eq!(read(before(b"jobs/nightly/", b"jobs/nightly0", 8)), Ok(Read::Before(lock.clone(), 9)));
    let all = i64::MAX;
    assert_eq!(read(before(b"jobs/nightly/", b"jobs/nightly0", all)), Ok(Read::Before(lock, all)));
}

#[test]
fn other_reads_are_refused() {
    let first = || first(b"a/", b"a0");
    let refused = [
        RangeRequest { limit: 2, ..one(K) },
        RangeRequest { revision: 7, ..one(K) },
        RangeRequest { keys_only: true, ..one(K) },
        RangeRequest { count_only: true, ..one(K) },
        RangeRequest { max_create_revision: 7, ..one(K) },
        RangeRequest { min_create_revision: 7, ..first() },
        RangeRequest { min_mod_revision: 7, ..first() },
        RangeRequest { max_mod_revision: 7, ..first() },
        RangeRequest { max_create_revision: 7, ..first() },
        RangeRequest { limit: 0, ..first() },
        RangeRequest { limit: 2, ..first() },
        RangeRequest { sort_target: SortTarget::Mod.into(), ..first() },
        RangeRequest { sort_order: SortOrder::None.into(), ..first() },
        RangeRequest { range_end: b"b".to_vec(), ..first() },
        RangeRequest { range_end: b"\0".to_vec(), ..first() },
        RangeRequest { key: b"a".to_vec(), range_end: b"b".to_vec(), ..first() },
        before(b"a/", b"a0", 0),
        before(b"a/", b"a0", -1),
    ];
    for request in refused {
        assert!(read(request.clone()).is_err(), "{request:?}");
    }
}

#[test]
fn deletions_of_one_key_are_recognized() {
    let key = K.to_vec();
    assert_eq!(delete(DeleteRangeRequest { key: key.clone(), ..Default::default() }), Ok(key.clone()));
    let range_end = b"jobs0".to_vec();
    assert!(delete(DeleteRangeRequest { key: key.clone(), range_end, prev_kv: false }).is_err());
    assert!(delete(DeleteRangeRequest { key, range_end: Vec::new(), prev_kv: true }).is_err());
}

#[test]
fn watches_of_the_recipes_are_recognized() {
    let all = |watched, start| WatchRequest { watched, start, puts: true, deletes: true };
    let create = |key: &[u8], start_revision| WatchCreateRequest {
        key: key.to_vec(),
        start_revision,
        ..WatchCreateRequest::default()
    };
    assert_eq!(watch(&create(K, 7)), Ok(all(Watched::Key(K.to_vec()), 7)));
    assert_eq!(watch(&create(K, -7)), Ok(all(Watched::Key(K.to_vec()), 0)));
    let prefix = WatchCreateRequest { range_end: b"a0".to_vec(), ..create(b"a/", 1) };
    assert_eq!(watch(&prefix), Ok(all(Watched::Holder(b"a".to_vec()), 1)));
    let filters = vec![FilterType::Noput.into()];
    let deletes = watch(&WatchCreateRequest { filters, ..create(K, 7) }).unwrap();
    assert_eq!((deletes.puts, deletes.deletes), (false, true));
    let filters = vec![FilterType::Nodelete.into(), 99];
    let puts = watch(&WatchCreateRequest { filters, ..create(K, 7) }).unwrap();
    assert_eq!((puts.puts, puts.deletes), (true, false));
    for range_end in [&b"\0"[..], b"b", b"a1"] {
        let several = WatchCreateRequest { range_end: range_end.to_vec(), ..create(b"a/", 1) };
        assert!(watch(&several).is_err(), "{range_end:?}");
    }
}
