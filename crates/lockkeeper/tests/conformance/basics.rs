//! Tests within one process: modes, order, deadlines, fences, introspection, election.

use crate::backend::{Backend, acquire, open, until, until_free, until_waiting};
use lockkeeper::{Error, Lockkeeper};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub async fn a_mutex_admits_one(backend: &dyn Backend) {
    let locks = open(backend).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(enter_often(locks.clone(), inside.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn enter_often(locks: Lockkeeper, inside: Arc<AtomicUsize>) {
    for _ in 0..25 {
        let guard = locks.mutex("a").acquire().await.unwrap();
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "mutual exclusion violated on entry");
        tokio::task::yield_now().await;
        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "mutual exclusion violated before the exit");
        guard.release().await.unwrap();
    }
}

pub async fn try_acquire_never_waits(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    let guard = locks.mutex("a").try_acquire().await.unwrap().expect("it is free");
    assert!(other.mutex("a").try_acquire().await.unwrap().is_none());
    assert!(other.mutex("b").try_acquire().await.unwrap().is_some(), "another name is another lock");
    guard.release().await.unwrap();
    assert!(other.mutex("a").try_acquire().await.unwrap().is_some());
}

pub async fn a_deadline_passes_and_leaves_no_place_in_the_queue(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    let guard = locks.mutex("a").acquire().await.unwrap();
    let began = Instant::now();
    assert!(other.mutex("a").acquire_within(Duration::from_millis(50)).await.unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(50), "gave up early");
    assert!(other.mutex("a").acquire_by(began).await.unwrap().is_none(), "a deadline in the past");
    assert!(other.mutex("b").acquire_by(began).await.unwrap().is_some(), "a free lock needs no time");
    if locks.capabilities().waiters {
        until_waiting(&locks, "a", 0).await;
    }
    guard.release().await.unwrap();
    until(|| async { other.mutex("a").try_acquire().await.unwrap().is_some() }).await;
}

pub async fn fences_rise_and_are_never_zero(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    if !locks.capabilities().fence {
        // The suite's URL accepts holds without fences; otherwise such an engine rejects the request unless it opts
        // in.
        let url = backend.url();
        let strict = Lockkeeper::open(url.strip_suffix("?unfenced").unwrap_or(&url)).await.unwrap();
        let refused = strict.mutex("a").acquire().await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        assert_eq!(strict.mutex("a").unfenced().acquire().await.unwrap().fence(), None);
        assert_eq!(locks.mutex("b").acquire().await.unwrap().fence(), None);
        return;
    }
    let mut highest = None;
    for round in 0..20 {
        let locks = if round % 2 == 0 { &locks } else { &other };
        let guard = locks.mutex("a").acquire().await.unwrap();
        assert!(guard.fence() > highest, "{:?} after {highest:?}", guard.fence());
        highest = guard.fence();
        guard.release().await.unwrap();
    }
    assert!(highest.is_some_and(|fence| fence.get() <= i64::MAX as u64), "fits a signed column");
}

/// Permits are held at the same time and in no order, so a fence would protect nothing. Exclusive and shared holds
/// have one.
pub async fn a_permit_has_no_fence(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().fence || !locks.capabilities().semaphore {
        return;
    }
    let permits =
        [locks.semaphore("s", 2).acquire().await.unwrap(), locks.semaphore("s", 2).acquire().await.unwrap()];
    assert_eq!(permits.each_ref().map(|permit| permit.fence()), [None, None]);
    let exclusive = locks.mutex("m").acquire().await.unwrap();
    assert!(exclusive.fence().is_some());
    if locks.capabilities().shared {
        assert!(locks.shared("r").acquire().await.unwrap().fence().is_some());
    }
    // The list shows the same fences, and all of them as holders.
    let listed = locks.list().await.unwrap();
    let of = |name: &str| listed.iter().find(|lock| lock.name == name).expect("it is held");
    assert!(of("s").waiters.is_empty() && of("m").waiters.is_empty());
    assert_eq!(of("s").holders.iter().map(|holder| holder.fence).collect::<Vec<_>>(), [None, None]);
    assert_eq!(of("m").holders.iter().map(|holder| holder.fence).collect::<Vec<_>>(), [exclusive.fence()]);
    assert_eq!(locks.inspect("s").await.unwrap(), *of("s"));
}

/// The time to live that a guard reports is the one from which its validity is counted, even if another was
/// requested.
pub async fn the_reported_ttl_is_the_one_in_force(backend: &dyn Backend) {
    let locks = open(backend).await;
    for requested in [Duration::from_millis(1500), Duration::from_secs(60)] {
        let guard = locks.mutex("a").ttl(requested).acquire().await.unwrap();
        let Some(ttl) = guard.ttl() else {
            assert!(!locks.capabilities().expires);
            assert_eq!(guard.valid_for(), Duration::MAX);
            continue;
        };
        assert!(locks.capabilities().expires);
        assert!(guard.valid_for() <= ttl, "{:?} of {ttl:?}", guard.valid_for());
        // Soon after a renewal, which may be slow, most of the time to live is left.
        let renewed = until(|| async { guard.valid_for() > ttl / 2 });
        let within = tokio::time::timeout(Duration::from_secs(60), renewed).await;
        assert!(within.is_ok(), "of {ttl:?} only {:?} are left, although it is renewed", guard.valid_for());
        guard.release().await.unwrap();
    }
}

pub async fn waiters_enter_first_come_first_served(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().fifo {
        return;
    }
    let first = locks.mutex("a").acquire().await.unwrap();
    let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..10 {
        let (locks, entered) = (open(backend).await, entered.clone());
        tokio::spawn(async move {
            let guard = locks.mutex("a").acquire().await.unwrap();
            entered.send(n).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&open(backend).await, "a", n + 1).await;
    }
    first.release().await.unwrap();
    for n in 0..10 {
        assert_eq!(order.recv().await, Some(n));
    }
}

pub async fn readers_share_and_a_writer_is_alone(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().shared {
        let refused = locks.shared("a").acquire().await.unwrap_err().to_string();
        assert_eq!(refused, format!("shared locks: not supported by {}", locks.engine()));
        return;
    }
    let readers = [locks.shared("a").acquire().await.unwrap(), locks.shared("a").acquire().await.unwrap()];
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
    let writer = acquire(locks.mutex("a"));
    if !locks.capabilities().waiters {
        // Without a queue, a waiting writer does not stop further readers.
        let late = locks.shared("a").try_acquire().await.unwrap().expect("readers share");
        for reader in readers.into_iter().chain([late]) {
            assert!(!writer.is_finished());
            reader.release().await.unwrap();
        }
        let writer = writer.await.unwrap();
        assert!(locks.shared("a").try_acquire().await.unwrap().is_none());
        return writer.release().await.unwrap();
    }
    until_waiting(&locks, "a", 1).await;
    assert!(locks.shared("a").try_acquire().await.unwrap().is_none(), "a waiting writer goes first");
    let late = [acquire(locks.shared("a")), acquire(locks.shared("a"))];
    until_waiting(&locks, "a", 3).await;
    for reader in readers {
        assert!(!writer.is_finished());
        reader.release().await.unwrap();
    }
    let writer = writer.await.unwrap();
    assert_eq!(locks.inspect("a").await.unwrap().waiters.len(), 2);
    writer.release().await.unwrap();
    // Both hold at the same time, or this waits forever.
    let [one, two] = late;
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_ne!(one.fence(), two.fence());
}

pub async fn a_semaphore_admits_as_many_as_it_has_permits(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().semaphore {
        let refused = locks.semaphore("a", 3).acquire().await.unwrap_err().to_string();
        assert_eq!(refused, format!("semaphores: not supported by {}", locks.engine()));
        return;
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(locks.semaphore("a", 3).acquire().await.unwrap());
    }
    assert!(locks.semaphore("a", 3).try_acquire().await.unwrap().is_none());
    let waiting: Vec<_> = (0..3).map(|_| acquire(locks.semaphore("a", 3))).collect();
    // Every holder can make room, not only the oldest: release the middle one, then the last, then the first.
    for i in [1, 1, 0] {
        held.remove(i).release().await.unwrap();
    }
    for task in waiting {
        held.push(task.await.unwrap());
    }
    assert!(locks.semaphore("a", 3).try_acquire().await.unwrap().is_none());
}

pub async fn a_name_is_one_kind_of_lock(backend: &dyn Backend) {
    let locks = open(backend).await;
    if !locks.capabilities().semaphore {
        return;
    }
    let permit = locks.semaphore("a", 2).acquire().await.unwrap();
    for other in [locks.mutex("a"), locks.semaphore("a", 3)] {
        let error = other.try_acquire().await.unwrap_err();
        assert!(error.to_string().contains("in use as a semaphore of 2 permits"), "{error}");
    }
    permit.release().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_some());
}

pub async fn several_locks_at_once_never_deadlock(backend: &dyn Backend) {
    let locks = open(backend).await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"], ["b", "c", "b"]];
    let tasks: Vec<_> = orders
        .into_iter()
        .map(|order| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let all = locks.all(order).acquire().await.unwrap();
                    assert_eq!(all.fence("b").is_some(), locks.capabilities().fence);
                    assert!(all.fence("z").is_none());
                    all.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let b = locks.mutex("b").acquire().await.unwrap();
    assert!(locks.all(["a", "b"]).try_acquire().await.unwrap().is_none());
    let soon = Instant::now() + Duration::from_millis(30);
    assert!(locks.all(["a", "b"]).acquire_by(soon).await.unwrap().is_none());
    until_free(&locks, "a").await;
    b.release().await.unwrap();
    // The request that was given up is removed in the background.
    until_free(&locks, "b").await;
    let both = locks.all(["a", "b"]).acquire_by(soon).await.unwrap();
    both.expect("free locks need no time").release().await.unwrap();
    assert!(locks.all([""; 0]).acquire().await.is_err(), "no lock at all");
}

pub async fn holders_and_waiters_can_be_seen(backend: &dyn Backend) {
    let locks = open(backend).await;
    let guard = locks.mutex("a").metadata("job", "backup").acquire().await.unwrap();
    let info = locks.inspect("a").await.unwrap();
    let holder = &info.holders[0];
    assert_eq!(holder.tag.holder, guard.holder());
    assert_eq!(holder.tag.pid, std::process::id());
    assert_eq!(holder.tag.metadata["job"], "backup");
    assert_eq!(holder.fence, guard.fence());
    if locks.capabilities().waiters {
        let mut waiting = Vec::new();
        for n in 0..3 {
            waiting.push(acquire(locks.mutex("a").metadata("n", n.to_string())));
            until_waiting(&locks, "a", n + 1).await;
        }
        let info = locks.inspect("a").await.unwrap();
        let order: Vec<&str> = info.waiters.iter().map(|w| w.tag.metadata["n"].as_str()).collect();
        assert_eq!(order, ["0", "1", "2"]);
        assert_eq!(locks.list().await.unwrap(), [info]);
        waiting.iter().for_each(|task| task.abort());
    }
    guard.release().await.unwrap();
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
}

pub async fn a_reentrant_owner_enters_again_another_does_not(backend: &dyn Backend) {
    let locks = open(backend).await;
    let outer = locks.mutex("a").reentrant().acquire().await.unwrap();
    let inner = locks.mutex("a").reentrant().acquire().await.unwrap();
    assert_eq!(outer.fence(), inner.fence(), "the same hold");
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none(), "only by opting in");
    assert!(locks.new_owner().mutex("a").reentrant().try_acquire().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none(), "the inner one still holds");
    inner.release().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_some());
}

