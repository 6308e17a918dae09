//! Leases of clients that do not use the native protocol. An HTTP session and an etcd lease are the same thing.
//!
//! A lease lives at one daemon, its home, which holds its locks through a session of its own with the member. The
//! lease ends when its time to live passes without a keep-alive, and when it is revoked. If its daemon crashes or leaves,
//! another one adopts it with the holds that are recorded by then. A request that arrives at another daemon is forwarded
//! to the home.
//!
//! | module | contents |
//! |---|---|
//! | `id` | ids of leases |
//! | `operations` | operations on leases, and their results |
//! | `messages` | the messages between daemons about leases |
//! | `lease` | one lease |
//! | `enqueue`, `turns` | entries that stay in the queue without a request, for etcd's client-side recipes |
//! | `adoption` | leases that outlive their daemon |
//! | `detached` | holds of named owners, without a client |
//! | `local_leases`, `local_wait` | the leases that live here, and the waits for their locks |
//! | `receipt` | a granted hold whose client has not received the reply yet |
//! | `peers` | requests to other daemons |
//! | `outgoing_waits` | waits of this daemon's clients for locks by leases that live at other daemons |
//! | `incoming_waits` | waits of other daemons' clients for locks by leases that live here |
//! | `cluster_watcher`, `watch_table` | holders and waiters in the whole cluster, for watch streams |

mod adoption;
mod cluster_watcher;
mod detached;
mod enqueue;
#[cfg(test)]
pub(crate) mod golden;
mod id;
mod incoming_waits;
mod lease;
mod local_leases;
mod local_wait;
mod messages;
mod operations;
mod outgoing_waits;
mod peers;
mod receipt;
mod turns;
mod watch_table;

pub(crate) use cluster_watcher::{HoldersSummary, Watch, WatchedLock};
pub use id::LeaseId;
pub use operations::{
    CallerIdentity, DetachedHold, DetachedOperation, DetachedReply, Enqueued, Hold, HoldLoss, HoldRef,
    HoldRequest, LeaseError, LeaseOperation, LeaseState, LeaseSummary, LeaseTerms, OperationReply, Protocol,
    Slot, Turn, key,
};
pub(crate) use receipt::{DeliveryReceipt, Granted, PendingDelivery};

use crate::context::DaemonContext;
use crate::metrics::Metrics;
use crate::quotas::Quotas;
use crate::worker::Worker;
use cluster_watcher::ClusterWatcher;
use incoming_waits::IncomingWaits;
use local_leases::LocalLeases;
use lockkeeper_cluster::{MemberId, Node, QueryHandler};
use messages::{DaemonReply, DaemonRequest, LeasePresence};
use outgoing_waits::OutgoingWaits;
use peers::Peers;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of leases with client-chosen ids for which this daemon remembers the daemon that has the lease. At
/// this number, it forgets all of them and searches again.
const MOST_REMEMBERED_HOMES: usize = 100_000;
/// Timeout for a change of the record of a hold.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two searches for a lease while the daemons change their view.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);
/// Number of attempts to reserve an id that another request reserves at the same time.
const RESERVATION_ATTEMPTS: u32 = 5;

/// The place of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    At(MemberId),
    /// A daemon is about to create it.
    Reserved,
    Nowhere,
}

/// All leases of the cluster, as seen from one daemon.
pub struct Leases {
    local: Arc<LocalLeases>,
    peers: Arc<Peers>,
    outgoing: Arc<OutgoingWaits>,
    incoming: IncomingWaits,
    watcher: Arc<ClusterWatcher>,
    /// The homes of leases with client-chosen ids.
    homes: Mutex<HashMap<LeaseId, MemberId>>,
    /// Leases created for a single hold, by principal, lock and request.
    single_holds: Mutex<HashMap<(String, String, Slot), LeaseId>>,
    /// The runtime for requests of other daemons. The member's own threads are reserved for leases and locks.
    runtime: tokio::runtime::Handle,
    me: Weak<Self>,
}

