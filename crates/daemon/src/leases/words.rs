//! What can be done to a lease, what comes of it, and what daemons ask each other about leases.

use super::id::LeaseId;
use crate::quotas::Exceeded;
use lockkeeper_cluster::{Claim, LockStatus, Node, SessionId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By which way somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Way {
    /// JSON over HTTP.
    Http,
    /// etcd's gRPC.
    Etcd,
}

impl Way {
    /// As the audit log and the metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Etcd => "etcd",
        }
    }
}

/// Who asks, as the daemon found out that was asked first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asker {
    /// By which way.
    pub by: Way,
    /// The name of its token.
    pub who: String,
    /// Whether it may use the leases of others.
    pub admin: bool,
    /// Under which name quotas count what it uses: its token, or its address where none is needed.
    pub account: String,
}

/// What a lease is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// It ends so long after the last sign of life.
    pub ttl: Duration,
    /// Who others are told has it.
    pub owner: String,
    /// It is there for one hold: its time counts from the grant, and it ends with the hold.
    pub one_hold: bool,
    /// A hold that is lost ends the lease. etcd's clients hear of nothing but the end of their lease.
    pub ends_with_loss: bool,
}

/// What tells the holds of a lease on one lock apart. Asking twice with the same slot is asking once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Slot {
    /// The lease has one hold on the lock: etcd's way.
    Only,
    /// The client's number of its request.
    Request(String),
}

/// A wish for a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Which lock.
    pub lock: String,
    /// Which of the lease's holds on it.
    pub slot: Slot,
    /// How.
    pub claim: Claim,
    /// For how long; `None` for as long as it takes.
    pub wait: Option<Duration>,
    /// What others are told that it is for.
    pub purpose: String,
    /// What the holder says to whoever asks for the leader.
    pub value: Vec<u8>,
    /// Follows the wish through the logs.
    pub trace: String,
}

/// Which hold of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// By its number in the lease.
    Number(u64),
    /// The only one on this lock.
    OnlyOn(String),
}

/// What can be done to a lease. It is done where the lease lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Op {
    /// A sign of life.
    KeepAlive,
    /// Ends it.
    Revoke,
    /// How it stands.
    TimeToLive,
    /// Gives a hold up, or the wait for it; with a fence, only if it has that one.
    Release(Which, Option<u64>),
    /// Changes what a hold says, if it still has that fence.
    SetValue {
        /// Which hold.
        which: Which,
        /// Its fence.
        fence: u64,
        /// What to say.
        value: Vec<u8>,
    },
    /// Whoever was told of the hold does not want it any more; it goes unless somebody else was told too.
    Abandon(u64),
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Of which lease.
    pub lease: LeaseId,
    /// Its number in the lease.
    pub number: u64,
    /// Which lock.
    pub lock: String,
    /// With which fence; 0 for a permit.
    pub fence: u64,
    /// For how much longer nobody else can enter, if nothing is renewed.
    pub valid_for: Duration,
    /// The lease's time to live.
    pub ttl: Duration,
    /// What the holder says.
    pub value: Vec<u8>,
    /// How often it has said something: 1 at first.
    pub version: u64,
    /// The fence that was drawn when it last said something: at first that of the grant.
    pub revision: u64,
}

impl Hold {
    /// etcd's key of it.
    pub fn key(&self) -> Vec<u8> {
        key(&self.lock, self.lease)
    }
}

/// etcd's key of the hold of a lease on a lock.
pub fn key(lock: &str, lease: LeaseId) -> Vec<u8> {
    format!("{lock}/{lease}").into_bytes()
}

/// A hold that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its number in the lease.
    pub number: u64,
    /// Which lock.
    pub lock: String,
    /// Why.
    pub why: String,
}

/// How a lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Which lease.
    pub lease: LeaseId,
    /// What is left of it.
    pub left: Duration,
    /// Its time to live.
    pub ttl: Duration,
    /// For how much longer nobody else can have what it holds, if nothing is renewed; `None` if it holds nothing.
    pub valid_for: Option<Duration>,
    /// What it holds. Signs of life are answered without.
    pub holds: Vec<Hold>,
    /// Which locks it holds or waits for. Signs of life are answered without.
    pub locks: Vec<String>,
    /// What it has lost, the newest last.
    pub lost: Vec<Lost>,
    /// The member's session under which it asks.
    pub session: Option<SessionId>,
}

/// What comes of an operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// How the lease stands.
    Life(Life),
    /// The lease is over.
    Revoked,
    /// The last fence that was drawn for the hold, if it was held until now.
    Released(Option<u64>),
    /// The hold says so now.
    Set(Hold),
}

/// A lease in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Which.
    pub lease: LeaseId,
    /// Whose token.
    pub who: String,
    /// What it holds.
    pub locks: Vec<String>,
}

