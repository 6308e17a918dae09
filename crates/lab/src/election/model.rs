//! Elections as models for the explorer: every order of events in a small system.
//!
//! A row has one slot for each site, one for each channel, and one for the remaining parts of the state.
//! Sites, contents of channels and remaining parts are numbered in tables. States are stored exactly.

use super::algorithm::{self, ConfiguredElection, Voter};
use super::electorate::Electorate;
use super::state::{Bounds, State, Timing};
use crate::algorithm::{Message, Timer};
use crate::checker::explore::intern::Interner;
use crate::checker::explore::{Fairness, Goals, Model, Next, Worker};
use crate::checker::mutual_exclusion::machine::Violation;
use crate::checker::{self, CheckReport, CheckSpec, Fault, ModelKind, SearchProgress};
use crate::property::Property;
use crate::simulator::runner::Error;
use crate::usage::UsageError;
use lockkeeper_core::election::Winner;
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{MessageKind, SiteId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Checks an election, or a mutant of one.
pub(crate) fn check(
    spec: &CheckSpec,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> Result<CheckReport, Error> {
    let unknown = || UsageError::UnknownElection { name: spec.algorithm.clone(), known: Vec::new() };
    let algorithm = algorithm::find_with_mutants(&spec.algorithm).ok_or_else(unknown)?;
    let mut settings = Settings::new(spec.settings.iter().cloned());
    let election = algorithm.configure(&mut settings, spec.sites).map_err(UsageError::from)?;
    settings.nothing_left().map_err(UsageError::from)?;
    Ok(explore(spec, &*election, go_on))
}

fn bounds(spec: &CheckSpec) -> Bounds {
    Bounds {
        sites: spec.sites,
        initiators: spec.initiators.unwrap_or(1),
        crashes: spec.faults.of(Fault::Crash),
        partition: spec.partition,
        fifo: spec.fifo.unwrap_or(true),
        timing: if spec.short_timeouts { Timing::TooShort } else { Timing::Synchronous },
    }
}

fn explore(
    spec: &CheckSpec,
    election: &dyn ConfiguredElection,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> CheckReport {
    let rested = Arc::new(AtomicBool::new(false));
    let bounds = bounds(spec);
    let model = || ElectionModel {
        bounds,
        start: State::new(election, &bounds),
        kinds: election.algorithm().kinds(),
        tables: Mutex::default(),
        only: spec.only,
        rested: rested.clone(),
    };
    let unclaimed = unclaimed(election.algorithm().about().winner);
    let report = |progress| {
        let mut report = CheckReport::new(spec, ModelKind::Election, system(&bounds), progress);
        report.fifo = Some(bounds.fifo);
        report.properties.remove(&unclaimed);
        report
    };
    let mut report = checker::explore(spec, false, model, report, go_on);
    report.counterexample = report.counterexample.map(|found| found.replayed_election(spec, bounds.fifo));
    if report.counterexample.is_none() && !rested.load(Ordering::Relaxed) {
        report.never_fired.push("the system comes to rest".into());
    }
    report
}

/// The property that an election with this winner does not claim.
pub(super) fn unclaimed(winner: Winner) -> Property {
    match winner {
        Winner::Highest => Property::OneLeader,
        Winner::Any => Property::HighestLeads,
    }
}

/// The system in words: `3 sites, 1 initiator, at most 1 crash, FIFO channels, timeouts as the papers assume`.
fn system(bounds: &Bounds) -> String {
    let plural =
        |count: u8, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let partition = if bounds.partition { ", at most 1 partition" } else { "" };
    let order = if bounds.fifo { "FIFO channels" } else { "channels that may reorder" };
    let timing = match bounds.timing {
        Timing::Synchronous => "timeouts as the papers assume",
        Timing::TooShort => "timeouts that may be too short",
    };
    format!(
        "{} sites, {}, at most {}{partition}, {order}, {timing}",
        bounds.sites,
        plural(bounds.initiators, "initiator", "initiators"),
        plural(bounds.crashes, "crash", "crashes"),
    )
}

/// An election as a model for the explorer.
pub struct ElectionModel {
    bounds: Bounds,
    start: State,
    kinds: &'static [MessageKind],
    tables: Mutex<Tables>,
    only: Option<Property>,
    /// Set when a state at rest is expanded.
    rested: Arc<AtomicBool>,
}

/// The step to a successor.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The index among the successors.
    index: usize,
    fair_action: Option<u64>,
}

impl Model for ElectionModel {
    type Worker<'m> = Expander<'m>;

    fn slots(&self) -> usize {
        self.bounds.sites * self.bounds.sites + 1
    }

    /// The only goal is that the system comes to rest.
    fn goals(&self) -> Goals {
        Goals::from(self.only.is_none_or(|only| only == Property::Termination))
    }

    /// Time is abstracted, so that the timers of different sites expire in any order. A run in which one timer
    /// expires again and again while another stays armed is impossible on real clocks; it is unfair here,
    /// because it never takes the steps after which the other timer could expire.
    fn fairness(&self) -> Fairness {
        Fairness::EveryStep
    }

    fn worker(&self) -> Expander<'_> {
        Expander { model: self }
    }
}

/// Expands states of an [`ElectionModel`].
pub struct Expander<'m> {
    model: &'m ElectionModel,
}