pub async fn an_election_has_one_leader_and_observers_follow(backend: &dyn Backend) {
    let locks = open(backend).await;
    let election = locks.election("e");
    if !locks.capabilities().election {
        let refused = election.campaign("x").elected().await.unwrap_err().to_string();
        assert_eq!(refused, format!("elections: not supported by {}", locks.engine()));
        return;
    }
    let mut observer = election.observe().await.unwrap();
    assert_eq!(observer.next().await.unwrap(), None);
    let first = election.campaign("one").elected().await.unwrap();
    let seen = observer.next().await.unwrap().expect("a leader");
    assert_eq!((seen.value.as_str(), seen.fence), ("one", first.fence()));
    let soon = Instant::now() + Duration::from_millis(30);
    assert!(election.campaign("late").elected_by(soon).await.unwrap().is_none());
    let second = tokio::spawn(election.campaign("two").elected());
    if locks.capabilities().waiters {
        until_waiting(&locks, "e", 1).await;
    }
    first.resign().await.unwrap();
    let second = second.await.unwrap().unwrap();
    // There may have been a moment without a leader between the two.
    while observer.next().await.unwrap().is_none_or(|leader| leader.value != "two") {}
    assert_eq!(election.leader().await.unwrap().unwrap().fence, second.fence());
    drop(second);
    assert_eq!(observer.next().await.unwrap(), None);
}

