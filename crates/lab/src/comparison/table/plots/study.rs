//! The runs for plots that need more than the table: throughput over load, the distribution of response
//! times, and fairness under random delays.

use crate::comparison::table::Sweep;
use crate::parallel;
use crate::simulator::delay::Delay;
use crate::simulator::metrics::{Counts, Distribution};
use crate::simulator::run::Outcome;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::{LoadSpec, Spec};
use crate::simulator::time::Time;

/// Number of loads of a throughput curve, in tenths of the maximum that T and E allow.
const POINTS: usize = 13;
/// Number of entries of one run.
const ENTRIES: u64 = 1_500;

/// The measurements with one number of sites.
#[derive(Clone, Debug)]
pub struct Study {
    /// Number of sites: the median of the sweep's numbers.
    pub sites: usize,
    /// The maximum of entries per T for an algorithm that needs a message between two entries: 1/(T+E).
    pub limit: f64,
    /// The load for the response times, in requests per T over all sites.
    pub offered: f64,
    /// The measurements of each algorithm.
    pub subjects: Vec<Subject>,
}

/// The measurements of one algorithm.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The slug of the algorithm.
    pub algorithm: String,
    /// Requests and entries per T over all sites; empty if a run violated a property.
    pub throughput: Vec<(f64, f64)>,
    /// The response times at a moderate load.
    pub response: Option<Quantiles>,
    /// The maximum number of entries of others during one wait, and Jain's index, at high load with random
    /// delays.
    pub fairness: Option<(u64, f64)>,
}

/// Quantiles of a distribution, in T.
#[derive(Clone, Copy, Debug)]
pub struct Quantiles {
    /// The 5 %, 25 %, 50 %, 75 %, 95 % and 99 % quantiles.
    pub at: [f64; 6],
}

impl Study {
    /// Performs all runs, on all cores.
    pub fn run(sweep: &Sweep, progress: &Progress) -> Result<Self, Error> {
        let (sites, seeds) = (sites(sweep), seeds(sweep));
        let inside = sweep.cs.mean().map_or(0.0, Time::as_t);
        let limit = 1.0 / (1.0 + inside);
        // A coordinator can grant once per 2T + E. Six tenths of that rate keep every algorithm busy and
        // overload none.
        let offered = 0.6 / (2.0 + inside);
        let subject = |index: usize| -> Result<Subject, Error> {
            let algorithm = &sweep.algorithms[index];
            let spec = |load| Spec { entries: ENTRIES, ..sweep.spec(algorithm, sites, load) };
            let rate = |total: f64| LoadSpec::Poisson(total / sites as f64);
            let loads: Vec<f64> = (1..=POINTS).map(|step| limit * step as f64 / 10.0).collect();
            let measured = |index: usize| throughput(&scattered(spec(rate(loads[index]))), seeds, progress);
            let measured: Vec<Option<f64>> =
                parallel::map(loads.len(), &measured).into_iter().collect::<Result<_, Error>>()?;
            let throughput = loads.into_iter().zip(measured).map(|(load, entries)| Some((load, entries?)));
            Ok(Subject {
                algorithm: algorithm.clone(),
                throughput: throughput.collect::<Option<_>>().unwrap_or_default(),
                response: response(&scattered(spec(rate(offered))), seeds, progress)?,
                fairness: fairness(&scattered(spec(LoadSpec::High)), seeds, progress)?,
            })
        };
        let subjects =
            parallel::map(sweep.algorithms.len(), &subject).into_iter().collect::<Result<_, Error>>()?;
        Ok(Self { sites, limit, offered, subjects })
    }

    /// The total number of entries, for a progress bar.
    pub fn entries(sweep: &Sweep) -> u64 {
        let one = ENTRIES.saturating_add((sites(sweep) as u64).saturating_mul(2));
        (sweep.algorithms.len() as u64 * (POINTS as u64 + 2) * seeds(sweep)).saturating_mul(one)
    }

    /// The algorithms that have a value, and the names of those that have none.
    pub fn measured<T>(&self, of: impl Fn(&Subject) -> Option<T>) -> (Vec<(&Subject, T)>, Vec<&str>) {
        let measured = self.subjects.iter().filter_map(|subject| Some((subject, of(subject)?))).collect();
        let left_out = self.subjects.iter().filter(|subject| of(subject).is_none());
        (measured, left_out.map(|subject| subject.algorithm.as_str()).collect())
    }
}

/// The median of the numbers of sites.
fn sites(sweep: &Sweep) -> usize {
    let mut sizes = sweep.sites.clone();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(1)
}

/// A plot shows no confidence intervals, so a few runs are enough for smooth lines.
fn seeds(sweep: &Sweep) -> u64 {
    sweep.seeds.min(3)
}

/// The same spec with delays that vary by half, as in a real network.
fn scattered(mut spec: Spec) -> Spec {
    spec.network.delay = Delay::Uniform(Time::from_milli_t(500), Time::from_milli_t(1_500));
    spec
}

/// The outcomes of the runs, if no property was violated in any of them.
fn good(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Option<Vec<Outcome>>, Error> {
    match runner::outcomes(spec, 1, seeds, progress) {
        Ok(outcomes) => Ok(Some(outcomes).filter(|all| all.iter().all(|run| run.violations.is_empty()))),
        // The algorithm does not support this number of sites.
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
