//! The network below the members: it cuts, loses, repeats, reorders and delays.

use super::faults::Fault;
use super::spec::MS;
use lockkeeper_lab::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The network between machines: members first, then clients.
#[derive(Clone, Debug)]
pub struct Net {
    rng: Rng,
    faults: BTreeSet<Fault>,
    /// How many cuts there are in each direction of each link.
    cuts: BTreeMap<(usize, usize), u32>,
    /// Losses, repetitions and long delays happen until then.
    until_ns: u64,
}

impl Net {
    /// A whole network.
    pub fn new(rng: Rng, faults: BTreeSet<Fault>, until_ns: u64) -> Self {
        Self { rng, faults, cuts: BTreeMap::new(), until_ns }
    }

    /// Cuts one direction, or mends it.
    pub fn cut(&mut self, from: usize, to: usize, cut: bool) {
        let cuts = self.cuts.entry((from, to)).or_default();
        *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    /// Whether anything goes through.
    pub fn is_open(&self, from: usize, to: usize) -> bool {
        self.cuts.get(&(from, to)).is_none_or(|&cuts| cuts == 0)
    }

    /// After how long the copies of a message arrive: none, one or two.
    pub fn send(&mut self, now: u64, from: usize, to: usize) -> [Option<u64>; 2] {
        let faulty = |net: &Self, fault| now < net.until_ns && net.faults.contains(&fault);
        if !self.is_open(from, to) || faulty(self, Fault::Loss) && self.rng.chance(0.03) {
            return [None, None];
        }
        let twice = faulty(self, Fault::Duplicate) && self.rng.chance(0.05);
        let slow = faulty(self, Fault::Delay);
        let first = self.delay(slow);
        // A copy may come long after.
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
