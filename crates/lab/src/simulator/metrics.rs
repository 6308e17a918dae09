//! The measurements of a run, made in one pass with bounded memory.
//!
//! Only the *window* is measured: a number of entries after a warm-up. At low load and in bursts it extends
//! from its first request until the network is quiet again. Under continuous load it extends from just before
//! one exit to just before another, so that it contains as many starts as ends.
//!
//! | metric | definition |
//! |---|---|
//! | messages per entry | messages sent between different sites in the window, divided by its entries |
//! | to enter, on exit | the same, separated by the purpose of the message type |
//! | bytes per entry | the same messages, in the compact binary encoding `postcard`, without headers |
//! | idle messages | messages sent while no site waited or was inside, per T of such time up to the last of them |
//! | load per site | messages sent or received by a site, per entry: maximum and mean over all processes |
//! | client delay | from a request to its entry, if no other site was inside or waiting meanwhile |
//! | synchronization delay | from an exit to the next entry, if there was a waiter for the room that it made; see below |
//! | waiting time | from a request to its entry |
//! | response time | from a request to its exit |
//! | throughput | entries per T |
//! | Jain's index | (Σx)² / (N·Σx²) over the entries x of each site: 1 when all have the same |
//! | concurrency | the maximum number of sites inside at once |
//! | largest bypass | the maximum number of competing entries of other sites during one site's wait |
//! | timestamp inversions | entries while a competing request with a smaller timestamp waited |
//! | causal inversions | entries while a competing request that happened before theirs waited |
//!
//! Exits that made room for several waiters are matched with entries in their order.
//!
//! Requests [compete](lockkeeper_core::Sharing::compete) unless both are shared: in a mutex, all do.

use crate::simulator::time::Time;
use hdrhistogram::Histogram;
use serde::Serialize;

/// A distribution of times in bounded memory: exact mean and extremes, quantiles to three digits.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: u128,
    min: Time,
    max: Time,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("three digits are a valid precision");
        Self { histogram, sum: 0, min: Time::NEVER, max: Time::ZERO }
    }
}

impl Distribution {
    /// Adds a time.
    #[inline]
    pub fn record(&mut self, time: Time) {
        self.histogram.record(time.ticks()).expect("an auto-resizing histogram accepts every value");
        self.sum += u128::from(time.ticks());
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    /// Adds all values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("an auto-resizing histogram can merge every other");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The exact mean, in T.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64 / 1e9)
    }

    /// The time that the given share of the values does not exceed, in T.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let bucket = self.histogram.value_at_quantile(share);
        // A bucket is a thousandth wide; the minimum and maximum are known exactly.
        let exact = [self.min, self.max].into_iter().find(|t| self.histogram.equivalent(t.ticks(), bucket));
        (self.count() > 0).then(|| exact.unwrap_or(Time::from_ticks(bucket)).as_t())
    }

    /// The maximum, in T.
    pub fn max(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.max.as_t())
    }
}

/// The counters of the window of one run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of entries.
    pub entries: u64,
    /// Number of messages by type, in the order of the protocol's list of types.
    pub by_kind: Vec<u64>,
    /// Total size of these messages, in bytes.
    pub bytes: u64,
    /// Number of messages sent while no site waited or was inside.
    pub idle_messages: u64,
    /// Total time in which no site waited or was inside, each time up to the last such message.
    pub idle_time: Time,
    /// The length of the window.
    pub time: Time,
    /// Number of entries of each site.
    pub entries_of: Vec<u64>,
    /// Number of messages sent or received by each process.
    pub load_of: Vec<u64>,
    /// The maximum number of sites inside at once.
    pub max_inside: usize,
    /// The maximum number of competing entries of other sites during one wait.
    pub max_bypass: u64,
    /// Number of entries while a competing request with a smaller timestamp waited.
    pub timestamp_inversions: u64,
    /// Number of entries while a competing request that happened before theirs waited; `None` if that was not
    /// tracked.
    pub causal_inversions: Option<u64>,
    /// The maximum queue length of requests at one site.
    pub backlog: u64,
}

/// The measurements of one run.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// The counters.
    pub counts: Counts,
    /// Synchronization delays.
    pub sync_delay: Distribution,
    /// Client delays.
    pub client_delay: Distribution,
    /// Waiting times.
    pub waiting: Distribution,
    /// Response times.
    pub response: Distribution,
}

impl Counts {
    /// Number of all messages.
    pub fn messages(&self) -> u64 {
        self.by_kind.iter().sum()
    }

