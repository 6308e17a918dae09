//! The load of a quorum system: the share of all entries in which the busiest site takes part, under the best choice of
//! quorums.
//!
//! A strategy chooses quorums with probabilities. The load is the value of a linear program, found by the simplex method
//! and certified by duality: the strategy gives an upper bound, and weights of the sites give a lower bound, because
//! every quorum contains at least the least total weight of a quorum. Example: in the projective plane of order 2, each of
//! the 7 lines has 3 of the 7 sites. Lines chosen evenly load each site with 3/7; with even weights, each line weighs
//! 3/7; so the load is exactly 3/7.

use super::QuorumSystem;

/// The limit on sites of systems that are not symmetric: the linear program has a row for each.
pub const MOST_SITES: usize = 150;
/// The maximum number of steps of the simplex method.
const MOST_PIVOTS: usize = 20_000;
/// Smaller numbers count as zero.
const ZERO: f64 = 1e-10;

/// The load, with its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The probability of each quorum.
    pub strategy: Vec<f64>,
    /// The weight of each site. The sum is 1.
    pub weights: Vec<f64>,
    /// The load of the busiest site under the strategy.
    pub upper: f64,
    /// The weight of the lightest quorum.
    pub lower: f64,
}

impl Load {
    /// The load under a strategy and the bound by weights. Both are scaled to a sum of 1.
    fn certified(system: &QuorumSystem, strategy: Vec<f64>, weights: Vec<f64>) -> Self {
        let (strategy, weights) = (scaled(strategy), scaled(weights));
        let mut loads = vec![0.0; system.sites()];
        for (quorum, probability) in system.quorums().iter().zip(&strategy) {
            quorum.iter().for_each(|&site| loads[site] += probability);
        }
        let weight = |quorum: &Vec<usize>| quorum.iter().map(|&site| weights[site]).sum::<f64>();
        let lower = system.quorums().iter().map(weight).fold(f64::INFINITY, f64::min);
        let upper = loads.into_iter().fold(0.0, f64::max);
        Self { strategy, weights, upper, lower }
    }

    /// The load.
    pub fn value(&self) -> f64 {
        self.upper
    }

    /// Whether both bounds are equal, up to the precision of the arithmetic.
    pub fn is_exact(&self) -> bool {
        self.upper - self.lower < 1e-9
    }

    /// The load as a fraction with a denominator up to 1,000, if it is one.
    pub fn fraction(&self) -> Option<(u32, u32)> {
        let value = self.value();
        (1..=1_000u32)
            .map(|denominator| (libm::round(value * f64::from(denominator)) as u32, denominator))
            .find(|(numerator, denominator)| {
                (f64::from(*numerator) / f64::from(*denominator) - value).abs() < 1e-9
            })
    }
}

fn scaled(mut numbers: Vec<f64>) -> Vec<f64> {
    let sum: f64 = numbers.iter().sum();
    numbers.iter_mut().for_each(|number| *number /= sum);
    numbers
}

impl QuorumSystem {
    /// The load. `None` if the system has no quorum, or is not symmetric and has more than [`MOST_SITES`] sites.
    pub fn load(&self) -> Option<Load> {
        if self.quorums.is_empty() || self.quorums.iter().any(Vec::is_empty) {
            return None;
        }
        // In a symmetric system, where all quorums have the same size and all sites are in the same number of quorums,
        // even probabilities and even weights are the best.
        let even = Load::certified(self, vec![1.0; self.quorums.len()], vec![1.0; self.sites]);
        if even.is_exact() {
            return Some(even);
        }
        if self.sites > MOST_SITES {
            return None;
        }
        let (strategy, weights) = self.pack();
        Some(Load::certified(self, strategy, weights))
    }

