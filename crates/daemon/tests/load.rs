//! Load of one client costs no other client its locks: lists, watch streams, sessions, names.

mod support;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockkeeper_cluster::HoldGuard;
use lockkeeper_daemon::{Limits, PerPrincipal};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use support::{Daemons, Plan, ask, get, post, request, session, soon, until};
use tokio::net::TcpStream;

/// The resident memory of this process, in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
}

/// The value of a counter of the daemon.
async fn counter(at: SocketAddr, name: &str) -> u64 {
    let text = get(at, "/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().expect("a number")
}

/// Holds `count` locks through the member of a daemon.
async fn hold(daemons: &Daemons, place: usize, prefix: &str, count: usize, purpose: &str) -> Vec<HoldGuard> {
    let member = daemons.all[place].member();
    let mut guards = Vec::with_capacity(count);
    for number in 0..count {
        let request = member.mutex(format!("{prefix}{number:05}")).owner("holder").purpose(purpose);
        guards.push(soon("a free lock", request.acquire()).await.expect("it is free"));
    }
    guards
}

type Sender = SendRequest<Empty<Bytes>>;

async fn http2(at: SocketAddr) -> Sender {
    let stream = TcpStream::connect(at).await.expect("the daemon listens");
    let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = connecting.await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn send(sender: &mut Sender, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://localhost{path}")).body(Empty::new()).expect("a request");
    soon("a response", sender.send_request(request)).await.expect("a response")
}

/// The next event of a stream.
async fn event(body: &mut Incoming, unread: &mut String) -> Value {
    loop {
        if let Some((event, rest)) = unread.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ").map(String::from));
            *unread = String::from(rest);
            if let Some(data) = data {
                return serde_json::from_str(&data).expect("JSON");
            }
            continue;
        }
        let frame = soon("an event", body.frame()).await.expect("the stream goes on").expect("a frame");
        *unread += std::str::from_utf8(frame.data_ref().expect("data")).expect("text");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_watches_of_20_000_locks_cost_no_hold_and_little_memory() {
    // The timeout for clients that do not read is longer than the test.
    let limits = Limits { request_timeout_ms: 100_000, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, times: Some(2), ..Plan::default() }).await;
    let at = daemons.address(0);
    let guards = hold(&daemons, 0, "many/", 20_000, "a purpose that is not short").await;
    let id = session(at, 600_000).await;
    post(at, "/v1/locks/other/acquire", json!({ "session": id })).await.is(200);
    let before = memory();
    let mut sender = http2(at).await;
    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(send(&mut sender, "/v1/watch").await);
    }
    // A client that reads sees all changes, while the others do not read.
    let mut reads = http2(at).await;
    let mut body = send(&mut reads, "/v1/watch?prefix=new").await.into_body();
    let mut unread = String::new();
    for round in 0..5 {
        let name = format!("new{round}");
        let held = post(at, &format!("/v1/locks/{name}/acquire"), json!({})).await.is(200);
        let shown = event(&mut body, &mut unread).await;
        assert_eq!((&shown["name"], &shown["holders"][0]["fence"]), (&json!(name), &held["fence"]));
        // This change has also woken all other streams, which had time to process it.
        let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
        assert_eq!(alive["lost"], json!([]));
    }
    let taken = memory().saturating_sub(before);
    assert!(taken < 256 << 20, "{} MB for 51 watches", taken >> 20);
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost");
    // Each of the others is shown all locks, once it reads. All streams share the window of their connection, so the
    // unread ones have to end first.
    let mut first = watches.pop().expect("a stream").into_body();
    drop(watches);
    let mut unread = String::new();
    let shown = event(&mut first, &mut unread).await;
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_lists_at_once_share_a_few_readings_of_the_table() {
    let limits = Limits { request_timeout_ms: 100_000, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, times: Some(2), ..Plan::default() }).await;
    let at = daemons.address(0);
    let guards = hold(&daemons, 0, "many/", 2_000, "").await;
    let id = session(at, 600_000).await;
    post(at, "/v1/locks/other/acquire", json!({ "session": id })).await.is(200);
    // At most four reads of one connection are answered at a time.
    let mut senders = Vec::new();
    for _ in 0..50 {
        senders.push(http2(at).await);
    }
    let before = counter(at, "lockkeeper_daemon_snapshots_total").await;
    let lists: Vec<_> = (0..200)
        .map(|number| {
            let mut sender = senders[number % senders.len()].clone();
            tokio::spawn(async move {
                let body = send(&mut sender, "/v1/locks").await.into_body();
                soon("the list", body.collect()).await.expect("all of it").to_bytes()
            })
        })
        .collect();
    let mut last = Bytes::new();
    for list in lists {
        last = list.await.expect("no panic");
        assert!(last.starts_with(b"[{") && last.ends_with(b"}]"));
    }
    let list: Vec<Value> = serde_json::from_slice(&last).expect("JSON");
    assert_eq!(list.len(), 2_001);
    let readings = counter(at, "lockkeeper_daemon_snapshots_total").await - before;
    assert!((1..=50).contains(&readings), "{readings} readings of the table for 200 lists");
    let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert_eq!(alive["lost"], json!([]));
    assert!(guards.iter().all(HoldGuard::is_valid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_contains_locks_granted_before_the_request() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    for number in 0..50 {
        let lists = tokio::spawn(get(at, "/v1/locks"));
        post(at, &format!("/v1/locks/{number}/acquire"), json!({})).await.is(200);
        let list = get(at, "/v1/locks").await.is(200);
        assert_eq!(list.as_array().map(Vec::len), Some(number + 1));
        lists.await.expect("no panic").is(200);
    }
}

/// All names of a list that is read page by page, and the number of pages.
async fn names(at: SocketAddr, first: &str) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut path) = (Vec::new(), 0, String::from(first));
    loop {
        let page = get(at, &path).await;
        pages += 1;
        let link = page.headers.get("link").map(|link| link.to_str().expect("ASCII").to_owned());
        assert_eq!(link.is_some(), page.headers.contains_key("lockkeeper-left-out"));
        let list = page.is(200);
        let found =
            list.as_array().expect("a list").iter().map(|lock| lock["name"].as_str().expect("a name"));
        names.extend(found.map(String::from));
        let Some(link) = link else { return (names, pages) };
        path = link.split(['<', '>']).nth(1).expect("an address").to_owned();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_list_is_complete_and_its_last_lock_can_be_released_by_force() {
    // A list above the memory limit is read in several chunks.
    let short = Limits { list_bytes: 1 << 20, ..Limits::default() };
    for (limits, pages) in [(Limits::default(), 1), (short, 2)] {
        let daemons = Daemons::start_with(2, Plan { limits, ..Plan::default() }).await;
        let at = daemons.address(1);
        // More than fits into one reply between members.
        let guards = hold(&daemons, 0, "many/", 6_000, &"x".repeat(1_000)).await;
        let expected: Vec<String> = (0..6_000).map(|number| format!("many/{number:05}")).collect();
        let found = names(at, "/v1/locks").await;
        assert_eq!((found.0.len(), found.1), (6_000, pages));
        assert!(found.0 == expected);
        let one = get(at, "/v1/locks/many%2F05999").await.is(200);
        assert_eq!(one["holders"].as_array().map(Vec::len), Some(1));
        let released = post(at, "/v1/locks/many%2F05999/force-release", json!({})).await.is(200);
        assert_eq!(released["released"].as_array().map(Vec::len), Some(1));
        until("it is lost", || async { !guards[5_999].is_valid() }).await;
        assert!(guards[..5_999].iter().all(HoldGuard::is_valid));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_read_page_by_page() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let _guards = hold(&daemons, 0, "a/ü&=%", 50, "").await;
    let _others = hold(&daemons, 0, "b/", 5, "").await;
    let expected: Vec<String> = (0..50).map(|number| format!("a/ü&=%{number:05}")).collect();
    assert_eq!(names(at, "/v1/locks?prefix=a/&limit=20").await, (expected.clone(), 3));
    assert_eq!(names(at, "/v1/locks?limit=1000").await.0.len(), 55);
    assert_eq!(names(at, "/v1/locks?limit=50&prefix=a/").await, (expected, 1), "exactly one page");
    assert_eq!(get(at, "/v1/locks?limit=0").await.status, 400);
    assert_eq!(get(at, "/v1/locks?limit=x").await.status, 400);
}

/// Three tenants, one of which may only observe.
const TENANTS: &str = r#"
[[token]]
name = "greedy"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
acquire = ["greedy/"]
[[token]]
name = "other"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"
acquire = ["other/"]
[[token]]
name = "looks"
sha256 = "4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2"  # of "root"
observe = [""]
"#;

async fn by(at: SocketAddr, token: &str, method: &str, path: &str, body: Option<Value>) -> support::Answer {
    let mut request = request(method, path, body.as_ref());
    let token = format!("Bearer {token}").parse().expect("a header");
    request.headers_mut().insert("authorization", token);
    soon(path, ask(at, request)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_uses_up_its_share_leaves_sessions_and_names_to_others() {
    let own = PerPrincipal { names: Some(5), ..PerPrincipal::default() };
    let limits = Limits { sessions: 60, per_principal: own, ..Limits::default() };
    let plan = Plan { limits, tokens: Some(TENANTS), ..Plan::default() };
    let daemons = Daemons::start_with(1, plan).await;
    let at = daemons.address(0);
    let make = |token: &'static str| by(at, token, "POST", "/v1/sessions", Some(json!({})));
    let mut made = Vec::new();
    let refused = loop {
        let answer = make("secret").await;
        if answer.status != 201 {
            break answer.is(429);
        }
        made.push(answer.json()["session"].clone());
        assert!(made.len() <= 60, "it may not get all sessions");
    };
    assert_eq!(made.len(), 30);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("`greedy`") && message.contains("limits.sessions"), "{message}");
    // A third of the limit minus one: the last session is for the lock below.
    for _ in 0..19 {
        make("test").await.is(201);
    }
    // Then the names.
    let acquire = async |token: &'static str, lock: String| {
        let path = format!("/v1/locks/{}/acquire", lock.replace('/', "%2F"));
        by(at, token, "POST", &path, Some(json!({ "session": made[0] }))).await
    };
    for number in 0..5 {
        acquire("secret", format!("greedy/{number}")).await.is(200);
    }
    let refused = acquire("secret", String::from("greedy/5")).await.is(429);
    assert!(
        refused["message"].as_str().is_some_and(|text| text.contains("per_principal.names")),
        "{refused}"
    );
    let lock = json!({ "ttl_ms": 60_000 });
    by(at, "test", "POST", "/v1/locks/other%2F1/acquire", Some(lock)).await.is(200);
    assert!(counter(at, "lockkeeper_daemon_refused_total{reason=\"names\"}").await >= 1);
    assert!(counter(at, "lockkeeper_daemon_refused_total{reason=\"sessions\"}").await >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_without_acquire_rights_gets_no_session() {
    let daemons = Daemons::start_with(1, Plan { tokens: Some(TENANTS), ..Plan::default() }).await;
    let at = daemons.address(0);
    let refused = by(at, "root", "POST", "/v1/sessions", Some(json!({}))).await.is(403);
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("`looks`")), "{refused}");
    by(at, "root", "GET", "/v1/locks", None).await.is(200);
    assert_eq!(by(at, "root", "GET", "/v1/status", None).await.is(200)["sessions"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_streams_of_a_connection_and_of_a_principal_are_limited() {
    let own = PerPrincipal { watches: Some(3), ..PerPrincipal::default() };
    let limits = Limits { watches_per_connection: 2, per_principal: own, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let at = daemons.address(0);
    let (mut one, mut two) = (http2(at).await, http2(at).await);
    let mut streams = Vec::new();
    for (sender, expected) in [(&mut one, [200, 200, 429]), (&mut two, [200, 429, 429])] {
        for status in expected {
            let response = send(sender, "/v1/watch").await;
            assert_eq!(response.status(), status);
            streams.push(response);
        }
    }
    drop((streams, one));
    until("the streams end", || async {
        let response = send(&mut two.clone(), "/v1/watch").await;
        response.status() == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_of_the_threads_that_serve_clients_costs_no_hold() {
    let slow = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    // Leaked: a runtime must not be dropped on a thread of another one.
    let slow: &'static tokio::runtime::Runtime = Box::leak(Box::new(slow.expect("a runtime")));
    let plan = Plan { elsewhere: Some((1, slow.handle().clone())), times: Some(2), ..Plan::default() };
    let mut daemons = Daemons::start_with(3, plan).await;
    let at = daemons.address(1);
    let id = session(at, 600_000).await;
    let held = post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    // Longer than the lease, and longer than the time after which other members exclude this one.
    let stall = daemons.all[1].member().lease() * 3 + Duration::from_secs(1);
    let (stalls, stalled) = tokio::sync::oneshot::channel();
    slow.spawn(async move {
        let _ = stalls.send(());
        std::thread::sleep(stall);
    });
    soon("the stall", stalled).await.expect("it runs");
    let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert_eq!(alive["lost"], json!([]), "after {stall:?}");
    let again = post(at, "/v1/locks/a/release", json!({ "hold": held["hold"] })).await.is(200);
    assert_eq!(again["released"], true);
    let stopped = daemons.all.remove(1);
    soon("the end", slow.spawn(stopped.stop())).await.expect("no panic");
}
