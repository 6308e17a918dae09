//! Happened-before between requests, as far as fairness needs it: the pending requests that a site can know
//! of.
//!
//! Full vector clocks would cost an integer per site on every message. But a site has at most one pending
//! request, and only pending requests can be overtaken. One *bit* per site is therefore enough: "this site's
//! pending request happened before". The bit is cleared when that request is granted. Messages that are under
//! way at that time still carry it; it is cleared on arrival, with the list of recent entries.
//!
//! Example: S2 requests, and its message reaches S1 with the bit of S2. S1 requests afterwards, so the
//! request of S2 happened before. If S1 enters first, it overtakes S2. Had S1 requested before that message
//! arrived, it would not.

use lockkeeper_core::SiteId;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The pending requests that happened before a message was sent; bit i stands for site i.
pub type Past = SmallVec<[u64; 2]>;

/// Number of recent entries that are kept. The bits of an older message are compared with the last entries
/// one by one.
const RECENT: usize = 64;

/// For each site, the pending requests that it can know of.
#[derive(Clone, Debug)]
pub struct Causality {
    known: Vec<Past>,
    /// The requests that happened before the site's pending request and are still pending.
    before: Vec<Past>,
    overtaken: Vec<u64>,
    entries: u64,
    recent: VecDeque<SiteId>,
    last_entry: Vec<u64>,
}

/// The requests that an entry overtook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overtaking {
    /// Number of competing pending requests that happened before the one that enters.
    pub overtaken: u64,
    /// The site that has been overtaken most often during its current wait, and how often.
    pub worst: Option<(SiteId, u64)>,
}

impl Causality {
    /// The initial state: no site knows of any request.
    pub fn new(processes: usize) -> Self {
        let nothing: Past = SmallVec::from_elem(0, processes.div_ceil(64));
        Self {
            known: vec![nothing.clone(); processes],
            before: vec![nothing; processes],
            overtaken: vec![0; processes],
            entries: 0,
            recent: VecDeque::with_capacity(RECENT),
            last_entry: vec![0; processes],
        }
    }

    /// The bits to attach to a message sent by a site, and the current number of entries as its send time.
    #[inline]
    pub fn stamp(&self, site: SiteId) -> (Past, u64) {
        (self.known[site.index()].clone(), self.entries)
    }

    /// A site receives a message with the bits `past`, sent after `sent` entries.
    #[inline]
    pub fn receive(&mut self, site: SiteId, past: &Past, sent: u64) {
        let missed = self.entries - sent;
        let known = &mut self.known[site.index()];
        if missed == 0 {
            for (known, past) in known.iter_mut().zip(past) {
                *known |= past;
            }
            return;
        }
        // Clear the bits of requests that were granted while the message was under way.
        let mut past = past.clone();
        if missed <= self.recent.len() as u64 {
            for &entered in self.recent.iter().rev().take(missed as usize) {
                clear(&mut past, entered);
            }
        } else {
            for stale in ones(&past.clone()).filter(|site| self.last_entry[site.index()] > sent) {
                clear(&mut past, stale);
            }
        }
        for (known, past) in known.iter_mut().zip(&past) {
            *known |= past;
        }
    }

    /// A site requests.
    pub fn request(&mut self, site: SiteId) {
        self.before[site.index()] = self.known[site.index()].clone();
        self.overtaken[site.index()] = 0;
        set(&mut self.known[site.index()], site);
    }

    /// A site enters, so its request is no longer pending. `competes` returns whether the entry can have
    /// delayed another site's request.
    pub fn enter(&mut self, site: SiteId, competes: impl Fn(SiteId) -> bool) -> Overtaking {
        let mut overtaking = Overtaking::default();
        let still_pending = std::mem::take(&mut self.before[site.index()]);
        for victim in ones(&still_pending) {
            let count = &mut self.overtaken[victim.index()];
            *count += 1;
            overtaking.overtaken += u64::from(competes(victim));
            if overtaking.worst.is_none_or(|(_, worst)| *count > worst) {
                overtaking.worst = Some((victim, *count));
            }
        }
        self.forget(site);
        overtaking
    }

    /// A site's request is no longer pending, because the site entered or crashed.
    pub fn forget(&mut self, site: SiteId) {
        self.entries += 1;
        self.last_entry[site.index()] = self.entries;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(site);
        for past in self.known.iter_mut().chain(&mut self.before) {
            clear(past, site);
        }
    }
}

fn set(past: &mut Past, site: SiteId) {
    past[site.index() / 64] |= 1 << (site.index() % 64);
}

fn clear(past: &mut Past, site: SiteId) {
    if let Some(word) = past.get_mut(site.index() / 64) {
        *word &= !(1 << (site.index() % 64));
    }
}

fn ones(past: &Past) -> impl Iterator<Item = SiteId> {
    past.iter().enumerate().flat_map(|(index, &word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| SiteId::new(index * 64 + bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::rng::{Purpose, Rng};

    /// The reference is a full vector clock of requests.
    #[test]
    fn agrees_with_vector_clocks() {
        for (sites, rounds) in [(3, 3_000), (70, 3_000)] {
            let mut rng = Rng::new(9, Purpose::Network);
            let mut bits = Causality::new(sites);
            let mut vectors = vec![vec![0u64; sites]; sites];
            let mut asked = vec![0u64; sites];
            let mut pending: Vec<Option<Vec<u64>>> = vec![None; sites];
            let mut flying: Vec<(SiteId, Past, u64, Vec<u64>)> = Vec::new();
            let mut found = 0;
            for _ in 0..rounds {
                let site = SiteId::new(rng.below(sites));
                let i = site.index();
                match rng.below(4) {
                    0 if pending[i].is_none() => {
                        pending[i] = Some(vectors[i].clone());
                        asked[i] += 1;
                        vectors[i][i] = asked[i];
                        bits.request(site);
                    }
                    1 => {
                        let Some(before) = pending[i].take() else { continue };
                        let expected = (0..sites)
                            .filter(|&j| pending[j].is_some() && before[j] == asked[j] && j != i)
                            .count();
                        assert_eq!(bits.enter(site, |_| true).overtaken, expected as u64);
                        found += expected;
                    }
                    2 => {
                        let (past, sent) = bits.stamp(site);
                        flying.push((SiteId::new(rng.below(sites)), past, sent, vectors[i].clone()));
                    }
                    _ if !flying.is_empty() => {
                        let (to, past, sent, vector) = flying.swap_remove(rng.below(flying.len()));
                        bits.receive(to, &past, sent);
                        for (mine, theirs) in vectors[to.index()].iter_mut().zip(vector) {
                            *mine = theirs.max(*mine);
                        }
                    }
                    _ => {}
                }
            }
            assert!(found > 20, "the test needs some overtaking: {found}");
        }
    }
}
