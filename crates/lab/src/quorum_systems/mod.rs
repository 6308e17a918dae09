//! Load and availability of quorum systems: M. Naor and A. Wool, "The load, capacity and availability of quorum
//! systems", SIAM Journal on Computing 27(2), 1998.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | the share of the work at the busiest site, under the best strategy |
//! | [`availability`] | the probability that no quorum is left when sites fail |
//! | [`plots`] | both as plots |
//!
//! ```
//! use lockkeeper_core::quorum::Construction;
//! use lockkeeper_lab::quorum_systems::QuorumSystem;
//!
//! let fano = QuorumSystem::of_sites(&Construction::Plane, 7);
//! assert!((fano.load().unwrap().value() - 3.0 / 7.0).abs() < 1e-9);
//! ```

pub mod availability;
pub mod load;
pub mod plots;

use lockkeeper_core::SiteId;
use lockkeeper_core::quorum::{Construction, Coterie};

/// The limit on quorums of a [`QuorumSystem::whole`] system.
pub const MOST_QUORUMS: usize = 10_000;

/// Quorums over sites that are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumSystem {
    sites: usize,
    /// The quorums, each in ascending order, without repetitions.
    quorums: Vec<Vec<usize>>,
}

impl QuorumSystem {
    /// The system of given quorums.
    pub fn new(sites: usize, mut quorums: Vec<Vec<usize>>) -> Self {
        for quorum in &mut quorums {
            quorum.sort_unstable();
            quorum.dedup();
        }
        quorums.sort_unstable();
        quorums.dedup();
        Self { sites, quorums }
    }

    /// The quorums of a coterie: one for each site.
    pub fn of_coterie(coterie: &Coterie) -> Self {
        let indices = |quorum: &Vec<SiteId>| quorum.iter().map(|site| site.index()).collect();
        Self::new(coterie.quorums.len(), coterie.quorums.iter().map(indices).collect())
    }

    /// The quorums that a construction gives to the sites: one for each site.
    pub fn of_sites(construction: &Construction, sites: usize) -> Self {
        Self::of_coterie(&Coterie::new(construction, sites))
    }

    /// All minimal quorums of a construction, not only one for each site: every majority, and every quorum of the tree
    /// of Agrawal and El Abbadi, where the two subtrees replace a failed node. `None` if there are more than
    /// [`MOST_QUORUMS`].
    pub fn whole(construction: &Construction, sites: usize) -> Option<Self> {
        let quorums = match construction {
            Construction::Majority => majorities(sites)?,
            Construction::Tree => tree_quorums(0, sites)?,
            _ => return Some(Self::of_sites(construction, sites)),
        };
        Some(Self::new(sites, quorums))
    }

    /// The number of sites.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// The quorums.
    pub fn quorums(&self) -> &[Vec<usize>] {
        &self.quorums
    }

    /// The size of the smallest quorum.
    pub fn smallest(&self) -> usize {
        self.quorums.iter().map(Vec::len).min().unwrap_or(0)
    }
}

/// All sets of more than half of the sites, without those that contain another.
fn majorities(sites: usize) -> Option<Vec<Vec<usize>>> {
    let size = sites / 2 + 1;
    let mut all = vec![Vec::new()];
    for _ in 0..size {
        let longer = |set: &Vec<usize>| {
            let first = set.last().map_or(0, |last| last + 1);
            (first..sites).map(|site| [&set[..], &[site]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
        // Prefixes that cannot be completed are few; the limit applies to them as well.
        if all.len() > 4 * MOST_QUORUMS {
            return None;
        }
    }
    (all.len() <= MOST_QUORUMS).then_some(all)
}

/// The quorums of the subtree below a node of a binary heap: the node and a quorum of one subtree, or a quorum of each.
fn tree_quorums(node: usize, sites: usize) -> Option<Vec<Vec<usize>>> {
    let (left, right) = (2 * node + 1, 2 * node + 2);
    if left >= sites {
        return Some(vec![vec![node]]);
    }
    let lefts = tree_quorums(left, sites)?;
    let rights = if right < sites { tree_quorums(right, sites)? } else { Vec::new() };
    if lefts.len().saturating_mul(rights.len()) > MOST_QUORUMS {
        return None;
    }
    let both = lefts.iter().flat_map(|left| rights.iter().map(|right| [&left[..], right].concat()));
    let with_node = lefts.iter().chain(&rights).map(|below| [&[node], &below[..]].concat());
    Some(both.chain(with_node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Construction::{Grid, Majority, Plane, Tree};

    #[test]
    fn whole_systems_have_all_quorums_and_any_two_intersect() {
        for (construction, sites, expected) in
            [(Majority, 5, 10), (Majority, 4, 4), (Tree, 7, 15), (Tree, 15, 255), (Grid, 9, 9), (Plane, 7, 7)]
        {
            let system = QuorumSystem::whole(&construction, sites).unwrap();
            assert_eq!(system.quorums().len(), expected, "{construction} {sites}");
            for (index, one) in system.quorums().iter().enumerate() {
                for other in &system.quorums()[index..] {
                    assert!(one.iter().any(|site| other.contains(site)), "{construction} {one:?} {other:?}");
                }
            }
        }
        assert_eq!(QuorumSystem::whole(&Majority, 40), None);
        assert_eq!(QuorumSystem::whole(&Tree, 31), None);
    }
}
