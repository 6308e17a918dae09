//! The interface between the API and the engines, and the list of engines.
//!
//! ```text
//!   Lockkeeper, builders, Guard, Election      what applications see       client.rs, guard.rs, …
//!        │  Request, WhenBusy                        ▲  Acquired { fence, lease, ttl, hold }
//!        ▼                                           │
//!   trait Engine ──────────────────────────── trait Hold, Lease            this file, lease.rs
//!        │
//!   cluster · member · file · etcd · redis · zookeeper · postgres · mysql     one module each, behind a feature
//! ```
//!
//! # The duties of an engine
//!
//! 1. **Cancellation.** Every future may be dropped at any await. A dropped [`Engine::acquire`] leaves no hold and no
//!    queued request behind, at the latest when the engine's lease on it expires. So store everything that must be
//!    undone in a value whose `Drop` undoes it, BEFORE the first await at which the future could be dropped.
//! 2. **Deadlines** are handled by the API, which drops the future when the deadline passes.
//! 3. **Lost replies.** Identify each acquisition by its [`Tag::holder`], so that a repeated acquire, renewal or
//!    release takes effect once, and a late release never frees the next hold.
//! 4. **Leases.** Read [`crate::lease::now`] BEFORE sending the message that starts or renews a lease, and pass that
//!    reading to [`Lease::expiring`] or [`Lease::renewed`]. Check `lease.is_valid()` AFTER the grant arrived: a grant
//!    that took longer than its lease is void.
//! 5. **Release and drop.** [`Hold::release`] waits for the server's confirmation. Dropping a `Hold` releases the
//!    lock without waiting, from any thread, with or without a running runtime.
//! 6. **Detached holds.** [`Hold::detach`] stores a record beside the hold: the owner's name, a deadline on a clock of
//!    the server or the boot, mode and fence. From then on the lock stays held until the deadline, whatever happens to
//!    this process and its machine; hold and record count as one. A hold that was detached leaves the record when it
//!    is released or dropped. A hold whose `detach` failed or was dropped leaves nothing, like any other.
//! 7. **Capabilities.** The API rejects a request for a feature that [`Capabilities`] denies before it reaches the
//!    engine. The conformance suite tests the features that it promises.

pub(crate) mod catalogue;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "file", feature = "zookeeper"))]
mod fifo;
#[cfg(feature = "file")]
pub(crate) mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
#[cfg(feature = "member")]
pub(crate) mod member;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "tls")]
mod options;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod request_queue;
#[cfg(any(
    feature = "cluster",
    feature = "etcd",
    feature = "mysql",
    feature = "redis",
    feature = "zookeeper"
))]
mod servers;
#[cfg(feature = "tls")]
mod tls;
mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub(crate) use self::catalogue::name_of_scheme;
pub use self::catalogue::{EngineInfo, engines};
#[cfg(all(test, any(feature = "etcd", feature = "zookeeper")))]
pub(crate) use self::request_queue::{DetachedRecord, RequestRecord};
pub use self::url::{EngineUrl, redact};
use crate::diagnose::Finding;
#[cfg(any(feature = "cluster", feature = "member"))]
use crate::info::{Detached, now_ms};
use crate::info::{LockInfo, LockMode, Tag};
use crate::lease::Lease;
use crate::{Error, Fence, LockName, Result};
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future, so that engines can be used as `dyn Engine`.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The features of an engine; see the table in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// Every hold except a permit gets a fence above all earlier fences of its lock.
    pub fence: bool,
    /// Requests are granted in the order of their arrival.
    pub fifo: bool,
    /// Shared holds are supported.
    pub shared: bool,
    /// Semaphores are supported.
    pub semaphore: bool,
    /// Waiters can be listed in order, not only holders.
    pub waiters: bool,
    /// Elections (`campaign` and `observe`) are supported.
    pub election: bool,
    /// A hold expires when it is not renewed.
    pub expires: bool,
    /// A lock can be kept after its process has ended: [`Acquire::at_least`](crate::Acquire::at_least) is supported.
    pub at_least: bool,
    /// An owner without a process can hold a lock: [`Acquire::hold_as`](crate::Acquire::hold_as) is supported.
    pub detached: bool,
}

