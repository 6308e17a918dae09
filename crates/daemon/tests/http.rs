//! The JSON API over HTTP: every path and its errors.

mod support;

use lockkeeper_daemon::Limits;
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::time::Duration;
use support::{Daemons, Plan, TOKENS, ask, delete, get, post, request, session, soon, until, waiters};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_acquired_listed_and_released() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let held = post(at, "/v1/locks/orders%2F42/acquire", json!({"owner": "a", "purpose": "b"})).await.is(200);
    assert_eq!(held["name"], "orders/42");
    assert!(held["fence"].as_u64() > Some(0) && held["valid_for_ms"].as_u64() > Some(0), "{held}");
    assert_eq!(held["ttl_ms"], 30_000);
    let busy = post(at, "/v1/locks/orders%2F42/acquire", json!({})).await.is(409);
    assert_eq!(busy["error"], "busy");
    let state = get(at, "/v1/locks/orders%2F42").await.is(200);
    assert_eq!((&state["holders"][0]["owner"], &state["holders"][0]["purpose"]), (&"a".into(), &"b".into()));
    assert_eq!(state["holders"][0]["fence"], held["fence"]);
    assert_eq!(get(at, "/v1/locks?prefix=orders").await.is(200).as_array().map(Vec::len), Some(1));
    assert_eq!(get(at, "/v1/locks?prefix=x").await.is(200), json!([]));
    // A release is idempotent.
    let release = json!({ "hold": held["hold"] });
    let path = "/v1/locks/orders%2F42/release";
    assert_eq!(post(at, path, release.clone()).await.is(200)["released"], true);
    assert_eq!(post(at, path, release).await.is(200)["released"], false);
    let next = post(at, "/v1/locks/orders%2F42/acquire", json!({})).await.is(200);
    assert!(next["fence"].as_u64() > held["fence"].as_u64());
    assert_eq!(
        get(at, "/v1/locks/free").await.is(200),
        json!({"name": "free", "holders": [], "waiters": []})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_holds_several_locks_and_releases_them_when_it_ends() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let id = session(at, 60_000).await;
    for name in ["a", "b"] {
        post(at, &format!("/v1/locks/{name}/acquire"), json!({ "session": id })).await.is(200);
    }
    let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert_eq!((&alive["session"], &alive["ttl_ms"]), (&json!(id), &json!(60_000)));
    assert!(alive["valid_for_ms"].as_u64() > Some(0), "{alive}");
    assert_eq!(alive["lost"], json!([]));
    let waiting = tokio::spawn(post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 100_000 })));
    waiters(at, "a", 1).await;
    assert_eq!(get(at, "/v1/status").await.is(200)["sessions"], 2);
    delete(at, &format!("/v1/sessions/{id}")).await.is(204);
    waiting.await.unwrap().is(200);
    delete(at, &format!("/v1/sessions/{id}")).await.is(404);
    let gone = post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(404);
    assert_eq!(gone["error"], "no_such_session");
    post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_without_keep_alive_expires() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let id = session(at, 300).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    // The other session waits until the lock is granted.
    post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 100_000, "ttl_ms": 300 })).await.is(200);
    post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(404);
    // A hold without a session expires in the same way.
    post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 100_000 })).await.is(200);
    let expired = |line: &Value| line["why"].as_str().is_some_and(|why| why.contains("without a keep-alive"));
    until("the log", || async { daemons.audit().iter().filter(|line| expired(line)).count() == 2 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_the_connection_gives_up_the_place_in_the_queue() {
    let daemons = Daemons::start(3).await;
    let at = daemons.address(0);
    let held = post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    let there = session(daemons.address(1), 60_000).await;
    // With a session at this daemon, and with one at another daemon.
    for body in [json!({ "wait_ms": 100_000 }), json!({ "wait_ms": 100_000, "session": there })] {
        let waiting = tokio::spawn(ask(at, request("POST", "/v1/locks/a/acquire", Some(&body))));
        waiters(at, "a", 1).await;
        waiting.abort();
        waiters(at, "a", 0).await;
    }
    let last = tokio::spawn(post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 100_000 })));
    waiters(at, "a", 1).await;
    post(at, "/v1/locks/a/release", json!({ "hold": held["hold"] })).await.is(200);
    last.await.unwrap().is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_returns_the_same_hold() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let body = json!({ "request": "r1" });
    let held = post(at, "/v1/locks/a/acquire", body.clone()).await.is(200);
    let again = post(at, "/v1/locks/a/acquire", body).await.is(200);
    assert_eq!((&held["hold"], &held["fence"]), (&again["hold"], &again["fence"]));
    let id = session(at, 60_000).await;
    let body = json!({ "request": "r1", "session": id });
    let held = post(at, "/v1/locks/b/acquire", body.clone()).await.is(200);
    let again = post(other, "/v1/locks/b/acquire", body).await.is(200);
    assert_eq!(held["hold"], again["hold"]);
    let other_request = json!({ "request": "r2", "session": id });
    post(at, "/v1/locks/b/acquire", other_request).await.is(409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_usable_through_every_daemon() {
    let mut daemons = Daemons::start(3).await;
    let id = session(daemons.address(0), 60_000).await;
    let held = post(daemons.address(1), "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    assert_eq!(held["session"], json!(id));
    let alive = post(daemons.address(2), &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert!(alive["valid_for_ms"].as_u64() > Some(0));
    // A client waits at the third daemon for a session of the second, while the session of the first holds the lock.
    let other = session(daemons.address(1), 60_000).await;
    let body = json!({ "session": other, "wait_ms": 100_000 });
    let waiting = tokio::spawn(post(daemons.address(2), "/v1/locks/a/acquire", body));
    waiters(daemons.address(0), "a", 1).await;
    let release = json!({ "hold": held["hold"] });
    let released = post(daemons.address(1), "/v1/locks/a/release", release).await.is(200);
    assert_eq!(released["released"], true);
    let next = waiting.await.unwrap().is(200);
    assert!(next["fence"].as_u64() > held["fence"].as_u64());
    // The sessions of a dead daemon end, and the other daemons report that.
    daemons.kill(1).await;
    let path = format!("/v1/sessions/{other}/keep-alive");
    let at = daemons.address(0);
    until("the session is gone", || async { post(at, &path, json!({})).await.status == 404 }).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": id, "wait_ms": 100_000 })).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_gets_an_error_when_the_home_of_its_session_dies() {
    let mut daemons = Daemons::start(3).await;
    let at = daemons.address(0);
    post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    let id = session(daemons.address(2), 60_000).await;
    let body = json!({ "session": id, "wait_ms": 100_000_000 / 1000 });
    let waiting = tokio::spawn(ask(at, request("POST", "/v1/locks/a/acquire", Some(&body))));
    waiters(at, "a", 1).await;
    daemons.kill(2).await;
    let answer = soon("an answer", waiting).await.unwrap().is(404);
    assert_eq!(answer["error"], "no_such_session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_leaves_the_queue_when_its_relaying_daemon_dies() {
    let mut daemons = Daemons::start(3).await;
    let (at, lives) = (daemons.address(0), daemons.address(1));
    let held = post(lives, "/v1/locks/a/acquire", json!({})).await.is(200);
    let id = session(lives, 600_000).await;
    let body = json!({ "session": id, "wait_ms": 1_000_000 });
    let waiting = tokio::spawn(async move {
        // The connection ends with its daemon.
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head =
            "POST /v1/locks/a/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let body = body.to_string();
        let asked = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(asked.as_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    waiters(lives, "a", 1).await;
    daemons.kill(0).await;
    waiting.await.unwrap();
    let lives = daemons.address(0);
    waiters(lives, "a", 0).await;
    // The session itself continues.
    post(lives, "/v1/locks/a/release", json!({ "hold": held["hold"] })).await.is(200);
    post(lives, "/v1/locks/a/acquire", json!({ "session": id, "wait_ms": 100_000 })).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_and_permit_modes_admit_several_holders() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    for _ in 0..2 {
        post(at, "/v1/locks/r/acquire", json!({ "mode": "shared" })).await.is(200);
        post(at, "/v1/locks/s/acquire", json!({ "mode": "permit", "permits": 2 })).await.is(200);
    }
    // A name means the same lock in all modes.
    for busy in ["r", "s"] {
        post(at, &format!("/v1/locks/{busy}/acquire"), json!({})).await.is(409);
        post(at, &format!("/v1/locks/{busy}/acquire"), json!({ "mode": "permit", "permits": 3 }))
            .await
            .is(409);
    }
    post(at, "/v1/locks/s/acquire", json!({ "mode": "permit", "permits": 2 })).await.is(409);
    post(at, "/v1/locks/s/acquire", json!({ "mode": "shared" })).await.is(409);
    let state = get(at, "/v1/locks/s").await.is(200);
    assert_eq!(
        (&state["holders"][1]["mode"], &state["holders"][1]["permits"]),
        (&json!("permit"), &json!(2))
    );
    for wrong in [
        json!({ "mode": "permit" }),
        json!({ "mode": "permit", "permits": 0 }),
        json!({ "mode": "permit", "permits": 1_048_577 }),
        json!({ "permits": 2 }),
        json!({ "mode": "mine" }),
        json!({ "wait_ms": -1 }),
        json!({ "wait_ms": 86_400_001 }),
        json!({ "ttl_ms": 99 }),
        json!({ "ttl_ms": 86_400_001 }),
        json!({ "owner": "x".repeat(257) }),
        json!({ "purpose": 3 }),
        json!({ "request": "" }),
        json!({ "surprise": 1 }),
        json!([]),
    ] {
        let answer = post(at, "/v1/locks/x/acquire", wrong.clone()).await;
        assert_eq!(answer.status, 422, "{wrong}: {answer:?}");
        assert!(!answer.json()["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(get(at, "/v1/status").await.is(200)["sessions"], 4, "rejected requests leave no session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_explains_a_wait_and_reports_a_deadlock() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let (one, two) = (session(at, 60_000).await, session(other, 60_000).await);
    post(at, "/v1/locks/a/acquire", json!({ "session": one })).await.is(200);
    post(at, "/v1/locks/b/acquire", json!({ "session": two })).await.is(200);
    assert_eq!(get(at, "/v1/locks/a/why").await.is(200), json!({ "chain": [], "deadlock": false }));
    let body = |session: &str| json!({ "session": session, "wait_ms": 100_000 });
    let waits = tokio::spawn(post(at, "/v1/locks/b/acquire", body(&one)));
    waiters(at, "b", 1).await;
    let why = get(other, "/v1/locks/b/why").await.is(200);
    assert_eq!((&why["chain"][0]["lock"], &why["deadlock"]), (&json!("b"), &json!(false)));
    let also = tokio::spawn(post(at, "/v1/locks/a/acquire", body(&two)));
    waiters(at, "a", 1).await;
    for path in [format!("/v1/locks/a/why?session={two}"), String::from("/v1/locks/a/why")] {
        let why = get(other, &path).await.is(200);
        assert_eq!(
            (why["chain"].as_array().map(Vec::len), &why["deadlock"]),
            (Some(2), &json!(true)),
            "{why}"
        );
    }
    get(at, "/v1/locks/a/why?acquisition=x").await.is(422);
    delete(at, &format!("/v1/sessions/{one}")).await.is(204);
    also.await.unwrap().is(200);
    assert_eq!(waits.await.unwrap().status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_status_health_and_metrics() {
    let mut daemons = Daemons::start(3).await;
    let at = daemons.address(0);
    let members = get(at, "/v1/members").await.is(200);
    assert_eq!(members.as_array().map(Vec::len), Some(3));
    assert!(members.as_array().unwrap().iter().all(|member| member["in_view"] == true), "{members}");
    let status = get(at, "/v1/status").await.is(200);
    assert_eq!((&status["member"], &status["serves"]), (&json!(1), &json!(true)));
    assert_eq!(get(at, "/healthz").await.text, "ok\n");
    assert_eq!(get(at, "/readyz").await.text, "ok\n");
    post(at, "/v1/locks/team%2Fx/acquire", json!({})).await.is(200);
    let metrics = get(at, "/metrics").await;
    for line in [
        "lockkeeper_entries_total 1",
        "lockkeeper_daemon_sessions 1",
        "lockkeeper_daemon_wait_seconds_count{prefix=\"team\"} 1",
        "lockkeeper_daemon_requests_total{protocol=\"http\",result=\"ok\"}",
        "lockkeeper_daemon_connections ",
    ] {
        assert!(metrics.text.contains(line), "{line} is not in {}", metrics.text);
    }
    // The last remaining member has no majority and does not grant locks.
    daemons.kill(2).await;
    daemons.kill(1).await;
    until("it does not serve", || async { get(at, "/readyz").await.status == 503 }).await;
    let answer = get(at, "/readyz").await.json();
    assert_eq!(answer["error"], "not_ready");
    assert_eq!(get(at, "/v1/status").await.is(200)["serves"], false);
    assert_eq!(get(at, "/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_rejected_with_a_message() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    assert_eq!(get(at, "/v1/nothing").await.is(404)["error"], "no_such_path");
    let wrong = get(at, "/v1/sessions").await;
    assert_eq!((wrong.status.as_u16(), &wrong.headers["allow"]), (405, &"POST".parse().unwrap()));
    assert_eq!(wrong.json()["error"], "wrong_method");
    let raw = |body: &'static str, kind: &str| {
        let mut asked = request("POST", "/v1/sessions", Some(&json!({})));
        *asked.body_mut() = body.into();
        asked.headers_mut().insert("content-type", kind.parse().unwrap());
        asked
    };
    let json = "application/json; charset=utf-8";
    assert_eq!(ask(at, raw("{", json)).await.is(400)["error"], "bad_json");
    assert_eq!(ask(at, raw("{}", "text/plain")).await.is(415)["error"], "not_json");
    ask(at, raw("{}", json)).await.is(201);
    let long = json!({ "owner": "x".repeat(70_000) });
    assert_eq!(post(at, "/v1/sessions", long).await.is(413)["error"], "too_long");
    let name = "x".repeat(513);
    post(at, &format!("/v1/locks/{name}/acquire"), json!({})).await.is(422);
    post(at, "/v1/locks/a%00b/acquire", json!({})).await.is(422);
    get(at, "/v1/locks/%FF").await.is(400);
    post(at, "/v1/locks/a/release", json!({ "hold": "x" })).await.is(422);
    post(at, "/v1/locks/a/acquire", json!({ "session": "x" })).await.is(404);
    let longer = json!({ "session": session(at, 60_000).await, "ttl_ms": 1000 });
    post(at, "/v1/locks/a/acquire", longer).await.is(422);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_the_limit() {
    let limits = Limits { sessions: 2, locks_per_session: 1, longest_ttl_s: 60, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let at = daemons.address(0);
    post(at, "/v1/sessions", json!({ "ttl_ms": 61_000 })).await.is(422);
    let id = session(at, 60_000).await;
    session(at, 60_000).await;
    let answer = post(at, "/v1/sessions", json!({})).await.is(429);
    assert!(answer["message"].as_str().unwrap().contains("at most 2"), "{answer}");
    post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    let answer = post(at, "/v1/locks/b/acquire", json!({ "session": id })).await.is(429);
    assert!(answer["message"].as_str().unwrap().contains("at most 1"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_above_the_rate_limit_are_refused() {
    let limits = Limits { requests_per_second: NonZeroU32::new(3).unwrap(), ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let mut stream = TcpStream::connect(daemons.address(0)).await.unwrap();
    // More requests on one connection than even a slow machine spreads over enough time to stay within the rate.
    let one = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(one.repeat(50).as_bytes()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answers = String::new();
    soon("the answers", stream.read_to_string(&mut answers)).await.unwrap();
    assert!(answers.contains("HTTP/1.1 200 OK") && answers.contains("HTTP/1.1 429"), "{answers}");
    assert!(answers.contains("too many requests in a second: at most 3"), "{answers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_slow_connections_are_closed() {
    let limits = Limits { request_timeout_ms: 300, connections: 4, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let at = daemons.address(0);
    for beginning in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow",
        "\x16\x03\x01",
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        soon(beginning, stream.read_to_end(&mut rest)).await.ok();
    }
    // A body that never arrives.
    let mut stream = TcpStream::connect(at).await.unwrap();
    let head = "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut rest = String::new();
    soon("an answer", stream.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 408"), "{rest}");
    // Connections beyond the limit wait for a place.
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        soon("an answer", stream.read_exact(&mut first)).await.unwrap();
        open.push(stream);
    }
    let mut fifth = TcpStream::connect(at).await.unwrap();
    fifth.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let early = tokio::time::timeout(Duration::from_millis(300), fifth.read_to_string(&mut answer)).await;
    assert!(early.is_err(), "a fifth connection was accepted: {answer}");
    drop(open);
    soon("a place", fifth.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    let metrics = get(at, "/metrics").await.text;
    assert!(metrics.contains("refused_total{reason=\"slow\"}"), "{metrics}");
    // Headers that never end.
    let mut stream = TcpStream::connect(at).await.unwrap();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n").await;
    for number in 0..2000 {
        if stream.write_all(format!("x-{number}: {}\r\n", "y".repeat(100)).as_bytes()).await.is_err() {
            break;
        }
    }
    let mut rest = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 431"), "{rest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_permits_only_its_prefixes() {
    let daemons = Daemons::start_with(1, Plan { tokens: Some(TOKENS), ..Plan::default() }).await;
    let at = daemons.address(0);
    let with = |token: &str, method: &str, path: &str, body: Option<Value>| {
        let mut asked = request(method, path, body.as_ref());
        asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        ask(at, asked)
    };
    let none = get(at, "/v1/locks").await;
    assert_eq!((none.status.as_u16(), &none.headers["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    with("wrong", "GET", "/v1/locks", None).await.is(401);
    get(at, "/healthz").await;
    let held = with("secret", "POST", "/v1/locks/ci%2Fa/acquire", Some(json!({}))).await.is(200);
    let answer = with("secret", "POST", "/v1/locks/prod%2Fa/acquire", Some(json!({}))).await.is(403);
    assert_eq!(answer["message"], "the token `ci` does not allow `acquire` on `prod/a`");
    with("test", "POST", "/v1/locks/prod%2Fa/acquire", Some(json!({}))).await.is(200);
    let count = |answer: Value| answer.as_array().map(Vec::len);
    assert_eq!(count(with("secret", "GET", "/v1/locks", None).await.is(200)), Some(1));
    assert_eq!(count(with("test", "GET", "/v1/locks", None).await.is(200)), Some(2));
    with("secret", "GET", "/v1/locks/prod%2Fa", None).await.is(403);
    with("secret", "POST", "/v1/locks/ci%2Fa/force-release", Some(json!({}))).await.is(403);
    // A session may be used by the token that created it, and by one with `admin` on every lock.
    let made = with("test", "POST", "/v1/sessions", Some(json!({}))).await.is(201);
    let path = format!("/v1/sessions/{}/keep-alive", made["session"].as_str().unwrap());
    with("secret", "POST", &path, None).await.is(403);
    let path = format!("/v1/sessions/{}/keep-alive", held["session"].as_str().unwrap());
    with("test", "POST", &path, None).await.is(200);
    let refused = || daemons.audit().iter().filter(|line| line["what"] == "refuse").count();
    until("the log", || async { refused() == 6 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_streams_changes_of_the_whole_cluster() {
    let daemons = Daemons::start(3).await;
    let mut stream = TcpStream::connect(daemons.address(0)).await.unwrap();
    stream.write_all(b"GET /v1/watch?prefix=jobs/ HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut stream_text = String::new();
    let mut shows = async |what: &str, is: &dyn Fn(&Value) -> bool| loop {
        let mut states = stream_text.lines().filter_map(|line| line.strip_prefix("data: "));
        let last = states.next_back().and_then(|state| serde_json::from_str::<Value>(state).ok());
        if last.is_some_and(|state| is(&state)) {
            return;
        }
        let mut bytes = [0; 4096];
        let length = soon(what, stream.read(&mut bytes)).await.unwrap();
        assert!(length > 0, "the stream ended: {stream_text}");
        stream_text += std::str::from_utf8(&bytes[..length]).unwrap();
    };
    let count = |state: &Value, who: &str| state[who].as_array().map(Vec::len);
    let counts = |holders, waiters| {
        move |state: &Value| {
            (count(state, "holders"), count(state, "waiters")) == (Some(holders), Some(waiters))
        }
    };
    post(daemons.address(2), "/v1/locks/other/acquire", json!({})).await.is(200);
    let held = post(daemons.address(1), "/v1/locks/jobs%2F1/acquire", json!({})).await.is(200);
    shows("a holder", &counts(1, 0)).await;
    let waiting =
        tokio::spawn(post(daemons.address(2), "/v1/locks/jobs%2F1/acquire", json!({ "wait_ms": 100_000 })));
    shows("a waiter", &counts(1, 1)).await;
    post(daemons.address(1), "/v1/locks/jobs%2F1/release", json!({ "hold": held["hold"] })).await.is(200);
    let next = waiting.await.unwrap().is(200);
    shows("the next holder", &|state| state["holders"][0]["fence"] == next["fence"]).await;
    post(daemons.address(2), "/v1/locks/jobs%2F1/release", json!({ "hold": next["hold"] })).await.is(200);
    shows("no client", &counts(0, 0)).await;
    assert!(stream_text.contains("text/event-stream") && !stream_text.contains("other"), "{stream_text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_the_caller_is_returned() {
    let daemons = Daemons::start(1).await;
    let mut asked = request("POST", "/v1/locks/a/acquire", Some(&json!({})));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    asked.headers_mut().insert("traceparent", parent.parse().unwrap());
    let answer = ask(daemons.address(0), asked).await;
    let trace = answer.headers["traceparent"].to_str().unwrap();
    assert!(trace.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && trace != parent, "{trace}");
    // Also without a `traceparent` in the request, and with an error.
    let made = post(daemons.address(0), "/v1/locks/a/acquire", json!({})).await;
    assert_eq!((made.status.as_u16(), made.headers["traceparent"].len()), (409, 55));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_that_leaves_replies_to_waiters() {
    let mut daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    let body = json!({ "wait_ms": 100_000 });
    let waiting = tokio::spawn(ask(at, request("POST", "/v1/locks/a/acquire", Some(&body))));
    waiters(at, "a", 1).await;
    soon("it leaves", daemons.all.remove(0).leave()).await;
    assert!(TcpStream::connect(at).await.is_err(), "the listener is closed");
    assert_eq!(soon("an answer", waiting).await.unwrap().is(503)["error"], "unavailable");
}
