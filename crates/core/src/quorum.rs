//! Quorums: for each site, the set of sites whose votes it needs.
//!
//! Maekawa's conditions: **M1** any two quorums share a site; **M2** a site is in its own quorum; **M3** all quorums
//! have the same size; **M4** every site is in the same number of quorums. Mutual exclusion needs only M1.

use crate::SiteId;
use crate::mutex::{list, parse_site};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

/// Perfect difference sets: every number mod N except 0 is the difference of exactly one pair. Shifted by each site,
/// such a set yields the lines of a projective plane of order q, for N = q² + q + 1. Found by search; the tests check
/// each of them.
///
/// For N = 7 the set {0, 1, 3} gives site `i` the quorum {i, i+1, i+3} mod 7: {0, 1, 3}, {1, 2, 4}, … {6, 0, 2}.
const DIFFERENCE_SETS: &[(usize, &[u32])] = &[
    (1, &[0]),
    (3, &[0, 1]),
    (7, &[0, 1, 3]),
    (13, &[0, 1, 3, 9]),
    (21, &[0, 1, 4, 14, 16]),
    (31, &[0, 1, 3, 8, 12, 18]),
    (57, &[0, 1, 3, 13, 32, 36, 43, 52]),
    (73, &[0, 1, 3, 7, 15, 31, 36, 54, 63]),
    (91, &[0, 1, 3, 9, 27, 49, 56, 61, 77, 81]),
    (133, &[0, 1, 3, 12, 20, 34, 38, 81, 88, 94, 104, 109]),
];

/// A construction of quorums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Construction {
    /// A projective plane if there is one for the number of sites, otherwise a grid.
    #[default]
    Best,
    /// The lines of a projective plane: about √N sites each. For N = 1, 3, 7, 13, 21, 31, 57, 73, 91, 133.
    Plane,
    /// The row and the column of the site in a square: about 2√N sites.
    Grid,
    /// More than half of the sites: each site and those that follow it on a ring.
    Majority,
    /// A path from the root of a binary tree through the site to a leaf: about log N sites.
    Tree,
    /// The given sets, one for each site.
    Given(Vec<Vec<SiteId>>),
}

impl Construction {
    /// The forms that [`Construction::parse`] accepts.
    pub const FORMS: &'static str =
        "best, plane, grid, majority, tree or one set for each site such as 1,2/2,3/3,1";

    /// Reads a construction and checks that it is valid for this number of sites.
    pub fn parse(text: &str, sites: usize) -> Result<Self, QuorumError> {
        let construction = match text {
            "best" => Self::Best,
            "plane" => Self::Plane,
            "grid" => Self::Grid,
            "majority" => Self::Majority,
            "tree" => Self::Tree,
            sets => Self::parse_sets(sets, sites)?,
        };
        construction.check(sites)?;
        Ok(construction)
    }

    /// Reads given sets, one for each site.
    fn parse_sets(text: &str, sites: usize) -> Result<Self, QuorumError> {
        let set = |set: &str| -> Result<Vec<SiteId>, QuorumError> {
            let site = |text: &str| {
                parse_site(text.trim(), sites).ok_or_else(|| QuorumError::Unreadable { text: text.into() })
            };
            let mut set: Vec<SiteId> = set.split(',').map(site).collect::<Result<_, _>>()?;
            set.sort();
            set.dedup();
            Ok(set)
        };
        let sets = Self::Given(text.split('/').map(set).collect::<Result<_, _>>()?);
        sets.suffices(sites)?;
        Ok(sets)
    }

    /// Checks that the construction exists for this number of sites and that any two quorums share a site.
    pub fn check(&self, sites: usize) -> Result<(), QuorumError> {
        match self {
            Self::Plane if difference_set(sites).is_none() => Err(QuorumError::NoPlane { sites }),
            Self::Given(_) => {
                self.suffices(sites)?;
                Coterie::new(self, sites)
                    .m1()
                    .map_err(|(first, second)| QuorumError::Disjoint { first, second })
            }
            _ => Ok(()),
        }
    }

