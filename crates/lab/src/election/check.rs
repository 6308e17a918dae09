//! The checker of elections: every order of events in a small system.
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
//! site's next step, its exact time makes no difference. States are identified by a 128-bit fingerprint.

use super::electorate::{Electorate, Property};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{Election, Out, Protocol, SiteId, Vocabulary};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The assumption on timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Timeouts are as long as the papers require.
    Synchronous,
    /// Timeouts may be shorter than the time of a reply.
    TooShort,
}

/// The bounds of a check.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
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
    /// The maximum number of states; the search stops there.
    pub most_states: usize,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Number of distinct states.
    pub states: usize,
    /// Number of states at rest.
    pub at_rest: usize,
    /// Whether every state was visited; a counterexample ends the search.
    pub complete: bool,
    /// A violation, with the shortest run to it.
    pub counterexample: Option<Counterexample>,
}

/// A run that violates a property.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violated property.
    pub property: Property,
    /// A description of the violation.
    pub what: String,
    /// The steps, one sentence each.
    pub story: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.property, self.what)?;
        self.story.iter().enumerate().try_for_each(|(at, line)| writeln!(f, "{:>4}  {line}", at + 1))
    }
}

type Flight<E> = (SiteId, SiteId, <E as Protocol>::Message);

/// A global state. Unordered collections are kept sorted, so that equal states compare as equal.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State<E: Election> {
    electorate: Electorate<E>,
    under_way: Vec<Flight<E>>,
    armed: Vec<(SiteId, <E as Protocol>::Timer)>,
    /// The sites that have not started an election spontaneously.
    content: Vec<SiteId>,
    initiators_left: u8,
    /// Pairs of a site and a crashed one whose crash it has not detected yet.
    unnoticed: Vec<(SiteId, SiteId)>,
    crashes_left: u8,
    /// The sites on one side of the partition; empty before it.
    apart: Vec<SiteId>,
}

/// An event.
#[derive(Clone)]
enum Event<E: Election> {
    Campaign(SiteId),
    Deliver(Flight<E>),
    Timer(SiteId, <E as Protocol>::Timer),
    Notice(SiteId, SiteId),
    Crash(SiteId),
    Partition(Vec<SiteId>),
}

impl<E: Election> fmt::Display for Event<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Campaign(site) => write!(f, "{site} misses the leader"),
            Self::Deliver((from, to, message)) => write!(f, "{to} receives {message} from {from}"),
            Self::Timer(site, _) => write!(f, "a timer of {site} runs out"),
            Self::Notice(site, crashed) => write!(f, "{site} notices that {crashed} has crashed"),
            Self::Crash(site) => write!(f, "{site} crashes"),
            Self::Partition(apart) => write!(f, "{} cut off from the others", are(apart)),
        }
    }
}

