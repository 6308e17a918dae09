//! Trees of sites, for algorithms that send messages along the edges of a tree.

use crate::SiteId;
use crate::mutex::parse_site;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

/// The shape of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tree {
    /// S1 in the centre, connected to every other site.
    #[default]
    Star,
    /// S1 – S2 – … – SN.
    Line,
    /// S1 at the root, each site with up to this many children.
    Kary(usize),
    /// Each site from S2 on is the child of a random lower site. The value is the seed.
    Random(u64),
    /// The given edges.
    Given(Vec<(SiteId, SiteId)>),
}

impl Tree {
    /// The forms that [`Tree::parse`] accepts.
    pub const FORMS: &'static str = "star, line, binary, kary:K, random:SEED or edges such as 1-2,2-3";

    /// Reads `star`, `line`, `binary`, `kary:K`, `random:SEED` or edges `1-2,2-3,…`, which must form a tree of all
    /// sites.
    pub fn parse(text: &str, sites: usize) -> Result<Self, TreeError> {
        let wrong = || TreeError::Unreadable { text: text.into() };
        let tree = match text.split_once(':') {
            Some(("kary", k)) => match k.parse() {
                Ok(k) if k > 0 => Self::Kary(k),
                _ => return Err(wrong()),
            },
            Some(("random", seed)) => Self::Random(seed.parse().map_err(|_| wrong())?),
            Some(_) => return Err(wrong()),
            None => match text {
                "star" => Self::Star,
                "line" => Self::Line,
                "binary" => Self::Kary(2),
                edges => {
                    let edge = |edge: &str| {
                        let (a, b) = edge.split_once('-').ok_or_else(wrong)?;
                        let site = |text: &str| parse_site(text.trim(), sites).ok_or_else(wrong);
                        Ok((site(a)?, site(b)?))
                    };
                    let edges = edges.split(',').filter(|edge| !edge.trim().is_empty());
                    Self::Given(edges.map(edge).collect::<Result<_, _>>()?)
                }
            },
        };
        tree.check(sites)?;
        Ok(tree)
    }

    /// Checks that given edges form a tree: every site is reachable, and there are exactly N−1 edges.
    fn check(&self, sites: usize) -> Result<(), TreeError> {
        let Self::Given(edges) = self else { return Ok(()) };
        let reached = self.towards(SiteId(0), sites).iter().filter(|next| next.is_some()).count() + 1;
        if reached < sites {
            return Err(TreeError::Disconnected { reached, sites });
        }
        if edges.len() != sites - 1 {
            return Err(TreeError::WrongCount { edges: edges.len(), sites });
        }
        Ok(())
    }

    fn edges(&self, sites: usize) -> Vec<(SiteId, SiteId)> {
        let below = |parent: &dyn Fn(usize) -> usize| {
            (1..sites).map(|site| (SiteId::new(parent(site)), SiteId::new(site))).collect()
        };
        match self {
            Self::Star => below(&|_| 0),
            Self::Line => below(&|site| site - 1),
            Self::Kary(k) => below(&|site| (site - 1) / k),
            Self::Random(seed) => below(&|site| (mix(*seed, site as u64) % site as u64) as usize),
            Self::Given(edges) => edges.clone(),
        }
    }

    /// For each site, its neighbour on the path to `root`; `None` for the root itself.
    pub fn towards(&self, root: SiteId, sites: usize) -> Vec<Option<SiteId>> {
        let mut neighbours = vec![Vec::new(); sites];
        for (a, b) in self.edges(sites) {
            neighbours[a.index()].push(b);
            neighbours[b.index()].push(a);
        }
        let mut towards = vec![None; sites];
        let mut frontier = VecDeque::from([root]);
        while let Some(site) = frontier.pop_front() {
            for &neighbour in &neighbours[site.index()] {
                if neighbour != root && towards[neighbour.index()].is_none() {
                    towards[neighbour.index()] = Some(site);
                    frontier.push_back(neighbour);
                }
            }
        }
        towards
    }

