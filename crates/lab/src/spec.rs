//! What to run: everything a run is a function of, beside its seed.

use crate::delay::Delay;
use crate::network::NetworkSpec;
use crate::time::Time;
use lockkeeper_core::{Holder, Load, Mode, SiteId};
use std::fmt;

/// The most sites a run may have.
pub const MOST_SITES: usize = 1_000_000;

/// One run, or several that differ by their seed.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The algorithm's slug.
    pub algorithm: String,
    /// The algorithm's settings, by name.
    pub settings: Vec<(String, String)>,
    /// How many sites may ask.
    pub sites: usize,
    /// How much they ask.
    pub load: LoadSpec,
    /// How many entries are measured.
    pub entries: u64,
    /// How many entries come before that; by default as many as the load needs to settle.
    pub warmup: Option<u64>,
    /// How long a site stays inside; `None` if the script says when it leaves.
    pub cs: Option<Delay>,
    /// The network.
    pub network: NetworkSpec,
    /// The failure detector.
    pub detector: DetectorSpec,
    /// Who is inside at the start.
    pub holders: Vec<Holder>,
    /// The share of the requests that are to share the lock; the others are exclusive.
    pub readers: f64,
    /// Things that happen at given times, earliest first.
    pub script: Vec<Scripted>,
    /// Messages are delivered only where the script says so.
    pub by_hand: bool,
    /// Whether timers run out only where the script says so.
    pub timers_by_hand: bool,
    /// The file or figure that all of this was read from.
    pub scenario: Option<String>,
}

impl Spec {
    /// A run with everything at its default.
    pub fn new(algorithm: &str, sites: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            settings: Vec::new(),
            sites,
            load: LoadSpec::High,
            entries: 1_000,
            warmup: None,
            cs: Some(Delay::Constant(Time::from_milli_t(100))),
            network: NetworkSpec::default(),
            detector: DetectorSpec::None,
            holders: Vec::new(),
            readers: 0.0,
            script: Vec::new(),
            by_hand: false,
            timers_by_hand: false,
            scenario: None,
        }
    }

    /// The script together with the partitions of the network, earliest first.
    pub fn whole_script(&self) -> Vec<Scripted> {
        let mut script = self.script.clone();
        for cut in &self.network.partitions {
            let (left, right) = (cut.left.clone(), cut.right.clone());
            script.push(Scripted {
                at: cut.from,
                action: Action::Cut(left.clone(), right.clone(), cut.one_way),
            });
            if cut.to != Time::NEVER {
                script.push(Scripted { at: cut.to, action: Action::Heal(left, right) });
            }
        }
        script.sort_by_key(|scripted| scripted.at);
        script
    }

    /// How many entries come before the measured ones.
    pub fn warmup(&self) -> u64 {
        let settle = match self.load {
            LoadSpec::Low | LoadSpec::High | LoadSpec::Poisson(_) => 2 * self.sites as u64,
            LoadSpec::Pairs => 1,
            LoadSpec::Burst | LoadSpec::Script => 0,
        };
        self.warmup.unwrap_or(settle)
    }
}

/// How much the sites ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadSpec {
    /// One requester at a time, drawn uniformly, and the next only when the network is quiet.
    Low,
    /// Low load, with every ordered pair of one requester and the next exactly once in N² entries, so that
    /// means over who asks after whom come out exactly.
    Pairs,
    /// Every site asks again at once after leaving.
    High,
    /// Requests arrive at each site at this rate per T; what arrives at a busy site queues there.
    Poisson(f64),
    /// All sites ask at the same instant, and again when all are served and the network is quiet.
    Burst,
    /// Only what the script says.
    Script,
}

impl LoadSpec {
    /// Reads `low`, `pairs`, `high`, `poisson:RATE` or `burst`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => match text {
                "low" => Ok(Self::Low),
                "pairs" => Ok(Self::Pairs),
                "high" => Ok(Self::High),
                "burst" => Ok(Self::Burst),
                "poisson" => Err("poisson takes a rate per site and T, as in poisson:0.05".into()),
                _ => Err(format!(
                    "there is no load '{text}': there is low, pairs, high, poisson:RATE and burst"
                )),
            },
            Some(("poisson", rate)) => match rate.parse::<f64>() {
                Ok(rate) if (1e-9..=1e6).contains(&rate) => Ok(Self::Poisson(rate)),
                _ => Err(format!(
                    "a rate lies between 1e-9 and 1e6 requests per site and T, and '{rate}' does not"
                )),
            },
            Some((kind, _)) => Err(format!("the load '{kind}' takes nothing after a colon")),
        }
    }

    /// The load of the papers' tables that this is an instance of.
    pub fn of_the_papers(self) -> Option<Load> {
        match self {
            Self::Low | Self::Pairs => Some(Load::Low),
            Self::High => Some(Load::High),
            Self::Poisson(_) | Self::Burst | Self::Script => None,
        }
    }
}

impl fmt::Display for LoadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.write_str("low"),
            Self::Pairs => f.write_str("pairs"),
            Self::High => f.write_str("high"),
            Self::Poisson(rate) => write!(f, "poisson:{rate}"),
            Self::Burst => f.write_str("burst"),
            Self::Script => f.write_str("scenario"),
        }
    }
}

