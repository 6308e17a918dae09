//! Names of things: members, sessions, acquisitions, locks.

use alloc::sync::Arc;
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

/// One life of a member: its number, and an incarnation that no other life of it ever has. Whoever restarts, or wakes up and
/// finds itself excluded, is somebody else from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// Which member.
    pub id: MemberId,
    /// Which of its lives: random, or decided; never a counter that is lost with the disk.
    pub incarnation: u64,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.incarnation)
    }
}

/// A client's session with a member. It is a name, not a secret: it is shown in lists and logs, and nothing is allowed because a caller
/// knows it. The driver chooses the client's number; no client names another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// The client's number: [`RESIDENT`](Self::RESIDENT) or above for a client in the driver's own process, below for a client that
    /// connects to it.
    pub client: u64,
    /// The number of the session among those of its client, which never uses one twice.
    pub number: u64,
}

impl SessionId {
    /// The lowest number of a resident client. The two kinds of clients have numbers of their own, so that a client that connects
    /// can never have the number of a resident one.
    pub const RESIDENT: u64 = 1 << 63;

    /// Whether this is a session of a [resident](crate::Member::open_resident) client.
    pub fn is_resident(self) -> bool {
        self.client >= Self::RESIDENT
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{}#{}", self.client, self.number)
    }
}

/// One wish for a lock, from the asking to the end of the hold. A release names it rather than the lock, or a
/// duplicate would free the next hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Acquisition {
    /// Whose.
    pub session: SessionId,
    /// Counted by the client, rising.
    pub number: u64,
}

impl fmt::Display for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

/// A lock. One name is one lock, however it is wanted: alone, shared, or by permits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockName {
    /// What people call it. Shared: a lock is named in every message.
    pub name: Arc<str>,
}

impl LockName {
    /// The lock of that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into() }
    }

    /// Whether a member serves a lock of this name: see [`check_name`](crate::check_name).
    pub fn is_served(&self) -> bool {
        crate::check_name(&self.name).is_ok()
    }

    /// The member, by its place in the view, that has the first token or is asked first: by hash (FNV-1a) of the name.
    pub(crate) fn home(&self, members: usize) -> usize {
        let hash = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash % members as u64) as usize
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
