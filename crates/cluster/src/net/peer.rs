//! Another member as seen from this one: a connection that is re-established whenever it breaks, and the data pending
//! for it.

use super::connection::{self, End};
use super::counters::Counters;
use super::hello::Purpose;
use super::outbox::{NotTaken, Outbox};
use super::records::{Incoming, Record, RecordHeader};
use super::{NetState, Unreachable};
use lockkeeper_member::MemberId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

type QueryResult = Result<Vec<u8>, Unreachable>;

/// Whether the other member can be reached.
#[derive(Clone, Debug)]
enum Reachability {
    /// No attempt has been made yet.
    Unknown,
    Up,
    Down(String),
}

/// Another member, with the connection to it and the data pending for it.
pub(super) struct Peer {
    pub id: MemberId,
    address: watch::Sender<String>,
    outbox: Outbox,
    reach: watch::Sender<Reachability>,
    /// Notified when the other member connects to this one, which shows that it can be reached.
    retry: Notify,
    next_query: AtomicU64,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<QueryResult>>>,
}

impl Peer {
    pub fn new(id: MemberId, address: String, shared: &NetState) -> Self {
        Self {
            id,
            address: watch::Sender::new(address),
            outbox: Outbox::new(shared.dialler.limits.waiting_bytes),
            reach: watch::Sender::new(Reachability::Unknown),
            retry: Notify::new(),
            next_query: AtomicU64::new(0),
            waiting: Mutex::new(BTreeMap::new()),
        }
    }

    /// Sets the address. A new one is tried at once.
    pub fn set_address(&self, address: String) {
        self.address.send_if_modified(|present| {
            let new = *present != address;
            *present = address;
            new
        });
    }

    /// Called when the other member has connected to this one. If there is no connection to it, the next attempt starts
    /// at once.
    pub fn try_now(&self) {
        self.retry.notify_waiters();
    }

    pub fn is_up(&self) -> bool {
        matches!(*self.reach.borrow(), Reachability::Up)
    }

    pub fn pending_bytes(&self) -> usize {
        self.outbox.pending_bytes()
    }

    /// Appends a frame to the buffer. It leaves with [`flush`](Self::flush).
    pub fn send(&self, longest: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), NotTaken> {
        self.outbox.put(RecordHeader::Frame, longest, write).map(drop)
    }

    pub fn flush(&self, counters: &Counters) {
        self.outbox.flush(counters);
    }

    /// Sends a query over the connection, once there is one. Fails if an attempt to connect fails in the meantime.
    pub async fn query(&self, query: &[u8], longest: usize, within: Duration) -> QueryResult {
        let result = timeout(within, self.query_when_up(query, longest)).await;
        result.unwrap_or_else(|_| Err(Unreachable(format!("no answer from {} within {within:?}", self.id))))
    }

    async fn query_when_up(&self, query: &[u8], longest: usize) -> QueryResult {
        let mut reach = self.reach.subscribe();
        while !self.is_up() {
            if reach.changed().await.is_err() {
                return Err(Unreachable(format!("{} is not a member any more", self.id)));
            }
            if let Reachability::Down(why) = &*reach.borrow_and_update() {
                return Err(Unreachable(format!("cannot reach {}: {why}", self.id)));
            }
        }
        let number = self.next_query.fetch_add(1, Relaxed);
        let (sender, reply) = oneshot::channel();
        self.waiting().insert(number, sender);
        let _forget = PendingQuery { peer: self, number };
        self.outbox
            .append(RecordHeader::Query(number), longest, |out| out.extend(query))
            .map_err(|why| Unreachable(format!("cannot ask {}: {why:?}", self.id)))?;
        reply.await.unwrap_or_else(|_| Err(Unreachable(format!("the connection to {} broke", self.id))))
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<QueryResult>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete_query(&self, number: u64, reply: QueryResult) {
        if let Some(caller) = self.waiting().remove(&number) {
            // The caller may have given up.
            let _ = caller.send(reply);
        }
    }

    /// Marks the member as unreachable. Pending frames remain, up to the limit; queries in progress fail.
    pub fn down(&self, why: String) {
        self.reach.send_replace(Reachability::Down(why));
        self.waiting().clear();
    }
}

/// Removes a query from the map when its caller no longer waits for it.
struct PendingQuery<'a> {
    peer: &'a Peer,
    number: u64,
}

