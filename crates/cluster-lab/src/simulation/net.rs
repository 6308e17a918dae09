//! The network between machines: cuts links, and loses, duplicates, reorders and delays messages.

use super::faults::Fault;
use super::spec::MS;
use lockkeeper_lab::simulator::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The network. Machines are numbered with the members first, then the clients.
#[derive(Clone, Debug)]
pub struct Net {
    rng: Rng,
    faults: BTreeSet<Fault>,
    /// The number of cuts of each direction of each link.
    cuts: BTreeMap<(usize, usize), u32>,
    /// The time at which losses, duplicates and long delays end.
    until_ns: u64,
}

impl Net {
    /// Creates a network without cuts.
    pub fn new(rng: Rng, faults: BTreeSet<Fault>, until_ns: u64) -> Self {
        Self { rng, faults, cuts: BTreeMap::new(), until_ns }
    }

    /// Adds or removes a cut of one direction. Cuts overlap: a direction is open once all of its cuts are removed.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        let cuts = self.cuts.entry((from, to)).or_default();
        *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    /// Whether this direction is open.
    pub fn is_open(&self, from: usize, to: usize) -> bool {
        self.cuts.get(&(from, to)).is_none_or(|&cuts| cuts == 0)
    }

    /// Sends a message. Returns the delay of each copy that arrives: of none, one or two.
    pub fn send(&mut self, now: u64, from: usize, to: usize) -> [Option<u64>; 2] {
        let faulty = |net: &Self, fault| now < net.until_ns && net.faults.contains(&fault);
        if !self.is_open(from, to) || faulty(self, Fault::Loss) && self.rng.chance(0.03) {
            return [None, None];
        }
        let twice = faulty(self, Fault::Duplicate) && self.rng.chance(0.05);
        let slow = faulty(self, Fault::Delay);
        let first = self.delay(slow);
        // A duplicate may arrive much later.
        let second = twice.then(|| self.delay(slow) + self.rng.exponential(200.0 * MS as f64) as u64);
        [Some(first), second]
    }

    fn delay(&mut self, slow: bool) -> u64 {
        let usual = MS / 2 + self.rng.exponential(3.0 * MS as f64) as u64;
        if slow && self.rng.chance(0.02) {
            usual + self.rng.below(900 * MS as usize) as u64
        } else {
            usual.min(40 * MS)
        }
    }
}
