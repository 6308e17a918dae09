//! [`Member`]: a member of a cluster in this process.

use crate::acquire::Acquire;
use crate::config::{Config, ConfigError};
use crate::dispatch::{ConsensusTransport, Dispatcher, MemberQuery, QueryHandler};
use crate::driver::Driver;
use crate::engine::{ClientIdentity, ClientTransport, Engine, MemberStatus};
use crate::error::{Error, OptionError, Result};
use crate::hold_guard::{HoldGuard, LocalSession};
use crate::local::warning_margin_ns;
use crate::metrics;
use crate::net::Net;
use crate::not_serving::NotServing;
use crate::settings;
use lockkeeper_consensus::Consensus;
use lockkeeper_core::any::AnySite;
use lockkeeper_member::{
    Acquisition, ClusterSettings, LockList, LockMode, LockName, LockStatus, MemberId, Node, Query, Reply,
    SessionId, ToMember, WaitExplanation,
};
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A member of a lock cluster in this process. It is cheap to clone; clones share the session.
#[derive(Clone)]
pub struct Member {
    inner: Arc<Inner>,
    session: Arc<LocalSession>,
}

/// A session in another member's process whose holds this member has adopted.
pub struct AdoptedSession {
    /// A handle on this member with the adopted session.
    pub owner: Member,
    /// The holds with their payloads.
    pub holds: Vec<(HoldGuard, Vec<u8>)>,
}

struct Inner {
    config: Config,
    engine: Arc<dyn Engine>,
    net: Arc<Net>,
    dispatcher: Arc<Dispatcher>,
    consensus: Consensus,
    watchers: [AbortHandle; 2],
    stopped: AtomicBool,
    /// Whether the network and consensus have ended. The mutex is locked while they are being stopped.
    ended: Arc<tokio::sync::Mutex<bool>>,
}

impl Inner {
    /// Stops the member. The returned future waits for an orderly end; `None` if the member was stopped before.
    fn stop(&self, why: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.engine.stop(why);
        self.watchers.iter().for_each(AbortHandle::abort);
        Some(end(self.net.clone(), self.consensus.clone(), self.ended.clone()))
    }

    fn scraped_state(&self) -> metrics::ScrapedState {
        let (me, status) = (self.config.id, self.consensus.status());
        let unreachable =
            status.members.iter().filter(|id| **id != me && !self.net.is_connected(**id)).count();
        let ready = self.engine.not_serving().is_none();
        let (records, record_bytes) = (status.records, status.record_bytes);
        metrics::ScrapedState { ready, leads: status.leader == Some(me), unreachable, records, record_bytes }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(stopping) = self.stop("its last handle was dropped")
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(stopping);
        }
    }
}

/// The state of the voters, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Voters {
    /// The leader, if this member knows one.
    pub leader: Option<MemberId>,
    /// The current term.
    pub term: u64,
    /// The members that vote.
    pub voters: BTreeSet<MemberId>,
    /// All members known to the cluster, voters or not.
    pub members: BTreeSet<MemberId>,
    /// The reason why this member does not take part in consensus, if it does not.
    pub obstacle: Option<String>,
}

impl Member {
    /// Starts a member. It serves once it is in a view, for which it needs other members: see [`ready`](Self::ready).
    /// Requests made before that wait.
    pub async fn start(config: Config) -> Result<Self> {
        Self::starting(config).await
    }

