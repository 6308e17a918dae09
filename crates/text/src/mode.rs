//! The modes in which a lock is requested and held, the same for algorithms, members, clients and engines.

use core::fmt;
use serde::{Deserialize, Serialize};

/// The mode of a request or of a hold. A name denotes one lock, so holders in different modes exclude each other.
///
/// Stored and sent as it is: postcard encodes the position of a variant, JSON its name (`"exclusive"`, `"shared"`,
/// `{"permit":{"of":3}}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// At most one holder.
    #[default]
    Exclusive,
    /// Any number of shared holders, and no other one.
    Shared,
    /// One of a fixed number of permits: a semaphore.
    Permit {
        /// The number of permits of the semaphore.
        of: u32,
    },
}

impl LockMode {
    /// The largest number of permits of a semaphore at a member.
    pub const MOST_PERMITS: u32 = 1 << 20;

    /// Whether the number of permits is valid at a member.
    pub fn is_possible(self) -> bool {
        !matches!(self, Self::Permit { of } if !(1..=Self::MOST_PERMITS).contains(&of))
    }

    /// Whether this is a permit of a semaphore.
    pub fn is_permit(self) -> bool {
        matches!(self, Self::Permit { .. })
    }

    /// Whether requests in both modes can be for the same lock. A name is either a mutex (exclusive and shared) or a
    /// semaphore with one number of permits.
    pub fn same_lock_as(self, other: Self) -> bool {
        match (self, other) {
            (Self::Permit { of: one }, Self::Permit { of: other }) => one == other,
            (Self::Permit { .. }, _) | (_, Self::Permit { .. }) => false,
            _ => true,
        }
    }

    /// Whether holders in these two modes can never overlap.
    pub fn conflicts(self, other: Self) -> bool {
        self != other || matches!(self, Self::Exclusive | Self::Permit { of: 1 })
    }

    /// Whether a holder in one of the modes can make a request in the other one wait.
    pub fn competes(self, other: Self) -> bool {
        self.conflicts(other) || self.is_permit()
    }

    /// Whether a holder in this mode may enter while `inside` are holders: the safety property of a lock.
    pub fn fits(self, inside: impl IntoIterator<Item = Self>) -> bool {
        let room = if let Self::Permit { of } = self { of as usize } else { usize::MAX };
        let mut others = 0;
        inside.into_iter().all(|other| {
            others += 1;
            !self.conflicts(other) && others < room
        })
    }

    /// Whether a member orders the holds in this mode by fences. Permits of a semaphore with several are held together,
    /// so they are not ordered.
    pub fn has_fence(self) -> bool {
        !matches!(self, Self::Permit { of } if of > 1)
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permit { of } => write!(f, "1 of {of} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::{Exclusive, Shared};

    fn permit(of: u32) -> LockMode {
        LockMode::Permit { of }
    }

    #[test]
    fn different_modes_on_one_lock_exclude_each_other() {
        assert!(Exclusive.fits([]) && !Exclusive.fits([Exclusive]));
        assert!(!Exclusive.fits([Shared]) && !Shared.fits([Exclusive]));
        assert!(Shared.fits([Shared, Shared]) && !Shared.fits([permit(3)]) && !permit(3).fits([Shared]));
        assert!(permit(3).fits([permit(3); 2]) && !permit(3).fits([permit(3); 3]));
        assert!(!permit(3).fits([permit(2)]));
        assert!(permit(1).fits([]) && !permit(1).fits([permit(1)]) && permit(1).conflicts(permit(1)));
        assert!(permit(2).competes(permit(2)) && !Shared.competes(Shared) && permit(2).competes(Exclusive));
        assert!(!permit(0).is_possible() && permit(LockMode::MOST_PERMITS).is_possible());
    }

    #[test]
    fn a_mutex_and_semaphores_of_other_sizes_are_different_locks() {
        assert!(Exclusive.same_lock_as(Shared) && permit(2).same_lock_as(permit(2)));
        assert!(!permit(2).same_lock_as(permit(3)) && !permit(1).same_lock_as(Exclusive));
    }
}
