//! A model of consensus behind the member's port. It is safe by construction and behaves as badly as a real
//! implementation may: it lags, loses its leader, lets an old leader take itself for the leader, drops proposals,
//! and notifies members late.

use super::spec::MS;
use lockkeeper_lab::simulator::rng::Rng;
use lockkeeper_member::{
    BugSwitch, HoldRecord, HoldTable, Node, PortEvent, PortRequest, RecordOutcome, RecordWrite, View,
};

/// A member that lacks more views than this receives only the newest one, as from a snapshot. Real implementations
/// keep more, so a small number is the harder case.
const FAR_BEHIND: usize = 2;

/// The state of machines and links, from which the model derives which voters can form a majority.
pub trait Reach {
    /// Whether this machine runs.
    fn awake(&self, machine: usize) -> bool;
    /// Whether the two can exchange messages.
    fn linked(&self, one: usize, other: usize) -> bool;
}

/// An event that the model has scheduled.
#[derive(Clone, Debug)]
pub enum ConsensusEvent {
    /// Checks whether the leader still has a majority.
    CheckMajority,
    /// Notifies a machine of everything that it does not know yet.
    Notify(usize),
    /// The pending proposal is decided, if the leader still has a majority.
    Commit(u64),
    /// A machine learns that it leads in this term.
    Lead(usize, u64),
    /// The query whether this machine leads reaches the voters.
    Confirm { machine: usize, term: u64, number: u64 },
    /// Their confirmation reaches the machine.
    Confirmed { machine: usize, number: u64 },
    /// A voter that has lost its disk gets its vote back.
    Readmit(usize),
    /// A write of this machine's member is applied, if the leader has a majority.
    Apply { machine: usize, write: RecordWrite },
    /// The answer to a write reaches the machine.
    Applied { machine: usize, home: Node, sequence: u64, outcomes: Vec<RecordOutcome> },
}

/// Describes a write that was accepted although its home is not a member of the newest view, in the epoch of the write.
fn wrong_write(write: &RecordWrite, newest: &View, outcomes: &[RecordOutcome]) -> Option<String> {
    let present = newest.has(write.home) && newest.epoch == write.epoch;
    let accepted =
        |outcome: &RecordOutcome| matches!(outcome, RecordOutcome::Recorded | RecordOutcome::Ended);
    (!present && outcomes.iter().any(accepted)).then(|| {
        let (home, epoch) = (write.home, write.epoch);
        format!(
            "the table accepts a write of {home} in epoch {epoch}, and the newest view is of epoch {}",
            newest.epoch
        )
    })
}

/// The state of the model of consensus.
#[derive(Clone, Debug)]
pub struct Consensus {
    rng: Rng,
    /// The voters: the first machines, at most seven.
    voters: usize,
    /// For each machine, whether it has a vote: a voter that has lost its disk has none for a while.
    votes: Vec<bool>,
    /// For each machine, whether it is leaving. It then leads only if no other voter can.
    unwilling: Vec<bool>,
    term: u64,
    leader: Option<usize>,
    unwell_since_ns: Option<u64>,
    decided: Vec<View>,
    /// The table of recorded holds, and its adopted records at the position of each decided view.
    pub table: HoldTable,
    adopted: Vec<Vec<HoldRecord>>,
    pending: Option<View>,
    /// For each machine: the number of views that it knows, the leader that it knows, and the term in which it takes
    /// itself for the leader.
    known: Vec<usize>,
    hint: Vec<Option<usize>>,
    believes: Vec<Option<u64>>,
    /// Whether some notifications are delayed by seconds.
    pub late: bool,
    /// Bug switch: decisions are not durable.
    pub forgets: bool,
    /// A bug switch of the table.
    pub bug: Option<BugSwitch>,
    /// Describes a write that the table has accepted although it is not of a member of the newest view in its epoch.
    pub wrong_write: Option<String>,
    /// The number of the cluster, incremented each time it is founded. Messages of an earlier cluster are dropped.
    pub cluster: u64,
    /// Whether no voter knows of a cluster. A cluster is founded once all machines run.
    founding: bool,
    /// The first epoch of the cluster is above this.
    epoch_floor: u64,
}

