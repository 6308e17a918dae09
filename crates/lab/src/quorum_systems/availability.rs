//! The availability of a quorum system: the probability that no quorum is left when each site has failed with the same
//! probability, independently of the others.
//!
//! Up to [`MOST_EXACT`] sites, all sets of sites are counted that contain a quorum, by size: the failure probability for
//! every p follows exactly. For larger systems the share of such sets is estimated for each size from random sets.

use super::QuorumSystem;
use crate::simulator::rng::{Purpose, Rng};

/// The limit on sites of an exact count: it visits 2^N sets.
pub const MOST_EXACT: usize = 20;
/// The limit on sites of an estimate.
pub const MOST_ESTIMATED: usize = 200;
/// The number of random sets for each size in an estimate.
pub const SAMPLES: u32 = 2_000;

/// For each number of sites that are up, the share of the sets of that size that contain a quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct Availability {
    shares: Vec<f64>,
    /// The number of random sets for each size; `None` if all sets were counted.
    pub samples: Option<u32>,
}

/// A probability, with the half width of its 95 % confidence interval; 0 if it is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability {
    /// The probability.
    pub value: f64,
    /// The half width.
    pub error: f64,
}

impl QuorumSystem {
    /// The availability. `None` for more than [`MOST_ESTIMATED`] sites. The seed is for estimates.
    pub fn availability(&self, seed: u64) -> Option<Availability> {
        if self.sites <= MOST_EXACT {
            Some(self.count())
        } else {
            (self.sites <= MOST_ESTIMATED).then(|| self.estimate(seed))
        }
    }

    fn count(&self) -> Availability {
        // Example: with the quorum {0, 2} of three sites, 0b101 is marked, and 0b111 because it has one site more.
        let mut has_quorum = vec![false; 1 << self.sites];
        for quorum in &self.quorums {
            has_quorum[quorum.iter().fold(0, |set, site| set | 1 << site)] = true;
        }
        for site in 0..self.sites {
            for set in 0..has_quorum.len() {
                if set & 1 << site != 0 && has_quorum[set & !(1 << site)] {
                    has_quorum[set] = true;
                }
            }
        }
        let mut counts = vec![(0u32, 0u32); self.sites + 1];
        for (set, has_quorum) in has_quorum.into_iter().enumerate() {
            let (with, all) = &mut counts[set.count_ones() as usize];
            *with += u32::from(has_quorum);
            *all += 1;
        }
        let shares = counts.into_iter().map(|(with, all)| f64::from(with) / f64::from(all)).collect();
        Availability { shares, samples: None }
    }

    fn estimate(&self, seed: u64) -> Availability {
        let mut rng = Rng::new(seed, Purpose::Faults);
        let mut order: Vec<usize> = (0..self.sites).collect();
        let mut with = vec![0u32; self.sites + 1];
        // A random order of the sites is a random set of each size. The sets of one order are not independent, but those
        // of one size are.
        for _ in 0..SAMPLES {
            for last in (1..order.len()).rev() {
                order.swap(last, rng.below(last + 1));
            }
            let mut rank = vec![0; self.sites];
            order.iter().enumerate().for_each(|(place, &site)| rank[site] = place + 1);
            let complete = |quorum: &Vec<usize>| quorum.iter().map(|&site| rank[site]).max();
            let first = self.quorums.iter().filter_map(complete).min();
            with[first.unwrap_or(self.sites + 1).min(self.sites + 1)..]
                .iter_mut()
                .for_each(|with| *with += 1);
        }
        let shares = with.into_iter().map(|with| f64::from(with) / f64::from(SAMPLES)).collect();
        Availability { shares, samples: Some(SAMPLES) }
    }
}

