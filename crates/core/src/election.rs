//! The protocols that elect one site as leader.

use crate::settings::{Configure, OptionsError, Setting, Settings};
use crate::{Out, Protocol, SiteId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The input of an election: the leader does not answer, so elect one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Campaign;

/// The output of an election: this site is the leader from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Elected(pub SiteId);

/// A protocol by which the sites agree on a leader.
///
/// A site starts a campaign on its own when its leader is suspected, or when it starts without knowing a leader.
pub trait Election: Protocol<Input = Campaign, Output = Elected> + Configure {
    /// The description of the algorithm.
    const ABOUT: About;

    /// The initial state of one site. If the setup names no leader, the site has just come up, does not know the
    /// leader, and starts an election at once.
    fn start(me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self;

    /// The leader as far as this site knows; `None` while it knows none.
    fn leader(&self) -> Option<SiteId>;

    /// The number of the leadership period that this site takes part in, where [any site](Winner::Any) may win: two
    /// sites never become leader in the same term.
    fn term(&self) -> u64 {
        0
    }

    /// The state of this site when it restarts after a crash, made from its state before the crash. The default is that
    /// of a site that has lost everything. A protocol whose paper keeps variables on stable storage overrides this.
    fn restart(&self, me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self {
        Self::start(me, setup, out)
    }

    /// The cases for which papers and textbooks give the cost, with the messages counted by name.
    fn cases(sites: usize) -> Vec<Case>;
}

/// The initial situation of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup<O> {
    /// The number of sites.
    pub sites: usize,
    /// The leader that every site knows at the start.
    pub leader: Option<SiteId>,
    /// The seed of the random choices; see [`choice`].
    pub seed: u64,
    /// The algorithm's own options.
    pub options: O,
}

/// A random choice below `bound`: a function of the seed, the site and the number of the choice, by the mixing function
/// of SplitMix64 (Steele, Lea and Flood, 2014). An algorithm that draws lots stays a pure state machine this way.
pub fn choice(seed: u64, site: SiteId, number: u64, bound: u64) -> u64 {
    let mix = |z: u64| {
        let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(mix(seed) ^ site.index() as u64) ^ number) % bound.max(1)
}

/// The sites that an election may make the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Winner {
    /// The highest site that is up.
    Highest,
    /// Any site, but only one in each [term](Election::term).
    Any,
}

/// One case of the cost of an election. Delays are constant, and the previous leader was the highest site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The name of the case.
    pub name: &'static str,
    /// The sites that campaign, all at the same instant.
    pub initiators: Vec<SiteId>,
    /// Whether the leader is dead. If not, it is suspected wrongly.
    pub leader_is_dead: bool,
    /// The cost as a formula over N, the number of sites including dead ones.
    pub formula: &'static str,
    /// The number of messages of each name, including those sent to a dead site.
    pub messages: Vec<(&'static str, u64)>,
}

/// The description of an election.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The name on the command line.
    pub slug: &'static str,
    /// The full name.
    pub title: &'static str,
    /// The authors, the publication and the year.
    pub paper: &'static str,
    /// The idea, in one or two sentences.
    pub idea: &'static str,
    /// The assumptions under which it is correct.
    pub assumes: &'static str,
    /// The sites that may win.
    pub winner: Winner,
    /// Whether it ends with one leader although sites crash. Tests crash sites where this is `true`.
    pub survives_crashes: bool,
    /// The smallest number of messages, as a formula over N sites of which the highest is dead.
    pub best: &'static str,
    /// The largest number of messages, as a formula over the same N.
    pub worst: &'static str,
    /// The consequences of a crash.
    pub crash: &'static str,
    /// The settings that it accepts.
    pub settings: &'static [Setting],
}

/// The default timeout for an answer, in thousandths of T: 2T_m + T_p, where a message takes at most T_m = 1 T and its
/// handling at most T_p = 1 T.
pub const TIMEOUT_MILLI_T: u64 = 3_000;

/// The setting `timeout` of all elections that have timeouts.
pub const TIMEOUT: Setting = Setting {
    name: "timeout",
    values: "a time in T",
    default: "3",
    help: "how long to wait for an answer: 2T_m + T_p, where a message takes at most T_m and its handling T_p",
};

/// Reads the setting [`TIMEOUT`], in thousandths of T.
pub fn take_timeout(settings: &mut Settings) -> Result<u64, OptionsError> {
    let parse = |text: &str| {
        let time: f64 = text.parse().ok()?;
        (0.001..=1e6).contains(&time).then_some((time * 1_000.0 + 0.5) as u64)
    };
    settings.take(TIMEOUT.name, TIMEOUT_MILLI_T, parse, "a time between 0.001 and 1000000, in T")
}
