//! Clusters for tests: members with real stores on disks in memory, connected by a network that can be partitioned.

use super::super::*;
use crate::store::testing::Disk;
use lockkeeper_member::RecordOutcome;
use lockkeeper_member::history::{HistoryEvent, HistoryRecord};
use lockkeeper_member::{Node, PortEvent};

pub const HEARTBEAT: Duration = Duration::from_millis(50);
pub const ELECTION: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(300));
/// Timeout in virtual time, long after everything should have happened.
const TIMEOUT: Duration = Duration::from_secs(120);

pub fn id(number: u32) -> MemberId {
    MemberId(number)
}

/// The address of a member in the tests' network.
pub fn address(member: MemberId) -> String {
    format!("at-{member}")
}

/// The network between the members.
#[derive(Default)]
pub struct Hub {
    members: Mutex<BTreeMap<String, (MemberId, Consensus)>>,
    cut: Mutex<BTreeSet<(MemberId, MemberId)>>,
    sent: AtomicU64,
}

impl Hub {
    fn carries(&self, from: MemberId, to: MemberId) -> bool {
        !self.cut.lock().unwrap().contains(&(from, to))
    }

    fn send_query(self: &Arc<Self>, from: MemberId, to: &str, query: Vec<u8>) -> PendingReply {
        let (hub, to) = (self.clone(), to.to_string());
        // A delay of one to five milliseconds each way that varies from query to query.
        let delay = Duration::from_millis(1 + self.sent.fetch_add(1, Ordering::Relaxed) * 7 % 5);
        Box::pin(async move {
            let lost = || QueryFailed("lost".to_string());
            tokio::time::sleep(delay).await;
            let (member, consensus) = hub.members.lock().unwrap().get(&to).cloned().ok_or_else(lost)?;
            if !hub.carries(from, member) {
                return Err(lost());
            }
            // A query that has arrived is handled even if its sender no longer waits.
            let dealing = tokio::spawn(async move { consensus.handle_query(from, &query).await });
            let handle_query = dealing.await.map_err(|_| lost())?;
            tokio::time::sleep(delay).await;
            if hub.carries(member, from) { Ok(handle_query) } else { Err(lost()) }
        })
    }
}

struct HubTransport {
    hub: Arc<Hub>,
    me: MemberId,
}

impl QueryTransport for HubTransport {
    fn send_query(&self, _to: MemberId, address: &str, query: Vec<u8>, _within: Duration) -> PendingReply {
        self.hub.send_query(self.me, address, query)
    }

    fn send_query_to_address(&self, address: &str, query: Vec<u8>, _within: Duration) -> PendingReply {
        self.hub.send_query(self.me, address, query)
    }
}

/// The events that a member has received in its present incarnation.
#[derive(Clone, Debug, Default)]
pub struct ReceivedEvents {
    pub views: Vec<View>,
    pub leading: Option<u64>,
    pub leader: Option<MemberId>,
    pub confirmed: Vec<u64>,
    pub written: Vec<(u64, Vec<RecordOutcome>)>,
}

/// A cluster under test.
pub struct Cluster {
    pub hub: Arc<Hub>,
    pub first: BTreeMap<MemberId, String>,
    pub disks: BTreeMap<MemberId, Disk>,
    pub running: BTreeMap<MemberId, Consensus>,
    pub received: Arc<Mutex<BTreeMap<MemberId, ReceivedEvents>>>,
    pub history: Arc<Mutex<Vec<HistoryRecord>>>,
    pub most_voters: usize,
    pub epoch_above: u64,
    /// The settings in the members' configuration.
    pub shared: lockkeeper_member::ClusterSettings,
}

impl Cluster {
    /// Creates a cluster without running members; its first members are 1 to `first`.
    pub fn new(first: u32) -> Self {
        Self {
            hub: Arc::default(),
            first: (1..=first).map(|number| (id(number), address(id(number)))).collect(),
            disks: BTreeMap::new(),
            running: BTreeMap::new(),
            received: Arc::default(),
            history: Arc::default(),
            most_voters: 5,
            epoch_above: 0,
            shared: lockkeeper_member::ClusterSettings::default(),
        }
    }

