//! Tests with several processes: turns, kills, stops.

use crate::backend::{Backend, Guarantee, Nodes, answered, is_of_a_failover, open, until, until_waiting};
use crate::oracle::{self, Log};
use crate::worker::Worker;
use lockkeeper::{Error, Fence, Lockkeeper};

/// With several nodes, one of them dies meanwhile: every task gets its turns nevertheless.
pub async fn tasks_of_several_processes_take_turns(backend: &dyn Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut workers: Vec<Worker> = (0..4).map(|_| Worker::start(&backend.url())).collect();
    // Beside a failover, the tasks stay inside longer, so that some are still waiting then.
    let (how, linger_us) = if backend.nodes().is_some() { ("persist", 10_000) } else { ("loop", 0) };
    for worker in &mut workers {
        worker.send(&format!("{how} 10000 3 10 {linger_us} a {}", path.display())).await;
    }
    let mut guarantee = Guarantee::Exclusion;
    if let Some(nodes) = backend.nodes() {
        let mut log = Log::open(&path);
        until(|| async { std::fs::read_to_string(&path).unwrap().contains("exit") }).await;
        log.write("failover", "nodes", None);
        nodes.fail_over().await;
        log.write("over", "nodes", None);
        nodes.repair().await;
        guarantee = nodes.guarantee();
    }
    for worker in &mut workers {
        assert_eq!(worker.answer().await, "done");
    }
    let verdict = oracle::judge_failovers(&path, guarantee);
    assert_eq!(verdict.entries, 4 * 3 * 10);
}

pub async fn a_killed_holder_lets_the_next_one_in(backend: &dyn Backend) {
    let locks = open(backend).await;
    let mut holder = Worker::start(&backend.url());
    let ttl = backend.short_ttl();
    let held = holder.ask(&format!("lock {} a", ttl.as_millis())).await;
    let fence = Fence::new(held.strip_prefix("held ").unwrap().parse().unwrap());
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
    let next = crate::backend::acquire(locks.mutex("a"));
    if locks.capabilities().waiters {
        until_waiting(&locks, "a", 1).await;
    }
    holder.kill().await;
    let next = next.await.unwrap();
    assert!(!locks.capabilities().fence || next.fence() > fence);

    // The same for holders of a semaphore: the first waiter notices the death of each of them, not only of one.
    if locks.capabilities().semaphore {
        let mut holders = Vec::new();
        for _ in 0..3 {
            let mut worker = Worker::start(&backend.url());
            assert_eq!(worker.ask(&format!("permit {} 3 s", ttl.as_millis())).await, "held");
            holders.push(worker);
        }
        for victim in [0, 1, 0] {
            let next = crate::backend::acquire(locks.semaphore("s", 3));
            if locks.capabilities().waiters {
                until_waiting(&locks, "s", 1).await;
            }
            holders.remove(victim).kill().await;
            let worker_like = next.await.unwrap();
            // Keep the permit in use, without a guard that affects the next round.
            std::mem::forget(worker_like);
        }
    }
}

pub async fn killed_waiters_cost_nothing(backend: &dyn Backend) {
    let locks = open(backend).await;
    let guard = locks.mutex("a").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..6 {
        let mut waiter = Worker::start(&backend.url());
        waiter.send(&format!("lock {} a", backend.short_ttl().as_millis())).await;
        if locks.capabilities().waiters {
            until_waiting(&locks, "a", n + 1).await;
        }
        waiters.push(waiter);
    }
    // The first, one in the middle, and the last but one die; the others take turns.
    for dead in [4, 2, 0] {
        waiters.remove(dead).kill().await;
    }
    guard.release().await.unwrap();
    // In any order: not every engine has a queue.
    let turns: Vec<_> = waiters
        .into_iter()
        .map(|mut waiter| {
            tokio::spawn(async move {
                let answer = waiter.answer().await;
                assert!(answer.starts_with("held "), "{answer}");
                waiter.ask("unlock").await;
            })
        })
        .collect();
    for turn in turns {
        turn.await.unwrap();
    }
    until(|| async { locks.mutex("a").try_acquire().await.unwrap().is_some() }).await;
}

