//! Shared-memory algorithms as models for the explorer: machines whose steps are single reads, writes and
//! read-modify-write instructions on registers.
//!
//! Registers are *atomic*, *regular* or *safe*: see [`RegisterKind`]. That the bakery works with safe registers is its
//! defining claim.
//!
//! Processes request again and again; the number of entries is not bounded. Tickets are: those of the bakery
//! grow, so a step that would take a ticket above the limit is not followed, and is counted as *cut*. The
//! verdicts hold for all runs up to the first ticket above the limit. The numbers of all other algorithms are
//! bounded: with atomic registers, no step of theirs is cut.
//!
//! ```
//! use lockkeeper_lab::checker::{CheckSpec, check};
//!
//! use lockkeeper_lab::checker::registers::RegisterKind;
//!
//! let bakery = CheckSpec { registers: RegisterKind::Safe, ..CheckSpec::new("bakery", 2) };
//! assert!(check(&bakery, |_| true).unwrap().is_verified());
//! let broken = check(&CheckSpec::new("bakery-without-choosing", 2), |_| true).unwrap();
//! assert_eq!(broken.wrong.as_deref(), Some("P1 and P2 are both inside"));
//! ```

mod machine;
mod model;
mod programs;
mod section;
mod walk;

pub use machine::{MOST_PROCESSES, RegisterKind};
pub use section::Section;
pub use walk::{Choice, RegisterValue, Walk};

use crate::Error;
use crate::checker::{self, CheckReport, CheckSpec, ModelKind, SearchProgress};
use crate::property::Property;
use crate::usage::UsageError;
use Property::{FirstComeFirstServed, MutualExclusion, NoDeadlock, NoStarvation};
use machine::{Machine, Program};
use model::Processes;
use programs::{
    Bakery, BlackWhite, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Peterson, Szymanski, Ticket,
};
use serde::Serialize;

/// An algorithm that can be checked.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name on the command line.
    pub slug: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The guarantees with atomic registers. A mutant is checked against the guarantees of its twin.
    pub promises: &'static [Property],
    /// The weakest registers with which it has the same guarantees, as far as its paper promises.
    pub weakest: RegisterKind,
    /// The algorithm from which it differs by one mistake, if it is wrong on purpose.
    pub mutant_of: Option<&'static str>,
}

const ALL_FOUR: &[Property] = &[MutualExclusion, NoDeadlock, NoStarvation, FirstComeFirstServed];
/// Every process enters, in an order that the paper does not promise.
const NO_ORDER: &[Property] = &[MutualExclusion, NoDeadlock, NoStarvation];

/// An algorithm for atomic registers.
const fn atomic(slug: &'static str, what: &'static str, promises: &'static [Property]) -> About {
    About { slug, what, promises, weakest: RegisterKind::Atomic, mutant_of: None }
}

/// An algorithm that is wrong on purpose.
const fn mutant(of: About, slug: &'static str, what: &'static str) -> About {
    About { slug, what, mutant_of: Some(of.slug), ..of }
}

const DIJKSTRA: About =
    atomic("dijkstra", "Dijkstra 1965: one may wait for ever", &[MutualExclusion, NoDeadlock]);
const BAKERY: About =
    About { weakest: RegisterKind::Safe, ..atomic("bakery", "Lamport's bakery 1974", ALL_FOUR) };
const BLACK_WHITE: About =
    atomic("black-white-bakery", "Taubenfeld's bakery with bounded tickets 2004", ALL_FOUR);
const EISENBERG_MCGUIRE: About =
    atomic("eisenberg-mcguire", "Eisenberg and McGuire 1972: at most N−1 turns of others", NO_ORDER);
const PETERSON: About = atomic("peterson", "Peterson 1981, for more than two as a tournament", NO_ORDER);
const FILTER: About = atomic("filter", "Peterson 1981 for N: the filter lock", NO_ORDER);
const SZYMANSKI: About = atomic("szymanski", "Szymanski 1988: a waiting room with a door", NO_ORDER);
const TICKET: About = atomic("ticket", "the ticket lock, with fetch-and-add", ALL_FOUR);
const MCS: About = atomic("mcs", "Mellor-Crummey and Scott 1991: a queue", ALL_FOUR);
const CLH: About = atomic("clh", "Craig 1993, Landin and Hagersten 1994: an implicit queue", ALL_FOUR);

/// All algorithms that can be checked, and then those that are wrong on purpose.
pub static ALL: [About; 18] = [
    DIJKSTRA,
    EISENBERG_MCGUIRE,
    BAKERY,
    PETERSON,
    FILTER,
    SZYMANSKI,
    TICKET,
    MCS,
    CLH,
    BLACK_WHITE,
    mutant(BAKERY, "bakery-without-choosing", "wrong on purpose: two enter"),
    mutant(EISENBERG_MCGUIRE, "eisenberg-mcguire-without-look", "wrong on purpose: two enter"),
    mutant(PETERSON, "peterson-turn-first", "wrong on purpose: turn is written before flag"),
    mutant(FILTER, "filter-victim-first", "wrong on purpose: victim is written before level"),
    mutant(SZYMANSKI, "szymanski-without-order", "wrong on purpose: lower numbers do not go first"),
    mutant(TICKET, "ticket-without-fetch-and-add", "wrong on purpose: two take the same ticket"),
    mutant(MCS, "mcs-without-compare-and-swap", "wrong on purpose: a process is forgotten"),
    mutant(CLH, "clh-reuses-its-node", "wrong on purpose: a process goes on with its own node"),
];