impl Availability {
    /// The probability that no quorum is left if each site has failed with probability `p`.
    pub fn failure(&self, p: f64) -> Probability {
        let sites = self.shares.len() - 1;
        let (mut value, mut deviation) = (0.0, 0.0);
        for (up, share) in self.shares.iter().enumerate() {
            let weight = binomial(sites, up, 1.0 - p);
            value += weight * (1.0 - share);
            // Sets of different sizes come from the same orders, so that their errors may add up.
            let spread = self.samples.map_or(0.0, |samples| share * (1.0 - share) / f64::from(samples));
            deviation += weight * libm::sqrt(spread);
        }
        Probability { value: value.clamp(0.0, 1.0), error: 1.96 * deviation }
    }
}

/// The probability of `k` successes in `n` trials.
fn binomial(n: usize, k: usize, success: f64) -> f64 {
    if success <= 0.0 || success >= 1.0 {
        return f64::from(u8::from(k == if success <= 0.0 { 0 } else { n }));
    }
    let (n, k) = (n as f64, k as f64);
    let choose = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    libm::exp(choose + k * libm::log(success) + (n - k) * libm::log1p(-success))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::quorum::Construction::{self, Grid, Majority, Plane, Tree};

    const PS: [f64; 6] = [0.0, 0.01, 0.1, 0.3, 0.5, 1.0];

    fn exact(construction: &Construction, sites: usize, p: f64) -> f64 {
        let system = QuorumSystem::whole(construction, sites).unwrap();
        let availability = system.availability(1).unwrap();
        assert_eq!(availability.samples, None);
        let failure = availability.failure(p);
        assert_eq!(failure.error, 0.0);
        failure.value
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn failure_probabilities_match_the_published_formulas() {
        for p in PS {
            let q = 1.0 - p;
            // Majority of three: two or three sites have failed.
            near(exact(&Majority, 3, p), 3.0 * p * p * q + p * p * p);
            let fails = |n: usize| (n.div_ceil(2)..=n).map(|down| binomial(n, down, p)).sum::<f64>();
            near(exact(&Majority, 9, p), fails(9));
            // The plane of order 2: a set of failed sites meets all lines if and only if it contains a line.
            let (p3, p4) = (p * p * p, p * p * p * p);
            let fano = 7.0 * p3 * q.powi(4) + 28.0 * p4 * q.powi(3) + 21.0 * p4 * p * q * q;
            near(exact(&Plane, 7, p), fano + 7.0 * p4 * p * p * q + p4 * p3);
            // The tree: F(h+1) = p(1 − (1 − F(h))²) + (1 − p)F(h)².
            let step = |f: f64| p * (1.0 - (1.0 - f) * (1.0 - f)) + q * f * f;
            near(exact(&Tree, 3, p), step(p));
            near(exact(&Tree, 15, p), step(step(step(p))));
            // The grid of 2 × 2: three sites must be up, a row and a column.
            near(exact(&Grid, 4, p), 1.0 - (4.0 * q * q * q * p + q * q * q * q));
        }
    }

    #[test]
    fn non_dominated_coteries_fail_with_one_half_at_one_half() {
        for (construction, sites) in [(Majority, 5), (Majority, 9), (Plane, 7), (Tree, 7), (Tree, 15)] {
            near(exact(&construction, sites, 0.5), 0.5);
        }
        assert!(exact(&Grid, 9, 0.5) > 0.5, "the grid is dominated");
    }

    #[test]
    fn estimate_is_within_its_interval_of_the_exact_value() {
        for (construction, sites) in [(Plane, 13), (Grid, 16), (Tree, 15)] {
            let system = QuorumSystem::of_sites(&construction, sites);
            let (count, estimate) = (system.count(), system.estimate(7));
            for p in [0.05, 0.2, 0.5] {
                let (exact, estimated) = (count.failure(p).value, estimate.failure(p));
                assert!(estimated.error > 0.0);
                assert!(
                    (exact - estimated.value).abs() <= 2.0 * estimated.error,
                    "{construction} {p}: {exact} {estimated:?}"
                );
            }
            assert_eq!(system.estimate(7), estimate, "the same seed gives the same estimate");
        }
        assert!(QuorumSystem::of_sites(&Grid, 300).availability(1).is_none());
    }
}
