//! The workload: the sites that request, and the times of their requests.

use crate::simulator::rng::{Purpose, Rng};
use crate::simulator::spec::LoadSpec;
use crate::simulator::time::Time;
use lockkeeper_core::{Mode, SiteId};

/// The source of requests of one run.
#[derive(Clone, Debug)]
pub struct Workload {
    load: LoadSpec,
    sites: usize,
    rng: Rng,
    /// The share of requests that are shared.
    readers: f64,
    modes: Rng,
    pairs: Pairs,
}

impl Workload {
    /// The workload of a run with the given seed, in which a share `readers` of the requests is shared.
    pub fn new(load: LoadSpec, sites: usize, readers: f64, seed: u64) -> Self {
        Self {
            load,
            sites,
            rng: Rng::new(seed, Purpose::Workload),
            readers,
            modes: Rng::new(seed, Purpose::Modes),
            pairs: Pairs::new(sites),
        }
    }

    /// The mode of the next request.
    pub fn next_mode(&mut self) -> Mode {
        if self.readers > 0.0 && self.modes.chance(self.readers) { Mode::Shared } else { Mode::Exclusive }
    }

    /// The next site to request at low load, among those for which `up` holds.
    pub fn next_site(&mut self, up: impl Fn(SiteId) -> bool) -> Option<SiteId> {
        if !SiteId::all(self.sites).any(&up) {
            return None;
        }
        loop {
            let site = match self.load {
                LoadSpec::Pairs => self.pairs.next(),
                _ => SiteId::new(self.rng.below(self.sites)),
            };
            if up(site) {
                return Some(site);
            }
        }
    }

    /// A pause between requests, uniform up to one turn of a token ring, so that the position of a perpetual
    /// token is independent of the last entry.
    pub fn pause(&mut self, delay: Time) -> Time {
        Time::clamped(self.rng.unit() * delay.as_t() * self.sites as f64)
    }

    /// The time until the next request of a site.
    pub fn until_next_arrival(&mut self) -> Time {
        match self.load {
            LoadSpec::Poisson(rate) => Time::clamped(self.rng.exponential(1.0 / rate)),
            _ => Time::NEVER,
        }
    }

    /// The random numbers for the durations of critical sections.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

/// An endless sequence of sites in which, after the first element, every N² successive elements contain each
/// ordered pair of neighbours exactly once: the de Bruijn sequence of order 2. Example for three sites: 0 0 1
/// 0 2 1 1 2 2.
#[derive(Clone, Debug)]
struct Pairs {
    sites: usize,
    /// The block `a, a, a+1, a, a+2, …, a, N−1` begins with a; `step` counts within `a, (a, b) for b > a`.
    block: usize,
    step: usize,
}

impl Pairs {
    fn new(sites: usize) -> Self {
        // Starts one element early, with the last element of the cycle, as warm-up.
        Self { sites, block: sites - 1, step: 0 }
    }

    fn next(&mut self) -> SiteId {
        let (a, step) = (self.block, self.step);
        let site = if step == 0 || step % 2 == 1 { a } else { a + step / 2 };
        if step == 2 * (self.sites - 1 - a) {
            self.block = (a + 1) % self.sites;
            self.step = 0;
        } else {
            self.step += 1;
        }
        SiteId::new(site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ordered_pair_of_sites_occurs_once() {
        for sites in 1..8 {
            let mut pairs = Pairs::new(sites);
            let sequence: Vec<usize> = (0..=sites * sites).map(|_| pairs.next().index()).collect();
            let mut seen: Vec<(usize, usize)> = sequence.windows(2).map(|two| (two[0], two[1])).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), sites * sites, "{sequence:?}");
        }
    }

    #[test]
    fn share_of_readers_is_as_configured() {
        for (share, expected) in [(0.0, 0..1), (0.8, 7_800..8_200), (1.0, 10_000..10_001)] {
            let mut load = Workload::new(LoadSpec::High, 3, share, 1);
            let readers = (0..10_000).filter(|_| load.next_mode() == Mode::Shared).count();
            assert!(expected.contains(&readers), "{share}: {readers}");
        }
    }

    #[test]
    fn next_site_is_none_when_all_sites_are_down() {
        let mut low = Workload::new(LoadSpec::Low, 3, 0.0, 1);
        assert_eq!(low.next_site(|_| false), None);
        assert_eq!(low.next_site(|site| site.index() == 2), Some(SiteId::new(2)));
    }
}
