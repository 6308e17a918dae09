//! Which properties each algorithm keeps, as found in runs, with a command that shows it where one fails.
//!
//! Runs can only refute. "Held" means: in so many runs under random delays, on the channels that the algorithm asks for,
//! nothing was found.

use crate::delay::Delay;
use crate::property::Property;
use crate::runner::{self, Error, Progress};
use crate::sim::Outcome;
use crate::spec::{LoadSpec, Spec};
use crate::time::Time;
use crate::trace::{Record, Sink, What};
use lockkeeper_core::mutex::{Channels, Family};
use lockkeeper_core::{About, Sharing, registry};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;

/// Something that an algorithm may or may not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// No two are inside together that conflict.
    MutualExclusion,
    /// Somebody always gets in.
    NoDeadlock,
    /// Everybody gets in. A deadlock refutes it as well.
    NoStarvation,
    /// Entries in the order of the requests' timestamps.
    TimestampOrder,
    /// Entries in the order of the requests, where one request happened before the other.
    CausalOrder,
    /// Entries in the order in which requests reach the coordinator.
    ArrivalOrder,
    /// Mutual exclusion on channels that reorder, for those that ask for FIFO.
    WithoutFifo,
}

impl Question {
    /// Every one, in the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::MutualExclusion,
        Self::NoDeadlock,
        Self::NoStarvation,
        Self::TimestampOrder,
        Self::CausalOrder,
        Self::ArrivalOrder,
        Self::WithoutFifo,
    ];

    /// The head of its column.
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

    /// What a run says: how often it was broken.
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

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "found")]
pub enum Answer {
    /// Nothing, in so many runs.
    Held {
        /// How many.
        runs: u64,
    },
    /// It broke.
    Broken {
        /// In how many runs.
        runs: u64,
        /// Of how many.
        of: u64,
        /// The first of them, to be seen again.
        witness: String,
        /// What happened there.
        what: String,
    },
    /// The question makes no sense for this algorithm.
    NotAsked,
}

/// An algorithm and its answers, in the order of [`Question::ALL`].
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The slug.
    pub algorithm: String,
    /// The channels it was run on.
    pub channels: Channels,
    /// The answers.
    pub answers: Vec<(Question, Answer)>,
}

/// How many seeds each trial has.
pub const SEEDS: u64 = 50;

/// Asks every question of every algorithm, on all cores.
pub fn properties(algorithms: &[String], progress: &Progress) -> Result<Vec<Finding>, Error> {
    let find = |slug: &String| {
        let entry =
            registry::find(slug).ok_or_else(|| Error::Usage(format!("there is no algorithm '{slug}'")))?;
        finding(entry.about, progress)
    };
    algorithms.par_iter().map(find).collect()
}

/// How many entries all of that has, for a progress bar.
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
    let answer = |question| -> Result<(Question, Answer), Error> {
        let answer = match question {
            Question::WithoutFifo if !fifo => Answer::NotAsked,
            Question::WithoutFifo => judge(question, &reordered),
            Question::ArrivalOrder if about.family != Family::Coordinator => Answer::NotAsked,
            Question::ArrivalOrder => by_arrival(&trials, progress)?,
            _ => judge(question, &runs),
        };
        Ok((question, answer))
    };
    let answers = Question::ALL.into_iter().map(answer).collect::<Result<_, Error>>()?;
    Ok(Finding { algorithm: about.slug.into(), channels: about.channels, answers })
}

/// Small systems under random delays: all at once, all the time, and now and then.
fn trials(algorithm: &str, fifo: bool) -> Vec<Spec> {
    let shapes =
        [(3, LoadSpec::Burst), (5, LoadSpec::Burst), (5, LoadSpec::High), (5, LoadSpec::Poisson(0.05))];
    let trial = |(sites, load)| {
        let mut spec = Spec { load, entries: 60, ..Spec::new(algorithm, sites) };
        spec.network.delay = Delay::Exponential(Time::UNIT);
        spec.network.fifo = fifo;
        // Where readers share, half of the requests are theirs.
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

fn judge(question: Question, trials: &[Trial]) -> Answer {
    let all =
        trials.iter().flat_map(|(spec, runs)| runs.iter().zip(1..).map(move |(run, seed)| (spec, seed, run)));
    let broken: Vec<_> = all.clone().filter(|(_, _, run)| question.broken(run) > 0).collect();
    let of = all.count() as u64;
    match broken.first() {
        None => Answer::Held { runs: of },
        Some((spec, seed, run)) => Answer::Broken {
            runs: broken.len() as u64,
            of,
            witness: spec.command(*seed),
            what: describe(question, run),
        },
    }
}

fn describe(question: Question, run: &Outcome) -> String {
    let property = match question {
        Question::TimestampOrder => {
            return format!("{} entries out of timestamp order", question.broken(run));
        }
        Question::CausalOrder => return format!("{} entries out of causal order", question.broken(run)),
        Question::NoDeadlock => Property::NoDeadlock,
        Question::NoStarvation => Property::NoStarvation,
        _ => Property::MutualExclusion,
    };
    let violation = run.violations.iter().find(|violation| property.is_violated_by(violation.property));
    violation.map(ToString::to_string).unwrap_or_default()
}

fn out_of(order: &str, entries: u64) -> String {
    format!("{entries} {} out of {order}", if entries == 1 { "entry" } else { "entries" })
}

/// Whether the coordinator lets sites in as their requests reach it.
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

/// Keeps who asked the coordinator, in the order of arrival there, and compares with who enters.
#[derive(Default)]
struct Arrivals {
    waiting: VecDeque<lockkeeper_core::SiteId>,
    out_of_order: u64,
}

impl Sink for Arrivals {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        match record.what {
            What::Receive { from, message, .. } if message.to_string().starts_with("ENTER") => {
                self.waiting.push_back(from);
            }
            What::Enter { .. } => {
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
