//! Lamport's logical clocks (*Time, Clocks, and the Ordering of Events*, 1978).

use crate::SiteId;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A logical clock: if one event happens before another, its reading is smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LamportClock(u64);

impl LamportClock {
    /// A clock with this reading: its next event has the number after it.
    pub fn reading_at_start(reading: u64) -> Self {
        Self(reading)
    }

    /// The current reading.
    pub fn now(self) -> u64 {
        self.0
    }

    /// Advances the clock for an event of this site and returns the event's time (Lamport's rule IR1).
    pub fn tick(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// The reading, mutable for checkers that renumber all clocks of a system together.
    pub fn reading(&mut self) -> &mut u64 {
        &mut self.0
    }

    /// Advances the clock to the time of a received message (the first half of rule IR2).
    pub fn observe(&mut self, time: u64) {
        self.0 = self.0.max(time);
    }
}

/// A clock reading together with the site that took it. Timestamps are totally ordered, and the order extends
/// causality. The smaller timestamp has priority; between equal times, the lower site number has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// The Lamport clock's reading. Compared first.
    pub time: u64,
    /// The site that took the reading. Breaks ties.
    pub site: SiteId,
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.time, self.site)
    }
}

/// A number that a checker may replace by another one, as long as the order of the requests stays the same; see
/// [`Inspect::stamps`](crate::Inspect::stamps).
#[derive(Debug)]
pub enum Stamp<'a> {
    /// The time of a request, and the site that made it. Requests are compared by both, and by nothing else.
    Request(&'a mut u64, SiteId),
    /// The site's own clock. The times of its later requests are larger. The algorithm permits that it advances by any
    /// amount at any time.
    Clock(&'a mut u64),
    /// A number that the receiver's clock is advanced to.
    Bound(&'a mut u64),
    /// The time of a message, which its receiver compares with its own request, and with nothing else that matters.
    Message(&'a mut u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_event_is_later_than_send_event() {
        let (mut sender, mut receiver) = (LamportClock::default(), LamportClock::default());
        for _ in 0..5 {
            sender.tick();
        }
        let sent = sender.now();
        receiver.observe(sent);
        assert!(receiver.tick() > sent);
    }

    #[test]
    fn equal_times_are_ordered_by_site_number() {
        let of = |time, site| Timestamp { time, site: SiteId(site) };
        assert!(of(1, 1) < of(2, 0));
        assert!(of(2, 0) < of(2, 1));
    }
}
