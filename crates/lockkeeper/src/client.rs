//! [`Lockkeeper`] and the builder of lock requests.

use crate::detached::{self, HoldAs};
use crate::election::Election;
use crate::engine::{self, Acquired, Capabilities, Changes, Detach, Engine, EngineUrl, Request, WhenBusy};
use crate::guard::{Guard, Inner};
use crate::info::{LockInfo, LockMode, Tag, now_ms};
use crate::several::AcquireAll;
use crate::{Error, LockName, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The default time to live of a hold that is not renewed; see [`Acquire::ttl`].
const TTL: Duration = Duration::from_secs(10);

/// The shortest time to live. With a shorter one, ordinary pauses of a process would cost it its locks.
const TTL_MIN: Duration = Duration::from_millis(100);
const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reentrant holds by name: see [`Acquire::reentrant`].
type Reentrant = Arc<Mutex<HashMap<LockName, Weak<Inner>>>>;

/// A client of one engine. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Lockkeeper {
    engine: Arc<dyn Engine>,
    reentrant: Reentrant,
}

impl Lockkeeper {
    /// Opens the engine that a URL names.
    ///
    /// | URL | engine |
    /// |---|---|
    /// | `lockkeeper://a,b,c` | lockkeeper daemons (feature `cluster`); `lockkeeper:` is the local daemon |
    /// | `file:///var/lib/locks` | this machine only, no server |
    /// | `file:` | the same, in the user's state directory |
    /// | `etcd://user:password@host:port,host:port/path` | an etcd cluster (feature `etcd`); over TLS: `etcds://` |
    /// | `zookeeper://user:password@host:port,host:port/path` | a ZooKeeper ensemble (feature `zookeeper`) |
    /// | `redis://user:password@host:6379/0` | one Redis server; over TLS: `rediss://` |
    /// | `redis://a,b,c` | several independent Redis servers: Redlock, without fences |
    /// | `redis-sentinel://a,b,c/SERVICE` | the master of a service, according to Redis Sentinel; `rediss-sentinel://` |
    /// | `redis-cluster://a,b,c` | a Redis Cluster; `rediss-cluster://` |
    /// | `postgres://user:password@host:5432/database` | PostgreSQL |
    ///
    /// Each engine with a server has its own cargo feature. With TLS, `?ca=FILE` names the certificate of the server's
    /// authority (default: the system's authorities), and `?cert=FILE&key=FILE` the client's certificate. A password can
    /// be in the file of `?password-file=FILE`, so that it does not show up in a list of processes.
    pub async fn open(url: impl Into<EngineUrl>) -> Result<Lockkeeper> {
        Ok(Lockkeeper { engine: engine::open(&url.into()).await?, reentrant: Reentrant::default() })
    }

    /// The locks of an engine that the application has made itself.
    #[cfg(feature = "member")]
    pub(crate) fn with_engine(engine: Arc<dyn Engine>) -> Lockkeeper {
        Lockkeeper { engine, reentrant: Reentrant::default() }
    }

    /// The engine's name, as in its URL; `member` for a cluster member in this process.
    pub fn engine(&self) -> &'static str {
        self.engine.name()
    }

    /// The features that the engine supports.
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// Returns a handle on the same connection with a separate set of [reentrant](Acquire::reentrant) holds.
    pub fn new_owner(&self) -> Lockkeeper {
        Lockkeeper { engine: self.engine.clone(), reentrant: Reentrant::default() }
    }

    /// Builds a request for an exclusive hold.
    pub fn mutex(&self, name: impl Into<String>) -> Acquire {
        self.request(name, LockMode::Exclusive)
    }

    /// Builds a request for a shared hold. Shared holds exclude the holds of [`mutex`](Self::mutex), not each other.
    pub fn shared(&self, name: impl Into<String>) -> Acquire {
        self.request(name, LockMode::Shared)
    }

    /// Builds a request for one of `permits` permits. All clients must use the same number for one name.
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Acquire {
        self.request(name, LockMode::Permit { of: permits })
    }

    /// Builds a request for several locks. They are acquired in the order of their names, so that two such requests
    /// cannot deadlock.
    pub fn all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> AcquireAll {
        AcquireAll::new(names.into_iter().map(|name| self.mutex(name)).collect())
    }

    /// Returns the election of this name.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// The holders of a lock and its waiters, next waiter first.
    pub async fn inspect(&self, name: impl Into<String>) -> Result<LockInfo> {
        Ok(self.engine.inspect(&LockName::new(name)?).await?.without_permit_fences())
    }

    /// All locks that have a holder or a waiter, ordered by name.
    pub async fn list(&self) -> Result<Vec<LockInfo>> {
        Ok(self.engine.list().await?.into_iter().map(LockInfo::without_permit_fences).collect())
    }

    /// Starts a watch on all locks. [`Watch::changed`] resolves when a lock may have changed since this call began;
    /// read the new state with [`list`](Self::list).
    pub async fn watch(&self) -> Result<Watch> {
        Ok(Watch(self.engine.changes(None).await?))
    }

    pub(crate) fn dyn_engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) async fn changes(&self, name: &LockName) -> Result<Box<dyn Changes>> {
        self.engine.changes(Some(name)).await
    }

    pub(crate) fn not_supported(&self, feature: impl Into<String>) -> Error {
        Error::Unsupported { engine: self.engine.name(), feature: feature.into() }
    }

    fn request(&self, name: impl Into<String>, mode: LockMode) -> Acquire {
        Acquire {
            locks: self.clone(),
            name: name.into(),
            mode,
            ttl: TTL,
            metadata: BTreeMap::new(),
            reentrant: false,
            unfenced: false,
            at_least: None,
        }
    }
}

