//! The daemon's Prometheus metrics.

use crate::access::Principal;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of lock name prefixes with series of their own; all others are combined.
const MOST_PREFIXES: usize = 100;
/// Maximum length of such a prefix, in bytes.
const LONGEST_PREFIX: usize = 64;
/// The label for all other prefixes.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    protocol: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UsedFor {
    used_for: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Histograms by the text before the first slash of the lock's name.
type Times = Arc<Mutex<BTreeMap<String, Histogram>>>;

/// The daemon's metrics.
#[derive(Default)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    refused: Family<Reason, Counter>,
    snapshots: Counter,
    list_bytes: Counter,
    connections: Gauge,
    sessions: Gauge,
    certificate_expiry: Family<UsedFor, Gauge>,
    waits: Times,
    holds: Times,
}

/// Buckets from a millisecond to over an hour.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 4.0, 12))
}

impl Metrics {
    /// Registers all metrics except the times of locks. None of these contains a lock's name.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lockkeeper_daemon");
        registry.register("requests", "Requests of clients, by protocol and result", self.requests.clone());
        registry.register("refused", "Calls and connections refused, by reason", self.refused.clone());
        let help = "Times that the table of all locks was read for lists";
        registry.register("snapshots", help, self.snapshots.clone());
        registry.register("list_bytes", "Bytes of lists of locks", self.list_bytes.clone());
        registry.register("connections", "Connections of clients", self.connections.clone());
        registry.register("sessions", "Sessions and leases that live here", self.sessions.clone());
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When the first of the certificates in use expires, in seconds since 1970",
            Unit::Seconds,
            self.certificate_expiry.clone(),
        );
    }

    /// A registry with the times of the locks that a principal may see.
    pub fn lock_times(&self, who: &Principal) -> Registry {
        let mut registry = Registry::default();
        let below = registry.sub_registry_with_prefix("lockkeeper_daemon");
        let help = "From a request to its grant, by the text before the first slash of the lock's name";
        let (who, waits, holds) = (who.clone(), self.waits.clone(), self.holds.clone());
        below.register_collector(Box::new(LockTimesCollector {
            name: "wait",
            help,
            times: waits,
            who: who.clone(),
        }));
        let help = "From a grant to its end, by the text before the first slash of the lock's name";
        below.register_collector(Box::new(LockTimesCollector { name: "hold", help, times: holds, who }));
        registry
    }

    /// Counts a request and its result.
    pub fn request(&self, protocol: &'static str, result: &'static str) {
        self.requests.get_or_create(&Request { protocol, result }).inc();
    }

    /// Counts a refused call or connection.
    pub fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// Number of calls and connections refused for this reason.
    #[cfg(test)]
    pub fn refused(&self, reason: &'static str) -> u64 {
        self.refused.get_or_create(&Reason { reason }).get()
    }

    /// Counts a reading of the lock table of the whole cluster.
    pub fn snapshot(&self) {
        self.snapshots.inc();
    }

    /// Counts the bytes of one chunk of a list.
    pub fn listed(&self, bytes: usize) {
        self.list_bytes.inc_by(bytes as u64);
    }

    /// Sets the time at which the first of the certificates expires that are used for clients or for members. `None`:
    /// there are none, or they cannot be read.
    pub(crate) fn certificates_expire(&self, used_for: &'static str, timestamp: Option<i64>) {
        let label = UsedFor { used_for };
        match timestamp {
            Some(timestamp) => {
                self.certificate_expiry.get_or_create(&label).set(timestamp);
            }
            None => {
                self.certificate_expiry.remove(&label);
            }
        }
    }

    /// Counts a connection until the returned value is dropped.
    pub fn connection(&self) -> impl Drop + Send + Sync + use<> {
        self.connections.inc();
        GaugeGuard(self.connections.clone())
    }

    /// Counts a session until the returned value is dropped.
    pub(crate) fn session(&self) -> GaugeGuard {
        self.sessions.inc();
        GaugeGuard(self.sessions.clone())
    }

    /// Records how long a granted request waited.
    pub fn waited(&self, lock: &str, time: Duration) {
        observe(&self.waits, lock, time);
    }

    /// Records how long a lock was held.
    pub fn held(&self, lock: &str, time: Duration) {
        observe(&self.holds, lock, time);
    }
}

fn observe(times: &Times, lock: &str, time: Duration) {
    let prefix = lock.split('/').next().unwrap_or_default();
    let mut known = times.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = prefix.len() <= LONGEST_PREFIX && known.len() < MOST_PREFIXES;
    let histogram = match known.get(prefix) {
        Some(histogram) => histogram,
        None if fits => known.entry(String::from(prefix)).or_insert_with(histogram),
        None => known.entry(String::from(OTHER)).or_insert_with(histogram),
    };
    histogram.observe(time.as_secs_f64());
}

/// The histograms of the locks that a principal may see.
#[derive(Debug)]
struct LockTimesCollector {
    name: &'static str,
    help: &'static str,
    times: Times,
    who: Principal,
}

impl LockTimesCollector {
    /// The locks under [`OTHER`] have different prefixes, so only a principal that may see every lock may see their
    /// times.
    fn shows(&self, prefix: &str) -> bool {
        if prefix == OTHER { self.who.sees("") } else { self.who.sees_all_below(prefix) }
    }
}

impl Collector for LockTimesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = times.iter().filter(|(prefix, _)| self.shows(prefix)).peekable();
        if shown.peek().is_none() {
            return Ok(());
        }
        let mut family =
            encoder.encode_descriptor(self.name, self.help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (prefix, histogram) in shown {
            histogram.encode(family.encode_family(&[("prefix", prefix.as_str())])?)?;
        }
        Ok(())
    }
}

/// Decrements a gauge when dropped.
pub(crate) struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..1000 {
            metrics.waited(&format!("team{number}/lock"), Duration::from_millis(3));
            metrics.held(&format!("team{number}"), Duration::from_millis(3));
        }
        metrics.waited(&"x".repeat(LONGEST_PREFIX + 1), Duration::ZERO);
        let registry = metrics.lock_times(&Principal::anonymous());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counts = |line: &&str| line.starts_with("lockkeeper_daemon_wait_seconds_count");
        let lines: Vec<&str> = text.lines().filter(counts).collect();
        assert_eq!(lines.len(), MOST_PREFIXES + 1);
        let other = lines.iter().find(|line| line.contains("\"other\"")).unwrap();
        assert!(other.ends_with(" 901"), "{other}");
    }
}
