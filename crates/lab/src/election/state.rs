//! The global states of an election, and the possible events in each of them.
//!
//! Time is abstracted. It is replaced by what the papers assume of it:
//!
//! - *Synchronous*: a site's timer expires only when no message is under way from or to that site, since
//!   every message and every reply to it would have arrived before a timeout of 2T_m + T_p. The order in
//!   which the timers of different sites expire is arbitrary; every order is tried.
//! - *Too short*: an armed timer may expire at any time.
//!
//! At any point, up to the bounds, a site may start an election or crash. Every other site detects a crash,
//! at any point after the messages that the crashed site had sent to it have arrived.
//!
//! Of several orders that no site can distinguish, one is tried. An event that concerns one site alone (it
//! starts an election, or crashes) happens at the start or directly after a step of that site: until the
//! site's next step, its exact time makes no difference.

use super::algorithm::ConfiguredElection;
use super::electorate::Electorate;
use crate::algorithm::{self, Actions, Message, Timer};
use crate::property::Property;
use foldhash::fast::FixedState;
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{Campaign, Elected, MessageKind, SiteId};
use std::hash::BuildHasher as _;

/// The assumption on timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// Timeouts are as long as the papers require.
    Synchronous,
    /// Timeouts may be shorter than the time of a reply.
    TooShort,
}

/// The bounds of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Number of sites.
    pub sites: usize,
    /// Number of sites that may start an election spontaneously, in addition to those that detect a crash of
    /// the leader.
    pub initiators: u8,
    /// The maximum number of crashes.
    pub crashes: u8,
    /// Whether the network may be partitioned into two groups, once and permanently: messages between them
    /// are lost, and no site is notified.
    pub partition: bool,
    /// Whether channels are FIFO.
    pub fifo: bool,
    /// The assumption on timeouts.
    pub timing: Timing,
}

/// A message under way: sender, receiver, message.
pub(super) type Flight = (SiteId, SiteId, Message);

/// A global state. Unordered collections are kept sorted, so that equal states compare as equal.
#[derive(Clone)]
pub(super) struct State {
    pub(super) electorate: Electorate,
    pub(super) under_way: Vec<Flight>,
    pub(super) armed: Vec<(SiteId, Timer)>,
    /// The sites that have not started an election spontaneously.
    pub(super) content: Vec<SiteId>,
    pub(super) initiators_left: u8,
    /// Pairs of a site and a crashed one whose crash it has not detected yet.
    pub(super) unnoticed: Vec<(SiteId, SiteId)>,
    pub(super) crashes_left: u8,
    /// The sites on one side of the partition; empty before it.
    pub(super) apart: Vec<SiteId>,
}

/// An event.
#[derive(Clone)]
pub(super) enum Event {
    Campaign(SiteId),
    Deliver(Flight),
    Timer(SiteId, Timer),
    Notice(SiteId, SiteId),
    Crash(SiteId),
    Partition(Vec<SiteId>),
}

impl Event {
    /// The event as a line of a scenario, without its time. `before` is the state in which it happens.
    pub(super) fn line(&self, before: &State) -> String {
        match self {
            Self::Campaign(site) => format!("{site} campaigns"),
            Self::Deliver((from, to, message)) => format!("deliver {from}>{to} {message}"),
            Self::Timer(site, timer) => {
                let mut armed = before.armed.iter().filter(|(other, _)| other == site);
                let place = armed.position(|(_, other)| other == timer).unwrap_or_default();
                format!("{site} wakes {}", place + 1)
            }
            Self::Notice(site, crashed) => format!("{site} suspects {crashed}"),
            Self::Crash(site) => format!("crash {site}"),
            Self::Partition(apart) => {
                let numbers = |sites: &mut dyn Iterator<Item = SiteId>| {
                    sites.map(|site| site.number().to_string()).collect::<Vec<_>>().join(",")
                };
                let mut others = SiteId::all(before.electorate.len()).filter(|site| !apart.contains(site));
                format!("cut {}|{}", numbers(&mut apart.iter().copied()), numbers(&mut others))
            }
        }
    }