impl Drop for PendingQuery<'_> {
    fn drop(&mut self) {
        self.peer.waiting().remove(&self.number);
    }
}

/// Maintains the connection to a peer until the network stops.
pub(super) async fn keep_connected(shared: Arc<NetState>, peer: Arc<Peer>) {
    let limits = &shared.dialler.limits;
    let mut backoff = Backoff { next: limits.backoff_least, most: limits.backoff_most };
    let mut address = peer.address.subscribe();
    let mut logged = String::new();
    loop {
        let target = address.borrow_and_update().clone();
        let since = Instant::now();
        match shared.dialler.dial(&target, Some(peer.id), Purpose::Link).await {
            Ok(connection) => {
                info!(peer = %peer.id, address = target, "connected");
                logged.clear();
                let end = stay_connected(&shared, &peer, connection, &mut address).await;
                info!(peer = %peer.id, address = target, "connection lost: {end}");
                peer.down(end.to_string());
            }
            Err(failed) => {
                shared.counters.connects_failed.count();
                if let Some(refusal) = failed.refusal {
                    shared.counters.refuse(refusal);
                }
                // Warn once for each reason, until it changes.
                if failed.why == logged {
                    debug!(peer = %peer.id, address = target, "cannot connect: {}", failed.why);
                } else {
                    warn!(peer = %peer.id, address = target, "cannot connect: {}", failed.why);
                    logged.clone_from(&failed.why);
                }
                peer.down(failed.why);
            }
        }
        // A connection that breaks soon after it was established does not reset the backoff.
        if since.elapsed() > limits.silence {
            backoff.next = limits.backoff_least;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.turn()) => {}
            () = peer.retry.notified() => {}
            changed = address.changed() => if changed.is_err() { return },
        }
    }
}

async fn stay_connected(
    shared: &NetState,
    peer: &Peer,
    connection: connection::Connection,
    address: &mut watch::Receiver<String>,
) -> End {
    let (limits, counters, received) = (&shared.dialler.limits, &shared.counters, AtomicBool::default());
    counters.connects.count();
    // Data in transit when the connection ends are lost. The links of the members retransmit what was not acknowledged.
    let _connected = peer.outbox.connect(connection.writer, limits.queue_bytes, limits.waiting_bytes);
    peer.reach.send_replace(Reachability::Up);
    shared.handler.connected(peer.id);
    let replies = |incoming: &mut Incoming| take_replies(peer, incoming);
    let mut incoming = Incoming::new(limits.frame_bytes);
    let end = tokio::select! {
        end = connection::read(connection.reader, &mut incoming, &received, counters, replies) => end,
        end = connection::write(&peer.outbox, counters) => end,
        end = connection::keep_alive(&peer.outbox, &received, limits) => end,
        _ = address.changed() => End::Moved,
    };
    end.count(counters);
    end
}

fn take_replies(peer: &Peer, incoming: &mut Incoming) -> Result<(), End> {
    while let Some(record) = incoming.next().map_err(End::Malformed)? {
        match record {
            Record::Ping => {}
            Record::Reply(number, bytes) => peer.complete_query(number, Ok(bytes.to_vec())),
            Record::Declined(number) => {
                let why = format!("{} has too many queries in progress", peer.id);
                peer.complete_query(number, Err(Unreachable(why)));
            }
            Record::Frame(_) | Record::Query(..) => return Err(End::Misplaced("a frame or a query")),
        }
    }
    Ok(())
}

/// The delay before the next attempt. It doubles each time up to a maximum, and is randomised so that members do not
/// retry in step.
struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    fn turn(&mut self) -> Duration {
        let turn = self.next;
        self.next = (turn * 2).min(self.most);
        // Between half and all of the delay. Without random numbers from the system, all of it.
        let random = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
        turn.mul_f64(0.5 + random / 2.0)
    }
}