    /// Adds the counters of another run.
    pub fn merge(&mut self, other: &Self) {
        fn add(into: &mut Vec<u64>, from: &[u64]) {
            into.resize(into.len().max(from.len()), 0);
            for (into, from) in into.iter_mut().zip(from) {
                *into += from;
            }
        }
        self.entries += other.entries;
        add(&mut self.by_kind, &other.by_kind);
        self.bytes += other.bytes;
        self.idle_messages += other.idle_messages;
        self.idle_time += other.idle_time;
        self.time += other.time;
        add(&mut self.entries_of, &other.entries_of);
        add(&mut self.load_of, &other.load_of);
        self.max_inside = self.max_inside.max(other.max_inside);
        self.max_bypass = self.max_bypass.max(other.max_bypass);
        self.timestamp_inversions += other.timestamp_inversions;
        self.causal_inversions = match (self.causal_inversions, other.causal_inversions) {
            (Some(a), Some(b)) => Some(a + b),
            _ => None,
        };
        self.backlog = self.backlog.max(other.backlog);
    }

    /// Jain's index over the entries of each site.
    pub fn jain(&self) -> Option<f64> {
        let sum: u128 = self.entries_of.iter().map(|&x| u128::from(x)).sum();
        let squares: u128 = self.entries_of.iter().map(|&x| u128::from(x) * u128::from(x)).sum();
        (squares > 0).then(|| (sum * sum) as f64 / (self.entries_of.len() as u128 * squares) as f64)
    }
}

/// A summary of a distribution, in T.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    /// The mean over all runs.
    pub mean: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean over the runs; needs two runs.
    pub ci95: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The maximum.
    pub max: Option<f64>,
    /// Number of values.
    pub count: u64,
}

impl Summary {
    /// Summarises a distribution over several runs.
    pub fn of(runs: &[&Distribution]) -> Self {
        let mut all = Distribution::default();
        for run in runs {
            all.merge(run);
        }
        let means: Vec<f64> = runs.iter().filter_map(|run| run.mean()).collect();
        Self {
            mean: all.mean(),
            ci95: half_width_95(&means),
            p50: all.quantile(0.5),
            p99: all.quantile(0.99),
            max: all.max(),
            count: all.count(),
        }
    }
}

/// Half the width of the 95 % confidence interval of the mean of these values, by Student's distribution.
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    // The two-sided 95 % quantiles for 1 to 30 degrees of freedom; beyond that, the normal quantile is close
    // enough.
    const STUDENT: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
    let quantile = STUDENT.get(values.len() - 2).copied().unwrap_or(1.960);
    Some(quantile * libm::sqrt(variance / n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_a_constant_is_exact() {
        let mut distribution = Distribution::default();
        for _ in 0..1000 {
            distribution.record(Time::from_t(1.1).unwrap());
        }
        let summary = Summary::of(&[&distribution, &distribution]);
        assert_eq!((summary.mean, summary.p50, summary.p99), (Some(1.1), Some(1.1), Some(1.1)));
        assert_eq!((summary.max, summary.count, summary.ci95), (Some(1.1), 2000, Some(0.0)));
    }

    #[test]
    fn quantiles_are_accurate_to_three_digits() {
        let mut distribution = Distribution::default();
        for i in 1..=1000 {
            distribution.record(Time::from_t(f64::from(i)).unwrap());
        }
        assert!((distribution.quantile(0.5).unwrap() / 500.0 - 1.0).abs() < 0.002);
        assert!((distribution.quantile(0.99).unwrap() / 990.0 - 1.0).abs() < 0.002);
        assert_eq!(distribution.max(), Some(1000.0));
        assert_eq!(distribution.mean(), Some(500.5));
        assert_eq!(Distribution::default().mean(), None);
    }

    #[test]
    fn confidence_interval_uses_students_distribution() {
        // Mean 2, standard deviation 1, three values: 4.303 / sqrt(3).
        assert!((half_width_95(&[1.0, 2.0, 3.0]).unwrap() - 2.4843).abs() < 1e-3);
        assert_eq!(half_width_95(&[1.0]), None);
    }

    #[test]
    fn jains_index_is_one_when_all_sites_enter_equally_often() {
        let of = |entries_of: &[u64]| Counts { entries_of: entries_of.to_vec(), ..Default::default() }.jain();
        assert_eq!(of(&[5, 5, 5]), Some(1.0));
        assert_eq!(of(&[9, 0, 0]), Some(1.0 / 3.0));
        assert_eq!(of(&[0, 0]), None);
    }
}
