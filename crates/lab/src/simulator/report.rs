//! The report of simulated runs.

use crate::property::{Property, Violation};
use crate::simulator::metrics::{Counts, Summary, half_width_95};
use crate::simulator::run::Outcome;
use crate::simulator::spec::Spec;
use crate::simulator::time::Time;
use lockkeeper_core::{Expected, MessageKind, Purpose, Sharing};
use serde::Serialize;
use std::collections::BTreeMap;

/// The report of one run, or of several that differ by their seed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The algorithm's slug.
    pub algorithm: String,
    /// The settings that were given.
    pub settings: BTreeMap<String, String>,
    /// Number of sites that may request.
    pub sites: usize,
    /// The first seed.
    pub seed: u64,
    /// Number of runs, with successive seeds.
    pub seeds: u64,
    /// The load.
    pub load: String,
    /// Whether channels were FIFO.
    pub fifo: bool,
    /// The modes that may be inside together.
    pub sharing: Sharing,
    /// The share of requests that were shared.
    pub readers: f64,
    /// The maximum number of sites inside at once.
    pub max_inside: usize,
    /// Number of measured entries.
    pub entries: u64,
    /// Number of messages of the measured entries.
    pub messages: u64,
    /// Messages per entry.
    pub messages_per_entry: Option<f64>,
    /// Half the width of its 95 % confidence interval over the seeds.
    pub messages_per_entry_ci95: Option<f64>,
    /// Of these, messages that request or grant the right to enter.
    pub to_enter: Option<f64>,
    /// Of these, messages that only report an exit.
    pub on_exit: Option<f64>,
    /// Number of messages, by the paper's name.
    pub by_message: BTreeMap<&'static str, u64>,
    /// Bytes per entry.
    pub bytes_per_entry: Option<f64>,
    /// Messages per T while no site waited or was inside.
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
    /// k / (SD + E) with the measured SD, where k sites can be inside at once: 1 / (SD + E) for a mutex.
    /// `None` if there are readers.
    pub throughput_bound: Option<f64>,
    /// The maximum queue length of requests at one site, if requests arrive at their own rate.
    pub backlog: u64,
    /// The figures of the paper.
    pub expected: Expected,
    /// How evenly and in which order sites were served.
    pub fairness: Fairness,
    /// The verdicts on the properties.
    pub properties: Properties,
    /// The violations, each with the command that reproduces it.
    pub violations: Vec<Found>,
    /// Number of events of all runs.
    pub events: u64,
    /// Virtual duration of all runs.
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
    /// The maximum number of competing entries of other sites during one wait.
    pub max_bypass: u64,
    /// Entries while a competing request with a smaller timestamp waited.
    pub timestamp_inversions: u64,
    /// Entries while a competing request that happened before theirs waited.
    pub causal_inversions: Option<u64>,
}

/// The verdicts on the properties, as strings.
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
    /// `held` or `violated`: the algorithm's own invariant.
    pub invariants: &'static str,
}

/// A violation, with its seed and the command that reproduces it.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// The violation.
    #[serde(flatten)]
    pub violation: Violation,
    /// The command that reproduces it.
    pub reproduce: String,
}

/// The statements about an algorithm that a report repeats beside the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Stated {
    /// The kind of lock that the algorithm is.
    pub sharing: Sharing,
    /// The values of the paper's formulas.
    pub expected: Expected,
}

impl Report {
    /// Whether no property was violated.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }

    /// The report of these runs, in the order of their seeds.
    pub fn new(
        spec: &Spec,
        first_seed: u64,
        kinds: &[MessageKind],
        Stated { sharing, expected }: Stated,
        runs: &[Outcome],
    ) -> Self {
        let mut counts = Counts { causal_inversions: Some(0), ..Default::default() };
        for run in runs {
            counts.merge(&run.measures.counts);
        }
        let per_entry = |n: u64| (counts.entries > 0).then(|| n as f64 / counts.entries as f64);
        let for_purpose = |purpose| {
            let of = kinds.iter().zip(&counts.by_kind).filter(|(kind, _)| kind.purpose == purpose);
            per_entry(of.map(|(_, n)| n).sum())
        };
        let each: Vec<f64> = runs
            .iter()
            .map(|run| &run.measures.counts)
            .filter(|counts| counts.entries > 0)
            .map(|counts| counts.messages() as f64 / counts.entries as f64)
            .collect();
        let processes = counts.load_of.len().max(1) as u64;
        let summary = |of: fn(&Outcome) -> &crate::simulator::metrics::Distribution| {
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
            by_message: kinds.iter().map(|kind| kind.name).zip(counts.by_kind.iter().copied()).collect(),
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

/// Converts the papers' figures, in units of T, to the delay of this network. They are `None` if there is no
/// single delay.
fn in_units_of_the_delay(spec: &Spec, expected: Expected) -> Expected {
    let t = spec.network.delay.mean().filter(|_| spec.network.links.is_empty()).map(Time::as_t);
    let scale = |time: Option<f64>| time.zip(t).map(|(time, t)| time * t);
    Expected {
        messages_per_entry: expected.messages_per_entry,
        sync_delay: scale(expected.sync_delay),
        sync_delay_range: expected.sync_delay_range.zip(t).map(|((least, most), t)| (least * t, most * t)),
        client_delay: scale(expected.client_delay),
    }
}