/// One request for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub name: LockName,
    pub mode: LockMode,
    /// The requested time to live. Ignored by engines whose holds do not expire; see [`Acquired::ttl`].
    #[allow(dead_code, reason = "for the engines with expiring holds")]
    pub ttl: Duration,
    pub tag: Tag,
    /// The time for which the lock is kept at least: [`Hold::detach`] follows the grant. The cluster, which stores a
    /// detached hold with its request, needs it earlier.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "for the cluster"))]
    pub at_least: Option<Duration>,
    /// The owner of a hold without a process: [`Hold::detach`] follows the grant. For the same reason.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "for the cluster"))]
    pub hold_as: Option<Detach>,
}

/// The behaviour of an engine if the lock is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// Return `None` at once, without queuing the request.
    Try,
    /// Wait until the lock is granted or the future is dropped.
    Wait,
}

/// A granted request.
pub(crate) struct Acquired {
    /// A fence above all earlier fences of this lock; `None` if the engine has none. The API hides the fence of a
    /// permit.
    pub fence: Option<Fence>,
    /// The validity of the hold.
    pub lease: Lease,
    /// The time to live in force, which may differ from the requested one; `None` if the hold does not expire.
    pub ttl: Option<Duration>,
    /// The hold itself.
    pub hold: Box<dyn Hold>,
}

/// The record of a hold that outlives its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detach {
    /// The owner. It has at most one detached hold of a lock.
    pub owner: String,
    /// The time from now until the deadline.
    pub lasts: Duration,
}

/// A detached hold as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetachedState {
    pub mode: LockMode,
    pub fence: Option<Fence>,
    /// The time until the deadline.
    pub left: Duration,
}

/// A lock service: the interface that each engine implements.
pub(crate) trait Engine: Send + Sync + 'static {
    /// The name of the engine, as in its URL: "file", "redis".
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    /// Whether its URL accepts holds without a fence, as [`crate::Acquire::unfenced`] does for one request.
    fn unfenced(&self) -> bool {
        false
    }

    /// Acquires a lock; returns `None` only with [`WhenBusy::Try`].
    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>>;

    /// Whether the grant of a request with [`Request::hold_as`] is the detached hold itself, which all requests of the
    /// owner share. A request that is dropped then gives the hold up, even if another query has found it already.
    fn grants_detached(&self) -> bool {
        false
    }

    /// The current state of one lock.
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>>;

    /// All locks that have a holder or a waiter, ordered by name.
    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>>;

    /// Starts a watch on one lock, or on all of them.
    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>>;

    /// The detached hold of an owner; with `lasts`, its deadline is first set to that time from now.
    fn detached<'a>(
        &'a self,
        _name: &'a LockName,
        _owner: &'a str,
        _lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(async { Err(no_detached_holds(self.name())) })
    }

    /// The findings about this server that a trial cannot show: persistence, replication, health, clocks. For a setting
    /// that it cannot read, an engine returns a note.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Releases the detached hold of an owner. Returns false if it has none, or if its process still works under it.
    fn release_detached<'a>(&'a self, _name: &'a LockName, _owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Err(no_detached_holds(self.name())) })
    }
}

/// The error of an engine without detached holds; the API checks [`Capabilities::detached`] before.
fn no_detached_holds(engine: &'static str) -> Error {
    Error::Unsupported { engine, feature: "holds without a process".into() }
}

