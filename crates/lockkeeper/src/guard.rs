//! [`Guard`]: a hold on a lock.

use crate::engine::{BoxFuture, Hold};
use crate::lease::Lease;
use crate::{Error, Fence, HoldState, LockName, Loss, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};

/// A hold, shared by the guards of one reentrant owner.
pub(crate) struct Inner {
    name: LockName,
    holder: String,
    fence: Option<Fence>,
    ttl: Option<Duration>,
    lease: Lease,
    /// `None` only after release.
    hold: Option<Box<dyn Hold>>,
}

impl Inner {
    pub fn new(
        name: LockName,
        holder: String,
        fence: Option<Fence>,
        ttl: Option<Duration>,
        lease: Lease,
        hold: Box<dyn Hold>,
    ) -> Inner {
        Inner { name, holder, fence, ttl, lease, hold: Some(hold) }
    }

    pub fn is_valid(&self) -> bool {
        self.lease.is_valid()
    }
}

/// A hold on a lock, until it is released, dropped or lost.
///
/// Dropping it is safe anywhere, also when a task is cancelled. [`release`](Guard::release) waits until the lock is
/// free and reports a failure.
#[must_use = "dropping a guard gives the lock up"]
pub struct Guard {
    inner: Arc<Inner>,
}

impl Guard {
    pub(crate) fn new(inner: Arc<Inner>) -> Guard {
        Guard { inner }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.inner.name
    }

    /// The fence: a number above those of all earlier holders of this lock. Pass it with every write to the protected
    /// resource; [`crate::fence`] has checkers. `None` for a permit of a semaphore, and on an engine without fences
    /// ([`Capabilities::fence`](crate::Capabilities::fence)).
    pub fn fence(&self) -> Option<Fence> {
        self.inner.fence
    }

    /// The unique id of this acquisition.
    pub fn holder(&self) -> &str {
        &self.inner.holder
    }

    /// The time to live in force: without renewal, the lock can be granted to another client after about this time.
    /// `None` if this hold does not expire.
    ///
    /// It can differ from the one that [`Acquire::ttl`](crate::Acquire::ttl) requested: etcd counts whole seconds, and
    /// ZooKeeper and a `lockkeeper` cluster have their own limits. In its first 100 ms, a hold of a cluster has only the
    /// lease of the cluster (see [`valid_for`](Self::valid_for)).
    pub fn ttl(&self) -> Option<Duration> {
        self.inner.ttl
    }

    /// The time for which no other client can be granted the lock, even without another renewal; `Duration::MAX` if
    /// the hold does not expire. It is counted from when the last successful renewal was *sent*. After
    /// [`lost`](Guard::lost) has resolved, it is the time that is left to stop.
    pub fn valid_for(&self) -> Duration {
        self.inner.lease.valid_for()
    }

    /// Whether the hold is safe now. The hold can be lost right after this call: only the fence protects the next
    /// write.
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Resolves with the reason when the hold is being lost, **before** the lock can be granted to another client.
    /// The margin in which to stop is a fifth of the time to live, at most 5 s; [`valid_for`](Guard::valid_for) is the
    /// part of it that is left. It is zero if the server has already ended the hold.
    pub async fn lost(&self) -> Loss {
        self.inner.lease.lost().await
    }

    /// The state of the hold now: held, in jeopardy (the connection is lost, and the hold still valid), or lost.
    pub fn state(&self) -> HoldState {
        self.inner.lease.state()
    }

    /// Resolves with the new state when it is of another kind than `known`; never once the hold is lost. A caller that
    /// reports the states of a hold passes the one that it has reported last:
    ///
    /// ```no_run
    /// # async fn report(guard: lockkeeper::Guard) {
    /// use lockkeeper::HoldState;
    ///
    /// let mut state = guard.state();
    /// while !matches!(state, HoldState::Lost(_)) {
    ///     state = guard.state_changed(&state).await;
    ///     println!("{}: {state:?}, valid for {:?}", guard.name(), guard.valid_for());
    /// }
    /// # }
    /// ```
    pub async fn state_changed(&self, known: &HoldState) -> HoldState {
        self.inner.lease.state_changed(known).await
    }

    /// Releases the lock and waits for the confirmation. With reentrant guards, only the last one releases it. With
    /// [`Acquire::at_least`](crate::Acquire::at_least), the lock stays held for the rest of that time.
    ///
    /// Returns [`Error::Lost`](crate::Error::Lost) if the hold had already ended: another client may have held the
    /// lock since.
    pub async fn release(self) -> Result<()> {
        self.end(|hold| hold.release()).await
    }

    async fn end(self, release: impl FnOnce(Box<dyn Hold>) -> BoxFuture<'static, Result<()>>) -> Result<()> {
        let Some(mut inner) = Arc::into_inner(self.inner) else { return Ok(()) };
        if !inner.is_valid() {
            // Dropping `inner` also releases any remains of the hold on the server.
            let reason = inner.lease.lost().await;
            return Err(Error::Lost { name: inner.name.to_string(), reason });
        }
        match inner.hold.take() {
            Some(hold) => release(hold).await,
            None => Ok(()),
        }
    }

    /// Releases the lock at once, although [`Acquire::at_least`](crate::Acquire::at_least) would keep it: for a holder
    /// that has not begun its work. Without `at_least`, this is [`release`](Guard::release).
    pub async fn release_early(self) -> Result<()> {
        self.end(|hold| hold.discard()).await
    }

    /// Starts a child process that works under this hold. Its environment has `LOCKKEEPER_NAME`, `LOCKKEEPER_HOLDER`,
    /// `LOCKKEEPER_TTL_MS` (the time to live in force; 0 if the hold does not expire) and `LOCKKEEPER_FENCE` (unset
    /// if the hold has no fence).
    ///
    /// On the `file` engine, the lock then stays held while this process *or* the child runs (unless released), so
    /// that even after `kill -9` of this process the lock is not granted while the child works. Background processes
    /// that the child leaves behind do not hold the lock.
    pub async fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        let ttl_ms = self.inner.ttl.map_or(0, |ttl| ttl.as_millis());
        command
            .env("LOCKKEEPER_NAME", self.inner.name.as_str())
            .env("LOCKKEEPER_HOLDER", &self.inner.holder)
            .env("LOCKKEEPER_TTL_MS", ttl_ms.to_string());
        match self.inner.fence {
            Some(fence) => command.env("LOCKKEEPER_FENCE", fence.to_string()),
            // An inherited value would be the fence of another lock: that of a hold around this process.
            None => command.env_remove("LOCKKEEPER_FENCE"),
        };
        let Some(hold) = &self.inner.hold else { return command.spawn() };
        hold.before_spawn().map_err(std::io::Error::other)?;
        let spawned = command.spawn();
        // If the child cannot be recorded (a full disk), it holds the lock through the file descriptor that it
        // inherited. This is safe, but a daemon that the child starts could then keep the lock.
        let _ = hold.after_spawn(spawned.as_ref().ok().and_then(Child::id)).await;
        spawned
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("name", &self.inner.name).field("fence", &self.inner.fence).finish()
    }
}
