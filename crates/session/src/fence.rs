//! Fences: (epoch, clock) in one number.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A number that rises strictly from one entry of a lock to the next one that conflicts with it, over all views: the
/// epoch in the high bits, the lock's clock in the low bits. It fits a signed 64-bit column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence(u64);

impl Fence {
    /// Bits of the clock. At a million entries a second, one lock exhausts them in 71 minutes; a view change resets
    /// the clock.
    pub const CLOCK_BITS: u32 = 32;
    /// The largest clock.
    pub const LARGEST_CLOCK: u64 = (1 << Self::CLOCK_BITS) - 1;
    /// The largest epoch. A new cluster begins at the seconds since 2024, so it lasts until 2092 at one view change a
    /// second.
    pub const LARGEST_EPOCH: u64 = (1 << (63 - Self::CLOCK_BITS)) - 1;

    /// Creates a fence; `None` if the epoch or the clock is too large.
    pub fn new(epoch: u64, clock: u64) -> Option<Self> {
        (epoch <= Self::LARGEST_EPOCH && clock <= Self::LARGEST_CLOCK)
            .then_some(Self(epoch << Self::CLOCK_BITS | clock))
    }

    /// The fence as one number, for the protected resource.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The epoch of the view in which the entry took place.
    pub fn epoch(self) -> u64 {
        self.0 >> Self::CLOCK_BITS
    }

    /// The lock's clock at the entry; it counts within the view.
    pub fn clock(self) -> u64 {
        self.0 & Self::LARGEST_CLOCK
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {}, clock {})", self.0, self.epoch(), self.clock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_counts_first_and_the_largest_fits_a_signed_column() {
        let largest = Fence::new(Fence::LARGEST_EPOCH, Fence::LARGEST_CLOCK).unwrap();
        assert_eq!(largest.number(), i64::MAX as u64);
        assert!(Fence::new(3, 1).unwrap() > Fence::new(2, Fence::LARGEST_CLOCK).unwrap());
        assert_eq!(Fence::new(1, Fence::LARGEST_CLOCK + 1), None);
        let fence = Fence::new(7, 9).unwrap();
        assert_eq!((fence.epoch(), fence.clock()), (7, 9));
    }
}
