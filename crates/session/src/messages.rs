//! The messages between a client and its member.

use crate::{Fence, LockMode, LockName};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A description of a request for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag {
    /// The owner, as named by the client.
    pub owner: String,
    /// The purpose of the request.
    pub purpose: String,
}

impl Tag {
    /// Checks owner and purpose: see [`check_tag`](crate::check_tag).
    pub fn check(&self) -> Result<(), crate::BadText> {
        crate::check_tag(&self.owner)?;
        crate::check_tag(&self.purpose)
    }
}

/// A request for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    /// The lock's name.
    pub lock: LockName,
    /// The mode in which the lock is requested.
    pub mode: LockMode,
    /// The timeout; `None` waits without limit. 0 is a non-blocking request: it succeeds if no message to another
    /// member is needed. An idle delegation of a client of the same member is recalled for it.
    pub timeout_ns: Option<u64>,
    /// The longest hold: after this time, the lock is revoked.
    pub longest_hold_ns: Option<u64>,
    /// Whether a session that holds the lock may acquire it once more.
    pub reentrant: bool,
    /// Number of further entries that the client requests as a delegation: see [`ToClient::Granted`]. Only for
    /// exclusive requests without a longest hold.
    pub delegated_entries: u32,
    /// The time to live of the hold: how long the client may rely on it after its last answered keep-alive, once the
    /// hold is [recorded](ToClient::Recorded). 0: the hold is never recorded, and ends with its member.
    pub ttl_ns: u64,
    /// The description for operators.
    pub tag: Tag,
}

impl LockRequest {
    /// An exclusive, blocking request for one lock, without timeout.
    pub fn exclusive(lock: LockName) -> Self {
        let (mode, tag) = (LockMode::Exclusive, Tag::default());
        Self {
            lock,
            mode,
            timeout_ns: None,
            longest_hold_ns: None,
            reentrant: false,
            delegated_entries: 0,
            ttl_ns: 0,
            tag,
        }
    }
}

/// A message from a client to its member. All variants may be duplicated and reordered without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// Opens the session, or keeps it alive.
    KeepAlive {
        /// When the message was sent, on the client's clock; returned in the answer.
        sent_ns: u64,
        /// Whether the message opens the session. Without it, a session that the member does not know is lost.
        first: bool,
        /// The client knows the outcome of every acquisition with a lower number.
        settled: u64,
        /// The newest generation of the session that the client knows. If the session has a newer one, the member
        /// answers with [`ToClient::Resumed`].
        generation: Option<Generation>,
    },
    /// Requests a lock.
    Acquire {
        /// The number of the acquisition.
        number: u64,
        /// The client knows the outcome of every acquisition with a lower number.
        settled: u64,
        /// The request for the lock.
        request: LockRequest,
    },
    /// Releases a lock, or cancels the request if it was not granted yet.
    Release {
        /// The number of the acquisition.
        number: u64,
    },
    /// The delegation has ended but the lock is in use; it is released when the present user leaves. This is the
    /// answer to [`ToClient::Recall`], and the client sends it unasked when the delegation expires.
    InUse {
        /// The number of the acquisition.
        number: u64,
        /// The fence of the entry, for operators.
        fence: Option<Fence>,
        /// The description of the present user, for operators.
        tag: Tag,
    },
    /// Closes the session. The client uses none of its holds any more.
    Close,
}

/// The generation of a session. A session that another member has adopted has a higher generation, and only the
/// recorded holds of the previous one. A session that ended and was opened again under the same id has another
/// generation, and none of the holds of the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Generation {
    /// The epoch of the view in which the member opened or adopted the session; 0 before the first view. A session is
    /// adopted in a later view than that of its previous member, so generations rise.
    pub epoch: u64,
    /// The incarnation of the member.
    pub incarnation: u64,
    /// The session's number in that incarnation, rising from 0.
    pub number: u64,
}

/// A message from a member to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// The answer to a keep-alive: the session is valid.
    Alive {
        /// The generation of the session that this lease belongs to.
        generation: Generation,
        /// The `sent_ns` of the keep-alive.
        sent_ns: u64,
        /// Duration of the session's lease, counted from `sent_ns`.
        duration_ns: u64,
        /// Revoked acquisitions, which the client must not use although the lease runs.
        revoked: Vec<u64>,
        /// Every hold with a [record](Self::Recorded) of at most this index is promised for its whole time to live,
        /// counted from `sent_ns`. `None`: the answer promises nothing beyond `duration_ns`.
        recorded: Option<u64>,
    },
    /// The hold is recorded in the log of the cluster: it survives its member.
    Recorded {
        /// The generation of the session.
        generation: Generation,
        /// The number of the acquisition.
        number: u64,
        /// The index of the record among those of the session, rising from 1.
        index: u64,
        /// The time to live in force.
        ttl_ns: u64,
        /// The hold is promised for its time to live, counted from this keep-alive on; later answers to keep-alives
        /// extend the promise. `None`: nothing is promised yet.
        sent_ns: Option<u64>,
    },
    /// The answer to a keep-alive with an older generation: another member has adopted the session. The client sends
    /// its unanswered messages again.
    Resumed {
        /// The new generation.
        generation: Generation,
        /// The acquisitions that are held, with the time to live of each. All other holds are lost.
        held: Vec<(u64, u64)>,
    },
    /// The lock is granted; the client may use it while its lease runs.
    Granted {
        /// The generation of the session that holds the lock.
        generation: Generation,
        /// The number of the acquisition.
        number: u64,
        /// The fence for the protected resource; `None` for one of several permits, which are not
        /// ordered among themselves.
        fence: Option<Fence>,
        /// Number of further entries that are delegated to the client. It makes them one after the other, with the
        /// fences that follow this one, until the delegation is recalled, and for [`MAX_DELEGATION_NS`](crate::MAX_DELEGATION_NS) at
        /// most.
        delegated_entries: u32,
        /// Another client waits already: the client may enter again only immediately after a release.
        contended: bool,
    },
    /// Recalls a delegation: another client waits. The client makes no more entries and releases the lock at once, or
    /// when its present user leaves.
    Recall {
        /// The number of the acquisition.
        number: u64,
    },
    /// The acquisition has ended with this outcome.
    Ended {
        /// The number of the acquisition.
        number: u64,
        /// The outcome of the acquisition.
        outcome: Ended,
    },
    /// The member does not know this session: its holds are lost.
    NoSession,
    /// The operator of this name revokes the hold. The message precedes [`Ended`](Self::Ended) with
    /// [`Ended::Revoked`], and the answers to keep-alives that list the hold as revoked.
    RevokedBy {
        /// The number of the acquisition.
        number: u64,
        /// The operator's name.
        by: String,
    },
}

/// The outcome of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ended {
    /// The client released the lock.
    Released,
    /// The client cancelled the request before it was granted.
    Cancelled,
    /// The request's timeout expired before the grant.
    TimedOut,
    /// The request is non-blocking, and a client of this member holds the lock or waits for it.
    Busy,
    /// The lock was revoked: by an operator, or because its longest hold was over.
    Revoked,
    /// The lock cannot be requested in this way.
    Refused,
    /// The member is leaving: use another one.
    Leaving,
    /// The lock is new to the member, whose clients already use as many locks as it serves. Requests succeed again
    /// when some of these are released.
    Full {
        /// The most locks that this member serves at a time.
        limit: u32,
    },
}
