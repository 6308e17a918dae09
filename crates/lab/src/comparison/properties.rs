//! The properties that each algorithm satisfies in simulated runs, with a command that reproduces each
//! violation.
//!
//! Runs can only refute a property. "Held" means that no violation was found in a number of runs under random
//! delays, on the channels that the algorithm assumes.

use crate::parallel;
use crate::property::Property;
use crate::simulator::delay::Delay;
use crate::simulator::run::Outcome;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::{LoadSpec, Spec};
use crate::simulator::time::Time;
use crate::trace::{EventKind, Record, Sink};
use crate::usage::UsageError;
use lockkeeper_core::mutex::{Channels, Family};
use lockkeeper_core::{About, Sharing, registry};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;

/// A property that an algorithm may satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedProperty {
    /// Conflicting holds never overlap.
    MutualExclusion,
    /// Some site always enters.
    NoDeadlock,
    /// Every site enters. A deadlock violates this, too.
    NoStarvation,
    /// Entries follow the order of the requests' timestamps.
    TimestampOrder,
    /// Entries follow the happened-before order of the requests.
    CausalOrder,
    /// Entries follow the order in which requests reach the coordinator.
    ArrivalOrder,
    /// Mutual exclusion on channels that reorder, for algorithms that assume FIFO.
    WithoutFifo,
}

impl ComparedProperty {
    /// All properties, in the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::MutualExclusion,
        Self::NoDeadlock,
        Self::NoStarvation,
        Self::TimestampOrder,
        Self::CausalOrder,
        Self::ArrivalOrder,
        Self::WithoutFifo,
    ];

    /// The title of its column.
    pub fn title(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual exclusion",
            Self::NoDeadlock => "no deadlock",
            Self::NoStarvation => "no starvation",
            Self::TimestampOrder => "by timestamp",
            Self::CausalOrder => "by happened-before",
            Self::ArrivalOrder => "by arrival",
            Self::WithoutFifo => "safe without FIFO",
        }
    }

    /// How often a run violates it.
    fn broken(self, run: &Outcome) -> u64 {
        let violated = |property: Property| {
            run.violations.iter().filter(|violation| property.is_violated_by(violation.property)).count()
                as u64
        };
        match self {
            Self::MutualExclusion | Self::WithoutFifo => violated(Property::MutualExclusion),
            Self::NoDeadlock => violated(Property::NoDeadlock),
            Self::NoStarvation => violated(Property::NoStarvation),
            Self::TimestampOrder => run.measures.counts.timestamp_inversions,
            Self::CausalOrder => run.measures.counts.causal_inversions.unwrap_or(0),
            Self::ArrivalOrder => 0,
        }
    }
}

/// The result for one property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "found")]
pub enum Answer {
    /// No violation was found.
    Held {
        /// Number of runs.
        runs: u64,
    },
    /// Violations were found.
    Broken {
        /// Number of runs with a violation.
        runs: u64,
        /// Number of all runs.
        of: u64,
        /// The command that reproduces the first of them.
        witness: String,
        /// A description of the violation.
        what: String,
    },
    /// The property does not apply to this algorithm.
    NotAsked,
}

/// The results of an algorithm, in the order of [`ComparedProperty::ALL`].
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The slug of the algorithm.
    pub algorithm: String,
    /// The channels on which it was run.
    pub channels: Channels,
    /// The results.
    pub answers: Vec<(ComparedProperty, Answer)>,
}

/// Number of seeds of each trial.
pub const SEEDS: u64 = 50;

/// Checks every property of every algorithm, on all cores.
pub fn properties(algorithms: &[String], progress: &Progress) -> Result<Vec<Finding>, Error> {
    let find = |index: usize| {
        let slug = &algorithms[index];
        let entry = registry::find(slug).ok_or_else(|| UsageError::UnknownAlgorithm { name: slug.into() })?;
        finding(entry.about, progress)
    };
    parallel::map(algorithms.len(), &find).into_iter().collect()
}

/// The total number of entries to simulate, for a progress bar.
pub fn entries(algorithms: &[String]) -> u64 {
    algorithms.len() as u64
        * SEEDS
        * trials("", true).iter().map(|spec| spec.warmup() + spec.entries).sum::<u64>()
}

