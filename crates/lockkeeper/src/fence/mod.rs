//! Checkers for the resource that a lock protects: they reject writers whose time has passed.
//!
//! The rule is always the same: **remember the highest fence seen; reject a lower one, and 0.** The memory must
//! last as long as the resource, and the check must be atomic with the write.
//!
//! | the resource is | use |
//! |---|---|
//! | memory of one process | [`FenceChecker`], or [`Fenced`] around the value itself |
//! | a row of a SQL database | [`sql`] |
//! | an HTTP service | [`http`] (feature `tower`), with [`HEADER`] on each request |
//!
//! Shared holders and holders of permits have fences too, but several of them write at the same time: check such
//! a writer against the fence of the last *exclusive* holder.

#[cfg(feature = "tower")]
pub mod http;
pub mod sql;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The HTTP header that carries a fence: a decimal number.
pub const HEADER: &str = "lockkeeper-fence";

/// A write came with a fence lower than one already seen: its holder's time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stale fence {fence}: {highest} has been seen, so another holder has entered since; stop and acquire again"
)]
pub struct Stale {
    /// The fence of the write.
    pub fence: u64,
    /// The highest fence seen so far.
    pub highest: u64,
}

/// Remembers the highest fence of one resource.
///
/// ```
/// # use lockkeeper::fence::FenceChecker;
/// let checker = FenceChecker::new();
/// assert!(checker.check(7).is_ok());
/// assert!(checker.check(7).is_ok(), "one holder writes many times");
/// assert!(checker.check(9).is_ok(), "the next holder");
/// assert!(checker.check(7).is_err(), "the paused one wakes up");
/// ```
#[derive(Debug, Default)]
pub struct FenceChecker {
    highest: AtomicU64,
}

impl FenceChecker {
    /// Has seen no fence yet.
    pub const fn new() -> FenceChecker {
        FenceChecker { highest: AtomicU64::new(0) }
    }

    /// Goes on from a fence that was stored with the resource.
    pub const fn resume(highest: u64) -> FenceChecker {
        FenceChecker { highest: AtomicU64::new(highest) }
    }

    /// Admits a fence, or tells that it is stale. If the write itself comes later, and can be overtaken, use [`Fenced`].
    pub fn check(&self, fence: u64) -> Result<(), Stale> {
        let before = self.highest.fetch_max(fence, Ordering::AcqRel);
        // 0 is "no fence": an engine without fences protects nothing.
        match fence == 0 || fence < before {
            true => Err(Stale { fence, highest: before }),
            false => Ok(()),
        }
    }

    /// The highest fence seen, to be stored with the resource.
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}

/// A value that only holders with a current fence can change: check and write are one step.
///
/// ```
/// # use lockkeeper::fence::Fenced;
/// let account = Fenced::new(100);
/// account.write(1, |balance| *balance -= 30).unwrap();
/// account.write(2, |balance| *balance -= 30).unwrap();
/// assert!(account.write(1, |balance| *balance -= 30).is_err());
/// assert_eq!(account.read(|balance| *balance), 40);
/// ```
#[derive(Debug, Default)]
pub struct Fenced<T> {
    checker: FenceChecker,
    value: Mutex<T>,
}

impl<T> Fenced<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Fenced<T> {
        Fenced { checker: FenceChecker::new(), value: Mutex::new(value) }
    }

    /// Changes the value, unless the fence is stale.
    pub fn write<R>(&self, fence: u64, change: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut value = self.value.lock().unwrap_or_else(|e| e.into_inner());
        self.checker.check(fence)?;
        Ok(change(&mut value))
    }

    /// Looks at the value.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fence_is_never_admitted_and_a_resumed_checker_remembers() {
        assert!(FenceChecker::new().check(0).is_err());
        let checker = FenceChecker::resume(41);
        assert_eq!(checker.check(40), Err(Stale { fence: 40, highest: 41 }));
        assert_eq!(checker.check(42), Ok(()));
        assert_eq!(checker.highest(), 42);
    }
}