/// `S1 is`, `S1 and S2 are`.
fn are(sites: &[SiteId]) -> String {
    let names: Vec<String> = sites.iter().map(ToString::to_string).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

impl<E: Election> State<E> {
    fn new(bounds: &Bounds, options: &E::Options, out: &mut Out<E>) -> Self {
        Self {
            electorate: Electorate::new(bounds.sites, options, out),
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
    fn is_at_rest(&self) -> bool {
        self.under_way.is_empty() && self.armed.is_empty() && self.unnoticed.is_empty()
    }

    /// The possible events, except those that a site can initiate by itself at any time.
    fn events(&self, bounds: &Bounds) -> Vec<Event<E>> {
        if bounds.timing == Timing::Synchronous
            && let Some(ack) = self.under_way.iter().find(|(_, _, message)| is_ack(message))
        {
            return vec![Event::Deliver(ack.clone())];
        }
        let mut events = Vec::new();
        for (at, flight) in self.under_way.iter().enumerate() {
            // Of equal messages, only one is considered; of a FIFO channel, only the first can arrive.
            let follows = |before: &Flight<E>| {
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
        let heard_out =
            |site, crashed| !self.under_way.iter().any(|(from, to, _)| (*from, *to) == (crashed, site));
        let noticeable = self.unnoticed.iter().filter(|(site, crashed)| heard_out(*site, *crashed));
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
    fn own_events(&self, site: SiteId) -> impl Iterator<Item = Event<E>> + use<E> {
        let campaign = self.initiators_left > 0 && self.content.contains(&site);
        let crash = self.crashes_left > 0 && self.electorate.is_up(site);
        let campaign = campaign.then_some(Event::Campaign(site));
        campaign.into_iter().chain(crash.then_some(Event::Crash(site)))
    }

    /// Takes a step; returns its site and the violation in it, if there is one.
    fn step(&mut self, event: Event<E>, fifo: bool, out: &mut Out<E>) -> (SiteId, Option<String>) {
        let site = match event {
            Event::Campaign(site) => {
                self.initiators_left -= 1;
                self.content.retain(|&other| other != site);
                self.electorate.campaign(site, out);
                site
            }
            Event::Deliver(flight) => {
                if let Some(place) = self.under_way.iter().position(|other| *other == flight) {
                    self.under_way.remove(place);
                }
                let (from, to, message) = flight;
                self.electorate.deliver(from, to, message, out);
                to
            }
            Event::Timer(site, timer) => {
                self.armed.retain(|other| *other != (site, timer.clone()));
                self.electorate.timer(site, timer, out);
                site
            }
            Event::Notice(site, crashed) => {
                self.unnoticed.retain(|other| *other != (site, crashed));
                self.electorate.suspect(site, crashed, out);
                site
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
        let wrong = self.electorate.usurps(site, out);
        self.settle(site, fifo, out);
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

    fn settle(&mut self, site: SiteId, fifo: bool, out: &mut Out<E>) {
        for (to, message) in out.sends.drain(..) {
            if self.electorate.is_up(to) && !self.are_apart(site, to) {
                self.under_way.push((site, to, message));
            }
        }
        if fifo {
            self.under_way.sort_by_key(|(from, to, _)| (*from, *to));
        } else {
            self.under_way.sort_unstable();
        }
        for change in out.timers.drain(..) {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.armed.retain(|other| *other != (site, timer.clone()));
            if let TimerChange::Arm { timer, .. } = change {
                self.armed.push((site, timer));
            }
        }
        self.armed.sort_unstable();
    }

    fn fingerprint(&self) -> u128 {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}

/// Whether a message only acknowledges another. Its receipt only disarms a timer, which cannot expire while
/// the message is under way. With sufficiently long timeouts, every other event can therefore be moved after
/// its receipt, and only that order is tried.
fn is_ack<M: Vocabulary>(message: &M) -> bool {
    M::WORDS[message.word()].name == "ACK"
}

/// A possible next state.
struct Successor<E: Election> {
    state: State<E>,
    /// The steps that lead to it.
    events: Vec<Event<E>>,
    /// The violation in the last of them, if there is one.
    wrong: Option<String>,
    /// Whether no site has reacted to an event yet.
    opening: bool,
}

/// The state of the search.
struct Search<'a, E: Election> {
    bounds: &'a Bounds,
    start: State<E>,
    out: Out<E>,
    numbers: BTreeMap<u128, u32>,
    /// How each state was first reached: the predecessor, and its index among the predecessor's successors.
    origins: Vec<(u32, u32)>,
    /// All steps: predecessor and successor.
    steps: Vec<(u32, u32)>,
    to_do: VecDeque<(u32, State<E>, bool)>,
}

impl<'a, E: Election> Search<'a, E> {
    fn new(bounds: &'a Bounds, options: &E::Options) -> Self {
        let mut out = Out::new(bounds.sites);
        let start = State::new(bounds, options, &mut out);
        Self {
            numbers: BTreeMap::from([(start.fingerprint(), 0)]),
            origins: vec![(0, 0)],
            steps: Vec::new(),
            to_do: VecDeque::from([(0, start.clone(), true)]),
            bounds,
            start,
            out,
        }
    }

    fn successors(&mut self, state: &State<E>, opening: bool) -> Vec<Successor<E>> {
        let sites = SiteId::all(if opening { self.bounds.sites } else { 0 });
        let of_their_own = sites.flat_map(|site| state.own_events(site)).map(|event| (event, true));
        let all = of_their_own.chain(state.events(self.bounds).into_iter().map(|event| (event, false)));
        let mut successors = Vec::new();
        for (event, opening) in all {
            let mut left = vec![(state.clone(), Vec::new(), event)];
            while let Some((mut state, mut events, event)) = left.pop() {
                let (site, wrong) = state.step(event.clone(), self.bounds.fifo, &mut self.out);
                events.push(event);
                left.extend(state.own_events(site).map(|own| (state.clone(), events.clone(), own)));
                successors.push(Successor { state, events, wrong, opening });
            }
        }
        successors
    }

    fn add(&mut self, from: u32, place: usize, next: Successor<E>) {
        let new = self.origins.len() as u32;
        let number = *self.numbers.entry(next.state.fingerprint()).or_insert(new);
        self.steps.push((from, number));
        if number == new {
            self.origins.push((from, place as u32));
            self.to_do.push_back((number, next.state, next.opening));
        }
    }

    /// The run to a state, and then to the given successor of it, if there is one.
    fn counterexample(
        &mut self,
        property: Property,
        what: String,
        at: u32,
        last: Option<usize>,
    ) -> Counterexample {
        let mut places: Vec<usize> = last.into_iter().collect();
        let mut at = at;
        while at != 0 {
            let (before, place) = self.origins[at as usize];
            places.push(place as usize);
            at = before;
        }
        let (mut state, mut opening, mut story) = (self.start.clone(), true, Vec::new());
        for place in places.into_iter().rev() {
            let next = self.successors(&state, opening).swap_remove(place);
            story.extend(next.events.iter().map(|event| event.to_string()));
            (state, opening) = (next.state, next.opening);
        }
        Counterexample { property, what, story }
    }

    /// A state from which none of the given states can be reached.
    ///
    /// The search runs backwards from the goals. Example: with the steps 0 → 1, 1 → 2, 2 → 1 and the goal 0,
    /// the states 1 and 2 are never marked; the result is 1, from which the system cycles without coming to
    /// rest.
    fn cut_off_from(&self, goals: &[u32]) -> Option<u32> {
        let mut before = self.steps.clone();
        before.sort_unstable_by_key(|&(_, to)| to);
        let mut reaches = vec![false; self.origins.len()];
        let mut left: Vec<u32> = goals.to_vec();
        while let Some(state) = left.pop() {
            if !std::mem::replace(&mut reaches[state as usize], true) {
                let first = before.partition_point(|&(_, to)| to < state);
                left.extend(
                    before[first..].iter().take_while(|&&(_, to)| to == state).map(|&(from, _)| from),
                );
            }
        }
        reaches.iter().position(|reaches| !reaches).map(|state| state as u32)
    }
}

/// Tries every order of events within the bounds, shortest first.
pub fn check<E: Election>(bounds: &Bounds, options: &E::Options) -> Verdict {
    let mut search = Search::<E>::new(bounds, options);
    let mut at_rest = Vec::new();
    let mut found = None;
    while let Some((number, state, opening)) = search.to_do.pop_front() {
        if state.is_at_rest() && state.electorate.live().next().is_some() {
            at_rest.push(number);
            found = state.electorate.agreement().err().map(|what| (Property::Agreement, what, number, None));
        }
        for (place, next) in search.successors(&state, opening).into_iter().enumerate() {
            if let Some(what) = &next.wrong {
                found = Some((Property::HighestLeads, what.clone(), number, Some(place)));
                break;
            }
            search.add(number, place, next);
        }
        if found.is_some() || search.origins.len() > bounds.most_states {
            break;
        }
    }
    let complete = found.is_none() && search.to_do.is_empty();
    if complete {
        let never = "from here on it never comes to rest".to_string();
        found = search.cut_off_from(&at_rest).map(|state| (Property::Termination, never, state, None));
    }
    let states = search.origins.len();
    let counterexample =
        found.map(|(property, what, at, last)| search.counterexample(property, what, at, last));
    Verdict { states, at_rest: at_rest.len(), complete, counterexample }
}