    /// The fair action that the event takes. `None` if the event need not happen.
    pub(super) fn fair_action(&self, fifo: bool) -> Option<u64> {
        let hash = FixedState::with_seed(0);
        match self {
            // On a FIFO channel the fair action is to deliver the head, independent of the message at the head.
            Self::Deliver((from, to, _)) if fifo => Some(hash.hash_one((0, from, to))),
            Self::Deliver(flight) => Some(hash.hash_one((0, flight))),
            Self::Timer(site, timer) => Some(hash.hash_one((1, site, timer))),
            Self::Notice(site, crashed) => Some(hash.hash_one((2, site, crashed))),
            Self::Campaign(_) | Self::Crash(_) | Self::Partition(_) => None,
        }
    }
}

impl State {
    pub(super) fn new(election: &dyn ConfiguredElection, bounds: &Bounds) -> Self {
        Self {
            electorate: Electorate::new(election, bounds.sites, 0),
            under_way: Vec::new(),
            armed: Vec::new(),
            content: SiteId::all(bounds.sites).collect(),
            initiators_left: bounds.initiators,
            unnoticed: Vec::new(),
            crashes_left: bounds.crashes,
            apart: Vec::new(),
        }
    }

    /// Whether no event is required any more, although a site may still crash or start an election.
    pub(super) fn is_at_rest(&self) -> bool {
        self.under_way.is_empty() && self.armed.is_empty() && self.unnoticed.is_empty()
    }

    /// The possible events, except those that a site can initiate by itself at any time.
    fn events(&self, bounds: &Bounds, kinds: &[MessageKind]) -> Vec<Event> {
        if bounds.timing == Timing::Synchronous
            && let Some(ack) = self.under_way.iter().find(|(_, _, message)| is_ack(message, kinds))
        {
            return vec![Event::Deliver(ack.clone())];
        }
        let mut events = Vec::new();
        for (at, flight) in self.under_way.iter().enumerate() {
            // Of equal messages, only one is considered; of a FIFO channel, only the first can arrive.
            let follows = |before: &Flight| {
                if bounds.fifo { (before.0, before.1) == (flight.0, flight.1) } else { before == flight }
            };
            if at == 0 || !follows(&self.under_way[at - 1]) {
                events.push(Event::Deliver(flight.clone()));
            }
        }
        let waits = |site: SiteId| self.under_way.iter().any(|(from, to, _)| *from == site || *to == site);
        let due = |site| bounds.timing == Timing::TooShort || !waits(site);
        let timers = self.armed.iter().filter(|(site, _)| due(*site));
        events.extend(timers.map(|(site, timer)| Event::Timer(*site, timer.clone())));
        let received_all =
            |site, crashed| !self.under_way.iter().any(|(from, to, _)| (*from, *to) == (crashed, site));
        let noticeable = self.unnoticed.iter().filter(|(site, crashed)| received_all(*site, *crashed));
        events.extend(noticeable.map(|&(site, crashed)| Event::Notice(site, crashed)));
        if bounds.partition && self.apart.is_empty() {
            // The first site never moves, because a partition and its mirror image are the same.
            let groups = (1_u32..1 << (bounds.sites - 1)).map(|bits| {
                SiteId::all(bounds.sites).skip(1).filter(|site| bits >> (site.index() - 1) & 1 == 1).collect()
            });
            events.extend(groups.map(Event::Partition));
        }
        events
    }

    /// Whether messages between two sites are lost because of the partition.
    fn are_apart(&self, one: SiteId, other: SiteId) -> bool {
        self.apart.contains(&one) != self.apart.contains(&other)
    }

    /// The events that a site can initiate by itself: starting an election, and crashing.
    fn own_events(&self, site: SiteId) -> impl Iterator<Item = Event> + use<> {
        let campaign = self.initiators_left > 0 && self.content.contains(&site);
        let crash = self.crashes_left > 0 && self.electorate.is_up(site);
        let campaign = campaign.then_some(Event::Campaign(site));
        campaign.into_iter().chain(crash.then_some(Event::Crash(site)))
    }

