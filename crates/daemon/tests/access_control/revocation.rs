//! Connections, sessions and requests follow their token: they end when it is removed or expires, and lose rights
//! that it loses.

use super::native::Client;
use super::{A, B, ROOT, TENANTS, change_tokens, start, start_with_long_leases, with, without};
use crate::support::{Daemons, soon, until, waiters_with};
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest};
use lockkeeper_etcd_api::v3electionpb::LeaderRequest;
use lockkeeper_etcd_api::v3electionpb::election_client::ElectionClient;
use lockkeeper_etcd_api::v3lockpb::LockRequest;
use lockkeeper_etcd_api::v3lockpb::lock_client::LockClient;
use lockkeeper_session::protocol::FromDaemon;
use lockkeeper_session::{Ended, ToClient};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

/// Opens a stream of `/v1/watch` and reads until the first event is there.
async fn watch(at: SocketAddr, token: &str, prefix: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).await.expect("the daemon listens");
    let asked = format!(
        "GET /v1/watch?prefix={prefix} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.expect("written");
    let mut text = String::new();
    while !text.contains("event: lock") {
        let mut bytes = [0; 4096];
        let length = soon("an event", stream.read(&mut bytes)).await.expect("more");
        assert!(length > 0, "the stream ended: {text}");
        text += &String::from_utf8_lossy(&bytes[..length]);
    }
    stream
}

