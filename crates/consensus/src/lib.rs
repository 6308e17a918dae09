//! Consensus: decides the views, one for each epoch, and stores them on the disks of a majority of the voters.
//!
//! The Raft library makes the decisions. This crate adapts it to the duties of a driver, as numbered at
//! [`lockkeeper_member::Member`]:
//!
//! | duty | where |
//! |---|---|
//! | 6: one view for each epoch, durable at a majority before it is reported | `machine`, `log`, `store` |
//! | 7: the newest view and the leader, in order; a leader knows every earlier decision | `event_queue`, `maintenance` |
//! | 8: leadership confirmed after the query | [`Consensus::confirm`] |
//!
//! Further modules: `founding`, the founding of a cluster and the joining of members; `voters`, the choice of voters;
//! `elections`, the time at which a voter stands for election; `network` and `wire`, queries between members;
//! `query_handler`, the answers to them; `store_stamps`, the detection of restored backups.

mod elections;
mod event_queue;
mod founding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
#[cfg(test)]
mod golden;
mod log;
mod machine;
mod maintenance;
mod network;
mod query_handler;
mod state;
mod store;
mod store_stamps;
#[cfg(test)]
mod tests;
mod types;
mod voters;
mod wire;

pub use event_queue::EventCallback;
pub use network::{PendingReply, QueryFailed, QueryTransport};

pub use store::StoreError;

use crate::store::{Record, Store};
use event_queue::EventSender;
use lockkeeper_member::{ClusterSettings, MemberId, RecordOutcome, RecordWrite, View};
use log::Log;
use machine::Machine;
use maintenance::leading;
use network::Network;
use openraft::SnapshotPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::{Proposal, Raft, StoreName, StoreNode};
use wire::{ConsensusQuery, ConsensusReply};

/// Maximum number of proposals and confirmations in progress. A member has one of each; further ones are dropped, as if
/// lost.
const MOST_IN_PROGRESS: u32 = 64;
/// Number of log entries after which a snapshot is made, and number of entries kept before it for followers that lag a
/// little.
const ENTRIES_PER_SNAPSHOT: u64 = 256;
const ENTRIES_KEPT: u64 = 128;

/// The settings of consensus at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of this member.
    pub me: MemberId,
    /// The address on which other members reach this one.
    pub address: String,
    /// The members that found a new cluster, including this one, and their addresses. The list must be the same at all
    /// of them. Empty: join an existing cluster.
    pub first_members: BTreeMap<MemberId, String>,
    /// Addresses of members of an existing cluster.
    pub join: Vec<String>,
    /// The folder of the store.
    pub directory: PathBuf,
    /// The interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// Bounds of the election timeout: the shortest and the longest silence of the leader after which a voter stands
    /// for election.
    pub election: (Duration, Duration),
    /// Maximum number of voters: odd, up to 7.
    pub most_voters: usize,
    /// Lower bound of a new cluster's epochs: 0, or after the loss of all disks the highest epoch that any resource has
    /// seen.
    pub epoch_above: u64,
    /// The settings with which this member founds a cluster; the same for all first members.
    pub cluster: ClusterSettings,
}

