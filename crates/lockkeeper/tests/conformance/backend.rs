//! The interface between the suite and an engine under test, and helpers shared by all tests.
//!
//! To add an engine: write `tests/conformance/ENGINE.rs` with a `Backend` that starts its server on a free loopback
//! port (once per test binary, or per test), and `crate::conformance! { EngineBackend::start() }`.

use lockkeeper::{Acquire, Error, Guard, Lockkeeper};
pub use lockkeeper_testbed::servers::Server;
use std::pin::Pin;
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

    /// The servers of the engine, if tests may kill the one that serves the locks and another one takes over.
    fn nodes(&self) -> Option<&dyn Nodes> {
        None
    }

    /// The number of kills of the random killer in an ordinary run.
    fn kills(&self) -> usize {
        20
    }
}

/// The servers of one engine, of which another one takes over when the serving one dies.
pub trait Nodes: Sync {
    /// What the engine's documentation promises for a failover.
    fn guarantee(&self) -> Guarantee;
    /// Kills the server that serves the locks, and returns when another one has taken over.
    fn fail_over(&self) -> Step<'_>;
    /// Starts the killed server again, and returns when it could take over in the next failover.
    fn repair(&self) -> Step<'_>;
}

/// A step of a failover.
pub type Step<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The guarantee of an engine for a failover.
#[allow(dead_code, reason = "depends on the engines of the build")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// No two clients are inside at once: a hold is kept, or its holder learns in time that it is lost.
    Exclusion,
    /// A hold that began before the end of the failover can be forgotten while its holder still relies on it. Fences
    /// rise nevertheless, so that the resource can reject the stale holder. All other holds are exclusive.
    Fence,
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

/// Whether a request failed because servers were down or another one took over.
pub fn is_of_a_failover(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::SessionLost { .. } | Error::Lost { .. })
}

/// The pause before a request that failed is repeated.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Repeats a request until a server answers it.
pub async fn answered<T, F: Future<Output = lockkeeper::Result<T>>>(mut request: impl FnMut() -> F) -> T {
    loop {
        match request().await {
            Ok(answer) => return answer,
            Err(error) if is_of_a_failover(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}
