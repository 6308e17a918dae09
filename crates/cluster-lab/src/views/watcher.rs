//! What must hold while views change. It sees every member at once, and changes nothing.

use super::bounds::is_reader;
use crate::Promise;

/// A lock that a client may be using.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// At which member.
    pub who: usize,
    /// In which of its lives.
    pub life: u64,
    /// If that life is over: until when its lease runs, on its own clock.
    pub until: Option<u64>,
}

/// What was seen so far, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watcher {
    /// What clients may be using.
    pub holds: Vec<Hold>,
    /// Whose clients share, one bit each.
    readers: u32,
    highest_fence: u64,
    highest_alone: u64,
    started: Vec<u64>,
    /// Of each member in its present life: the newest epoch that it reported for, and its report since it last started in a view.
    reports: Vec<(u64, Option<u32>)>,
}

/// What is wrong, in a sentence.
pub type Breach = (Promise, String);

impl Watcher {
    /// Of so many members, of which these have clients that share, one bit each.
    pub fn new(members: usize, readers: u32) -> Self {
        Self { reports: vec![(0, None); members], readers, ..Self::default() }
    }

    /// A member lets a client in. `others` are those that may still use the lock, `lease` is what the member has left.
    pub fn enters(
        &mut self,
        who: usize,
        life: u64,
        fence: (u64, u64),
        others: &[usize],
        lease: u64,
    ) -> Option<Breach> {
        let name = who + 1;
        self.holds.retain(|hold| hold.who != who);
        self.holds.push(Hold { who, life, until: None });
        let (epoch, number) = fence;
        let newest = self.started.iter().copied().max().unwrap_or(0).max(self.reports[who].0);
        let reads = is_reader(self.readers, who);
        let highest = if reads { self.highest_alone } else { self.highest_fence };
        self.highest_fence = self.highest_fence.max(number);
        if !reads {
            self.highest_alone = self.highest_alone.max(number);
        }
        if let Some(other) = others.iter().find(|&&other| !reads || !is_reader(self.readers, other)) {
            let what = format!("a client of M{name} enters while one of M{} may use the lock", other + 1);
            return Some((Promise::Exclusion, what));
        }
        if lease == 0 {
            return Some((Promise::Lease, format!("M{name} lets a client in without a lease")));
        }
        if number <= highest {
            return Some((
                Promise::Fences,
                format!("an entry at M{name} has a fence that is no larger than one before"),
            ));
        }
        if epoch < newest {
            let what = format!("M{name} lets a client in in epoch {epoch}, and epoch {newest} has begun");
            return Some((Promise::Wedge, what));
        }
        None
    }

    /// A coordinator starts an epoch. `leases` are members outside of it whose leases run.
    pub fn starts(&mut self, epoch: u64, newest: bool, leases: &[usize]) -> Option<Breach> {
        if self.started.contains(&epoch) {
            return Some((Promise::OneStart, format!("epoch {epoch} starts twice")));
        }
        self.started.push(epoch);
        self.started.sort_unstable();
        // A coordinator that slept may start a view that others have long followed: nobody in it has a lease.
        let outside = leases.first().filter(|_| newest)?;
        Some((
            Promise::LeasesOver,
            format!("epoch {epoch} starts while M{} has a lease and is not in it", outside + 1),
        ))
    }

    /// A member reports.
    pub fn reports(&mut self, who: usize, epoch: u64, report: u32) -> Option<Breach> {
        let (newest, before) = &mut self.reports[who];
        *newest = epoch.max(*newest);
        let changed = before.replace(report).is_some_and(|before| before != report);
        changed.then(|| (Promise::Report, format!("M{} reports something else than before", who + 1)))
    }

    /// A view starts at a member: from now on it may report something else.
    pub fn installs(&mut self, who: usize) {
        self.reports[who].1 = None;
    }

    /// A life of a member is over; its lease runs until then.
    pub fn ends(&mut self, who: usize, lease_until: u64) {
        self.reports[who] = (0, None);
        for hold in self.holds.iter_mut().filter(|hold| hold.who == who) {
            hold.until.get_or_insert(lease_until);
        }
    }

    /// Time has passed: what nobody can use any more is forgotten.
    pub fn forget_what_is_over(&mut self, clock: impl Fn(usize) -> u64) {
        self.holds.retain(|hold| hold.until.is_none_or(|until| until > clock(hold.who)));
    }
}
