//! Proof sketches of the algorithms: why each is safe and live, in steps that the checker verifies.
//!
//! The sketches are text files in `proofs`. A step is a paragraph, the property or invariant that it claims, and the
//! mutants that lack a guard on which it relies:
//!
//! ```text
//! A site enters only when each other site has replied to its request.
//!   = invariants: inside without the permission of all sites
//! Requests are totally ordered by time and site number.
//!   = no-deadlock
//!   - ricart-agrawala-ties-both-win
//! ```
//!
//! A mutant behind `-` fails just this step; one behind `~` also fails steps that build on this one.

use crate::checker::spec::ModelKind;
use crate::checker::{CheckReport, CheckSpec, Fault, Faults, SearchProgress, Verdict, check, registers};
use crate::mutants;
use crate::property::Property;
use crate::simulator::runner::Error;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The name of the invariant of all algorithms with a token. The checker counts tokens; the other invariants are sentences
/// in the algorithm's source.
pub const ONE_TOKEN: &str = "one token";

macro_rules! sketches {
    ($($slug:literal: $file:literal;)+) => {
        /// The texts of the sketches, by the slug of the algorithm.
        const TEXTS: &[(&str, &str)] = &[
            $(($slug, include_str!(concat!("../proofs/", $file, ".txt"))),)+
        ];
    };
}

sketches! {
    "centralized": "centralized";
    "centralized-failover": "centralized-failover";
    "lamport": "lamport";
    "lamport-suppressed": "lamport-suppressed";
    "ricart-agrawala": "ricart-agrawala";
    "roucairol-carvalho": "roucairol-carvalho";
    "lodha-kshemkalyani": "lodha-kshemkalyani";
    "k-mutual-exclusion": "k-mutual-exclusion";
    "readers-writers": "readers-writers";
    "bakery-messages": "bakery-messages";
    "token-ring": "token-ring";
    "token-ring-parked": "token-ring-parked";
    "token-ring-recovering": "token-ring-recovering";
    "misra-ping-pong": "misra-ping-pong";
    "maekawa": "maekawa";
    "maekawa-1985": "maekawa-1985";
    "maekawa-basic": "maekawa-basic";
    "majority": "maekawa";
    "tree-quorum": "maekawa";
    "suzuki-kasami": "suzuki-kasami";
    "raymond": "raymond";
    "naimi-trehel": "naimi-trehel";
    "neilsen-mizuno": "neilsen-mizuno";
    "gate": "gate";
    "bully": "bully";
    "ring-election": "ring-election";
    "chang-roberts": "chang-roberts";
    "hirschberg-sinclair": "hirschberg-sinclair";
    "itai-rodeh": "itai-rodeh";
    "raft": "raft";
    "dijkstra": "dijkstra";
    "eisenberg-mcguire": "eisenberg-mcguire";
    "bakery": "bakery";
    "black-white-bakery": "black-white-bakery";
    "peterson": "peterson";
    "filter": "filter";
    "szymanski": "szymanski";
    "ticket": "ticket";
    "mcs": "mcs";
    "clh": "clh";
}

/// The part of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Nothing bad happens.
    Safety,
    /// Something good happens eventually.
    Liveness,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Safety { "Safety" } else { "Liveness" })
    }
}

/// A step of a sketch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProofStep {
    /// The part to which it belongs.
    pub part: Part,
    /// The argument.
    pub text: String,
    /// The property that verifies it.
    pub property: Property,
    /// The invariant that verifies it, by the sentence of its violation. `None` for other properties.
    pub invariant: Option<&'static str>,
    /// Whether the step states that the property does not hold.
    pub refuted: bool,
    /// The guards on which it relies.
    pub guards: Vec<Guard>,
}

/// A guard on which a step relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Guard {
    /// The mutant that lacks it.
    pub mutant: &'static str,
    /// Whether the mutant fails this step alone. Otherwise it also fails steps that build on this one.
    pub alone: bool,
}

/// A proof sketch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sketch {
    /// The number of sites that shows the steps, if it is not the default.
    pub sites: Option<usize>,
    /// The crashes that the checked system has.
    pub crashes: u8,
    /// The restarts of crashed sites that it has.
    pub restarts: u8,
    /// The steps, in order.
    pub steps: Vec<ProofStep>,
}

/// The number of sites of a check if the sketch names none.
pub const SITES: usize = 3;

/// A text that is no sketch. A test parses every sketch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the sketch is wrong: {text}")]
pub struct SketchError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

impl Sketch {
    /// The sketch of an algorithm, an election or an algorithm for registers; of a mutant, that of its twin.
    pub fn of(name: &str) -> Option<Self> {
        let twin = twin(name).unwrap_or(name);
        let (_, text) = TEXTS.iter().find(|(slug, _)| *slug == twin)?;
        Some(Self::parse(text).expect("every sketch is tested to be read"))
    }

