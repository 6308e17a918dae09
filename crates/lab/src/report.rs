//! What a command reports of its runs.

use crate::metrics::{Counts, Summary, half_width_95};
use crate::property::{Property, Violation};
use crate::sim::Outcome;
use crate::spec::Spec;
use crate::time::Time;
use lockkeeper_core::{Expected, Purpose, Sharing, Word};
use serde::Serialize;
use std::collections::BTreeMap;

/// The report of one run, or of several that differ by their seed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The algorithm's slug.
    pub algorithm: String,
    /// Its settings, where any were given.
    pub settings: BTreeMap<String, String>,
    /// How many sites could ask.
    pub sites: usize,
    /// The first seed.
    pub seed: u64,
    /// How many runs, with successive seeds.
    pub seeds: u64,
    /// The load.
    pub load: String,
    /// Whether channels kept order.
    pub fifo: bool,
    /// Who may be inside together.
    pub sharing: Sharing,
    /// The share of the requests that were to share.
    pub readers: f64,
    /// The most sites inside at once.
    pub max_inside: usize,
    /// Entries measured.
    pub entries: u64,
    /// Messages of the measured entries.
    pub messages: u64,
    /// Messages per entry.
    pub messages_per_entry: Option<f64>,
    /// Half the width of its 95 % confidence interval over the seeds.
    pub messages_per_entry_ci95: Option<f64>,
    /// Of these, asking for or giving the right to enter.
    pub to_enter: Option<f64>,
    /// Of these, only telling of an exit.
    pub on_exit: Option<f64>,
    /// Messages by the paper's name.
    pub by_message: BTreeMap<&'static str, u64>,
    /// Bytes per entry.
    pub bytes_per_entry: Option<f64>,
    /// Messages per T while nobody wanted anything.
    pub idle_messages: f64,
    /// Messages sent or received by a process, per entry.
    pub site_load: SiteLoad,
    /// Synchronization delay.
    pub sync_delay: Summary,
    /// Client delay.
    pub client_delay: Summary,
    /// Waiting time.
    pub waiting: Summary,
    /// Response time.
    pub response: Summary,
    /// Entries per T.
    pub throughput: Option<f64>,
    /// k / (SD + E), with the measured SD, where k sites can be inside at once: 1 / (SD + E) for a mutex. None where
    /// readers share.
    pub throughput_bound: Option<f64>,
    /// The longest queue of requests at one site, where requests arrive at their own rate.
    pub backlog: u64,
    /// What the paper promises.
    pub expected: Expected,
    /// How evenly and in which order sites were served.
    pub fairness: Fairness,
    /// What held.
    pub properties: Properties,
    /// What did not, and how to see it again.
    pub violations: Vec<Found>,
    /// Events of all runs.
    pub events: u64,
    /// Virtual time of all runs.
    pub virtual_time: Time,
}

/// Messages sent or received by a process, per entry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SiteLoad {
    /// At the busiest process.
    pub max: Option<f64>,
    /// On average over all processes.
    pub mean: Option<f64>,
}

/// How evenly and in which order sites were served.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fairness {
    /// Jain's index.
    pub jain: Option<f64>,
    /// The most competing entries of other sites during one site's wait.
    pub max_bypass: u64,
    /// Entries while a competing request with a smaller timestamp waited.
    pub timestamp_inversions: u64,
    /// Entries while a competing request that happened before theirs waited.
    pub causal_inversions: Option<u64>,
}

/// What held, in the words of the field.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Properties {
    /// `held` or `violated`.
    pub mutual_exclusion: &'static str,
    /// `none` or `found`.
    pub deadlock: &'static str,
    /// `none` or `found`; a deadlock counts as starvation of the sites that wait in it.
    pub starvation: &'static str,
    /// `held` or `violated`.
    pub fence_monotone: &'static str,
    /// `held` or `violated`: the algorithm's own.
    pub invariants: &'static str,
}

/// A violation, with the seed that shows it and the command that shows it again.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// What happened.
    #[serde(flatten)]
    pub violation: Violation,
    /// How to see it again.
    pub reproduce: String,
}

impl Report {
    /// Whether everything held.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }

