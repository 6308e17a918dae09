//! Recommends an algorithm for a system: runs the candidates on a model of it and ranks them.
//!
//! | criterion | model |
//! |---|---|
//! | topology | lan: all delays near T; wan: three regions, T/10 within, T and 2T between; tree: a binary tree, T per hop |
//! | load | low or high, as everywhere in the lab |
//! | fairness | strict or fifo, see below |
//! | failures | for each site and some seeds, that site and the following ones crash; how often do all others enter again? |
//!
//! Strict fairness means that no entry is out of timestamp order, in bursts, with random requests and at high
//! load, with delays of any length. Fifo fairness means that no site is bypassed more than twice by each other
//! site during one wait, at high load with delays that vary by half.
//!
//! Only mutexes are ranked. Those that are as fair as requested are ranked by whether they survive all
//! crashes, most, or few, and then by waiting time times messages, each relative to the best: halving either
//! counts the same.

use crate::parallel;
use crate::simulator::delay::{Delay, Matrix, MatrixError};
use crate::simulator::report::{Found, Report};
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::{Action, DetectorSpec, LoadSpec, Scripted, Spec};
use crate::simulator::time::Time;
use crate::usage::UsageError;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::{About, Sharing, SiteId, registry};
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// The maximum number of sites: every crash of every candidate is simulated.
pub const MOST_SITES: usize = 200;
const SEEDS: u64 = 3;
/// Crashes happen at a fixed time; the state in which they find the system depends on the seed.
const CRASH_SEEDS: u64 = 5;
const ENTRIES: u64 = 300;

/// How the sites are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One network in which all delays are similar.
    Lan,
    /// Three regions.
    Wan,
    /// Links that form a tree.
    Tree,
}

/// The required fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fairness {
    /// Grants in the order of timestamps.
    Strict,
    /// Grants roughly in turn.
    Fifo,
    /// No requirement.
    None,
}

/// The requirements.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// Number of sites.
    pub sites: usize,
    /// Number of sites that may crash.
    pub failures: usize,
    /// How the sites are connected.
    pub topology: Topology,
    /// The rate of requests.
    pub load: LoadSpec,
    /// The required fairness.
    pub fairness: Fairness,
}

/// A candidate with its measurements. Times are in T.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The slug of the algorithm.
    pub algorithm: String,
    /// The settings it was run with.
    pub settings: Vec<(String, String)>,
    /// The mean time from a request to its entry.
    pub waiting: f64,
    /// Messages per entry.
    pub messages_per_entry: f64,
    /// Messages per T while no site requests.
    pub idle_messages: f64,
    /// Entries per T.
    pub throughput: Option<f64>,
    /// Messages per entry at the busiest process.
    pub busiest_site: Option<f64>,
    /// The maximum number of entries of others during one wait.
    pub max_bypass: u64,
    /// Entries out of timestamp order.
    pub timestamp_inversions: u64,
    /// The share of the simulated crashes after which all other sites were served. `None` if no crash was
    /// requested.
    pub survived: Option<f64>,
    /// Waiting time times messages, relative to the best: 1 is the lowest possible cost.
    pub cost: f64,
    /// The effect of a crash.
    pub crash: &'static str,
}

/// The ranking.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// The candidates, best first.
    pub ranked: Vec<Candidate>,
    /// The algorithms that were left out, each with the reason.
    pub left_out: Vec<(String, ExclusionReason)>,
}

/// The reason why an algorithm is not ranked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExclusionReason {
    /// It is not a mutex.
    #[error("is {0}")]
    Shares(Sharing),
    /// It can deadlock.
    #[error("can deadlock ('lockkeeper properties' has a witness)")]
    Deadlocks,
    /// It does not support the system.
    #[error(transparent)]
    Unsupported(UsageError),
    /// It violated a property in a run.
    #[error("{}; see it with: {}", .0.violation, .0.reproduce)]
    Violates(Box<Found>),
    /// It is not strictly fair.
    #[error("{inversions} of {entries} entries out of timestamp order under random delays")]
    OutOfOrder {
        /// Number of entries out of timestamp order.
        inversions: u64,
        /// Number of all entries.
        entries: u64,
    },
    /// It does not grant roughly in turn.
    #[error("a site was passed {bypass} times during one wait, more than twice by each other site ({most})")]
    Bypasses {
        /// The maximum number of entries of others during one wait.
        bypass: u64,
        /// The accepted maximum.
        most: u64,
    },
}