    /// Starts members 1 to `members`, which found a cluster.
    pub async fn started(members: u32) -> Self {
        let mut cluster = Self::new(members);
        for number in 1..=members {
            cluster.start(number).await;
        }
        cluster
    }

    pub fn settings(&self, number: u32) -> Settings {
        let first = self.first.contains_key(&id(number));
        Settings {
            me: id(number),
            address: address(id(number)),
            first_members: if first { self.first.clone() } else { BTreeMap::new() },
            join: if first { Vec::new() } else { self.first.values().cloned().collect() },
            directory: PathBuf::new(),
            heartbeat: HEARTBEAT,
            election: ELECTION,
            most_voters: self.most_voters,
            epoch_above: self.epoch_above,
            cluster: self.shared.clone(),
        }
    }

    pub fn callback(&self, member: MemberId) -> EventCallback {
        let (received, history) = (self.received.clone(), self.history.clone());
        Arc::new(move |event: PortEvent| {
            history
                .lock()
                .unwrap()
                .push(HistoryRecord { member, event: HistoryEvent::Notified(event.clone()) });
            let mut received = received.lock().unwrap();
            let received = received.entry(member).or_default();
            match event {
                PortEvent::Decided { view, .. } => received.views.push(view),
                PortEvent::Leading { term } => received.leading = Some(term),
                PortEvent::Deposed => received.leading = None,
                PortEvent::Confirmed { number: query } => received.confirmed.push(query),
                PortEvent::Leader(leader) => received.leader = leader,
                PortEvent::Written { sequence, outcomes, .. } => received.written.push((sequence, outcomes)),
            }
        })
    }

    pub fn transport(&self, member: MemberId) -> Arc<dyn QueryTransport> {
        Arc::new(HubTransport { hub: self.hub.clone(), me: member })
    }

    /// Starts a member with its disk, or with an empty one if it has none.
    pub async fn start(&mut self, number: u32) {
        let settings = self.settings(number);
        self.start_with(settings).await;
    }

    pub async fn start_with(&mut self, settings: Settings) {
        let (member, address) = (settings.me, settings.address.clone());
        let disk = self.disks.entry(member).or_insert_with(Disk::new);
        let store = Store::open_on(disk.clone(), member).unwrap();
        self.received.lock().unwrap().insert(member, ReceivedEvents::default());
        self.history.lock().unwrap().push(HistoryRecord { member, event: HistoryEvent::Begins });
        let (transport, callback) = (self.transport(member), self.callback(member));
        let consensus = Consensus::start_on(store, settings, transport, callback).await.unwrap();
        self.hub.members.lock().unwrap().insert(address, (member, consensus.clone()));
        self.running.insert(member, consensus);
    }

    /// Starts a new incarnation of a member in the same process.
    pub fn new_incarnation(&self, number: u32) {
        self.received.lock().unwrap().insert(id(number), ReceivedEvents::default());
        self.history
            .lock()
            .unwrap()
            .push(HistoryRecord { member: id(number), event: HistoryEvent::NewIncarnation });
        self.at(number).repeat_events();
    }

    /// Ends a member's process at once: it sends and answers nothing any more.
    pub async fn kill(&mut self, number: u32) {
        self.hub.members.lock().unwrap().remove(&address(id(number)));
        if let Some(consensus) = self.running.remove(&id(number)) {
            consensus.stop().await;
        }
    }

    pub fn lose_disk(&mut self, number: u32) {
        assert!(!self.running.contains_key(&id(number)), "stop it first");
        self.disks.remove(&id(number));
    }

    /// Cuts all links between these members and the others.
    pub fn cut_off(&self, some: &[u32]) {
        let some: BTreeSet<MemberId> = some.iter().map(|&number| id(number)).collect();
        let mut cut = self.hub.cut.lock().unwrap();
        for &one in &some {
            for other in (1..=9).map(id).filter(|other| !some.contains(other)) {
                cut.extend([(one, other), (other, one)]);
            }
        }
    }

