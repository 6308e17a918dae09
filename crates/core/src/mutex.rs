//! The family of protocols that let sites in: one at a time, or as many as their kind of lock allows.

use crate::{Holder, Mode, Out, Protocol, Sharing, SiteId, Timestamp};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What an application asks of a mutual exclusion protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ask {
    /// I want to enter the critical section, in this mode.
    Request(Mode),
    /// I have left the critical section.
    Release,
}

/// What an application learns: it is now inside the critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entered;

/// Where a site stands, in the words of the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Executing outside the critical section.
    #[default]
    Idle,
    /// Requesting the critical section.
    Waiting,
    /// Executing the critical section.
    Inside,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Inside => "inside",
        })
    }
}

/// No clock and no counter of a correct system ever gets here; from here on, counting never overflows either.
pub const LARGEST_NUMBER: u64 = u64::MAX / 4;

/// A protocol that lets one site at a time into the critical section, or as many as [`sharing`](Self::sharing) says.
pub trait MutualExclusion: Protocol<Input = Ask, Output = Entered> {
    /// What a person should know about the algorithm.
    const ABOUT: About;

    /// The algorithm's own options, made from settings such as `coordinator=apart`.
    type Options: Clone + fmt::Debug + Default + Send + Sync;

    /// What a person should know about the algorithm that these options choose; [`ABOUT`](Self::ABOUT), but for
    /// [`AnySite`](crate::any::AnySite).
    fn about(_options: &Self::Options) -> &'static About {
        const { &Self::ABOUT }
    }

    /// Reads the settings. Asking [`Settings`] for each known one is enough: what nobody asked for is
    /// refused by the caller.
    fn options(_settings: &mut Settings, _sites: usize) -> Result<Self::Options, String> {
        Ok(Self::Options::default())
    }

    /// How many processes there are beside the sites that ask: a coordinator apart.
    fn helpers(_options: &Self::Options) -> usize {
        0
    }

    /// Who may be inside together; by default one at a time. A protocol is asked only in modes that this knows, so that
    /// one for a mutex need not look at the mode.
    fn sharing(_options: &Self::Options) -> Sharing {
        Sharing::Mutex
    }

    /// The state of one site at the start. Whoever the start names as a holder is inside its critical section, and
    /// every site knows whatever it must know for that. There are never more holders than [`sharing`](Self::sharing)
    /// allows.
    fn start(me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self;

    /// Whether it goes on when sites crash, and come back from scratch, as long as one is always up and the failure
    /// detector is perfect. Tests then let sites crash.
    const SURVIVES_CRASHES: bool = false;

    /// The state of a site that has crashed and starts from scratch, for the `life`th time. It knows nothing but that
    /// and the setup, in which it is not the holder and has no token. An algorithm that lets such a site take part again
    /// says how here.
    fn restart(me: SiteId, _life: u32, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self {
        Self::start(me, setup, out)
    }

    /// What the paper promises for this load and so many sites.
    fn expected(load: Load, sites: usize, options: &Self::Options) -> Expected;

    /// What cannot happen with these options: names of messages and sentences of rules. Tests expect all the others.
    fn dormant(_options: &Self::Options) -> &'static [&'static str] {
        &[]
    }

    /// The timestamp of the site's request, pending or being served, where the paper orders requests by it.
    fn timestamp(&self) -> Option<Timestamp> {
        None
    }

    /// Whether the paper promises that conflicting requests are served in the order of their timestamps.
    fn in_timestamp_order() -> bool {
        false
    }

    /// The most messages per entry that the paper allows, in any run in which everybody who asks is served.
    fn most_messages(_sites: usize, _options: &Self::Options) -> Option<usize> {
        None
    }

    /// How many kinds of numbers there are that grow for ever and only matter relative to others of their kind: clocks,
    /// sequence numbers.
    fn scales(_sites: usize) -> usize {
        0
    }

    /// Visits every such number of a site, with its kind, so that a checker can keep them small. What no longer matters
    /// is set to 0 and not visited.
    fn numbers(&mut self, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// The same for a message, and who sent it.
    fn numbers_in(_from: SiteId, _message: &mut Self::Message, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// How many tokens this site has. There must never be more than one in the whole system.
    fn tokens(&self) -> u32 {
        0
    }

    /// How many tokens travel in this message.
    fn tokens_in(_message: &Self::Message) -> u32 {
        0
    }

    /// Whether a site of a system of at most so many sites can have sent this: it names sites that exist, lists no more than there
    /// are, and its numbers are not about to overflow ([`LARGEST_NUMBER`]). A driver whose messages come from outside asks BEFORE
    /// it delivers one.
    fn plausible(_message: &Self::Message, _sites: usize) -> bool {
        true
    }

    /// Whether this site can hear that from another one as things stand. `false` for what does not fit its state: a list of the
    /// wrong length, a second request of a site that can only have one, a request that came back to its asker. Asked together with [`plausible`](Self::plausible).
    fn awaits(&self, _from: SiteId, _message: &Self::Message) -> bool {
        true
    }

    /// Whether this site, inside, knows of another one that waits for it. A site that cannot know, as where others ask a coordinator,
    /// says no: a driver must not keep others waiting for ever because of that.
    fn is_wanted(&self) -> bool {
        false
    }

    /// What must hold of this site's state after every step. Cheap: every run checks it at every step.
    fn invariant(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// How a system starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup<O> {
    /// How many sites may ask.
    pub sites: usize,
    /// Who has the token, or is asked first, when nobody holds the lock.
    pub home: SiteId,
    /// Who is inside the critical section at the start, and how.
    pub holders: Vec<Holder>,
    /// The algorithm's own options.
    pub options: O,
}

impl<O> Setup<O> {
    /// A start with nobody inside.
    pub fn new(sites: usize, options: O) -> Self {
        Self { sites, home: SiteId(0), holders: Vec::new(), options }
    }

    /// Who is inside at the start, where that can only be one.
    pub fn holder(&self) -> Option<SiteId> {
        self.holders.first().map(|holder| holder.site)
    }

    /// Where a token is at the start: with the holder if there is one.
    pub fn token_site(&self) -> SiteId {
        self.holder().unwrap_or(self.home)
    }

    /// How the given site is inside at the start, if it is.
    pub fn mode_of(&self, site: SiteId) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.site == site).map(|holder| holder.mode)
    }

    /// Where the given site stands at the start.
    pub fn phase_of(&self, site: SiteId) -> Phase {
        if self.mode_of(site).is_some() { Phase::Inside } else { Phase::Idle }
    }
}

/// How much the sites ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// One requester at a time, and the next only when the network is quiet.
    Low,
    /// Every site asks again at once after leaving.
    High,
}

