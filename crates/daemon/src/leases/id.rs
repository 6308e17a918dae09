//! The number of a lease.

use super::words::Fault;
use lockkeeper_cluster::MemberId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The number of a lease, as etcd has it: above 0. One that a daemon chose carries that daemon's number above, and random bits below; one that a
/// client chose can be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(i64);

impl LeaseId {
    /// Together with the 32 bits of a member's number they fill an `i64` up to its sign.
    const RANDOM_BITS: u32 = 31;

    /// A new number for a lease that lives at this member.
    pub fn at(member: MemberId) -> Result<Self, Fault> {
        loop {
            let random = getrandom::u32().map_err(|error| {
                Fault::Unavailable(format!("the system gives no random numbers: {error}"))
            })?;
            let number = i64::from(member.0) << Self::RANDOM_BITS | i64::from(random >> 1);
            if let Some(id) = Self::new(number) {
                return Ok(id);
            }
        }
    }

    /// A number that somebody else chose.
    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// Where it lives, if a daemon chose it.
    pub fn member(self) -> MemberId {
        MemberId((self.0 >> Self::RANDOM_BITS) as u32)
    }

    /// The number, for etcd's clients.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for LeaseId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = i64::from_str_radix(text, 16).ok().filter(|_| digits);
        number.and_then(Self::new).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_its_member_and_reads_back() {
        for member in [0, 1, 7, u32::MAX] {
            let id = LeaseId::at(MemberId(member)).unwrap();
            assert!(id.number() > 0);
            assert_eq!(id.member(), MemberId(member));
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "0", "-1", "+1", "1F", "g", "ffffffffffffffff", "1 "] {
            assert_eq!(text.parse::<LeaseId>(), Err(()), "{text}");
        }
    }
}
