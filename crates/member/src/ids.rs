//! Identifiers of members and their incarnations, and the home of a lock.

use crate::LockName;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A member's number, the same over all its restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub u32);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "M{}", self.0)
    }
}

/// One incarnation of a member. A member that restarts, or that resumes and finds itself excluded, continues with a
/// new incarnation: to the cluster it is another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The number of the member.
    pub id: MemberId,
    /// The incarnation, never reused: random, or decided by consensus, but not a counter that could be lost with the
    /// disk.
    pub incarnation: u64,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.incarnation)
    }
}

/// The index of the member that has the lock's first token or receives the first requests: by the hash (FNV-1a) of the
/// lock's name.
pub(crate) fn home(lock: &LockName, members: usize) -> usize {
    place(lock.name.bytes(), members)
}

/// An index below `places`, by the hash (FNV-1a) of these bytes.
pub(crate) fn place(bytes: impl Iterator<Item = u8>, places: usize) -> usize {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash % places as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All members of a view must compute the same home.
    #[test]
    fn home_of_a_lock_is_the_same_in_all_versions() {
        let homes = ["", "a", "nightly", "a/b", "é"].map(|name| home(&LockName::new(name), 1000));
        assert_eq!(homes, [37, 996, 258, 689, 617]);
    }
}