    /// Checks that there is one set for each site.
    fn suffices(&self, sites: usize) -> Result<(), QuorumError> {
        match self {
            Self::Given(sets) if sets.len() != sites => {
                Err(QuorumError::WrongCount { given: sets.len(), sites })
            }
            _ => Ok(()),
        }
    }

    /// Reads fallback quorums that sites may ask instead of these. Any two sets of either kind must share a site.
    pub fn beside(&self, text: &str, sites: usize) -> Result<Self, QuorumError> {
        let other = match text {
            "best" | "plane" | "grid" | "majority" | "tree" => Self::parse(text, sites)?,
            sets => Self::parse_sets(sets, sites)?,
        };
        let (first, second) = (Coterie::new(self, sites).quorums, Coterie::new(&other, sites).quorums);
        let of =
            |site, kind, set: &[SiteId]| SiteQuorum { site: SiteId::new(site), kind, members: set.into() };
        let apart = |a: &[SiteId], b: &[SiteId]| !a.iter().any(|site| b.contains(site));
        for (i, fallback) in second.iter().enumerate() {
            let others = first.iter().map(|set| (QuorumKind::Quorum, set)).enumerate();
            let others = others.chain(second.iter().map(|set| (QuorumKind::Fallback, set)).enumerate());
            for (j, (kind, set)) in others {
                if apart(fallback, set) {
                    let fallback = of(i, QuorumKind::Fallback, fallback);
                    return Err(QuorumError::DisjointFallback { fallback, other: of(j, kind, set) });
                }
            }
        }
        Ok(other)
    }

    /// The quorum of a site, in ascending order.
    pub fn quorum_of(&self, site: SiteId, sites: usize) -> Vec<SiteId> {
        let shifted = |by: u32| SiteId::new((site.index() + by as usize) % sites);
        let mut quorum: Vec<SiteId> = match self {
            Self::Best | Self::Plane => match difference_set(sites) {
                Some(differences) => differences.iter().map(|&by| shifted(by)).collect(),
                None => row_and_column(site, sites),
            },
            Self::Grid => row_and_column(site, sites),
            Self::Majority => (0..=sites as u32 / 2).map(shifted).collect(),
            Self::Tree => path_through(site, sites),
            Self::Given(sets) => sets[site.index()].clone(),
        };
        quorum.sort();
        quorum.dedup();
        quorum
    }
}

impl fmt::Display for Construction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Best => "best",
            Self::Plane => "plane",
            Self::Grid => "grid",
            Self::Majority => "majority",
            Self::Tree => "tree",
            Self::Given(_) => "given",
        })
    }
}

/// The reason why quorums are not valid for a number of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuorumError {
    /// The text has none of the forms [`Construction::FORMS`], or names a site that does not exist.
    Unreadable {
        /// The part of the text that is wrong.
        text: String,
    },
    /// There is no projective plane for this number of sites.
    NoPlane {
        /// The number of sites.
        sites: usize,
    },
    /// The number of sets is not the number of sites.
    WrongCount {
        /// The number of sets.
        given: usize,
        /// The number of sites.
        sites: usize,
    },
    /// The quorums of two sites share no site.
    Disjoint {
        /// The site with the first quorum.
        first: SiteId,
        /// The site with the second quorum.
        second: SiteId,
    },
    /// A fallback shares no site with another fallback or with a quorum.
    DisjointFallback {
        /// The fallback.
        fallback: SiteQuorum,
        /// The other set.
        other: SiteQuorum,
    },
}

impl fmt::Display for QuorumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { text } => write!(f, "quorums are {}, not '{text}'", Construction::FORMS),
            Self::NoPlane { sites } => write!(
                f,
                "there is no plane for {sites} sites: there is one for 1, 3, 7, 13, 21, 31, 57, 73, 91 and 133; \
                 a grid works for any number"
            ),
            Self::WrongCount { given, sites } => {
                write!(f, "{given} quorums are given for {sites} sites; each site needs one")
            }
            Self::Disjoint { first, second } => {
                write!(
                    f,
                    "the quorums of {first} and {second} share no site, so that both could enter at once"
                )
            }
            Self::DisjointFallback { fallback, other } => write!(
                f,
                "{fallback} and {other} share no site, so that both could enter at once: give sets of which any two meet"
            ),
        }
    }
}

impl Error for QuorumError {}