    pub fn heal(&self) {
        self.hub.cut.lock().unwrap().clear();
    }

    pub fn at(&self, number: u32) -> &Consensus {
        &self.running[&id(number)]
    }

    pub fn received(&self, number: u32) -> ReceivedEvents {
        self.received.lock().unwrap().get(&id(number)).cloned().unwrap_or_default()
    }

    /// The member that leads in the highest term, as far as members were notified.
    pub fn leader(&self) -> Option<(u32, u64)> {
        let received = self.received.lock().unwrap();
        let leaders = received.iter().filter(|(member, _)| self.running.contains_key(member));
        leaders
            .filter_map(|(member, received)| received.leading.map(|term| (member.0, term)))
            .max_by_key(|&(_, term)| term)
    }

    /// Waits until a condition is true, in virtual time.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = tokio::time::Instant::now();
        while !is_so(self) {
            let statuses: Vec<Status> = self.running.values().map(Consensus::status).collect();
            assert!(begin.elapsed() < TIMEOUT, "never: {what}\n{statuses:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for a leader that all running members know, and returns it.
    pub async fn led(&self) -> u32 {
        self.until("a leader", |cluster| {
            let leader = cluster.leader().map(|(number, _)| id(number));
            leader.is_some()
                && cluster.running.keys().all(|member| cluster.received(member.0).leader == leader)
        })
        .await;
        self.leader().unwrap().0
    }

    /// The view that this leader would propose next.
    pub fn next_view(&self, number: u32) -> Option<View> {
        let received = self.received(number);
        let term = received.leading?;
        let epoch = received.views.last().map_or(1, |view| view.epoch + 1);
        let me = Node { id: id(number), incarnation: 1 };
        Some(View::of_one(epoch, term, me))
    }

    pub fn propose(&self, number: u32, view: View) {
        let what = HistoryEvent::Proposes(view.clone());
        self.history.lock().unwrap().push(HistoryRecord { member: id(number), event: what });
        self.at(number).propose(view);
    }

    pub fn confirm(&self, number: u32, query: u64, term: u64) {
        let what = HistoryEvent::RequestsConfirmation { number: query, term };
        self.history.lock().unwrap().push(HistoryRecord { member: id(number), event: what });
        self.at(number).confirm(query, term);
    }

    /// Makes the leader decide a view, and waits until all running members know it.
    pub async fn decide(&self) -> View {
        let view = loop {
            let leader = self.led().await;
            let Some(view) = self.next_view(leader) else { continue };
            self.propose(leader, view.clone());
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self
                .received(leader)
                .views
                .iter()
                .any(|decided| decided.term == view.term && decided.epoch >= view.epoch)
            {
                break self.received(leader).views.last().cloned().unwrap();
            }
        };
        self.all_know(view.epoch).await;
        view
    }

    pub async fn all_know(&self, epoch: u64) {
        self.until(&format!("every member knows epoch {epoch}"), |cluster| {
            cluster
                .running
                .keys()
                .all(|member| cluster.received(member.0).views.last().is_some_and(|view| view.epoch >= epoch))
        })
        .await;
    }

    /// Waits until exactly these members are voters, as seen by all running members.
    pub async fn voters(&self, numbers: &[u32]) {
        let voters: BTreeSet<MemberId> = numbers.iter().map(|&number| id(number)).collect();
        self.until(&format!("voters {numbers:?}"), |cluster| {
            cluster.running.values().all(|consensus| consensus.status().voters == voters)
        })
        .await;
    }

    /// Checks that the recorded history is accepted by the lab's model.
    pub fn accepted(&self) {
        let history = self.history.lock().unwrap();
        if let Err(why) = lockkeeper_member::history::accepts(&history) {
            panic!("the model does not allow this history: {why}");
        }
    }
}
