//! Checkers for the resource that a lock protects: they reject writes of holders that have lost the lock.
//!
//! The rule is always the same: **store the highest fence seen; reject a lower one, and a write without one.** The
//! stored fence must last as long as the resource, and the check must be atomic with the write.
//!
//! | the resource is | use |
//! |---|---|
//! | memory of one process | [`FenceChecker`], or [`Fenced`] around the value itself |
//! | a row of a SQL database | [`sql`] |
//! | an HTTP service | [`http`] (feature `tower`), with [`HEADER`] on each request |
//!
//! Shared holders have fences too, but several of them write at the same time: check such a writer against the fence
//! of the last *exclusive* holder. Permits of a semaphore have no fence: they are held at the same time and in no
//! order.

#[cfg(feature = "tower")]
pub mod http;
mod number;
pub mod sql;

pub use number::Fence;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The HTTP header that carries a fence: a decimal number.
pub const HEADER: &str = "lockkeeper-fence";

/// The error for a write with a fence lower than one already seen: its holder has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stale fence {fence}: {highest} has been seen, so another holder has entered since; stop and acquire again"
)]
#[non_exhaustive]
pub struct Stale {
    /// The fence of the write.
    pub fence: Fence,
    /// The highest fence seen so far.
    pub highest: Fence,
}

/// A checker that stores the highest fence seen by one resource.
///
/// ```
/// # use lockkeeper::fence::{Fence, FenceChecker};
/// # let fence = |number| Fence::new(number).unwrap();
/// let checker = FenceChecker::new();
/// assert!(checker.check(fence(7)).is_ok());
/// assert!(checker.check(fence(7)).is_ok(), "one holder writes many times");
/// assert!(checker.check(fence(9)).is_ok(), "the next holder");
/// assert!(checker.check(fence(7)).is_err(), "the paused one wakes up");
/// ```
#[derive(Debug, Default)]
pub struct FenceChecker {
    highest: AtomicU64,
}

impl FenceChecker {
    /// Creates a checker that has seen no fence yet.
    pub const fn new() -> FenceChecker {
        FenceChecker { highest: AtomicU64::new(0) }
    }

    /// Creates a checker that continues from the fence that was stored with the resource.
    pub const fn resume(highest: Fence) -> FenceChecker {
        FenceChecker { highest: AtomicU64::new(highest.get()) }
    }

    /// Accepts a fence, or reports that it is stale. If another write could happen between this check and the write
    /// itself, use [`Fenced`].
    pub fn check(&self, fence: Fence) -> Result<(), Stale> {
        let before = self.highest.fetch_max(fence.get(), Ordering::AcqRel);
        match Fence::new(before) {
            Some(highest) if fence < highest => Err(Stale { fence, highest }),
            _ => Ok(()),
        }
    }

    /// The highest fence seen, to be stored with the resource; `None` if none was seen yet.
    pub fn highest(&self) -> Option<Fence> {
        Fence::new(self.highest.load(Ordering::Acquire))
    }
}

/// A value that only holders with a current fence can change: check and write are atomic.
///
/// ```
/// # use lockkeeper::fence::{Fence, Fenced};
/// # let fence = |number| Fence::new(number).unwrap();
/// let account = Fenced::new(100);
/// account.write(fence(1), |balance| *balance -= 30).unwrap();
/// account.write(fence(2), |balance| *balance -= 30).unwrap();
/// assert!(account.write(fence(1), |balance| *balance -= 30).is_err());
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
    pub fn write<R>(&self, fence: Fence, change: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut value = self.value.lock().unwrap_or_else(|e| e.into_inner());
        self.checker.check(fence)?;
        Ok(change(&mut value))
    }

    /// Reads the value.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_checker_remembers() {
        let fence = |number| Fence::new(number).unwrap();
        assert_eq!(FenceChecker::new().highest(), None);
        let checker = FenceChecker::resume(fence(41));
        assert_eq!(checker.check(fence(40)), Err(Stale { fence: fence(40), highest: fence(41) }));
        assert_eq!(checker.check(fence(42)), Ok(()));
        assert_eq!(checker.highest(), Some(fence(42)));
    }
}
