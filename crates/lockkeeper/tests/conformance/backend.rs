//! The interface between the suite and an engine under test, and helpers shared by all tests.
//!
//! To add an engine: write `tests/conformance/ENGINE.rs` with a `Backend` that starts its server on a free loopback
//! port (once per test binary, or per test), and `crate::conformance! { EngineBackend::start() }`.

use lockkeeper::{Acquire, Error, Guard, Lockkeeper};
pub use lockkeeper_testbed::servers::Server;
use std::time::Duration;

/// A timeout long enough for any machine: only a stuck test reaches it.
pub const TIMEOUT: Duration = Duration::from_secs(240);

/// Variables in the environment of a server.
#[allow(dead_code, reason = "for engines whose servers have clocks")]
pub type Environment = [(&'static str, String)];

/// An engine under test with its own data: no other test sees its locks.
pub trait Backend: Sync {
    fn url(&self) -> String;

    /// A client of an engine that has no URL.
    fn locks(&self) -> Option<Lockkeeper> {
        None
    }

    /// The time to live of holds in tests that wait for expiry.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The server of the engine, if it has its own one that tests may stop.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// The number of kills of the random killer in an ordinary run.
    fn kills(&self) -> usize {
        20
    }
}

pub async fn open(backend: &dyn Backend) -> Lockkeeper {
    match backend.locks() {
        Some(locks) => locks,
        None => open_url(&backend.url()).await,
    }
}

/// Opens a backend that may not serve yet: on a busy machine its start can take longer than a client's timeout.
pub async fn open_url(url: &str) -> Lockkeeper {
    loop {
        match Lockkeeper::open(url).await {
            Ok(locks) => return locks,
            Err(Error::Unavailable { reason, .. }) => eprintln!("not yet: {reason}"),
            Err(error) => panic!("the backend does not open: {error}"),
        }
    }
}

/// Polls a condition without assuming how fast the machine is.
pub async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the lock can be acquired at once, and leaves it free.
pub async fn until_free(locks: &Lockkeeper, name: &str) {
    until(|| async {
        let Some(guard) = locks.mutex(name).try_acquire().await.unwrap() else { return false };
        guard.release().await.unwrap();
        true
    })
    .await;
}

/// Waits until the lock has this number of waiters (only on engines that show waiters).
pub async fn until_waiting(locks: &Lockkeeper, name: &str, count: usize) {
    until(|| async { locks.inspect(name).await.unwrap().waiters.len() == count }).await;
}

/// Acquires a lock in a separate task.
pub fn acquire(request: Acquire) -> tokio::task::JoinHandle<Guard> {
    tokio::spawn(async { request.acquire().await.expect("acquire") })
}
