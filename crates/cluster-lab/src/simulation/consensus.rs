//! A model of consensus, as the member's port describes it: safe by construction, and as unhelpful as real ones may be. It lags,
//! loses its leader, lets old leaders believe in themselves, forgets proposals, and tells members late.

use super::spec::MS;
use lockkeeper_lab::rng::Rng;
use lockkeeper_member::{PortEvent, PortRequest, View};

/// Who lacks more views than this is told of the newest only. Real ones keep more, so this is the unhelpful number.
const FAR_BEHIND: usize = 2;

/// What the model knows of the machines: which voters can work together.
pub trait Reach {
    /// Whether this machine runs.
    fn awake(&self, machine: usize) -> bool;
    /// Whether the two hear each other.
    fn linked(&self, one: usize, other: usize) -> bool;
}

/// What is to happen later, by the model's wish.
#[derive(Clone, Debug)]
pub enum Later {
    /// Looks at the leader's health.
    Look,
    /// A machine is told whatever it does not know.
    Tell(usize),
    /// The pending proposal is decided, or not.
    Commit(u64),
    /// A machine learns that it leads in this term.
    Lead(usize, u64),
    /// The voters are asked whether this machine leads.
    Ask { machine: usize, term: u64, question: u64 },
    /// The answer arrives.
    Answer { machine: usize, question: u64 },
    /// A voter that had lost its disk votes again.
    Readmit(usize),
}

/// The model.
#[derive(Clone, Debug)]
pub struct Consensus {
    rng: Rng,
    /// The voters: the first machines, at most seven.
    voters: usize,
    /// Which voters have their disk.
    votes: Vec<bool>,
    /// Who leaves, and leads only if nobody else can.
    unwilling: Vec<bool>,
    term: u64,
    leader: Option<usize>,
    unwell_since_ns: Option<u64>,
    decided: Vec<View>,
    pending: Option<View>,
    /// For each machine, how many views it knows, the leader it believes in, and the term in which it believes to lead.
    known: Vec<usize>,
    hint: Vec<Option<usize>>,
    believes: Vec<Option<u64>>,
    /// Whether some are told very late.
    pub late: bool,
    /// Wrong on purpose: decisions are not durable.
    pub forgets: bool,
    /// The number of the cluster: one more each time it is founded. Messages of an earlier one are dropped.
    pub cluster: u64,
    /// No voter knows of a cluster: one begins when all machines are there.
    founding: bool,
    /// The first epoch of the cluster is above this.
    epoch_floor: u64,
}

