//! Operations on leases, and their results.

use super::id::LeaseId;
use crate::quotas::Exceeded;
use lockkeeper_cluster::{LockMode, SessionId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// JSON over HTTP.
    Http,
    /// etcd's API over gRPC.
    Etcd,
    /// The native protocol, for detached holds: its sessions belong to the member.
    Native,
}

impl Protocol {
    /// Its name in the audit log and the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Etcd => "etcd",
            Self::Native => "native",
        }
    }
}

/// The caller of an operation, as authenticated by the daemon that received the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerIdentity {
    /// The protocol of the request.
    pub protocol: Protocol,
    /// The name of its token.
    pub token_name: String,
    /// Whether it may use leases of other principals.
    pub admin: bool,
    /// The name under which quotas count its usage: its token, or its address where no tokens are needed.
    pub account: String,
}

/// The properties of a new lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// Time to live: the lease ends this long after the last keep-alive.
    pub ttl: Duration,
    /// The owner, as shown to other clients.
    pub owner: String,
    /// The lease is for a single hold: its time to live begins with the grant, and it ends with the hold.
    pub one_hold: bool,
    /// Losing a hold ends the lease. etcd's clients are only notified of the end of their lease.
    pub ends_with_loss: bool,
    /// The lease belongs to a named owner. Its hold lasts until a deadline without renewals, and beyond it for `ttl` after
    /// each keep-alive of the process that works under it; 0 if there is none.
    pub detached: bool,
}

/// Distinguishes the holds of a lease on one lock. Requests with the same slot share one hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The lease has a single hold of the lock, as in etcd.
    Only,
    /// The client's id of the request.
    Request(String),
    /// A random number: the request was for a key of etcd's API that is a lock by itself. Each such request has a hold of
    /// its own.
    Key(u64),
}

/// A request for a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRequest {
    /// The lock's name.
    pub lock: String,
    /// The slot of the hold within the lease.
    pub slot: Slot,
    /// The mode in which the lock is requested.
    pub mode: LockMode,
    /// The timeout; `None`: no timeout.
    pub timeout: Option<Duration>,
    /// The purpose, as shown to other clients.
    pub purpose: String,
    /// The value that the holder publishes, as the leader of an election.
    pub value: Vec<u8>,
    /// The trace id of the request in the logs.
    pub trace: String,
    /// For a detached lease: the time from the grant to its deadline. If the lease holds the lock already, its deadline
    /// moves to this time from now.
    pub lasts: Option<Duration>,
}

/// Identifies a hold of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldRef {
    /// By its number within the lease.
    Number(u64),
    /// The only hold on this lock.
    OnlyOn(String),
}

/// An operation on a lease, performed at the daemon where it lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LeaseOperation {
    /// Extends the deadline.
    KeepAlive,
    /// Ends the lease.
    Revoke,
    /// Reads the state of the lease.
    TimeToLive,
    /// Releases a hold or withdraws a wait; with a fence, only if the hold has that fence.
    Release(HoldRef, Option<u64>),
    /// Changes the value of a hold, if it still has that fence.
    SetValue {
        /// The hold whose value changes.
        which: HoldRef,
        /// The fence that the hold must still have.
        fence: u64,
        /// The new value.
        value: Vec<u8>,
    },
    /// Withdraws the claim of one request to a hold; it is released unless another request has a claim to it.
    Abandon(u64),
    /// An operation on the hold of a detached lease.
    Detached(DetachedOperation),
}

/// An operation on a detached hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DetachedOperation {
    /// Reads the hold. With a duration, first moves the deadline to that time from now.
    Find {
        /// The time from now to the new deadline.
        lasts: Option<Duration>,
    },
    /// Releases the hold for its owner, unless a process still works under it.
    Release,
    /// Keeps the hold alive for the process that works under it.
    KeepAlive,
    /// The process has ended its work: the hold lasts until its deadline, and ends now if that has passed.
    Leave,
    /// The process gives the hold back at once.
    Discard,
    /// Withdraws the claim of a request whose caller has given up; the hold is released unless another request has a
    /// claim to it.
    Withdraw,
}

/// A detached hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedHold {
    /// The hold of the lease.
    pub hold: Hold,
    /// The mode of the hold.
    pub mode: LockMode,
    /// The owner's name.
    pub owner: String,
    /// The time until its deadline.
    pub left: Duration,
    /// The deadline in milliseconds of Unix time, by the clock of the daemon.
    pub until_ms: u64,
}

/// The result of an operation on a detached hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedReply {
    /// The hold; `None` if there is none (any more).
    pub hold: Option<DetachedHold>,
    /// Whether the operation has ended the hold, or the work of its process.
    pub released: bool,
    /// The reason why a process has lost the hold.
    pub lost: Option<String>,
}