fn finding(about: &'static About, progress: &Progress) -> Result<Finding, Error> {
    let fifo = about.channels == Channels::Fifo;
    let trials = trials(about.slug, fifo);
    let runs = run_all(&trials, progress)?;
    let reordered = if fifo { run_all(&self::trials(about.slug, false), progress)? } else { Vec::new() };
    let answer = |compared| -> Result<(ComparedProperty, Answer), Error> {
        let answer = match compared {
            ComparedProperty::WithoutFifo if !fifo => Answer::NotAsked,
            ComparedProperty::WithoutFifo => judge(compared, &reordered),
            ComparedProperty::ArrivalOrder if about.family != Family::Coordinator => Answer::NotAsked,
            ComparedProperty::ArrivalOrder => by_arrival(&trials, progress)?,
            _ => judge(compared, &runs),
        };
        Ok((compared, answer))
    };
    let answers = ComparedProperty::ALL.into_iter().map(answer).collect::<Result<_, Error>>()?;
    Ok(Finding { algorithm: about.slug.into(), channels: about.channels, answers })
}

/// Small systems under random delays: bursts, high load, and random requests.
fn trials(algorithm: &str, fifo: bool) -> Vec<Spec> {
    let shapes =
        [(3, LoadSpec::Burst), (5, LoadSpec::Burst), (5, LoadSpec::High), (5, LoadSpec::Poisson(0.05))];
    let trial = |(sites, load)| {
        let mut spec = Spec { load, entries: 60, ..Spec::new(algorithm, sites) };
        spec.network.delay = Delay::Exponential(Time::UNIT);
        spec.network.fifo = fifo;
        // If the algorithm has readers, half of the requests are shared.
        if registry::sharing(algorithm) == Some(Sharing::ReadersWriters) {
            spec.readers = 0.5;
        }
        spec
    };
    shapes.into_iter().map(trial).collect()
}

type Trial = (Spec, Vec<Outcome>);

fn run_all(trials: &[Spec], progress: &Progress) -> Result<Vec<Trial>, Error> {
    let run = |spec: &Spec| Ok((spec.clone(), runner::outcomes(spec, 1, SEEDS, progress)?));
    trials.iter().map(run).collect()
}

fn judge(compared: ComparedProperty, trials: &[Trial]) -> Answer {
    let all =
        trials.iter().flat_map(|(spec, runs)| runs.iter().zip(1..).map(move |(run, seed)| (spec, seed, run)));
    let broken: Vec<_> = all.clone().filter(|(_, _, run)| compared.broken(run) > 0).collect();
    let of = all.count() as u64;
    match broken.first() {
        None => Answer::Held { runs: of },
        Some((spec, seed, run)) => Answer::Broken {
            runs: broken.len() as u64,
            of,
            witness: spec.command(*seed),
            what: describe(compared, run),
        },
    }
}

fn describe(compared: ComparedProperty, run: &Outcome) -> String {
    let property = match compared {
        ComparedProperty::TimestampOrder => {
            return format!("{} entries out of timestamp order", compared.broken(run));
        }
        ComparedProperty::CausalOrder => {
            return format!("{} entries out of causal order", compared.broken(run));
        }
        ComparedProperty::NoDeadlock => Property::NoDeadlock,
        ComparedProperty::NoStarvation => Property::NoStarvation,
        _ => Property::MutualExclusion,
    };
    let violation = run.violations.iter().find(|violation| property.is_violated_by(violation.property));
    violation.map(ToString::to_string).unwrap_or_default()
}

fn out_of(order: &str, entries: u64) -> String {
    format!("{entries} {} out of {order}", if entries == 1 { "entry" } else { "entries" })
}

/// Whether the coordinator grants in the order in which requests reach it.
fn by_arrival(trials: &[Spec], progress: &Progress) -> Result<Answer, Error> {
    let mut broken = Vec::new();
    for spec in trials {
        for seed in 1..=SEEDS {
            let mut arrivals = Arrivals::default();
            runner::trace(spec, seed, &mut arrivals, progress)?;
            if arrivals.out_of_order > 0 {
                broken.push((spec.command(seed), arrivals.out_of_order));
            }
        }
    }
    let of = trials.len() as u64 * SEEDS;
    Ok(match broken.first() {
        None => Answer::Held { runs: of },
        Some((witness, entries)) => Answer::Broken {
            runs: broken.len() as u64,
            of,
            witness: witness.clone(),
            what: out_of("the order of arrival", *entries),
        },
    })
}

/// Records the requests in the order in which they reach the coordinator, and compares it with the order of
/// entries.
#[derive(Default)]
struct Arrivals {
    waiting: VecDeque<lockkeeper_core::SiteId>,
    out_of_order: u64,
}

impl Sink for Arrivals {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        match record.what {
            EventKind::Receive { from, message, .. } if message.to_string().starts_with("ENTER") => {
                self.waiting.push_back(from);
            }
            EventKind::Enter { .. } => {
                let place = self.waiting.iter().position(|site| *site == record.site);
                self.out_of_order += u64::from(place != Some(0));
                place.and_then(|place| self.waiting.remove(place));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}
