//! The interface between the API and a member, independent of the algorithm.

use crate::error::Result;
use crate::local::{AdoptedHold, HoldState, RequestOutcome};
use crate::metrics::Metrics;
use crate::net::Net;
use crate::not_serving::NotServing;
use lockkeeper_consensus::Consensus;
use lockkeeper_member::{
    Acquisition, ClusterSettings, Ended, Fence, LockList, LockMode, LockName, LockRequest, LockStatus,
    MemberId, NoFence, Node, PortEvent, Proof, Query, Reply, SessionId, SettingsError, ToClient, ToMember,
    View,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// The reason that a leaving member gives for not granting.
pub(crate) const LEAVING: &str = "it is leaving its cluster and grants no locks; ask another member";

/// The reason why a member does not propose settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProposalError {
    /// A member cannot run with the settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Only the leader proposes.
    #[error("another member leads now: try again")]
    NotLeader,
}

/// The reason why a frame of another member is dropped before it reaches the member's state machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The bytes are not a frame.
    #[error("a frame of {from} cannot be read: {source}")]
    Malformed { from: MemberId, source: postcard::Error },
    /// The frame names another sender or recipient than the connection.
    #[error("a frame of {from} claims to be from {sender} to {to}")]
    Misaddressed { from: MemberId, sender: Node, to: MemberId },
}

/// The immediate result of a request.
pub(crate) enum Immediate {
    /// Granted: the number of the acquisition and its fence.
    Granted(u64, Option<Fence>),
    /// Waiting: the number of the acquisition, and the receiver of its outcome.
    Later(u64, oneshot::Receiver<RequestOutcome>),
    /// Ended without a grant.
    Ended(Ended),
}

/// The transport of a client outside of this process, which receives the member's messages for it.
pub trait ClientTransport: Send + Sync {
    /// Delivers a message of the member to a session. It is called while the member's state is locked, so it must
    /// neither block nor call the member.
    fn deliver(&self, session: SessionId, message: ToClient);

    /// The span of the client's wait for this lock, if it waits for it. The same restrictions apply.
    fn wait_span(&self, _lock: &LockName) -> Option<Span> {
        None
    }
}

/// Calls of sessions of clients in this process: [`Acquire`](crate::Acquire) and [`HoldGuard`](crate::HoldGuard).
pub(crate) trait LocalSessions: Send + Sync {
    /// Creates a client in this process and returns its number. Its session is opened by its first request.
    fn open(&self) -> u64;
    /// Removes a client in this process and closes its session.
    fn close(&self, client: u64);
    /// The current session of a client in this process.
    fn session(&self, client: u64) -> Option<SessionId>;
    /// Requests a lock for a client in this process. `span` is the tracing span of its wait.
    fn acquire(&self, client: u64, request: LockRequest, span: Span) -> Result<Immediate>;
    /// Releases a hold or cancels a waiting request. Returns the last state of the hold, if there was one.
    fn release(&self, client: u64, number: u64) -> Option<HoldState>;
    /// The state of a hold at this moment.
    fn hold_state(&self, client: u64, number: u64) -> HoldState;
    /// The operator that has revoked a hold.
    fn revoker(&self, client: u64, number: u64) -> Option<String>;
    /// Whether a release of this client is not acknowledged yet.
    fn is_releasing(&self, client: u64) -> bool;
    /// Draws a further fence for an exclusive hold.
    fn draw_fence(&self, client: u64, number: u64) -> std::result::Result<u64, NoFence>;
    /// Notifies when a hold of this client may have been lost.
    fn losses(&self, client: u64) -> watch::Receiver<()>;
    /// Notifies when the member's lease is about to end.
    fn expiring(&self) -> watch::Receiver<u64>;
    /// The reason why the member grants no locks at the moment. `None` if it does.
    fn not_serving(&self) -> Option<NotServing>;
}

/// Calls that record holds of clients in this process, so that they outlive the member, and that take over the recorded
/// holds of other members. Daemons make them.
pub(crate) trait RecordedHolds: LocalSessions {
    /// The time, on the lease clock, until which third parties may rely on a hold.
    fn promised_until_ns(&self, client: u64, number: u64) -> u64;
    /// Requests a record of a hold with this payload, or changes the payload. Returns `false` if it is not held.
    fn record(&self, client: u64, number: u64, ttl: Duration, payload: Vec<u8>) -> bool;
    /// Marks a hold as detached, with a deadline for lists, and records it at once.
    fn detach_hold(&self, client: u64, number: u64, until_ms: Option<u64>);
    /// Whether the table of recorded holds has no room for a hold.
    fn is_record_unfit(&self, client: u64, number: u64) -> bool;
    /// Whether the record of a hold is committed, with its present payload.
    fn is_recorded(&self, client: u64, number: u64) -> bool;
    /// Promises a recorded hold for this time from now on. Returns `false` if it is not recorded, or the member cannot.
    fn promise(&self, client: u64, number: u64, ttl: Duration) -> bool;
    /// The holds that this member has adopted since the last call.
    fn take_adopted(&self) -> Vec<AdoptedHold>;
    /// Notifies when there are adopted holds.
    fn adoptions(&self) -> watch::Receiver<u64>;
}