    /// The boxed future behind [`start`](Self::start). An async function is compiled in every crate that awaits it, and
    /// this one contains consensus, the network and all algorithms; a boxed future is compiled only here.
    fn starting(config: Config) -> Pin<Box<dyn Future<Output = Result<Self>> + Send>> {
        Box::pin(async move {
            config.check()?;
            let engine: Arc<dyn Engine> = Driver::<AnySite>::start(config.id, config.member())?;
            let dispatcher = Arc::new(Dispatcher {
                engine: Arc::downgrade(&engine),
                consensus: OnceLock::new(),
                user: OnceLock::new(),
            });
            let net = Net::start(config.net()?, dispatcher.clone()).await?;
            let own = net.address().unwrap_or(config.listen).to_string();
            let address = config.advertise.clone().unwrap_or(own);
            let (engine_for_events, transport) =
                (Arc::downgrade(&engine), Arc::new(ConsensusTransport(Arc::downgrade(&net))));
            let callback = move |event| {
                if let Some(engine) = engine_for_events.upgrade() {
                    engine.consensus_event(event);
                }
            };
            let consensus =
                Consensus::start(config.consensus(address), transport, Arc::new(callback)).await?;
            if config.join_token.is_none()
                && let Some(peer) = consensus.peers().await.first()
            {
                consensus.stop().await;
                return Err(ConfigError::HasPeers { peer: *peer }.into());
            }
            let _ = dispatcher.consensus.set(consensus.clone());
            engine.connect(net.clone(), consensus.clone());
            consensus.repeat_events();
            let watchers = [
                tokio::spawn(follow_addresses(
                    consensus.addresses(),
                    Arc::downgrade(&engine),
                    Arc::downgrade(&net),
                )),
                tokio::spawn(stop_with_consensus(consensus.clone(), Arc::downgrade(&engine))),
            ];
            let watchers = watchers.map(|watcher| watcher.abort_handle());
            let (stopped, ended) = (AtomicBool::new(false), Arc::default());
            let failing = stop_with_engine(Arc::downgrade(&engine), Arc::downgrade(&net), &consensus, &ended);
            tokio::spawn(failing);
            let inner =
                Arc::new(Inner { config, engine, net, dispatcher, consensus, watchers, stopped, ended });
            Ok(Self { session: new_session(&inner), inner })
        })
    }

    /// The id of this member.
    pub fn id(&self) -> MemberId {
        self.inner.config.id
    }