/// The quorum or the fallback of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteQuorum {
    /// The site that asks this set for votes.
    pub site: SiteId,
    /// Whether the site asks this set first or as a fallback.
    pub kind: QuorumKind,
    /// The sites of the set.
    pub members: Vec<SiteId>,
}

impl fmt::Display for SiteQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            QuorumKind::Quorum => "quorum",
            QuorumKind::Fallback => "fallback",
        };
        write!(f, "the {kind} of {} ({})", self.site, list(&self.members, ""))
    }
}

/// The order in which a site asks a set for votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuorumKind {
    /// The set that the site asks first.
    Quorum,
    /// The set that the site asks after a timeout.
    Fallback,
}

fn difference_set(sites: usize) -> Option<&'static [u32]> {
    DIFFERENCE_SETS.iter().find(|(n, _)| *n == sites).map(|(_, set)| *set)
}

/// The site's row and column in a square that is filled row by row.
///
/// Two such quorums share a site even if the last row is incomplete. For 7 sites:
///
/// ```text
/// 0 1 2      quorum of 6 (row {6}, column {0, 3, 6})
/// 3 4 5      quorum of 5 (row {3, 4, 5}, column {2, 5})      both contain 3
/// 6
/// ```
///
/// Two quorums cross twice: the row of the one with the column of the other, and the reverse. Only crossings in the
/// last row can be missing, and the other crossing then lies in a complete row.
fn row_and_column(site: SiteId, sites: usize) -> Vec<SiteId> {
    let side = (1..).find(|side| side * side >= sites).unwrap_or(1);
    let (row, column) = (site.index() / side, site.index() % side);
    let in_row = (row * side..((row + 1) * side).min(sites)).map(SiteId::new);
    let in_column = (column..sites).step_by(side).map(SiteId::new);
    in_row.chain(in_column).collect()
}

/// The path from the site up to the root, and from the site down along the left children to a leaf.
fn path_through(site: SiteId, sites: usize) -> Vec<SiteId> {
    let mut path = vec![site];
    let mut at = site.index();
    while at > 0 {
        at = (at - 1) / 2;
        path.push(SiteId::new(at));
    }
    let mut below = 2 * site.index() + 1;
    while below < sites {
        path.push(SiteId::new(below));
        below = 2 * below + 1;
    }
    path
}

/// The quorums of all sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coterie {
    /// The quorum of each site, in ascending order.
    pub quorums: Vec<Vec<SiteId>>,
}

impl Coterie {
    /// The quorums of a construction.
    pub fn new(construction: &Construction, sites: usize) -> Self {
        Self { quorums: SiteId::all(sites).map(|site| construction.quorum_of(site, sites)).collect() }
    }

    /// M1: any two quorums share a site. The error names two sites whose quorums do not.
    pub fn m1(&self) -> Result<(), (SiteId, SiteId)> {
        for (i, a) in self.quorums.iter().enumerate() {
            for (j, b) in self.quorums.iter().enumerate().skip(i + 1) {
                if !a.iter().any(|site| b.binary_search(site).is_ok()) {
                    return Err((SiteId::new(i), SiteId::new(j)));
                }
            }
        }
        Ok(())
    }

    /// M2: every site is in its own quorum.
    pub fn m2(&self) -> bool {
        self.quorums.iter().enumerate().all(|(site, quorum)| quorum.contains(&SiteId::new(site)))
    }

    /// M3: all quorums have the same size.
    pub fn m3(&self) -> bool {
        self.quorums.windows(2).all(|two| two[0].len() == two[1].len())
    }

    /// M4: every site is in the same number of quorums.
    pub fn m4(&self) -> bool {
        let mut loads = vec![0usize; self.quorums.len()];
        self.quorums.iter().flatten().for_each(|site| loads[site.index()] += 1);
        loads.windows(2).all(|two| two[0] == two[1])
    }

    /// The mean number of *other* sites in a quorum, which is the number of messages in one round.
    pub fn mean_others(&self) -> f64 {
        let others = |(site, quorum): (usize, &Vec<SiteId>)| {
            quorum.iter().filter(|member| member.index() != site).count()
        };
        self.quorums.iter().enumerate().map(others).sum::<usize>() as f64 / self.quorums.len() as f64
    }
}

