//! Promises to HTTP clients are kept, even when the daemon loses its own lease or the session ends.

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Daemons, post, session, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_outlives_its_session() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let short = session(at, 500).await;
    let held = post(at, "/v1/locks/a/acquire", json!({ "session": short, "wait_ms": 100 })).await.is(200);
    assert!(held["valid_for_ms"].as_u64() <= Some(500), "{held}");
    let alive = post(at, &format!("/v1/sessions/{short}/keep-alive"), json!({})).await.is(200);
    assert!(alive["valid_for_ms"].as_u64() <= Some(500), "{alive}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_release_is_reported_to_the_holder() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let id = session(at, 60_000).await;
    let held = post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    let kept = post(at, "/v1/locks/b/acquire", json!({ "session": id })).await.is(200);
    let unknown = post(other, "/v1/locks/a/force-release", json!({ "acquisition": "C1#0/1" })).await.is(200);
    assert_eq!(unknown["released"], json!([]));
    let released = post(other, "/v1/locks/a/force-release", json!({})).await.is(200);
    assert_eq!(released["released"].as_array().map(Vec::len), Some(1));
    post(other, "/v1/locks/a/acquire", json!({ "wait_ms": 100_000 })).await.is(200);
    let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
    assert_eq!(alive["lost"][0]["hold"], held["hold"]);
    assert!(alive["lost"][0]["reason"].as_str().unwrap().contains("force"), "{alive}");
    let release = |hold: &Value| json!({ "hold": hold });
    assert_eq!(post(at, "/v1/locks/a/release", release(&held["hold"])).await.is(200)["released"], false);
    assert_eq!(post(at, "/v1/locks/b/release", release(&kept["hold"])).await.is(200)["released"], true);
    for what in ["grant", "release", "lost", "force-release"] {
        until(what, || async { daemons.audit().iter().any(|line| line["what"] == what) }).await;
    }
}

/// A client may be at work until the promised time has passed. A forced release waits for that, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_release_waits_until_the_promise_has_passed() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let holder = session(at, 60_000).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": holder, "wait_ms": 10_000 })).await.is(200);
    let sent = Instant::now();
    let alive = post(at, &format!("/v1/sessions/{holder}/keep-alive"), json!({})).await.is(200);
    let promised = sent + Duration::from_millis(alive["valid_for_ms"].as_u64().expect("a promise"));
    let released = post(at, "/v1/locks/a/force-release", json!({})).await.is(200);
    assert_eq!(released["released"].as_array().map(Vec::len), Some(1));
    let alive = post(at, &format!("/v1/sessions/{holder}/keep-alive"), json!({})).await.is(200);
    assert_eq!((alive["lost"].as_array().map(Vec::len), &alive["valid_for_ms"]), (Some(1), &json!(null)));
    stays_until(&daemons, promised).await;
    // But no longer than necessary.
    post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 86_400_000 })).await.is(200);
}

/// Checks that the first daemon holds the lock `a` until then.
async fn stays_until(daemons: &Daemons, promised: Instant) {
    let member = daemons.all[0].member();
    loop {
        let held = member.table().iter().any(|row| *row.lock.name == *"a" && !row.holders.is_empty());
        if Instant::now() >= promised {
            return;
        }
        assert!(held, "given up {:?} too early", promised - Instant::now());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A daemon that cannot renew its lease knows some time before its end that its clients' holds are being lost. The
/// clients know only the promise in the last reply: until it has passed, no other client may be granted the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_lock_is_kept_until_the_promise_has_passed() {
    let mut daemons = Daemons::start(3).await;
    let at = daemons.address(0);
    let holder = session(at, 60_000).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": holder, "wait_ms": 10_000 })).await.is(200);
    daemons.kill(2).await;
    daemons.kill(1).await;
    let mut promised = Instant::now();
    let lost = async {
        loop {
            let sent = Instant::now();
            let alive = post(at, &format!("/v1/sessions/{holder}/keep-alive"), json!({})).await.is(200);
            if alive["lost"].as_array().is_some_and(|lost| !lost.is_empty()) {
                return;
            }
            let valid_for_ms = alive["valid_for_ms"].as_u64().unwrap_or(0);
            promised = promised.max(sent + Duration::from_millis(valid_for_ms));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the loss", lost).await;
    stays_until(&daemons, promised).await;
}

/// A client measures a promise on its own clock, which a time service may slow down. The promise is therefore shorter
/// than the time for which the daemon keeps the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_leaves_room_for_a_client_whose_clock_is_slewed() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    // The hold is soon recorded, and then it is promised for the longest time to live of the cluster.
    let kept = Duration::from_nanos(daemons.all[0].member().settings().longest_ttl_ns);
    let id = session(at, 600_000).await;
    let path = format!("/v1/sessions/{id}/keep-alive");
    let mut longest =
        post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200)["valid_for_ms"].as_u64();
    let recorded = async {
        while longest < Some(kept.as_millis() as u64 / 2) {
            longest = longest.max(post(at, &path, json!({})).await.is(200)["valid_for_ms"].as_u64());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a promise for the longest time to live", recorded).await;
    let promised = Duration::from_millis(longest.expect("a promise"));
    // chrony slows a clock down by up to 83,333 ppm: the real time until the client has measured the promise.
    let counted = promised.div_f64(1.0 - 0.083_333);
    assert!(
        counted <= kept,
        "{promised:?} are {counted:?} on a slow clock, and the lock is kept for {kept:?}"
    );
}
