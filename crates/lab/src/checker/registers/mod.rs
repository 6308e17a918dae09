//! Shared-memory algorithms as models for the explorer: Dijkstra's algorithm and the bakeries, as machines
//! whose steps are single reads and writes of registers.
//!
//! Registers are *atomic* or *safe*: a read of a safe register that overlaps
//! a write returns any value. That the bakery works with safe registers is its defining claim.
//!
//! Processes request again and again; the number of entries is not bounded. Tickets are: those of the bakery
//! grow, so a step that would take a ticket above the limit is not followed, and is counted as *cut*. The
//! verdicts hold for all runs up to the first ticket above the limit. Dijkstra's algorithm has no tickets,
//! and the tickets of the black-white bakery never exceed N with atomic registers, so no step is cut there.
//!
//! ```
//! use lockkeeper_lab::checker::{CheckSpec, check};
//!
//! let bakery = CheckSpec { safe_registers: true, ..CheckSpec::new("bakery", 2) };
//! assert!(check(&bakery, |_| true).unwrap().is_verified());
//! let broken = check(&CheckSpec::new("bakery-without-choosing", 2), |_| true).unwrap();
//! assert_eq!(broken.wrong.as_deref(), Some("P1 and P2 are both inside"));
//! ```

mod machine;
mod model;
mod programs;
mod section;

pub use machine::MOST_PROCESSES;

use crate::Error;
use crate::checker::{self, CheckReport, CheckSpec, ModelKind, SearchProgress};
use crate::property::Property;
use crate::usage::UsageError;
use Property::{FirstComeFirstServed, MutualExclusion, NoDeadlock, NoStarvation};
use machine::{Machine, Program};
use model::Processes;
use programs::{Bakery, BlackWhite, Dijkstra};
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
    /// Whether it has the same guarantees with safe registers.
    pub safe_registers: bool,
}

const ALL_FOUR: &[Property] = &[MutualExclusion, NoDeadlock, NoStarvation, FirstComeFirstServed];

/// All algorithms that can be checked.
pub const ALL: [About; 4] = [
    About {
        slug: "dijkstra",
        what: "Dijkstra 1965: one may wait for ever",
        promises: &[MutualExclusion, NoDeadlock],
        safe_registers: false,
    },
    About { slug: "bakery", what: "Lamport's bakery 1974", promises: ALL_FOUR, safe_registers: true },
    About {
        slug: "black-white-bakery",
        what: "Taubenfeld's bakery with bounded tickets 2004",
        promises: ALL_FOUR,
        safe_registers: false,
    },
    About {
        slug: "bakery-without-choosing",
        what: "wrong on purpose: two enter",
        promises: ALL_FOUR,
        safe_registers: true,
    },
];

/// The default of the bakery's highest ticket.
pub const TICKETS: u8 = 4;
/// The upper bound of the bakery's highest ticket.
pub const MOST_TICKETS: u8 = 100;

impl About {
    /// Whether the algorithm's paper guarantees a property, for registers of this kind.
    fn guarantees(&self, property: Property, safe_registers: bool) -> bool {
        self.promises.contains(&property) && (self.safe_registers || !safe_registers)
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
    let unknown = || UsageError::UnknownProgram { name: spec.algorithm.clone() };
    let about = ALL.iter().find(|about| about.slug == spec.algorithm).ok_or_else(unknown)?;
    let tickets = spec.tickets.unwrap_or(TICKETS);
    if !(1..=MOST_TICKETS).contains(&tickets) {
        return Err(UsageError::Tickets { most: MOST_TICKETS, tickets }.into());
    }
    if spec.tickets.is_some() && !about.has_tickets() {
        return Err(UsageError::NoTickets { algorithm: about.slug }.into());
    }
    let model = || Processes {
        machine: Machine::new(program(about.slug, spec.sites, tickets), spec.sites, spec.safe_registers),
        only: spec.only,
    };
    let report = |progress| report(spec, about, tickets, progress);
    Ok(checker::explore(spec, spec.only.is_none(), model, report, go_on))
}

fn program(slug: &str, processes: usize, tickets: u8) -> Box<dyn Program> {
    let bakery = |choosing: bool| Bakery { processes, choosing, most: tickets };
    match slug {
        "dijkstra" => Box::new(Dijkstra { processes }),
        "bakery" => Box::new(bakery(true)),
        "black-white-bakery" => Box::new(BlackWhite { processes }),
        _ => Box::new(bakery(false)),
    }
}

/// A report without verdicts.
fn report(spec: &CheckSpec, about: &About, tickets: u8, progress: SearchProgress) -> CheckReport {
    let kind = if spec.safe_registers { "safe" } else { "atomic" };
    let tickets = if about.has_tickets() { format!(", tickets up to {tickets}") } else { String::new() };
    let system = format!("{} processes that ask again and again, {kind} registers{tickets}", spec.sites);
    let mut report = CheckReport::new(spec, ModelKind::Registers, system, progress);
    // A property that is checked alone counts even if the paper does not guarantee it.
    if spec.only.is_none() {
        let not_guaranteed = |property: &Property| !about.guarantees(*property, spec.safe_registers);
        report.not_guaranteed = report.properties.keys().copied().filter(not_guaranteed).collect();
    }
    report
}
