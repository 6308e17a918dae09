//! [`Member`]: a member of a cluster in this process.

use crate::acquire::Acquire;
use crate::config::Config;
use crate::consensus::Consensus;
use crate::driver::Driver;
use crate::engine::{Engine, Hears, Standing};
use crate::error::{Error, Result};
use crate::guard::Session;
use crate::host::{Answers, Host, Question, Voice};
use crate::metrics;
use crate::net::Net;
use crate::settings;
use crate::trouble::Trouble;
use lockkeeper_core::any::AnySite;
use lockkeeper_member::{
    Acquisition, Claim, ClusterSettings, LockName, LockStatus, MemberId, Node, Query, Reply, SessionId,
    Table, ToMember, Why,
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

/// A member of a lock cluster, in this process. Cheap to clone; clones share the session.
#[derive(Clone)]
pub struct Member {
    inner: Arc<Inner>,
    session: Arc<Session>,
}

struct Inner {
    config: Config,
    engine: Arc<dyn Engine>,
    net: Arc<Net>,
    host: Arc<Host>,
    consensus: Consensus,
    watchers: [AbortHandle; 2],
    stopped: AtomicBool,
    /// Whether the network and consensus have ended. Held while they are being ended.
    ended: Arc<tokio::sync::Mutex<bool>>,
}

impl Inner {
    /// Ends everything; in order, if that can be waited for.
    fn stop(&self, why: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.stopped.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.engine.stop(why);
        self.watchers.iter().for_each(AbortHandle::abort);
        Some(end(self.net.clone(), self.consensus.clone(), self.ended.clone()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(stopping) = self.stop("nobody uses it any more")
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(stopping);
        }
    }
}

/// How the voters stand, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voters {
    /// Who leads, as far as this member knows.
    pub leader: Option<MemberId>,
    /// In which term.
    pub term: u64,
    /// Who votes.
    pub voters: BTreeSet<MemberId>,
    /// Everybody known to the cluster, voters or not.
    pub members: BTreeSet<MemberId>,
    /// What keeps this member from taking part.
    pub trouble: Option<String>,
}

impl Member {
    /// Starts a member. It serves once it is in a view, for which it needs the others: see [`ready`](Self::ready). Who asks for
    /// a lock before that waits.
    pub async fn start(config: Config) -> Result<Self> {
        Self::starting(config).await
    }

    /// Boxed by a function that is not async: what an async function does is compiled in every crate that awaits it, and this is
    /// consensus, the network and all algorithms.
    fn starting(config: Config) -> Pin<Box<dyn Future<Output = Result<Self>> + Send>> {
        Box::pin(async move {
            config.check()?;
            let engine: Arc<dyn Engine> = Driver::<AnySite>::start(config.id, config.member())?;
            let host = Arc::new(Host {
                engine: Arc::downgrade(&engine),
                consensus: OnceLock::new(),
                user: OnceLock::new(),
            });
            let net = Net::start(config.net()?, host.clone()).await?;
            let own = net.address().unwrap_or(config.listen).to_string();
            let address = config.advertise.clone().unwrap_or(own);
            let (tell, ask) = (Arc::downgrade(&engine), Arc::new(Voice(Arc::downgrade(&net))));
            let tell = move |event| {
                if let Some(engine) = tell.upgrade() {
                    engine.port(event);
                }
            };
            let consensus = Consensus::start(config.consensus(address), ask, Arc::new(tell)).await?;
            if config.join_token.is_none()
                && let Some(peer) = consensus.peers().await.first()
            {
                consensus.stop().await;
                return Err(Error::Config(format!(
                    "this member's cluster has other members ({peer}), and it was started without the join token and does not \
                     listen for them: start it as before (`lockkeeper up --listen IP:PORT`, or `join_token` in its configuration)"
                )));
            }
            let _ = host.consensus.set(consensus.clone());
            engine.connect(net.clone(), consensus.clone());
            consensus.tell_again();
            let watchers = [
                tokio::spawn(follow(consensus.addresses(), Arc::downgrade(&engine), Arc::downgrade(&net))),
                tokio::spawn(end_with(consensus.clone(), Arc::downgrade(&engine))),
            ];
            let watchers = watchers.map(|watcher| watcher.abort_handle());
            let (stopped, ended) = (AtomicBool::new(false), Arc::default());
            let failing = end_with_engine(Arc::downgrade(&engine), Arc::downgrade(&net), &consensus, &ended);
            tokio::spawn(failing);
            let inner = Arc::new(Inner { config, engine, net, host, consensus, watchers, stopped, ended });
            Ok(Self { session: new_session(&inner), inner })
        })
    }

    /// Which member this is.
    pub fn id(&self) -> MemberId {
        self.inner.config.id
    }

    /// Where it listens for other members, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.net.address()
    }

    /// Asks for the lock of that name, alone. One name is one lock, however it is asked for.
    pub fn mutex(&self, name: impl Into<String>) -> Acquire {
        self.request(Claim::Alone, name)
    }

    /// Asks for the lock of that name together with others who share it: as a reader, where [`mutex`](Self::mutex) is the writer.
    pub fn shared(&self, name: impl Into<String>) -> Acquire {
        self.request(Claim::Shared, name)
    }

    /// Asks for one of so many permits of the lock of that name. Who wants it with another number of permits waits until all of these are
    /// given back.
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Acquire {
        self.request(Claim::Permit(permits), name)
    }

    fn request(&self, claim: Claim, name: impl Into<String>) -> Acquire {
        let moment = self.inner.config.times.round_trip * 2;
        Acquire::new(self.session.clone(), moment, claim, name.into())
    }

    /// A handle on the same member with a session of its own: its [reentrant](Acquire::reentrant) holds are its own, and so is what it
    /// loses.
    pub fn new_owner(&self) -> Self {
        Self { inner: self.inner.clone(), session: new_session(&self.inner) }
    }

    /// The session under which this handle asks at this moment, as a [survey](Self::survey) names it. Another one follows when it is lost.
    pub fn session(&self) -> Option<SessionId> {
        self.session.engine.session(self.session.client)
    }

    /// Resolves when the member serves: it is in a view, and its lease runs.
    pub async fn ready(&self) -> Result<()> {
        let mut changes = self.inner.engine.standings();
        loop {
            changes.mark_unchanged();
            let standing = self.standing();
            if let Some(why) = standing.stopped {
                return Err(Error::Stopped(why));
            }
            if standing.serves() {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err(Error::Stopped(String::from("it is gone")));
            }
        }
    }

    /// Where the member stands.
    pub fn standing(&self) -> Standing {
        self.inner.engine.standing()
    }

    /// Why the member grants no locks at the moment, for a person; `None` if it does.
    pub fn trouble(&self) -> Option<Trouble> {
        self.inner.engine.trouble()
    }

    /// Resolves when the [standing](Self::standing) may have changed.
    pub fn standings(&self) -> watch::Receiver<u64> {
        self.inner.engine.standings()
    }

    /// How the voters stand.
    pub fn voters(&self) -> Voters {
        let status = self.inner.consensus.status();
        Voters {
            leader: status.leader,
            term: status.term,
            voters: status.voters,
            members: status.members,
            trouble: status.failure.or(status.trouble),
        }
    }

    /// Who holds what and who waits, at every member that answers in time. A reply has a limited size: see [`Reply::left_out`].
    pub async fn query(&self, query: Query) -> Result<Vec<Reply>> {
        self.inner.engine.survey(query).await.map_err(|_| {
            let why = self.standing().stopped;
            Error::Stopped(why.unwrap_or_else(|| String::from("it stopped during the query")))
        })
    }

    /// Every lock that is held or waited for, at every member that answers in time, page by page.
    pub async fn survey(&self) -> Result<Vec<(Node, Table)>> {
        let mut tables: BTreeMap<Node, Table> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.query(Query::Page(after)).await?;
            // Beyond this name, a member has locks that are not in its reply.
            let end = page.iter().filter_map(Reply::covers_until).min().cloned();
            for reply in page {
                let rows =
                    reply.table.into_iter().filter(|row| end.as_ref().is_none_or(|end| row.lock <= *end));
                tables.entry(reply.node).or_default().extend(rows);
            }
            after = end;
            if after.is_none() {
                return Ok(tables.into_iter().collect());
            }
        }
    }

    /// Why a session waits: whom it waits for, whom they wait for, and so on; a circle is named.
    pub async fn why(&self, waiter: SessionId) -> Result<Why> {
        Ok(lockkeeper_member::why(&self.survey().await?, waiter))
    }

    /// Takes a lock away from this acquisition, wherever in the cluster it is. An acquisition that holds another lock keeps it. Its
    /// client is told; the lock is free once the client has released it, or when nothing promised to it is left.
    pub async fn release_by_force(&self, lock: &str, acquisition: Acquisition) -> Result<()> {
        let replies = self.query(Query::One(LockName::new(lock))).await?;
        let holds = |reply: &&Reply| {
            reply.table.iter().any(|lock| lock.holders.iter().any(|who| who.acquisition == acquisition))
        };
        match replies.iter().find(holds) {
            Some(reply) => self.release_by_force_at(reply.node.id, lock, acquisition).await,
            None => Err(Error::BadOption(format!(
                "{acquisition} does not hold `{lock}` at any member that answers"
            ))),
        }
    }

    /// The same, where the member that granted the hold is known.
    pub async fn release_by_force_at(
        &self,
        at: MemberId,
        lock: &str,
        acquisition: Acquisition,
    ) -> Result<()> {
        if at == self.id() {
            self.revoke_here(lock, acquisition);
            return Ok(());
        }
        let within = self.inner.config.times.round_trip * 4;
        let revoke = Question::Revoke(LockName::new(lock), acquisition);
        self.question(at, revoke, within).await.map(drop)
    }

    /// Takes a lock away from this acquisition of a client of this member.
    pub fn revoke_here(&self, lock: &str, acquisition: Acquisition) {
        self.inner.engine.revoke(LockName::new(lock), acquisition);
    }

    async fn question(&self, to: MemberId, question: Question, within: Duration) -> Result<Vec<u8>> {
        let addresses = self.inner.consensus.addresses();
        let address = addresses.borrow().get(&to).cloned().unwrap_or_default();
        let answer = self.inner.net.ask(to, &address, question.encode(), within).await;
        answer.map_err(|error| Error::Unavailable(format!("{to} cannot be reached: {error}")))
    }

    /// Asks whoever uses another member of the cluster; see [`answer_with`](Self::answer_with).
    pub async fn ask(&self, to: MemberId, question: Vec<u8>, within: Duration) -> Result<Vec<u8>> {
        self.question(to, Question::User(question), within).await
    }

    /// From now on, questions of those who use other members are answered so. Only the first call counts.
    pub fn answer_with(&self, answers: Weak<dyn Answers>) {
        let _ = self.inner.host.user.set(answers);
    }

    /// Begins to serve a client outside of this process: chooses its number, which is random and no other client's, and sends what
    /// concerns its sessions there.
    pub fn attach(&self, hears: Arc<dyn Hears>) -> Result<u64> {
        self.inner.engine.attach(hears)
    }

    /// The client is gone. Its sessions live on until their leases end.
    pub fn detach(&self, client: u64) {
        self.inner.engine.detach(client);
    }

    /// A message of an [attached](Self::attach) client. What other members have to hear of it leaves with [`flush`](Self::flush).
    pub fn say(&self, session: SessionId, said: ToMember) {
        self.inner.engine.say(session, said);
    }

    /// Sends what other members have to hear: in one write, however much was said.
    pub fn flush(&self) {
        self.inner.engine.flush();
    }

    /// Counts an entry of a client outside of this process, which waited for so long.
    pub fn entered(&self, waited: Duration) {
        let metrics = self.inner.engine.metrics();
        metrics.entries.inc();
        metrics.wait.observe(waited.as_secs_f64());
    }

    /// Counts the end of a hold of a client outside of this process, which lasted for so long.
    pub fn left(&self, held: Duration) {
        self.inner.engine.metrics().hold.observe(held.as_secs_f64());
    }

    /// How somebody holds this lock through this member, or waits for it, if anybody does.
    pub fn claimed(&self, name: &Arc<str>) -> Option<Claim> {
        self.inner.engine.claimed(&LockName::new(name.clone()))
    }

    /// Who holds and waits through this member alone: the locks that follow this name, in a table of about so many bytes; and how many
    /// more there are.
    pub fn table_page(&self, after: Option<LockName>, most_bytes: usize) -> (Table, u64) {
        self.inner.engine.table_page(after, most_bytes)
    }

    /// Who holds and waits through this member alone.
    pub fn table(&self) -> Table {
        self.table_page(None, usize::MAX).0
    }

    /// The locks of this member that have changed since the change of this number, as they are now, in one slice; and the number of the
    /// next change to read. `None` if changes so old are not known: then the whole table is to be read.
    pub fn table_changes(&self, from: u64) -> Option<(Table, u64)> {
        self.inner.engine.table_changes(from)
    }

    /// Who holds and waits for one lock through this member alone, in about so many bytes.
    pub fn table_row(&self, name: &str, most_bytes: usize) -> LockStatus {
        self.inner.engine.one(&LockName::new(name), most_bytes)
    }

    /// The number of the next change of this member's table.
    pub fn tables(&self) -> watch::Receiver<u64> {
        self.inner.engine.tables()
    }

    /// How many different locks the clients of this member may use at a time.
    pub fn most_own_locks(&self) -> usize {
        self.inner.engine.most_own_locks()
    }

    /// Where everybody who is known to the cluster is reached by members.
    pub fn addresses(&self) -> BTreeMap<MemberId, String> {
        self.inner.consensus.addresses().borrow().clone()
    }

    /// How it was started.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The settings that the cluster has decided, as far as this member knows; the configured ones before the first view.
    pub fn settings(&self) -> ClusterSettings {
        self.inner.engine.settings()
    }

    /// The length of a lease in this cluster.
    pub fn lease(&self) -> Duration {
        Duration::from_nanos(self.settings().lease_ns)
    }

    /// Changes the settings of the whole cluster: the leader decides a view with them, which starts once every lease of the
    /// views before could have expired at the members that it excludes. Returns when this member has that view. Holds survive.
    pub async fn change_settings(&self, changes: &[(String, String)]) -> Result<ClusterSettings> {
        let wanted = settings::change(&self.settings(), changes).map_err(Error::BadOption)?;
        let lease = Duration::from_nanos(wanted.lease_ns.max(self.settings().lease_ns));
        let deadline = tokio::time::Instant::now() + 4 * lease + Duration::from_secs(5);
        let mut trouble;
        loop {
            if self.settings() == wanted {
                return Ok(wanted);
            }
            trouble = self.ask_for_change(&wanted).await?;
            tokio::time::sleep(self.inner.config.times.renewal).await;
            if tokio::time::Instant::now() >= deadline {
                break;
            }
        }
        let why = trouble.unwrap_or_else(|| String::from("the view with these settings is not decided"));
        Err(Error::Unavailable(format!("the settings have not changed yet: {why}")))
    }

    /// Asks the leader once. Settings that it refuses are an error; a leader that is not there is trouble that may pass.
    async fn ask_for_change(&self, wanted: &ClusterSettings) -> Result<Option<String>> {
        let Some(leader) = self.voters().leader else {
            return Ok(Some(String::from(
                "no leader is known: a majority of the voters must reach each other",
            )));
        };
        let refused = if leader == self.id() {
            self.inner.engine.change(wanted.clone()).err()
        } else {
            let within = self.inner.config.times.round_trip * 4;
            match self.question(leader, Question::Change(wanted.clone()), within).await {
                Ok(answer) => {
                    Some(String::from_utf8_lossy(&answer).into_owned()).filter(|why| !why.is_empty())
                }
                Err(error) => return Ok(Some(error.to_string())),
            }
        };
        match refused {
            Some(why) if !why.contains("try again") => Err(Error::BadOption(why)),
            trouble => Ok(trouble),
        }
    }

    /// Gives a dead member up: it votes no more, and nobody waits for it. Needs a majority of the voters.
    pub async fn remove(&self, id: MemberId) -> Result<()> {
        Ok(self.inner.consensus.remove(id).await?)
    }

    /// Whether there is a connection to this member now.
    pub fn is_connected(&self, to: MemberId) -> bool {
        self.inner.net.is_connected(to)
    }

    /// Reads the certificates again. Connections that stand go on; new ones use the new certificates.
    pub fn reload_certificates(&self) -> Result<()> {
        match &self.inner.config.tls {
            Some(tls) => Ok(self.inner.net.reload_tls(tls)?),
            None => Ok(()),
        }
    }

    /// Puts the member's counters and histograms into a registry, which somebody serves.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.inner.engine.metrics().register(registry);
        registry.register_collector(Box::new(metrics::OfNet(Arc::downgrade(&self.inner.net))));
    }

    /// Leaves the cluster in order, and stops: nobody is let in here any more, holders may keep what they have for so long, and the others
    /// do not wait for this member's lease. It comes back by starting again.
    pub async fn leave(self, patience: Duration) {
        let mut changes = self.inner.engine.standings();
        self.inner.engine.leave_cluster(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        while self.standing().stopped.is_none() && changes.changed().await.is_ok() {}
        self.stop().await;
    }

    /// Stops at once, as a crash does but for what is on disk: the others wait for this member's lease. See
    /// [`leave`](Self::leave).
    pub async fn stop(self) {
        if let Some(stopping) = self.inner.stop("it was stopped") {
            stopping.await;
        }
    }
}

