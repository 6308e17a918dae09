//! Consensus: decides the views, one for each epoch, on the disks of a majority of the voters.
//!
//! The Raft library does the deciding. This module makes of it what a member asks for, as numbered at
//! [`lockkeeper_member::Member`]:
//!
//! | duty | where |
//! |---|---|
//! | 6: one view for each epoch, durable at a majority before anybody hears of it | `machine`, `log`, [`crate::store`] |
//! | 7: the newest view, the leader, in order; leading only with everything known | `teller`, `keeper` |
//! | 8: leadership confirmed after the question | [`Consensus::confirm`] |
//!
//! Beside that: `founding`, how a cluster begins and how members join it; `voters`, who has a vote; `elections`, when a voter wants to lead; `network` and `wire`, how members ask each
//! other; `answers`, what they answer.

mod answers;
mod disks;
mod elections;
mod founding;
mod keeper;
mod log;
mod machine;
mod network;
mod state;
mod teller;
#[cfg(test)]
mod tests;
mod types;
mod voters;
mod wire;

pub(crate) use network::{Answering, Ask, Unreachable};
pub(crate) use teller::Tell;

use crate::store::{Record, Store, StoreError};
use keeper::leading;
use lockkeeper_member::{ClusterSettings, MemberId, View};
use log::Log;
use machine::Machine;
use network::Network;
use openraft::SnapshotPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use teller::Teller;
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::{Place, Raft, StoreName};
use wire::{Answer, Question};

/// Proposals and questions under way at once. A member has one of each; what is more is left out, as if lost.
const MOST_UNDER_WAY: u32 = 64;
/// A snapshot after so many entries, and so many entries kept behind it for those who lag a little.
const ENTRIES_PER_SNAPSHOT: u64 = 256;
const ENTRIES_KEPT: u64 = 128;

/// What consensus is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub me: MemberId,
    /// Where other members reach this one.
    pub address: String,
    /// With whom a new cluster begins, this member among them, and where they are: the same list for all. Empty: join an existing cluster.
    pub first_members: BTreeMap<MemberId, String>,
    /// Addresses of members of an existing cluster.
    pub join: Vec<String>,
    pub directory: PathBuf,
    pub heartbeat: Duration,
    /// The shortest and the longest silence of the leader after which a voter wants to lead.
    pub election: (Duration, Duration),
    /// At most so many voters: odd, up to 7.
    pub most_voters: usize,
    /// A new cluster's epochs begin above this: 0, or after the loss of all disks the highest that any resource has seen.
    pub epoch_above: u64,
    /// The settings with which this member founds a cluster: the same for all first members.
    pub cluster: ClusterSettings,
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Settings(what));
        if self.most_voters.is_multiple_of(2) || self.most_voters > 7 {
            return refuse(format!("{} voters: it must be 1, 3, 5 or 7", self.most_voters));
        }
        if self.heartbeat < Duration::from_millis(1)
            || self.election.0 < self.heartbeat + Duration::from_millis(2)
            || self.election.1 <= self.election.0
        {
            return refuse(
                "the heartbeat must be at least 1 ms and 2 ms shorter than the shortest election, and that shorter than the longest"
                    .to_string(),
            );
        }
        if self.address.is_empty() {
            return refuse("this member needs an address at which others reach it".to_string());
        }
        if self.first_members.is_empty() && self.join.is_empty() {
            return refuse("name the first members of a new cluster, or members of one to join".to_string());
        }
        match self.first_members.get(&self.me) {
            Some(address) if *address != self.address => refuse(format!(
                "{} is at {address} by the list of first members, and at {} by its own address: make them equal",
                self.me, self.address
            )),
            _ => Ok(()),
        }
    }

    fn raft(&self) -> Result<Arc<openraft::Config>, Error> {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = openraft::Config {
            cluster_name: "lockkeeper".to_string(),
            heartbeat_interval: ms(self.heartbeat),
            // Only the lease of this comes into play: see `elections`.
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
        config.validate().map(Arc::new).map_err(|error| Error::Settings(error.to_string()))
    }
}