    /// The report of these runs, in the order of their seeds.
    pub fn new(
        spec: &Spec,
        first_seed: u64,
        words: &[Word],
        (sharing, expected): (Sharing, Expected),
        runs: &[Outcome],
    ) -> Self {
        let mut counts = Counts { causal_inversions: Some(0), ..Default::default() };
        for run in runs {
            counts.merge(&run.measures.counts);
        }
        let per_entry = |n: u64| (counts.entries > 0).then(|| n as f64 / counts.entries as f64);
        let for_purpose = |purpose| {
            let of = words.iter().zip(&counts.by_word).filter(|(word, _)| word.purpose == purpose);
            per_entry(of.map(|(_, n)| n).sum())
        };
        let each: Vec<f64> = runs
            .iter()
            .map(|run| &run.measures.counts)
            .filter(|counts| counts.entries > 0)
            .map(|counts| counts.messages() as f64 / counts.entries as f64)
            .collect();
        let processes = counts.load_of.len().max(1) as u64;
        let summary = |of: fn(&Outcome) -> &crate::metrics::Distribution| {
            Summary::of(&runs.iter().map(of).collect::<Vec<_>>())
        };
        let sync_delay = summary(|run| &run.measures.sync_delay);
        let cs = spec.cs.as_ref().and_then(|cs| cs.mean());
        let bound = sync_delay.mean.zip(cs).map(|(sd, cs)| sd + cs.as_t());
        let bound = bound.filter(|&period| period > 0.0 && spec.readers == 0.0);
        let held = |property| if found(runs, property) { "violated" } else { "held" };
        let none = |property| if found(runs, property) { "found" } else { "none" };
        Self {
            algorithm: spec.algorithm.clone(),
            settings: spec.settings.iter().cloned().collect(),
            sites: spec.sites,
            seed: first_seed,
            seeds: runs.len() as u64,
            load: spec.load.to_string(),
            fifo: spec.network.fifo,
            sharing,
            readers: spec.readers,
            max_inside: counts.max_inside,
            entries: counts.entries,
            messages: counts.messages(),
            messages_per_entry: per_entry(counts.messages()),
            messages_per_entry_ci95: half_width_95(&each),
            to_enter: for_purpose(Purpose::Enter),
            on_exit: for_purpose(Purpose::Exit),
            by_message: words.iter().map(|word| word.name).zip(counts.by_word.iter().copied()).collect(),
            bytes_per_entry: per_entry(counts.bytes),
            idle_messages: rate(counts.idle_messages, counts.idle_time).unwrap_or(0.0),
            site_load: SiteLoad {
                max: per_entry(counts.load_of.iter().copied().max().unwrap_or(0)),
                mean: per_entry(counts.load_of.iter().sum()).map(|all| all / processes as f64),
            },
            sync_delay,
            client_delay: summary(|run| &run.measures.client_delay),
            waiting: summary(|run| &run.measures.waiting),
            response: summary(|run| &run.measures.response),
            throughput: rate(counts.entries, counts.time),
            throughput_bound: bound.map(|period| sharing.capacity() as f64 / period),
            backlog: counts.backlog,
            expected: in_units_of_the_delay(spec, expected),
            fairness: Fairness {
                jain: counts.jain(),
                max_bypass: counts.max_bypass,
                timestamp_inversions: counts.timestamp_inversions,
                causal_inversions: counts.causal_inversions,
            },
            properties: Properties {
                mutual_exclusion: held(Property::MutualExclusion),
                deadlock: none(Property::NoDeadlock),
                starvation: none(Property::NoStarvation),
                fence_monotone: held(Property::FenceMonotone),
                invariants: held(Property::Invariant),
            },
            violations: runs
                .iter()
                .zip(first_seed..)
                .flat_map(|(run, seed)| all_found(spec, run, seed))
                .collect(),
            events: runs.iter().map(|run| run.events).sum(),
            virtual_time: runs.iter().fold(Time::ZERO, |sum, run| sum + run.end),
        }
    }
}

fn all_found(spec: &Spec, run: &Outcome, seed: u64) -> Vec<Found> {
    let found =
        |violation: &Violation| Found { seed, violation: violation.clone(), reproduce: spec.command(seed) };
    run.violations.iter().map(found).collect()
}

fn found(runs: &[Outcome], property: Property) -> bool {
    runs.iter().flat_map(|run| &run.violations).any(|violation| property.is_violated_by(violation.property))
}

fn rate(n: u64, time: Time) -> Option<f64> {
    (time > Time::ZERO).then(|| n as f64 / time.as_t())
}

/// The papers count in T, the delay of a message; here it may be some other number, or no single one.
fn in_units_of_the_delay(spec: &Spec, expected: Expected) -> Expected {
    let t = spec.network.delay.mean().filter(|_| spec.network.links.is_empty()).map(Time::as_t);
    let scale = |time: Option<f64>| time.zip(t).map(|(time, t)| time * t);
    Expected {
        messages_per_entry: expected.messages_per_entry,
        sync_delay: scale(expected.sync_delay),
        client_delay: scale(expected.client_delay),
    }
}