/// What goes wrong with leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// It is over, or was never.
    #[error("there is no lease {0}: it ended, or the daemon where it lived is gone")]
    NoSuchLease(LeaseId),
    /// The chosen number is taken.
    #[error("the lease {0} exists already")]
    LeaseExists(LeaseId),
    /// It ended while somebody waited by it.
    #[error("the lease {0} ended during the wait: {1}")]
    LeaseOver(LeaseId, String),
    /// Somebody else has the lock.
    #[error("`{0}` was not free in time")]
    Busy(String),
    /// The wait was given up, by a release or another request of the same session.
    #[error("the wait for `{0}` was given up")]
    GivenUp(String),
    /// It is not held, or not with this fence.
    #[error("`{0}` is not held with this fence by this lease")]
    NotHeld(String),
    /// A limit.
    #[error("{what}: at most {limit} are allowed")]
    TooMany {
        /// Of what.
        what: String,
        /// How many are allowed.
        limit: u64,
    },
    /// The time to live is too long.
    #[error("a time to live of {asked_s} s is too long: at most {limit_s} s are allowed")]
    TooLong {
        /// What was asked for.
        asked_s: u64,
        /// What is allowed.
        limit_s: u64,
    },
    /// A request that makes no sense.
    #[error("{0}")]
    Bad(String),
    /// It belongs to somebody else.
    #[error("the lease {0} belongs to another token")]
    NotYours(LeaseId),
    /// Not now.
    #[error("{0}")]
    Unavailable(String),
    /// The member of the daemon where the lease lives serves no more.
    #[error("{0}")]
    Stopped(String),
    /// The member of the daemon where the lease lives has no lease itself, and why.
    #[error("{0}")]
    NoLease(String),
}

impl From<Exceeded> for Fault {
    fn from(exceeded: Exceeded) -> Self {
        Self::TooMany { what: exceeded.what(), limit: exceeded.limit as u64 }
    }
}

impl From<lockkeeper_cluster::Error> for Fault {
    fn from(error: lockkeeper_cluster::Error) -> Self {
        use lockkeeper_cluster::Error;
        match error {
            Error::BadName(_) | Error::BadOption(_) => Self::Bad(error.to_string()),
            Error::Stopped(_) => Self::Stopped(error.to_string()),
            Error::NoLease(why) => Self::NoLease(why),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

/// The version of what daemons say to each other, their first byte.
pub(super) const VERSION: u8 = 3;

/// What a daemon asks another one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Do this to a lease of yours.
    Do(Asker, LeaseId, Op),
    /// Is this lease yours?
    Has(LeaseId),
    /// Which leases are yours?
    List,
    /// Whom do you hold this lock for?
    Holders(String),
    /// This client of mine wants a lock by a lease of yours. Say at once if it has it; otherwise it hears with the outcomes.
    Acquire { asking: Asking, asker: Asker, lease: LeaseId, wanted: Wanted },
    /// What became of the tickets of my clients.
    Settle { life: u64, fates: Vec<(u64, Fate)> },
    /// What became of the waits of my clients? I have heard all up to this number.
    Outcomes { life: u64, heard: u64 },
    /// Who holds and waits at your member, among the locks with these prefixes.
    Look { from: LookFrom, prefixes: Vec<String> },
}

/// What became of a ticket at the daemon whose client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fate {
    /// The client was told of the hold.
    Delivered,
    /// The client does not wait any more, and was not told of a hold.
    Unwanted,
}

/// A wait of another daemon's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Asking {
    /// Which life of that daemon.
    pub life: u64,
    /// Which of its waits.
    pub ticket: u64,
}

/// What became of a wait.
pub(super) type Outcome = Result<Hold, Fault>;

/// The answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done(Result<Reply, Fault>),
    Has(Presence),
    List(Vec<Listed>),
    Holders(Vec<Hold>),
    /// `None`: it must wait.
    Acquire(Result<Option<Hold>, Fault>),
    /// Each with its number; `None` if nothing is known of such waits.
    Outcomes(Option<Vec<(u64, u64, Outcome)>>),
    Settled,
    Look(Option<Seen>),
}

/// Whether a lease is somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Presence {
    Absent,
    /// It is about to be made.
    Reserved,
    Present,
}

/// The numbers of the next change of a member's table, and of the next change of the holds of its daemon's leases.
pub(super) type Numbers = (u64, u64);

/// What another daemon wants to see of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LookFrom {
    /// The whole table, page by page: the locks that follow this name.
    Page(Option<String>),
    /// The locks that have changed since, once there are any, or none after a while.
    Change(Numbers),
}

/// A part of what one member's clients hold and wait for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The changes that follow what is seen here.
    pub next: Numbers,
    pub node: Node,
    /// Each with the holds on the lock by leases, which say something. A lock that is not in use any more has no holders and no waiters.
    pub rows: Vec<(LockStatus, Vec<Hold>)>,
    pub part: Part,
}

/// Which part of a table is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// A page of it; after this name there are more.
    Page(Option<String>),
    /// What has changed.
    Changes,
    /// Nothing: changes since then are not known any more, and the whole table is to be read.
    Unknown,
}