impl Consensus {
    /// Voters that have decided nothing yet.
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
            pending: None,
            known: vec![0; machines],
            hint: vec![None; machines],
            believes: vec![None; machines],
            late: false,
            forgets: false,
            cluster: 0,
            founding: true,
            epoch_floor: 0,
        }
    }

    /// Every view decided so far.
    pub fn decided(&self) -> &[View] {
        &self.decided
    }

    /// Whether this voter and a majority can work together.
    fn has_majority(&self, machine: usize, reach: &dyn Reach) -> bool {
        let votes = |voter: usize| self.votes[voter] && reach.awake(voter);
        let with = |&voter: &usize| votes(voter) && (voter == machine || reach.linked(machine, voter));
        machine < self.voters && votes(machine) && 2 * (0..self.voters).filter(with).count() > self.voters
    }

    fn soon(&mut self) -> u64 {
        let long = if self.rng.chance(0.1) { 90.0 } else { 6.0 };
        MS / 2 + (self.rng.exponential(long * MS as f64) as u64).min(400 * MS)
    }

    /// A new leader, if somebody can lead. What the old one had proposed may live on in the new one's log, or not.
    pub fn elect(&mut self, reach: &dyn Reach, later: &mut Vec<(u64, Later)>) {
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
        later.push((delay, Later::Lead(leader, self.term)));
        self.tell_all(later);
    }

    fn tell_all(&mut self, later: &mut Vec<(u64, Later)>) {
        for machine in 0..self.known.len() {
            let very_late = if self.late && self.rng.chance(0.04) {
                self.rng.below(2_500 * MS as usize) as u64
            } else {
                0
            };
            let delay = self.soon() + very_late;
            later.push((delay, Later::Tell(machine)));
        }
    }

    /// All disks are lost: nothing is known of any decision. The machines found another cluster, whose epochs begin above the
    /// floor.
    pub fn lose_all(&mut self, epoch_floor: u64) {
        self.cluster += 1;
        self.founding = true;
        self.epoch_floor = epoch_floor;
        self.decided.clear();
        self.pending = None;
        self.leader = None;
        self.unwell_since_ns = None;
        self.votes.fill(true);
        self.known.fill(0);
        self.hint.fill(None);
        self.believes.fill(None);
    }

    fn decide(&mut self, mut view: View, later: &mut Vec<(u64, Later)>) {
        if self.decided.is_empty() && self.epoch_floor > 0 {
            view.epoch = self.epoch_floor + 1;
            view.since.fill(view.epoch);
        }
        self.decided.push(view);
        self.tell_all(later);
    }

    /// A member begins another life: it must be told everything again.
    pub fn new_life(&mut self, machine: usize, later: &mut Vec<(u64, Later)>) {
        self.known[machine] = 0;
        self.unwilling[machine] = false;
        self.hint[machine] = None;
        self.believes[machine] = None;
        let delay = self.soon();
        later.push((delay, Later::Tell(machine)));
    }

    /// A machine starts again: without its disk it has no vote for a while.
    pub fn restarted(&mut self, machine: usize, wiped: bool, later: &mut Vec<(u64, Later)>) {
        self.new_life(machine, later);
        if wiped && machine < self.voters {
            self.votes[machine] = false;
            later.push((1_500 * MS, Later::Readmit(machine)));
        }
        // A leader that restarts is a leader no more.
        if self.leader == Some(machine) {
            self.leader = None;
        }
        if self.forgets && self.decided.len() > 1 {
            self.decided.pop();
            self.known.fill(0);
        }
    }

    /// A machine asks for something.
    pub fn request(
        &mut self,
        machine: usize,
        request: PortRequest,
        reach: &dyn Reach,
        later: &mut Vec<(u64, Later)>,
    ) {
        let delay = self.soon();
        match request {
            PortRequest::Propose(view) => {
                let leads = self.leader == Some(machine) && self.term == view.term;
                let next = view.epoch == self.decided.last().map_or(1, |last| last.epoch + 1);
                if leads && next && self.pending.is_none() && self.has_majority(machine, reach) {
                    let epoch = view.epoch;
                    self.pending = Some(view);
                    later.push((delay, Later::Commit(epoch)));
                }
            }
            PortRequest::Confirm { question, term } => {
                later.push((delay, Later::Ask { machine, term, question }))
            }
            // The leader stops leading, and the others notice after a while.
            PortRequest::StepDown { term } => {
                if self.leader == Some(machine) && self.term == term {
                    self.leader = None;
                    self.unwilling[machine] = true;
                }
            }
        }
    }

    /// Something that was to happen later. What a machine is told goes into `told`.
    pub fn happens(
        &mut self,
        now: u64,
        what: Later,
        reach: &dyn Reach,
        later: &mut Vec<(u64, Later)>,
        told: &mut Vec<(usize, PortEvent)>,
    ) {
        match what {
            Later::Look => self.look(now, reach, later),
            Later::Tell(machine) => self.tell(machine, reach, later, told),
            Later::Commit(epoch) => self.commit(epoch, reach, later),
            Later::Lead(machine, term) => self.lead(machine, term, reach, told),
            Later::Ask { machine, term, question } => {
                if self.leader == Some(machine) && self.term == term && self.has_majority(machine, reach) {
                    let delay = self.soon();
                    later.push((delay, Later::Answer { machine, question }));
                }
            }
            Later::Answer { machine, question } => told.push((machine, PortEvent::Confirmed { question })),
            Later::Readmit(machine) => self.votes[machine] = true,
        }
    }

    fn look(&mut self, now: u64, reach: &dyn Reach, later: &mut Vec<(u64, Later)>) {
        later.push((40 * MS, Later::Look));
        if let Some(leader) = self.leader.filter(|&leader| self.has_majority(leader, reach)) {
            self.unwell_since_ns = None;
            if self.believes[leader] != Some(self.term) {
                later.push((0, Later::Lead(leader, self.term)));
            }
            return;
        }
        let since = *self.unwell_since_ns.get_or_insert(now);
        if now >= since + (120 + self.rng.below(120) as u64) * MS {
            self.elect(reach, later);
        }
    }

    fn commit(&mut self, epoch: u64, reach: &dyn Reach, later: &mut Vec<(u64, Later)>) {
        let Some(view) = self.pending.take_if(|view| view.epoch == epoch) else { return };
        let able = self.leader.is_some_and(|leader| self.has_majority(leader, reach));
        // A leader without a majority goes on trying.
        if able && view.term == self.term {
            self.decide(view, later);
        } else if view.term == self.term {
            self.pending = Some(view);
            let delay = self.soon();
            later.push((delay, Later::Commit(epoch)));
        }
    }

    /// Tells a machine what it does not know, if it hears from anybody who does.
    fn tell(
        &mut self,
        machine: usize,
        reach: &dyn Reach,
        later: &mut Vec<(u64, Later)>,
        told: &mut Vec<(usize, PortEvent)>,
    ) {
        let hears =
            |leader: usize| reach.awake(machine) && (leader == machine || reach.linked(leader, machine));
        let Some(leader) = self.leader.filter(|&leader| hears(leader)) else {
            later.push((100 * MS, Later::Tell(machine)));
            return;
        };
        self.catch_up(machine, told);
        if self.believes[machine].is_some_and(|term| term < self.term) {
            self.believes[machine] = None;
            told.push((machine, PortEvent::Deposed));
        }
        if self.hint[machine] != Some(leader) {
            self.hint[machine] = Some(leader);
            let id = lockkeeper_member::MemberId(leader as u32 + 1);
            told.push((machine, PortEvent::Leader(Some(id))));
        }
    }

    fn catch_up(&mut self, machine: usize, told: &mut Vec<(usize, PortEvent)>) {
        // Whoever starts, or is far behind, gets a snapshot: the newest view is enough.
        let behind = self.decided.len() - self.known[machine];
        let snapshot = self.known[machine] == 0 || behind > FAR_BEHIND;
        let from = if snapshot { self.decided.len().saturating_sub(1) } else { self.known[machine] };
        let news = self.decided.get(from..).unwrap_or_default();
        told.extend(news.iter().map(|view| (machine, PortEvent::Decided(view.clone()))));
        self.known[machine] = self.decided.len();
    }

    fn lead(&mut self, machine: usize, term: u64, reach: &dyn Reach, told: &mut Vec<(usize, PortEvent)>) {
        let new = self.believes[machine] != Some(term);
        if new && self.leader == Some(machine) && self.term == term && reach.awake(machine) {
            self.catch_up(machine, told);
            self.believes[machine] = Some(term);
            self.hint[machine] = Some(machine);
            told.push((machine, PortEvent::Leading { term }));
        }
    }
}
