//! What a client of HTTP is promised is kept, whatever becomes of the daemon's own lease and of the session.

mod support;

use serde_json::json;
use std::time::{Duration, Instant};
use support::{Daemons, post, session, soon};

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
    let member = daemons.all[0].member();
    let is_held = || member.table().iter().any(|row| *row.lock.name == *"a" && !row.holders.is_empty());
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
    loop {
        let held = is_held();
        if Instant::now() >= promised {
            break;
        }
        assert!(held, "given up {:?} too early", promised - Instant::now());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
