//! The requests of etcd's client-side recipes for locks and elections, each as the clients send it: `KV` and `Watch`.
//! `scripts/etcd-recipes` runs the clients themselves.

mod support;

use lockkeeper_daemon::Limits;
use lockkeeper_etcd_api::etcdserverpb::compare::{CompareTarget, TargetUnion};
use lockkeeper_etcd_api::etcdserverpb::kv_client::KvClient;
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::range_request::{SortOrder, SortTarget};
use lockkeeper_etcd_api::etcdserverpb::request_op::Request as Operation;
use lockkeeper_etcd_api::etcdserverpb::response_op::Response as Reply;
use lockkeeper_etcd_api::etcdserverpb::watch_client::WatchClient;
use lockkeeper_etcd_api::etcdserverpb::watch_create_request::FilterType;
use lockkeeper_etcd_api::etcdserverpb::watch_request::RequestUnion;
use lockkeeper_etcd_api::etcdserverpb::*;
use lockkeeper_etcd_api::mvccpb::KeyValue;
use lockkeeper_etcd_api::mvccpb::event::EventType;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use support::{Daemons, Plan, TOKENS, post, soon, waiters};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// The bit that distinguishes a ticket from a fence.
const TICKET: i64 = 1 << 62;

#[derive(Clone)]
struct Client {
    channel: Channel,
    token: Option<&'static str>,
}

async fn connect(address: SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    Client { channel: endpoint.connect().await.expect("a connection"), token: None }
}

/// A transaction with one comparison of a create revision.
fn if_created(key: &str, revision: i64, success: Vec<Operation>, failure: Vec<Operation>) -> TxnRequest {
    let compare = Compare {
        target: CompareTarget::Create.into(),
        key: key.into(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    };
    txn(compare, success, failure)
}

fn txn(compare: Compare, success: Vec<Operation>, failure: Vec<Operation>) -> TxnRequest {
    let all = |list: Vec<Operation>| list.into_iter().map(|one| RequestOp { request: Some(one) }).collect();
    TxnRequest { compare: vec![compare], success: all(success), failure: all(failure) }
}

fn put(key: &str, value: &str, lease: i64) -> Operation {
    Operation::RequestPut(PutRequest { key: key.into(), value: value.into(), lease, ..Default::default() })
}

fn get(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..Default::default() }
}

fn first(name: &str) -> RangeRequest {
    RangeRequest {
        key: format!("{name}/").into(),
        range_end: format!("{name}0").into(),
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..Default::default()
    }
}

/// The read of the key for which a client with this revision waits.
fn before(name: &str, revision: i64) -> RangeRequest {
    RangeRequest { sort_order: SortOrder::Descend.into(), max_create_revision: revision - 1, ..first(name) }
}

fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.expect("a header").revision
}

/// The keys in the reply to one operation of a transaction.
fn keys(reply: &TxnResponse, index: usize) -> &[KeyValue] {
    match &reply.responses[index].response {
        Some(Reply::ResponseRange(range)) => &range.kvs,
        other => panic!("no range: {other:?}"),
    }
}