impl Settings {
    fn check(&self) -> Result<(), SettingsError> {
        if self.most_voters.is_multiple_of(2) || self.most_voters > 7 {
            return Err(SettingsError::Voters { voters: self.most_voters });
        }
        if self.heartbeat < Duration::from_millis(1)
            || self.election.0 < self.heartbeat + Duration::from_millis(2)
            || self.election.1 <= self.election.0
        {
            return Err(SettingsError::Times { heartbeat: self.heartbeat, election: self.election });
        }
        if self.address.is_empty() {
            return Err(SettingsError::NoAddress);
        }
        if self.first_members.is_empty() && self.join.is_empty() {
            return Err(SettingsError::NoContacts);
        }
        match self.first_members.get(&self.me) {
            Some(address) if *address != self.address => Err(SettingsError::TwoAddresses {
                me: self.me,
                listed: address.clone(),
                own: self.address.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn raft(&self) -> Result<Arc<openraft::Config>, SettingsError> {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = openraft::Config {
            cluster_name: "lockkeeper".to_string(),
            heartbeat_interval: ms(self.heartbeat),
            // Elections are started by `elections`. Of these two, the library uses only the leader lease that they
            // imply.
            election_timeout_min: ms(self.election.0) - 1,
            election_timeout_max: ms(self.election.0),
            enable_elect: false,
            install_snapshot_timeout: ms(self.election.1),
            max_payload_entries: 64,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(ENTRIES_PER_SNAPSHOT),
            replication_lag_threshold: 2 * ENTRIES_PER_SNAPSHOT,
            max_in_snapshot_log_to_keep: ENTRIES_KEPT,
            ..openraft::Config::default()
        };
        config.validate().map(Arc::new).map_err(|error| SettingsError::Raft(Arc::new(error)))
    }
}

/// The reason why consensus cannot work with its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The number of voters is even or too large.
    #[error("{voters} voters: it must be 1, 3, 5 or 7")]
    Voters {
        /// The number of voters.
        voters: usize,
    },
    /// The times of heartbeats and elections do not fit together.
    #[error(
        "the heartbeat must be at least 1 ms and 2 ms shorter than the shortest election, and that shorter than the longest"
    )]
    Times {
        /// The interval of heartbeats.
        heartbeat: Duration,
        /// The shortest and the longest election timeout.
        election: (Duration, Duration),
    },
    /// The member has no address.
    #[error("this member needs an address at which others reach it")]
    NoAddress,
    /// There is neither a first member nor a member to join.
    #[error("name the first members of a new cluster, or members of one to join")]
    NoContacts,
    /// The list of first members contains another address of this member.
    #[error(
        "{me} is at {listed} by the list of first members, and at {own} by its own address: make them equal"
    )]
    TwoAddresses {
        /// The number of this member.
        me: MemberId,
        /// Its address in the list.
        listed: String,
        /// Its own address.
        own: String,
    },
    /// The Raft library rejects the settings.
    #[error("{0}")]
    Raft(#[source] Arc<openraft::ConfigError>),
}

/// The reason why consensus does not work, with advice.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It cannot work with its settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The store cannot be opened or used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It has stopped by itself.
    #[error("consensus has stopped: {0}")]
    Stopped(String),
    /// A member cannot be removed.
    #[error("{0}")]
    Remove(String),
}

/// The state of consensus, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The leader, if one is known.
    pub leader: Option<MemberId>,
    /// The current term.
    pub term: u64,
    /// Whether this member leads.
    pub leading: bool,
    /// The members that vote.
    pub voters: BTreeSet<MemberId>,
    /// Voters and learners.
    pub members: BTreeSet<MemberId>,
    /// Index of the last log entry applied here.
    pub applied: Option<u64>,
    /// The epoch of the newest view.
    pub epoch: u64,
    /// Number of records in the table of recorded holds.
    pub records: usize,
    /// Size of these records in bytes, as limited by [`MOST_TABLE_BYTES`](lockkeeper_member::MOST_TABLE_BYTES).
    pub record_bytes: usize,
    /// The reason why this member is not part of a cluster.
    pub obstacle: Option<String>,
    /// The reason why consensus has stopped by itself.
    pub failure: Option<String>,
    /// Number of queries that could not be decoded.
    pub malformed: u64,
}

/// The future of an operation. It is boxed because the body of an async function is compiled in every crate that awaits
/// it, and these contain the Raft library.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The consensus instance of one member. Cheap to clone.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
    background: Arc<Mutex<Vec<JoinHandle<()>>>>,
    delivery: Arc<Mutex<Option<JoinHandle<()>>>>,
    stopping: watch::Sender<bool>,
}

struct Inner {
    settings: Settings,
    store: Store,
    log: Log,
    raft: Raft,
    network: Network,
    events: Arc<EventSender>,
    /// The cluster that the store belongs to. Locked for writing only while that changes.
    cluster: RwLock<Option<u64>>,
    /// Stores that request this leader to admit them, and members that it removes.
    joiners: Mutex<BTreeMap<StoreName, StoreNode>>,
    removed: Mutex<BTreeSet<MemberId>>,
    /// The term since whose beginning the voters' silence is counted.
    replies_reset_in: Mutex<Option<u64>>,
    /// The start of the current silence, and the time of the last message of a leader.
    silence_since: Mutex<Instant>,
    last_leader_message: Mutex<Option<Instant>>,
    wake: Notify,
    addresses: watch::Sender<BTreeMap<MemberId, String>>,
    obstacle: Mutex<Option<String>>,
    failure: watch::Sender<Option<String>>,
    malformed: AtomicU64,
    /// Whether this process is about to leave, and another voter should lead.
    steps_down: AtomicBool,
    /// Until this time it sends no confirmation queries. A voter that receives one takes it for a message of an active
    /// leader, and would elect no other.
    silent_until: Mutex<Option<Instant>>,
    in_progress: Arc<Semaphore>,
    /// The runtime of the caller of `start`. Proposals and confirmations may come from any thread.
    runtime: Handle,
}