pub async fn odd_names_are_ordinary_locks(backend: &dyn Backend) {
    let locks = open(backend).await;
    let longest = ["x".repeat(512), "/".repeat(512), format!("{}y", "x".repeat(511))];
    let odd = ["..", ".", "../../etc/passwd", "/", "a/b", "a%2Fb", "ä→🔒", " ", "*", "--", "a\\b", "'; DROP"];
    let names: Vec<&str> = odd.into_iter().chain(longest.iter().map(String::as_str)).collect();
    let mut held = Vec::new();
    for name in &names {
        let guard = locks.mutex(*name).try_acquire().await.unwrap();
        held.push(guard.unwrap_or_else(|| panic!("{name:?} met another name")));
        assert!(locks.mutex(*name).try_acquire().await.unwrap().is_none(), "{name:?}");
    }
    let mut listed: Vec<String> = locks.list().await.unwrap().into_iter().map(|l| l.name).collect();
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
}

pub async fn bad_requests_are_refused_in_words(backend: &dyn Backend) {
    let locks = open(backend).await;
    let mega = "x".repeat(1 << 20);
    for (request, part) in [
        (locks.mutex(""), "empty"),
        (locks.mutex("a\0b"), "NUL"),
        (locks.mutex(mega), "1048576 bytes"),
        (locks.mutex("a\u{1b}[31m"), "control character"),
        (locks.mutex("a").ttl(Duration::ZERO), "time to live"),
        (locks.mutex("a").ttl(Duration::MAX), "time to live"),
    ] {
        let error = request.acquire().await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(part), "{error}");
    }
    if locks.capabilities().semaphore {
        let error = locks.semaphore("a", 0).acquire().await.unwrap_err();
        assert!(error.to_string().contains("at least 1 permit"), "{error}");
    }
    assert!(locks.list().await.unwrap().is_empty(), "refused requests leave nothing");
}