impl Worker for Expander<'_> {
    type Action = Order;
    type Violation = Violation;
    type Property = Property;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let mut row = Vec::new();
        self.model.pack(&self.model.start, true, None, &mut row);
        found(&row);
    }

    fn expand(
        &mut self,
        state: &[u32],
        _tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Order, Violation>),
    ) -> Option<Violation> {
        self.model.expand(state, found)
    }

    fn property(violation: &Violation) -> Property {
        violation.property
    }

    fn describe(&mut self, from: &[u32], action: &Order) -> Vec<String> {
        self.model.describe(from, action.index)
    }

    fn pending(&mut self, state: &[u32]) -> Goals {
        Goals::from(!self.model.unpack(state).0.is_at_rest())
    }

    fn fair_action(&self, action: &Order) -> Option<u64> {
        action.fair_action
    }

    fn unreached(&self, _goal: usize) -> Violation {
        let what = "from here on it never comes to rest".to_string();
        Violation { property: Property::Termination, sites: Vec::new(), what }
    }
}

struct Tables {
    sites: Interner<Arc<dyn Voter>>,
    /// The contents of channels. Number 0 is the empty channel.
    channels: Interner<Vec<Message>>,
    rests: Interner<Rest>,
}

impl Default for Tables {
    fn default() -> Self {
        let mut channels = Interner::default();
        channels.number(Vec::new());
        Self { sites: Interner::default(), channels, rests: Interner::default() }
    }
}

/// The parts of a state other than sites and channels.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Rest {
    up: Vec<bool>,
    armed: Vec<(SiteId, Timer)>,
    content: Vec<SiteId>,
    initiators_left: u8,
    unnoticed: Vec<(SiteId, SiteId)>,
    crashes_left: u8,
    apart: Vec<SiteId>,
    opening: bool,
    leaders: Vec<(u64, SiteId)>,
}