/// On engines where holds expire: a holder that could not renew is notified as soon as it runs again, and other
/// clients can get the lock. On others: a stopped holder keeps the lock.
pub async fn a_stopped_holder_is_alone_or_learns_that_it_lost(backend: &dyn Backend) {
    let locks = open(backend).await;
    let mut holder = Worker::start(&backend.url());
    let held = holder.ask(&format!("lock {} a", backend.short_ttl().as_millis())).await;
    let fence = Fence::new(held.strip_prefix("held ").unwrap().parse().unwrap());
    holder.signal("STOP").await;
    if let Some(nodes) = backend.nodes() {
        return a_holder_is_stopped_during_a_failover(&locks, holder, fence, nodes).await;
    }
    if locks.capabilities().expires {
        let next = locks.mutex("a").acquire().await.unwrap();
        holder.signal("CONT").await;
        assert_eq!(holder.ask("valid").await, "valid false", "it must not think it holds the lock");
        assert!(holder.ask("lost").await.starts_with("lost "));
        next.release().await.unwrap();
    } else {
        assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
        holder.signal("CONT").await;
        assert_eq!(holder.ask("valid").await, "valid true");
        holder.ask("unlock").await;
        until(|| async { locks.mutex("a").try_acquire().await.unwrap().is_some() }).await;
    }
}

/// The server dies while the holder cannot notice it. Where a failover can forget the hold, the holder may rely on it
/// until its lease ends, and the resource rejects it by its fence.
async fn a_holder_is_stopped_during_a_failover(
    locks: &Lockkeeper,
    mut holder: Worker,
    fence: Option<Fence>,
    nodes: &dyn Nodes,
) {
    nodes.fail_over().await;
    let next = answered(|| locks.mutex("a").acquire()).await;
    holder.signal("CONT").await;
    let valid = holder.ask("valid").await;
    assert!(valid == "valid false" || nodes.guarantee() == Guarantee::Fence, "two holders at once");
    assert!(next.fence() > fence, "{:?} after {fence:?}", next.fence());
    assert!(holder.ask("lost").await.starts_with("lost "));
    nodes.repair().await;
    // The lease of the new holder may have ended meanwhile, on a slow machine.
    match next.release().await {
        Err(error) if !is_of_a_failover(&error) => panic!("{error:?}"),
        _ => {}
    }
    until_it_is_free(locks).await;
}

/// Waits until the lock can be acquired, and leaves it free.
async fn until_it_is_free(locks: &Lockkeeper) {
    until(|| async {
        let Some(guard) = answered(|| locks.mutex("a").try_acquire()).await else { return false };
        guard.release().await.is_ok()
    })
    .await;
}

/// On engines with several nodes: a hold outlives the server that has granted it, or its holder learns that it is lost.
/// Where a failover can forget it, the next client may enter before that, with a higher fence.
pub async fn a_hold_is_kept_or_lost_with_notice_by_a_failover(backend: &dyn Backend) {
    let nodes = backend.nodes().expect("the engine has several nodes");
    let (locks, other) = (open(backend).await, open(backend).await);
    let guard = locks.mutex("a").ttl(backend.short_ttl() * 5).acquire().await.unwrap();
    let fence = guard.fence();
    nodes.fail_over().await;
    match answered(|| other.mutex("a").try_acquire()).await {
        None => match guard.release().await {
            Ok(()) => {}
            // It expired meanwhile.
            Err(error) => assert!(is_of_a_failover(&error), "{error:?}"),
        },
        Some(next) => {
            let valid = guard.is_valid();
            assert!(!valid || nodes.guarantee() == Guarantee::Fence, "two holders at once");
            assert!(next.fence() > fence, "{:?} after {fence:?}", next.fence());
            guard.lost().await;
            assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
            next.release().await.unwrap();
        }
    }
    let next = answered(|| other.mutex("a").acquire()).await;
    assert!(next.fence() > fence, "{:?} after {fence:?}", next.fence());
    next.release().await.unwrap();
    nodes.repair().await;
}

/// On engines with a server: holders and waiters notice that it went away, and locks work again when it is back.
pub async fn a_server_that_goes_away_is_noticed(backend: &dyn Backend) {
    let (locks, other) = (open(backend).await, open(backend).await);
    let Some(server) = backend.server() else {
        assert!(!locks.capabilities().expires, "only a server can let holds expire: give the backend one");
        return;
    };
    let guard = locks.mutex("a").ttl(backend.short_ttl()).acquire().await.unwrap();
    let fence = guard.fence();
    let waiter = tokio::spawn(other.mutex("a").ttl(backend.short_ttl()).acquire());
    if locks.capabilities().waiters {
        until_waiting(&locks, "a", 1).await;
    }
    let lost_too = locks.mutex("b").ttl(backend.short_ttl()).acquire().await.unwrap();
    server.stop();
    guard.lost().await;
    assert!(!guard.is_valid());
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "a lost hold is released while the server is away: {error}");
    assert!(waiter.await.unwrap().is_err(), "its session died: it must not wait forever");
    lost_too.lost().await;
    server.start();
    let again = open(backend).await.mutex("a").acquire().await.unwrap();
    assert!(!locks.capabilities().fence || again.fence() > fence);
    let error = lost_too.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "a lost hold is released when the server is back: {error}");
}