/// Why consensus does not work, and what to do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("consensus has stopped: {0}")]
    Stopped(String),
    #[error("{0}")]
    Remove(String),
}

/// How things stand, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub leader: Option<MemberId>,
    pub term: u64,
    /// Whether this member leads.
    pub leading: bool,
    pub voters: BTreeSet<MemberId>,
    /// Voters and all others.
    pub members: BTreeSet<MemberId>,
    /// How much of the log is applied here.
    pub applied: Option<u64>,
    /// The newest view's epoch.
    pub epoch: u64,
    /// What keeps this member from being part of a cluster.
    pub trouble: Option<String>,
    /// Why consensus has stopped by itself.
    pub failure: Option<String>,
    /// How many questions made no sense.
    pub nonsense: u64,
}

/// One member's part in consensus. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Consensus {
    inner: Arc<Inner>,
    background: Arc<Mutex<Vec<JoinHandle<()>>>>,
    messenger: Arc<Mutex<Option<JoinHandle<()>>>>,
    stopping: watch::Sender<bool>,
}

struct Inner {
    settings: Settings,
    store: Store,
    log: Log,
    raft: Raft,
    network: Network,
    teller: Arc<Teller>,
    /// The cluster that the store is part of. Locked for writing only while that changes.
    cluster: RwLock<Option<u64>>,
    /// Who asks this leader to be let in, and whom it takes out.
    joiners: Mutex<BTreeMap<StoreName, Place>>,
    given_up: Mutex<BTreeSet<MemberId>>,
    /// The term since when the voters' silence is counted.
    listening_since: Mutex<Option<u64>>,
    /// Since when it is quiet, and when a leader was last heard.
    silence_since: Mutex<Instant>,
    leader_heard: Mutex<Option<Instant>>,
    wake: Notify,
    addresses: watch::Sender<BTreeMap<MemberId, String>>,
    trouble: Mutex<Option<String>>,
    failure: watch::Sender<Option<String>>,
    nonsense: AtomicU64,
    /// Whether this process is about to go, and leaves leading to others.
    steps_down: AtomicBool,
    /// Until then it asks nobody whether it leads: who is asked would hear a leader, and elect nobody.
    silent_until: Mutex<Option<Instant>>,
    under_way: Arc<Semaphore>,
    /// Where it was started: proposals and questions may come from any thread.
    runtime: Handle,
}

impl Consensus {
    /// Opens the store and begins, or goes on. Returns at once: until the cluster has begun, [`Status::trouble`] says what it waits for.
    pub async fn start(settings: Settings, ask: Arc<dyn Ask>, tell: Tell) -> Result<Self, Error> {
        settings.check()?;
        let (directory, me) = (settings.directory.clone(), settings.me);
        let opening = tokio::task::spawn_blocking(move || Store::open(&directory, me)).await;
        let store = opening.unwrap_or_else(|error| {
            Err(StoreError::Damaged { what: format!("reading it failed: {error}") })
        })?;
        Self::start_on(store, settings, ask, tell).await
    }

