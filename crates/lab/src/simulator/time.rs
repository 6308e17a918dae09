//! Virtual time.
//!
//! Time is counted in billionths of T, the unit of message delays, so that sums are exact and the same on
//! every machine.

use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// An instant or a duration of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of a run; an empty duration.
    pub const ZERO: Self = Self(0);
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);
    /// One T.
    pub const UNIT: Self = Self(1_000_000_000);
    /// The longest duration that a user may give, in T; far below an overflow.
    pub const LONGEST_T: f64 = 1e9;

    /// A time of `t` T. `None` if `t` is negative, not a number, or too large.
    pub fn from_t(t: f64) -> Option<Self> {
        (0.0..=Self::LONGEST_T).contains(&t).then(|| Self((t * 1e9).round() as u64))
    }

    /// A random time, limited to the valid range.
    pub(crate) fn clamped(t: f64) -> Self {
        Self::from_t(t.clamp(0.0, Self::LONGEST_T)).unwrap_or(Self::ZERO)
    }

    /// A time of `milli` thousandths of T.
    pub fn from_milli_t(milli: u64) -> Self {
        Self(milli.saturating_mul(1_000_000))
    }

    /// The time in units of T.
    pub fn as_t(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time in billionths of T.
    pub fn ticks(self) -> u64 {
        self.0
    }

    /// A time of `ticks` billionths of T.
    pub fn from_ticks(ticks: u64) -> Self {
        Self(ticks)
    }

    /// Parses a number of T.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let number: f64 = text.trim().parse().map_err(|_| TimeError::NotANumber { text: text.into() })?;
        Self::from_t(number).ok_or_else(|| TimeError::OutOfRange { text: text.into() })
    }
}

/// The reason why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The text is not a number.
    #[error("'{text}' is not a number of T such as 0.5 or 3")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The number is negative or too large.
    #[error("a time must lie between 0 and {:e} T, and '{text}' does not", Time::LONGEST_T)]
    OutOfRange {
        /// The text.
        text: String,
    },
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest) = (self.0 / Self::UNIT.0, self.0 % Self::UNIT.0);
        write!(f, "{whole}")?;
        if rest > 0 {
            let mut digits = 9;
            while rest % 10 == 0 {
                rest /= 10;
                digits -= 1;
            }
            write!(f, ".{rest:0digits$}")?;
        }
        Ok(())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_t())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_add_up_exactly() {
        let tenth = Time::from_t(0.1).unwrap();
        let sum = (0..10).fold(Time::ZERO, |sum, _| sum + tenth);
        assert_eq!(sum, Time::UNIT);
        assert_eq!(sum.to_string(), "1");
        let texts: Vec<String> = [0.5, 12.25, 0.000000001, 0.0, 1200.01]
            .iter()
            .map(|&t| Time::from_t(t).unwrap().to_string())
            .collect();
        assert_eq!(texts, ["0.5", "12.25", "0.000000001", "0", "1200.01"]);
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in ["-1", "NaN", "inf", "1e30"] {
            assert_eq!(Time::parse(text), Err(TimeError::OutOfRange { text: text.into() }));
        }
        for text in ["soon", ""] {
            assert_eq!(Time::parse(text), Err(TimeError::NotANumber { text: text.into() }));
        }
    }
}