impl Leases {
    /// Creates the lease service and registers it with the member for the requests of other daemons.
    pub(crate) fn new(
        context: Arc<DaemonContext>,
        metrics: Arc<Metrics>,
        quotas: Arc<Quotas>,
        worker: Arc<Worker>,
    ) -> Arc<Self> {
        let member = context.member.clone();
        let local = LocalLeases::new(context, metrics, quotas);
        let peers = Arc::new(Peers::new(member.clone()));
        let leases = Arc::new_cyclic(|me: &Weak<Self>| Self {
            outgoing: OutgoingWaits::new(peers.clone()),
            incoming: IncomingWaits::default(),
            watcher: ClusterWatcher::new(local.clone(), peers.clone(), worker),
            local,
            peers,
            homes: Mutex::default(),
            single_holds: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            me: me.clone(),
        });
        let answers: Weak<dyn QueryHandler> = leases.me.clone();
        member.set_query_handler(answers);
        leases
    }

    /// Number of leases that belong to this daemon.
    pub fn count(&self) -> usize {
        self.local.count()
    }

    /// Creates a lease here. An id chosen by the client must be free at all daemons that reply.
    pub async fn grant(
        &self,
        identity: CallerIdentity,
        id: Option<LeaseId>,
        terms: LeaseTerms,
    ) -> Result<LeaseId, LeaseError> {
        let Some(id) = id else {
            let mut id = LeaseId::at(self.peers.me())?;
            loop {
                match self.local.reserve(id) {
                    Ok(reserved) => return self.local.grant(reserved, identity, terms),
                    Err(_) => id = LeaseId::at(self.peers.me())?,
                }
            }
        };
        for attempt in 0..RESERVATION_ATTEMPTS {
            match self.local.reserve(id) {
                Ok(reserved) => {
                    // A concurrent request for the same id has also reserved it before it queries the others, so at
                    // least one of the two sees the other.
                    let found = self.peers.broadcast(|| DaemonRequest::Has(id)).await;
                    let presence = |reply| {
                        if let DaemonReply::Has(presence, _) = reply {
                            presence
                        } else {
                            LeasePresence::Absent
                        }
                    };
                    let found: Vec<LeasePresence> =
                        found.into_iter().map(|(_, reply)| presence(reply)).collect();
                    if found.contains(&LeasePresence::Present) {
                        return Err(LeaseError::LeaseExists(id));
                    }
                    if !found.contains(&LeasePresence::Reserved) {
                        return self.local.grant(reserved, identity, terms);
                    }
                }
                Err(LeasePresence::Present) => return Err(LeaseError::LeaseExists(id)),
                Err(_) => {}
            }
            let pause = getrandom::u32().unwrap_or(attempt) % 50;
            tokio::time::sleep(Duration::from_millis(u64::from(pause))).await;
        }
        Err(LeaseError::LeaseExists(id))
    }

    /// Performs an operation on a lease, at the daemon that has the lease.
    pub async fn perform(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        op: LeaseOperation,
    ) -> Result<OperationReply, LeaseError> {
        let there = |to: MemberId| {
            let (identity, op) = (identity.clone(), op.clone());
            async move {
                match self.peers.send(to, &DaemonRequest::Perform(identity, id, op)).await? {
                    DaemonReply::Performed(done) => done,
                    _ => Err(peers::cannot_decode(to)),
                }
            }
        };
        self.at_home_of(id, || self.perform_here(identity, id, op.clone()), there).await
    }

