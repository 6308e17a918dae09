//! A run of either kind, mutual exclusion or an election, for callers that treat both alike.

use crate::Report;
use crate::algorithm;
use crate::election::{self, ElectionSpec};
use crate::property::Names;
use crate::pseudocode::Listing;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::Spec;
use crate::simulator::time::Time;
use crate::trace::Sink;
use serde::Serialize;
use std::fmt;

/// A run of either kind.
#[derive(Clone, Debug)]
pub enum RunSpec {
    /// A run of a mutual exclusion algorithm.
    MutualExclusion(Spec),
    /// A run of an election.
    Election(ElectionSpec),
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// The violations.
    pub violations: Vec<RunViolation>,
    /// A short summary: `3 entries, 12 messages`, or `S4 leads; 7 messages`.
    pub summary: String,
}

/// A violation of a property in one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunViolation {
    /// The time of the violation.
    pub at: Time,
    /// Its name, for example `deadlock`.
    #[serde(rename = "breach")]
    pub name: String,
    /// A sentence that describes it.
    pub what: String,
}

impl fmt::Display for RunViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} T: {}", self.name, self.at, self.what)
    }
}

impl RunSpec {
    /// The system: sites, network, script.
    pub fn system(&self) -> &Spec {
        match self {
            Self::MutualExclusion(spec) => spec,
            Self::Election(election) => &election.system,
        }
    }

    /// Whether it is an election.
    pub fn is_election(&self) -> bool {
        matches!(self, Self::Election(_))
    }

    /// The names of the processes.
    pub fn names(&self) -> Names {
        Names { sites: self.system().sites }
    }

    /// Number of processes: the sites, and a coordinator if that is separate.
    pub fn processes(&self) -> Result<usize, Error> {
        match self {
            Self::MutualExclusion(spec) => runner::processes(spec),
            Self::Election(election) => Ok(election.system.sites),
        }
    }

    /// The command that repeats the run with a seed.
    pub fn command(&self, seed: u64) -> String {
        match self {
            Self::MutualExclusion(spec) => spec.command(seed),
            Self::Election(election) => election.command(seed),
        }
    }

    /// The pseudo-code of the algorithm or election; `None` if there is none of its name.
    pub fn listing(&self) -> Option<Listing> {
        let name = &self.system().algorithm;
        match self {
            Self::MutualExclusion(_) => algorithm::find_with_mutants(name).map(Listing::of_algorithm),
            Self::Election(_) => election::algorithm::find_with_mutants(name).map(Listing::of_election),
        }
    }

    /// Runs it once and passes every event to `sink`.
    pub fn trace(&self, seed: u64, sink: &mut dyn Sink, progress: &Progress) -> Result<Ending, Error> {
        match self {
            Self::MutualExclusion(spec) => Ok(Ending::of(&runner::trace(spec, seed, sink, progress)?)),
            Self::Election(spec) => Ok(Ending::of_election(&election::trace(spec, seed, sink)?)),
        }
    }
}

impl Ending {
    /// How a run of mutual exclusion ended.
    pub fn of(report: &Report) -> Self {
        let violations = report.violations.iter().map(|found| RunViolation {
            at: found.violation.at,
            name: found.violation.property.violation_name().into(),
            what: found.violation.what.clone(),
        });
        let entries = if report.entries == 1 { "entry" } else { "entries" };
        let summary = format!("{} {entries}, {} messages", report.entries, report.messages);
        Self { violations: violations.collect(), summary }
    }

    /// How an election ended.
    pub fn of_election(report: &election::Report) -> Self {
        let violations = report.violations.iter().map(|found| RunViolation {
            at: found.violation.at,
            name: found.violation.property.violation_name().into(),
            what: found.violation.what.clone(),
        });
        let leader = report
            .leaders
            .keys()
            .next()
            .map_or("no common leader".into(), |leader| format!("{leader} leads"));
        Self { violations: violations.collect(), summary: format!("{leader}; {} messages", report.messages) }
    }

    /// Whether no property was violated.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }
}
