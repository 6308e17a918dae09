//! The specification of a run: everything that determines it apart from its seed.

use crate::simulator::delay::Delay;
use crate::simulator::network::{NetworkError, NetworkSpec};
use crate::simulator::time::{Time, TimeError};
use lockkeeper_core::sharing::HolderError;
use lockkeeper_core::{Holder, Load, Mode, SiteId};
use std::fmt;

/// The maximum number of sites.
pub const MOST_SITES: usize = 1_000_000;

/// One run, or several that differ by their seed.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The algorithm's slug.
    pub algorithm: String,
    /// The algorithm's settings, by name.
    pub settings: Vec<(String, String)>,
    /// Number of sites that may request.
    pub sites: usize,
    /// The rate of requests.
    pub load: LoadSpec,
    /// Number of measured entries.
    pub entries: u64,
    /// Number of entries before the measured ones. Default: as many as the load needs to settle.
    pub warmup: Option<u64>,
    /// The duration of a critical section. `None`: the script ends it.
    pub cs: Option<Delay>,
    /// The network.
    pub network: NetworkSpec,
    /// The failure detector.
    pub detector: DetectorSpec,
    /// The sites inside the critical section at the start, with their modes.
    pub holders: Vec<Holder>,
    /// The readings of Lamport clocks at the start, where they are not 0.
    pub clocks: Vec<(SiteId, u64)>,
    /// The share of requests that are shared; the others are exclusive.
    pub readers: f64,
    /// Actions at given times, earliest first.
    pub script: Vec<Scripted>,
    /// Whether only the script delivers messages.
    pub by_hand: bool,
    /// Whether timers expire only where the script lets them.
    pub timers_by_hand: bool,
    /// The file or figure that the spec was read from.
    pub scenario: Option<String>,
}

impl Spec {
    /// A run with default parameters.
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
            clocks: Vec::new(),
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

    /// Number of entries before the measured ones.
    pub fn warmup(&self) -> u64 {
        let settle = match self.load {
            LoadSpec::Low | LoadSpec::High | LoadSpec::Staggered | LoadSpec::Poisson(_) => {
                2 * self.sites as u64
            }
            LoadSpec::Pairs => 1,
            LoadSpec::Burst | LoadSpec::Script => 0,
        };
        self.warmup.unwrap_or(settle)
    }
}

/// The rate and pattern of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadSpec {
    /// One requester at a time, drawn uniformly; the next one requests when the network is quiet.
    Low,
    /// Low load in which every ordered pair of consecutive requesters occurs exactly once in N² entries, so
    /// that means over these pairs are exact.
    Pairs,
    /// Every site requests again immediately after leaving; all sites start together.
    High,
    /// Like `High`, but each site makes its first request at a random time within N·T.
    Staggered,
    /// Requests arrive at each site at this rate per T; those that arrive at a busy site queue there.
    Poisson(f64),
    /// All sites request at the same instant, and again when all have been served and the network is quiet.
    Burst,
    /// Only the requests of the script.
    Script,
}

impl LoadSpec {
    /// Reads `low`, `pairs`, `high`, `staggered`, `poisson:RATE` or `burst`.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        match text.split_once(':') {
            None => match text {
                "low" => Ok(Self::Low),
                "pairs" => Ok(Self::Pairs),
                "high" => Ok(Self::High),
                "staggered" => Ok(Self::Staggered),
                "burst" => Ok(Self::Burst),
                "poisson" => Err(LoadError::NoRate),
                _ => Err(LoadError::Unknown { load: text.into() }),
            },
            Some(("poisson", rate)) => match rate.parse::<f64>() {
                Ok(rate) if (1e-9..=1e6).contains(&rate) => Ok(Self::Poisson(rate)),
                _ => Err(LoadError::Rate { rate: rate.into() }),
            },
            Some((load, _)) => Err(LoadError::NoParameter { load: load.into() }),
        }
    }

    /// Whether every site requests again immediately after leaving.
    pub fn is_high(self) -> bool {
        matches!(self, Self::High | Self::Staggered)
    }

    /// The load in the papers' tables that corresponds to this one.
    pub fn of_the_papers(self) -> Option<Load> {
        match self {
            Self::Low | Self::Pairs => Some(Load::Low),
            Self::High | Self::Staggered => Some(Load::High),
            Self::Poisson(_) | Self::Burst | Self::Script => None,
        }
    }
}