impl fmt::Display for Coterie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (site, quorum) in self.quorums.iter().enumerate() {
            writeln!(f, "{}: {}", SiteId::new(site), list(quorum, "nobody"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_difference_set_yields_a_projective_plane() {
        for &(sites, _) in DIFFERENCE_SETS {
            let coterie = Coterie::new(&Construction::Plane, sites);
            assert!(coterie.m1().is_ok() && coterie.m2() && coterie.m3() && coterie.m4(), "{sites}");
            let k = coterie.quorums[0].len();
            assert_eq!(k * (k - 1) + 1, sites, "N = K(K−1)+1");
            // Any two lines of a plane meet in exactly one point.
            for (i, a) in coterie.quorums.iter().enumerate() {
                for b in &coterie.quorums[i + 1..] {
                    assert_eq!(a.iter().filter(|site| b.contains(site)).count(), 1, "{sites}");
                }
            }
        }
        for sites in [43, 111, 2, 8] {
            assert_eq!(Construction::Plane.check(sites), Err(QuorumError::NoPlane { sites }));
        }
    }

    #[test]
    fn any_two_quorums_meet_for_every_number_of_sites() {
        use Construction::{Best, Grid, Majority, Tree};
        for sites in 1..=60 {
            for construction in [Best, Grid, Majority, Tree] {
                let coterie = Coterie::new(&construction, sites);
                assert_eq!(coterie.m1(), Ok(()), "{construction}, {sites} sites");
                assert!(coterie.m2(), "{construction}, {sites} sites");
            }
        }
    }

    #[test]
    fn quorum_sizes_match_the_textbooks() {
        assert_eq!(Construction::Grid.quorum_of(SiteId(4), 9).len(), 5, "2√N − 1");
        assert_eq!(Construction::Majority.quorum_of(SiteId(0), 9).len(), 5);
        assert_eq!(Construction::Majority.quorum_of(SiteId(0), 8).len(), 5);
        assert_eq!(Construction::Tree.quorum_of(SiteId(0), 7).len(), 3);
    }

    #[test]
    fn disjoint_quorums_are_rejected_with_the_names_of_their_sites() {
        let error = Construction::parse("1,2/2,3/3,4/4,1", 4).unwrap_err();
        assert_eq!(error, QuorumError::Disjoint { first: SiteId(0), second: SiteId(2) });
        assert!(error.to_string().contains("the quorums of S1 and S3 share no site"), "{error}");
        assert!(Construction::parse("1,2/2,3/3,1", 3).is_ok());
        let error = Construction::parse("1,2/2,3", 3).unwrap_err();
        assert_eq!(error, QuorumError::WrongCount { given: 2, sites: 3 });
        assert!(error.to_string().contains("2 quorums are given for 3 sites"), "{error}");
        let error = Construction::parse("circle", 3).unwrap_err();
        assert_eq!(error, QuorumError::Unreadable { text: "circle".into() });
    }

    #[test]
    fn disjoint_fallbacks_are_rejected_with_both_sets() {
        let quorums = Construction::parse("1,2/2,3/3,1", 3).unwrap();
        let error = quorums.beside("1/2/3", 3).unwrap_err();
        let set = |kind, members: &[SiteId], site| SiteQuorum { site, kind, members: members.into() };
        let fallback = set(QuorumKind::Fallback, &[SiteId(0)], SiteId(0));
        let other = set(QuorumKind::Quorum, &[SiteId(1), SiteId(2)], SiteId(1));
        assert_eq!(error, QuorumError::DisjointFallback { fallback, other });
        assert!(
            error
                .to_string()
                .starts_with("the fallback of S1 (S1) and the quorum of S2 (S2, S3) share no site"),
            "{error}"
        );
    }

    #[test]
    fn textbook_quorums_of_seven_sites_satisfy_maekawas_conditions() {
        let sets = "1,2,3/2,4,6/3,5,6/1,4,5/2,5,7/1,6,7/3,4,7";
        let coterie = Coterie::new(&Construction::parse(sets, 7).unwrap(), 7);
        assert!(coterie.m2() && coterie.m3() && coterie.m4());
    }
}