/// Reads a stream to its end.
async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = soon("the end of the stream", stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn channel(at: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{at}")).expect("an address").connect().await.expect("a connection")
}

fn as_b<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("token", B.parse().expect("text"));
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_connection_ends_when_its_token_is_removed() {
    let daemons = start(1).await;
    let mut client = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    client.open().await;
    client.acquire(1, "b/x").await;
    let mut other = Client::connect(daemons.native(0), 6, A).await.expect("welcome");
    change_tokens(&daemons, &without("b"));
    client.rest().await;
    assert_eq!(
        Client::connect(daemons.native(0), 5, B).await.err().expect("refused"),
        "a valid token is needed"
    );
    // Other clients are still served.
    other.open().await;
    let at = daemons.address(0);
    until("the hold ends with its session", || async {
        let seen = with(ROOT, at, "GET", "/v1/locks/b%2Fx", None).await.is(200);
        seen["holders"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_stream_ends_when_its_token_is_removed() {
    let daemons = start(1).await;
    let at = daemons.address(0);
    with(B, at, "POST", "/v1/locks/b%2Fx/acquire", Some(json!({}))).await.is(200);
    let stream = watch(at, B, "b/").await;
    change_tokens(&daemons, &without("b"));
    rest(stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_http_request_and_session_end_when_their_token_is_removed() {
    let daemons = start(2).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let held = with(ROOT, at, "POST", "/v1/locks/b%2Fx/acquire", Some(json!({}))).await.is(200);
    assert!(held["fence"].as_u64().is_some());
    let own = with(B, at, "POST", "/v1/sessions", Some(json!({ "ttl_ms": 600_000 }))).await.is(201);
    let body = json!({ "session": own["session"] });
    with(B, at, "POST", "/v1/locks/b%2Fy/acquire", Some(body)).await.is(200);
    // One request waits at the daemon where its session lives, and one through another daemon.
    let wait = |at: SocketAddr| {
        let body = json!({ "session": own["session"], "wait_ms": 80_000_000 });
        tokio::spawn(async move { with(B, at, "POST", "/v1/locks/b%2Fx/acquire", Some(body)).await })
    };
    let waits = [wait(at), wait(other)];
    waiters_with(ROOT, at, "b%2Fx", 2).await;
    change_tokens(&daemons, &without("b"));
    for waiting in waits {
        let answer = soon("an answer", waiting).await.expect("no panic");
        assert!([401, 403, 404].contains(&answer.status.as_u16()), "{answer:?}");
    }
    until("the session ends, and its hold", || async {
        let seen = with(ROOT, at, "GET", "/v1/locks/b%2Fy", None).await.is(200);
        seen["holders"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_streams_and_waits_end_when_their_token_is_removed() {
    let daemons = start(1).await;
    let at = daemons.address(0);
    with(ROOT, at, "POST", "/v1/locks/b%2Fx/acquire", Some(json!({}))).await.is(200);
    let channel = channel(at).await;
    let mut leases = LeaseClient::new(channel.clone());
    let lease = leases.lease_grant(as_b(LeaseGrantRequest { ttl: 600, id: 0 })).await.expect("a lease");
    let lease = lease.into_inner().id;
    let mut locks = LockClient::new(channel.clone());
    let wait = tokio::spawn(async move { locks.lock(as_b(LockRequest { name: "b/x".into(), lease })).await });
    waiters_with(ROOT, at, "b%2Fx", 1).await;
    let observed = ElectionClient::new(channel).observe(as_b(LeaderRequest { name: "b/x".into() })).await;
    let mut observed = observed.expect("a stream").into_inner();
    // A client that keeps its stream open and sends nothing while the token is removed.
    let (signs, receiver) = tokio::sync::mpsc::channel(1);
    signs.send(LeaseKeepAliveRequest { id: lease }).await.expect("sent");
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut alive = leases.lease_keep_alive(as_b(stream)).await.expect("a stream").into_inner();
    assert_eq!(alive.message().await.expect("an answer").expect("an answer").ttl, 600);
    change_tokens(&daemons, &without("b"));
    let waited = soon("an answer", wait).await.expect("no panic").expect_err("refused");
    assert!([Code::Unauthenticated, Code::NotFound].contains(&waited.code()), "{waited:?}");
    let ended =
        soon("the end of the keep-alives", async { while let Ok(Some(_)) = alive.message().await {} });
    ended.await;
    soon("the end of the observation", async { while let Ok(Some(_)) = observed.message().await {} }).await;
    drop(signs);
}

/// A token that expires while its client is connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_connection_ends_when_its_token_expires() {
    let daemons = start(1).await;
    let mut client = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    client.open().await;
    // Late enough that the file is reloaded before, so that the connection has its new principal.
    let soon = std::time::SystemTime::now() + Duration::from_secs(4);
    let soon = time::OffsetDateTime::from(soon);
    let (date, clock) = (soon.date(), soon.time());
    let expires = format!("{date}T{:02}:{:02}:{:02}Z", clock.hour(), clock.minute(), clock.second());
    let line = "acquire = [\"b/\"]";
    change_tokens(&daemons, &TENANTS.replace(line, &format!("{line}\nexpires = {expires}")));
    client.rest().await;
    assert_eq!(
        Client::connect(daemons.native(0), 5, B).await.err().expect("refused"),
        "a valid token is needed"
    );
}

/// A client whose token loses rights stays connected, and loses the holds and waits that they no longer cover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_loses_locks_that_its_narrowed_token_does_not_cover() {
    let daemons = start_with_long_leases(1).await;
    let at = daemons.address(0);
    with(ROOT, at, "POST", "/v1/locks/b%2Fheld/acquire", Some(json!({ "ttl_ms": 600_000 }))).await.is(200);
    with(B, at, "POST", "/v1/locks/b%2Fkeep%2Fhttp/acquire", Some(json!({ "ttl_ms": 600_000 })))
        .await
        .is(200);
    with(B, at, "POST", "/v1/locks/b%2Fhttp/acquire", Some(json!({ "ttl_ms": 600_000 }))).await.is(200);
    let mut client = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    client.open().await;
    client.acquire(1, "b/keep/native").await;
    client.acquire(2, "b/native").await;
    client.request(3, "b/held").await;
    waiters_with(ROOT, at, "b%2Fheld", 1).await;
    let stream = watch(at, B, "b/native").await;
    change_tokens(&daemons, &TENANTS.replace("acquire = [\"b/\"]", "acquire = [\"b/keep/\"]"));
    // The first message about each acquisition.
    let mut ended = BTreeMap::new();
    while ended.len() < 2 {
        let (number, how) = match client.next().await {
            Some(FromDaemon::Session(_, ToClient::Ended { number, outcome: how })) => (number, how),
            Some(FromDaemon::Refuse { number, .. }) => (number, Ended::Refused),
            Some(_) => continue,
            None => panic!("the connection ended: {ended:?}"),
        };
        ended.entry(number).or_insert(how);
    }
    assert_eq!(ended, [(2, Ended::Revoked), (3, Ended::Refused)].into());
    // The client can no longer see the lock.
    drop(stream);
    assert_eq!(with(B, at, "GET", "/v1/locks/b%2Fnative", None).await.status, 403);
    client.send_to_member(lockkeeper_session::ToMember::Release { number: 2 }).await;
    let left = ["b/held", "b/keep/http", "b/keep/native"];
    soon("the other locks are free", async {
        while held(&daemons).await != left {
            // The remaining session is kept alive meanwhile.
            client.keep_alive(false).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The locks that are held.
async fn held(daemons: &Daemons) -> Vec<String> {
    let locks = with(ROOT, daemons.address(0), "GET", "/v1/locks", None).await.is(200);
    let locks = locks.as_array().expect("a list");
    let held = locks.iter().filter(|lock| lock["holders"].as_array().is_some_and(|all| !all.is_empty()));
    held.filter_map(|lock| lock["name"].as_str().map(String::from)).collect()
}