    async fn start_on(
        store: Store,
        settings: Settings,
        ask: Arc<dyn Ask>,
        tell: Tell,
    ) -> Result<Self, Error> {
        settings.check()?;
        let (teller, messenger) = Teller::new(tell);
        let teller = Arc::new(teller);
        let begin = {
            let teller = teller.clone();
            move |store: &Store| {
                let cluster: Option<u64> = store.read(Record::Cluster)?;
                Ok((cluster, Log::new(store.clone())?, Machine::new(store.clone(), teller)?))
            }
        };
        let (cluster, log, machine) = store.run(begin).await?;
        let network = Network {
            member: settings.me,
            start: getrandom::u64().map_err(|error| Error::Stopped(format!("no random numbers: {error}")))?,
            opened: store.commits(),
            store: store.clone(),
            disks: Arc::default(),
            restored: Arc::default(),
            ask,
            cluster: Arc::new(AtomicU64::new(cluster.unwrap_or(0))),
            heard: Arc::default(),
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
            teller,
            cluster: RwLock::new(cluster),
            joiners: Mutex::default(),
            given_up: Mutex::default(),
            listening_since: Mutex::default(),
            silence_since: Mutex::new(Instant::now()),
            leader_heard: Mutex::default(),
            wake: Notify::new(),
            addresses: watch::Sender::default(),
            trouble: Mutex::default(),
            failure: watch::Sender::default(),
            nonsense: AtomicU64::new(0),
            steps_down: AtomicBool::new(false),
            silent_until: Mutex::default(),
            under_way: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
            runtime: Handle::current(),
        });
        let stopping = watch::Sender::new(false);
        let (watching, keeping, electing) = (inner.clone(), inner.clone(), inner.clone());
        let [stop_watching, stop_keeping, stop_electing] = [(); 3].map(|()| stopping.subscribe());
        let background = vec![
            tokio::spawn(async move { watching.watch(stop_watching).await }),
            tokio::spawn(async move { keeping.keep(stop_keeping).await }),
            tokio::spawn(async move { electing.elect(stop_electing).await }),
        ];
        let messenger = tokio::spawn(messenger.run());
        Ok(Self {
            inner,
            background: Arc::new(Mutex::new(background)),
            messenger: Arc::new(Mutex::new(Some(messenger))),
            stopping,
        })
    }

    /// Answers a question of another member: `from` is the member that it is proven to be from.
    pub async fn answer(&self, from: MemberId, question: &[u8]) -> Vec<u8> {
        let answer = match wire::read(question) {
            Ok(asked) => self.inner.answer(from, asked).await,
            Err(error) => {
                self.inner.nonsense.fetch_add(1, Ordering::Relaxed);
                Answer::Refused(format!("the question cannot be read: {error}"))
            }
        };
        wire::write(&wire::Answered { disk: self.inner.network.disk(), answer }).unwrap_or_default()
    }

    /// Proposes a view. No answer: it is decided, or it is not.
    pub fn propose(&self, view: View) {
        let Ok(permit) = self.inner.under_way.clone().try_acquire_owned() else { return };
        let bytes = postcard::experimental::serialized_size(&view).unwrap_or(usize::MAX);
        if bytes > wire::MOST_VIEW_BYTES {
            tracing::error!(bytes, "a view is too large to be proposed: the cluster has too many members");
            return;
        }
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move {
            if let Err(error) = inner.raft.client_write(view).await {
                tracing::debug!("a proposal came to nothing: {error}");
            }
            drop(permit);
        });
    }

    /// Asks a majority whether this member still leads in this term. The answer comes only if it does: said after this call, in that term.
    pub fn confirm(&self, question: u64, term: u64) {
        let Ok(permit) = self.inner.under_way.clone().try_acquire_owned() else { return };
        let inner = self.inner.clone();
        let life = inner.teller.life();
        self.inner.runtime.spawn(async move {
            if inner.is_confirmed(term).await {
                inner.teller.confirmed(life, question, term);
            }
            drop(permit);
        });
    }

    /// This process is about to go: another voter is to lead, and this one does not stand again. It falls silent for as long as this is asked of
    /// it, again and again; if nobody takes over, whoever asks gives up, and it goes on leading. An only voter hands its vote on first.
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

    /// A new life of the member begins: tells it the newest view, where the leader is, and, once a majority has said so, that it leads. What was
    /// told before is for earlier lives, and so is the one event that may be under way at this moment.
    pub fn tell_again(&self) {
        let (life, Some(term)) = self.inner.teller.again() else { return };
        let inner = self.inner.clone();
        self.inner.runtime.spawn(async move {
            let Ok(_permit) = inner.under_way.acquire().await else { return };
            while inner.teller.life() == life && inner.leads_in().await == Some(term) {
                if inner.is_confirmed(term).await {
                    return inner.teller.still_leading(life, term);
                }
                tokio::time::sleep(inner.settings.heartbeat).await;
            }
        });
    }

    /// The random number of the cluster that this member belongs to; 0 before it belongs to one.
    pub fn cluster_id(&self) -> u64 {
        self.inner.network.cluster.load(Ordering::SeqCst)
    }

    /// The other members of the cluster by this member's disk, at its start.
    pub async fn peers(&self) -> BTreeSet<MemberId> {
        let me = self.inner.settings.me;
        let known = self.inner.raft.with_raft_state(move |state| {
            let nodes = state.membership_state.effective();
            nodes.nodes().map(|(_, place)| place.member).filter(|&member| member != me).collect()
        });
        // A Raft that has stopped tells why elsewhere.
        known.await.unwrap_or_default()
    }

    /// Where everybody is who is known to the cluster, with a vote or without.
    pub fn addresses(&self) -> watch::Receiver<BTreeMap<MemberId, String>> {
        self.inner.addresses.subscribe()
    }

    /// An operator gives a dead member up: it has no vote and no place any more. One that still runs joins again.
    pub async fn remove(&self, member: MemberId) -> Result<(), Error> {
        let inner = &self.inner;
        let mut answer = inner.give_up(member).await?;
        if let Answer::AskLeader(Some((leader, address))) = answer {
            let within = 10 * inner.settings.election.1;
            let asking = inner.network.question(Some(leader), &address, Question::Remove { member }, within);
            answer = asking.await.map_err(|error| Error::Remove(error.to_string()))?;
        }
        match answer {
            Answer::Yes { .. } => Ok(()),
            Answer::Refused(why) => Err(Error::Remove(why)),
            _ => Err(Error::Remove(format!("{member} is not removed: there is no leader; try again"))),
        }
    }

    /// How things stand.
    pub fn status(&self) -> Status {
        let inner = &self.inner;
        let metrics = inner.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters = membership.voter_ids().filter_map(|store| membership.get_node(&store));
        Status {
            leader: metrics.current_leader.and_then(|store| membership.get_node(&store)).map(|at| at.member),
            term: metrics.current_term,
            leading: leading(&metrics).is_some(),
            voters: voters.map(|place| place.member).collect(),
            members: membership.nodes().map(|(_, place)| place.member).collect(),
            applied: metrics.last_applied.map(|applied| applied.index),
            epoch: inner.teller.newest().epoch,
            trouble: locked(&inner.trouble).clone(),
            failure: inner.failure.borrow().clone(),
            nonsense: inner.nonsense.load(Ordering::Relaxed),
        }
    }

    /// Waits until consensus stops by itself, for instance since the disk is full: nothing is decided or confirmed here any more. What is on
    /// disk is whole, and a new start goes on from there.
    pub async fn failed(&self) -> Error {
        let mut failure = self.inner.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => Error::Stopped(why.clone().unwrap_or_default()),
            Err(_) => Error::Stopped("it was stopped".to_string()),
        }
    }

    /// Stops: everything is on disk, nothing runs any more, and another process may open the store.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let background = std::mem::take(&mut *locked(&self.background));
        for task in background {
            let _ = task.await;
        }
        let _ = self.inner.raft.shutdown().await;
        // Every proposal and question has its permit back once it is over.
        let _ = self.inner.under_way.acquire_many(MOST_UNDER_WAY).await;
        self.inner.teller.end();
        let messenger = locked(&self.messenger).take();
        if let Some(messenger) = messenger {
            let _ = messenger.await;
        }
        if let Err(error) = self.inner.log.flush().await {
            tracing::warn!("the last of what consensus knew is not on disk: {error}");
        }
        let store = self.inner.store.clone();
        let _ = tokio::task::spawn_blocking(move || drop(store.close())).await;
    }
}

/// Takes a lock. If somebody panicked with it, what it guards is whole all the same: nothing here is changed in several steps.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Whether a majority says, now, that this store leads in this term.
    async fn is_confirmed(&self, term: u64) -> bool {
        if locked(&self.silent_until).is_some_and(|until| Instant::now() < until) {
            return false;
        }
        // Terms only rise: the same one before and after is the same one in between.
        self.leads_in().await == Some(term)
            && self.raft.ensure_linearizable().await.is_ok()
            && self.leads_in().await == Some(term)
    }

    /// The term in which this store leads, asked of the library itself and not of its news.
    async fn leads_in(&self) -> Option<u64> {
        let me = self.store.name();
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await.ok()?;
        (vote.committed && vote.leader_id.voted_for == Some(me)).then_some(vote.leader_id.term)
    }
}
