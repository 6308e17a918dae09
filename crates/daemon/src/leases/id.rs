//! [`LeaseId`]: the id of a lease.

use super::operations::LeaseError;
use lockkeeper_cluster::MemberId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The id of a lease, a positive number as in etcd. An id chosen by a daemon has the daemon's number in its upper
/// bits and random bits below; one chosen by a client is arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(i64);

impl LeaseId {
    /// Together with the 32 bits of a member's number, these fill an `i64` except for its sign.
    const RANDOM_BITS: u32 = 31;

    /// A new id for a lease that lives at this member.
    pub fn at(member: MemberId) -> Result<Self, LeaseError> {
        loop {
            let random = getrandom::u32().map_err(|error| {
                LeaseError::Unavailable(format!("the system gives no random numbers: {error}"))
            })?;
            // Bit 63 is the sign (0), bits 31 to 62 are the member, and bits 0 to 30 are random.
            let number = i64::from(member.0) << Self::RANDOM_BITS | i64::from(random >> 1);
            if let Some(id) = Self::new(number) {
                return Ok(id);
            }
        }
    }

    /// An id chosen by a client or received from another daemon.
    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// The member at which the lease lives, if a daemon chose the id.
    pub fn member(self) -> MemberId {
        MemberId((self.0 >> Self::RANDOM_BITS) as u32)
    }

    /// The id as a number, for etcd's clients.
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
    fn lease_id_contains_its_member_and_parses_back() {
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
