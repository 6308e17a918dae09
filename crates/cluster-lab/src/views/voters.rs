//! The smallest model of consensus that the member's port permits: it decides at once and notifies each member at
//! any later time.

/// The decisions of the voters, and how many of them each member knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voters {
    /// The term of the current leader.
    pub term: u64,
    /// The index of the leader.
    pub leader: usize,
    /// The decided views, in order, by number.
    pub decided: Vec<u32>,
    /// For each of them, the number of the table of recorded holds at its position in the log.
    pub tables: Vec<u32>,
    /// The number of the present table.
    pub table: u32,
    /// For each member, the number of views that it knows.
    pub notified: Vec<usize>,
    /// For each member, the leader that it knows.
    pub hint: Vec<Option<usize>>,
    /// For each member, the term in which it takes itself for the leader.
    pub leads: Vec<Option<u64>>,
}

impl Voters {
    /// Creates voters that have decided nothing, and a leader that does not know yet that it leads.
    pub fn new(members: usize, leader: usize) -> Self {
        Self {
            term: 1,
            leader,
            decided: Vec::new(),
            tables: Vec::new(),
            table: 0,
            notified: vec![0; members],
            hint: vec![None; members],
            leads: vec![None; members],
        }
    }

    /// Elects a leader in a new term.
    pub fn elect(&mut self, leader: usize) {
        self.term += 1;
        self.leader = leader;
    }

    /// Resets what a member knows, for a new incarnation.
    pub fn forget(&mut self, who: usize) {
        self.notified[who] = 0;
        self.hint[who] = None;
        self.leads[who] = None;
    }

    /// Whether there is a notification for this member.
    pub fn has_news_for(&self, who: usize) -> bool {
        let deposed = self.leads[who].is_some_and(|term| term < self.term);
        let led_by_another = self.leader != who && self.hint[who] != Some(self.leader);
        self.notified[who] < self.decided.len() || led_by_another || deposed
    }

    /// Whether this member leads and has not been notified of it.
    pub fn does_not_know_that_it_leads(&self, who: usize) -> bool {
        self.leader == who && self.leads[who] != Some(self.term)
    }

    /// Decides a view, with which the table changes.
    pub fn decide(&mut self, view: u32, table: u32) {
        self.decided.push(view);
        self.tables.push(table);
        self.table = table;
    }

    /// The views that a member does not know, with their tables. A new incarnation receives only the newest one.
    pub fn news_for(&mut self, who: usize) -> Vec<(u32, u32)> {
        let from =
            if self.notified[who] == 0 { self.decided.len().saturating_sub(1) } else { self.notified[who] };
        self.notified[who] = self.decided.len();
        let news = self.decided.iter().zip(&self.tables).skip(from);
        news.map(|(&view, &table)| (view, table)).collect()
    }
}
