//! The interface between the API and the engines, and the list of engines.
//!
//! ```text
//!   Lockkeeper, builders, Guard, Election      what applications see       client.rs, guard.rs, …
//!        │  Request, Patience                        ▲  Acquired { fence, lease, ttl, hold }
//!        ▼                                           │
//!   trait Engine ──────────────────────────── trait Hold, Lease            this file, lease.rs
//!        │
//!   cluster · file · etcd · redis · zookeeper · postgres       one module each, behind a feature
//! ```
//!
//! # The duties of an engine
//!
//! 1. **Cancellation.** Every future may be dropped at any await. A dropped [`Engine::acquire`] leaves no
//!    hold behind and no place in a queue, at the latest when the engine's lease on it runs out. So keep what must be undone in a value whose `Drop` undoes it
//!    BEFORE the first await that could lose it.
//! 2. **Deadlines are not the engine's business.** The API drops the future when the deadline comes.
//! 3. **Lost replies.** Name each acquisition by its [`Tag::holder`], so that a repeated acquire, renewal
//!    or release does nothing twice and a late release never frees the next hold.
//! 4. **Leases.** Read [`crate::lease::now`] BEFORE sending what starts or renews a lease and hand that
//!    reading to [`Lease::expiring`] or [`Lease::renewed`]; check `lease.is_valid()` AFTER the grant arrived: a grant
//!    that took longer than its lease is no grant.
//! 5. **Release and drop.** [`Hold::release`] waits for the server's word. Dropping a `Hold` gives the lock
//!    up without waiting, from any thread, with or without a runtime that still runs.
//! 6. **Honesty.** What [`Capabilities`] denies is refused by the API before the engine hears of it;
//!    what it promises is tested by the conformance suite.

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "file")]
pub(crate) mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod line;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "cluster", feature = "etcd", feature = "zookeeper"))]
mod servers;
mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use self::url::{EngineUrl, redact};
use crate::info::{Kind, LockInfo, Tag};
use crate::lease::Lease;
use crate::{Fence, LockName, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future, so that engines can stand behind one `dyn Engine`.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an engine offers; see the table in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Every hold, but for permits, gets a fence above all earlier ones of its lock.
    pub fence: bool,
    /// Waiters enter in the order in which they asked.
    pub fifo: bool,
    /// Shared holds.
    pub shared: bool,
    /// Semaphores.
    pub semaphore: bool,
    /// Who waits can be seen, in order, not only who holds.
    pub waiters: bool,
    /// `campaign` and `observe`.
    pub election: bool,
    /// A hold ends by itself when it is not renewed.
    pub expires: bool,
}

/// One request for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub name: LockName,
    pub kind: Kind,
    /// The requested time to live. Ignored by engines whose holds do not expire; see [`Acquired::ttl`].
    #[allow(dead_code, reason = "for the engines with expiring holds")]
    pub ttl: Duration,
    pub tag: Tag,
}

/// What to do if the lock is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Answer `None` at once, without ever standing in the queue.
    Try,
    /// Wait until granted or dropped.
    Wait,
}

/// A granted request.
pub(crate) struct Acquired {
    /// Above all earlier fences of this lock; `None` if the engine has none. That of a permit is not shown to the caller.
    pub fence: Option<Fence>,
    /// For how long the hold is safe.
    pub lease: Lease,
    /// The time to live in force, which may differ from the requested one; `None` if the hold does not expire.
    pub ttl: Option<Duration>,
    /// The hold itself.
    pub hold: Box<dyn Hold>,
}

/// A way to hold and inspect locks.
pub(crate) trait Engine: Send + Sync + 'static {
    /// As in the URL: "file", "redis".
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    /// Whether its URL accepts holds without a fence, as [`crate::Acquire::unfenced`] does for one request.
    fn unfenced(&self) -> bool {
        false
    }

    /// Acquires; `None` only with [`Patience::Try`].
    fn acquire(&self, request: Request, patience: Patience) -> BoxFuture<'_, Result<Option<Acquired>>>;

    /// One lock as it is now.
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>>;

    /// All locks that somebody holds or waits for, by name.
    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>>;

    /// Starts to watch one lock, or all.
    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>>;
}

/// A hold on a lock. See the duties of an engine for `Drop`.
pub(crate) trait Hold: Send + Sync {
    /// Gives the lock up and waits until that is so. Idempotent towards the server.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Called BEFORE a child process starts that works under this hold.
    fn before_spawn(&self) -> Result<()> {
        Ok(())
    }

    /// Called AFTER it started (with its process id) or failed to (`None`).
    fn after_spawn(&self, _child: Option<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Tells when to look again.
pub(crate) trait Changes: Send {
    /// Resolves when something may have changed since this watch began or `next` last resolved.
    /// May wake for nothing; never misses a change of the holders.
    fn next(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// The schemes of all engines, built in or not: (scheme, feature).
const SCHEMES: [(&str, &str); 8] = [
    ("lockkeeper", "cluster"),
    ("file", "file"),
    ("etcd", "etcd"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("zookeeper", "zookeeper"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
];

/// Opens the engine that a URL names. Boxed here: what an async function does is compiled in every crate that awaits it, and
/// these are the clients of six systems.
pub(crate) fn open(url: &EngineUrl) -> BoxFuture<'_, Result<Arc<dyn Engine>>> {
    Box::pin(connect(url))
}

async fn connect(url: &EngineUrl) -> Result<Arc<dyn Engine>> {
    url.refuse_ambiguous()?;
    let (scheme, rest) = match url.expose().split_once(':') {
        Some((scheme, rest)) => (scheme, rest),
        None => return Err(url.bad("it has no scheme; write for example file:///var/lib/locks")),
    };
    match scheme {
        #[cfg(feature = "file")]
        "file" => Ok(Arc::new(file::FileEngine::open(&file_path(url, rest)?)?)),
        #[cfg(feature = "cluster")]
        "lockkeeper" => Ok(Arc::new(cluster::ClusterEngine::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(etcd::EtcdEngine::open(url).await?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Ok(Arc::new(zookeeper::ZooKeeperEngine::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(postgres::PostgresEngine::open(url).await?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => redis::open(url).await,
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((_, feature)) => {
                url.bad(format!("this build has no {feature} engine (cargo feature `{feature}`)"))
            }
            None => url.bad(
                "its scheme is unknown; known are lockkeeper, file, etcd, redis, zookeeper and postgres",
            ),
        }),
    }
}

/// `file:` and `file://` mean the default directory, `file:///a/b` and `file:/a/b` the directory `/a/b`.
#[cfg(feature = "file")]
fn file_path(url: &EngineUrl, rest: &str) -> Result<std::path::PathBuf> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" => file::default_directory(),
        _ if path.contains('\0') => Err(url.bad("it contains a NUL character")),
        _ if path.starts_with('/') => Ok(path.into()),
        _ => Err(url.bad("a file URL needs an absolute path and no host: file:///var/lib/locks")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_that_name_no_engine_say_why() {
        for (url, part) in [
            ("", "no scheme"),
            ("orders", "no scheme"),
            ("gopher://x", "`gopher://x`: its scheme is unknown"),
            ("file://host/x", "absolute path"),
            ("file:relative", "absolute path"),
            ("file:///a\0b", "NUL"),
        ] {
            let error = open(&url.into()).await.err().expect(url);
            assert!(error.to_string().contains(part), "{url:?}: {error}");
        }
    }
}