impl ElectionModel {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("no worker panics")
    }

    fn checks(&self, property: Property) -> bool {
        self.only.is_none_or(|only| only == property)
    }

    /// Packs a state into a row. Sites that are the same as `before`, in the state of another row, keep their
    /// numbers.
    fn pack(&self, state: &State, opening: bool, before: Option<(&State, &[u32])>, row: &mut Vec<u32>) {
        let (mut tables, sites) = (self.tables(), self.bounds.sites);
        row.clear();
        for (index, site) in state.electorate.sites.iter().enumerate() {
            row.push(match before {
                Some((other, numbers)) if *other.electorate.sites[index] == **site => numbers[index],
                _ => tables.sites.number_of(site),
            });
        }
        row.resize(sites * sites, 0);
        // Messages under way are sorted by sender and receiver.
        for channel in state.under_way.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (from, to) = (channel[0].0.index(), channel[0].1.index());
            let content = channel.iter().map(|(_, _, message)| message.clone()).collect();
            row[sites + from * (sites - 1) + to - usize::from(to > from)] = tables.channels.number(content);
        }
        let rest = Rest {
            up: state.electorate.up.clone(),
            armed: state.armed.clone(),
            content: state.content.clone(),
            initiators_left: state.initiators_left,
            unnoticed: state.unnoticed.clone(),
            crashes_left: state.crashes_left,
            apart: state.apart.clone(),
            opening,
            leaders: state.electorate.leaders.clone(),
        };
        row.push(tables.rests.number(rest));
    }

    /// The state that was packed into a row, and whether no site has reacted to an event yet.
    fn unpack(&self, row: &[u32]) -> (State, bool) {
        let (tables, sites) = (self.tables(), self.bounds.sites);
        let rest = tables.rests.get(row[sites * sites]).clone();
        let protocols = row[..sites].iter().map(|&number| tables.sites.get(number).clone()).collect();
        let mut under_way = Vec::new();
        for (index, &content) in
            row[sites..sites * sites].iter().enumerate().filter(|(_, content)| **content != 0)
        {
            let (from, to) = (index / (sites - 1), index % (sites - 1));
            let (from, to) = (SiteId::new(from), SiteId::new(to + usize::from(to >= from)));
            let messages = tables.channels.get(content);
            under_way.extend(messages.iter().map(|message| (from, to, message.clone())));
        }
        let state = State {
            electorate: Electorate {
                sites: protocols,
                up: rest.up,
                leaders: rest.leaders,
                winner: self.start.electorate.winner,
                seed: self.start.electorate.seed,
            },
            under_way,
            armed: rest.armed,
            content: rest.content,
            initiators_left: rest.initiators_left,
            unnoticed: rest.unnoticed,
            crashes_left: rest.crashes_left,
            apart: rest.apart,
        };
        (state, rest.opening)
    }

    /// Passes every successor to `found`; returns the violation in the state itself, if there is one.
    fn expand(&self, row: &[u32], found: &mut dyn FnMut(Next<'_, Order, Violation>)) -> Option<Violation> {
        let (state, opening) = self.unpack(row);
        let mut next = Vec::new();
        let violation = |property, what| Violation { property, sites: Vec::new(), what };
        for (index, to) in state.successors(opening, &self.bounds, self.kinds).into_iter().enumerate() {
            let wrong = to.wrong.filter(|(property, _)| self.checks(*property));
            // A crash, or an election that a site starts spontaneously, need not follow any event.
            let fair_action = match &to.events[..] {
                [event] => event.fair_action(self.bounds.fifo),
                _ => None,
            };
            self.pack(&to.state, to.opening, Some((&state, row)), &mut next);
            found(Next {
                action: Order { index, fair_action },
                state: &next,
                tallies: &[],
                violation: wrong.map(|(property, what)| violation(property, what)),
                beyond: false,
            });
        }
        if !state.is_at_rest() || state.electorate.live().next().is_none() {
            return None;
        }
        self.rested.store(true, Ordering::Relaxed);
        let disagreement = state.electorate.agreement().err();
        disagreement
            .filter(|_| self.checks(Property::Agreement))
            .map(|disagreement| violation(Property::Agreement, disagreement.to_string()))
    }

    /// The lines of a scenario for the events that lead to a successor.
    fn describe(&self, row: &[u32], index: usize) -> Vec<String> {
        let (state, opening) = self.unpack(row);
        let mut successors = state.successors(opening, &self.bounds, self.kinds);
        // Only the first event can be the expiry of a timer, so that no other line depends on the state.
        successors.swap_remove(index).events.iter().map(|event| event.line(&state)).collect()
    }
}
