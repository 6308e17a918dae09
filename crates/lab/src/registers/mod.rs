//! Shared-memory algorithms, checked in every reachable state: Dijkstra's algorithm and the bakeries, as
//! machines whose steps are single reads and writes of registers.
//!
//! Registers are *atomic* or *safe* (`flickering` in the interface): a read of a safe register that overlaps
//! a write returns any value. That the bakery works with safe registers is its defining claim.
//!
//! Processes request again and again; the number of entries is not bounded. Tickets are: those of the bakery
//! grow, so a step that would take a ticket above the limit is not followed, and is counted as *cut*. The
//! verdicts hold for all runs up to the first ticket above the limit. Dijkstra's algorithm has no tickets,
//! and the tickets of the black-white bakery never exceed N with atomic registers, so no step is cut there.
//!
//! ```
//! use lockkeeper_lab::registers::{Limits, check};
//!
//! let bakery = check("bakery", 2, true, Limits::default()).unwrap();
//! assert!(bakery.held());
//! let broken = check("bakery-without-choosing", 2, false, Limits::default()).unwrap();
//! let story = broken.verdicts[0].story.as_ref().unwrap();
//! assert!(story.ending.contains("P1 and P2 are both inside"));
//! ```

mod components;
mod explore;
mod liveness;
mod machine;
mod model;
mod programs;

pub use machine::MOST_PROCESSES;
pub use model::{Model, Section, Step};

use crate::Error;
use explore::{Graph, explore, tell};
use liveness::{Hope, search};
use machine::{Machine, Program};
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
    pub flickering: bool,
}

use Property::{FirstComeFirstServed, MutualExclusion, NoDeadlock, NoStarvation};

const ALL_FOUR: &[Property] = &[MutualExclusion, NoDeadlock, NoStarvation, FirstComeFirstServed];

/// All algorithms that can be checked.
pub const ALL: [About; 4] = [
    About {
        slug: "dijkstra",
        what: "Dijkstra 1965: one may wait for ever",
        promises: &[MutualExclusion, NoDeadlock],
        flickering: false,
    },
    About { slug: "bakery", what: "Lamport's bakery 1974", promises: ALL_FOUR, flickering: true },
    About {
        slug: "black-white-bakery",
        what: "Taubenfeld's bakery with bounded tickets 2004",
        promises: ALL_FOUR,
        flickering: false,
    },
    About {
        slug: "bakery-without-choosing",
        what: "wrong on purpose: two enter",
        promises: ALL_FOUR,
        flickering: true,
    },
];

/// A property of a shared-memory algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// At most one process is inside.
    MutualExclusion,
    /// If a process tries, some process enters.
    NoDeadlock,
    /// Every process that tries enters.
    NoStarvation,
    /// A process that completes its doorway before another begins its own enters first.
    FirstComeFirstServed,
}

impl std::fmt::Display for Property {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MutualExclusion => "mutual exclusion",
            NoDeadlock => "no deadlock",
            NoStarvation => "no starvation",
            FirstComeFirstServed => "first come, first served",
        })
    }
}

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The bakery's highest ticket.
    pub tickets: u8,
    /// The maximum number of states.
    pub states: usize,
}

impl Limits {
    /// The upper bound of `states`: each takes about a hundred bytes.
    pub const MOST_STATES: usize = 50_000_000;
    /// The upper bound of `tickets`.
    pub const MOST_TICKETS: u8 = 100;
}

impl Default for Limits {
    fn default() -> Self {
        Self { tickets: 4, states: 10_000_000 }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The algorithm.
    pub algorithm: &'static str,
    /// Number of processes.
    pub processes: usize,
    /// Whether registers were safe instead of atomic.
    pub flickering: bool,
    /// The bakery's highest ticket. `None` for algorithms with bounded tickets or none.
    pub tickets: Option<u8>,
    /// Number of states.
    pub states: u64,
    /// Number of steps between them.
    pub steps: u64,
    /// The maximum length of a shortest path to a state, in steps.
    pub depth: u32,
    /// Number of steps that were not followed because a ticket would have exceeded the limit.
    pub cut: u64,
    /// Whether all states within the limit on tickets were visited.
    pub complete: bool,
    /// The verdicts, one for each property.
    pub verdicts: Vec<Verdict>,
}

impl Outcome {
    /// Whether all guarantees of the algorithm were found to hold.
    pub fn held(&self) -> bool {
        self.verdicts.iter().all(|verdict| !verdict.promised || verdict.finding == Finding::Holds)
    }

    /// The verdict on one property.
    pub fn verdict(&self, property: Property) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| verdict.property == property)
    }
}

/// The verdict on one property.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The property.
    pub property: Property,
    /// Whether the algorithm's paper guarantees it, for registers of this kind.
    pub promised: bool,
    /// Whether it holds.
    pub finding: Finding,
    /// A run that violates it.
    pub story: Option<Story>,
}

/// Whether a property holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// It holds in all states to be checked.
    Holds,
    /// It is violated; there is a counterexample.
    Violated,
    /// Not violated in the visited states, but not all were visited.
    Unknown,
}

