//! Detached holds: holds of a named owner, without a living process.

use crate::client::{Acquire, acquire_by, acquire_within, granted};
use crate::engine::{Acquired, Detach, Request, WhenBusy};
use crate::{Error, Fence, LockMode, LockName, Lockkeeper, Result};
use std::time::{Duration, Instant};

/// The longest time for which a lock can be kept without a process.
const LASTS_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Rejects a time that is zero or too long.
pub(crate) fn check_duration(lasts: Duration) -> Result<()> {
    match lasts.is_zero() || lasts > LASTS_MAX {
        true => Err(Error::BadOption(format!("a hold of {lasts:?} is not within 1 ns to 366 days"))),
        false => Ok(()),
    }
}

fn check_owner(owner: &str) -> Result<()> {
    lockkeeper_text::check_name(owner).map_err(|why| Error::BadOption(format!("bad owner: {why}")))
}

/// The state of a detached hold when it was acquired or looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DetachedHold {
    /// The lock's name.
    pub name: LockName,
    /// The owner's name.
    pub owner: String,
    /// The mode of the hold.
    pub mode: LockMode,
    /// The fence; `None` for a permit, and on an engine without fences.
    pub fence: Option<Fence>,
    /// The time until its deadline.
    pub left: Duration,
}

/// A request for a detached hold that has not been sent yet: see [`Acquire::hold_as`].
///
/// The hold belongs to the owner, not to this process: it lasts until [`Lockkeeper::release_as`] or its deadline, even
/// if every process and machine of the owner ends. If the owner has the hold already, the request succeeds at once and
/// moves the deadline to the new time, earlier or later.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let locks = lockkeeper::Lockkeeper::open(format!("file://{}", dir.path().display())).await?;
/// use std::time::{Duration, Instant};
/// let two_hours = Duration::from_secs(7200);
/// // At most two machines are down at a time.
/// locks.semaphore("reboot", 2).hold_as("web-3", two_hours).acquire().await?;
/// // … the machine reboots …
/// assert!(locks.detached("reboot", "web-3").await?.is_some());
/// assert!(locks.release_as("reboot", "web-3").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until acquired"]
pub struct HoldAs {
    request: Acquire,
    owner: String,
    lasts: Duration,
}

impl HoldAs {
    pub(crate) fn new(request: Acquire, owner: String, lasts: Duration) -> HoldAs {
        HoldAs { request, owner, lasts }
    }

    /// Waits for the lock.
    pub async fn acquire(self) -> Result<DetachedHold> {
        granted(self.run(WhenBusy::Wait).await?)
    }

    /// Acquires the hold if the lock is free now, or the owner has it already; `None` otherwise.
    pub async fn try_acquire(self) -> Result<Option<DetachedHold>> {
        self.run(WhenBusy::Try).await
    }

    /// Waits for the lock until a deadline; `None` if the deadline passes first.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<DetachedHold>> {
        acquire_by(self, deadline, Self::acquire, Self::try_acquire).await
    }

    /// Waits for the lock for at most `timeout`; `None` after this timeout.
    pub async fn acquire_within(self, timeout: Duration) -> Result<Option<DetachedHold>> {
        acquire_within(self, timeout, Self::acquire, Self::try_acquire).await
    }

    async fn run(self, when_busy: WhenBusy) -> Result<Option<DetachedHold>> {
        let HoldAs { request, owner, lasts } = self;
        check_owner(&owner)?;
        check_duration(lasts)?;
        let (locks, mut request) = request.into_request()?;
        request.hold_as = Some(Detach { owner: owner.clone(), lasts });
        locks.check_detached("holds without a process (`hold_as`)")?;
        loop {
            if let Some(hold) = again(&locks, &request, &owner, lasts).await? {
                return Ok(Some(hold));
            }
            let acquire = locks.dyn_engine().acquire(request.clone(), when_busy);
            // Another process of this owner may acquire the hold first. Where requests of an owner share one hold, this
            // request is then granted as well, and a hold that is found may be that of this very request.
            let acquired = if when_busy == WhenBusy::Try || locks.dyn_engine().grants_detached() {
                acquire.await?
            } else {
                tokio::select! {
                    acquired = acquire => acquired?,
                    hold = until_owned(&locks, &request, &owner, lasts) => return hold.map(Some),
                }
            };
            let Some(Acquired { fence, lease, mut hold, .. }) = acquired else {
                // Another process of this owner may have acquired it in the meantime.
                return again(&locks, &request, &owner, lasts).await;
            };
            if !hold.detach(Detach { owner: owner.clone(), lasts }).await? {
                hold.discard().await?;
                continue;
            }
            if !lease.is_valid() {
                let reason = lease.lost().await;
                let _ = hold.discard().await;
                return Err(Error::Lost { name: request.name.to_string(), reason });
            }
            hold.release().await?;
            let fence = fence.filter(|_| !request.mode.is_permit());
            let (name, mode) = (request.name, request.mode);
            return Ok(Some(DetachedHold { name, owner, mode, fence, left: lasts }));
        }
    }
}

/// The hold that the owner has already, with its new deadline.
async fn again(
    locks: &Lockkeeper,
    request: &Request,
    owner: &str,
    lasts: Duration,
) -> Result<Option<DetachedHold>> {
    let Some(found) = find(locks, &request.name, owner, None).await? else { return Ok(None) };
    if found.mode != request.mode {
        return Err(Error::BadOption(format!(
            "`{owner}` holds `{}` as {}, and requests it as {}; release it first",
            request.name, found.mode, request.mode
        )));
    }
    find(locks, &request.name, owner, Some(lasts)).await
}

