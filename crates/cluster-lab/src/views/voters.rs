//! Consensus, as small as the member's port lets it be: it decides at once, and tells each member whenever it likes.

/// What the voters have decided, and what each member has heard of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voters {
    /// The term of the present leader.
    pub term: u64,
    /// Who leads.
    pub leader: usize,
    /// Every view, in order, by its number.
    pub decided: Vec<u32>,
    /// For each member: how many views it has heard of.
    pub heard: Vec<usize>,
    /// Where it believes the leader to be.
    pub hint: Vec<Option<usize>>,
    /// In which term it believes to lead.
    pub leads: Vec<Option<u64>>,
}

impl Voters {
    /// Voters that have decided nothing, with a leader that has not been told.
    pub fn new(members: usize, leader: usize) -> Self {
        Self {
            term: 1,
            leader,
            decided: Vec::new(),
            heard: vec![0; members],
            hint: vec![None; members],
            leads: vec![None; members],
        }
    }

    /// Another leader, in a new term.
    pub fn elect(&mut self, leader: usize) {
        self.term += 1;
        self.leader = leader;
    }

    /// A member that knows nothing yet.
    pub fn forget(&mut self, who: usize) {
        self.heard[who] = 0;
        self.hint[who] = None;
        self.leads[who] = None;
    }

    /// Whether there is something that a member has not heard.
    pub fn has_news_for(&self, who: usize) -> bool {
        let deposed = self.leads[who].is_some_and(|term| term < self.term);
        let led_by_another = self.leader != who && self.hint[who] != Some(self.leader);
        self.heard[who] < self.decided.len() || led_by_another || deposed
    }

    /// Whether it leads and has not been told.
    pub fn has_not_heard_that_it_leads(&self, who: usize) -> bool {
        self.leader == who && self.leads[who] != Some(self.term)
    }

    /// The views that a member has not heard of. Whoever starts begins with the newest one.
    pub fn news_for(&mut self, who: usize) -> Vec<u32> {
        let from = if self.heard[who] == 0 { self.decided.len().saturating_sub(1) } else { self.heard[who] };
        self.heard[who] = self.decided.len();
        self.decided[from..].to_vec()
    }
}