/// What the paper promises; `None` where it promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Expected {
    /// Messages between different sites for each entry.
    pub messages_per_entry: Option<f64>,
    /// From an exit to the next entry when somebody waits, in T.
    pub sync_delay: Option<f64>,
    /// From a request to the entry when nobody else wants in, in T.
    pub client_delay: Option<f64>,
}

/// How an algorithm keeps sites apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// One process decides.
    Coordinator,
    /// All others must agree.
    Permission,
    /// Whoever has the token may enter.
    Token,
    /// A site needs the votes of some others.
    Quorum,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coordinator => "coordinator",
            Self::Permission => "permission",
            Self::Token => "token",
            Self::Quorum => "quorum",
        })
    }
}

/// What an algorithm needs of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// Between each pair of sites, messages arrive in the order sent.
    Fifo,
    /// Any order will do.
    Any,
}

impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "FIFO",
            Self::Any => "any",
        })
    }
}

/// What a person should know about an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The name to type.
    pub slug: &'static str,
    /// The name to say.
    pub title: &'static str,
    /// How it keeps sites apart.
    pub family: Family,
    /// Who published it, where and when.
    pub paper: &'static str,
    /// The idea in a sentence or two.
    pub idea: &'static str,
    /// What it needs of its channels.
    pub channels: Channels,
    /// Whether messages travel even when nobody asks.
    pub perpetual: bool,
    /// Whether nobody can ever be stuck for good while nothing fails.
    pub deadlock_free: bool,
    /// Its cost, as formulas.
    pub cost: Cost,
    /// What a crash does.
    pub crash: &'static str,
    /// The settings it takes.
    pub settings: &'static [Setting],
}

/// The cost of an algorithm, as formulas over N sites and the message delay T.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Messages per entry at low load.
    pub low: &'static str,
    /// Messages per entry at high load.
    pub high: &'static str,
    /// Synchronization delay.
    pub sync_delay: &'static str,
    /// Client delay at low load.
    pub client_delay: &'static str,
}

/// A setting that an algorithm takes.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub values: &'static str,
    /// What it is when nobody says.
    pub default: &'static str,
    /// What it changes.
    pub help: &'static str,
}

/// What the setting `timeout` may be.
pub const TIMEOUT_VALUES: &str = "none or a time in T from 0.001 to 1e9";

/// Settings by name, as a person gave them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: BTreeMap<String, String>,
    taken: Vec<&'static str>,
}

impl Settings {
    /// Settings from pairs of name and value; the last one of a name counts.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { given: pairs.into_iter().collect(), taken: Vec::new() }
    }

    /// The value of a setting, read with `parse`, or the default where nobody gave one.
    pub fn take<T>(
        &mut self,
        name: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: &str,
    ) -> Result<T, String> {
        self.taken.push(name);
        match self.given.get(name) {
            None => Ok(default),
            Some(value) => {
                parse(value).ok_or_else(|| format!("the setting {name} takes {expected}, not '{value}'"))
            }
        }
    }

    /// The setting `timeout`, in thousandths of T; `None` where the site waits for ever.
    pub fn take_timeout(&mut self) -> Result<Option<u64>, String> {
        let parse = |text: &str| match text.parse::<f64>() {
            _ if text == "none" => Some(None),
            Ok(t) if (0.001..=1e9).contains(&t) => Some(Some((t * 1000.0 + 0.5) as u64)),
            _ => None,
        };
        self.take("timeout", None, parse, TIMEOUT_VALUES)
    }

    /// Refuses what no algorithm asked for.
    pub fn nothing_left(&self) -> Result<(), String> {
        match self.given.keys().find(|name| !self.taken.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if self.taken.is_empty() => {
                Err(format!("there is no setting '{name}' here: this algorithm takes none"))
            }
            Some(name) => {
                Err(format!("there is no setting '{name}' here: there is {}", self.taken.join(", ")))
            }
        }
    }
}

/// Reads a site number as people count, from 1.
pub fn parse_site(text: &str, sites: usize) -> Option<SiteId> {
    let digits = text.strip_prefix(['S', 's']).unwrap_or(text);
    let number: usize = digits.parse().ok()?;
    (1..=sites).contains(&number).then(|| SiteId::new(number - 1))
}

/// Joins things for a person to read: `a, b, c`, or a word for none.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_string() } else { items.join(", ") }
}