impl Client {
    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = self.token {
            request.metadata_mut().insert("token", token.parse().expect("plain text"));
        }
        request
    }

    async fn grant(&self, ttl: i64) -> i64 {
        let request = self.ask(LeaseGrantRequest { ttl, id: 0 });
        LeaseClient::new(self.channel.clone()).lease_grant(request).await.unwrap().into_inner().id
    }

    async fn revoke(&self, id: i64) {
        let request = self.ask(LeaseRevokeRequest { id });
        LeaseClient::new(self.channel.clone()).lease_revoke(request).await.unwrap();
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        Ok(KvClient::new(self.channel.clone()).txn(self.ask(request)).await?.into_inner())
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        Ok(KvClient::new(self.channel.clone()).range(self.ask(request)).await?.into_inner())
    }

    async fn delete(&self, key: &str) -> Result<i64, Status> {
        let request = DeleteRangeRequest { key: key.into(), ..Default::default() };
        Ok(KvClient::new(self.channel.clone()).delete_range(self.ask(request)).await?.into_inner().deleted)
    }

    /// The transaction of `Mutex.Lock` and `Mutex.TryLock`.
    async fn enqueue(&self, name: &str, lease: i64) -> Result<TxnResponse, Status> {
        let key = format!("{name}/{lease:x}");
        let holder = || Operation::RequestRange(first(name));
        let read = Operation::RequestRange(get(&key));
        self.txn(if_created(&key, 0, vec![put(&key, "", lease), holder()], vec![read, holder()])).await
    }

    /// The transaction of `Election.Campaign`.
    async fn campaign(&self, name: &str, lease: i64, value: &str) -> Result<TxnResponse, Status> {
        let key = format!("{name}/{lease:x}");
        let read = Operation::RequestRange(get(&key));
        self.txn(if_created(&key, 0, vec![put(&key, value, lease)], vec![read])).await
    }

    /// The transaction of python's `Lock.acquire`.
    async fn try_bare(&self, key: &str, lease: i64, value: &str) -> Result<TxnResponse, Status> {
        let read = Operation::RequestRange(get(key));
        self.txn(if_created(key, 0, vec![put(key, value, lease)], vec![read])).await
    }

    async fn watch(&self) -> Watches {
        let (requests, sent) = mpsc::channel(8);
        let request = self.ask(ReceiverStream::new(sent));
        let replies = WatchClient::new(self.channel.clone()).watch(request).await.unwrap().into_inner();
        Watches { requests, replies }
    }
}

/// A stream of watches.
struct Watches {
    requests: mpsc::Sender<WatchRequest>,
    replies: Streaming<WatchResponse>,
}