/// A run, step by step.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The steps from the start.
    pub steps: Vec<String>,
    /// The steps that then repeat for ever. Empty if the run is finite.
    pub cycle: Vec<String>,
    /// A description of the violation.
    pub ending: String,
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", index + 1)?;
        }
        if !self.cycle.is_empty() {
            writeln!(f, "      and then, again and again:")?;
        }
        for (index, step) in self.cycle.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", self.steps.len() + index + 1)?;
        }
        write!(f, "      {}", self.ending)
    }
}

/// Checks an algorithm by its name, for 2 or 3 processes.
pub fn check(name: &str, processes: usize, flickering: bool, limits: Limits) -> Result<Outcome, Error> {
    let about = ALL.iter().find(|about| about.slug == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|about| about.slug).collect();
        Error::Usage(format!("there are no registers for '{name}'; there are {}", names.join(", ")))
    })?;
    within_bounds(processes, limits)?;
    let bakery = |choosing: bool| Bakery { processes, choosing, most: limits.tickets };
    let what = (about, processes, flickering, limits);
    Ok(match about.slug {
        "dijkstra" => run(Dijkstra { processes }, what),
        "bakery" => run(bakery(true), what),
        "black-white-bakery" => run(BlackWhite { processes }, what),
        _ => run(bakery(false), what),
    })
}

fn within_bounds(processes: usize, limits: Limits) -> Result<(), Error> {
    if !(2..=MOST_PROCESSES).contains(&processes) {
        return Err(Error::Usage(format!(
            "registers are checked for 2 to {MOST_PROCESSES} processes, and {processes} were asked for"
        )));
    }
    if !(1..=Limits::MOST_TICKETS).contains(&limits.tickets) {
        return Err(Error::Usage(format!(
            "the highest ticket is between 1 and {}, and {} was asked for",
            Limits::MOST_TICKETS,
            limits.tickets
        )));
    }
    if !(1..=Limits::MOST_STATES).contains(&limits.states) {
        return Err(Error::Usage(format!(
            "between 1 and {} states can be looked at, and {} were asked for",
            Limits::MOST_STATES,
            limits.states
        )));
    }
    Ok(())
}

fn run<P: Program>(
    program: P,
    (about, processes, flickering, limits): (&About, usize, bool, Limits),
) -> Outcome {
    let model = &Machine::new(program, processes, flickering);
    let graph = explore(model, limits.states);
    let verdict = |(property, story): (Property, Option<Story>)| {
        let finding = match &story {
            Some(_) => Finding::Violated,
            None if graph.complete => Finding::Holds,
            None => Finding::Unknown,
        };
        let promised = about.promises.contains(&property) && (about.flickering || !flickering);
        Verdict { property, promised, finding, story }
    };
    let found = [
        (MutualExclusion, two_inside(model, &graph)),
        (NoDeadlock, no_process_enters(model, &graph)),
        (NoStarvation, one_starves(model, &graph)),
        (FirstComeFirstServed, overtaken(model, &graph)),
    ];
    Outcome {
        algorithm: about.slug,
        processes,
        flickering,
        tickets: about.slug.starts_with("bakery").then_some(limits.tickets),
        states: graph.states.len() as u64,
        steps: graph.steps(),
        depth: graph.depth,
        cut: graph.cut,
        complete: graph.complete,
        verdicts: found.into_iter().map(verdict).collect(),
    }
}

fn two_inside<M: Model>(model: &M, graph: &Graph<M::State>) -> Option<Story> {
    let found = graph.two_inside?;
    let state = &graph.states[found as usize];
    let inside: Vec<String> = (0..model.processes())
        .filter(|&p| model.section(state, p) == Section::Inside)
        .map(|p| format!("P{}", p + 1))
        .collect();
    let ending = format!("{} are both inside", inside.join(" and "));
    Some(Story { steps: tell(model, graph, &graph.way_to(found)), cycle: Vec::new(), ending })
}

fn no_process_enters<M: Model>(model: &M, graph: &Graph<M::State>) -> Option<Story> {
    let lasso = search(model, graph, Hope::SomeProcessEnters)?;
    Some(Story {
        steps: tell(model, graph, &lasso.way),
        cycle: tell(model, graph, &lasso.cycle),
        ending: "a process tries for ever, and none enters".into(),
    })
}

/// The shortest counterexample over all processes.
fn one_starves<M: Model>(model: &M, graph: &Graph<M::State>) -> Option<Story> {
    let story = |process: usize| {
        let lasso = search(model, graph, Hope::Enters(process))?;
        Some(Story {
            steps: tell(model, graph, &lasso.way),
            cycle: tell(model, graph, &lasso.cycle),
            ending: format!("P{} tries for ever and does not enter", process + 1),
        })
    };
    (0..model.processes()).filter_map(story).min_by_key(|story| story.steps.len() + story.cycle.len())
}

fn overtaken<M: Model>(model: &M, graph: &Graph<M::State>) -> Option<Story> {
    let (from, to) = graph.overtaken?;
    let mut way = graph.way_to(from);
    way.push(to);
    let overtaker = (0..model.processes()).find(|&p| {
        let section = |state: u32| model.section(&graph.states[state as usize], p);
        section(from) != Section::Inside && section(to) == Section::Inside
    })?;
    let early = model.behind(&graph.states[from as usize], overtaker)?;
    let ending = format!("P{} was through its doorway before P{} came, and waits", early + 1, overtaker + 1);
    Some(Story { steps: tell(model, graph, &way), cycle: Vec::new(), ending })
}
