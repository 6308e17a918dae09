//! The protocols that admit sites to a critical section: one at a time, or as many as the kind of lock allows.

use crate::settings::{Configure, Setting};
use crate::{Holder, LamportClock, Mode, Out, Protocol, Sharing, SiteId, Stamp, Timestamp};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use serde::{Deserialize, Serialize};

/// An input of the application: a request or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ApplicationInput {
    /// The application requests to enter the critical section in this mode.
    Request(Mode),
    /// The application has left the critical section.
    Release,
}

/// The output of a mutual exclusion protocol: the site is now inside the critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entered;

/// The phase of a site's request.
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

/// The largest clock reading or counter that a message may carry. No correct system reaches it, and adding to it does
/// not overflow.
pub const LARGEST_NUMBER: u64 = u64::MAX / 4;

/// A protocol that admits one site at a time to the critical section, or as many as [`sharing`](Self::sharing) allows.
///
/// Its own methods are those that every driver calls: the simulator, the checker and the cluster. The methods for one
/// kind of caller are in the traits that it requires: [`Configure`] for the code that reads the user's settings,
/// [`PaperFigures`] for comparisons with the paper, [`Inspect`] for the observers of a run, and [`Validate`] for drivers
/// whose messages come from a network.
pub trait MutualExclusion:
    Protocol<Input = ApplicationInput, Output = Entered> + Configure + PaperFigures + Inspect + Validate
{
    /// The description of the algorithm.
    const ABOUT: About;

    /// Whether the algorithm continues when sites crash and restart without their state, provided that one site is
    /// always up and the failure detector is perfect. Tests crash sites where this is `true`.
    const SURVIVES_CRASHES: bool = false;

    /// Whether the algorithm continues when one message is lost. Tests lose one where this is `true`.
    const SURVIVES_A_LOSS: bool = false;

    /// Whether the sites have Lamport clocks that start with the readings of the [setup](Setup::clock_of).
    const HAS_CLOCKS: bool = false;

    /// The description of the algorithm that these options select. Always [`ABOUT`](Self::ABOUT), except for
    /// [`AnySite`](crate::any::AnySite).
    fn about(_options: &Self::Options) -> &'static About {
        const { &Self::ABOUT }
    }

    /// The number of processes besides the requesting sites: 1 for a separate coordinator.
    fn helpers(_options: &Self::Options) -> usize {
        0
    }

    /// The rule for entries that may overlap. Default: none may. Drivers request only modes that the returned value
    /// supports, so that a protocol for a mutex may ignore the mode.
    fn sharing(_options: &Self::Options) -> Sharing {
        Sharing::Mutex
    }

    /// The initial state of one site. The holders that the setup names are inside the critical section from the start,
    /// and every site has the state that this implies. There are never more holders than [`sharing`](Self::sharing)
    /// allows.
    fn start(me: SiteId, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self;

    /// The state of a site that restarts after a crash as incarnation number `incarnation`. The site has lost its
    /// state; it knows that number and the setup, in which it neither is a holder nor has the token. An algorithm whose
    /// sites may return overrides this.
    fn restart(me: SiteId, _incarnation: u32, setup: &Setup<Self::Options>, out: &mut Out<Self>) -> Self {
        Self::start(me, setup, out)
    }

    /// Whether this site, inside, knows that another site waits for the lock. Returns `false` where the site cannot
    /// know, for example because requests go to a coordinator; a driver must not let others wait for ever on account of
    /// that.
    fn is_wanted(&self) -> bool {
        false
    }
}

/// The statements of the paper about cost and order. The lab compares them with its measurements, and its checker and
/// conformance test verify them in every run; a cluster does not call these methods.
pub trait PaperFigures: Configure {
    /// The cost that the paper states for this load and number of sites.
    fn expected(load: Load, sites: usize, options: &Self::Options) -> Expected;

    /// The largest number of messages per entry that the paper allows, in any run in which every request is served.
    fn most_messages(_sites: usize, _options: &Self::Options) -> Option<usize> {
        None
    }