impl Watches {
    async fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        let request_union = Some(RequestUnion::CreateRequest(request));
        self.requests.send(WatchRequest { request_union }).await.unwrap();
        let reply = self.next().await;
        assert!(reply.created && reply.header.is_some(), "{reply:?}");
        reply
    }

    async fn watch(&mut self, key: &[u8], start_revision: i64) -> i64 {
        let request = WatchCreateRequest { key: key.to_vec(), start_revision, ..Default::default() };
        self.create(request).await.watch_id
    }

    async fn next(&mut self) -> WatchResponse {
        soon("a reply", self.replies.message()).await.unwrap().expect("the stream goes on")
    }

    /// The types and values of the events in the next reply.
    async fn events(&mut self) -> Vec<(EventType, String)> {
        let reply = self.next().await;
        assert!(!reply.canceled && reply.header.is_some(), "{reply:?}");
        let value = |kv: Option<&KeyValue>| String::from_utf8(kv.expect("a key").value.clone()).unwrap();
        reply.events.iter().map(|event| (event.r#type(), value(event.kv.as_ref()))).collect()
    }
}

fn deleted() -> Vec<(EventType, String)> {
    vec![(EventType::Delete, String::new())]
}

fn is_put(value: &str) -> Vec<(EventType, String)> {
    vec![(EventType::Put, String::from(value))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_waits_for_its_gate_and_gets_its_fence_with_the_grant() {
    let daemons = Daemons::start(3).await;
    let (one, two, three) = (
        connect(daemons.address(0)).await,
        connect(daemons.address(1)).await,
        connect(daemons.address(2)).await,
    );
    let (holder, waiter) = (one.grant(60).await, two.grant(60).await);
    let held = one.enqueue("a", holder).await.unwrap();
    let fence = revision(held.header.as_ref());
    assert!(held.succeeded && fence < TICKET);
    assert_eq!(keys(&held, 1)[0].create_revision, fence, "it is the owner");
    // The same request again, at another daemon.
    let again = three.enqueue("a", holder).await.unwrap();
    assert!(!again.succeeded);
    assert_eq!((keys(&again, 0)[0].create_revision, keys(&again, 1)[0].create_revision), (fence, fence));

    let queued = one.enqueue("a", waiter).await.unwrap();
    let ticket = revision(queued.header.as_ref());
    assert!(queued.succeeded && ticket == TICKET | waiter, "{ticket:x}");
    assert_ne!(keys(&queued, 1)[0].create_revision, ticket, "it is not the owner");
    let key = format!("a/{waiter:x}");
    assert_eq!(three.range(get(&key)).await.unwrap().kvs[0].create_revision, ticket);
    let gate = three.range(before("a", ticket)).await.unwrap();
    assert_eq!(revision(gate.header.as_ref()), 1);
    let gate = gate.kvs[0].key.clone();
    assert_eq!(one.range(get(std::str::from_utf8(&gate).unwrap())).await.unwrap().kvs.len(), 1);
    let (mut remote, mut local) = (three.watch().await, two.watch().await);
    remote.watch(&gate, 1).await;
    local.watch(&gate, 1).await;
    assert_eq!(one.delete(&format!("a/{holder:x}")).await.unwrap(), 1);
    assert_eq!((remote.events().await, local.events().await), (deleted(), deleted()));
    let turn = one.range(before("a", ticket)).await.unwrap();
    let next = revision(turn.header.as_ref());
    assert!(turn.kvs.is_empty() && next > fence && next < TICKET);
    assert_eq!(revision(three.range(get(&key)).await.unwrap().header.as_ref()), next);
    // A gate whose wait is over is deleted.
    remote.watch(&gate, 1).await;
    assert_eq!(remote.events().await, deleted());
    assert_eq!(two.delete(&key).await.unwrap(), 1);
    assert_eq!(two.delete(&key).await.unwrap(), 0);
    assert!(one.range(get(&key)).await.unwrap().kvs.is_empty());
    let error = one.range(before("a", ticket)).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "etcdserver: requested lease not found"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn place_in_the_queue_outlives_its_request_and_ends_with_its_key_or_its_lease() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let client = connect(at).await;
    let by_http = post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    let (leaves, ends, stays) = (client.grant(60).await, client.grant(60).await, client.grant(60).await);
    let mut tickets = Vec::new();
    for lease in [leaves, ends, stays] {
        let queued = client.enqueue("a", lease).await.unwrap();
        tickets.push(revision(queued.header.as_ref()));
    }
    waiters(at, "a", 3).await;
    assert_eq!(client.delete(&format!("a/{leaves:x}")).await.unwrap(), 1);
    client.revoke(ends).await;
    waiters(at, "a", 1).await;
    for ticket in &tickets[..2] {
        let error = client.range(before("a", *ticket)).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
    }
    let gate = client.range(before("a", tickets[2])).await.unwrap().kvs[0].key.clone();
    let mut watches = client.watch().await;
    watches.watch(&gate, 1).await;
    post(at, "/v1/locks/a/release", json!({ "hold": by_http["hold"] })).await.is(200);
    assert_eq!(watches.events().await, deleted());
    let turn = client.range(before("a", tickets[2])).await.unwrap();
    assert!(revision(turn.header.as_ref()) > by_http["fence"].as_i64().unwrap());
    post(at, "/v1/locks/a/acquire", json!({})).await.is(409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_is_answered_with_the_fence_and_observers_see_every_leader() {
    let daemons = Daemons::start(3).await;
    let (one, two) = (connect(daemons.address(0)).await, connect(daemons.address(1)).await);
    let (first_lease, second_lease) = (one.grant(60).await, two.grant(60).await);
    let nobody = one.range(first("a")).await.unwrap();
    assert!(nobody.kvs.is_empty() && revision(nobody.header.as_ref()) == 1);
    let mut leaders = two.watch().await;
    let prefix = WatchCreateRequest {
        key: b"a/".to_vec(),
        range_end: b"a0".to_vec(),
        start_revision: 1,
        ..Default::default()
    };
    leaders.create(prefix).await;
    let won = one.campaign("a", first_lease, "one").await.unwrap();
    let fence = revision(won.header.as_ref());
    assert!(won.succeeded && fence < TICKET);
    assert_eq!(leaders.events().await, is_put("one"));
    let leader = two.range(first("a")).await.unwrap().kvs[0].clone();
    assert_eq!((leader.create_revision, &leader.value[..]), (fence, &b"one"[..]));
    let own = two.range(before("a", fence)).await.unwrap();
    assert!(own.kvs.is_empty(), "the leader waits for no key");
    let again = two.campaign("a", first_lease, "other").await.unwrap();
    assert!(!again.succeeded && keys(&again, 0)[0].create_revision == fence);

    let mut observer = two.watch().await;
    observer.watch(&leader.key, leader.mod_revision + 1).await;
    let key = format!("a/{first_lease:x}");
    let changed =
        two.txn(if_created(&key, fence, vec![put(&key, "two", first_lease)], vec![])).await.unwrap();
    assert!(changed.succeeded && revision(changed.header.as_ref()) > fence);
    assert_eq!((observer.events().await, leaders.events().await), (is_put("two"), is_put("two")));
    let stale =
        two.txn(if_created(&key, fence - 1, vec![put(&key, "x", first_lease)], vec![])).await.unwrap();
    assert!(!stale.succeeded);

    let campaign = tokio::spawn({
        let two = two.clone();
        async move { two.campaign("a", second_lease, "next").await }
    });
    waiters(daemons.address(0), "a", 1).await;
    let delete =
        Operation::RequestDeleteRange(DeleteRangeRequest { key: key.clone().into(), ..Default::default() });
    let stale = one.txn(if_created(&key, fence + 1, vec![delete.clone()], vec![])).await.unwrap();
    assert!(!stale.succeeded);
    let resigned = one.txn(if_created(&key, fence, vec![delete], vec![])).await.unwrap();
    assert!(resigned.succeeded);
    assert_eq!(observer.events().await, deleted());
    let next = soon("the next leader", campaign).await.unwrap().unwrap();
    assert!(revision(next.header.as_ref()) > revision(changed.header.as_ref()));
    // Changes in quick succession may be reported together.
    let mut seen = leaders.events().await;
    while seen.len() < 2 {
        seen.extend(leaders.events().await);
    }
    assert_eq!(seen, [deleted(), is_put("next")].concat());
    let error = one.range(before("a", fence)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "it leads no longer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bare_key_is_a_lock_that_excludes_all_other_protocols() {
    let daemons = Daemons::start(3).await;
    let (one, two) = (connect(daemons.address(0)).await, connect(daemons.address(1)).await);
    let (lease, other) = (one.grant(60).await, two.grant(60).await);
    let held = one.try_bare("/locks/a", lease, "uuid-1").await.unwrap();
    let fence = revision(held.header.as_ref());
    assert!(held.succeeded);
    post(daemons.address(2), "/v1/locks/%2Flocks%2Fa/acquire", json!({})).await.is(409);
    for (client, lease) in [(&two, other), (&one, lease)] {
        let busy = client.try_bare("/locks/a", lease, "uuid-2").await.unwrap();
        assert!(!busy.succeeded, "also for the same lease");
        let kv = &keys(&busy, 0)[0];
        assert_eq!((&kv.value[..], kv.mod_revision), (&b"uuid-1"[..], fence));
    }
    let read = two.range(get("/locks/a")).await.unwrap();
    assert_eq!((&read.kvs[0].value[..], read.kvs[0].create_revision), (&b"uuid-1"[..], fence));
    let mut watches = two.watch().await;
    let filters = vec![FilterType::Noput.into()];
    let request = WatchCreateRequest {
        key: b"/locks/a".to_vec(),
        filters,
        start_revision: fence + 1,
        ..Default::default()
    };
    watches.create(request).await;
    let release = |value: &str| {
        let compare = Compare {
            target: CompareTarget::Value.into(),
            key: b"/locks/a".to_vec(),
            target_union: Some(TargetUnion::Value(value.into())),
            ..Compare::default()
        };
        let key = b"/locks/a".to_vec();
        txn(
            compare,
            vec![Operation::RequestDeleteRange(DeleteRangeRequest { key, ..Default::default() })],
            vec![],
        )
    };
    assert!(!two.txn(release("uuid-2")).await.unwrap().succeeded);
    assert!(two.txn(release("uuid-1")).await.unwrap().succeeded);
    assert_eq!(watches.events().await, deleted());
    assert!(!two.txn(release("uuid-1")).await.unwrap().succeeded);
    let by_http = post(daemons.address(2), "/v1/locks/%2Flocks%2Fa/acquire", json!({})).await.is(200);
    let busy = one.try_bare("/locks/a", lease, "uuid-3").await.unwrap();
    assert!(!busy.succeeded);
    assert_eq!(Some(keys(&busy, 0)[0].mod_revision), by_http["fence"].as_i64());
    assert!(by_http["fence"].as_i64() > Some(fence));
    // Without a start revision, a key that is not there is reported at once: python-etcd3 would miss the deletion.
    watches.watch(b"/locks/b", 0).await;
    assert_eq!(watches.events().await, deleted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_have_ids_and_are_cancelled_and_refused_with_a_reason() {
    let limits = Limits { watches: 2, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let client = connect(daemons.address(0)).await;
    let lease = client.grant(60).await;
    let held = client.enqueue("a", lease).await.unwrap();
    let (key, start) = (format!("a/{lease:x}"), revision(held.header.as_ref()) + 1);
    let mut watches = client.watch().await;
    assert_eq!(watches.watch(key.as_bytes(), start).await, 0);
    let same = WatchCreateRequest {
        key: key.clone().into(),
        start_revision: start,
        watch_id: 7,
        ..Default::default()
    };
    assert_eq!(watches.create(same.clone()).await.watch_id, 7);
    let too_many = watches.create(WatchCreateRequest { watch_id: 8, ..same.clone() }).await;
    assert!(too_many.canceled && too_many.watch_id == -1);
    assert!(too_many.cancel_reason.contains("watches"), "{}", too_many.cancel_reason);
    let in_use = watches.create(same.clone()).await;
    assert!(in_use.canceled && in_use.cancel_reason.contains("in use"), "{}", in_use.cancel_reason);
    let several = WatchCreateRequest { range_end: b"\0".to_vec(), ..same };
    let refused = watches.create(several).await;
    assert!(refused.canceled && refused.cancel_reason.contains("not a key-value store"), "{refused:?}");
    let cancel = RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 7 });
    watches.requests.send(WatchRequest { request_union: Some(cancel) }).await.unwrap();
    let canceled = watches.next().await;
    assert!(canceled.canceled && canceled.watch_id == 7 && canceled.cancel_reason.is_empty());
    client.delete(&key).await.unwrap();
    assert_eq!(watches.events().await, deleted(), "the other watch goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipes_need_the_rights_of_the_token() {
    let daemons = Daemons::start_with(1, Plan { tokens: Some(TOKENS), ..Plan::default() }).await;
    let client = Client { token: Some("secret"), ..connect(daemons.address(0)).await };
    let admin = Client { token: Some("test"), ..client.clone() };
    let lease = client.grant(60).await;
    assert!(client.enqueue("ci/a", lease).await.unwrap().succeeded);
    let denied = |result: Result<TxnResponse, Status>| result.unwrap_err().code() == Code::PermissionDenied;
    assert!(denied(client.enqueue("cd/a", lease).await));
    assert!(denied(client.campaign("cd/a", lease, "x").await));
    assert!(denied(client.try_bare("cd", lease, "x").await));
    assert_eq!(client.range(first("cd/a")).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(client.delete("cd/a").await.unwrap_err().code(), Code::PermissionDenied);
    assert!(client.range(get("health")).await.unwrap().kvs.is_empty(), "etcdctl endpoint health");
    let mut watches = client.watch().await;
    watches.watch(b"cd", 1).await;
    let refused = watches.next().await;
    assert!(refused.canceled && refused.cancel_reason.contains("permission denied"), "{refused:?}");
    let others = admin.grant(60).await;
    assert!(denied(client.enqueue("ci/b", others).await), "a lease of another token");
    let no_lease = client.enqueue("ci/b", 12345).await.unwrap_err();
    assert_eq!(no_lease.message(), "etcdserver: requested lease not found");
    let grants = || daemons.audit().into_iter().filter(|entry| entry["what"] == "grant").count();
    // The log is written with a delay.
    while grants() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(grants(), 1, "{:?}", daemons.audit());
}