impl Serialize for ExclusionReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Runs the candidates and ranks them.
pub fn choose(requirements: &Requirements, progress: &Progress) -> Result<Advice, Error> {
    if !(2..=MOST_SITES).contains(&requirements.sites) {
        return Err(UsageError::AdviceSites { sites: requirements.sites }.into());
    }
    if requirements.failures >= requirements.sites {
        let (failures, sites) = (requirements.failures, requirements.sites);
        return Err(UsageError::AllCrash { failures, sites }.into());
    }
    let judged = parallel::map(registry::ALL.len(), &|index| {
        judge(registry::ALL[index].about, requirements, progress)
    });
    let mut advice = Advice { ranked: Vec::new(), left_out: Vec::new() };
    for (entry, candidate) in registry::ALL.iter().zip(judged) {
        match candidate? {
            Ok(candidate) => advice.ranked.push(candidate),
            Err(why) => advice.left_out.push((entry.about.slug.into(), why)),
        }
    }
    rank(&mut advice.ranked);
    Ok(advice)
}

/// The total number of entries to simulate, for a progress bar.
pub fn entries(requirements: &Requirements) -> u64 {
    let sites = requirements.sites.min(MOST_SITES) as u64;
    let crashes = if requirements.failures == 0 { 0 } else { CRASH_SEEDS * sites * 4 * sites };
    registry::ALL.len() as u64 * (SEEDS * (ENTRIES + 108 * sites) + crashes)
}

fn rank(candidates: &mut [Candidate]) {
    let least =
        |of: fn(&Candidate) -> f64, all: &[Candidate]| all.iter().map(of).fold(f64::INFINITY, f64::min);
    let wait = least(|candidate| candidate.waiting, candidates);
    let messages = least(|candidate| candidate.messages_per_entry, candidates);
    let ratio = |value: f64, best: f64| if best > 0.0 { value / best } else { 1.0 + value };
    for candidate in candidates.iter_mut() {
        candidate.cost = ratio(candidate.waiting, wait) * ratio(candidate.messages_per_entry, messages);
    }
    candidates.sort_by(|a, b| class(b).cmp(&class(a)).then(a.cost.total_cmp(&b.cost)));
}

/// The class of a candidate: survives all crashes, most, or few. Finer differences are chance: they depend on
/// whether a crash hits a site that is needed at that time.
fn class(candidate: &Candidate) -> u8 {
    match candidate.survived {
        Some(share) if share >= 1.0 => 2,
        Some(share) if share >= 0.5 => 1,
        _ => 0,
    }
}

/// A candidate, or the reason why the algorithm is left out.
fn judge(
    about: &'static About,
    requirements: &Requirements,
    progress: &Progress,
) -> Result<Result<Candidate, ExclusionReason>, Error> {
    if let Some(other) = registry::sharing(about.slug).filter(|&sharing| sharing != Sharing::Mutex) {
        return Ok(Err(ExclusionReason::Shares(other)));
    }
    if !about.deadlock_free {
        return Ok(Err(ExclusionReason::Deadlocks));
    }
    let spec = spec(about, requirements)?;
    let report = match runner::simulate(&spec, 1, SEEDS, progress) {
        Ok(report) => report,
        Err(Error::Usage(what)) => return Ok(Err(ExclusionReason::Unsupported(what))),
        Err(error) => return Err(error),
    };
    let fair = runner::simulate(&scattered(&spec), 1, SEEDS, progress)?;
    if let Some(found) = report.violations.first().or(fair.violations.first()) {
        return Ok(Err(ExclusionReason::Violates(Box::new(found.clone()))));
    }
    let disorder = disorder(&spec, about, progress)?;
    if let Some(why) = unfair(&fair, disorder, requirements) {
        return Ok(Err(why));
    }
    let survived = if requirements.failures == 0 {
        None
    } else {
        Some(survived(&spec, requirements.failures, progress)?)
    };
    Ok(Ok(Candidate {
        algorithm: about.slug.into(),
        settings: spec.settings,
        waiting: report.waiting.mean.unwrap_or(0.0),
        messages_per_entry: report.messages_per_entry.unwrap_or(0.0),
        idle_messages: report.idle_messages,
        throughput: report.throughput,
        busiest_site: report.site_load.max,
        max_bypass: fair.fairness.max_bypass,
        timestamp_inversions: disorder.0,
        survived,
        cost: 0.0,
        crash: about.crash,
    }))
}

fn unfair(report: &Report, disorder: (u64, u64), requirements: &Requirements) -> Option<ExclusionReason> {
    let most = 2 * (requirements.sites as u64 - 1);
    let bypass = report.fairness.max_bypass;
    match (requirements.fairness, disorder) {
        (Fairness::Strict, (inversions @ 1.., entries)) => {
            Some(ExclusionReason::OutOfOrder { inversions, entries })
        }
        (Fairness::Fifo, _) if bypass > most => Some(ExclusionReason::Bypasses { bypass, most }),
        _ => None,
    }
}