    /// Whether the paper states that conflicting requests are served in the order of their
    /// [timestamps](Inspect::timestamp).
    fn in_timestamp_order() -> bool {
        false
    }

    /// The names of messages and the sentences of rules that cannot occur with these options. Tests expect all the
    /// others.
    fn unreachable_labels(_options: &Self::Options) -> &'static [&'static str] {
        &[]
    }
}

/// The parts of a site's state and of a message that an observer needs in order to verify a run. The simulator, the
/// checker and tests call these methods; a cluster does not.
pub trait Inspect: Protocol {
    /// The timestamp of the site's request, pending or being served, where the paper orders requests by timestamp.
    fn timestamp(&self) -> Option<Timestamp> {
        None
    }

    /// The number of tokens at this site. There is never more than one in the whole system.
    fn tokens(&self) -> u32 {
        0
    }

    /// The number of tokens in this message.
    fn tokens_in(_message: &Self::Message) -> u32 {
        0
    }

    /// Checks the invariants of this site's state. Cheap, because every run checks them after every step.
    fn invariant(&self) -> Result<(), InvariantViolated> {
        Ok(())
    }

    /// The number of independent scales: kinds of numbers that grow without bound and matter only relative to others of
    /// the same kind, such as clocks and sequence numbers.
    fn scales(_sites: usize) -> usize {
        0
    }

