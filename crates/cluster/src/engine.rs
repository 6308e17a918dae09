//! What the API needs of a member, whatever its algorithm.

use crate::consensus::Consensus;
use crate::error::Result;
use crate::local::{Look, Outcome};
use crate::metrics::Metrics;
use crate::net::Net;
use crate::trouble::Trouble;
use lockkeeper_member::{
    Acquisition, Claim, ClusterSettings, Ended, Fence, LockName, LockStatus, MemberId, NoFence, Node,
    PortEvent, Query, Reply, SessionId, Table, ToClient, ToMember, View, Wish,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// Why a member that leaves does not serve.
pub(crate) const LEAVING: &str = "it is leaving its cluster, and lets nobody in; ask another one";

/// What a wish comes to at once.
pub(crate) enum Asked {
    /// Held, with this fence.
    Granted(u64, Option<Fence>),
    /// It must wait.
    Later(u64, oneshot::Receiver<Outcome>),
    /// Over.
    Ended(Ended),
}

/// Whoever carries the member's words to a client outside of this process.
pub trait Hears: Send + Sync {
    /// The member says something to a session. Called while the member works: it must not block, and not call the member.
    fn hear(&self, session: SessionId, said: ToClient);

    /// What a wait of the client for this lock is called in the logs, if it waits for it. Called in the same way.
    fn traced(&self, _lock: &LockName) -> Option<Span> {
        None
    }
}

/// What the API needs of a member, whatever its algorithm.
pub(crate) trait Engine: Send + Sync {
    fn open(&self) -> u64;
    fn close(&self, client: u64);
    fn session(&self, client: u64) -> Option<SessionId>;
    fn acquire(&self, client: u64, wish: Wish, span: Span) -> Result<Asked>;
    fn leave(&self, client: u64, number: u64) -> Option<Look>;
    fn look(&self, client: u64, number: u64) -> Look;
    fn promised_until_ns(&self) -> u64;
    fn draw_fence(&self, client: u64, number: u64) -> std::result::Result<u64, NoFence>;
    fn changes(&self, client: u64) -> watch::Receiver<()>;
    fn expiring(&self) -> watch::Receiver<u64>;
    fn trouble(&self) -> Option<Trouble>;
    fn attach(&self, hears: Arc<dyn Hears>) -> Result<u64>;
    fn detach(&self, client: u64);
    /// What it sends to other members for that leaves with `flush`.
    fn say(&self, session: SessionId, said: ToMember);
    fn tables(&self) -> watch::Receiver<u64>;
    fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (Table, u64);
    fn table_changes(&self, from: u64) -> Option<(Table, u64)>;
    fn one(&self, lock: &LockName, most_bytes: usize) -> LockStatus;
    fn most_own_locks(&self) -> usize;
    fn claimed(&self, lock: &LockName) -> Option<Claim>;
    fn survey(&self, query: Query) -> oneshot::Receiver<Vec<Reply>>;
    fn revoke(&self, lock: LockName, acquisition: Acquisition);
    /// The settings of the newest view that the member knows.
    fn settings(&self) -> ClusterSettings;
    /// If this member leads: proposes a view with these settings. An error says why not.
    fn change(&self, settings: ClusterSettings) -> std::result::Result<(), String>;
    fn standing(&self) -> Standing;
    fn standings(&self) -> watch::Receiver<u64>;
    fn peers(&self, peers: Vec<MemberId>);
    /// What it sends in answer leaves with `flush`.
    fn frame(&self, from: MemberId, bytes: &[u8]) -> std::result::Result<(), String>;
    fn flush(&self);
    fn connected(&self, peer: MemberId);
    fn port(&self, event: PortEvent);
    fn leave_cluster(&self, patience_ns: u64);
    fn stop(&self, why: &str);
    fn metrics(&self) -> &Metrics;
    fn connect(&self, net: Arc<Net>, consensus: Consensus);
}

/// Where a member stands, for people and for those who wait for it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// This life of the member.
    pub node: Node,
    /// The view it is in and serves, if any.
    pub view: Option<View>,
    /// How long its lease runs on.
    pub lease: Duration,
    /// Why it has stopped, if it has.
    pub stopped: Option<String>,
    /// Whether it has stopped by itself, because of an error: its process must be restarted.
    pub failed: bool,
    /// Whether it has left its cluster in order.
    pub left: bool,
}

impl Standing {
    /// Whether it lets clients in at this moment.
    pub fn serves(&self) -> bool {
        self.view.is_some() && !self.lease.is_zero() && self.stopped.is_none() && !self.left
    }
}
