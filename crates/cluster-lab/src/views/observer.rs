//! Checks the properties of a cluster while its view changes. It sees all members and does not influence them.

use super::bounds::is_reader;
use crate::Property;

/// A hold that a client may still use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The client's member.
    pub who: usize,
    /// The incarnation of that member.
    pub incarnation: u64,
    /// If that incarnation has ended: the end of its lease on its own clock.
    pub until: Option<u64>,
}

/// The part of the history on which the properties depend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observer {
    /// The holds that clients may still use.
    pub holds: Vec<Hold>,
    /// The members whose clients request shared mode, one bit each.
    readers: u32,
    highest_fence: u64,
    highest_alone: u64,
    started: Vec<u64>,
    /// For each member's current incarnation: the newest epoch for which it has reported, and its report since it
    /// last installed a view.
    reports: Vec<(u64, Option<u32>)>,
}

/// A violated property and a description.
pub type Breach = (Property, String);

impl Observer {
    /// Creates an observer of this many members. `readers` are the members whose clients request shared mode, one bit
    /// each.
    pub fn new(members: usize, readers: u32) -> Self {
        Self { reports: vec![(0, None); members], readers, ..Self::default() }
    }

    /// Records a grant. `others` are the members whose clients may still use the lock, `lease` is the remaining
    /// lease of this member.
    pub fn enters(
        &mut self,
        who: usize,
        incarnation: u64,
        fence: (u64, u64),
        others: &[usize],
        lease: u64,
    ) -> Option<Breach> {
        let name = who + 1;
        self.holds.retain(|hold| hold.who != who);
        self.holds.push(Hold { who, incarnation, until: None });
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
            return Some((Property::Exclusion, what));
        }
        if lease == 0 {
            return Some((Property::Lease, format!("M{name} grants the lock without a lease")));
        }
        if number <= highest {
            return Some((
                Property::Fences,
                format!("an entry at M{name} has a fence that is no larger than one before"),
            ));
        }
        if epoch < newest {
            let what = format!("M{name} grants the lock in epoch {epoch}, and epoch {newest} has begun");
            return Some((Property::Frozen, what));
        }
        None
    }

    /// Records that a coordinator starts an epoch. `leases` are the members outside of the view that have a valid
    /// lease.
    pub fn starts(&mut self, epoch: u64, newest: bool, leases: &[usize]) -> Option<Breach> {
        if self.started.contains(&epoch) {
            return Some((Property::OneStart, format!("epoch {epoch} starts twice")));
        }
        self.started.push(epoch);
        self.started.sort_unstable();
        // A coordinator that was paused may start a view that newer views have replaced. None of its members has a
        // lease in it.
        let outside = leases.first().filter(|_| newest)?;
        Some((
            Property::LeasesOver,
            format!("epoch {epoch} starts while M{} has a lease and is not in it", outside + 1),
        ))
    }

    /// Records a report of a member.
    pub fn reports(&mut self, who: usize, epoch: u64, report: u32) -> Option<Breach> {
        let (newest, before) = &mut self.reports[who];
        *newest = epoch.max(*newest);
        let changed = before.replace(report).is_some_and(|before| before != report);
        changed.then(|| (Property::Report, format!("the report of M{} differs from the one before", who + 1)))
    }

    /// Records that a member installs a view. Its next report may differ.
    pub fn installs(&mut self, who: usize) {
        self.reports[who].1 = None;
    }

    /// Records the end of a member's incarnation, whose lease remains valid until `lease_until`.
    pub fn ends(&mut self, who: usize, lease_until: u64) {
        self.reports[who] = (0, None);
        for hold in self.holds.iter_mut().filter(|hold| hold.who == who) {
            hold.until.get_or_insert(lease_until);
        }
    }

    /// Drops the holds whose leases have expired.
    pub fn forget_expired(&mut self, clock: impl Fn(usize) -> u64) {
        self.holds.retain(|hold| hold.until.is_none_or(|until| until > clock(hold.who)));
    }
}
