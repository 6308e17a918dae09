//! Requests that are forwarded to the home of their session: each hold that is left belongs to a client that has
//! received it.

mod support;

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use support::{Daemons, Plan, post, request, session, soon, until, waiters};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request on a connection of its own, which the caller can abandon.
struct PendingRequest(TcpStream);

impl PendingRequest {
    async fn begin(at: SocketAddr, path: &str, body: &Value) -> Self {
        let mut stream = TcpStream::connect(at).await.expect("the daemon listens");
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        let asked = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(asked.as_bytes()).await.expect("written");
        Self(stream)
    }

    /// Closes its half of the connection.
    async fn half_closed(mut self) -> Self {
        let _ = self.0.shutdown().await;
        self
    }

    /// Closes its half of the connection. Returns the reply that arrived nevertheless, which is empty if the server
    /// noticed in time.
    async fn leave(self) -> String {
        let mut stream = self.half_closed().await.0;
        let mut answer = Vec::new();
        let _ = soon("the end of the connection", stream.read_to_end(&mut answer)).await;
        String::from_utf8(answer).expect("text")
    }
}

/// Whether the lock can be acquired at this daemon. It is released again.
async fn is_free(at: SocketAddr, name: &str) -> bool {
    let answer = post(at, &format!("/v1/locks/{name}/acquire"), json!({})).await;
    if answer.status != 200 {
        return false;
    }
    let release = json!({ "hold": answer.json()["hold"] });
    post(at, &format!("/v1/locks/{name}/release"), release).await.is(200);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_whose_client_left_before_the_answer_is_released_at_its_home() {
    let daemons = Daemons::start(3).await;
    let (relay, home) = (daemons.address(0), daemons.address(1));
    let id = session(home, 600_000).await;
    let (mut answered, mut unanswered) = (0, 0);
    for number in 0..80_u64 {
        let name = format!("lock{number}");
        let path = format!("/v1/locks/{name}/acquire");
        let held = post(home, &path, json!({})).await.is(200);
        let pending =
            PendingRequest::begin(relay, &path, &json!({ "session": id, "wait_ms": 1_000_000 })).await;
        waiters(home, &name, 1).await;
        // The client disconnects at about the time of its grant: a little earlier, or a little later. On a fast machine
        // the reply is always earlier, so that some clients disconnect before the lock is released.
        let pending = if number % 8 == 0 { pending.half_closed().await } else { pending };
        let leaves = async {
            tokio::time::sleep(Duration::from_micros(100 * (number % 40))).await;
            pending.leave().await
        };
        let release = json!({ "hold": held["hold"] });
        let path = format!("/v1/locks/{name}/release");
        let (answer, released) = tokio::join!(leaves, post(home, &path, release));
        released.is(200);
        if answer.starts_with("HTTP/1.1 200") {
            // The hold was delivered, so it belongs to the client.
            answered += 1;
            continue;
        }
        unanswered += 1;
        until("the lock is free again", || is_free(home, &name)).await;
    }
    println!("{answered} were answered, {unanswered} were not");
    assert!(unanswered > 0, "every reply came before the server noticed that the client had left");
    // The session itself continues.
    post(relay, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_that_is_granted_as_the_relaying_daemon_dies_is_reported_or_released() {
    let mut daemons = Daemons::start(3).await;
    let (relay, home) = (daemons.address(0), daemons.address(1));
    let held = post(home, "/v1/locks/a/acquire", json!({})).await.is(200);
    let id = session(home, 600_000).await;
    let body = json!({ "session": id, "wait_ms": 1_000_000, "request": "r" });
    let PendingRequest(mut stream) = PendingRequest::begin(relay, "/v1/locks/a/acquire", &body).await;
    let waiting = tokio::spawn(async move {
        let mut answer = vec![0; 4096];
        let read = stream.read(&mut answer).await.unwrap_or(0);
        String::from_utf8_lossy(&answer[..read]).into_owned()
    });
    waiters(home, "a", 1).await;
    let release = post(home, "/v1/locks/a/release", json!({ "hold": held["hold"] }));
    let (released, ()) = tokio::join!(release, daemons.kill(0));
    released.is(200);
    let answer = soon("an answer, or none", waiting).await.expect("no panic");
    let home = daemons.address(0);
    if answer.starts_with("HTTP/1.1 200") {
        // If it was delivered, the client has the hold, or learns that it was lost.
        let alive = post(home, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
        let valid = alive["valid_for_ms"].as_u64() > Some(0);
        assert!(valid || alive["lost"].as_array().is_some_and(|lost| !lost.is_empty()), "{alive}");
    } else {
        until("the lock is free again", || is_free(home, "a")).await;
    }
}

/// Longer than a daemon waits for the reply of another one, and shorter than all leases and timeouts of this test.
const STALL: Duration = Duration::from_millis(4500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_granted_by_a_home_that_answered_too_late_is_released() {
    let slow = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    // Leaked: a runtime must not be dropped on a thread of another one.
    let slow: &'static tokio::runtime::Runtime = Box::leak(Box::new(slow.expect("a runtime")));
    let (home_place, relay_place) = (1, 0);
    let elsewhere = Some((home_place, slow.handle().clone()));
    let mut daemons = Daemons::start_with(3, Plan { elsewhere, times: Some(10), ..Plan::default() }).await;
    let (relay, home) = (daemons.address(relay_place), daemons.address(home_place));
    let id = session(home, 600_000).await;
    let in_the_way = post(relay, "/v1/locks/a/acquire", json!({})).await.is(200);
    // Another request of the same kind waits all the time, so that the daemons keep polling.
    post(relay, "/v1/locks/other/acquire", json!({})).await.is(200);
    let body = json!({ "session": id, "wait_ms": 1_000_000 });
    let other = tokio::spawn(support::ask(relay, request("POST", "/v1/locks/other/acquire", Some(&body))));
    waiters(relay, "other", 1).await;
    let (stalls, stalled) = tokio::sync::oneshot::channel();
    slow.spawn(async move {
        let _ = stalls.send(());
        std::thread::sleep(STALL);
    });
    soon("the stall", stalled).await.expect("it runs");
    // The relaying daemon gives up, while its request is still in flight.
    let refused = post(relay, "/v1/locks/a/acquire", body.clone()).await.is(503);
    assert_eq!(refused["error"], "unavailable");
    until("the home daemon answers again", || async {
        post(relay, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.status == 200
    })
    .await;
    post(relay, "/v1/locks/a/release", json!({ "hold": in_the_way["hold"] })).await.is(200);
    // The session would keep the lock for as long as it lives, but no client knows of that hold.
    until("the lock is free", || is_free(relay, "a")).await;
    waiters(relay, "a", 0).await;
    assert!(is_free(home, "a").await);
    other.abort();
    let stopped = daemons.all.remove(home_place);
    soon("the end", slow.spawn(stopped.stop())).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_finds_its_first_attempt_through_any_daemon() {
    let daemons = Daemons::start(3).await;
    let [first, home, second] = [0, 1, 2].map(|place| daemons.address(place));
    let id = session(home, 600_000).await;
    let held = post(home, "/v1/locks/a/acquire", json!({})).await.is(200);
    let body = json!({ "session": id, "request": "r", "wait_ms": 1_000_000 });
    let attempt = |at| tokio::spawn(support::ask(at, request("POST", "/v1/locks/a/acquire", Some(&body))));
    let attempts = [attempt(first), attempt(second), attempt(home)];
    // All attempts share one wait, also after some of them were given up.
    let [one, two, three] = attempts;
    waiters(home, "a", 1).await;
    one.abort();
    two.abort();
    let again = attempt(first);
    let release = json!({ "hold": held["hold"] });
    post(home, "/v1/locks/a/release", release).await.is(200);
    let mut holds = Vec::new();
    for waiting in [three, again] {
        holds.push(soon("the lock", waiting).await.expect("no panic").is(200)["hold"].clone());
    }
    assert_eq!(holds[0], holds[1]);
    // Likewise after the grant.
    for at in [first, home, second] {
        assert_eq!(post(at, "/v1/locks/a/acquire", body.clone()).await.is(200)["hold"], holds[0]);
    }
    assert!(!is_free(home, "a").await);
    post(second, "/v1/locks/a/release", json!({ "hold": holds[0] })).await.is(200);
    assert!(is_free(home, "a").await);
}