    /// The address on which it listens for other members, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.net.address()
    }

    /// Requests the lock exclusively. One name is one lock in all modes.
    #[doc(hidden)]
    pub fn mutex(&self, name: impl Into<String>) -> Acquire {
        self.request(LockMode::Exclusive, name)
    }

    /// Requests the lock in shared mode: as a reader, where [`mutex`](Self::mutex) is the writer.
    #[doc(hidden)]
    pub fn shared(&self, name: impl Into<String>) -> Acquire {
        self.request(LockMode::Shared, name)
    }

    /// Requests one of `permits` permits of the lock. A request with another number of permits waits until all of these
    /// are released.
    #[doc(hidden)]
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Acquire {
        self.request(LockMode::Permit { of: permits }, name)
    }

    fn request(&self, mode: LockMode, name: impl Into<String>) -> Acquire {
        let moment = self.inner.config.times.round_trip * 2;
        Acquire::new(self.session.clone(), moment, mode, name.into())
    }

    /// A handle on the same member with a session of its own. [Reentrant](Acquire::reentrant) holds and losses of a
    /// session do not affect other sessions.
    pub fn new_owner(&self) -> Self {
        Self { inner: self.inner.clone(), session: new_session(&self.inner) }
    }

    /// The holds that this member has adopted since the last call, by session. The caller takes them over: dropping a
    /// guard releases its lock.
    pub fn take_adopted(&self) -> Vec<AdoptedSession> {
        let mut sessions: Vec<AdoptedSession> = Vec::new();
        for adopted in self.inner.engine.take_adopted() {
            let place = sessions.iter().position(|session| session.owner.session.client == adopted.client);
            let place = place.unwrap_or_else(|| {
                let session = session_of(&self.inner, adopted.client);
                sessions.push(AdoptedSession {
                    owner: Self { inner: self.inner.clone(), session },
                    holds: Vec::new(),
                });
                sessions.len() - 1
            });
            let AdoptedSession { owner, holds } = &mut sessions[place];
            let guard = HoldGuard::new(
                owner.session.clone(),
                adopted.number,
                adopted.fence,
                adopted.lock.name.clone(),
            );
            holds.push((guard, adopted.payload));
        }
        sessions
    }

    /// Notifies when there are [adopted](Self::take_adopted) holds.
    pub fn adoptions(&self) -> watch::Receiver<u64> {
        self.inner.engine.adoptions()
    }

    /// Resolves when no release of this handle's session waits for the end of its record.
    pub async fn releases_done(&self) {
        let (engine, client) = (&self.session.engine, self.session.client);
        let mut changes = engine.losses(client);
        loop {
            changes.mark_unchanged();
            if !engine.is_releasing(client) || changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The current session of this handle, as a [query](Self::query_all) names it. A new one follows when it is lost.
    pub fn session(&self) -> Option<SessionId> {
        self.session.engine.session(self.session.client)
    }

    /// Resolves when the member serves: it is in a view and has a lease.
    pub async fn ready(&self) -> Result<()> {
        let mut changes = self.inner.engine.status_changes();
        loop {
            changes.mark_unchanged();
            let status = self.status();
            if let Some(why) = status.stopped {
                return Err(Error::Stopped(why));
            }
            if status.serves() {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err(Error::Stopped(String::from("it has ended")));
            }
        }
    }

    /// The state of the member.
    pub fn status(&self) -> MemberStatus {
        self.inner.engine.status()
    }

    /// The reason why the member grants no locks at the moment. `None` if it does.
    pub fn not_serving(&self) -> Option<NotServing> {
        self.inner.engine.not_serving()
    }

    /// Notifies when the [status](Self::status) may have changed.
    pub fn status_changes(&self) -> watch::Receiver<u64> {
        self.inner.engine.status_changes()
    }

    /// The state of the voters.
    pub fn voters(&self) -> Voters {
        let status = self.inner.consensus.status();
        Voters {
            leader: status.leader,
            term: status.term,
            voters: status.voters,
            members: status.members,
            obstacle: status.failure.or(status.obstacle),
        }
    }

    /// Lists holders and waiters at every member that replies in time. The size of a reply is limited: see
    /// [`Reply::left_out`].
    pub async fn query(&self, query: Query) -> Result<Vec<Reply>> {
        self.inner.engine.query(query).await.map_err(|_| {
            let why = self.status().stopped;
            Error::Stopped(why.unwrap_or_else(|| String::from("it stopped during the query")))
        })
    }

    /// Lists every lock that is held or waited for, at every member that replies in time. Reads page by page.
    pub async fn query_all(&self) -> Result<Vec<(Node, LockList)>> {
        let mut tables: BTreeMap<Node, LockList> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.query(Query::Page(after)).await?;
            // A reply of limited size may end early. Rows after the earliest end are incomplete and come with the next
            // page: if member 1 covers names up to "m" and member 2 up to "t", the next page starts after "m".
            let end = page.iter().filter_map(Reply::covers_until).min().cloned();
            for reply in page {
                let rows =
                    reply.locks.into_iter().filter(|row| end.as_ref().is_none_or(|end| row.lock <= *end));
                tables.entry(reply.node).or_default().extend(rows);
            }
            after = end;
            if after.is_none() {
                return Ok(tables.into_iter().collect());
            }
        }
    }

    /// Explains why a session waits: follows the chain of holders that it waits for, and names a cycle.
    pub async fn why(&self, waiter: SessionId) -> Result<WaitExplanation> {
        Ok(lockkeeper_member::why(&self.query_all().await?, waiter))
    }

    /// Revokes this acquisition's hold on a lock, at any member of the cluster. Holds of the acquisition on other locks
    /// remain. The client is notified, with the operator's name `by`; the lock is free once the client has released it, or
    /// when its lease has expired.
    pub async fn release_by_force(&self, lock: &str, acquisition: Acquisition, by: &str) -> Result<()> {
        let replies = self.query(Query::One(LockName::new(lock))).await?;
        let holds = |reply: &&Reply| {
            reply.locks.iter().any(|lock| lock.holders.iter().any(|who| who.acquisition == acquisition))
        };
        match replies.iter().find(holds) {
            Some(reply) => self.release_by_force_at(reply.node.id, lock, acquisition, by).await,
            None => Err(OptionError::NotHeld { acquisition, lock: lock.into() }.into()),
        }
    }

    /// Like [`release_by_force`](Self::release_by_force), for a caller that knows the member of the holder.
    pub async fn release_by_force_at(
        &self,
        at: MemberId,
        lock: &str,
        acquisition: Acquisition,
        by: &str,
    ) -> Result<()> {
        if at == self.id() {
            self.revoke_here(lock, acquisition, by);
            return Ok(());
        }
        let within = self.inner.config.times.round_trip * 4;
        let revoke = MemberQuery::Revoke(LockName::new(lock), acquisition, String::from(by));
        self.query_member(at, revoke, within).await.map(drop)
    }

    /// Revokes a hold of a client of this member, for the operator of this name.
    pub fn revoke_here(&self, lock: &str, acquisition: Acquisition, by: &str) {
        self.inner.engine.revoke(LockName::new(lock), acquisition, String::from(by));
    }

    async fn query_member(&self, to: MemberId, query: MemberQuery, within: Duration) -> Result<Vec<u8>> {
        let addresses = self.inner.consensus.addresses();
        let address = addresses.borrow().get(&to).cloned().unwrap_or_default();
        let reply = self.inner.net.query(to, &address, query.encode(), within).await;
        reply.map_err(|error| Error::Unavailable(format!("{to} cannot be reached: {error}")))
    }

    /// Sends a query to the application that embeds another member; see [`set_query_handler`](Self::set_query_handler).
    pub async fn query_application(&self, to: MemberId, query: Vec<u8>, within: Duration) -> Result<Vec<u8>> {
        self.query_member(to, MemberQuery::User(query), within).await
    }

    /// Sets the handler for queries of applications that embed other members. Only the first call has an effect.
    pub fn set_query_handler(&self, handler: Weak<dyn QueryHandler>) {
        let _ = self.inner.dispatcher.user.set(handler);
    }

    /// Attaches a client outside of this process: messages for its sessions are delivered to `transport`. Returns `false`
    /// if the number is in use, or is not one of a client outside of this process.
    pub fn attach(&self, client: ClientIdentity, transport: Arc<dyn ClientTransport>) -> bool {
        self.inner.engine.attach(client, transport)
    }

    /// Detaches a client. Its sessions remain until their leases expire.
    pub fn detach(&self, client: u64) {
        self.inner.engine.detach(client);
    }

    /// Handles a message of an [attached](Self::attach) client. Messages to other members that result from it leave
    /// with [`flush`](Self::flush).
    pub fn handle_client_message(&self, session: SessionId, message: ToMember) {
        self.inner.engine.handle_client_message(session, message);
    }

    /// Sends all pending messages to other members, in one write per member.
    pub fn flush(&self) {
        self.inner.engine.flush();
    }

    /// Counts a grant to a client outside of this process, after a wait of this length.
    pub fn count_grant(&self, waited: Duration) {
        let metrics = self.inner.engine.metrics();
        metrics.entries.inc();
        metrics.wait.observe(waited.as_secs_f64());
    }

    /// Counts the end of a hold of a client outside of this process, after this time.
    pub fn count_hold_end(&self, held: Duration) {
        self.inner.engine.metrics().hold.observe(held.as_secs_f64());
    }

    /// The mode in which this lock is held or requested through this member, if it is.
    pub fn mode_in_use(&self, name: &Arc<str>) -> Option<LockMode> {
        self.inner.engine.mode_in_use(&LockName::new(name.clone()))
    }

    /// Holders and waiters at this member only: the locks after this name, in a table of about `most_bytes` bytes; and
    /// the number of locks that follow.
    pub fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (LockList, u64) {
        self.inner.engine.table_page(after, most_bytes)
    }

    /// Holders and waiters at this member only.
    pub fn table(&self) -> LockList {
        self.table_page(None, usize::MAX).0
    }

    /// The present state of the locks of this member that have changed since change number `from`, limited in size; and
    /// the number of the next change to read. `None` if changes that old have been discarded: the caller must read the
    /// whole table.
    pub fn table_changes(&self, from: u64) -> Option<(LockList, u64)> {
        self.inner.engine.table_changes(from)
    }

    /// Holders and waiters of one lock at this member only, in about `most_bytes` bytes.
    pub fn table_row(&self, name: &str, most_bytes: usize) -> LockStatus {
        self.inner.engine.lock_status(&LockName::new(name), most_bytes)
    }

    /// Watches the number of the next change of this member's table.
    pub fn watch_table(&self) -> watch::Receiver<u64> {
        self.inner.engine.watch_table()
    }

    /// Maximum number of different locks that the clients of this member may use at a time.
    pub fn most_own_locks(&self) -> usize {
        self.inner.engine.most_own_locks()
    }

    /// The addresses of all members known to the cluster.
    pub fn addresses(&self) -> BTreeMap<MemberId, String> {
        self.inner.consensus.addresses().borrow().clone()
    }

    /// The configuration with which it was started.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The settings that the cluster has decided, as far as this member knows. Before the first view: the configured
    /// ones.
    pub fn settings(&self) -> ClusterSettings {
        self.inner.engine.settings()
    }

    /// The length of a lease in this cluster.
    pub fn lease(&self) -> Duration {
        Duration::from_nanos(self.settings().lease_ns)
    }

    /// Changes the settings of the whole cluster. The leader decides a view with them, which starts once every lease of
    /// the earlier views must have expired at the members that it excludes. Returns when this member has that view.
    /// Holds survive.
    pub async fn change_settings(&self, changes: &[(String, String)]) -> Result<ClusterSettings> {
        let wanted = settings::change(&self.settings(), changes).map_err(OptionError::Value)?;
        let lease = Duration::from_nanos(wanted.lease_ns.max(self.settings().lease_ns));
        let deadline = tokio::time::Instant::now() + 4 * lease + Duration::from_secs(5);
        let mut obstacle;
        loop {
            if self.settings() == wanted {
                return Ok(wanted);
            }
            obstacle = self.propose_change(&wanted).await?;
            tokio::time::sleep(self.inner.config.times.renewal).await;
            if tokio::time::Instant::now() >= deadline {
                break;
            }
        }
        let why = obstacle.unwrap_or_else(|| String::from("the view with these settings is not decided"));
        Err(Error::Unavailable(format!("the settings have not changed yet: {why}")))
    }

    /// Sends the change to the leader once. Settings that the leader rejects are an error; an unreachable leader is
    /// reported as `Some`, since it may be temporary.
    async fn propose_change(&self, wanted: &ClusterSettings) -> Result<Option<String>> {
        let Some(leader) = self.voters().leader else {
            return Ok(Some(String::from(
                "no leader is known: a majority of the voters must reach each other",
            )));
        };
        let refused = if leader == self.id() {
            self.inner.engine.propose_settings(wanted.clone()).err().map(|why| why.to_string())
        } else {
            let within = self.inner.config.times.round_trip * 4;
            match self.query_member(leader, MemberQuery::Change(wanted.clone()), within).await {
                Ok(reply) => Some(String::from_utf8_lossy(&reply).into_owned()).filter(|why| !why.is_empty()),
                Err(error) => return Ok(Some(error.to_string())),
            }
        };
        match refused {
            Some(why) if !why.contains("try again") => Err(OptionError::Settings(why).into()),
            obstacle => Ok(obstacle),
        }
    }

    /// Removes a dead member from the cluster: it no longer votes, and no member waits for it. Needs a majority of the
    /// voters.
    pub async fn remove(&self, id: MemberId) -> Result<()> {
        Ok(self.inner.consensus.remove(id).await?)
    }

    /// Whether this member has a connection to that one now.
    pub fn is_connected(&self, to: MemberId) -> bool {
        self.inner.net.is_connected(to)
    }

    /// Reloads the certificates. Existing connections remain; new ones use the new certificates.
    pub fn reload_certificates(&self) -> Result<()> {
        match &self.inner.config.tls {
            Some(tls) => Ok(self.inner.net.reload_tls(tls)?),
            None => Ok(()),
        }
    }

    /// Registers the member's counters and histograms in a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.inner.engine.metrics().register(registry);
        registry.register_collector(Box::new(metrics::NetCollector(Arc::downgrade(&self.inner.net))));
        let inner = Arc::downgrade(&self.inner);
        let state = move || inner.upgrade().map(|inner| inner.scraped_state());
        registry.register_collector(Box::new(metrics::StateCollector(Box::new(state))));
    }

    /// Leaves the cluster and stops. The member grants nothing any more, holders have `drain` to release, and the
    /// other members do not have to wait for this member's lease. It can be started again later.
    pub async fn leave(self, drain: Duration) {
        let mut changes = self.inner.engine.status_changes();
        self.inner.engine.leave_cluster(u64::try_from(drain.as_nanos()).unwrap_or(u64::MAX));
        while self.status().stopped.is_none() && changes.changed().await.is_ok() {}
        self.stop().await;
    }

    /// Stops at once. To the other members this is like a crash: they wait until this member's lease expires. See
    /// [`leave`](Self::leave).
    pub async fn stop(self) {
        if let Some(stopping) = self.inner.stop("it was stopped") {
            stopping.await;
        }
    }
}

