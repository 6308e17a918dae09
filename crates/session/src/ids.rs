//! Identifiers of sessions, acquisitions and locks.

use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A client's session with a member. It is a name, not a secret: it is shown in lists and logs, and knowing it grants
/// no permission. The driver chooses the client's number, so that no client can use the number of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// The client's number: [`RESIDENT`](Self::RESIDENT) or above for a client in the driver's own process, below for
    /// a connecting client.
    pub client: u64,
    /// The number of the session among those of its client, never reused.
    pub number: u64,
}

impl SessionId {
    /// The lowest number of a resident client. The ranges are separate, so that a connecting client can never have
    /// the number of a resident one.
    pub const RESIDENT: u64 = 1 << 63;

    /// Whether this is a session of a client in the driver's own process.
    pub fn is_resident(self) -> bool {
        self.client >= Self::RESIDENT
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{}#{}", self.client, self.number)
    }
}

/// One request for a lock, from the request to the end of the hold. A release names the acquisition rather than the
/// lock; otherwise a duplicate would free the next hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Acquisition {
    /// The id of the session.
    pub session: SessionId,
    /// The client's number of the acquisition, rising within the session.
    pub number: u64,
}

impl fmt::Display for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

/// The name of a lock. One name is one lock in all modes: exclusive, shared, or permits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockName {
    /// The name. Reference-counted, because every message contains it.
    pub name: Arc<str>,
}

impl LockName {
    /// The lock with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into() }
    }

    /// Whether a member serves a lock of this name: see [`check_name`](crate::check_name).
    pub fn is_served(&self) -> bool {
        crate::check_name(&self.name).is_ok()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The proof that a client is the one that opened a session: a hash of its credentials, computed by the daemon that it
/// is connected to. A member compares the proof with that of the session before it accepts a message that another member
/// relays.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Proof(pub [u8; 16]);

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(…)")
    }
}
