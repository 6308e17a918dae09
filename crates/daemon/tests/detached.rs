//! Detached holds: they need no client and outlive every daemon, until they are released or their deadline passes.

mod support;

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::{Daemons, Plan, get, post, post_as, until};

/// Longer than a test takes.
const HOUR_MS: u64 = 3_600_000;

async fn hold_as(at: SocketAddr, lock: &str, body: Value) -> support::Answer {
    post(at, &format!("/v1/locks/{lock}/hold-as"), body).await
}

/// Checks that the owner still has the hold with this fence, at every daemon, and that it can be released once.
async fn has_hold(daemons: &Daemons, fence: &Value) {
    for daemon in 0..daemons.all.len() {
        let at = daemons.address(daemon);
        let found = hold_as(at, "reboot", json!({ "owner": "web-3" })).await.is(200);
        assert_eq!(found["fence"], *fence, "{found}");
        let again = hold_as(at, "reboot", json!({ "owner": "web-3", "for_ms": 2 * HOUR_MS })).await.is(200);
        assert_eq!(again["fence"], *fence, "{again}");
        assert!(again["left_ms"].as_u64() > Some(HOUR_MS), "{again}");
        hold_as(at, "reboot", json!({ "owner": "web-4", "for_ms": HOUR_MS })).await.is(409);
        let shown = get(at, "/v1/locks/reboot").await.is(200);
        let holder = &shown["holders"][0];
        assert_eq!((&holder["owner"], &holder["fence"]), (&json!("web-3"), fence), "{shown}");
        assert_eq!(holder["detached_until_ms"], again["until_ms"], "{shown}");
    }
    let waiting = {
        let at = daemons.address(0);
        tokio::spawn(async move {
            post(at, "/v1/locks/reboot/acquire", json!({ "wait_ms": 60_000 })).await.is(200)
        })
    };
    let last = daemons.address(daemons.all.len() - 1);
    let release = |owner: &str| post(last, "/v1/locks/reboot/release-as", json!({ "owner": owner }));
    assert_eq!(release("web-4").await.is(200)["released"], false);
    assert_eq!(release("web-3").await.is(200)["released"], true);
    let next = waiting.await.expect("no panic");
    assert!(next["fence"].as_u64() > fence.as_u64(), "{next} after {fence}");
    assert_eq!(release("web-3").await.is(200)["released"], false);
}

