//! What the suite needs to know of an engine under test, and helpers shared by all tests.
//!
//! To add an engine: write `tests/conformance/ENGINE.rs` with a `Backend` that starts its server on a free loopback port
//! (once per test binary, or per test), and `crate::conformance! { EngineBackend::start() }`.

use lockkeeper::{Acquire, Error, Guard, Lockkeeper};
use std::time::Duration;

/// Long enough for any machine: only a stuck test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// An engine under test, with a place of its own: no other test sees its locks.
pub trait Backend: Sync {
    fn url(&self) -> String;

    /// How long holds last without renewal in tests that wait for expiry.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The server behind the engine, if it has one of its own that tests may stop.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// How many times the random killer strikes in an ordinary run.
    fn kills(&self) -> usize {
        20
    }
}

/// A server under test. Both calls return when it is so.
pub trait Server: Sync {
    /// Kills it -9.
    fn stop(&self);
    /// Starts it again, on the same port and the same data.
    fn start(&self);
}

pub async fn open(backend: &dyn Backend) -> Lockkeeper {
    open_url(&backend.url()).await
}

/// Opens a backend that may still be about to serve: on a busy machine that takes longer than a client's patience.
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

/// Waits until so many wait for the lock (only where waiters can be seen).
pub async fn until_waiting(locks: &Lockkeeper, name: &str, count: usize) {
    until(|| async { locks.inspect(name).await.unwrap().waiters.len() == count }).await;
}

/// Acquires in a task of its own.
pub fn acquire(request: Acquire) -> tokio::task::JoinHandle<Guard> {
    tokio::spawn(async { request.acquire().await.expect("acquire") })
}
