//! The runs behind the plots that need more than the table: throughput as the load rises, how response times are
//! distributed, and how fair the algorithms are when delays scatter.

use crate::compare::Sweep;
use crate::delay::Delay;
use crate::metrics::{Counts, Distribution};
use crate::runner::{self, Error, Progress};
use crate::sim::Outcome;
use crate::spec::{LoadSpec, Spec};
use crate::time::Time;
use rayon::prelude::*;

/// How many loads a throughput curve has, in tenths of what T and E allow.
const POINTS: usize = 13;
/// Entries of one run.
const ENTRIES: u64 = 1_500;

/// What was measured, at one number of sites.
#[derive(Clone, Debug)]
pub struct Study {
    /// How many sites: the middle one of the sweep's.
    pub sites: usize,
    /// The most entries per T that any algorithm can reach which needs a message between two entries: 1/(T+E).
    pub limit: f64,
    /// The load of the response times, in requests per T over all sites.
    pub offered: f64,
    /// One for each algorithm.
    pub subjects: Vec<Subject>,
}

/// One algorithm.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its slug.
    pub algorithm: String,
    /// Requests and entries per T over all sites; empty if a run did not end well.
    pub throughput: Vec<(f64, f64)>,
    /// Response times at a moderate load.
    pub response: Option<Quantiles>,
    /// The most entries of others during a wait, and Jain's index, at high load with random delays.
    pub fairness: Option<(u64, f64)>,
}

/// Some quantiles of a distribution, in T.
#[derive(Clone, Copy, Debug)]
pub struct Quantiles {
    /// 5 %, 25 %, 50 %, 75 %, 95 % and 99 %.
    pub at: [f64; 6],
}

impl Study {
    /// Runs it all, on all cores.
    pub fn run(sweep: &Sweep, progress: &Progress) -> Result<Self, Error> {
        let (sites, seeds) = (sites(sweep), seeds(sweep));
        let inside = sweep.cs.mean().map_or(0.0, Time::as_t);
        let limit = 1.0 / (1.0 + inside);
        // A coordinator can let one in every 2T + E: six tenths of that keep every algorithm busy and none swamped.
        let offered = 0.6 / (2.0 + inside);
        let subject = |algorithm: &String| -> Result<Subject, Error> {
            let spec = |load| Spec { entries: ENTRIES, ..sweep.spec(algorithm, sites, load) };
            let rate = |total: f64| LoadSpec::Poisson(total / sites as f64);
            let loads: Vec<f64> = (1..=POINTS).map(|step| limit * step as f64 / 10.0).collect();
            let throughput = loads
                .into_par_iter()
                .map(|load| Ok((load, throughput(&scattered(spec(rate(load))), seeds, progress)?)));
            let throughput: Vec<(f64, Option<f64>)> = throughput.collect::<Result<_, Error>>()?;
            let throughput = throughput.into_iter().map(|(load, entries)| Some((load, entries?)));
            Ok(Subject {
                algorithm: algorithm.clone(),
                throughput: throughput.collect::<Option<_>>().unwrap_or_default(),
                response: response(&scattered(spec(rate(offered))), seeds, progress)?,
                fairness: fairness(&scattered(spec(LoadSpec::High)), seeds, progress)?,
            })
        };
        let subjects = sweep.algorithms.par_iter().map(subject).collect::<Result<_, Error>>()?;
        Ok(Self { sites, limit, offered, subjects })
    }

    /// How many entries all runs have together, for a progress bar.
    pub fn entries(sweep: &Sweep) -> u64 {
        let one = ENTRIES.saturating_add((sites(sweep) as u64).saturating_mul(2));
        (sweep.algorithms.len() as u64 * (POINTS as u64 + 2) * seeds(sweep)).saturating_mul(one)
    }

    /// The algorithms that have something to show, and the names of those that do not.
    pub fn told<T>(&self, of: impl Fn(&Subject) -> Option<T>) -> (Vec<(&Subject, T)>, Vec<&str>) {
        let told = self.subjects.iter().filter_map(|subject| Some((subject, of(subject)?))).collect();
        let left_out = self.subjects.iter().filter(|subject| of(subject).is_none());
        (told, left_out.map(|subject| subject.algorithm.as_str()).collect())
    }
}

/// The middle one of the sizes.
fn sites(sweep: &Sweep) -> usize {
    let mut sizes = sweep.sites.clone();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(1)
}

/// A plot needs no confidence intervals: a few runs make its lines smooth.
fn seeds(sweep: &Sweep) -> u64 {
    sweep.seeds.min(3)
}

/// The same with delays that vary by half, as those of a real network do.
fn scattered(mut spec: Spec) -> Spec {
    spec.network.delay = Delay::Uniform(Time::from_milli_t(500), Time::from_milli_t(1_500));
    spec
}

/// What came of the runs, if everything held in all of them.
fn good(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Option<Vec<Outcome>>, Error> {
    match runner::outcomes(spec, 1, seeds, progress) {
        Ok(outcomes) => Ok(Some(outcomes).filter(|all| all.iter().all(|run| run.violations.is_empty()))),
        // The algorithm has no form for so many sites.
        Err(Error::Usage(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn throughput(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Option<f64>, Error> {
    let counts = good(spec, seeds, progress)?.map(|runs| merged(&runs));
    Ok(counts
        .filter(|counts| counts.time > Time::ZERO)
        .map(|counts| counts.entries as f64 / counts.time.as_t()))
}

fn response(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Option<Quantiles>, Error> {
    let Some(runs) = good(spec, seeds, progress)? else { return Ok(None) };
    let mut all = Distribution::default();
    runs.iter().for_each(|run| all.merge(&run.measures.response));
    let at = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99].map(|share| all.quantile(share).unwrap_or(0.0));
    Ok((all.count() > 0).then_some(Quantiles { at }))
}

fn fairness(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Option<(u64, f64)>, Error> {
    let counts = good(spec, seeds, progress)?.map(|runs| merged(&runs));
    Ok(counts.and_then(|counts| Some((counts.max_bypass, counts.jain()?))))
}

fn merged(runs: &[Outcome]) -> Counts {
    let mut counts = Counts::default();
    runs.iter().for_each(|run| counts.merge(&run.measures.counts));
    counts
}
