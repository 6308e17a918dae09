//! Connections between members: frames, TLS, limits.
//!
//! Each member dials each other one. What it sends goes over the connection that it dialled, in order; answers come back over the
//! connection of their question. A connection that breaks takes with it what was under way: the members' own links send again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`hello`], `proof` | the greeting: who, which cluster, which version; both sides prove that they have the join token |
//! | [`records`] | frames, questions and answers as bytes |
//! | [`outbox`] | what is ready leaves in one write, by whoever said it |
//! | `connection` | reading, writing, and noticing silence |
//! | [`dial`], `peer` | connections to others, made again when they break |
//! | `accept`, `strangers` | connections from others: which are let in, and those that have not proved yet who they are |
//! | [`tls`], [`authority`] | who is who |
//! | [`counters`] | what happened |

mod accept;
pub mod authority;
mod connection;
pub mod counters;
pub mod dial;
pub mod hello;
pub mod outbox;
mod peer;
mod proof;
pub mod records;
mod strangers;
pub mod tls;

#[cfg(test)]
mod tests;

use crate::join_token::JoinToken;
use accept::Inbound;
use counters::Counters;
use dial::Caller;
use lockkeeper_member::MemberId;
use peer::Peer;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tls::Tls;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// What a network needs to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this is.
    pub me: MemberId,
    /// Of which cluster.
    pub cluster: String,
    /// Where to listen; port 0 for any. `None` for a member that no other one connects to.
    pub listen: Option<SocketAddr>,
    /// The secret that all members of the cluster share.
    pub token: JoinToken,
    /// Certificates. Without them only this machine is spoken to.
    pub tls: Option<Tls>,
    /// Without TLS, speak to other machines all the same: who can change packets on the network can take every lock.
    pub insecure_no_tls: bool,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds on sizes, numbers and times.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest frame, question or answer.
    pub frame_bytes: usize,
    /// The most that is under way to one member.
    pub queue_bytes: usize,
    /// The most that waits while there is no connection.
    pub waiting_bytes: usize,
    /// Connections from members.
    pub connections: usize,
    /// Connections that have not proved yet that they come from a member. They take no places of members.
    pub strangers: usize,
    /// Questions that one connection may have under way; a long one counts as several.
    pub questions: usize,
    /// How long connecting may take.
    pub connect_within: Duration,
    /// How long TLS and the greeting may take together.
    pub hello_within: Duration,
    /// After so long without saying anything, a few bytes say that this member is there.
    pub ping_every: Duration,
    /// After so long without hearing anything, a connection is given up.
    pub silence: Duration,
    /// How long to wait before trying to connect again, at first.
    pub backoff_least: Duration,
    /// And at most.
    pub backoff_most: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            queue_bytes: 64 << 20,
            waiting_bytes: 1 << 20,
            connections: 1024,
            strangers: 128,
            questions: 256,
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
    fn check(&self) -> Result<(), String> {
        if self.silence < 2 * self.ping_every {
            return Err(format!(
                "a silence of {:?} cannot be told from a pause between two pings, one every {:?}: allow twice as much",
                self.silence, self.ping_every
            ));
        }
        if self.queue_bytes < self.frame_bytes {
            return Err(format!(
                "a frame of {} bytes does not fit into a queue of {}: raise queue_bytes or lower frame_bytes",
                self.frame_bytes, self.queue_bytes
            ));
        }
        if self.frame_bytes > u32::MAX as usize / 2 {
            return Err("a frame has at most 2 GiB: lower frame_bytes".into());
        }
        Ok(())
    }
}

/// A future in a box.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is done with what others say.
pub trait Handler: Send + Sync + 'static {
    /// A frame from another member. Must be quick and must not wait: a member never stops reading from the others. Refusing it
    /// counts it and leaves the connection as it is.
    fn frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), Refused>;

    /// All frames that one read brought were handed over.
    fn batch_done(&self) {}

    /// A question of another member. If it is not answered in time, the asker gives up without a message to this side.
    fn question(&self, from: MemberId, bytes: Vec<u8>) -> BoxFuture<Vec<u8>>;

    /// From now on, and until it breaks, what is sent to this member goes over a new connection; what was under way over the
    /// one before is lost.
    fn connected(&self, peer: MemberId);
}

/// A frame that makes no sense, in words for a person.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Why a network cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that cannot work.
    #[error("{0}")]
    Settings(String),
    /// Certificates that cannot be used.
    #[error("{0}")]
    Tls(String),
    /// Others on the network could read and forge everything.
    #[error(
        "{0} can be reached from other machines, and there is no TLS: everybody who reaches it could take every lock. Configure \
         certificates, or listen on 127.0.0.1, or say insecure_no_tls (--insecure-no-tls) if the network itself is trusted"
    )]
    PlainBeyondLoopback(SocketAddr),
    /// The address is not to be had.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// No answer, in words for a person. Whether the question arrived is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// What all tasks of a network share.
struct Shared {
    me: MemberId,
    caller: Caller,
    handler: Arc<dyn Handler>,
    counters: Counters,
    inbound: Inbound,
    peers: RwLock<BTreeMap<MemberId, Kept>>,
    tasks: Tasks,
}

/// A peer, and the task that keeps the connection to it; none once the network has stopped.
struct Kept {
    peer: Arc<Peer>,
    task: Option<AbortHandle>,
}