    /// Performs an operation on a lease that lives here. If it changes what is recorded, the reply waits for the record: it
    /// must be true at the daemon that adopts the lease, too.
    async fn perform_here(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        op: LeaseOperation,
    ) -> Result<OperationReply, LeaseError> {
        let lease = self.local.find(id).ok_or(LeaseError::NoSuchLease(id))?;
        let finds = matches!(op, LeaseOperation::Detached(DetachedOperation::Find { .. }));
        let leaves = matches!(op, LeaseOperation::Detached(DetachedOperation::Leave));
        let releases = match &op {
            LeaseOperation::Release(..) | LeaseOperation::Revoke => true,
            LeaseOperation::Detached(op) => {
                !matches!(op, DetachedOperation::Find { .. } | DetachedOperation::KeepAlive)
            }
            _ => false,
        };
        let reply = self.local.perform(identity, id, op)?;
        if finds {
            return self.recorded_detached(&lease).await.map(OperationReply::Detached);
        }
        let written = async {
            if releases {
                lease.member.releases_done().await;
            }
            let changed = match &reply {
                OperationReply::Set(hold) => Some(hold.number),
                OperationReply::Detached(DetachedReply { hold: Some(found), .. }) if leaves => {
                    Some(found.hold.number)
                }
                _ => None,
            };
            if let Some(recorded) = changed.and_then(|number| lease.recorded(number)) {
                recorded.await;
            }
        };
        // Without the record, a daemon that adopts the lease would still have the hold, or its former value.
        match tokio::time::timeout(self.peers.adoption_timeout(), written).await {
            Ok(()) => Ok(reply),
            Err(_) => Err(LeaseError::Unavailable(String::from(
                "the change is not recorded yet, since the members cannot decide at the moment: repeat the request",
            ))),
        }
    }

    /// Waits for a lock by a lease, at the daemon where the lease lives. Dropping the future gives up its position in
    /// the queue.
    pub(crate) async fn acquire(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        request: HoldRequest,
    ) -> Result<Granted, LeaseError> {
        let here = || async { self.local.acquire(identity, id, &request)?.granted().await };
        let there = |to: MemberId| self.outgoing.acquire(to, identity.clone(), id, request.clone());
        self.at_home_of(id, here, there).await
    }

    /// Waits for a lock by a new lease that lives here and ends with the hold. A repeated request finds the lease of
    /// the first attempt. Dropping the future ends the wait and the lease.
    pub(crate) async fn acquire_alone(
        &self,
        identity: &CallerIdentity,
        terms: LeaseTerms,
        request: HoldRequest,
    ) -> Result<Granted, LeaseError> {
        let key = (identity.token_name.clone(), request.lock.clone(), request.slot.clone());
        let repeats = request.slot != Slot::Only;
        let before = self.single_holds().get(&key).copied().filter(|_| repeats);
        if let Some(id) = before.filter(|id| self.local.find(*id).is_some()) {
            return self.acquire(identity, id, request).await;
        }
        let id = self.grant(identity.clone(), None, LeaseTerms { one_hold: true, ..terms }).await?;
        if repeats {
            let mut single_holds = self.single_holds();
            if single_holds.len() > 1024 && single_holds.len() > 2 * self.local.count() {
                single_holds.retain(|_, id| self.local.find(*id).is_some());
            }
            single_holds.insert(key, id);
        }
        let waiting = self.local.acquire(identity, id, &request);
        match waiting {
            Ok(waiting) => waiting.granted().await,
            Err(error) => {
                let _ = self.local.perform(identity, id, LeaseOperation::Revoke);
                Err(error)
            }
        }
    }

    fn single_holds(&self) -> MutexGuard<'_, HashMap<(String, String, Slot), LeaseId>> {
        self.single_holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `here` or `there` at the daemon where a lease lives. The lease may move to another daemon meanwhile, so "no
    /// such lease" is the answer only if a search finds the lease nowhere.
    ///
    /// For example, a keep-alive reaches a daemon that leaves its cluster. The daemon still has the lease, but another
    /// member has adopted its holds: `here` fails, the search waits for the view without this member, and `there` renews
    /// the lease at the daemon that has adopted it.
    async fn at_home_of<T, H, F>(
        &self,
        id: LeaseId,
        here: impl Fn() -> H,
        there: impl Fn(MemberId) -> F,
    ) -> Result<T, LeaseError>
    where
        H: Future<Output = Result<T, LeaseError>>,
        F: Future<Output = Result<T, LeaseError>>,
    {
        let until = Instant::now() + self.peers.adoption_timeout();
        let mut home = self.likely_home(id);
        loop {
            let done = match home {
                Some(home) if home == self.peers.me() => here().await,
                Some(home) => there(home).await,
                None => Err(LeaseError::NoSuchLease(id)),
            };
            if !matches!(done, Err(LeaseError::NoSuchLease(_))) || Instant::now() >= until {
                return done;
            }
            if home.is_some() {
                self.homes().remove(&id);
                // The daemon that was queried may list a lease for a moment that it has ended or handed over.
                tokio::task::yield_now().await;
            }
            let found = self.search(id).await?;
            if self.peers.is_other(found) {
                self.remember_home(id, found);
            }
            home = Some(found);
        }
    }