/// The identity of a client outside of this process. It is the same at every member, so that any of them can carry the
/// client's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The client's number: unguessable, and below [`SessionId::RESIDENT`].
    pub number: u64,
    /// The proof by which other members recognise the client.
    pub proof: Proof,
}

/// Calls of the transports of clients outside of this process, which the application that embeds the member provides.
pub(crate) trait RemoteClients: Send + Sync {
    /// Attaches a client outside of this process. Returns `false` if its number is in use.
    fn attach(&self, client: ClientIdentity, transport: Arc<dyn ClientTransport>) -> bool;
    /// Detaches a client. Its sessions remain until their leases expire.
    fn detach(&self, client: u64);
    /// Handles a message of a client. Messages to other members that result from it leave with `flush`.
    fn handle_client_message(&self, session: SessionId, message: ToMember);
    /// The mode in which this lock is held or requested through this member, if it is.
    fn mode_in_use(&self, lock: &LockName) -> Option<LockMode>;
    /// Maximum number of different locks that the clients of this member may use at a time.
    fn most_own_locks(&self) -> usize;
}

/// Calls that list holders and waiters, for operators and for clients that watch locks.
pub(crate) trait LockTable: Send + Sync {
    /// Watches the number of the next change of the table of locks.
    fn watch_table(&self) -> watch::Receiver<u64>;
    /// The locks of this member after a name, in about `most_bytes` bytes, and the number of locks that follow.
    fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (LockList, u64);
    /// The locks of this member that have changed since a change, and the next change to read. `None` if changes that
    /// old have been discarded.
    fn table_changes(&self, from: u64) -> Option<(LockList, u64)>;
    /// The holders and waiters of one lock at this member.
    fn lock_status(&self, lock: &LockName, most_bytes: usize) -> LockStatus;
    /// Sends a query to all members. The receiver yields the replies that came in time.
    fn query(&self, query: Query) -> oneshot::Receiver<Vec<Reply>>;
}

/// Calls of operators: the state of the member, its settings, revocations, its planned leave.
pub(crate) trait Operations: Send + Sync {
    /// Revokes the hold of a client of this member, for the operator of this name.
    fn revoke(&self, lock: LockName, acquisition: Acquisition, by: String);
    /// The settings of the newest view that the member knows.
    fn settings(&self) -> ClusterSettings;
    /// Proposes a view with these settings if this member leads. The error contains the reason for a rejection.
    fn propose_settings(&self, settings: ClusterSettings) -> Result<(), ProposalError>;
    /// The state of the member.
    fn status(&self) -> MemberStatus;
    /// Notifies when the status may have changed.
    fn status_changes(&self) -> watch::Receiver<u64>;
    /// Starts a planned leave. Holders have this much time to release.
    fn leave_cluster(&self, drain_ns: u64);
    /// The counters and histograms of the member.
    fn metrics(&self) -> &Metrics;
}

/// Calls of the member's environment in this process: the network, consensus, and the code that starts and stops it.
pub(crate) trait Environment: Send + Sync {
    /// Connects the member to its network and to consensus. Only the first call has an effect.
    fn connect(&self, net: Arc<Net>, consensus: Consensus);
    /// Sets the members known to the cluster.
    fn set_peers(&self, peers: Vec<MemberId>);
    /// Handles a frame of another member. Frames sent in response leave with `flush`.
    fn receive_frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), FrameError>;
    /// Writes the frames that have been sent since the last flush.
    fn flush(&self);
    /// Handles a new connection to another member.
    fn peer_connected(&self, peer: MemberId);
    /// Handles an event of consensus.
    fn consensus_event(&self, event: PortEvent);
    /// Stops the member, for this reason.
    fn stop(&self, why: &str);
}

/// A running member, independent of its algorithm. Each supertrait has one audience; a caller that needs only one of
/// them takes a reference to that trait.
pub(crate) trait Engine: RecordedHolds + RemoteClients + LockTable + Operations + Environment {}

impl<T: RecordedHolds + RemoteClients + LockTable + Operations + Environment> Engine for T {}

/// The state of a member, for display and for callers that wait for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The member's id and incarnation.
    pub node: Node,
    /// The view that it is in and serves. `None` if it is in no view.
    pub view: Option<View>,
    /// The remaining time of its lease.
    pub lease: Duration,
    /// The reason why it has stopped. `None` while it runs.
    pub stopped: Option<String>,
    /// Whether it has stopped because of an internal error. Its process must be restarted.
    pub failed: bool,
    /// Whether it has left its cluster in an orderly way.
    pub left: bool,
}

impl MemberStatus {
    /// Whether it grants locks at this moment.
    pub fn serves(&self) -> bool {
        self.view.is_some() && !self.lease.is_zero() && self.stopped.is_none() && !self.left
    }
}