/// The reason why a text is not a load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no load of this name.
    #[error("there is no load '{load}': there is low, pairs, high, staggered, poisson:RATE and burst")]
    Unknown {
        /// The name.
        load: String,
    },
    /// The rate is missing.
    #[error("poisson takes a rate per site and T, as in poisson:0.05")]
    NoRate,
    /// The rate is not a number in the accepted range.
    #[error("a rate lies between 1e-9 and 1e6 requests per site and T, and '{rate}' does not")]
    Rate {
        /// The rate as given.
        rate: String,
    },
    /// A parameter is given for a load that has none.
    #[error("the load '{load}' takes nothing after a colon")]
    NoParameter {
        /// The name of the load.
        load: String,
    },
}

impl fmt::Display for LoadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.write_str("low"),
            Self::Pairs => f.write_str("pairs"),
            Self::High => f.write_str("high"),
            Self::Staggered => f.write_str("staggered"),
            Self::Poisson(rate) => write!(f, "poisson:{rate}"),
            Self::Burst => f.write_str("burst"),
            Self::Script => f.write_str("scenario"),
        }
    }
}

/// The failure detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DetectorSpec {
    /// No suspicions.
    None,
    /// Every other site suspects a crashed site one message delay after the crash. There are no other
    /// suspicions.
    Perfect,
    /// A site suspects another if no heartbeat arrives within this time; wrongly, if the other is only slow
    /// or cut off.
    Timeout(Time),
    /// Like `Perfect`, and in addition each site falsely suspects a random other one at this rate per T.
    False(f64),
}

impl DetectorSpec {
    /// Reads `none`, `perfect`, `timeout:D` or `false:RATE`.
    pub fn parse(text: &str) -> Result<Self, DetectorError> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "perfect" => Ok(Self::Perfect),
            Some(("timeout", time)) => match Time::parse(time)? {
                Time::ZERO => Err(DetectorError::ZeroTimeout),
                time => Ok(Self::Timeout(time)),
            },
            Some(("false", rate)) => match rate.parse::<f64>() {
                Ok(rate) if (1e-9..=1e3).contains(&rate) => Ok(Self::False(rate)),
                _ => Err(DetectorError::Rate { rate: rate.into() }),
            },
            _ => Err(DetectorError::Unknown { detector: text.into() }),
        }
    }
}

/// The reason why a text is not a failure detector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorError {
    /// There is no failure detector of this name.
    #[error("there is no failure detector '{detector}': there is none, perfect, timeout:D and false:RATE")]
    Unknown {
        /// The text.
        detector: String,
    },
    /// The timeout is 0.
    #[error("a timeout must be longer than 0")]
    ZeroTimeout,
    /// The timeout is not a time.
    #[error(transparent)]
    Timeout(#[from] TimeError),
    /// The rate of false suspicions is not a number in the accepted range.
    #[error("a rate lies between 1e-9 and 1000 suspicions per T, and '{rate}' does not")]
    Rate {
        /// The rate as given.
        rate: String,
    },
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

/// An action at a given time.
#[derive(Clone, Debug, PartialEq)]
pub struct Scripted {
    /// The time.
    pub at: Time,
    /// The action.
    pub action: Action,
}

/// The message that an action refers to: the oldest one between two sites, with the given name if there is
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSelector {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The paper's name of the message, `REQUEST`, or its complete text, `REQUEST(1)`.
    pub name: Option<String>,
}

impl MessageSelector {
    /// Whether it refers to a message with this sender, receiver, name and complete text.
    pub fn selects(&self, (from, to): (SiteId, SiteId), kind: &str, text: impl FnOnce() -> String) -> bool {
        // Message names in scenarios may be written in capitals.
        let named = |name: &String| {
            kind == name || {
                let text = text();
                text == *name || text.to_uppercase() == *name
            }
        };
        self.from == from && self.to == to && self.name.as_ref().is_none_or(named)
    }

    /// The remark in a trace where a script delivers a message that is not under way.
    pub fn not_under_way(&self) -> String {
        let name = self.name.as_deref().unwrap_or("message");
        format!("(there is no {name} from {} to {} under way to deliver)", self.from, self.to)
    }
}

/// An action of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A site requests. Only in mutual exclusion.
    Request(SiteId, Mode),
    /// A site leaves. Only in mutual exclusion.
    Exit(SiteId),
    /// A site starts an election, because the leader does not answer. Only in elections.
    Campaign(SiteId),
    /// A site crashes and loses its state.
    Crash(SiteId),
    /// A crashed site starts again with an initial state.
    Recover(SiteId),
    /// A site pauses and keeps its state.
    Pause(SiteId),
    /// A paused site resumes and handles the events that arrived in the meantime.
    Resume(SiteId),
    /// A message under way arrives now.
    Deliver(MessageSelector),
    /// A message under way is lost; if messages are not delivered by hand, the next such message sent.
    Lose(MessageSelector),
    /// A message under way arrives now, and will arrive a second time.
    Duplicate(MessageSelector),
    /// The next such message has this delay.
    Slow(MessageSelector, Time),
    /// A partition between two groups starts.
    Cut(Vec<SiteId>, Vec<SiteId>, bool),
    /// The partition between two groups ends.
    Heal(Vec<SiteId>, Vec<SiteId>),
    /// A site suspects another, rightly or wrongly.
    Suspect(SiteId, SiteId),
    /// An idle site loses its state and gets an initial one. Only in mutual exclusion.
    Forget(SiteId),
    /// A timer of a site expires: the one with this index among the armed timers, in their order.
    Wake(SiteId, usize),
    /// A remark for the reader of the trace.
    Remark(String),
}

