//! What a client of HTTP is promised is kept, whatever becomes of the daemon's own lease and of the session.

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Daemons, Plan, post, session, soon, until};

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

/// The client counts on its own clock: one that runs 10 % slow must not count past the end of a daemon's that runs 10 % fast.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_leaves_room_for_the_drift_of_both_clocks() {
    let daemons = Daemons::start_with(1, Plan { drift_ppm: Some(100_000), ..Plan::default() }).await;
    let at = daemons.address(0);
    let id = session(at, 60_000).await;
    post(at, "/v1/locks/a/acquire", json!({ "session": id, "wait_ms": 10_000 })).await.is(200);
    // A lease is 4800 ms. Without the allowance a promise right after a renewal is almost as long.
    let longest = 4_800 * 9 / 11;
    for _ in 0..100 {
        let alive = post(at, &format!("/v1/sessions/{id}/keep-alive"), json!({})).await.is(200);
        assert!(alive["valid_for_ms"].as_u64() <= Some(longest), "{alive}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_taken_away_by_force() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let id = session(at, 60_000).await;
    let held = post(at, "/v1/locks/a/acquire", json!({ "session": id })).await.is(200);
    let kept = post(at, "/v1/locks/b/acquire", json!({ "session": id })).await.is(200);
    let nobody = post(other, "/v1/locks/a/force-release", json!({ "acquisition": "C1#0/1" })).await.is(200);
    assert_eq!(nobody["released"], json!([]));
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

/// Until what it was told has passed, a client may be at work: whoever comes by force waits for that too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_by_force_is_not_given_up_before_the_promise_ends() {
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
    // But not for longer than it must.
    post(at, "/v1/locks/a/acquire", json!({ "wait_ms": 86_400_000 })).await.is(200);
}

/// The lock `a` has a holder at the first daemon until then.
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

/// A daemon that cannot renew its lease knows a while before the end that its clients' holds are being lost. They know only what they were
/// told: until that has passed, the lock is nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_being_lost_is_not_given_up_before_the_promise_ends() {
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
