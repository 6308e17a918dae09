//! Connections between members: frames, TLS, limits.
//!
//! Each member dials each other member. Frames and queries go over the connection that the sender has dialled, in
//! order; an answer comes back over the connection of its query. When a connection breaks, the data in transit are
//! lost; the links of the members retransmit.
//!
//! | module | contents |
//! |---|---|
//! | [`hello`], `proof` | the greeting: member, cluster and version; both sides prove that they have the join token |
//! | [`records`] | encoding of frames, queries and answers |
//! | [`outbox`] | the buffer of outgoing bytes: pending records leave in one write, inline if possible |
//! | `connection` | reading, writing, and detection of silent connections |
//! | [`dial`], `peer` | outgoing connections, which are re-established when they break |
//! | `accept`, `pending_connections` | incoming connections: which ones are accepted, and limits on unauthenticated ones |
//! | [`tls`], [`authority`] | authentication of members by certificates |
//! | [`counters`] | counters for metrics |

mod accept;
pub mod authority;
mod connection;
pub mod counters;
pub mod dial;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
#[cfg(test)]
mod golden;
pub mod hello;
pub mod outbox;
mod peer;
mod pending_connections;
mod proof;
pub mod records;
pub mod tls;

#[cfg(test)]
mod tests;

use crate::join_token::JoinToken;
use accept::Inbound;
use counters::Counters;
use dial::Dialler;
use lockkeeper_member::MemberId;
use peer::Peer;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tls::{Tls, TlsError};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// The settings of a network.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id of this member.
    pub me: MemberId,
    /// The name of its cluster.
    pub cluster: String,
    /// The address to listen on; port 0 for any. `None` for a member that no other member connects to.
    pub listen: Option<SocketAddr>,
    /// The secret that all members of the cluster share.
    pub token: JoinToken,
    /// Certificates. Without them, only connections on this machine are allowed.
    pub tls: Option<Tls>,
    /// Allows connections to other machines without TLS. An attacker who can change packets on the network can then
    /// take every lock.
    pub insecure_no_tls: bool,
    /// Limits on sizes, numbers and times.
    pub limits: Limits,
}

/// Limits on sizes, numbers and times.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum size of a frame, query or answer, in bytes.
    pub frame_bytes: usize,
    /// Maximum number of unsent bytes to one member that is connected.
    pub queue_bytes: usize,
    /// Maximum number of unsent bytes to one member while there is no connection.
    pub waiting_bytes: usize,
    /// Maximum number of incoming connections from members.
    pub connections: usize,
    /// Maximum number of incoming connections that have not yet proved that they come from a member. They do not count
    /// towards `connections`.
    pub unauthenticated: usize,
    /// Maximum number of queries in progress on one connection; a long one counts as several.
    pub queries: usize,
    /// Timeout for establishing a TCP connection.
    pub connect_within: Duration,
    /// Timeout for TLS and the greeting together.
    pub hello_within: Duration,
    /// Time without other outgoing data after which a ping is sent.
    pub ping_every: Duration,
    /// Time without incoming data after which a connection is closed.
    pub silence: Duration,
    /// Delay before the first reconnection attempt.
    pub backoff_least: Duration,
    /// Maximum delay between reconnection attempts.
    pub backoff_most: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            queue_bytes: 64 << 20,
            waiting_bytes: 1 << 20,
            connections: 1024,
            unauthenticated: 128,
            queries: 256,
            connect_within: Duration::from_secs(2),
            hello_within: Duration::from_secs(2),
            ping_every: Duration::from_secs(1),
            silence: Duration::from_secs(4),
            backoff_least: Duration::from_millis(20),
            backoff_most: Duration::from_secs(1),
        }
    }
}

impl Limits {
    fn check(&self) -> Result<(), Error> {
        if self.silence < 2 * self.ping_every {
            let (silence, ping_every) = (self.silence, self.ping_every);
            return Err(Error::ShortSilence { silence, ping_every });
        }
        if self.queue_bytes < self.frame_bytes {
            let (frame_bytes, queue_bytes) = (self.frame_bytes, self.queue_bytes);
            return Err(Error::SmallQueue { frame_bytes, queue_bytes });
        }
        if self.frame_bytes > u32::MAX as usize / 2 {
            return Err(Error::LargeFrame);
        }
        Ok(())
    }
}

/// A boxed future.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The receiver of incoming frames and queries.
pub trait Handler: Send + Sync + 'static {
    /// Handles a frame from another member. It must be fast and must not block, since a member never stops reading. A
    /// rejected frame is counted; the connection remains.
    fn frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), Refused>;

    /// Called after all frames of one read have been handled.
    fn batch_done(&self) {}

    /// Answers a query of another member. If the answer comes too late, the sender has given up, without notice to this
    /// side.
    fn handle_query(&self, from: MemberId, bytes: Vec<u8>) -> BoxFuture<Vec<u8>>;

    /// Called when a new connection to this member is established. Frames sent from now on go over it until it breaks;
    /// data in transit over the previous one are lost.
    fn connected(&self, peer: MemberId);
}