impl Consensus {
    /// Creates voters that have decided nothing.
    pub fn new(machines: usize, rng: Rng) -> Self {
        let voters = machines.min(7);
        Self {
            rng,
            voters,
            votes: vec![true; machines],
            unwilling: vec![false; machines],
            term: 0,
            leader: None,
            unwell_since_ns: None,
            decided: Vec::new(),
            table: HoldTable::default(),
            adopted: Vec::new(),
            pending: None,
            known: vec![0; machines],
            hint: vec![None; machines],
            believes: vec![None; machines],
            late: false,
            forgets: false,
            bug: None,
            wrong_write: None,
            cluster: 0,
            founding: true,
            epoch_floor: 0,
        }
    }

    /// All views decided so far.
    pub fn decided(&self) -> &[View] {
        &self.decided
    }

    /// Whether this voter belongs to a majority that can communicate.
    fn has_majority(&self, machine: usize, reach: &dyn Reach) -> bool {
        let votes = |voter: usize| self.votes[voter] && reach.awake(voter);
        let with = |&voter: &usize| votes(voter) && (voter == machine || reach.linked(machine, voter));
        machine < self.voters && votes(machine) && 2 * (0..self.voters).filter(with).count() > self.voters
    }

    fn soon(&mut self) -> u64 {
        let long = if self.rng.chance(0.1) { 90.0 } else { 6.0 };
        MS / 2 + (self.rng.exponential(long * MS as f64) as u64).min(400 * MS)
    }

    /// Elects a new leader, if a voter has a majority. A pending proposal of the old leader is decided in half of
    /// the cases, as if it were in the log of the new one.
    pub fn elect(&mut self, reach: &dyn Reach, later: &mut Vec<(u64, ConsensusEvent)>) {
        let mut able: Vec<usize> =
            (0..self.voters).filter(|&voter| self.has_majority(voter, reach)).collect();
        let incomplete = self.founding && !(0..self.known.len()).all(|machine| reach.awake(machine));
        if able.is_empty() || incomplete {
            self.leader = None;
            return;
        }
        self.founding = false;
        if able.iter().any(|&voter| !self.unwilling[voter]) {
            able.retain(|&voter| !self.unwilling[voter]);
        }
        let leader = *self.rng.pick(&able);
        self.term += 1;
        self.leader = Some(leader);
        self.unwell_since_ns = None;
        if let Some(view) = self.pending.take().filter(|_| self.rng.chance(0.5)) {
            self.decide(view, later);
        }
        let delay = self.soon();
        later.push((delay, ConsensusEvent::Lead(leader, self.term)));
        self.notify_all(later);
    }

    fn notify_all(&mut self, later: &mut Vec<(u64, ConsensusEvent)>) {
        for machine in 0..self.known.len() {
            let very_late = if self.late && self.rng.chance(0.04) {
                self.rng.below(2_500 * MS as usize) as u64
            } else {
                0
            };
            let delay = self.soon() + very_late;
            later.push((delay, ConsensusEvent::Notify(machine)));
        }
    }

    /// Loses all disks and therefore all decisions. The machines found a new cluster, whose epochs begin above the
    /// floor.
    pub fn lose_all(&mut self, epoch_floor: u64) {
        self.cluster += 1;
        self.founding = true;
        self.epoch_floor = epoch_floor;
        self.decided.clear();
        self.table = HoldTable::default();
        self.adopted.clear();
        self.pending = None;
        self.leader = None;
        self.unwell_since_ns = None;
        self.votes.fill(true);
        self.known.fill(0);
        self.hint.fill(None);
        self.believes.fill(None);
    }

    fn decide(&mut self, mut view: View, later: &mut Vec<(u64, ConsensusEvent)>) {
        if self.decided.is_empty() && self.epoch_floor > 0 {
            view.epoch = self.epoch_floor + 1;
            view.since.fill(view.epoch);
        }
        self.table.apply_view_with(&view, self.bug);
        self.adopted.push(self.table.adopted());
        self.decided.push(view);
        self.notify_all(later);
    }