    /// Solves: choose the quorums as often as possible, so that each site is used at most once. The solution, scaled to
    /// probabilities, is the best strategy; the prices of the sites, scaled, are the best weights.
    fn pack(&self) -> (Vec<f64>, Vec<f64>) {
        let (rows, columns) = (self.sites, self.quorums.len());
        // A column for each quorum, one for the slack of each site, and the right side.
        let width = columns + rows + 1;
        let mut table = vec![vec![0.0; width]; rows + 1];
        for (column, quorum) in self.quorums.iter().enumerate() {
            quorum.iter().for_each(|&site| table[site][column] = 1.0);
            table[rows][column] = -1.0;
        }
        let mut basis: Vec<usize> = (columns..columns + rows).collect();
        for row in 0..rows {
            table[row][columns + row] = 1.0;
            table[row][width - 1] = 1.0;
        }
        for _ in 0..MOST_PIVOTS {
            // Bland's rule, the first column that improves and the lowest basic variable, cannot run in a cycle.
            let Some(enters) = (0..width - 1).find(|&column| table[rows][column] < -ZERO) else { break };
            let ratio = |row: usize| table[row][width - 1] / table[row][enters];
            let leaves = (0..rows).filter(|&row| table[row][enters] > ZERO).min_by(|&a, &b| {
                let (of_a, of_b) = (ratio(a), ratio(b));
                if (of_a - of_b).abs() < ZERO { basis[a].cmp(&basis[b]) } else { of_a.total_cmp(&of_b) }
            });
            let Some(leaves) = leaves else { break };
            pivot(&mut table, leaves, enters);
            basis[leaves] = enters;
        }
        let mut strategy = vec![0.0; columns];
        for (row, &variable) in basis.iter().enumerate().filter(|(_, variable)| **variable < columns) {
            strategy[variable] = table[row][width - 1].max(0.0);
        }
        let weights = (columns..columns + rows).map(|column| table[rows][column].max(0.0)).collect();
        (strategy, weights)
    }
}

/// Makes the column `at` a unit column with its one in `row`.
fn pivot(table: &mut [Vec<f64>], row: usize, at: usize) {
    let by = table[row][at];
    table[row].iter_mut().for_each(|number| *number /= by);
    let pivot = table[row].clone();
    for (index, other) in table.iter_mut().enumerate() {
        let factor = other[at];
        if index != row && factor != 0.0 {
            other.iter_mut().zip(&pivot).for_each(|(number, of_row)| *number -= factor * of_row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::quorum::Construction::{self, Grid, Majority, Plane, Tree};

    fn fraction(construction: &Construction, sites: usize) -> (u32, u32) {
        let load = QuorumSystem::whole(construction, sites).unwrap().load().unwrap();
        assert!(load.is_exact(), "{construction} {sites}: {} to {}", load.lower, load.upper);
        load.fraction().unwrap()
    }

    #[test]
    fn loads_match_the_published_values() {
        // Naor and Wool, section 6: (N+1)/2N, and for even N (N+2)/2N.
        assert_eq!([3, 5, 9].map(|n| fraction(&Majority, n)), [(2, 3), (3, 5), (5, 9)]);
        assert_eq!(fraction(&Majority, 8), (5, 8));
        // (q+1)/(q²+q+1), which is the best possible for this size of quorums.
        assert_eq!([7, 13, 31, 57].map(|n| fraction(&Plane, n)), [(3, 7), (4, 13), (6, 31), (8, 57)]);
        // (2√N−1)/N.
        assert_eq!([4, 9, 16, 25].map(|n| fraction(&Grid, n)), [(3, 4), (5, 9), (7, 16), (9, 25)]);
        // 2/(h+2) for a tree of height h.
        assert_eq!([3, 7, 15].map(|n| fraction(&Tree, n)), [(2, 3), (1, 2), (2, 5)]);
    }

    #[test]
    fn fixed_paths_of_a_tree_load_the_root_with_every_entry() {
        let paths = QuorumSystem::of_sites(&Tree, 7).load().unwrap();
        assert_eq!((paths.fraction(), paths.is_exact()), (Some((1, 1)), true));
    }

    #[test]
    fn load_of_systems_without_symmetry_is_certified_by_duality() {
        // A wheel: the hub with each of three spokes, or all spokes. The hub takes part in 3/5 of the entries.
        let wheel = QuorumSystem::new(4, vec![vec![0, 1], vec![0, 2], vec![0, 3], vec![1, 2, 3]]);
        let load = wheel.load().unwrap();
        assert_eq!((load.fraction(), load.is_exact()), (Some((3, 5)), true));
        for sites in 2..=40 {
            for construction in [Grid, Majority, Tree] {
                let load = QuorumSystem::of_sites(&construction, sites).load().unwrap();
                assert!(load.is_exact(), "{construction} {sites}: {} to {}", load.lower, load.upper);
                // Naor and Wool, proposition 4.2: at least c/N and 1/c for the smallest size c.
                let smallest = QuorumSystem::of_sites(&construction, sites).smallest() as f64;
                assert!(load.value() >= (smallest / sites as f64).max(1.0 / smallest) - 1e-9);
            }
        }
    }
}
