//! What a run of a cluster is a function of, beside its seed.

use super::faults::Fault;
use lockkeeper_core::any::ALGORITHM;
use lockkeeper_member::{Config, Flaw, MemberId};
use std::collections::BTreeSet;

/// A thousandth of a second, in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// What a run is a function of, beside its seed.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The algorithm of the locks.
    pub algorithm: String,
    /// How many machines may be members.
    pub members: usize,
    /// How many clients.
    pub clients: usize,
    /// How many clients without a session of their own, as those of HTTP and of etcd's API.
    pub tenants: usize,
    /// How many locks they mostly want alone. Beside them there is one that they mostly share, and one that they mostly want permits of.
    pub mutexes: usize,
    /// What may go wrong.
    pub faults: BTreeSet<Fault>,
    /// How long it may go wrong.
    pub chaos_ns: u64,
    /// Wrong on purpose.
    pub flaw: Option<Flaw>,
    /// Wrong on purpose: consensus forgets its last decisions when everybody restarts.
    pub forgets_epochs: bool,
}

impl ClusterSpec {
    /// After the faults have stopped, whoever waits is served within this time.
    pub const PATIENCE_NS: u64 = 15_000 * MS;
    /// By how much clocks drift: far more than real ones, so that it shows.
    pub const DRIFT_PPM: u64 = 100_000;
    /// More members than this are not simulated.
    pub const MOST_MEMBERS: usize = 9;

    /// A cluster to which everything may happen.
    pub fn new(algorithm: &str, members: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            members,
            clients: members * 2,
            tenants: members.div_ceil(2),
            mutexes: 2,
            faults: Fault::ALL.iter().copied().collect(),
            chaos_ns: 20_000 * MS,
            flaw: None,
            forgets_epochs: false,
        }
    }

    /// How long a run takes in all.
    pub fn end_ns(&self) -> u64 {
        self.chaos_ns + Self::PATIENCE_NS + 3_000 * MS
    }

    /// Whether a survivor's hold must never be lost: where faults come one at a time and touch no link.
    pub fn spares_survivors(&self) -> bool {
        self.faults.iter().all(|fault| fault.spares_survivors())
    }

    /// The members' own settings.
    pub fn config(&self) -> Config {
        let mut config = Config::new((1..=self.members as u32).map(MemberId));
        config.cluster.algorithm = vec![(ALGORITHM.into(), self.algorithm.clone())];
        config.cluster.drift_ppm = Self::DRIFT_PPM;
        config.rounds = 2;
        // Every list has several parts, so that parts are lost and reordered too.
        config.part_bytes = 40;
        config.flaw = self.flaw;
        config
    }
}
