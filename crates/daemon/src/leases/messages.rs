//! The messages that daemons exchange about leases.

use super::id::LeaseId;
use super::operations::{
    CallerIdentity, Enqueued, Hold, HoldRequest, LeaseError, LeaseOperation, LeaseSummary, OperationReply,
    Turn,
};
use lockkeeper_cluster::{LockStatus, Node};
use serde::{Deserialize, Serialize};

/// The version of the messages between daemons: their first byte. Version 5 has detached holds and queued entries.
pub(super) const VERSION: u8 = 5;

/// A request to another daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DaemonRequest {
    /// Performs an operation on one of its leases.
    Perform(CallerIdentity, LeaseId, LeaseOperation),
    /// Queries whether a lease lives at the receiver.
    Has(LeaseId),
    /// Lists its leases.
    List,
    /// Lists the holds of a lock by its leases.
    Holders(String),
    /// Requests a lock for a client of the sender, by a lease that lives at the receiver. The reply contains the hold
    /// if it is granted at once; otherwise it comes with the outcomes.
    Acquire { wait: WaitId, identity: CallerIdentity, lease: LeaseId, request: HoldRequest },
    /// Reports how tickets of the sender's clients ended.
    Dispose { incarnation: u64, dispositions: Vec<(u64, Disposition)> },
    /// Polls for the outcomes of the waits of the sender's clients, above the number that it has received.
    Outcomes { incarnation: u64, received: u64 },
    /// Reads the holders and waiters at the receiver's member, for locks with these prefixes.
    ReadTable { range: TableRange, prefixes: Vec<String> },
    /// Requests a lock with an entry that stays in the queue, by a lease that lives at the receiver.
    Enqueue { identity: CallerIdentity, lease: LeaseId, request: HoldRequest },
    /// Reads the place of a lease in the queue of a lock.
    Turn { lease: LeaseId, lock: String },
    /// Waits for the outcome of an entry that stays in the queue. The reply is that to [`Acquire`](Self::Acquire).
    Join { wait: WaitId, identity: CallerIdentity, lease: LeaseId, lock: String },
}

/// The end of a ticket, decided by the daemon whose client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Disposition {
    /// The hold was delivered to the client.
    Delivered,
    /// The client does not wait any more, and no hold was delivered.
    Unwanted,
}

/// Identifies a wait of another daemon's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct WaitId {
    /// The incarnation of that daemon.
    pub incarnation: u64,
    /// The number of the wait within the incarnation.
    pub ticket: u64,
}

/// The outcome of a wait.
pub(super) type WaitOutcome = Result<Hold, LeaseError>;

/// A reply to a [`DaemonRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DaemonReply {
    Performed(Result<OperationReply, LeaseError>),
    /// Also the epoch of the view that has started at the sender's member; `None` if it is changing its view. With that
    /// view the sender may have adopted the lease.
    Has(LeasePresence, Option<u64>),
    List(Vec<LeaseSummary>),
    /// Also the epoch of the view that has started at the sender's member, as in [`Has`](Self::Has).
    Holders(Vec<Hold>, Option<u64>),
    /// `None`: the request waits.
    Acquire(Result<Option<Hold>, LeaseError>),
    /// Number, ticket and outcome of each wait; `None` if the sender is unknown.
    Outcomes(Option<Vec<(u64, u64, WaitOutcome)>>),
    Disposed,
    Table(Option<TableChunk>),
    Enqueued(Result<Enqueued, LeaseError>),
    Turn(Result<Turn, LeaseError>),
}

/// Whether a lease lives at a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LeasePresence {
    Absent,
    /// It is about to be created.
    Reserved,
    Present,
}

/// The numbers of the next change of a member's table and of the next change of the holds of its daemon's leases.
pub(super) type ChangeNumbers = (u64, u64);

/// The requested chunk of a member's table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TableRange {
    /// A page of the whole table: the locks that follow this name.
    Page(Option<String>),
    /// The locks that have changed since these numbers, once there are any; an empty reply after a while.
    Changes(ChangeNumbers),
}

/// A chunk of the table of one member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TableChunk {
    /// The numbers of the changes that follow this chunk.
    pub next: ChangeNumbers,
    pub node: Node,
    /// Each lock with its holds by leases, for their values. A lock no longer in use has neither holders nor waiters.
    pub rows: Vec<(LockStatus, Vec<Hold>)>,
    pub kind: ChunkKind,
}

/// The kind of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ChunkKind {
    /// A page; more locks follow this name, if any.
    Page(Option<String>),
    /// The changes since the requested numbers.
    Changes,
    /// Nothing: the requested changes have been dropped, and the whole table must be read again.
    Unknown,
}
