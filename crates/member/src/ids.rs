//! Names of things: members, sessions, acquisitions, locks.

use alloc::sync::Arc;
use core::fmt;
use lockkeeper_core::Sharing;
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

/// A client's session with a member. The client chooses it and never uses it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// Which client.
    pub client: u64,
    /// Which of its sessions.
    pub number: u64,
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

/// What kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// One holder, by the cluster's algorithm.
    Mutex,
    /// One writer or several readers.
    ReadersWriters,
    /// So many permits.
    Semaphore(u32),
}

impl Kind {
    /// Who may hold it together.
    pub fn sharing(self) -> Sharing {
        match self {
            Self::Mutex => Sharing::Mutex,
            Self::ReadersWriters => Sharing::ReadersWriters,
            Self::Semaphore(permits) => Sharing::Semaphore(permits as usize),
        }
    }
}

/// A lock. Its kind is part of its name, so that no two members can take one name for two kinds of lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockName {
    /// What kind.
    pub kind: Kind,
    /// What people call it. Shared: a lock is named in every message.
    pub name: Arc<str>,
}

impl LockName {
    /// The mutex of that name.
    pub fn mutex(name: impl Into<Arc<str>>) -> Self {
        Self { kind: Kind::Mutex, name: name.into() }
    }

    /// The longest name, in bytes.
    pub const LONGEST: usize = 1024;
    /// The most permits of a semaphore: a member plays a site for each, and each of these knows of all others.
    pub const MOST_PERMITS: u32 = 256;

    /// Whether a member serves such a lock: names and permits have limits.
    pub fn is_served(&self) -> bool {
        let permits = match self.kind {
            Kind::Mutex | Kind::ReadersWriters => 1,
            Kind::Semaphore(permits) => permits,
        };
        self.name.len() <= Self::LONGEST && (1..=Self::MOST_PERMITS).contains(&permits)
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
        match self.kind {
            Kind::Mutex => write!(f, "{}", self.name),
            Kind::ReadersWriters => write!(f, "{} (readers-writers)", self.name),
            Kind::Semaphore(permits) => write!(f, "{} (semaphore of {permits})", self.name),
        }
    }
}