impl Shared {
    /// A member has connected to us.
    fn heard(&self, member: MemberId) {
        if let Some(peer) = self.peer(member) {
            peer.heard();
        }
    }

    fn peer(&self, member: MemberId) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&member).map(|kept| kept.peer.clone())
    }
}

/// The tasks of a network: they all end with it.
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

/// The connections of one member to all others. Dropping it ends them.
pub struct Net {
    shared: Arc<Shared>,
    /// Whether a frame was sent since the last flush.
    unsaid: AtomicBool,
    address: Option<SocketAddr>,
}

impl Net {
    /// Listens. Whom to connect to, [`set_addresses`](Self::set_addresses) says.
    pub async fn start(settings: Settings, handler: Arc<dyn Handler>) -> Result<Arc<Self>, Error> {
        let Settings { me, cluster, listen, token, tls, insecure_no_tls: plain, limits } = settings;
        let beyond = listen.filter(|listen| !listen.ip().is_loopback());
        if let Some(listen) = beyond.filter(|_| tls.is_none() && !plain) {
            return Err(Error::PlainBeyondLoopback(listen));
        }
        let inbound = Inbound::new(&limits);
        let caller = Caller::new(me, &cluster, token, tls.as_ref(), plain, limits)?;
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
        let shared = Arc::new(Shared {
            me,
            caller,
            handler,
            counters: Counters::default(),
            inbound,
            peers: RwLock::default(),
            tasks: Tasks { runtime: tokio::runtime::Handle::current(), running },
        });
        if let Some((_, listener)) = listener {
            shared.tasks.spawn(accept::accept(shared.clone(), listener));
        }
        Ok(Arc::new(Self { shared, unsaid: AtomicBool::default(), address }))
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whom to be connected to, and where: "host:port", resolved at every attempt. Members that are not named any more are
    /// disconnected from.
    pub fn set_addresses(&self, addresses: BTreeMap<MemberId, String>) {
        let mut peers = self.shared.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|id, Kept { peer, task }| {
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
            match peers.get(&id) {
                Some(kept) => kept.peer.set_address(address),
                None => {
                    peers.insert(id, self.new_peer(id, address));
                }
            }
        }
    }

    fn new_peer(&self, id: MemberId, address: String) -> Kept {
        let peer = Arc::new(Peer::new(id, address, &self.shared));
        let task = self.shared.tasks.spawn(peer::keep_connected(self.shared.clone(), peer.clone()));
        Kept { peer, task }
    }

    /// Appends one frame to what is under way to a member; `write` appends its bytes. Never waits: beyond the limit, and to
    /// somebody without an address, the frame is dropped and counted. It leaves with the next [`flush`](Self::flush).
    pub fn send(&self, to: MemberId, write: impl FnOnce(&mut Vec<u8>)) {
        let (shared, longest) = (&self.shared, self.shared.caller.limits.frame_bytes);
        let peers = shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        let sent = peers.get(&to).is_some_and(|kept| kept.peer.send(longest, write).is_ok());
        let counter = if sent { &shared.counters.frames_out } else { &shared.counters.dropped };
        counter.count();
        self.unsaid.store(true, Ordering::Release);
    }

    /// Writes what was sent since the last time, to whomever.
    pub fn flush(&self) {
        if !self.unsaid.swap(false, Ordering::AcqRel) {
            return;
        }
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.values().for_each(|kept| kept.peer.flush(&self.shared.counters));
    }

    /// Asks a member, over the connection to it. If it has no address yet, this one is used.
    pub async fn ask(
        &self,
        to: MemberId,
        address: &str,
        question: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, Unreachable> {
        // Others may say so: a member that comes back hears that it leads, from those who have not noticed that it was gone.
        if to == self.shared.me {
            return Err(Unreachable(format!("{to} is this member itself")));
        }
        let known = self.shared.peer(to);
        let peer = known.unwrap_or_else(|| {
            let mut peers = self.shared.peers.write().unwrap_or_else(PoisonError::into_inner);
            peers.entry(to).or_insert_with(|| self.new_peer(to, address.to_owned())).peer.clone()
        });
        peer.ask(&question, self.shared.caller.limits.frame_bytes, within).await
    }

    /// Asks whoever listens at an address: for a first contact.
    pub async fn ask_address(
        &self,
        address: &str,
        question: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, Unreachable> {
        self.shared.caller.ask(address, &question, within, &self.shared.counters).await
    }

    /// Whether there is a connection to this member now.
    pub fn is_connected(&self, to: MemberId) -> bool {
        self.shared.peer(to).is_some_and(|peer| peer.is_up())
    }

    /// Reads the certificates again, or others. Connections that stand go on; new ones use the new certificates.
    pub fn reload_tls(&self, tls: &Tls) -> Result<(), Error> {
        self.shared.caller.reload_tls(tls)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Lets what was said last leave, for a moment at most; then ends every connection.
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

    /// Bytes under way to members that can be reached.
    fn unsent(&self) -> usize {
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.values().map(|kept| &kept.peer).filter(|peer| peer.is_up()).map(|peer| peer.under_way()).sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Dropping the set ends its tasks, which share it.
        drop(self.shared.tasks.take());
    }
}
