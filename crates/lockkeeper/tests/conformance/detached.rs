//! Holds that outlive their process: `at_least` and `hold_as`.

use crate::backend::{Backend, acquire, open, until, until_waiting};
use crate::cancellation::dropped_after;
use crate::worker::Worker;
use lockkeeper::{Acquire, Capabilities, Error, Lockkeeper};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether the engine supports `at_least`. If it does not, or has no detached holds, every request for one is rejected
/// with a reason.
async fn supports_at_least(locks: &Lockkeeper) -> bool {
    let Capabilities { at_least, detached, .. } = locks.capabilities();
    let engine = locks.engine();
    if !at_least {
        let refused = locks.mutex("a").at_least(HOUR).acquire().await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    }
    if !detached {
        for refused in [
            locks.mutex("a").hold_as("web-3", HOUR).acquire().await.map(drop).unwrap_err(),
            locks.detached("a", "web-3").await.map(drop).unwrap_err(),
            locks.release_as("a", "web-3").await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().ends_with(&format!("not supported by {engine}")), "{refused}");
        }
        assert!(locks.list().await.unwrap().is_empty(), "refused requests leave nothing");
    }
    at_least
}

/// A time that no test reaches. Without detached holds, the time to live limits it.
fn long(locks: &Lockkeeper) -> Duration {
    if locks.capabilities().detached { HOUR } else { Duration::from_secs(60) }
}

async fn is_taken(request: Acquire) -> bool {
    request.try_acquire().await.unwrap().is_none()
}

/// The lock is free for others once the deadline has passed, and not before: a release, a drop and a failed task end
/// the hold early.
pub async fn a_lock_is_kept_for_at_least_the_requested_time(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    if !supports_at_least(&locks).await {
        return;
    }
    let at_least = backend.short_ttl();
    for released in [true, false] {
        let asked = Instant::now();
        let guard = locks.mutex("a").at_least(at_least).acquire().await.unwrap();
        let (fence, holder) = (guard.fence(), guard.holder().to_owned());
        let info = locks.inspect("a").await.unwrap();
        assert_eq!(info.holders.len(), 1, "hold and record are one: {info:?}");
        if locks.capabilities().detached {
            assert_eq!(info.holders[0].detached.as_ref().map(|detached| &detached.owner), Some(&holder));
        }
        let next = acquire(other.mutex("a"));
        match released {
            true => guard.release().await.unwrap(),
            false => drop(guard),
        }
        let next = next.await.unwrap();
        assert!(asked.elapsed() >= at_least, "another client entered after {:?}", asked.elapsed());
        assert!(!locks.capabilities().fence || next.fence() > fence);
        next.release().await.unwrap();
    }
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
}

/// The time is longer than the time to live, so that something else than the lease must keep the lock. The holder dies
/// at its beginning, and shortly before its end.
pub async fn a_killed_holder_keeps_its_lock_for_the_requested_time(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().at_least {
        return;
    }
    let ttl = backend.short_ttl();
    let at_least = ttl * 3;
    for lives_for in [Duration::ZERO, ttl * 9 / 4] {
        let mut holder = Worker::start(&backend.url());
        let asked = Instant::now();
        holder.ask(&format!("keep {} {} a", ttl.as_millis(), at_least.as_millis())).await;
        tokio::time::sleep(lives_for).await;
        holder.kill().await;
        // A non-blocking request is the one of a cron job that runs once per period.
        until(|| async { !is_taken(locks.mutex("a")).await || asked.elapsed() >= at_least / 2 }).await;
        let next = locks.mutex("a").acquire().await.unwrap();
        assert!(asked.elapsed() >= at_least, "another client entered after {:?}", asked.elapsed());
        next.release().await.unwrap();
    }
}

/// The process releases the lock, or drops its runtime while it holds it, and ends without a signal.
pub async fn a_process_that_ends_leaves_its_kept_lock_behind(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().at_least {
        return;
    }
    let ttl = backend.short_ttl();
    let at_least = ttl * 3;
    for releases in [true, false] {
        let mut holder = Worker::start(&backend.url());
        let asked = Instant::now();
        holder.ask(&format!("keep {} {} a", ttl.as_millis(), at_least.as_millis())).await;
        if releases {
            holder.ask("unlock").await;
        }
        holder.end().await;
        let next = locks.mutex("a").acquire().await.unwrap();
        assert!(asked.elapsed() >= at_least, "another client entered after {:?}", asked.elapsed());
        next.release().await.unwrap();
    }
}