    /// The mean number of edges between two sites, over all ordered pairs including a site and itself.
    pub fn mean_distance(&self, sites: usize) -> f64 {
        // An edge is on the path of every pair with one site on either side of it. With b of N sites below the edge,
        // these are 2·b·(N−b) ordered pairs. On the line S1–S2–S3 both edges have b = 1 or 2: 4 + 4 pairs, mean 8/9.
        let towards = self.towards(SiteId(0), sites);
        let mut below = vec![1u64; sites];
        let mut order: Vec<(usize, usize)> = (0..sites).map(|site| (depth(&towards, site), site)).collect();
        order.sort_unstable();
        let mut crossings = 0;
        for &(_, site) in order.iter().rev() {
            if let Some(parent) = towards[site] {
                crossings += 2 * below[site] * (sites as u64 - below[site]);
                below[parent.index()] += below[site];
            }
        }
        crossings as f64 / (sites as f64 * sites as f64)
    }
}

fn depth(towards: &[Option<SiteId>], site: usize) -> usize {
    let mut at = site;
    let mut depth = 0;
    while let Some(next) = towards[at] {
        at = next.index();
        depth += 1;
    }
    depth
}

/// SplitMix64, a fixed function with random-looking output: this crate has no random number generator.
fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Star => f.write_str("star"),
            Self::Line => f.write_str("line"),
            Self::Kary(k) => write!(f, "kary:{k}"),
            Self::Random(seed) => write!(f, "random:{seed}"),
            Self::Given(_) => f.write_str("given"),
        }
    }
}

/// The reason why a tree is not valid for a number of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// The text has none of the forms [`Tree::FORMS`], or names a site that does not exist.
    Unreadable {
        /// The given text.
        text: String,
    },
    /// The given edges do not connect all sites.
    Disconnected {
        /// The number of sites that the edges connect with S1, including S1.
        reached: usize,
        /// The number of sites.
        sites: usize,
    },
    /// The given edges connect all sites but contain a cycle.
    WrongCount {
        /// The number of edges.
        edges: usize,
        /// The number of sites.
        sites: usize,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { text } => write!(f, "a tree is {}, not '{text}'", Tree::FORMS),
            Self::Disconnected { reached, sites } => {
                write!(f, "these edges reach only {reached} of {sites} sites from S1")
            }
            Self::WrongCount { edges, sites } => {
                write!(f, "a tree of {sites} sites has {} edges, not {edges}", sites - 1)
            }
        }
    }
}

impl Error for TreeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_a_tree() {
        for text in ["star", "line", "binary", "kary:3", "random:7", "1-2,2-3,2-4,4-5,5-6,5-7"] {
            let tree = Tree::parse(text, 7).unwrap();
            for root in SiteId::all(7) {
                let towards = tree.towards(root, 7);
                assert_eq!(towards.iter().filter(|next| next.is_none()).count(), 1, "{text}");
                assert_eq!(towards[root.index()], None);
            }
        }
    }

    #[test]
    fn mean_distance_matches_the_formula_of_the_shape() {
        // Star: 2(N−1)²/N² over all ordered pairs; line: (N²−1)/(3N).
        assert!((Tree::Star.mean_distance(9) - 2.0 * 64.0 / 81.0).abs() < 1e-12);
        assert!((Tree::Line.mean_distance(9) - 80.0 / 27.0).abs() < 1e-12);
        assert_eq!(Tree::Star.mean_distance(1), 0.0);
    }

    #[test]
    fn edges_that_form_no_tree_are_rejected() {
        for text in ["bush", "kary:0", "random:x", "1-2", "1-2,2-3,3-1", "1-2,2-3,1-3,3-4", "1-9,2-3,3-4"] {
            assert!(Tree::parse(text, 4).is_err(), "{text}");
        }
    }
}