/// The reason why a frame is rejected.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Refused(pub Box<dyn std::error::Error + Send + Sync>);

/// The reason why a network cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The silence after which a connection is closed is shorter than two pings.
    #[error(
        "a silence of {silence:?} is too short for pings every {ping_every:?}: it must be at least twice as long"
    )]
    ShortSilence {
        /// The silence as configured.
        silence: Duration,
        /// The interval of pings.
        ping_every: Duration,
    },
    /// The largest frame does not fit into a queue.
    #[error(
        "a frame of {frame_bytes} bytes does not fit into a queue of {queue_bytes}: raise queue_bytes or lower \
         frame_bytes"
    )]
    SmallQueue {
        /// The size of the largest frame.
        frame_bytes: usize,
        /// The size of a queue.
        queue_bytes: usize,
    },
    /// The largest frame exceeds the limit of the format.
    #[error("a frame has at most 2 GiB: lower frame_bytes")]
    LargeFrame,
    /// The cluster's name is empty or too long.
    #[error("a cluster's name has 1 to {longest} bytes")]
    ClusterName {
        /// The length of the longest name.
        longest: usize,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Without TLS, attackers on the network could read and forge all messages.
    #[error(
        "{0} can be reached from other machines, and there is no TLS: every process that reaches it could take every lock. \
         Configure certificates, or listen on 127.0.0.1, or set insecure_no_tls (--insecure-no-tls) if the network itself \
         is trusted"
    )]
    PlainBeyondLoopback(SocketAddr),
    /// The address is not available.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// The reason why there is no answer. It is not known whether the query arrived.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// The state that all tasks of a network share.
struct NetState {
    me: MemberId,
    dialler: Dialler,
    handler: Arc<dyn Handler>,
    counters: Counters,
    inbound: Inbound,
    peers: RwLock<BTreeMap<MemberId, PeerEntry>>,
    tasks: Tasks,
}

/// A peer and the task that maintains the connection to it; no task once the network has stopped.
struct PeerEntry {
    peer: Arc<Peer>,
    task: Option<AbortHandle>,
    /// Whether the address comes from the membership, and not from a query before this member knew the membership.
    listed: bool,
}

impl NetState {
    /// Called when a member has connected to this one.
    fn peer_connected(&self, member: MemberId) {
        if let Some(peer) = self.peer(member) {
            peer.try_now();
        }
    }

    fn peer(&self, member: MemberId) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&member).map(|entry| entry.peer.clone())
    }
}

/// The tasks of a network. They all end with it.
struct Tasks {
    runtime: tokio::runtime::Handle,
    running: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_mut()?;
        while running.try_join_next().is_some() {}
        Some(running.spawn_on(task, &self.runtime))
    }

    fn take(&self) -> Option<JoinSet<()>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The connections of one member to all others. Dropping it closes them.
pub struct Net {
    shared: Arc<NetState>,
    /// Whether a frame was sent since the last flush.
    unflushed: AtomicBool,
    address: Option<SocketAddr>,
}

impl Net {
    /// Starts to listen. Connections are dialled after [`set_addresses`](Self::set_addresses).
    pub async fn start(settings: Settings, handler: Arc<dyn Handler>) -> Result<Arc<Self>, Error> {
        let Settings { me, cluster, listen, token, tls, insecure_no_tls: plain, limits } = settings;
        let beyond = listen.filter(|listen| !listen.ip().is_loopback());
        if let Some(listen) = beyond.filter(|_| tls.is_none() && !plain) {
            return Err(Error::PlainBeyondLoopback(listen));
        }
        let inbound = Inbound::new(&limits);
        let dialler = Dialler::new(me, &cluster, token, tls.as_ref(), plain, limits)?;
        let listener = match listen {
            None => None,
            Some(listen) => {
                let cannot = |error| Error::Listen(listen, error);
                let listener = TcpListener::bind(listen).await.map_err(cannot)?;
                Some((listener.local_addr().map_err(cannot)?, listener))
            }
        };
        let address = listener.as_ref().map(|(address, _)| *address);
        let running = Mutex::new(Some(JoinSet::new()));
        let shared = Arc::new(NetState {
            me,
            dialler,
            handler,
            counters: Counters::default(),
            inbound,
            peers: RwLock::default(),
            tasks: Tasks { runtime: tokio::runtime::Handle::current(), running },
        });
        if let Some((_, listener)) = listener {
            shared.tasks.spawn(accept::accept(shared.clone(), listener));
        }
        Ok(Arc::new(Self { shared, unflushed: AtomicBool::default(), address }))
    }

