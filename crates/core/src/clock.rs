//! Lamport's logical clocks (*Time, Clocks, and the Ordering of Events*, 1978).

use crate::SiteId;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A counter that respects causality: what happens later is counted higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LamportClock(u64);

impl LamportClock {
    /// The current reading.
    pub fn now(self) -> u64 {
        self.0
    }

    /// Counts an event of this site and returns its time (Lamport's rule IR1).
    pub fn tick(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// The reading itself, for checkers that keep all clocks of a system small together.
    pub fn reading(&mut self) -> &mut u64 {
        &mut self.0
    }

    /// Takes over a time seen in a message (the first half of rule IR2).
    pub fn observe(&mut self, time: u64) {
        self.0 = self.0.max(time);
    }
}

/// A clock reading with the site that took it: a total order that extends causality. The smaller one
/// has priority; equal times are decided by the site's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// The Lamport clock's reading. Compared first.
    pub time: u64,
    /// Who took it. Breaks ties.
    pub site: SiteId,
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.time, self.site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_later_than_its_sending() {
        let (mut sender, mut receiver) = (LamportClock::default(), LamportClock::default());
        for _ in 0..5 {
            sender.tick();
        }
        let sent = sender.now();
        receiver.observe(sent);
        assert!(receiver.tick() > sent);
    }

    #[test]
    fn ties_go_to_the_lower_site() {
        let of = |time, site| Timestamp { time, site: SiteId(site) };
        assert!(of(1, 1) < of(2, 0));
        assert!(of(2, 0) < of(2, 1));
    }
}