/// A hold on a lock. The duties of an engine specify its `Drop`.
pub(crate) trait Hold: Send + Sync {
    /// Releases the lock and waits for the confirmation. Repeating the request has no effect on the server.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Stores the hold: see "Detached holds" above. Called once, after the grant and BEFORE the application gets the
    /// hold. Returns false, and stores nothing, if the owner has a detached hold of this lock already.
    fn detach(&mut self, _detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Err(no_detached_holds("this engine")) })
    }

    /// Releases the lock and its record, if there is one, and waits for the confirmation.
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.release()
    }

    /// Called BEFORE a child process starts that works under this hold.
    fn before_spawn(&self) -> Result<()> {
        Ok(())
    }

    /// Called AFTER the child process started (with its process id) or failed to start (`None`).
    fn after_spawn(&self, _child: Option<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// A watch on one lock or on all locks.
pub(crate) trait Changes: Send {
    /// Resolves when the state may have changed since this watch began or `next` last resolved. It may resolve
    /// without a change, but never misses a change of the holders.
    fn next(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// The form in which the members of a cluster keep a tag, beside its holder, and show it to other clients.
#[cfg(any(feature = "cluster", feature = "member"))]
fn purpose_of(tag: &Tag) -> String {
    serde_json::to_string(tag).unwrap_or_default()
}

/// The tag of a holder or waiter of a cluster. Clients of other interfaces, such as HTTP, set any purpose: it need not be
/// the form of a tag.
#[cfg(any(feature = "cluster", feature = "member"))]
fn tag_of(owner: &str, purpose: &str, acquisition: &str, since_ms: u64) -> Tag {
    serde_json::from_str(purpose).unwrap_or_else(|_| {
        let mut metadata = std::collections::BTreeMap::new();
        if !purpose.is_empty() {
            metadata.insert(String::from("purpose"), purpose.into());
        }
        let holder = if owner.is_empty() { acquisition } else { owner };
        Tag { holder: holder.into(), host: String::new(), pid: 0, since_ms, metadata }
    })
}

/// The deadline of a detached hold of a cluster. A process may work under the hold beyond it.
#[cfg(any(feature = "cluster", feature = "member"))]
fn detached_until(owner: String, until_ms: Option<u64>) -> Option<Detached> {
    until_ms.filter(|until_ms| *until_ms > now_ms()).map(|until_ms| Detached { owner, until_ms })
}

/// The schemes of all engines, including engines that are not in this build: (scheme, feature).
const SCHEMES: [(&str, &str); 17] = [
    ("lockkeeper", "cluster"),
    ("file", "file"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("etcd+tls", "etcd"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis-cluster", "redis"),
    ("rediss-cluster", "redis"),
    ("redis-sentinel", "redis"),
    ("rediss-sentinel", "redis"),
    ("zookeeper", "zookeeper"),
    ("zookeeper+tls", "zookeeper"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
];

/// Opens the engine that a URL names. The future is boxed here because the body of an async function is compiled in
/// every crate that awaits it, and this one contains the clients of six systems.
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
        "file" => match rest.strip_suffix("?shared") {
            Some(rest) => Ok(Arc::new(file::shared::SharedFileEngine::open(&shared_path(url, rest)?)?)),
            None => Ok(Arc::new(file::FileEngine::open(&file_path(url, rest)?)?)),
        },
        #[cfg(feature = "cluster")]
        "lockkeeper" => Ok(Arc::new(cluster::ClusterEngine::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" | "etcd+tls" => Ok(Arc::new(etcd::EtcdEngine::open(url).await?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeeper+tls" => Ok(Arc::new(zookeeper::ZooKeeperEngine::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(postgres::PostgresEngine::open(url).await?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(mysql::MysqlEngine::open(url).await?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" | "redis-sentinel" | "rediss-sentinel" => {
            redis::open(url).await
        }
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((_, feature)) => {
                url.bad(format!("this build has no {feature} engine (cargo feature `{feature}`)"))
            }
            None => url.bad(
                "its scheme is unknown; known are lockkeeper, file, etcd, redis, zookeeper, postgres and mysql",
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

/// A directory of several users has no default.
#[cfg(feature = "file")]
fn shared_path(url: &EngineUrl, rest: &str) -> Result<std::path::PathBuf> {
    match rest.trim_start_matches('/') {
        "" => Err(url.bad("a shared directory has no default; name it: file:///run/lock/lockkeeper?shared")),
        _ => file_path(url, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_without_a_known_engine_are_rejected_with_a_reason() {
        for (url, part) in [
            ("", "no scheme"),
            ("orders", "no scheme"),
            ("gopher://x", "`gopher://x`: its scheme is unknown"),
            ("file://host/x", "absolute path"),
            ("file:relative", "absolute path"),
            ("file:///a\0b", "NUL"),
            ("file:?shared", "has no default"),
            ("file://?shared", "has no default"),
        ] {
            let error = open(&url.into()).await.err().expect(url);
            assert!(error.to_string().contains(part), "{url:?}: {error}");
        }
    }
}