/// The number of entries out of timestamp order, and of all entries, under the hardest conditions: delays of
/// any length, on channels that reorder if the algorithm allows it.
fn disorder(spec: &Spec, about: &About, progress: &Progress) -> Result<(u64, u64), Error> {
    let (mut inversions, mut entries) = (0, 0);
    let sites = spec.sites as u64;
    for load in [LoadSpec::Burst, LoadSpec::High, LoadSpec::Poisson(0.25 / spec.sites as f64)] {
        let mut spec = Spec { load, entries: 20 * sites, ..spec.clone() };
        spec.network.delay = Delay::Exponential(Time::UNIT);
        spec.network.fifo = about.channels == Channels::Fifo;
        let report = runner::simulate(&spec, 1, SEEDS, progress)?;
        inversions += report.fairness.timestamp_inversions;
        entries += report.entries;
    }
    Ok((inversions, entries))
}

fn spec(about: &About, requirements: &Requirements) -> Result<Spec, Error> {
    let mut spec =
        Spec { load: requirements.load, entries: ENTRIES, ..Spec::new(about.slug, requirements.sites) };
    for setting in about.settings {
        match setting.name {
            // There is no process besides the sites, so one of them has to coordinate.
            "coordinator" => spec.settings.push(("coordinator".into(), "1".into())),
            "tree" if requirements.topology == Topology::Tree => {
                spec.settings.push(("tree".into(), "binary".into()))
            }
            _ => {}
        }
    }
    spec.network.delay = delay(requirements).map_err(UsageError::from)?;
    Ok(spec)
}

/// The delays of a topology.
fn delay(requirements: &Requirements) -> Result<Delay, MatrixError> {
    let matrix = |name: &str, text: &str| Ok(Delay::Matrix(Arc::new(Matrix::parse(name, text)?)));
    match requirements.topology {
        Topology::Lan => Ok(Delay::Uniform(Time::from_milli_t(900), Time::from_milli_t(1_100))),
        Topology::Wan => matrix("wan", "  west middle east\nwest 0.1 1 2\nmiddle 1 0.1 1\neast 2 1 0.1\n"),
        Topology::Tree => {
            let row = |from: usize| {
                let cells = (0..requirements.sites).map(|to| hops(from, to).to_string());
                cells.collect::<Vec<_>>().join(" ")
            };
            matrix("tree", &(0..requirements.sites).map(row).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// The distance of two sites in a binary tree that is filled level by level.
fn hops(mut a: usize, mut b: usize) -> usize {
    let mut hops = 0;
    while a != b {
        if a > b {
            a = (a - 1) / 2;
        } else {
            b = (b - 1) / 2;
        }
        hops += 1;
    }
    hops
}

/// High load with delays that vary by half, to measure fairness.
fn scattered(spec: &Spec) -> Spec {
    let mut spec = Spec { load: LoadSpec::High, entries: 40 * spec.sites as u64, ..spec.clone() };
    spec.network.delay = Delay::Uniform(Time::from_milli_t(500), Time::from_milli_t(1_500));
    spec
}

/// Simulates, for each site, that it and the following ones crash at low load. Returns the share of runs in
/// which all other sites are served.
fn survived(spec: &Spec, failures: usize, progress: &Progress) -> Result<f64, Error> {
    let lives = |first: usize| -> Result<usize, Error> {
        let mut spec =
            Spec { load: LoadSpec::Low, entries: 4 * spec.sites as u64, warmup: Some(0), ..spec.clone() };
        spec.detector = DetectorSpec::Perfect;
        let crash = |index| Action::Crash(SiteId::new((first + index) % spec.sites));
        spec.script = (0..failures)
            .map(|index| Scripted { at: Time::from_milli_t(10_000), action: crash(index) })
            .collect();
        let runs = runner::outcomes(&spec, 1, CRASH_SEEDS, progress)?;
        Ok(runs.iter().filter(|run| run.violations.is_empty()).count())
    };
    let lives: usize = parallel::map(spec.sites, &lives).into_iter().sum::<Result<_, Error>>()?;
    Ok(lives as f64 / (spec.sites as u64 * CRASH_SEEDS) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_distances_in_a_binary_tree() {
        assert_eq!([hops(0, 0), hops(0, 2), hops(3, 4), hops(3, 6), hops(1, 6)], [0, 1, 2, 4, 3]);
    }
}