    /// Reads a sketch.
    pub fn parse(text: &'static str) -> Result<Self, SketchError> {
        let mut sketch = Self::default();
        let (mut part, mut argument) = (Part::Safety, String::new());
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = || SketchError { line: number, text: line.into() };
            if line == "safety" || line == "liveness" {
                part = if line == "safety" { Part::Safety } else { Part::Liveness };
            } else if let Some(claim) = line.strip_prefix("  = ") {
                let (claim, refuted) = match claim.strip_suffix(" (violated)") {
                    Some(claim) => (claim, true),
                    None => (claim, false),
                };
                let (name, invariant) = match claim.split_once(": ") {
                    Some((name, invariant)) => (name, Some(invariant)),
                    None => (claim, None),
                };
                let property = property(name).ok_or_else(wrong)?;
                let text = std::mem::take(&mut argument);
                if text.is_empty() || (property == Property::Invariant) != invariant.is_some() {
                    return Err(wrong());
                }
                let step = ProofStep { part, text, property, invariant, refuted, guards: Vec::new() };
                sketch.steps.push(step);
            } else if let Some(mutant) = line.strip_prefix("  - ").or_else(|| line.strip_prefix("  ~ ")) {
                let guard = Guard { mutant, alone: line.starts_with("  -") };
                sketch.steps.last_mut().ok_or_else(wrong)?.guards.push(guard);
            } else if let (true, Some((name, value))) = (sketch.steps.is_empty(), line.split_once(": "))
                && let Ok(value) = value.parse::<u8>()
            {
                match name {
                    "sites" => sketch.sites = Some(value.into()),
                    "crashes" => sketch.crashes = value,
                    "restarts" => sketch.restarts = value,
                    _ => return Err(wrong()),
                }
            } else {
                argument.push_str(if argument.is_empty() { "" } else { " " });
                argument.push_str(line);
            }
        }
        if argument.is_empty() {
            Ok(sketch)
        } else {
            Err(SketchError { line: text.lines().count(), text: argument })
        }
    }

    /// The check of the sketch's system for an algorithm or mutant.
    pub fn spec(&self, algorithm: &str, sites: Option<usize>) -> CheckSpec {
        let faults = Faults::default().with(Fault::Crash, self.crashes).with(Fault::Restart, self.restarts);
        CheckSpec { faults, ..CheckSpec::new(algorithm, sites.or(self.sites).unwrap_or(SITES)) }
    }

    /// Runs the checker for all steps. `go_on` is called with the progress at intervals; a search stops when it returns
    /// `false`, and the steps that it decides stay undecided.
    pub fn verify(
        &self,
        spec: &CheckSpec,
        mut go_on: impl FnMut(SearchProgress) -> bool,
    ) -> Result<Vec<StepVerdict>, Error> {
        let all = check(spec, &mut go_on)?;
        // The first search ends at the first violation: each property that it leaves open has a search of its own.
        let mut alone: BTreeMap<Property, CheckReport> = BTreeMap::new();
        for step in &self.steps {
            let held = all.properties.get(&step.property) == Some(&Verdict::Holds);
            if !held && !alone.contains_key(&step.property) {
                let only = Some(step.property);
                alone.insert(step.property, check(&CheckSpec { only, ..spec.clone() }, &mut go_on)?);
            }
        }
        let verdict = |step: &ProofStep| step.verdict(alone.get(&step.property).unwrap_or(&all));
        Ok(self.steps.iter().map(verdict).collect())
    }
}

impl ProofStep {
    /// The claim in words: `no deadlock`, or the invariant.
    pub fn claim(&self) -> String {
        match (self.invariant, self.refuted) {
            (Some(ONE_TOKEN), _) => "invariant: there is at most one token".into(),
            (Some(sentence), _) => format!("invariant: no site is ever “{sentence}”"),
            (None, false) => self.property.to_string(),
            (None, true) => format!("{} is violated", self.property),
        }
    }

    fn verdict(&self, report: &CheckReport) -> StepVerdict {
        let states = report.distinct;
        match report.properties.get(&self.property) {
            Some(Verdict::Holds) => StepVerdict::Holds { states },
            Some(Verdict::Violated) => {
                let counterexample = report.counterexample_to(self.property);
                let found = counterexample.map(|found| found.violation.what.clone());
                let what = found.or_else(|| report.wrong.clone()).unwrap_or_default();
                let concerns = match self.invariant {
                    Some(ONE_TOKEN) => what.starts_with("there are ") && what.ends_with(" tokens"),
                    Some(sentence) => what.contains(sentence),
                    None => true,
                };
                if concerns { StepVerdict::Violated { what } } else { StepVerdict::Undecided { why: what } }
            }
            _ => StepVerdict::Undecided { why: format!("the search ended after {} states", report.distinct) },
        }
    }
}

/// The verdict of the checker on a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepVerdict {
    /// The claim holds in every reachable state or run.
    Holds {
        /// The number of states.
        states: u64,
    },
    /// The claim is violated.
    Violated {
        /// The violation.
        what: String,
    },
    /// The search did not decide it.
    Undecided {
        /// The reason: the search was stopped, or another violation ended it.
        why: String,
    },
}

/// The property of this name, as on the command line.
fn property(name: &str) -> Option<Property> {
    let kinds = [ModelKind::MutualExclusion, ModelKind::Election, ModelKind::Registers];
    let mut all = kinds.iter().flat_map(|kind| kind.properties());
    all.find(|property| property.slug() == name).copied()
}

/// The correct algorithm of a mutant.
fn twin(name: &str) -> Option<&'static str> {
    let mutex = mutants::ALL.iter().find(|mutant| mutant.name == name).map(|mutant| mutant.twin);
    let election =
        || mutants::election::ALL.iter().find(|mutant| mutant.name == name).map(|mutant| mutant.twin);
    let program = || registers::ALL.iter().find(|about| about.slug == name)?.mutant_of;
    mutex.or_else(election).or_else(program)
}