pub async fn a_hold_continues_beyond_the_time_for_which_it_is_kept(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    if !locks.capabilities().at_least {
        return;
    }
    let ttl = backend.short_ttl() * 2;
    let at_least = ttl + backend.short_ttl() / 2;
    let guard = locks.mutex("a").ttl(ttl).at_least(at_least).acquire().await.unwrap();
    tokio::time::sleep(at_least + ttl).await;
    // On a machine too slow to renew in time, the hold is lost.
    if guard.is_valid() {
        assert!(is_taken(other.mutex("a")).await, "its process holds it");
        if guard.release().await.is_ok() {
            assert!(!is_taken(other.mutex("a")).await, "the deadline has passed, and nothing is left of it");
        }
    }
}

pub async fn a_kept_permit_counts_once(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().detached || !locks.capabilities().semaphore {
        return;
    }
    let permit = || locks.semaphore("a", 2);
    let kept = permit().at_least(HOUR).acquire().await.unwrap();
    let second = permit().try_acquire().await.unwrap().expect("one permit is left");
    assert!(is_taken(permit()).await);
    kept.release().await.unwrap();
    assert!(is_taken(permit()).await, "the first one is kept");
    second.release().await.unwrap();
    let again = permit().at_least(HOUR).try_acquire().await.unwrap().expect("one permit is left");
    assert!(is_taken(permit()).await);
    // A holder that has not begun its work gives the permit back.
    again.release_early().await.unwrap();
    assert!(!is_taken(permit()).await);
    let holders = locks.inspect("a").await.unwrap().holders;
    let owner = holders.iter().find_map(|holder| holder.detached.clone()).expect("one is kept").owner;
    assert!(locks.release_as("a", &owner).await.unwrap(), "its process has released it");
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
}

pub async fn a_cancelled_request_keeps_nothing(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().at_least {
        return;
    }
    let mut polls = 0;
    loop {
        let request = locks.mutex("a").at_least(long(&locks)).acquire();
        let guard = dropped_after(polls, request).await.map(|guard| guard.unwrap());
        let done = guard.is_some();
        if let Some(guard) = guard {
            guard.release_early().await.unwrap();
        }
        until(|| async { !is_taken(locks.mutex("a")).await }).await;
        // The number of polls depends on timing: continue some way beyond the first success.
        if done && polls > 16 {
            break;
        }
        polls += 1;
    }
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
    for (request, part) in [
        (locks.mutex("a").at_least(Duration::ZERO), "366 days"),
        (locks.mutex("a").at_least(HOUR * 9000), "366 days"),
        (locks.mutex("a").at_least(HOUR).reentrant(), "reentrant"),
    ] {
        let error = request.acquire().await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(part), "{error}");
    }
}

/// Acquires for an owner in another process, and kills it.
async fn held_by_a_dead_process(backend: &dyn Backend, owner: &str, lasts: Duration) -> String {
    let mut process = Worker::start(&backend.url());
    let held = process.ask(&format!("hold {owner} {} a", lasts.as_millis())).await;
    process.kill().await;
    held
}

pub async fn a_detached_hold_belongs_to_its_owner(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().detached {
        return;
    }
    let fence = held_by_a_dead_process(backend, "web-3", HOUR).await;
    if let Some(granted) = locks.mutex("a").try_acquire().await.unwrap() {
        let (lock, found) = (locks.inspect("a").await, locks.detached("a", "web-3").await);
        panic!("web-3 {fence}, and {granted:?} was granted; {lock:?}; its detached hold: {found:?}");
    }
    let hold_as = |owner: &str| locks.mutex("a").hold_as(owner, HOUR * 2);
    assert_eq!(hold_as("web-4").try_acquire().await.unwrap(), None);
    assert_eq!(locks.detached("a", "web-4").await.unwrap(), None);
    let found = locks.detached("a", "web-3").await.unwrap().expect("it outlives its process");
    assert!(found.left <= HOUR && found.left > HOUR / 2, "{:?}", found.left);
    assert_eq!(format!("held {}", found.fence.map_or(0, lockkeeper::Fence::get)), fence);
    // The same owner succeeds again, with the same fence and a new deadline.
    for again in
        [hold_as("web-3").acquire().await.unwrap(), hold_as("web-3").try_acquire().await.unwrap().unwrap()]
    {
        assert_eq!((again.fence, again.owner.as_str()), (found.fence, "web-3"));
    }
    assert!(locks.detached("a", "web-3").await.unwrap().unwrap().left > HOUR);
    let info = locks.inspect("a").await.unwrap();
    assert_eq!(info.holders.len(), 1, "{info:?}");
    let detached = info.holders[0].detached.as_ref().expect("shown as detached");
    assert!(detached.owner == "web-3" && detached.left() > HOUR, "{detached:?}");
    if locks.capabilities().shared {
        let error = locks.shared("a").hold_as("web-3", HOUR).acquire().await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("release it first"), "{error}");
    }
    // The waiter is woken by the release.
    let waiter = acquire(locks.mutex("a"));
    if locks.capabilities().waiters {
        until_waiting(&locks, "a", 1).await;
    }
    assert!(!locks.release_as("a", "web-4").await.unwrap());
    assert!(locks.release_as("a", "web-3").await.unwrap());
    let waiter = waiter.await.unwrap();
    assert!(!locks.capabilities().fence || waiter.fence() > found.fence);
    assert!(!locks.release_as("a", "web-3").await.unwrap(), "it is released");
    for owner in ["", "a\nb", &"x".repeat(513)] {
        let error = locks.mutex("a").hold_as(owner, HOUR).acquire().await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("bad owner"), "{error}");
    }
}