    /// Resets what a machine knows: its member has begun a new incarnation, which must be notified of everything again.
    pub fn new_incarnation(&mut self, machine: usize, later: &mut Vec<(u64, ConsensusEvent)>) {
        self.known[machine] = 0;
        self.unwilling[machine] = false;
        self.hint[machine] = None;
        self.believes[machine] = None;
        let delay = self.soon();
        later.push((delay, ConsensusEvent::Notify(machine)));
    }

    /// Handles the restart of a machine. Without its disk it has no vote for a while.
    pub fn restarted(&mut self, machine: usize, wiped: bool, later: &mut Vec<(u64, ConsensusEvent)>) {
        self.new_incarnation(machine, later);
        if wiped && machine < self.voters {
            self.votes[machine] = false;
            later.push((1_500 * MS, ConsensusEvent::Readmit(machine)));
        }
        // A leader that restarts has to be elected again.
        if self.leader == Some(machine) {
            self.leader = None;
        }
        if self.forgets && self.decided.len() > 1 {
            self.decided.pop();
            self.adopted.pop();
            self.known.fill(0);
        }
    }

    /// Handles a request of a machine.
    pub fn request(
        &mut self,
        machine: usize,
        request: PortRequest,
        reach: &dyn Reach,
        later: &mut Vec<(u64, ConsensusEvent)>,
    ) {
        let delay = self.soon();
        match request {
            PortRequest::Propose(view) => {
                let leads = self.leader == Some(machine) && self.term == view.term;
                let next = view.epoch == self.decided.last().map_or(1, |last| last.epoch + 1);
                if leads && next && self.pending.is_none() && self.has_majority(machine, reach) {
                    let epoch = view.epoch;
                    self.pending = Some(view);
                    later.push((delay, ConsensusEvent::Commit(epoch)));
                }
            }
            PortRequest::Confirm { number, term } => {
                later.push((delay, ConsensusEvent::Confirm { machine, term, number }))
            }
            PortRequest::Write(write) => {
                let reached = |leader: usize| leader == machine || reach.linked(machine, leader);
                if !self.leader.is_some_and(reached) {
                    return;
                }
                // A write whose answer is late is repeated, and both may be applied, the first one much later.
                if self.rng.chance(0.05) {
                    let late = delay + self.rng.below(1_500 * MS as usize) as u64;
                    later.push((late, ConsensusEvent::Apply { machine, write: write.clone() }));
                }
                if !self.rng.chance(0.03) {
                    later.push((delay, ConsensusEvent::Apply { machine, write }));
                }
            }
            // The leader stops leading, and the other voters notice after a while.
            PortRequest::StepDown { term } => {
                if self.leader == Some(machine) && self.term == term {
                    self.leader = None;
                    self.unwilling[machine] = true;
                }
            }
        }
    }

    /// Handles a scheduled event. Notifications to machines are appended to `notifications`.
    pub fn happens(
        &mut self,
        now: u64,
        what: ConsensusEvent,
        reach: &dyn Reach,
        later: &mut Vec<(u64, ConsensusEvent)>,
        notifications: &mut Vec<(usize, PortEvent)>,
    ) {
        match what {
            ConsensusEvent::CheckMajority => self.check_majority(now, reach, later),
            ConsensusEvent::Notify(machine) => self.notify(machine, reach, later, notifications),
            ConsensusEvent::Commit(epoch) => self.commit(epoch, reach, later),
            ConsensusEvent::Lead(machine, term) => self.lead(machine, term, reach, notifications),
            ConsensusEvent::Confirm { machine, term, number } => {
                if self.leader == Some(machine) && self.term == term && self.has_majority(machine, reach) {
                    let delay = self.soon();
                    later.push((delay, ConsensusEvent::Confirmed { machine, number }));
                }
            }
            ConsensusEvent::Confirmed { machine, number } => {
                notifications.push((machine, PortEvent::Confirmed { number }))
            }
            ConsensusEvent::Readmit(machine) => self.votes[machine] = true,
            ConsensusEvent::Apply { machine, write } => {
                let able = self.leader.is_some_and(|leader| self.has_majority(leader, reach));
                let Some(newest) = self.decided.last().filter(|_| able) else { return };
                let outcomes = self.table.apply_with(&write, newest, self.bug);
                self.wrong_write = wrong_write(&write, newest, &outcomes).or(self.wrong_write.take());
                let RecordWrite { home, sequence, .. } = write;
                let delay = self.soon();
                if !self.rng.chance(0.05) {
                    later.push((delay, ConsensusEvent::Applied { machine, home, sequence, outcomes }));
                }
            }
            ConsensusEvent::Applied { machine, home, sequence, outcomes } => {
                notifications.push((machine, PortEvent::Written { home, sequence, outcomes }));
            }
        }
    }

