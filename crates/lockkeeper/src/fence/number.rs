//! [`Fence`]: the number that orders the holders of a lock.

use serde::{Deserialize, Serialize};
use std::num::{NonZeroU64, ParseIntError, TryFromIntError};

/// A fence: a number above those of all earlier holders of the same lock, and never 0. It fits a signed 64-bit column.
///
/// As text and in JSON it is a decimal number.
///
/// ```
/// use lockkeeper::Fence;
/// let (earlier, later) = (Fence::new(7).unwrap(), Fence::new(9).unwrap());
/// assert!(earlier < later);
/// assert_eq!("9".parse(), Ok(later));
/// assert!(Fence::new(0).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// The fence with this number; `None` for 0, which is the fence of no hold.
    pub const fn new(number: u64) -> Option<Fence> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Fence(number)),
            None => None,
        }
    }

    /// The number, to be stored or sent.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Fence {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Fence, ParseIntError> {
        text.parse().map(Fence)
    }
}

impl TryFrom<u64> for Fence {
    type Error = TryFromIntError;

    fn try_from(number: u64) -> Result<Fence, TryFromIntError> {
        NonZeroU64::try_from(number).map(Fence)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> u64 {
        fence.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_fence_in_any_form() {
        assert!(Fence::new(0).is_none() && Fence::try_from(0).is_err() && "0".parse::<Fence>().is_err());
        assert!(serde_json::from_str::<Fence>("0").is_err());
        let fence = Fence::new(34_359_738_369).unwrap();
        assert_eq!(serde_json::to_string(&fence).unwrap(), "34359738369");
        assert_eq!(serde_json::from_str::<Fence>("34359738369").unwrap(), fence);
        assert_eq!(fence.to_string().parse(), Ok(fence));
    }
}