impl Action {
    /// The processes that the action names, each with whether it must be a site that may request.
    pub fn processes(&self) -> Vec<(SiteId, bool)> {
        match self {
            Self::Request(site, _) | Self::Exit(site) => vec![(*site, true)],
            Self::Crash(site)
            | Self::Recover(site)
            | Self::Pause(site)
            | Self::Resume(site)
            | Self::Forget(site)
            | Self::Campaign(site)
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
            Self::Remark(_) => Vec::new(),
        }
    }
}

/// Reads the holders at the start: `1,2` or `S1 shared, S2 shared`.
pub fn parse_holders(text: &str, sites: usize) -> Result<Vec<Holder>, HolderError> {
    text.split(',').map(|text| Holder::parse(text.trim(), sites)).collect()
}

/// The largest reading of a clock at the start.
pub const LARGEST_CLOCK: u64 = 1_000_000;

/// Reads the clocks at the start: `S1=40, S2=33`.
pub fn parse_clocks(text: &str, sites: usize) -> Result<Vec<(SiteId, u64)>, ClockError> {
    let mut clocks: Vec<(SiteId, u64)> = Vec::new();
    for text in text.split(',').map(str::trim) {
        let invalid = || ClockError::Form { text: text.into() };
        let (site, reading) = text.split_once('=').ok_or_else(invalid)?;
        let site = crate::simulator::network::site(site.trim(), sites)?;
        let reading = reading.trim().parse().ok().filter(|reading| *reading <= LARGEST_CLOCK);
        if clocks.iter().any(|(known, _)| *known == site) {
            return Err(ClockError::Twice { site });
        }
        clocks.push((site, reading.ok_or_else(invalid)?));
    }
    Ok(clocks)
}

/// The reason why a text is not a list of clocks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClockError {
    /// A part of the text has another form.
    #[error(
        "a clock at the start is written SITE=READING, as in S1=40, with a reading of at most {LARGEST_CLOCK}, not '{text}'"
    )]
    Form {
        /// The part.
        text: String,
    },
    /// A site has two readings.
    #[error("{site} has two clocks at the start")]
    Twice {
        /// The site.
        site: SiteId,
    },
    /// There is no such site.
    #[error(transparent)]
    Site(#[from] NetworkError),
}

/// The reason why a text is not a site with a time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteTimeError {
    /// The text has no time.
    #[error("this is written SITE@TIME, as in 3@10, not '{text}'")]
    At {
        /// The text.
        text: String,
    },
    /// The text has no interval.
    #[error("this is written SITE@FROM..TO, as in 3@10..20, not '{text}'")]
    During {
        /// The text.
        text: String,
    },
    /// The time is invalid.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// The site or the interval is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// Reads `SITE@TIME`.
pub fn parse_site_at(text: &str, processes: usize) -> Result<(SiteId, Time), SiteTimeError> {
    let (site, time) = text.split_once('@').ok_or_else(|| SiteTimeError::At { text: text.into() })?;
    Ok((crate::simulator::network::site(site, processes)?, Time::parse(time)?))
}

/// Reads `SITE@FROM..TO`.
pub fn parse_site_during(text: &str, processes: usize) -> Result<(SiteId, Time, Time), SiteTimeError> {
    let (site, times) = text.split_once('@').ok_or_else(|| SiteTimeError::During { text: text.into() })?;
    let (from, to) = crate::simulator::network::parse_interval(times)?;
    Ok((crate::simulator::network::site(site, processes)?, from, to))
}
