//! What a run of a cluster is a function of, beside its seed.

use super::faults::Fault;
use lockkeeper_core::any::{self, ALGORITHM};
use lockkeeper_lab::rng::{Purpose, Rng};
use lockkeeper_member::{ClusterSettings, Config, Flaw, MemberId};
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
    /// How many further names there are that clients use once in a while, as names of jobs: 0 for none.
    pub jobs: usize,
    /// How many different locks the clients of one member may use at a time, if not as many as a real member serves.
    pub most_own_locks: Option<usize>,
    /// How many further clients hold many locks each for as long as they can, and how many locks.
    pub hoards: usize,
    /// See `hoards`.
    pub hoard: usize,
    /// How long a member's step takes for each lock, hold, session or message that it touches. Members with such costs do their work
    /// in slices of [`Self::SLICE`].
    pub item_ns: u64,
    /// What may go wrong.
    pub faults: BTreeSet<Fault>,
    /// How long it may go wrong.
    pub chaos_ns: u64,
    /// Wrong on purpose.
    pub flaw: Option<Flaw>,
    /// Wrong on purpose: consensus forgets its last decisions when everybody restarts.
    pub forgets_epochs: bool,
    /// Wrong on purpose: a cluster that is founded again counts its epochs from one.
    pub epochs_begin_at_one: bool,
}

impl ClusterSpec {
    /// After the faults have stopped, whoever waits is served within this time.
    pub const PATIENCE_NS: u64 = 15_000 * MS;
    /// By how much clocks drift: far more than real ones, so that it shows.
    pub const DRIFT_PPM: u64 = 100_000;
    /// How many times as long as configured a lease may become by a change of the settings.
    pub const LONGEST: u64 = 3;
    /// More members than this are not simulated.
    pub const MOST_MEMBERS: usize = 9;

    /// How many items a step touches, where steps take time.
    pub const SLICE: usize = 16;
    /// No step of a member takes longer.
    pub const LONGEST_STEP_NS: u64 = 200 * MS;

    /// A cluster to which everything may happen.
    pub fn new(algorithm: &str, members: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            members,
            clients: members * 2,
            tenants: members.div_ceil(2),
            mutexes: 2,
            jobs: 0,
            hoards: 0,
            hoard: 0,
            item_ns: 0,
            most_own_locks: None,
            faults: Fault::ALL.iter().copied().collect(),
            chaos_ns: 20_000 * MS,
            flaw: None,
            forgets_epochs: false,
            epochs_begin_at_one: false,
        }
    }

    /// What the run with this seed draws in addition, where anything can go wrong at all. Every fourth run has hundreds of names and
    /// small tables, which members must empty again and again. In every tenth of the others there are hundreds of holds,
    /// and steps take time.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut spec = self.clone();
        let mut rng = Rng::new(seed, Purpose::Modes);
        if !spec.faults.is_empty() && spec.jobs == 0 && spec.hoards == 0 && rng.chance(0.25) {
            spec.jobs = 300 + rng.below(700);
            spec.most_own_locks = Some(spec.clients + 4 + rng.below(8));
        }
        // With more members, algorithms that send to everybody would be too slow at this cost.
        let few = (1..=5).contains(&spec.members);
        if !spec.faults.is_empty() && spec.jobs == 0 && spec.hoards == 0 && few && rng.chance(0.1) {
            spec.hoards = spec.members.min(3);
            spec.hoard = 100 + rng.below(80);
            spec.item_ns = MS;
        }
        spec
    }

    /// How long a run takes in all.
    pub fn end_ns(&self) -> u64 {
        self.chaos_ns + Self::PATIENCE_NS + 3_000 * MS
    }

    /// Whether a survivor's hold must never be lost: where faults come one at a time and touch no link.
    pub fn spares_survivors(&self) -> bool {
        self.faults.iter().all(|fault| fault.spares_survivors())
    }

    /// Settings of a cluster, as the rng wants them: up to three times as long, and perhaps with another algorithm.
    pub(super) fn settings(&self, rng: &mut Rng) -> ClusterSettings {
        let usual = self.config().cluster;
        let factor = 1 + rng.below(Self::LONGEST as usize) as u64;
        let other = rng.chance(0.5).then(|| rng.pick(any::ALL).slug);
        ClusterSettings {
            algorithm: vec![(ALGORITHM.into(), other.unwrap_or(&self.algorithm).into())],
            lease_ns: factor * usual.lease_ns,
            longest_lease_ns: usual.longest_lease_ns,
            renewal_ns: factor * usual.renewal_ns,
            silence_ns: factor * usual.silence_ns,
            settle_ns: factor * usual.settle_ns,
            drift_ppm: usual.drift_ppm,
        }
    }

    /// The settings of a member that is configured as all others.
    pub fn config(&self) -> Config {
        let mut config = Config::new((1..=self.members as u32).map(MemberId));
        config.cluster.algorithm = vec![(ALGORITHM.into(), self.algorithm.clone())];
        config.cluster.drift_ppm = Self::DRIFT_PPM;
        if self.faults.contains(&Fault::Settings) {
            config.cluster.longest_lease_ns = Self::LONGEST * config.cluster.lease_ns;
        }
        config.rounds = 2;
        // Every list has several parts, so that parts are lost and reordered too.
        config.part_bytes = 40;
        if let Some(own) = self.most_own_locks {
            config.most_locks = 2 * self.members * own;
        }
        if self.item_ns > 0 {
            config.slice = Self::SLICE;
            config.part_bytes = 600;
            config.install_ns = 10 * self.item_ns;
        }
        config.flaw = self.flaw;
        config
    }
}