impl std::fmt::Debug for Lockkeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lockkeeper").field("engine", &self.engine.name()).finish()
    }
}

/// A watch on all locks of an engine.
pub struct Watch(Box<dyn Changes>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Resolves when a lock may have changed since the watch began or since `changed` last resolved.
    pub async fn changed(&mut self) -> Result<()> {
        self.0.next().await
    }
}

/// A lock request that has not been sent yet.
///
/// Every acquiring future can be dropped at any time; this also removes the request from the queue.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until acquired"]
pub struct Acquire {
    locks: Lockkeeper,
    name: String,
    mode: LockMode,
    ttl: Duration,
    metadata: BTreeMap<String, String>,
    reentrant: bool,
    unfenced: bool,
    at_least: Option<Duration>,
}

impl Acquire {
    /// Requests the time to live: how long the hold survives without renewal, on engines where holds expire. Renewal
    /// is automatic. [`Guard::ttl`] is the time to live in force, which can differ.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Adds metadata that [`Lockkeeper::inspect`] and [`Lockkeeper::list`] show with this holder or waiter.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Allows the owner of a hold to acquire it again. The owner is this [`Lockkeeper`] with its clones, because in
    /// async code a task does not identify an owner; [`Lockkeeper::new_owner`] creates a separate owner. The lock is
    /// released with the last of the owner's guards. Both requests must be reentrant.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Accepts a hold without a fence on engines that have none. [`Guard::fence`] is then `None`.
    pub fn unfenced(mut self) -> Self {
        self.unfenced = true;
        self
    }