    /// The daemon that probably has a lease; `None` if a search has to find it.
    fn likely_home(&self, id: LeaseId) -> Option<MemberId> {
        if self.local.find(id).is_some() {
            return Some(self.peers.me());
        }
        let likely = self.homes().get(&id).copied().unwrap_or(id.member());
        self.peers.is_other(likely).then_some(likely)
    }

    fn remember_home(&self, id: LeaseId, home: MemberId) {
        let mut homes = self.homes();
        if homes.len() >= MOST_REMEMBERED_HOMES {
            homes.clear();
        }
        homes.insert(id, home);
    }

    /// Searches for the daemon where a lease lives.
    async fn search(&self, id: LeaseId) -> Result<MemberId, LeaseError> {
        match self.search_reserved(id).await? {
            Place::At(home) => Ok(home),
            Place::Reserved | Place::Nowhere => Err(LeaseError::NoSuchLease(id)),
        }
    }

    /// Searches for the daemon where a lease lives, or is about to be created. A daemon that adopts leases knows them once
    /// a view has started at its member, so a lease does not exist if no daemon has it while all members of the view are in
    /// the same one.
    async fn search_reserved(&self, id: LeaseId) -> Result<Place, LeaseError> {
        let until = Instant::now() + self.peers.adoption_timeout();
        loop {
            let view = self.peers.member.status().view;
            if self.local.find(id).is_some() {
                return Ok(Place::At(self.peers.me()));
            }
            let found = self.peers.broadcast(|| DaemonRequest::Has(id)).await;
            let with = |expected: LeasePresence| {
                let is_so =
                    move |reply: &DaemonReply| matches!(reply, DaemonReply::Has(is, _) if *is == expected);
                found.iter().find(|(_, reply)| is_so(reply)).map(|(at, _)| *at)
            };
            if let Some(home) = with(LeasePresence::Present) {
                return Ok(Place::At(home));
            }
            if with(LeasePresence::Reserved).is_some() {
                return Ok(Place::Reserved);
            }
            let absent_in = |node: &Node, epoch: u64| {
                node.id == self.peers.me()
                    || found.iter().any(|(from, reply)| {
                        *from == node.id && matches!(reply, DaemonReply::Has(_, Some(of)) if *of == epoch)
                    })
            };
            if view.is_some_and(|view| view.members.iter().all(|node| absent_in(node, view.epoch))) {
                return Ok(Place::Nowhere);
            }
            if Instant::now() + SEARCH_PAUSE >= until {
                if let Some(not_serving) = self.peers.member.not_serving() {
                    return Err(LeaseError::MemberHasNoLease(not_serving.to_string()));
                }
                let why = format!(
                    "the daemons change their view, and none has the lease {id} yet: repeat the request"
                );
                return Err(LeaseError::Unavailable(why));
            }
            tokio::time::sleep(SEARCH_PAUSE).await;
        }
    }

    fn homes(&self) -> MutexGuard<'_, HashMap<LeaseId, MemberId>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All leases of all daemons that reply.
    pub async fn list(&self) -> Vec<LeaseSummary> {
        let others = self.peers.broadcast(|| DaemonRequest::List).await;
        let mut list = self.local.list();
        for (_, reply) in others {
            if let DaemonReply::List(others) = reply {
                list.extend(others);
            }
        }
        list
    }