    fn check_majority(&mut self, now: u64, reach: &dyn Reach, later: &mut Vec<(u64, ConsensusEvent)>) {
        later.push((40 * MS, ConsensusEvent::CheckMajority));
        if let Some(leader) = self.leader.filter(|&leader| self.has_majority(leader, reach)) {
            self.unwell_since_ns = None;
            if self.believes[leader] != Some(self.term) {
                later.push((0, ConsensusEvent::Lead(leader, self.term)));
            }
            return;
        }
        let since = *self.unwell_since_ns.get_or_insert(now);
        if now >= since + (120 + self.rng.below(120) as u64) * MS {
            self.elect(reach, later);
        }
    }

    fn commit(&mut self, epoch: u64, reach: &dyn Reach, later: &mut Vec<(u64, ConsensusEvent)>) {
        let Some(view) = self.pending.take_if(|view| view.epoch == epoch) else { return };
        let able = self.leader.is_some_and(|leader| self.has_majority(leader, reach));
        // A leader without a majority keeps trying.
        if able && view.term == self.term {
            self.decide(view, later);
        } else if view.term == self.term {
            self.pending = Some(view);
            let delay = self.soon();
            later.push((delay, ConsensusEvent::Commit(epoch)));
        }
    }

    /// Notifies a machine of what it does not know, if the leader can reach it.
    fn notify(
        &mut self,
        machine: usize,
        reach: &dyn Reach,
        later: &mut Vec<(u64, ConsensusEvent)>,
        notifications: &mut Vec<(usize, PortEvent)>,
    ) {
        let reaches =
            |leader: usize| reach.awake(machine) && (leader == machine || reach.linked(leader, machine));
        let Some(leader) = self.leader.filter(|&leader| reaches(leader)) else {
            later.push((100 * MS, ConsensusEvent::Notify(machine)));
            return;
        };
        self.catch_up(machine, notifications);
        if self.believes[machine].is_some_and(|term| term < self.term) {
            self.believes[machine] = None;
            notifications.push((machine, PortEvent::Deposed));
        }
        if self.hint[machine] != Some(leader) {
            self.hint[machine] = Some(leader);
            let id = lockkeeper_member::MemberId(leader as u32 + 1);
            notifications.push((machine, PortEvent::Leader(Some(id))));
        }
    }

    fn catch_up(&mut self, machine: usize, notifications: &mut Vec<(usize, PortEvent)>) {
        // A machine that has just started, or lacks many views, receives a snapshot, which consists of the newest
        // view.
        let behind = self.decided.len() - self.known[machine];
        let snapshot = self.known[machine] == 0 || behind > FAR_BEHIND;
        let from = if snapshot { self.decided.len().saturating_sub(1) } else { self.known[machine] };
        let news = self.decided.get(from..).unwrap_or_default();
        for (view, adopted) in news.iter().zip(&self.adopted[from.min(self.adopted.len())..]) {
            let coordinates = view.coordinator.id.0 as usize == machine + 1;
            let adopted = if coordinates { adopted.clone() } else { Vec::new() };
            notifications.push((machine, PortEvent::Decided { view: view.clone(), adopted }));
        }
        self.known[machine] = self.decided.len();
    }

    fn lead(
        &mut self,
        machine: usize,
        term: u64,
        reach: &dyn Reach,
        notifications: &mut Vec<(usize, PortEvent)>,
    ) {
        let new = self.believes[machine] != Some(term);
        if new && self.leader == Some(machine) && self.term == term && reach.awake(machine) {
            self.catch_up(machine, notifications);
            self.believes[machine] = Some(term);
            self.hint[machine] = Some(machine);
            notifications.push((machine, PortEvent::Leading { term }));
        }
    }
}
