//! What the daemon counts, under Prometheus' names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many prefixes of locks are counted apart; those that come later are counted together.
const MOST_PREFIXES: usize = 100;
/// The longest prefix that is counted apart, in bytes.
const LONGEST_PREFIX: usize = 64;
/// All other prefixes.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    way: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Prefix {
    prefix: String,
}

type Times = Family<Prefix, Histogram, fn() -> Histogram>;

/// What the daemon counts.
pub struct Metrics {
    requests: Family<Request, Counter>,
    refused: Family<Reason, Counter>,
    snapshots: Counter,
    listed: Counter,
    connections: Gauge,
    sessions: Gauge,
    waits: Times,
    holds: Times,
    prefixes: Mutex<HashSet<String>>,
}

/// From a millisecond to an hour: what goes over a network and is seen by people.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 4.0, 12))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            refused: Family::default(),
            snapshots: Counter::default(),
            listed: Counter::default(),
            connections: Gauge::default(),
            sessions: Gauge::default(),
            waits: Family::new_with_constructor(times),
            holds: Family::new_with_constructor(times),
            prefixes: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Puts everything into a registry, which somebody serves.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lockkeeper_daemon");
        registry.register("requests", "Requests of clients, by way and result", self.requests.clone());
        registry.register("refused", "Calls and connections refused, by reason", self.refused.clone());
        let help = "Times that the table of all locks was read for lists";
        registry.register("snapshots", help, self.snapshots.clone());
        registry.register("listed", "Bytes of lists of locks", self.listed.clone());
        registry.register("connections", "Connections of clients", self.connections.clone());
        registry.register("sessions", "Sessions and leases that live here", self.sessions.clone());
        let help = "From a wish to its grant, by the text before the first slash of the lock's name";
        registry.register_with_unit("wait", help, Unit::Seconds, self.waits.clone());
        let help = "From a grant to its end, by the text before the first slash of the lock's name";
        registry.register_with_unit("hold", help, Unit::Seconds, self.holds.clone());
    }

    /// A request was answered.
    pub fn request(&self, way: &'static str, result: &'static str) {
        self.requests.get_or_create(&Request { way, result }).inc();
    }

    /// A call or a connection was refused.
    pub fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// How many calls and connections were refused for this reason.
    #[cfg(test)]
    pub fn refused(&self, reason: &'static str) -> u64 {
        self.refused.get_or_create(&Reason { reason }).get()
    }

    /// The table of all locks of the cluster was read, for one list or for several.
    pub fn snapshot(&self) {
        self.snapshots.inc();
    }

    /// A part of a list was made, of so many bytes.
    pub fn listed(&self, bytes: usize) {
        self.listed.inc_by(bytes as u64);
    }

    /// A connection is there for as long as what this gives.
    pub fn connection(&self) -> impl Drop + Send + Sync + use<> {
        self.connections.inc();
        Counted(self.connections.clone())
    }

    /// A session is there for as long as what this gives.
    pub(crate) fn session(&self) -> Counted {
        self.sessions.inc();
        Counted(self.sessions.clone())
    }

    /// A wish was granted.
    pub fn waited(&self, lock: &str, time: Duration) {
        self.waits.get_or_create(&self.prefix(lock)).observe(time.as_secs_f64());
    }

    /// A hold ended.
    pub fn held(&self, lock: &str, time: Duration) {
        self.holds.get_or_create(&self.prefix(lock)).observe(time.as_secs_f64());
    }

    fn prefix(&self, lock: &str) -> Prefix {
        let prefix = lock.split('/').next().unwrap_or_default();
        let mut known = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = prefix.len() <= LONGEST_PREFIX && known.len() < MOST_PREFIXES;
        if known.contains(prefix) || fits && known.insert(String::from(prefix)) {
            return Prefix { prefix: String::from(prefix) };
        }
        Prefix { prefix: String::from(OTHER) }
    }
}

/// Something that is counted while it is there.
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
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
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counts = |line: &&str| line.starts_with("lockkeeper_daemon_wait_seconds_count");
        let lines: Vec<&str> = text.lines().filter(counts).collect();
        assert_eq!(lines.len(), MOST_PREFIXES + 1);
        let other = lines.iter().find(|line| line.contains("\"other\"")).unwrap();
        assert!(other.ends_with(" 901"), "{other}");
    }
}
