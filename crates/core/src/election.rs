//! The family of protocols that make one site the leader.

use crate::mutex::{Setting, Settings};
use crate::{Out, Protocol, SiteId};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What an application asks of an election: the leader does not answer, find one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Campaign;

/// What an application learns: this site leads from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Elected(pub SiteId);

/// A protocol by which the sites agree on a leader: the highest of those that are up.
///
/// A site whose leader is suspected campaigns of itself, and so does one that starts without knowing a leader.
pub trait Election: Protocol<Input = Campaign, Output = Elected> {
    /// What a person should know about the algorithm.
    const ABOUT: About;

    /// The algorithm's own options, made from settings such as `timeout=3`.
    type Options: Clone + fmt::Debug + Default + Send + Sync;

    /// Reads the settings. Asking [`Settings`] for each known one is enough: what nobody asked for is refused by the
    /// caller.
    fn options(settings: &mut Settings, sites: usize) -> Result<Self::Options, String>;

    /// The state of one site at the start. Where no leader is named the site has just come up and does not know one: it
    /// starts an election at once.
    fn start(me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self;

    /// Whom this site takes for the leader; `None` while it does not know.
    fn leader(&self) -> Option<SiteId>;

    /// The cases whose cost the papers and textbooks give, with their messages counted by name.
    fn cases(sites: usize) -> Vec<Case>;
}

/// How an election starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup<O> {
    /// How many sites there are.
    pub sites: usize,
    /// Whom everybody takes for the leader.
    pub leader: Option<SiteId>,
    /// The algorithm's own options.
    pub options: O,
}

/// One case of the cost of an election. Delays are constant, and the leader was the highest site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// Who campaigns, all at the same instant.
    pub initiators: Vec<SiteId>,
    /// Whether the leader is dead; otherwise it was suspected wrongly.
    pub leader_is_dead: bool,
    /// The cost as a formula over N, the number of sites, dead or not.
    pub formula: &'static str,
    /// The messages of each name; sends to a dead site count.
    pub messages: Vec<(&'static str, u64)>,
}

/// What a person should know about an election.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The name to type.
    pub slug: &'static str,
    /// The name to say.
    pub title: &'static str,
    /// Who published it, where and when.
    pub paper: &'static str,
    /// The idea in a sentence or two.
    pub idea: &'static str,
    /// What it needs to be right.
    pub assumes: &'static str,
    /// The fewest messages, as a formula over N sites of which the highest is dead.
    pub best: &'static str,
    /// The most.
    pub worst: &'static str,
    /// What a crash does.
    pub crash: &'static str,
    /// The settings it takes.
    pub settings: &'static [Setting],
}

/// How long to wait for an answer, in thousandths of T: 2T_m + T_p, where a message takes at most T_m = 1 T and its
/// handling at most T_p = 1 T.
pub const TIMEOUT_MILLI_T: u64 = 3_000;

/// The setting that all elections with timeouts take.
pub const TIMEOUT: Setting = Setting {
    name: "timeout",
    values: "a time in T",
    default: "3",
    help: "how long to wait for an answer: 2T_m + T_p, where a message takes at most T_m and its handling T_p",
};

/// Reads the setting [`TIMEOUT`], in thousandths of T.
pub fn take_timeout(settings: &mut Settings) -> Result<u64, String> {
    let parse = |text: &str| {
        let time: f64 = text.parse().ok()?;
        (0.001..=1e6).contains(&time).then_some((time * 1_000.0 + 0.5) as u64)
    };
    settings.take(TIMEOUT.name, TIMEOUT_MILLI_T, parse, "a time between 0.001 and 1000000, in T")
}
