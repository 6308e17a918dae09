//! The interface between the API and a member, independent of the algorithm.

use crate::consensus::Consensus;
use crate::error::Result;
use crate::local::{Look, Outcome};
use crate::metrics::Metrics;
use crate::net::Net;
use crate::trouble::Trouble;
use lockkeeper_member::{
    Acquisition, ClusterSettings, Ended, Fence, LockList, LockMode, LockName, LockRequest, LockStatus,
    MemberId, NoFence, Node, PortEvent, Query, Reply, SessionId, ToClient, ToMember, View,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// The reason that a leaving member gives for not granting.
pub(crate) const LEAVING: &str = "it is leaving its cluster and grants no locks; ask another member";

/// The immediate result of a request.
pub(crate) enum Asked {
    /// Granted: the number of the acquisition and its fence.
    Granted(u64, Option<Fence>),
    /// Waiting: the number of the acquisition, and the receiver of its outcome.
    Later(u64, oneshot::Receiver<Outcome>),
    /// Ended without a grant.
    Ended(Ended),
}

/// The transport of a client outside of this process, which receives the member's messages for it.
pub trait Hears: Send + Sync {
    /// Delivers a message of the member to a session. It is called while the member's state is locked, so it must
    /// neither block nor call the member.
    fn hear(&self, session: SessionId, said: ToClient);

    /// The span of the client's wait for this lock, if it waits for it. The same restrictions apply.
    fn traced(&self, _lock: &LockName) -> Option<Span> {
        None
    }
}

/// The member as the API sees it, independent of the algorithm.
pub(crate) trait Engine: Send + Sync {
    /// Creates a client in this process and returns its number. Its session is opened by its first request.
    fn open(&self) -> u64;
    /// Removes a client in this process and closes its session.
    fn close(&self, client: u64);
    /// The current session of a client in this process.
    fn session(&self, client: u64) -> Option<SessionId>;
    /// Requests a lock for a client in this process. `span` is the tracing span of its wait.
    fn acquire(&self, client: u64, wish: LockRequest, span: Span) -> Result<Asked>;
    /// Releases a hold or cancels a waiting request. Returns the last state of the hold, if there was one.
    fn leave(&self, client: u64, number: u64) -> Option<Look>;
    /// The state of a hold at this moment.
    fn look(&self, client: u64, number: u64) -> Look;
    fn promised_until_ns(&self) -> u64;
    /// Draws a further fence for an exclusive hold.
    fn draw_fence(&self, client: u64, number: u64) -> std::result::Result<u64, NoFence>;
    /// Notifies when a hold of this client may have been lost.
    fn changes(&self, client: u64) -> watch::Receiver<()>;
    /// Notifies when the member's lease is about to end.
    fn expiring(&self) -> watch::Receiver<u64>;
    fn trouble(&self) -> Option<Trouble>;
    /// Attaches a client outside of this process and returns its number.
    fn attach(&self, hears: Arc<dyn Hears>) -> Result<u64>;
    fn detach(&self, client: u64);
    /// Handles a message of a client. Messages to other members that result from it leave with `flush`.
    fn say(&self, session: SessionId, said: ToMember);
    /// Watches the number of the next change of the table of locks.
    fn tables(&self) -> watch::Receiver<u64>;
    fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (LockList, u64);
    fn table_changes(&self, from: u64) -> Option<(LockList, u64)>;
    fn one(&self, lock: &LockName, most_bytes: usize) -> LockStatus;
    fn most_own_locks(&self) -> usize;
    fn mode_in_use(&self, lock: &LockName) -> Option<LockMode>;
    /// Sends a query to all members. The receiver yields the replies that came in time.
    fn survey(&self, query: Query) -> oneshot::Receiver<Vec<Reply>>;
    /// Revokes the hold of a client of this member.
    fn revoke(&self, lock: LockName, acquisition: Acquisition);
    /// The settings of the newest view that the member knows.
    fn settings(&self) -> ClusterSettings;
    /// Proposes a view with these settings if this member leads. The error contains the reason for a rejection.
    fn change(&self, settings: ClusterSettings) -> std::result::Result<(), String>;
    fn standing(&self) -> Standing;
    /// Notifies when the standing may have changed.
    fn standings(&self) -> watch::Receiver<u64>;
    /// Sets the members known to the cluster.
    fn peers(&self, peers: Vec<MemberId>);
    /// Handles a frame of another member. Frames sent in response leave with `flush`.
    fn frame(&self, from: MemberId, bytes: &[u8]) -> std::result::Result<(), String>;
    /// Writes the frames that have been sent since the last flush.
    fn flush(&self);
    fn connected(&self, peer: MemberId);
    /// Handles an event of consensus.
    fn port(&self, event: PortEvent);
    /// Starts a planned leave. Holders have this much time to release.
    fn leave_cluster(&self, timeout_ns: u64);
    fn stop(&self, why: &str);
    fn metrics(&self) -> &Metrics;
    /// Connects the member to its network and to consensus. Only the first call has an effect.
    fn connect(&self, net: Arc<Net>, consensus: Consensus);
}

/// The state of a member, for display and for callers that wait for it.
#[derive(Clone, Debug)]
pub struct Standing {
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

impl Standing {
    /// Whether it grants locks at this moment.
    pub fn serves(&self) -> bool {
        self.view.is_some() && !self.lease.is_zero() && self.stopped.is_none() && !self.left
    }
}