    /// The holds of a lock by leases, at all daemons that reply; the newest first.
    pub async fn holders(&self, lock: &str) -> Vec<Hold> {
        let others = self.peers.broadcast(|| DaemonRequest::Holders(String::from(lock))).await;
        let mut holds = self.local.holds_on(lock);
        for (_, reply) in others {
            if let DaemonReply::Holders(others, _) = reply {
                holds.extend(others);
            }
        }
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.fence));
        holds
    }

    /// Watches the holders and waiters of the locks with these prefixes, in the whole cluster.
    pub(crate) fn watch(&self, prefixes: Vec<String>) -> Watch {
        self.watcher.watch(prefixes)
    }

    /// Applies changed tokens: ends leases, holds and waits that their principals may no longer have.
    pub(crate) fn follow_rights(&self) {
        self.local.follow_rights();
    }

    /// The epoch of the view that has started at this daemon's member. Read BEFORE the leases: one that this daemon adopts
    /// with a later view is found in that view.
    fn epoch(&self) -> Option<u64> {
        self.peers.member.status().view.map(|view| view.epoch)
    }

    async fn reply_to(self: Arc<Self>, from: MemberId, request: DaemonRequest) -> DaemonReply {
        match request {
            DaemonRequest::Perform(identity, id, op) => {
                DaemonReply::Performed(self.perform_here(&identity, id, op).await)
            }
            DaemonRequest::Has(id) => {
                let epoch = self.epoch();
                DaemonReply::Has(self.local.presence(id), epoch)
            }
            DaemonRequest::List => DaemonReply::List(self.local.list()),
            DaemonRequest::Holders(lock) => {
                let epoch = self.epoch();
                self.local.adopt_pending();
                DaemonReply::Holders(self.local.holds_on(&lock), epoch)
            }
            DaemonRequest::Acquire { wait: wait_id, identity, lease, request } => {
                let wait = || self.local.acquire(&identity, lease, &request);
                DaemonReply::Acquire(self.incoming.acquire(&self.local, from, wait_id, &identity, wait))
            }
            DaemonRequest::Join { wait: wait_id, identity, lease, lock } => {
                let wait = || self.local.join(&identity, lease, &lock);
                DaemonReply::Acquire(self.incoming.acquire(&self.local, from, wait_id, &identity, wait))
            }
            DaemonRequest::Enqueue { identity, lease, request } => {
                DaemonReply::Enqueued(self.local.enqueue(&identity, lease, &request).await)
            }
            DaemonRequest::Turn { lease, lock } => DaemonReply::Turn(self.local.turn(lease, &lock)),
            DaemonRequest::Dispose { incarnation, dispositions } => {
                self.incoming.dispose(&self.local, incarnation, &dispositions);
                DaemonReply::Disposed
            }
            DaemonRequest::Outcomes { incarnation, received } => {
                DaemonReply::Outcomes(self.incoming.outcomes(&self.local, incarnation, received).await)
            }
            DaemonRequest::ReadTable { range, prefixes } => {
                DaemonReply::Table(self.watcher.read_own_table(range, prefixes).await)
            }
        }
    }
}

impl QueryHandler for Leases {
    fn handle_query(
        &self,
        from: MemberId,
        request: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>> {
        let me = self.me.upgrade();
        let runtime = self.runtime.clone();
        Box::pin(async move {
            // A request that cannot be decoded comes from a daemon of another version: the empty reply reports that.
            let (Some(me), Some(request)) = (me, peers::decode(&request)) else { return Vec::new() };
            // Dropping this future aborts the task: the requesting daemon no longer waits for the reply.
            let mut task = JoinSet::new();
            task.spawn_on(async move { peers::encode(&me.reply_to(from, request).await) }, &runtime);
            task.join_next().await.and_then(Result::ok).unwrap_or_default()
        })
    }
}
