//! The suite on three independent Redis servers, and what a majority of them promises.

use crate::backend::{Backend, Server, acquire, open, until};
use crate::redis::Redis;
use lockkeeper::Lockkeeper;
use std::time::Duration;

struct Redlock(Vec<Redis>);

impl Redlock {
    fn start() -> Option<Redlock> {
        (0..3).map(|_| Redis::start(&[])).collect::<Option<_>>().map(Redlock)
    }

    fn strict_url(&self) -> String {
        let addresses: Vec<String> = self.0.iter().map(Redis::address).collect();
        format!("redis://{}", addresses.join(","))
    }
}

impl Backend for Redlock {
    fn url(&self) -> String {
        format!("{}?unfenced", self.strict_url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    /// Each kill inside costs a lease.
    fn kills(&self) -> usize {
        6
    }
}

/// All of them at once; a majority would do.
impl Server for Redlock {
    fn stop(&self) {
        self.0.iter().for_each(Server::stop);
    }

    fn start(&self) {
        self.0.iter().for_each(Server::start);
    }
}

macro_rules! redlock {
    () => {
        match Redlock::start() {
            Some(redlock) => redlock,
            None => return,
        }
    };
}

crate::conformance! { redlock!() }

#[tokio::test]
async fn a_minority_of_servers_may_be_down() {
    let redlock = redlock!();
    let (locks, other) = (open(&redlock).await, open(&redlock).await);
    let before = locks.mutex("before").acquire().await.unwrap();
    let leases =
        || [0, 2].map(|i| redlock.0[i].cli(&["ZRANGE", "lockkeeper:lock:before", "0", "0", "WITHSCORES"]));
    // A server that was slow to grant follows with the next renewal.
    until(|| async { leases().iter().all(|lease| !lease.is_empty()) }).await;
    let first = leases();
    redlock.0[1].daemon.stop();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(other.mutex("a").try_acquire().await.unwrap().is_none());
    assert_eq!(locks.inspect("a").await.unwrap().holders[0].tag.holder, guard.holder());
    let waiter = acquire(other.mutex("a"));
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    let fresh = open(&redlock).await;
    fresh.mutex("b").acquire().await.unwrap().release().await.unwrap();
    until(|| async { leases().iter().zip(&first).all(|(now, first)| now != first) }).await;
    assert!(before.is_valid(), "renewed by the others");
    before.release().await.unwrap();
}

#[tokio::test]
async fn without_a_majority_nobody_holds() {
    let redlock = redlock!();
    let locks = open(&redlock).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    redlock.0[0].daemon.stop();
    redlock.0[2].daemon.stop();
    guard.lost().await;
    let error = locks.mutex("b").acquire().await.unwrap_err().to_string();
    assert!(
        error.contains("no majority of the 3 servers answers") && error.contains("refuses connections"),
        "{error}"
    );
    assert!(Lockkeeper::open(&redlock.url()).await.is_err());
}

#[tokio::test]
async fn a_hold_on_a_minority_admits_nobody_and_blocks_nobody() {
    let redlock = redlock!();
    let locks = open(&redlock).await;
    // Another has it on one server: the two others are a majority.
    let single = open(&redlock.0[0]).await.mutex("a").acquire().await.unwrap();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert_ne!(locks.inspect("a").await.unwrap().holders[0].tag.holder, single.holder());
    guard.release().await.unwrap();
    // On two: no majority is left.
    let second = open(&redlock.0[1]).await.mutex("a").acquire().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
    assert!(open(&redlock.0[2]).await.mutex("a").try_acquire().await.unwrap().is_some(), "taken back");
    drop((single, second));
}

#[tokio::test]
async fn without_fences_it_must_be_accepted_as_such() {
    let redlock = redlock!();
    let locks = Lockkeeper::open(&redlock.strict_url()).await.unwrap();
    let refused = locks.mutex("a").acquire().await.unwrap_err().to_string();
    assert!(refused.starts_with("fences (") && refused.ends_with("not supported by redlock"), "{refused}");
    assert!(locks.list().await.unwrap().is_empty());
    locks.all(["a", "b"]).unfenced().acquire().await.unwrap().release().await.unwrap();
}