async fn held_by_web_3(daemons: &Daemons) -> Value {
    let request = json!({ "owner": "web-3", "for_ms": HOUR_MS, "purpose": "kernel" });
    hold_as(daemons.address(0), "reboot", request).await.is(200)["fence"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_hold_survives_the_crash_of_its_daemon() {
    let mut daemons = Daemons::start(3).await;
    let fence = held_by_web_3(&daemons).await;
    daemons.kill(0).await;
    has_hold(&daemons, &fence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_hold_survives_the_leave_of_its_daemon() {
    let mut daemons = Daemons::start(3).await;
    let fence = held_by_web_3(&daemons).await;
    let leaving = daemons.all.remove(0);
    support::soon("the leave", leaving.leave()).await;
    has_hold(&daemons, &fence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_hold_survives_the_restart_of_all_daemons() {
    let mut daemons = Daemons::start(3).await;
    let fence = held_by_web_3(&daemons).await;
    daemons.restart_all().await;
    has_hold(&daemons, &fence).await;
}

/// The deadline passes while the hold is with another daemon than the one that granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_hold_ends_at_its_deadline_also_after_the_crash_of_its_daemon() {
    let mut daemons = Daemons::start(3).await;
    let asked = Instant::now();
    let held =
        hold_as(daemons.address(0), "reboot", json!({ "owner": "web-3", "for_ms": 6_000 })).await.is(200);
    daemons.kill(0).await;
    let acquire = json!({ "wait_ms": 60_000 });
    let next = post(daemons.address(0), "/v1/locks/reboot/acquire", acquire).await.is(200);
    assert!(asked.elapsed().as_millis() >= 6_000, "free after {:?}", asked.elapsed());
    assert!(next["fence"].as_u64() > held["fence"].as_u64());
    let lost = hold_as(daemons.address(1), "reboot", json!({ "owner": "web-3" })).await.is(409);
    assert!(lost["message"].as_str().is_some_and(|text| text.contains("does not hold")), "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_two_machines_are_down_and_one_machine_has_one_permit() {
    let mut daemons = Daemons::start(3).await;
    let permit = |owner: &str| json!({ "owner": owner, "for_ms": HOUR_MS, "mode": "permit", "permits": 2 });
    // Requests of one owner at all daemons at once share one permit.
    let requests = (0..9).map(|number| {
        let at = daemons.address(number % 3);
        let body =
            json!({ "owner": "web-1", "for_ms": HOUR_MS, "mode": "permit", "permits": 2, "wait_ms": 60_000 });
        tokio::spawn(async move { hold_as(at, "down", body).await.is(200) })
    });
    for request in Vec::from_iter(requests) {
        request.await.expect("no panic");
    }
    let holders = || async {
        let shown = get(daemons.address(1), "/v1/locks/down").await.is(200);
        shown["holders"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(holders().await, 1);
    hold_as(daemons.address(1), "down", permit("web-2")).await.is(200);
    hold_as(daemons.address(2), "down", permit("web-3")).await.is(409);
    assert_eq!(holders().await, 2);
    daemons.kill(0).await;
    hold_as(daemons.address(0), "down", permit("web-3")).await.is(409);
    for owner in ["web-1", "web-2"] {
        hold_as(daemons.address(1), "down", json!({ "owner": owner })).await.is(200);
    }
    post(daemons.address(0), "/v1/locks/down/release-as", json!({ "owner": "web-1" })).await.is(200);
    let request =
        json!({ "owner": "web-3", "for_ms": HOUR_MS, "mode": "permit", "permits": 2, "wait_ms": 60_000 });
    hold_as(daemons.address(1), "down", request).await.is(200);
}

/// The same owner name under another token is another owner; an operator takes the hold of any owner away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_hold_belongs_to_the_token_of_its_owner() {
    let plan = Plan { tokens: Some(support::TOKENS), ..Plan::default() };
    let daemons = Daemons::start_with(1, plan).await;
    let at = daemons.address(0);
    let (hold, release) = ("/v1/locks/ci%2Freboot/hold-as", "/v1/locks/ci%2Freboot/release-as");
    let owner = json!({ "owner": "web-3" });
    let request = json!({ "owner": "web-3", "for_ms": HOUR_MS });
    post(at, hold, request.clone()).await.is(401);
    post_as(at, "secret", "/v1/locks/other/hold-as", request.clone()).await.is(403);
    let held = post_as(at, "secret", hold, request.clone()).await.is(200);
    post_as(at, "test", hold, request.clone()).await.is(409);
    post_as(at, "test", hold, owner.clone()).await.is(409);
    assert_eq!(post_as(at, "test", release, owner.clone()).await.is(200)["released"], false);
    assert_eq!(post_as(at, "secret", hold, owner.clone()).await.is(200)["fence"], held["fence"]);
    let forced = post_as(at, "test", "/v1/locks/ci%2Freboot/force-release", json!({})).await.is(200);
    assert_eq!(forced["released"].as_array().map(Vec::len), Some(1), "{forced}");
    until("the end of the hold", || async {
        post_as(at, "secret", hold, owner.clone()).await.status.as_u16() == 409
    })
    .await;
    let wait = json!({ "owner": "web-4", "for_ms": HOUR_MS, "wait_ms": 60_000 });
    post_as(at, "test", hold, wait).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_out_of_range_are_rejected_and_leave_nothing() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    for (body, part) in [
        (json!({ "owner": "", "for_ms": 1 }), "`owner` is empty"),
        (json!({ "owner": "x".repeat(300), "for_ms": 1 }), "owner"),
        (json!({ "owner": "a", "for_ms": 0 }), "366 days"),
        (json!({ "owner": "a", "for_ms": 31_622_400_001_u64 }), "366 days"),
        (json!({ "owner": "a", "for_ms": 1, "permits": 2 }), "permits"),
        (json!({ "owner": "a", "for_ms": 1, "wait_ms": 86_400_001 }), "wait_ms"),
    ] {
        let refused = hold_as(at, "a", body).await.is(422);
        assert!(refused["message"].as_str().is_some_and(|text| text.contains(part)), "{refused}");
    }
    hold_as(at, "a", json!({ "owner": "web-3", "for_ms": HOUR_MS })).await.is(200);
    let shared = json!({ "owner": "web-3", "for_ms": HOUR_MS, "mode": "shared" });
    let refused = hold_as(at, "a", shared).await.is(422);
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("release it first")), "{refused}");
    assert_eq!(
        post(at, "/v1/locks/a/release-as", json!({ "owner": "web-3" })).await.is(200)["released"],
        true
    );
    until("no locks", || async { get(at, "/v1/locks").await.is(200) == json!([]) }).await;
}

/// The library over the native protocol: holds of owners, and a lock that is kept for longer than any time to live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_library_holds_locks_for_owners_and_keeps_them_for_processes() {
    let mut daemons = Daemons::start_with(3, Plan { native: true, ..Plan::default() }).await;
    let url = |places: &[usize]| {
        let hosts: Vec<String> = places.iter().map(|place| daemons.native(*place).to_string()).collect();
        format!("lockkeeper://{}?in-order", hosts.join(","))
    };
    let (locks, other) = (
        lockkeeper::Lockkeeper::open(url(&[0, 1, 2])).await.expect("it opens"),
        lockkeeper::Lockkeeper::open(url(&[1, 2])).await.expect("it opens"),
    );
    let day = Duration::from_secs(24 * 3600);
    let held = locks.mutex("a").hold_as("web-3", day).acquire().await.expect("free");
    let again = other.mutex("a").hold_as("web-3", day * 2).acquire().await.expect("its own");
    assert_eq!(again.fence, held.fence);
    assert!(locks.detached("a", "web-3").await.expect("an answer").is_some_and(|found| found.left > day));
    // A request that is cancelled leaves nothing.
    let waits = other.mutex("a").hold_as("web-4", day).acquire_within(Duration::from_millis(300)).await;
    assert_eq!(waits.expect("an answer"), None);
    assert!(!locks.release_as("a", "web-4").await.expect("an answer"));
    assert!(locks.release_as("a", "web-3").await.expect("an answer"));
    until("no holders and waiters", || async { locks.list().await.expect("a list").is_empty() }).await;
    // A process works under a kept lock, and its daemon crashes.
    let guard = locks.mutex("b").ttl(Duration::from_secs(30)).at_least(day).acquire().await.expect("free");
    let fence = guard.fence();
    daemons.kill(0).await;
    // Until another member has adopted the hold, no member that answers has it.
    until("the adoption", || async { other.inspect("b").await.expect("an answer").holders.len() == 1 }).await;
    let holders = other.inspect("b").await.expect("an answer").holders;
    assert_eq!(holders[0].fence, fence);
    assert!(holders[0].detached.as_ref().is_some_and(|kept| kept.owner == guard.holder()), "{holders:?}");
    assert!(!other.release_as("b", guard.holder()).await.expect("an answer"), "the process works under it");
    let owner = String::from(guard.holder());
    guard.release().await.expect("valid");
    assert!(other.mutex("b").try_acquire().await.expect("an answer").is_none(), "it is kept");
    assert!(other.release_as("b", &owner).await.expect("an answer"), "the process has released it");
    assert!(other.mutex("b").acquire().await.expect("free").fence() > fence);
}
