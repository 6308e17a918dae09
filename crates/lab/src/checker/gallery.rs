//! The gallery of known defects, each with the smallest systems in which the checker finds it.
//!
//! Most are mutants: an algorithm with one guard changed ([`crate::mutants`]). Some are correct algorithms in
//! an environment that violates their assumptions.

use super::mutual_exclusion::machine::{Fault, Faults};
use super::{CheckReport, CheckSpec, SearchProgress, check};
use crate::mutants;
use crate::property::Property;
use crate::simulator::runner::Error;

/// A known defect.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// The exhibit's name.
    pub name: &'static str,
    /// A description of the defect.
    pub story: &'static str,
    /// The name of the correct algorithm.
    pub twin: &'static str,
    /// The systems in which to search for it, smallest first.
    pub systems: Vec<CheckSpec>,
    /// The same systems for the correct algorithm, in an environment that it assumes.
    pub twins: Vec<CheckSpec>,
}

/// A violation that the checker found for an exhibit.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The index of the system in which it was found.
    pub rung: usize,
    /// The checker's report.
    pub report: CheckReport,
}

impl Detection {
    /// The violated property and the number of steps of the run.
    pub fn how(&self) -> Option<(Property, usize)> {
        self.report.counterexample.as_ref().map(|found| (found.violation.property, found.steps))
    }
}

/// The systems in which mutants are searched for: number of sites and requests per site (`None`: without
/// limit).
const LADDER: [(usize, Option<u8>); 8] = [
    (2, Some(1)),
    (2, Some(2)),
    (3, Some(1)),
    (2, Some(3)),
    (2, None),
    (3, Some(2)),
    (4, Some(1)),
    (3, None),
];
/// A search is given up when it exceeds this number of states.
pub const MOST_STATES: u64 = 3_000_000;

fn ladder(algorithm: &str, twin: &str, full: bool) -> Vec<CheckSpec> {
    // A mutant of the recovering ring can fail only after crashes; the others are caught without any.
    let crashes = u8::from(twin == "token-ring-recovering");
    let faults = Faults::default().with(Fault::Crash, crashes).with(Fault::Restart, crashes);
    let spec = |(sites, requests)| {
        let mut spec = CheckSpec { requests, faults, full, ..CheckSpec::new(algorithm, sites) };
        // In the larger systems with unlimited requests, reordering channels make the state space too large.
        spec.fifo = (sites > 2 && requests.is_none()).then_some(true);
        spec
    };
    LADDER.map(spec).into()
}

/// All exhibits: the mutants, and the correct algorithms in a wrong environment.
pub fn all() -> Vec<Exhibit> {
    let variants = mutants::ALL.iter().map(|mutant| Exhibit {
        name: mutant.name,
        story: mutant.story,
        twin: mutant.twin,
        // A violation needs the full search for a shortest run, so the reduced search is skipped.
        systems: ladder(mutant.name, mutant.twin, true),
        twins: ladder(mutant.twin, mutant.twin, false),
    });
    variants.chain(circumstances()).collect()
}

/// Correct algorithms whose assumptions are violated.
fn circumstances() -> Vec<Exhibit> {
    let case = |name, story, twin, right: CheckSpec, wrong: CheckSpec| Exhibit {
        name,
        story,
        twin,
        systems: vec![wrong],
        twins: vec![right],
    };
    let one = |fault| Faults::default().with(fault, 1);
    let only = Some(Property::MutualExclusion);
    let lamport = CheckSpec { only, ..CheckSpec::new("lamport", 2) };
    let voting = CheckSpec { only, ..CheckSpec::new("majority", 3) };
    let asking = CheckSpec { only, ..CheckSpec::new("ricart-agrawala", 2).requests(2) };
    let ring = CheckSpec { only, ..CheckSpec::new("token-ring-recovering", 3) };
    vec![
        case(
            "lamport-on-channels-that-reorder",
            "messages overtake each other, which Lamport's algorithm does not assume",
            "lamport",
            lamport.clone(),
            CheckSpec { fifo: Some(false), ..lamport },
        ),
        case(
            "state-rebuilt-from-scratch-after-a-crash",
            "an arbiter crashes, starts again at once without memory, and votes a second time",
            "majority",
            voting.clone(),
            CheckSpec { faults: one(Fault::Forget), ..voting },
        ),
        case(
            "an-idle-lock-recreated-with-a-fresh-clock",
            "an idle site's state is dropped and made anew: it asks with a timestamp smaller than one it has answered",
            "ricart-agrawala",
            asking.clone(),
            CheckSpec { faults: one(Fault::Forget), ..asking },
        ),
        case(
            "maekawa-triangle",
            "each of three sites holds its own vote and waits for another's",
            "maekawa",
            CheckSpec::new("maekawa", 3),
            CheckSpec::new("maekawa-basic", 3),
        ),
        case(
            "maekawa-displaced-request",
            "a request that was first in a queue and is displaced receives no FAILED, and keeps a vote that it should return",
            "maekawa",
            CheckSpec::new("maekawa", 4),
            CheckSpec::new("maekawa-1985", 4),
        ),
        case(
            "two-tokens-after-a-hasty-regeneration",
            "a site that is alive is suspected, and a second token is made",
            "token-ring-recovering",
            CheckSpec { faults: one(Fault::Crash), ..ring.clone() },
            CheckSpec { faults: one(Fault::Suspicion), ..ring },
        ),
    ]
}

impl Exhibit {
    /// Searches for the defect; `None` if no system of the exhibit shows it.
    pub fn catch(&self, mut go_on: impl FnMut(SearchProgress) -> bool) -> Result<Option<Detection>, Error> {
        for (rung, spec) in self.systems.iter().enumerate() {
            let report = check(spec, |progress| progress.distinct < MOST_STATES && go_on(progress))?;
            if report.is_violated() {
                return Ok(Some(Detection { rung, report }));
            }
        }
        Ok(None)
    }
}