impl Consensus {
    /// Opens the store, and starts or resumes. It returns at once; until the store is part of a cluster,
    /// [`Status::obstacle`] contains the reason for the wait.
    pub fn start(
        settings: Settings,
        transport: Arc<dyn QueryTransport>,
        callback: EventCallback,
    ) -> BoxFuture<'static, Result<Self, Error>> {
        Box::pin(async move {
            settings.check()?;
            let (directory, me) = (settings.directory.clone(), settings.me);
            let opening = tokio::task::spawn_blocking(move || Store::open(&directory, me)).await;
            let store = opening.unwrap_or_else(|error| {
                Err(StoreError::Damaged { what: format!("reading it failed: {error}") })
            })?;
            Self::start_on(store, settings, transport, callback).await
        })
    }

    async fn start_on(
        store: Store,
        settings: Settings,
        transport: Arc<dyn QueryTransport>,
        callback: EventCallback,
    ) -> Result<Self, Error> {
        settings.check()?;
        let (events, delivery) = EventSender::new(callback);
        let events = Arc::new(events);
        let begin = {
            let (events, me) = (events.clone(), settings.me);
            move |store: &Store| {
                let cluster: Option<u64> = store.read(Record::Cluster)?;
                Ok((cluster, Log::new(store.clone())?, Machine::new(store.clone(), me, events)?))
            }
        };
        let (cluster, log, machine) = store.run(begin).await?;
        let network = Network {
            member: settings.me,
            start: getrandom::u64().map_err(|error| Error::Stopped(format!("no random numbers: {error}")))?,
            opened: store.commits(),
            store: store.clone(),
            stamps: Arc::default(),
            restored: Arc::default(),
            transport,
            cluster: Arc::new(AtomicU64::new(cluster.unwrap_or(0))),
            last_replies: Arc::default(),
            pause: settings.heartbeat,
        };
        let config = settings.raft()?;
        let raft = Raft::new(store.name(), config, network.clone(), log.clone(), machine)
            .await
            .map_err(|error| Error::Stopped(error.to_string()))?;
        let inner = Arc::new(Inner {
            settings,
            store,
            log,
            raft,
            network,
            events,
            cluster: RwLock::new(cluster),
            joiners: Mutex::default(),
            removed: Mutex::default(),
            replies_reset_in: Mutex::default(),
            silence_since: Mutex::new(Instant::now()),
            last_leader_message: Mutex::default(),
            wake: Notify::new(),
            addresses: watch::Sender::default(),
            obstacle: Mutex::default(),
            failure: watch::Sender::default(),
            malformed: AtomicU64::new(0),
            steps_down: AtomicBool::new(false),
            silent_until: Mutex::default(),
            in_progress: Arc::new(Semaphore::new(MOST_IN_PROGRESS as usize)),
            runtime: Handle::current(),
        });
        let stopping = watch::Sender::new(false);
        let (watching, keeping, electing) = (inner.clone(), inner.clone(), inner.clone());
        let [stop_watching, end_delegations, stop_electing] = [(); 3].map(|()| stopping.subscribe());
        let background = vec![
            tokio::spawn(async move { watching.watch_leader(stop_watching).await }),
            tokio::spawn(async move { keeping.maintain(end_delegations).await }),
            tokio::spawn(async move { electing.elect(stop_electing).await }),
        ];
        let delivery = tokio::spawn(delivery.run());
        Ok(Self {
            inner,
            background: Arc::new(Mutex::new(background)),
            delivery: Arc::new(Mutex::new(Some(delivery))),
            stopping,
        })
    }

    /// Answers a query of another member. `from` is the member that the network has authenticated.
    pub fn handle_query<'a>(&'a self, from: MemberId, query: &'a [u8]) -> BoxFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let reply = match wire::read(query) {
                Ok(message) => self.inner.handle_query(from, message).await,
                Err(error) => {
                    self.inner.malformed.fetch_add(1, Ordering::Relaxed);
                    ConsensusReply::Refused(format!("the query cannot be read: {error}"))
                }
            };
            wire::write(&wire::ReplyMessage { stamp: self.inner.network.stamp(), reply }).unwrap_or_default()
        })
    }

    /// Proposes a view. There is no answer: it is decided or not.
    pub fn propose(&self, view: View) {
        let Ok(permit) = self.inner.in_progress.clone().try_acquire_owned() else { return };
        let bytes = postcard::experimental::serialized_size(&view).unwrap_or(usize::MAX);
        if bytes > wire::MOST_VIEW_BYTES {
            tracing::error!(bytes, "a view is too large to be proposed: the cluster has too many members");
            return;
        }
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move {
            if let Err(error) = inner.raft.client_write(Proposal::View(view)).await {
                tracing::debug!("a proposal came to nothing: {error}");
            }
            drop(permit);
        });
    }

    /// Writes to the table of recorded holds, through the leader. The outcomes are reported once they are durable at a
    /// majority; there is no report if the write may be lost.
    pub fn write(&self, write: RecordWrite) {
        let Ok(permit) = self.inner.in_progress.clone().try_acquire_owned() else { return };
        let inner = self.inner.clone();
        let incarnation = inner.events.incarnation();
        self.inner.runtime.spawn(async move {
            let (home, sequence) = (write.home, write.sequence);
            match inner.write(write).await {
                Some(outcomes) => inner.events.written(incarnation, home, sequence, outcomes),
                None => tracing::debug!(sequence, "a write to the table of recorded holds has no answer"),
            }
            drop(permit);
        });
    }

    /// Queries a majority whether this member still leads in this term. If it does, a confirmation is sent: this member
    /// was leader at some time after the call.
    pub fn confirm(&self, query: u64, term: u64) {
        let Ok(permit) = self.inner.in_progress.clone().try_acquire_owned() else { return };
        let inner = self.inner.clone();
        let incarnation = inner.events.incarnation();
        self.inner.runtime.spawn(async move {
            if inner.is_confirmed(term).await {
                inner.events.confirmed(incarnation, query, term);
            }
            drop(permit);
        });
    }

    /// Hands the leadership to another voter, because this process is about to leave. While the member repeats this
    /// call, the process sends no heartbeats, and it does not become a candidate again. If no voter takes over, the
    /// member stops calling and this process continues to lead. A sole voter first transfers its vote.
    pub fn step_down(&self) {
        let inner = &self.inner;
        inner.steps_down.store(true, Ordering::Relaxed);
        let me = inner.store.name();
        if inner.raft.metrics().borrow().membership_config.voter_ids().any(|voter| voter != me) {
            *locked(&inner.silent_until) = Some(Instant::now() + inner.settings.election.1);
            inner.raft.runtime_config().heartbeat(false);
        } else {
            inner.wake.notify_one();
        }
    }

    /// Starts a new incarnation of the member: sends it the newest view, the leader and, once a majority has confirmed
    /// it, its own leadership. Events sent before are for earlier incarnations, and so is the one that may be in
    /// transit at this moment.
    pub fn repeat_events(&self) {
        let (incarnation, Some(term)) = self.inner.events.repeat_all() else { return };
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move {
            let Ok(_permit) = inner.in_progress.acquire().await else { return };
            while inner.events.incarnation() == incarnation && inner.leads_in().await == Some(term) {
                if inner.is_confirmed(term).await {
                    return inner.events.leadership_confirmed(incarnation, term);
                }
                tokio::time::sleep(inner.settings.heartbeat).await;
            }
        });
    }

    /// The random id of the cluster that this member belongs to; 0 before it belongs to one.
    pub fn cluster_id(&self) -> u64 {
        self.inner.network.cluster.load(Ordering::SeqCst)
    }

    /// The other members of the cluster according to this member's disk, at its start.
    pub fn peers(&self) -> BoxFuture<'_, BTreeSet<MemberId>> {
        Box::pin(async move {
            let me = self.inner.settings.me;
            let known = self.inner.raft.with_raft_state(move |state| {
                let nodes = state.membership_state.effective();
                nodes.nodes().map(|(_, node)| node.member).filter(|&member| member != me).collect()
            });
            // If Raft has stopped, the reason is reported by `failed`.
            known.await.unwrap_or_default()
        })
    }

    /// The addresses of all members known to the cluster, voters or not.
    pub fn addresses(&self) -> watch::Receiver<BTreeMap<MemberId, String>> {
        self.inner.addresses.subscribe()
    }

    /// Removes a dead member on behalf of an operator: it loses its vote and its place. A member that still runs joins
    /// again.
    pub fn remove(&self, member: MemberId) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let inner = &self.inner;
            let mut reply = inner.remove_member(member).await?;
            if let ConsensusReply::NotLeader(Some((leader, address))) = reply {
                let within = 10 * inner.settings.election.1;
                let pending =
                    inner.network.query(Some(leader), &address, ConsensusQuery::Remove { member }, within);
                reply = pending.await.map_err(|error| Error::Remove(error.to_string()))?;
            }
            match reply {
                ConsensusReply::Accepted { .. } => Ok(()),
                ConsensusReply::Refused(why) => Err(Error::Remove(why)),
                _ => Err(Error::Remove(format!("{member} is not removed: there is no leader; try again"))),
            }
        })
    }

    /// The state of consensus.
    pub fn status(&self) -> Status {
        let inner = &self.inner;
        let metrics = inner.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters = membership.voter_ids().filter_map(|store| membership.get_node(&store));
        let (records, record_bytes) = inner.events.table_size();
        Status {
            leader: metrics.current_leader.and_then(|store| membership.get_node(&store)).map(|at| at.member),
            term: metrics.current_term,
            leading: leading(&metrics).is_some(),
            voters: voters.map(|node| node.member).collect(),
            members: membership.nodes().map(|(_, node)| node.member).collect(),
            applied: metrics.last_applied.map(|applied| applied.index),
            epoch: inner.events.newest().epoch,
            records,
            record_bytes,
            obstacle: locked(&inner.obstacle).clone(),
            failure: inner.failure.borrow().clone(),
            malformed: inner.malformed.load(Ordering::Relaxed),
        }
    }

    /// Waits until consensus stops by itself, for instance because the disk is full. After that nothing is decided or
    /// confirmed here. The data on disk are intact, and a restart resumes from them.
    pub async fn failed(&self) -> Error {
        let mut failure = self.inner.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => Error::Stopped(why.clone().unwrap_or_default()),
            Err(_) => Error::Stopped("it was stopped".to_string()),
        }
    }

    /// Stops. When this returns, everything is on disk, no task runs any more, and another process may open the store.
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stopping.send_replace(true);
            let background = std::mem::take(&mut *locked(&self.background));
            for task in background {
                let _ = task.await;
            }
            let _ = self.inner.raft.shutdown().await;
            // Each proposal and confirmation in progress has a permit. All permits are available once all of them have
            // ended.
            let _ = self.inner.in_progress.acquire_many(MOST_IN_PROGRESS).await;
            self.inner.events.end();
            let delivery = locked(&self.delivery).take();
            if let Some(delivery) = delivery {
                let _ = delivery.await;
            }
            if let Err(error) = self.inner.log.flush().await {
                tracing::warn!("the last of what consensus knew is not on disk: {error}");
            }
            let store = self.inner.store.clone();
            let _ = tokio::task::spawn_blocking(move || drop(store.close())).await;
        })
    }
}

