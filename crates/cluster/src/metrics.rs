//! Counters and histograms with the names that Prometheus shows.

use crate::net::Net;
use lockkeeper_core::MessageKinds;
use lockkeeper_member::{Ended, Event, LockContent};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Weak;

/// Label: the result of an acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabel {
    pub result: &'static str,
}

/// Label: the kind of a message of the algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    pub kind: &'static str,
}

/// Label: the event that a step of the state machine handled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EventLabel {
    pub event: &'static str,
}

/// Steps of the state machine by event. The counters are resolved in advance, since a lookup would take longer than a
/// step.
#[derive(Debug)]
pub(crate) struct StepCounters {
    all: Family<EventLabel, Counter>,
    frame: Counter,
    client: Counter,
    consensus: Counter,
    tick: Counter,
    other: Counter,
}

impl StepCounters {
    fn new() -> Self {
        let all: Family<EventLabel, Counter> = Family::default();
        let counter = |event| all.get_or_create(&EventLabel { event }).clone();
        let (frame, client, consensus) = (counter("frame"), counter("client"), counter("consensus"));
        let (tick, other) = (counter("tick"), counter("other"));
        Self { all, frame, client, consensus, tick, other }
    }

    pub fn of<M>(&self, event: &Event<M>) -> &Counter {
        match event {
            Event::Frame(_) => &self.frame,
            Event::Client(..) => &self.client,
            Event::Port(_) => &self.consensus,
            Event::Tick => &self.tick,
            _ => &self.other,
        }
    }
}

/// The metrics of a member. The labels have few fixed values; lock names are never labels.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub entries: Counter,
    pub acquisitions: Family<ResultLabel, Counter>,
    pub messages: Family<KindLabel, Counter>,
    pub resent: Counter,
    pub refused: Counter,
    pub wait: Histogram,
    pub hold: Histogram,
    pub view_changes: Counter,
    pub lost_leases: Counter,
    pub incarnations: Counter,
    pub epoch: Gauge,
    pub members: Gauge,
    pub steps: StepCounters,
}

impl Metrics {
    pub fn new() -> Self {
        // From a microsecond, which is a grant without messages, to minutes.
        let times = || Histogram::new(exponential_buckets(1e-6, 4.0, 14));
        Self {
            entries: Counter::default(),
            acquisitions: Family::default(),
            messages: Family::default(),
            resent: Counter::default(),
            refused: Counter::default(),
            wait: times(),
            hold: times(),
            view_changes: Counter::default(),
            lost_leases: Counter::default(),
            incarnations: Counter::default(),
            epoch: Gauge::default(),
            members: Gauge::default(),
            steps: StepCounters::new(),
        }
    }

    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("lockkeeper");
        registry.register("entries", "Grants through this member", self.entries.clone());
        registry.register("acquisitions", "Acquisitions that ended, by result", self.acquisitions.clone());
        registry.register(
            "messages",
            "Messages of the algorithms sent to other members, each counted once; divided by the entries of all members, \
             messages per entry",
            self.messages.clone(),
        );
        registry.register(
            "messages_resent",
            "Messages that were retransmitted because no answer came",
            self.resent.clone(),
        );
        registry.register(
            "frames_refused",
            "Frames of peers that were rejected as invalid",
            self.refused.clone(),
        );
        registry.register_with_unit(
            "wait",
            "Time from a request to its grant",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register_with_unit(
            "hold",
            "Time from a grant to the end of the hold",
            Unit::Seconds,
            self.hold.clone(),
        );
        registry.register("view_changes", "Views that started here", self.view_changes.clone());
        registry.register(
            "lost_leases",
            "Sessions that ended because a lease ran out or was refused",
            self.lost_leases.clone(),
        );
        registry.register(
            "lives",
            "Number of incarnations of this member in this process",
            self.incarnations.clone(),
        );
        registry.register("steps", "Steps of the state machine, by event", self.steps.all.clone());
        registry.register("epoch", "The epoch of the view", self.epoch.clone());
        registry.register("members", "Number of members of the view", self.members.clone());
    }
}