pub async fn a_detached_hold_ends_at_its_deadline(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    if !locks.capabilities().detached {
        return;
    }
    let lasts = backend.short_ttl();
    let asked = Instant::now();
    held_by_a_dead_process(backend, "web-3", lasts).await;
    let next = other.mutex("a").acquire().await.unwrap();
    assert!(asked.elapsed() >= lasts, "another client entered after {:?}", asked.elapsed());
    assert_eq!(locks.detached("a", "web-3").await.unwrap(), None);
    next.release().await.unwrap();
    // A new deadline counts, also for a client that waits for the old one.
    locks.mutex("a").hold_as("web-3", HOUR).acquire().await.unwrap();
    let waiter = acquire(other.mutex("a"));
    if locks.capabilities().waiters {
        until_waiting(&locks, "a", 1).await;
    }
    let asked = Instant::now();
    locks.mutex("a").hold_as("web-3", lasts).acquire().await.unwrap();
    let waiter = waiter.await.unwrap();
    assert!(asked.elapsed() >= lasts, "another client entered after {:?}", asked.elapsed());
    waiter.release().await.unwrap();
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
}

pub async fn requests_of_one_owner_share_one_detached_hold(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().detached {
        return;
    }
    let semaphore = locks.capabilities().semaphore;
    let request = move |locks: &Lockkeeper| match semaphore {
        true => locks.semaphore("a", 2),
        false => locks.mutex("a"),
    };
    let mut requests = Vec::new();
    for _ in 0..6 {
        let locks = open(backend).await;
        requests.push(tokio::spawn(async move { request(&locks).hold_as("web-3", HOUR).acquire().await }));
    }
    for done in requests {
        done.await.unwrap().unwrap();
    }
    let holders = locks.inspect("a").await.unwrap().holders;
    assert_eq!(holders.len(), 1, "one machine, one permit: {holders:?}");
    if semaphore {
        let hold_as = |owner: &str| request(&locks).hold_as(owner, HOUR);
        assert!(hold_as("web-4").try_acquire().await.unwrap().is_some());
        assert!(hold_as("web-5").try_acquire().await.unwrap().is_none(), "at most two machines");
        assert!(locks.release_as("a", "web-3").await.unwrap());
        assert!(hold_as("web-5").try_acquire().await.unwrap().is_some());
        assert!(
            locks.release_as("a", "web-4").await.unwrap() && locks.release_as("a", "web-5").await.unwrap()
        );
    } else {
        assert!(locks.release_as("a", "web-3").await.unwrap());
    }
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
}

pub async fn detached_holds_survive_a_restart_of_the_server(backend: &dyn Backend) {
    let locks = open(backend).await;
    let Some(server) = backend.server().filter(|_| locks.capabilities().detached) else { return };
    let hold = locks.mutex("a").hold_as("web-3", HOUR).acquire().await.unwrap();
    let kept = locks.mutex("b").at_least(HOUR).acquire().await.unwrap();
    let holder = kept.holder().to_owned();
    kept.release().await.unwrap();
    server.stop();
    server.start();
    let again = open(backend).await;
    assert!(is_taken(again.mutex("a")).await && is_taken(again.mutex("b")).await);
    let found = again.detached("a", "web-3").await.unwrap().expect("it survives");
    assert_eq!(found.fence, hold.fence);
    assert!(again.release_as("a", "web-3").await.unwrap() && again.release_as("b", &holder).await.unwrap());
    let next = again.mutex("a").acquire().await.unwrap();
    assert!(!locks.capabilities().fence || next.fence() > hold.fence);
}