/// Locks a mutex. Poison is ignored: no value here is changed in several steps, so a panic cannot leave one half
/// changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Writes to the table of recorded holds: as the leader, or by a query to the leader.
    async fn write(&self, write: RecordWrite) -> Option<Vec<RecordOutcome>> {
        if self.leads_in().await.is_some() {
            return self.write_as_leader(write).await;
        }
        let (leader, address) = self.leader()?;
        let query = ConsensusQuery::Write { write };
        let reply = self.network.query(Some(leader), &address, query, 2 * self.settings.election.1).await;
        match reply {
            Ok(ConsensusReply::Written(outcomes)) => Some(outcomes),
            _ => None,
        }
    }

    /// As the leader: writes to the table of recorded holds.
    async fn write_as_leader(&self, write: RecordWrite) -> Option<Vec<RecordOutcome>> {
        self.raft.client_write(Proposal::Write(write)).await.ok().map(|response| response.data)
    }

    /// Whether a majority confirms, now, that this store leads in this term.
    async fn is_confirmed(&self, term: u64) -> bool {
        if locked(&self.silent_until).is_some_and(|until| Instant::now() < until) {
            return false;
        }
        // Terms only rise: if the term is the same before and after, it was the same in between.
        self.leads_in().await == Some(term)
            && self.raft.ensure_linearizable().await.is_ok()
            && self.leads_in().await == Some(term)
    }

    /// The term in which this store leads, queried from the library's state and not from its metrics, which may be
    /// outdated.
    async fn leads_in(&self) -> Option<u64> {
        let me = self.store.name();
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await.ok()?;
        (vote.committed && vote.leader_id.voted_for == Some(me)).then_some(vote.leader_id.term)
    }
}