    /// The address on which it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Sets the members to connect to and their addresses, as "host:port". Names are resolved at every attempt.
    /// Connections to members that are no longer listed are closed.
    pub fn set_addresses(&self, addresses: BTreeMap<MemberId, String>) {
        let mut peers = self.shared.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|id, PeerEntry { peer, task, .. }| {
            let stays = addresses.contains_key(id);
            if !stays {
                if let Some(task) = task {
                    task.abort();
                }
                peer.down("it is not a member any more".into());
            }
            stays
        });
        for (id, address) in addresses {
            if id == self.shared.me {
                continue;
            }
            match peers.get_mut(&id) {
                Some(entry) => {
                    entry.listed = true;
                    entry.peer.set_address(address);
                }
                None => {
                    peers.insert(id, self.new_peer(id, address, true));
                }
            }
        }
    }

    fn new_peer(&self, id: MemberId, address: String, listed: bool) -> PeerEntry {
        let peer = Arc::new(Peer::new(id, address, &self.shared));
        let task = self.shared.tasks.spawn(peer::keep_connected(self.shared.clone(), peer.clone()));
        PeerEntry { peer, task, listed }
    }

    /// Appends a frame to the buffer of a member; `write` appends the frame's bytes. It never blocks: if the buffer is
    /// full or the member has no known address, the frame is dropped and counted. Frames leave with the next
    /// [`flush`](Self::flush).
    pub fn send(&self, to: MemberId, write: impl FnOnce(&mut Vec<u8>)) {
        let (shared, longest) = (&self.shared, self.shared.dialler.limits.frame_bytes);
        let peers = shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        let sent = peers.get(&to).is_some_and(|entry| entry.peer.send(longest, write).is_ok());
        let counter = if sent { &shared.counters.frames_out } else { &shared.counters.dropped };
        counter.count();
        self.unflushed.store(true, Ordering::Release);
    }

    /// Writes all frames that were sent since the last flush, to all members.
    pub fn flush(&self) {
        if !self.unflushed.swap(false, Ordering::AcqRel) {
            return;
        }
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.values().for_each(|entry| entry.peer.flush(&self.shared.counters));
    }

    /// Sends a query to a member over the connection to it. `address` is used unless the membership lists another one.
    pub async fn query(
        &self,
        to: MemberId,
        address: &str,
        query: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, Unreachable> {
        // A member that has just restarted may be redirected to itself: other members may not have noticed yet that it
        // was gone, and still name it as the leader.
        if to == self.shared.me {
            return Err(Unreachable(format!("{to} is this member itself")));
        }
        let peer = self.peer_at(to, address);
        peer.query(&query, self.shared.dialler.limits.frame_bytes, within).await
    }

    /// The peer for a query. A peer that the membership does not list moves to the newest address: the member that
    /// named the address of an earlier query may itself have had an old one.
    fn peer_at(&self, to: MemberId, address: &str) -> Arc<Peer> {
        let known = {
            let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
            peers.get(&to).map(|entry| (entry.peer.clone(), entry.listed))
        };
        match known {
            Some((peer, true)) => peer,
            Some((peer, false)) => {
                peer.set_address(address.to_owned());
                peer
            }
            None => {
                let mut peers = self.shared.peers.write().unwrap_or_else(PoisonError::into_inner);
                let new = || self.new_peer(to, address.to_owned(), false);
                peers.entry(to).or_insert_with(new).peer.clone()
            }
        }
    }

    /// Sends a query to the member that listens at an address, for a first contact.
    pub async fn query_address(
        &self,
        address: &str,
        query: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, Unreachable> {
        self.shared.dialler.query(address, &query, within, &self.shared.counters).await
    }

    /// Whether there is a connection to this member now.
    pub fn is_connected(&self, to: MemberId) -> bool {
        self.shared.peer(to).is_some_and(|peer| peer.is_up())
    }

    /// Reloads the certificates, possibly from other files. Existing connections remain; new ones use the new
    /// certificates.
    pub fn reload_tls(&self, tls: &Tls) -> Result<(), Error> {
        self.shared.dialler.reload_tls(tls)
    }

    /// The counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Waits for a short time until pending data have been written, then closes all connections.
    pub async fn stop(&self) {
        let drained = async {
            while self.unsent() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), drained).await;
        if let Some(mut running) = self.shared.tasks.take() {
            running.shutdown().await;
        }
    }

    /// Number of unsent bytes to members that are connected.
    fn unsent(&self) -> usize {
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers
            .values()
            .map(|entry| &entry.peer)
            .filter(|peer| peer.is_up())
            .map(|peer| peer.pending_bytes())
            .sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The tasks share this state. Dropping the set ends them.
        drop(self.shared.tasks.take());
    }
}