    /// Keeps the lock for at least this time after the grant: when the hold is released or dropped earlier, when this
    /// process dies, and when its machine dies or reboots. No other client is granted the lock before. So a job that
    /// several machines start at about the same time runs once.
    ///
    /// The time is stored before this request returns. A request that fails or is cancelled keeps nothing. Supported
    /// by engines with [`Capabilities::at_least`]; the documentation of the engines names the clock that counts.
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = Some(at_least);
        self
    }

    /// Makes this a request for a hold of a named owner, which lasts until it is released or for `lasts`, without a
    /// living process: see [`HoldAs`].
    pub fn hold_as(self, owner: impl Into<String>, lasts: Duration) -> HoldAs {
        HoldAs::new(self, owner.into(), lasts)
    }

    /// Waits for the lock.
    pub async fn acquire(self) -> Result<Guard> {
        granted(self.run(WhenBusy::Wait).await?)
    }

    /// Acquires the lock if it is free now; `None` if it is not.
    pub async fn try_acquire(self) -> Result<Option<Guard>> {
        self.run(WhenBusy::Try).await
    }

    /// Waits for the lock until a deadline; `None` if the deadline passes first.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<Guard>> {
        acquire_by(self, deadline, Self::acquire, Self::try_acquire).await
    }

    /// Waits for the lock for at most `timeout`; `None` after this timeout.
    pub async fn acquire_within(self, timeout: Duration) -> Result<Option<Guard>> {
        acquire_within(self, timeout, Self::acquire, Self::try_acquire).await
    }

    async fn run(self, when_busy: WhenBusy) -> Result<Option<Guard>> {
        let name = LockName::new(self.name.as_str())?;
        self.check()?;
        let held_already =
            || self.locks.reentrant.lock().unwrap_or_else(|e| e.into_inner()).get(&name)?.upgrade();
        if self.reentrant
            && let Some(inner) = held_already()
            && inner.is_valid()
        {
            return Ok(Some(Guard::new(inner)));
        }
        let (reentrant, at_least) = (self.reentrant, self.at_least);
        let (locks, request) = self.into_request()?;
        let (holder, mode) = (request.tag.holder.clone(), request.mode);
        let Some(mut acquired) = locks.engine.acquire(request, when_busy).await? else { return Ok(None) };
        acquired.fence = acquired.fence.filter(|_| !mode.is_permit());
        if acquired.fence.is_none() && !mode.is_permit() && locks.capabilities().fence {
            let reason =
                format!("it granted `{name}` without a fence, or with the fence 0; its data may be damaged");
            return Err(Error::unavailable(locks.engine.name(), reason));
        }
        if let Some(lasts) = at_least {
            acquired = keep(acquired, &name, Detach { owner: holder.clone(), lasts }).await?;
        }
        let Acquired { fence, lease, ttl, hold } = acquired;
        let inner = Arc::new(Inner::new(name.clone(), holder, fence, ttl, lease, hold));
        if reentrant {
            let mut held = locks.reentrant.lock().unwrap_or_else(|e| e.into_inner());
            held.retain(|_, inner| inner.strong_count() > 0);
            held.insert(name, Arc::downgrade(&inner));
        }
        Ok(Some(Guard::new(inner)))
    }

    /// Checks the request, and converts it to the one that engines execute.
    pub(crate) fn into_request(self) -> Result<(Lockkeeper, Request)> {
        let name = LockName::new(self.name.as_str())?;
        self.check()?;
        let (mode, ttl, tag) = (self.mode, self.ttl, tag(self.metadata));
        Ok((self.locks, Request { name, mode, ttl, tag, at_least: self.at_least, hold_as: None }))
    }

    /// Rejects features that the engine does not support, and options out of range.
    fn check(&self) -> Result<()> {
        let can = self.locks.capabilities();
        match self.mode {
            LockMode::Shared if !can.shared => return Err(self.locks.not_supported("shared locks")),
            LockMode::Permit { .. } if !can.semaphore => return Err(self.locks.not_supported("semaphores")),
            LockMode::Permit { of: 0 } => {
                return Err(Error::BadOption("a semaphore needs at least 1 permit".into()));
            }
            _ => {}
        }
        if !can.fence && !self.unfenced && !self.locks.engine.unfenced() {
            return Err(self.locks.not_supported(
                "fences (a paused holder could write after the next one; \
                 `.unfenced()`, or `?unfenced` in the URL, accepts that)",
            ));
        }
        if self.reentrant && self.mode != LockMode::Exclusive {
            return Err(Error::BadOption("only exclusive locks can be reentrant".into()));
        }
        if let Some(at_least) = self.at_least {
            if !can.at_least {
                return Err(self
                    .locks
                    .not_supported("keeping a lock after its holder has ended (`at_least`)"));
            }
            detached::check_duration(at_least)?;
            if self.reentrant {
                return Err(Error::BadOption("a reentrant request cannot have `at_least`".into()));
            }
        }
        if !(TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            let ttl = self.ttl;
            return Err(Error::BadOption(format!("a time to live of {ttl:?} is not within 100 ms to 24 h")));
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Stores that a hold lasts at least for some time, BEFORE the application gets it. If this fails or is cancelled, the
/// hold is dropped, which leaves nothing behind.
async fn keep(mut acquired: Acquired, name: &LockName, detach: Detach) -> Result<Acquired> {
    let stored = acquired.hold.detach(detach).await?;
    if stored && acquired.lease.is_valid() {
        return Ok(acquired);
    }
    let reason = match stored {
        true => acquired.lease.lost().await,
        // Holder ids are unique: only a damaged store has one twice.
        false => "its id is in use by another hold".into(),
    };
    let _ = acquired.hold.discard().await;
    Err(Error::Lost { name: name.to_string(), reason })
}

/// The grant of a request that waits. Engines return `None` only for [`WhenBusy::Try`].
pub(crate) fn granted<G>(grant: Option<G>) -> Result<G> {
    grant.ok_or_else(|| Error::BadOption("the engine returned without granting the lock".into()))
}

/// Waits for a grant until a deadline; `None` if the deadline passes first. If it has passed already, one attempt is made,
/// since a free lock is granted without a wait.
pub(crate) async fn acquire_by<R, G, W, T>(
    request: R,
    deadline: Instant,
    acquire: impl FnOnce(R) -> W,
    try_acquire: impl FnOnce(R) -> T,
) -> Result<Option<G>>
where
    W: Future<Output = Result<G>>,
    T: Future<Output = Result<Option<G>>>,
{
    if deadline <= Instant::now() {
        return try_acquire(request).await;
    }
    match tokio::time::timeout_at(deadline.into(), acquire(request)).await {
        Ok(granted) => granted.map(Some),
        Err(_) => Ok(None),
    }
}

/// The same for a timeout. One that ends beyond the range of the clock does not limit the wait.
pub(crate) async fn acquire_within<R, G, W, T>(
    request: R,
    timeout: Duration,
    acquire: impl FnOnce(R) -> W,
    try_acquire: impl FnOnce(R) -> T,
) -> Result<Option<G>>
where
    W: Future<Output = Result<G>>,
    T: Future<Output = Result<Option<G>>>,
{
    match Instant::now().checked_add(timeout) {
        Some(deadline) => acquire_by(request, deadline, acquire, try_acquire).await,
        None => acquire(request).await.map(Some),
    }
}

/// Describes this process, with a holder id that no other acquisition has: `host/pid/nanoseconds.counter`.
fn tag(metadata: BTreeMap<String, String>) -> Tag {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (pid, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // The time distinguishes processes that get the same process id one after the other.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    Tag { holder: format!("{host}/{pid}/{nanos:x}.{n}"), host, pid, since_ms: now_ms(), metadata }
}