/// Resolves when another process acquires the hold for the same owner.
async fn until_owned(
    locks: &Lockkeeper,
    request: &Request,
    owner: &str,
    lasts: Duration,
) -> Result<DetachedHold> {
    let mut changes = locks.changes(&request.name).await?;
    loop {
        if let Some(hold) = again(locks, request, owner, lasts).await? {
            return Ok(hold);
        }
        changes.next().await?;
    }
}

async fn find(
    locks: &Lockkeeper,
    name: &LockName,
    owner: &str,
    lasts: Option<Duration>,
) -> Result<Option<DetachedHold>> {
    let found = locks.dyn_engine().detached(name, owner, lasts).await?;
    Ok(found.map(|found| DetachedHold {
        name: name.clone(),
        owner: owner.into(),
        mode: found.mode,
        fence: found.fence.filter(|_| !found.mode.is_permit()),
        left: found.left,
    }))
}

impl Lockkeeper {
    /// The detached hold of an owner on a lock; `None` if it has none.
    pub async fn detached(&self, name: impl Into<String>, owner: &str) -> Result<Option<DetachedHold>> {
        let name = LockName::new(name)?;
        check_owner(owner)?;
        self.check_detached("holds without a process")?;
        find(self, &name, owner, None).await
    }

    /// Releases the detached hold of an owner. Returns false if it has none.
    ///
    /// A lock that is kept by [`Acquire::at_least`] after its process has ended is such a hold too; its owner is the
    /// holder's id ([`Guard::holder`](crate::Guard::holder)), which [`inspect`](Lockkeeper::inspect) shows. While the
    /// process still works under the lock, this returns false.
    pub async fn release_as(&self, name: impl Into<String>, owner: &str) -> Result<bool> {
        let name = LockName::new(name)?;
        check_owner(owner)?;
        self.check_detached("holds without a process")?;
        self.dyn_engine().release_detached(&name, owner).await
    }

    /// Rejects a request that needs a hold without a process.
    pub(crate) fn check_detached(&self, feature: &str) -> Result<()> {
        match self.capabilities().detached {
            true => Ok(()),
            false => Err(self.not_supported(feature)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BoxFuture, Capabilities, Changes, DetachedState, Engine, Hold, catalogue};
    use crate::info::LockInfo;
    use crate::lease::Lease;
    use std::sync::{Arc, Mutex};
    use tokio::sync::Notify;

    /// An engine whose grants are visible, and reported to watches, long before the request returns.
    #[derive(Default)]
    struct SlowReplies {
        shared: Arc<Shared>,
    }

    #[derive(Default)]
    struct Shared {
        is_held: Mutex<bool>,
        changed: Notify,
    }

    /// Gives the hold up unless it was detached, as a request does that is dropped before its reply.
    struct SlowGrant {
        shared: Arc<Shared>,
        detached: bool,
    }

    impl Drop for SlowGrant {
        fn drop(&mut self) {
            if !self.detached {
                *self.shared.is_held.lock().unwrap() = false;
            }
        }
    }

    impl Hold for SlowGrant {
        fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn detach(&mut self, _detach: Detach) -> BoxFuture<'_, Result<bool>> {
            self.detached = true;
            Box::pin(async { Ok(true) })
        }
    }

    struct SlowChanges(Arc<Shared>);

    impl Changes for SlowChanges {
        fn next(&mut self) -> BoxFuture<'_, Result<()>> {
            Box::pin(async {
                self.0.changed.notified().await;
                Ok(())
            })
        }
    }

    impl Engine for SlowReplies {
        fn name(&self) -> &'static str {
            "test"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { detached: true, ..catalogue::CLUSTER }
        }

        fn acquire(&self, _request: Request, _busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
            Box::pin(async {
                // A watch that was begun with this request is waiting by now.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                *self.shared.is_held.lock().unwrap() = true;
                let hold = Box::new(SlowGrant { shared: self.shared.clone(), detached: false });
                self.shared.changed.notify_waiters();
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                Ok(Some(Acquired { fence: Fence::new(7), lease: Lease::forever(), ttl: None, hold }))
            })
        }

        fn grants_detached(&self) -> bool {
            true
        }

        fn inspect<'a>(&'a self, _name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
            unreachable!("not called")
        }

        fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
            unreachable!("not called")
        }

        fn changes<'a>(&'a self, _: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
            Box::pin(async { Ok(Box::new(SlowChanges(self.shared.clone())) as Box<dyn Changes>) })
        }

        fn detached<'a>(
            &'a self,
            _name: &'a LockName,
            _owner: &'a str,
            _lasts: Option<Duration>,
        ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
            let is_held = *self.shared.is_held.lock().unwrap();
            let held = || DetachedState {
                mode: LockMode::Exclusive,
                fence: Fence::new(7),
                left: Duration::from_secs(60),
            };
            Box::pin(async move { Ok(is_held.then(held)) })
        }
    }

    #[tokio::test]
    async fn a_detached_hold_is_not_given_up_by_the_request_that_acquired_it() {
        let engine = SlowReplies::default();
        let shared = engine.shared.clone();
        let locks = Lockkeeper::with_engine(Arc::new(engine));
        let hold = locks.mutex("reboot").hold_as("web-3", Duration::from_secs(60)).acquire().await.unwrap();
        assert_eq!(hold.fence, Fence::new(7));
        assert!(*shared.is_held.lock().unwrap(), "the hold was acknowledged");
    }
}
