//! Names, owners and acquisitions of other prefixes are not revealed.

use super::native::Client;
use super::{A, B, ROOT, start, with};
use crate::support::{get, waiters_with};
use lockkeeper_session::protocol::{DaemonQuery, DaemonReply};
use serde_json::{Value, json};
use std::net::SocketAddr;

async fn session(at: SocketAddr, owner: &str) -> Value {
    let made =
        with(ROOT, at, "POST", "/v1/sessions", Some(json!({ "owner": owner, "ttl_ms": 600_000 }))).await;
    made.is(201)["session"].clone()
}

async fn acquire(at: SocketAddr, name: &str, session: &Value, wait_ms: u64) {
    let path = format!("/v1/locks/{}/acquire", name.replace('/', "%2F"));
    let body = json!({ "session": session, "wait_ms": wait_ms });
    if wait_ms == 0 {
        with(ROOT, at, "POST", &path, Some(body)).await.is(200);
    } else {
        tokio::spawn(async move { with(ROOT, at, "POST", &path, Some(body)).await });
    }
}

/// `waiter` waits for `a/x`, which `middle` holds, which waits for `b/secret`, which `hidden` holds.
async fn chain(at: SocketAddr) {
    let (waiter, middle, hidden) =
        (session(at, "waiter").await, session(at, "middle").await, session(at, "hidden").await);
    acquire(at, "a/x", &middle, 0).await;
    acquire(at, "b/secret", &hidden, 0).await;
    acquire(at, "a/x", &waiter, 600_000).await;
    acquire(at, "b/secret", &middle, 600_000).await;
    waiters_with(ROOT, at, "a%2Fx", 1).await;
    waiters_with(ROOT, at, "b%2Fsecret", 1).await;
}

async fn acquisition_of(at: SocketAddr, path: &str, role: &str) -> String {
    let seen = with(ROOT, at, "GET", path, None).await.is(200);
    seen[role][0]["acquisition"].as_str().expect("an acquisition").into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_why_names_only_locks_that_the_token_may_see() {
    let daemons = start(1).await;
    let at = daemons.address(0);
    chain(at).await;
    let why = async |token: &str| {
        let identity = token.len() as u64 + u64::from(token.as_bytes()[0]);
        let mut client = Client::connect(daemons.native(0), identity, token).await.expect("welcome");
        match client.ask(DaemonQuery::Why("a/x".into())).await {
            DaemonReply::Why(sentences) => sentences.join("\n"),
            other => panic!("{other:?}"),
        }
    };
    let all = why(ROOT).await;
    assert!(all.contains("b/secret") && all.contains("hidden"), "{all}");
    let some = why(A).await;
    assert!(some.contains("a/x") && some.contains("waiter") && some.contains("middle"), "{some}");
    for foreign in ["b/secret", "hidden", &acquisition_of(at, "/v1/locks/b%2Fsecret", "holders").await] {
        assert!(!some.contains(foreign), "{foreign} is in: {some}");
    }
    let mut b = Client::connect(daemons.native(0), 4, B).await.expect("welcome");
    assert!(matches!(b.ask(DaemonQuery::Why("a/x".into())).await, DaemonReply::Refused(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_why_shows_no_acquisition_of_a_lock_that_the_token_may_not_see() {
    let daemons = start(1).await;
    let at = daemons.address(0);
    chain(at).await;
    let some = with(A, at, "GET", "/v1/locks/a%2Fx/why", None).await.is(200).to_string();
    assert!(some.contains("a/x"), "{some}");
    let secret = "/v1/locks/b%2Fsecret";
    let foreign = [acquisition_of(at, secret, "holders").await, acquisition_of(at, secret, "waiters").await];
    for foreign in &foreign {
        assert!(!some.contains(foreign.as_str()), "{foreign} is in: {some}");
    }
    // Nor can it be queried by an acquisition that does not wait for the lock.
    let path =
        format!("/v1/locks/a%2Fx/why?acquisition={}", foreign[1].replace('#', "%23").replace('/', "%2F"));
    let asked = with(A, at, "GET", &path, None).await.is(200);
    assert_eq!(asked["chain"], json!([]), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_prefixes_of_locks_only_to_tokens_that_may_see_them() {
    let daemons = start(1).await;
    let at = daemons.address(0);
    for (token, path) in [(A, "/v1/locks/a%2Fx/acquire"), (B, "/v1/locks/b%2Fx/acquire")] {
        with(token, at, "POST", path, Some(json!({}))).await.is(200);
    }
    let line = |name: &str| format!("lockkeeper_daemon_wait_seconds_count{{prefix=\"{name}\"}} 1");
    let shows = |text: &str| (text.contains(&line("a")), text.contains(&line("b")));
    let open = get(at, "/metrics").await;
    assert_eq!(open.status, 200);
    assert!(
        open.text.contains("lockkeeper_entries_total 2") && !open.text.contains("prefix="),
        "{}",
        open.text
    );
    assert!(open.text.ends_with("# EOF\n"));
    let a = with(A, at, "GET", "/metrics", None).await;
    assert_eq!(shows(&a.text), (true, false), "{}", a.text);
    assert!(a.text.contains("lockkeeper_entries_total 2") && a.text.ends_with("# EOF\n"));
    assert_eq!(a.text.matches("# EOF").count(), 1);
    assert_eq!(shows(&with(ROOT, at, "GET", "/metrics", None).await.text), (true, true));
    assert_eq!(with("wrong", at, "GET", "/metrics", None).await.status, 401);
}
