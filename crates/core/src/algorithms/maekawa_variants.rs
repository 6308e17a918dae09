//! The algorithms that share the engine in [`maekawa`](super::maekawa). They differ in their default quorums.

use crate::mutex::{Channels, Cost, Family};
use crate::quorum::Construction;
use crate::settings::{Setting, TIMEOUT_VALUES};
use crate::{About, SiteId};
use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

/// The difference between the algorithms of this engine.
pub trait Variant: Clone + Debug + Eq + Hash + Default + Send + Sync + 'static {
    /// The description of the algorithm.
    const ABOUT: About;
    /// The default quorums.
    const QUORUMS: &'static str;
    /// Whether a request that was first in the queue receives FAILED when an older one displaces it.
    const NOTIFIES_DISPLACED: bool = true;
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "quorums",
        values: Construction::FORMS,
        default: "best; majority or tree for the algorithms of that name",
        help: "whose votes each site needs",
    },
    Setting {
        name: "fallback",
        values: "quorums, as above; any two of both kinds must share a site",
        default: "none",
        help: "whose votes a site requests instead, in turn, after each timeout; needs FIFO channels",
    },
    Setting {
        name: "timeout",
        values: TIMEOUT_VALUES,
        default: "none",
        help: "how long a site waits before it uses the other quorums",
    },
];

/// The effect of a crash on sites that need votes. Example with the quorums {1, 2}, {2, 3}, {3, 1}: S1 is dead. S3 asks
/// S1 and itself, waits for ever, and keeps its own vote; so S2, which does not need S1, waits for S3.
pub const CRASH: &str = "of a holder: no site enters any more; of another site: the next site with it in its quorum \
                         waits for ever and keeps its votes, and since all quorums intersect, so do all others";

const SYNC_DELAY: &str = "T to 2T at high load and constant delays; more while votes are asked back";

/// The sites that site `me` waits for: the other sites whose vote it lacks, and the site that has its own vote, if a
/// request is queued for that vote.
pub fn awaited_sites(me: SiteId, vote: Option<SiteId>, missing: impl Iterator<Item = SiteId>) -> Vec<SiteId> {
    let mut sites: Vec<SiteId> = missing.chain(vote).filter(|&site| site != me).collect();
    sites.sort();
    sites.dedup();
    sites
}

/// Maekawa's quorums of about √N sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootN;

impl Variant for RootN {
    const QUORUMS: &'static str = "best";
    const ABOUT: About = About {
        slug: "maekawa",
        title: "Maekawa's algorithm, free of deadlock",
        family: Family::Quorum,
        paper: "Maekawa, A √N Algorithm for Mutual Exclusion in Decentralized Systems, ACM TOCS 1985; Sanders 1987",
        idea: "A site needs the votes of its quorum only; any two quorums share a site, which votes for one at a time.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3(K−1)", high: "3(K−1) to 6(K−1)", sync_delay: SYNC_DELAY, client_delay: "2T"
        },
        crash: CRASH,
        settings: SETTINGS,
    };
}

/// Maekawa's quorums, with the messages of the paper of 1985: a displaced request receives no FAILED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsPublished;

impl Variant for AsPublished {
    const QUORUMS: &'static str = "best";
    const NOTIFIES_DISPLACED: bool = false;
    const ABOUT: About = About {
        slug: "maekawa-1985",
        title: "Maekawa's algorithm as published in 1985",
        paper: "Maekawa, A √N Algorithm for Mutual Exclusion in Decentralized Systems, ACM TOCS 1985",
        idea: "With FAILED, INQUIRE and RELINQUISH. A request that was first in a queue and is displaced by an older one \
               receives no FAILED, and keeps votes that it should return: rarely, all sites wait for each other.",
        deadlock_free: false,
        cost: Cost { high: "can deadlock", ..RootN::ABOUT.cost },
        ..RootN::ABOUT
    };
}

/// More than half of the sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MoreThanHalf;

impl Variant for MoreThanHalf {
    const QUORUMS: &'static str = "majority";
    const ABOUT: About = About {
        slug: "majority",
        title: "Majority voting",
        family: Family::Quorum,
        paper: "Thomas, A Majority Consensus Approach to Concurrency Control, ACM TODS 1979; the engine is Maekawa's",
        idea: "A site needs the votes of more than half of the sites; any two majorities share one.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3⌊N/2⌋", high: "3⌊N/2⌋ to 6⌊N/2⌋", sync_delay: SYNC_DELAY, client_delay: "2T"
        },
        crash: CRASH,
        settings: SETTINGS,
    };
}

/// A path from the root of a tree to a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootToLeaf;

impl Variant for RootToLeaf {
    const QUORUMS: &'static str = "tree";
    const ABOUT: About = About {
        slug: "tree-quorum",
        title: "Agrawal and El Abbadi's tree quorums",
        family: Family::Quorum,
        paper: "Agrawal and El Abbadi, An Efficient and Fault-Tolerant Solution for Distributed Mutual Exclusion, ACM TOCS 1991",
        idea: "A site needs the votes on a path from the root of a binary tree to a leaf; all paths share the root.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "3(K−1), K about log N",
            high: "3(K−1) to 6(K−1)",
            sync_delay: SYNC_DELAY,
            client_delay: "2T",
        },
        crash: CRASH,
        settings: SETTINGS,
    };
}