/// The default of the bakery's highest ticket.
pub const TICKETS: u8 = 4;
/// The upper bound of the bakery's highest ticket.
pub const MOST_TICKETS: u8 = 100;

impl About {
    /// Whether the algorithm's paper guarantees a property, for registers of this kind.
    fn guarantees(&self, property: Property, kind: RegisterKind) -> bool {
        self.promises.contains(&property)
            && (kind == RegisterKind::Atomic || self.weakest == RegisterKind::Safe)
    }

    /// Whether its tickets grow without bound.
    fn has_tickets(&self) -> bool {
        self.slug.starts_with("bakery")
    }
}

/// Checks an algorithm for registers. Without a single property to check, the search continues past
/// violations.
pub(crate) fn check(
    spec: &CheckSpec,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> Result<CheckReport, Error> {
    let (about, tickets) = find(spec)?;
    let model = || Processes { machine: machine(about, spec, tickets), only: spec.only };
    let report = |progress| report(spec, about, tickets, progress);
    Ok(checker::explore(spec, spec.only.is_none(), model, report, go_on))
}

fn program(slug: &str, processes: usize, tickets: u8) -> Box<dyn Program> {
    let bakery = |choosing: bool| Bakery { processes, choosing, most: tickets };
    match slug {
        "dijkstra" => Box::new(Dijkstra { processes }),
        "bakery" => Box::new(bakery(true)),
        "black-white-bakery" => Box::new(BlackWhite { processes }),
        "eisenberg-mcguire" => Box::new(EisenbergMcGuire { processes, looks: true }),
        "eisenberg-mcguire-without-look" => Box::new(EisenbergMcGuire { processes, looks: false }),
        "peterson" => Box::new(Peterson { processes, turn_first: false }),
        "peterson-turn-first" => Box::new(Peterson { processes, turn_first: true }),
        "filter" => Box::new(Filter { processes, victim_first: false }),
        "filter-victim-first" => Box::new(Filter { processes, victim_first: true }),
        "szymanski" => Box::new(Szymanski { processes, waits_for_lower: true }),
        "szymanski-without-order" => Box::new(Szymanski { processes, waits_for_lower: false }),
        "ticket" => Box::new(Ticket { processes, fetch_and_add: true }),
        "ticket-without-fetch-and-add" => Box::new(Ticket { processes, fetch_and_add: false }),
        "mcs" => Box::new(Mcs { processes, compare_and_swap: true }),
        "mcs-without-compare-and-swap" => Box::new(Mcs { processes, compare_and_swap: false }),
        "clh" => Box::new(Clh { processes, takes_node: true }),
        "clh-reuses-its-node" => Box::new(Clh { processes, takes_node: false }),
        _ => Box::new(bakery(false)),
    }
}

/// The algorithm that a spec names, and its highest ticket.
fn find(spec: &CheckSpec) -> Result<(&'static About, u8), UsageError> {
    let unknown = || UsageError::UnknownProgram { name: spec.algorithm.clone() };
    let about = ALL.iter().find(|about| about.slug == spec.algorithm).ok_or_else(unknown)?;
    let tickets = spec.tickets.unwrap_or(TICKETS);
    if !(1..=MOST_TICKETS).contains(&tickets) {
        return Err(UsageError::Tickets { most: MOST_TICKETS, tickets });
    }
    if spec.tickets.is_some() && !about.has_tickets() {
        return Err(UsageError::NoTickets { algorithm: about.slug });
    }
    Ok((about, tickets))
}

/// The model of a spec.
pub(super) fn model(spec: &CheckSpec) -> Result<Processes, UsageError> {
    let (about, tickets) = find(spec)?;
    Ok(Processes { machine: machine(about, spec, tickets), only: spec.only })
}

/// The processes and registers of a spec.
fn machine(about: &About, spec: &CheckSpec, tickets: u8) -> Machine {
    Machine::new(program(about.slug, spec.sites, tickets), spec.sites, spec.registers)
}

/// A report without verdicts.
fn report(spec: &CheckSpec, about: &About, tickets: u8, progress: SearchProgress) -> CheckReport {
    let kind = spec.registers;
    let tickets = if about.has_tickets() { format!(", tickets up to {tickets}") } else { String::new() };
    let system = format!("{} processes that ask again and again, {kind} registers{tickets}", spec.sites);
    let mut report = CheckReport::new(spec, ModelKind::Registers, system, progress);
    // A property that is checked alone counts even if the paper does not guarantee it.
    if spec.only.is_none() {
        let not_guaranteed = |property: &Property| !about.guarantees(*property, kind);
        report.not_guaranteed = report.properties.keys().copied().filter(not_guaranteed).collect();
    }
    report
}
