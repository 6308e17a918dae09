//! Requests for several locks, without deadlock.

use crate::client::{Acquire, acquire_by};
use crate::{Error, Fence, Guard, Loss, Result};
use std::time::{Duration, Instant};

/// A request for several locks that has not been sent yet.
///
/// The locks are acquired one after the other, in the order of their names. All such requests use this order, so no
/// cycle of waiters can form: requests for `a, b` and for `b, a` both acquire `a` first.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until acquired"]
pub struct AcquireAll {
    requests: Vec<Acquire>,
}

impl AcquireAll {
    pub(crate) fn new(mut requests: Vec<Acquire>) -> AcquireAll {
        requests.sort_by(|a, b| a.name().cmp(b.name()));
        requests.dedup_by(|a, b| a.name() == b.name());
        AcquireAll { requests }
    }

    fn map(self, change: impl FnMut(Acquire) -> Acquire) -> AcquireAll {
        AcquireAll { requests: self.requests.into_iter().map(change).collect() }
    }

    /// Like [`Acquire::ttl`], for each lock.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|request| request.ttl(ttl))
    }

    /// Like [`Acquire::metadata`], for each lock.
    pub fn metadata(self, key: &str, value: &str) -> Self {
        self.map(|request| request.metadata(key, value))
    }

    /// Like [`Acquire::unfenced`], for each lock.
    pub fn unfenced(self) -> Self {
        self.map(Acquire::unfenced)
    }

    /// Waits for all locks.
    pub async fn acquire(self) -> Result<GuardAll> {
        let mut guards = Vec::new();
        for request in self.nonempty()?.requests {
            guards.push(request.acquire().await?);
        }
        Ok(GuardAll { guards })
    }

    /// Acquires all locks if all are free now; otherwise none of them.
    pub async fn try_acquire(self) -> Result<Option<GuardAll>> {
        let mut guards = Vec::new();
        for request in self.nonempty()?.requests {
            match request.try_acquire().await? {
                Some(guard) => guards.push(guard),
                None => {
                    GuardAll { guards }.release().await?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(GuardAll { guards }))
    }

    /// Waits for all locks until a deadline; holds none of them if it passes.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<GuardAll>> {
        acquire_by(self, deadline, Self::acquire, Self::try_acquire).await
    }

    fn nonempty(self) -> Result<AcquireAll> {
        match self.requests.is_empty() {
            true => Err(Error::BadOption("no lock was named".into())),
            false => Ok(self),
        }
    }
}

/// A hold on several locks.
#[must_use = "dropping a guard gives the locks up"]
#[derive(Debug)]
pub struct GuardAll {
    guards: Vec<Guard>,
}

impl GuardAll {
    /// The guards, ordered by name. Each lock has its own fence.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The fence of one of the locks; `None` if it is not one of them or the engine has no fences.
    pub fn fence(&self, name: &str) -> Option<Fence> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)?.fence()
    }

    /// The time for which all holds are safe.
    pub fn valid_for(&self) -> Duration {
        self.guards.iter().map(Guard::valid_for).min().unwrap_or(Duration::ZERO)
    }

    /// Resolves with the reason when the first of the holds is being lost.
    pub async fn lost(&self) -> Loss {
        let mut lost: Vec<_> = self.guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        std::future::poll_fn(|cx| {
            let ready = lost.iter_mut().map(|lost| lost.as_mut().poll(cx)).find(|poll| poll.is_ready());
            ready.unwrap_or(std::task::Poll::Pending)
        })
        .await
    }

    /// Releases all locks in reverse order, and returns the first failure.
    pub async fn release(mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some(guard) = self.guards.pop() {
            result = result.and(guard.release().await);
        }
        result
    }
}