/// A hold of a lock by a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The id of the lease.
    pub lease: LeaseId,
    /// Its number within the lease.
    pub number: u64,
    /// The lock's name.
    pub lock: String,
    /// The fence; 0 for a permit.
    pub fence: u64,
    /// The remaining time in which no other client can be granted the lock, even if nothing is renewed.
    pub valid_for: Duration,
    /// The lease's time to live.
    pub ttl: Duration,
    /// The value that the holder publishes.
    pub value: Vec<u8>,
    /// Version of the value: 1 at first.
    pub version: u64,
    /// The fence that was drawn for the last change of the value; at first that of the grant.
    pub revision: u64,
    /// Whether its key in etcd's API is the lock's name alone.
    pub bare: bool,
}

impl Hold {
    /// Its key in etcd's API.
    pub fn key(&self) -> Vec<u8> {
        if self.bare { self.lock.clone().into_bytes() } else { key(&self.lock, self.lease) }
    }
}

/// The place of a lease in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Turn {
    /// It neither holds the lock nor has an entry that stays in the queue.
    Absent,
    /// It has an entry in the queue.
    Waiting,
    /// It holds the lock.
    Held(Hold),
}

/// The result of a request that stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// Whether the request has created the entry.
    pub new: bool,
    /// The place of the lease.
    pub turn: Turn,
}

/// The key of a lease's hold of a lock in etcd's API.
pub fn key(lock: &str, lease: LeaseId) -> Vec<u8> {
    format!("{lock}/{lease}").into_bytes()
}

/// A hold that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLoss {
    /// Its number within the lease.
    pub number: u64,
    /// The lock's name.
    pub lock: String,
    /// The reason for the loss.
    pub why: String,
}

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The remaining time.
    pub left: Duration,
    /// Its time to live.
    pub ttl: Duration,
    /// The remaining time in which no other client can be granted the locks that it holds, even if nothing is
    /// renewed; `None` if it holds none.
    pub valid_for: Option<Duration>,
    /// Its holds. Omitted in replies to a keep-alive.
    pub holds: Vec<Hold>,
    /// The locks that it holds or waits for. Omitted in replies to a keep-alive.
    pub locks: Vec<String>,
    /// Holds that it has lost, the newest last.
    pub lost: Vec<HoldLoss>,
    /// Its session with the member.
    pub session: Option<SessionId>,
}

/// The result of an operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum OperationReply {
    /// The state of the lease.
    Status(LeaseState),
    /// The lease has ended.
    Revoked,
    /// The last fence drawn for the hold, if it was valid until now.
    Released(Option<u64>),
    /// The hold with its new value.
    Set(Hold),
    /// The result of an operation on a detached hold.
    Detached(DetachedReply),
}

/// A lease in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaseSummary {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The name of the token that created it.
    pub token_name: String,
    /// The locks that it holds or waits for.
    pub locks: Vec<String>,
}

/// The reason why an operation on a lease failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LeaseError {
    /// The lease has ended or never existed.
    #[error("there is no lease {0}: it ended, or the daemon where it lived is gone")]
    NoSuchLease(LeaseId),
    /// The id chosen by the client is in use.
    #[error("the lease {0} exists already")]
    LeaseExists(LeaseId),
    /// The lease ended during a wait.
    #[error("the lease {0} ended during the wait: {1}")]
    LeaseEnded(LeaseId, String),
    /// Another client holds the lock.
    #[error("`{0}` was not free in time")]
    Busy(String),
    /// The wait was withdrawn, by a release or another request of the same session.
    #[error("the wait for `{0}` was given up")]
    Withdrawn(String),
    /// The lock is not held, or not with this fence.
    #[error("`{0}` is not held with this fence by this lease")]
    NotHeld(String),
    /// A limit was exceeded.
    #[error("{what}: at most {limit} are allowed")]
    LimitExceeded {
        /// The description of the limit.
        what: String,
        /// The value of the limit.
        limit: u64,
    },
    /// The time to live is too long.
    #[error("a time to live of {asked_s} s is too long: at most {limit_s} s are allowed")]
    TtlTooLong {
        /// The requested time to live, in seconds.
        asked_s: u64,
        /// The maximum, in seconds.
        limit_s: u64,
    },
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The lease belongs to another principal.
    #[error("the lease {0} belongs to another token")]
    WrongOwner(LeaseId),
    /// The operation cannot be performed at present.
    #[error("{0}")]
    Unavailable(String),
    /// The member at which the lease lives has stopped.
    #[error("{0}")]
    Stopped(String),
    /// The member at which the lease lives has no lease in the cluster itself, with the reason.
    #[error("{0}")]
    MemberHasNoLease(String),
}

impl From<Exceeded> for LeaseError {
    fn from(exceeded: Exceeded) -> Self {
        Self::LimitExceeded { what: exceeded.what(), limit: exceeded.limit as u64 }
    }
}

impl From<lockkeeper_cluster::Error> for LeaseError {
    fn from(error: lockkeeper_cluster::Error) -> Self {
        use lockkeeper_cluster::Error;
        match error {
            Error::BadName(_) | Error::BadOption(_) => Self::Invalid(error.to_string()),
            Error::Stopped(_) => Self::Stopped(error.to_string()),
            Error::NoLease(why) => Self::MemberHasNoLease(why),
            error => Self::Unavailable(error.to_string()),
        }
    }
}