/// What makes sites suspect each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DetectorSpec {
    /// Nothing.
    None,
    /// Every crash is noticed by every other site one message delay later, and nothing else is.
    Perfect,
    /// A site that has not been heard from for so long is suspected: wrongly, if it is only slow or cut off.
    Timeout(Time),
    /// As perfect, and beside that each site wrongly suspects a random other one at this rate per T.
    False(f64),
}

impl DetectorSpec {
    /// Reads `none`, `perfect`, `timeout:D` or `false:RATE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "perfect" => Ok(Self::Perfect),
            Some(("timeout", time)) => match Time::parse(time)? {
                Time::ZERO => Err("a timeout must be longer than 0".into()),
                time => Ok(Self::Timeout(time)),
            },
            Some(("false", rate)) => match rate.parse::<f64>() {
                Ok(rate) if (1e-9..=1e3).contains(&rate) => Ok(Self::False(rate)),
                _ => {
                    Err(format!("a rate lies between 1e-9 and 1000 suspicions per T, and '{rate}' does not"))
                }
            },
            _ => Err(format!(
                "there is no failure detector '{text}': there is none, perfect, timeout:D and false:RATE"
            )),
        }
    }
}

impl fmt::Display for DetectorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Perfect => f.write_str("perfect"),
            Self::Timeout(time) => write!(f, "timeout:{time}"),
            Self::False(rate) => write!(f, "false:{rate}"),
        }
    }
}

/// Something that happens at a given time.
#[derive(Clone, Debug, PartialEq)]
pub struct Scripted {
    /// When.
    pub at: Time,
    /// What.
    pub action: Action,
}

/// Which message is meant: the oldest one from here to there, of the given name if one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Which {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The paper's name of the message, `REQUEST`, or all that it says, `REQUEST(1)`.
    pub name: Option<String>,
}

/// What a script can make happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A site asks to enter.
    Request(SiteId, Mode),
    /// A site leaves.
    Exit(SiteId),
    /// A site stops and loses what it knew.
    Crash(SiteId),
    /// A crashed site starts from scratch.
    Recover(SiteId),
    /// A site stops, but keeps what it knows.
    Pause(SiteId),
    /// A paused site goes on; what came meanwhile is handled now.
    Resume(SiteId),
    /// A message under way arrives now.
    Deliver(Which),
    /// A message under way is lost; where nothing is held back by hand, the next such message sent.
    Lose(Which),
    /// A message under way arrives now, and will arrive once more.
    Duplicate(Which),
    /// The next such message takes so long.
    Slow(Which, Time),
    /// The way between two groups is cut.
    Cut(Vec<SiteId>, Vec<SiteId>, bool),
    /// The cut between two groups heals.
    Heal(Vec<SiteId>, Vec<SiteId>),
    /// A site suspects another, rightly or wrongly.
    Suspect(SiteId, SiteId),
    /// An idle site's state is thrown away and made anew.
    Forget(SiteId),
    /// A timer of a site runs out: the one of that place among those armed, in their own order.
    Wake(SiteId, usize),
    /// A remark for the reader.
    Say(String),
}

impl Action {
    /// The processes it speaks of, and whether each must be one of those that may ask.
    pub fn processes(&self) -> Vec<(SiteId, bool)> {
        match self {
            Self::Request(site, _) | Self::Exit(site) => vec![(*site, true)],
            Self::Crash(site)
            | Self::Recover(site)
            | Self::Pause(site)
            | Self::Resume(site)
            | Self::Forget(site)
            | Self::Wake(site, _) => {
                vec![(*site, false)]
            }
            Self::Suspect(site, suspect) => vec![(*site, false), (*suspect, false)],
            Self::Deliver(which) | Self::Lose(which) | Self::Duplicate(which) | Self::Slow(which, _) => {
                vec![(which.from, false), (which.to, false)]
            }
            Self::Cut(left, right, _) | Self::Heal(left, right) => {
                left.iter().chain(right).map(|site| (*site, false)).collect()
            }
            Self::Say(_) => Vec::new(),
        }
    }
}

/// Reads who starts inside: `1,2` or `S1 shared, S2 shared`.
pub fn parse_holders(text: &str, sites: usize) -> Result<Vec<Holder>, String> {
    text.split(',').map(|holder| Holder::parse(holder.trim(), sites)).collect()
}

/// Reads `SITE@TIME`.
pub fn parse_site_at(text: &str, processes: usize) -> Result<(SiteId, Time), String> {
    let (site, time) =
        text.split_once('@').ok_or_else(|| format!("this is written SITE@TIME, as in 3@10, not '{text}'"))?;
    Ok((crate::network::site(site, processes)?, Time::parse(time)?))
}

/// Reads `SITE@FROM..TO`.
pub fn parse_site_during(text: &str, processes: usize) -> Result<(SiteId, Time, Time), String> {
    let (site, times) = text
        .split_once('@')
        .ok_or_else(|| format!("this is written SITE@FROM..TO, as in 3@10..20, not '{text}'"))?;
    let (from, to) = crate::network::parse_interval(times)?;
    Ok((crate::network::site(site, processes)?, from, to))
}