fn new_session(inner: &Arc<Inner>) -> Arc<LocalSession> {
    session_of(inner, inner.engine.open())
}

fn session_of(inner: &Arc<Inner>, client: u64) -> Arc<LocalSession> {
    let engine = inner.engine.clone();
    let margin_ns = warning_margin_ns(engine.settings().lease_ns);
    Arc::new(LocalSession { client, engine, _member: inner.clone(), margin_ns })
}

/// Stops the member when consensus fails: without consensus there are no views and no leases.
async fn stop_with_consensus(consensus: Consensus, engine: Weak<dyn Engine>) {
    let why = consensus.failed().await;
    if let Some(engine) = engine.upgrade() {
        tracing::error!(%why, "the member stops");
        engine.stop(&why.to_string());
    }
}

/// Stops the network and consensus, once.
async fn end(net: Arc<Net>, consensus: Consensus, ended: Arc<tokio::sync::Mutex<bool>>) {
    let mut ended = ended.lock().await;
    if !std::mem::replace(&mut *ended, true) {
        net.stop().await;
        consensus.stop().await;
    }
}

/// Stops the network and consensus when the state machine fails. Such a member must not vote any more: it could be
/// elected leader, and would grant no leases.
fn stop_with_engine(
    engine: Weak<dyn Engine>,
    net: Weak<Net>,
    consensus: &Consensus,
    ended: &Arc<tokio::sync::Mutex<bool>>,
) -> impl Future<Output = ()> + Send + use<> {
    let (consensus, ended) = (consensus.clone(), ended.clone());
    let changes = engine.upgrade().map(|engine| engine.status_changes());
    async move {
        let Some(mut changes) = changes else { return };
        loop {
            let Some(status) = engine.upgrade().map(|engine| engine.status()) else { return };
            if status.failed {
                break;
            }
            if status.stopped.is_some() || changes.changed().await.is_err() {
                return;
            }
        }
        if let Some(net) = net.upgrade() {
            end(net, consensus, ended).await;
        }
    }
}

/// Passes the known members and their addresses to the member and to the network.
async fn follow_addresses(
    mut addresses: watch::Receiver<BTreeMap<MemberId, String>>,
    engine: Weak<dyn Engine>,
    net: Weak<Net>,
) {
    loop {
        let known = addresses.borrow_and_update().clone();
        let (Some(engine), Some(net)) = (engine.upgrade(), net.upgrade()) else { return };
        engine.set_peers(known.keys().copied().collect());
        net.set_addresses(known);
        drop((engine, net));
        if addresses.changed().await.is_err() {
            return;
        }
    }
}