/// Collector for the counters of the network, which are read at each scrape.
pub(crate) struct NetCollector(pub Weak<Net>);

impl fmt::Debug for NetCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfNet")
    }
}

impl Collector for NetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(net) = self.0.upgrade() else { return Ok(()) };
        let counters = net.counters();
        let all = [
            ("frames_received", "Frames from other members", &counters.frames_in),
            ("frames_sent", "Frames to other members", &counters.frames_out),
            ("bytes_received", "Bytes from other members", &counters.bytes_in),
            ("bytes_sent", "Bytes to other members", &counters.bytes_out),
            ("writes", "Write calls; frames that are pending together leave in one write", &counters.writes),
            (
                "frames_dropped",
                "Frames dropped because a buffer was full or an address unknown",
                &counters.dropped,
            ),
            ("connects", "Connections to other members that were made", &counters.connects),
            ("connects_failed", "Attempts to connect that failed", &counters.connects_failed),
            ("connections_replaced", "Connections that were replaced by a newer one", &counters.replaced),
            (
                "connections_silent",
                "Connections closed because nothing was received for too long",
                &counters.silent,
            ),
        ];
        for (name, help, counter) in all {
            let counter = ConstCounter::new(counter.get());
            let name = format!("lockkeeper_net_{name}");
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        let help = "Connections, frames and queries refused, by reason";
        let refused = ConstCounter::new(0_u64);
        let mut family =
            encoder.encode_descriptor("lockkeeper_net_refused", help, None, refused.metric_type())?;
        for (reason, count) in counters.refusals() {
            let labels = [("reason", reason)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The state of a member at the time of a scrape.
pub(crate) struct ScrapedState {
    /// Whether it grants locks.
    pub ready: bool,
    /// Whether it is the leader of the voters.
    pub leads: bool,
    /// Number of other members of the cluster to which it has no connection.
    pub unreachable: usize,
    /// Number of records in the table of recorded holds.
    pub records: usize,
    /// Size of these records, in bytes.
    pub record_bytes: usize,
}

/// Collector for the state of a member, which is read at each scrape. Without it a member that has lost its lease would
/// show the same numbers as one that serves and has no clients. `None` if the member is gone.
pub(crate) struct StateCollector(pub Box<dyn Fn() -> Option<ScrapedState> + Send + Sync>);

impl fmt::Debug for StateCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateCollector")
    }
}

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(state) = (self.0)() else { return Ok(()) };
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let all = [
            ("ready", "1 if this member grants locks, 0 if not, as /readyz", i64::from(state.ready)),
            ("leader", "1 if this member is the leader of the voters", i64::from(state.leads)),
            (
                "unreachable_members",
                "Other members of the cluster to which this member has no connection",
                number(state.unreachable),
            ),
            (
                "recorded_holds",
                "Records in the table of recorded holds, which all members have",
                number(state.records),
            ),
            ("recorded_bytes", "Size of these records; the limit is 8 MiB", number(state.record_bytes)),
        ];
        for (name, help, value) in all {
            let gauge = ConstGauge::new(value);
            let name = format!("lockkeeper_{name}");
            gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// The name of a message in the paper of its algorithm.
pub(crate) fn message_name<M: MessageKinds>(content: &LockContent<M>) -> &'static str {
    fn name<M: MessageKinds>(message: &M) -> &'static str {
        M::KINDS.get(message.kind()).map_or("?", |kind| kind.name)
    }
    match content {
        LockContent::Algorithm(message) => name(message),
        LockContent::Wake => "WAKE",
    }
}

/// The value of the label for the result of an acquisition.
pub(crate) fn result_label(how: Ended) -> &'static str {
    match how {
        Ended::Released => "released",
        Ended::Cancelled => "cancelled",
        Ended::Busy => "busy",
        Ended::TimedOut => "timed_out",
        Ended::Revoked => "revoked",
        Ended::Refused => "refused",
        Ended::Leaving => "leaving",
        Ended::Full { .. } => "full",
    }
}

/// Converts nanoseconds to seconds, the base unit of Prometheus.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