    /// Visits every such number in the site's state together with its scale, so that a checker can renumber them. A
    /// number that no longer matters is set to 0 and not visited.
    fn numbers(&mut self, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// The same as [`numbers`](Self::numbers) for a message and its sender.
    fn numbers_in(_from: SiteId, _message: &mut Self::Message, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// Whether all sites are alike once requests are compared by their order alone: all sites start in the same state,
    /// site numbers only name sites and break ties between equal times, [`rename`](Self::rename) replaces every site
    /// number, messages contain none, and [`stamps`](Self::stamps) visits every number that is not a count.
    fn is_symmetric() -> bool {
        false
    }

    /// Visits every number in the site's state that is a time or a ticket, so that a checker can renumber them. A number
    /// that no longer matters is set to 0 and not visited.
    fn stamps(&mut self, _visit: &mut dyn FnMut(Stamp<'_>)) {}

    /// The same as [`stamps`](Self::stamps) for a message and its sender.
    fn stamps_in(_from: SiteId, _message: &mut Self::Message, _visit: &mut dyn FnMut(Stamp<'_>)) {}

    /// Replaces every site number in the site's state.
    fn rename(&mut self, _to: &dyn Fn(SiteId) -> SiteId) {}

    /// Drops the parts of the state that matter only for further requests of this site. A checker calls this after each
    /// step of a site that makes no further request.
    fn make_no_further_request(&mut self) {}
}

/// The error of [`Inspect::invariant`]: a condition that holds in every reachable state of a correct algorithm does not
/// hold. The text describes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvariantViolated(pub &'static str);

impl fmt::Display for InvariantViolated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for InvariantViolated {}

/// The checks on messages from outside. A driver that receives messages from a network calls both methods BEFORE it
/// delivers a message, and drops a message that fails one; with these checks, no message makes a site panic, loop or
/// grow without bound. A driver that delivers only the messages of its own sites, such as the simulator, needs neither.
pub trait Validate: Protocol {
    /// Whether a site of a system of at most `sites` sites can have sent this message: every site that it names exists,
    /// no list is longer than the number of sites, and no number is about to overflow ([`LARGEST_NUMBER`]).
    fn is_well_formed(_message: &Self::Message, _sites: usize) -> bool {
        true
    }

    /// Whether this message can arrive in the current state of this site. Returns `false` for a message that does not
    /// fit: a list of the wrong length, a second request of a site that can have only one, a request that came back to
    /// its requester.
    fn is_expected(&self, _from: SiteId, _message: &Self::Message) -> bool {
        true
    }
}

/// The initial situation of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup<O> {
    /// The number of sites that may request.
    pub sites: usize,
    /// The site that has the token, or is the first to receive requests, when no site holds the lock.
    pub home: SiteId,
    /// The sites that are inside the critical section at the start, with their modes.
    pub holders: Vec<Holder>,
    /// The readings of Lamport clocks at the start, where they are not 0. Only algorithms with
    /// [`HAS_CLOCKS`](MutualExclusion::HAS_CLOCKS) use them.
    pub clocks: Vec<(SiteId, u64)>,
    /// The algorithm's own options.
    pub options: O,
}

impl<O> Setup<O> {
    /// A setup without a holder.
    pub fn new(sites: usize, options: O) -> Self {
        Self { sites, home: SiteId(0), holders: Vec::new(), clocks: Vec::new(), options }
    }

    /// The Lamport clock of the given site at the start.
    pub fn clock_of(&self, site: SiteId) -> LamportClock {
        let reading = self.clocks.iter().find(|(known, _)| *known == site).map(|&(_, reading)| reading);
        LamportClock::reading_at_start(reading.unwrap_or_default())
    }

    /// The holder at the start, for locks that have at most one.
    pub fn holder(&self) -> Option<SiteId> {
        self.holders.first().map(|holder| holder.site)
    }

    /// The initial place of the token: the holder, or the home site if there is none.
    pub fn token_site(&self) -> SiteId {
        self.holder().unwrap_or(self.home)
    }

    /// The mode in which the given site is inside at the start; `None` if it is not.
    pub fn mode_of(&self, site: SiteId) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.site == site).map(|holder| holder.mode)
    }

    /// The initial phase of the given site.
    pub fn phase_of(&self, site: SiteId) -> Phase {
        if self.mode_of(site).is_some() { Phase::Inside } else { Phase::Idle }
    }
}

/// How often the sites request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// One requester at a time; the next request follows when no message is in transit.
    Low,
    /// Every site requests again as soon as it has left.
    High,
}

/// The cost that the paper states; `None` where it states none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Expected {
    /// Messages between different sites per entry.
    pub messages_per_entry: Option<f64>,
    /// Synchronization delay: the time from an exit to the next entry while a site waits, in T.
    pub sync_delay: Option<f64>,
    /// The least and the largest synchronization delay, in T, where the paper gives no single value.
    pub sync_delay_range: Option<(f64, f64)>,
    /// The time from a request to the entry while no other site requests, in T.
    pub client_delay: Option<f64>,
}

/// The mechanism by which an algorithm excludes sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// One process grants all requests.
    Coordinator,
    /// A site needs the permission of all others.
    Permission,
    /// A site needs the only token.
    Token,
    /// A site needs the votes of a quorum.
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

/// The order of delivery that an algorithm requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// Messages between each pair of sites arrive in the order sent.
    Fifo,
    /// Messages may arrive in any order.
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

/// The description of an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The name on the command line.
    pub slug: &'static str,
    /// The full name.
    pub title: &'static str,
    /// The mechanism of exclusion.
    pub family: Family,
    /// The authors, the publication and the year.
    pub paper: &'static str,
    /// The idea, in one or two sentences.
    pub idea: &'static str,
    /// The order of delivery that it requires.
    pub channels: Channels,
    /// Whether messages travel even while no site requests.
    pub perpetual: bool,
    /// Whether every request is eventually served while nothing fails.
    pub deadlock_free: bool,
    /// The cost, as formulas.
    pub cost: Cost,
    /// The consequences of a crash.
    pub crash: &'static str,
    /// The settings that it accepts.
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

/// Reads a site number counted from 1, with or without the prefix `S`.
pub fn parse_site(text: &str, sites: usize) -> Option<SiteId> {
    let digits = text.strip_prefix(['S', 's']).unwrap_or(text);
    let number: usize = digits.parse().ok()?;
    (1..=sites).contains(&number).then(|| SiteId::new(number - 1))
}

/// Joins items as `a, b, c`; returns `none` if there are no items.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_string() } else { items.join(", ") }
}