    /// Takes a step; returns its site and the violation in it, if there is one.
    fn step(&mut self, event: Event, fifo: bool) -> (SiteId, Option<(Property, String)>) {
        use algorithm::Event as Cause;
        let (site, cause) = match event {
            Event::Campaign(site) => {
                self.initiators_left -= 1;
                self.content.retain(|&other| other != site);
                (site, Cause::Input(Campaign))
            }
            Event::Deliver(flight) => {
                if let Some(place) = self.under_way.iter().position(|other| *other == flight) {
                    self.under_way.remove(place);
                }
                let (from, to, message) = flight;
                (to, Cause::Message(from, message))
            }
            Event::Timer(site, timer) => {
                self.armed.retain(|other| *other != (site, timer.clone()));
                (site, Cause::Timer(timer))
            }
            Event::Notice(site, crashed) => {
                self.unnoticed.retain(|other| *other != (site, crashed));
                (site, Cause::Suspect(crashed))
            }
            Event::Crash(site) => {
                self.crash(site);
                return (site, None);
            }
            Event::Partition(apart) => {
                self.apart = apart;
                let lost: Vec<bool> =
                    self.under_way.iter().map(|(from, to, _)| self.are_apart(*from, *to)).collect();
                let mut lost = lost.into_iter();
                self.under_way.retain(|_| !lost.next().unwrap_or(false));
                return (SiteId(0), None);
            }
        };
        let actions = self.electorate.step(site, &cause);
        let wrong = self.electorate.leader_violation(site, &actions);
        self.settle(site, fifo, actions);
        (site, wrong)
    }

    fn crash(&mut self, crashed: SiteId) {
        self.crashes_left -= 1;
        self.electorate.crash(crashed);
        self.under_way.retain(|(_, to, _)| *to != crashed);
        self.armed.retain(|(site, _)| *site != crashed);
        self.content.retain(|&site| site != crashed);
        self.unnoticed.retain(|(site, _)| *site != crashed);
        self.unnoticed.extend(self.electorate.live().map(|site| (site, crashed)));
        self.unnoticed.sort_unstable();
    }

    fn settle(&mut self, site: SiteId, fifo: bool, actions: Actions<Elected>) {
        for (to, message) in actions.sends {
            if self.electorate.is_up(to) && !self.are_apart(site, to) {
                self.under_way.push((site, to, message));
            }
        }
        if fifo {
            self.under_way.sort_by_key(|(from, to, _)| (*from, *to));
        } else {
            self.under_way.sort_unstable();
        }
        for change in actions.timers {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.armed.retain(|other| *other != (site, timer.clone()));
            if let TimerChange::Arm { timer, .. } = change {
                self.armed.push((site, timer));
            }
        }
        self.armed.sort_unstable();
    }
}

/// Whether a message only acknowledges another. Its receipt only disarms a timer, which cannot expire while
/// the message is under way. With sufficiently long timeouts, every other event can therefore be moved after
/// its receipt, and only that order is tried.
fn is_ack(message: &Message, kinds: &[MessageKind]) -> bool {
    kinds[message.kind()].name == "ACK"
}

/// A possible next state.
pub(super) struct Successor {
    pub(super) state: State,
    /// The events that lead to the state.
    pub(super) events: Vec<Event>,
    /// The violation in the last of them, if there is one.
    pub(super) wrong: Option<(Property, String)>,
    /// Whether no site has reacted to an event yet.
    pub(super) opening: bool,
}

impl State {
    /// The possible next states. While no site has reacted to an event (`opening`), every site may start an
    /// election or crash; later, only the site that has taken a step.
    pub(super) fn successors(&self, opening: bool, bounds: &Bounds, kinds: &[MessageKind]) -> Vec<Successor> {
        let sites = SiteId::all(if opening { bounds.sites } else { 0 });
        let of_their_own = sites.flat_map(|site| self.own_events(site)).map(|event| (event, true));
        let all = of_their_own.chain(self.events(bounds, kinds).into_iter().map(|event| (event, false)));
        let mut successors = Vec::new();
        for (event, opening) in all {
            let mut left = vec![(self.clone(), Vec::new(), event)];
            while let Some((mut state, mut events, event)) = left.pop() {
                let (site, wrong) = state.step(event.clone(), bounds.fifo);
                events.push(event);
                left.extend(state.own_events(site).map(|own| (state.clone(), events.clone(), own)));
                successors.push(Successor { state, events, wrong, opening });
            }
        }
        successors
    }
}