fn new_session(inner: &Arc<Inner>) -> Arc<Session> {
    let engine = inner.engine.clone();
    let margin_ns = engine.settings().lease_ns / 5;
    Arc::new(Session { client: engine.open(), engine, _member: inner.clone(), margin_ns })
}

/// Without consensus there are no views and no leases: the member stops too.
async fn end_with(consensus: Consensus, engine: Weak<dyn Engine>) {
    let why = consensus.failed().await;
    if let Some(engine) = engine.upgrade() {
        tracing::error!(%why, "the member stops");
        engine.stop(&why.to_string());
    }
}

/// Ends the network and consensus, once.
async fn end(net: Arc<Net>, consensus: Consensus, ended: Arc<tokio::sync::Mutex<bool>>) {
    let mut ended = ended.lock().await;
    if !std::mem::replace(&mut *ended, true) {
        net.stop().await;
        consensus.stop().await;
    }
}

/// A member whose state machine has failed must not go on voting: it could be elected, and would grant no lease to anybody.
fn end_with_engine(
    engine: Weak<dyn Engine>,
    net: Weak<Net>,
    consensus: &Consensus,
    ended: &Arc<tokio::sync::Mutex<bool>>,
) -> impl Future<Output = ()> + Send + use<> {
    let (consensus, ended) = (consensus.clone(), ended.clone());
    let changes = engine.upgrade().map(|engine| engine.standings());
    async move {
        let Some(mut changes) = changes else { return };
        loop {
            let Some(standing) = engine.upgrade().map(|engine| engine.standing()) else { return };
            if standing.failed {
                break;
            }
            if standing.stopped.is_some() || changes.changed().await.is_err() {
                return;
            }
        }
        if let Some(net) = net.upgrade() {
            end(net, consensus, ended).await;
        }
    }
}

/// Tells the member and the network who is known to the cluster, and where.
async fn follow(
    mut addresses: watch::Receiver<BTreeMap<MemberId, String>>,
    engine: Weak<dyn Engine>,
    net: Weak<Net>,
) {
    loop {
        let known = addresses.borrow_and_update().clone();
        let (Some(engine), Some(net)) = (engine.upgrade(), net.upgrade()) else { return };
        engine.peers(known.keys().copied().collect());
        net.set_addresses(known);
        drop((engine, net));
        if addresses.changed().await.is_err() {
            return;
        }
    }
}
