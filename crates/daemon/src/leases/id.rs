//! [`LeaseId`]: the id of a lease.

use super::operations::LeaseError;
use lockkeeper_cluster::MemberId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The id of a lease, a positive number as in etcd. An id chosen by a daemon has the daemon's number in its upper
/// bits and random bits below; one chosen by a client is arbitrary. Detached holds have [negative](Self::detached) ids.
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

    /// The id of the lease of a named owner's hold on a lock. It depends on nothing else, so that every daemon finds the
    /// lease, and it is negative, so that no client can choose it. The same owner under another token is another owner.
    pub fn detached(token_name: &str, lock: &str, owner: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"lockkeeper detached hold 1");
        for part in [token_name, lock, owner] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut number = [0; 8];
        number.copy_from_slice(&hash[..8]);
        Self(i64::from_le_bytes(number) | i64::MIN)
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
    fn ids_of_detached_holds_depend_on_token_lock_and_owner_and_no_client_can_name_them() {
        let id = LeaseId::detached("ci", "reboot", "web-3");
        assert_eq!(id, LeaseId::detached("ci", "reboot", "web-3"));
        for other in [
            LeaseId::detached("root", "reboot", "web-3"),
            LeaseId::detached("ci", "reboots", "web-3"),
            LeaseId::detached("ci", "reboot", "web-4"),
            LeaseId::detached("ci", "rebootw", "eb-3"),
        ] {
            assert_ne!(id, other);
        }
        assert_eq!((LeaseId::new(id.number()), id.to_string().parse::<LeaseId>()), (None, Err(())));
    }

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
