//! The specification of a run. Together with the seed it determines everything that happens.

use super::faults::Fault;
use lockkeeper_core::any::{self, ALGORITHM};
use lockkeeper_lab::simulator::rng::{Purpose, Rng};
use lockkeeper_member::{BugSwitch, ClusterSettings, Config, MemberId};
use std::collections::BTreeSet;

/// A millisecond, in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// The input of a run, except for the seed.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The algorithm of the locks.
    pub algorithm: String,
    /// The number of machines that may be members.
    pub members: usize,
    /// The number of clients.
    pub clients: usize,
    /// The number of clients without a session of their own, such as those of HTTP and of etcd's API.
    pub tenants: usize,
    /// The number of locks that are mostly requested in exclusive mode. In addition, there is one that is mostly
    /// shared and one that is mostly used as a semaphore.
    pub mutexes: usize,
    /// The number of further lock names that clients use now and then, like names of jobs; 0 for none.
    pub jobs: usize,
    /// The number of different locks that the clients of one member may use at a time. Default: the limit of a real
    /// member.
    pub most_own_locks: Option<usize>,
    /// The number of further clients that hold many locks for as long as they can.
    pub long_holders: usize,
    /// The number of locks that each client of `long_holders` requests.
    pub locks_per_long_holder: usize,
    /// The duration of a member's step per lock, hold, session or message that the step touches. If it is not 0,
    /// members work in slices of [`Self::SLICE`].
    pub item_ns: u64,
    /// The kinds of faults that may happen.
    pub faults: BTreeSet<Fault>,
    /// The duration of the phase with faults.
    pub chaos_ns: u64,
    /// The longest time to live of a recorded hold.
    pub longest_ttl_ns: u64,
    /// A bug switch of the members.
    pub bug: Option<BugSwitch>,
    /// Bug switch: consensus forgets its last decision when a machine restarts.
    pub forgets_epochs: bool,
    /// Bug switch: the epochs of a cluster that is founded again begin at 1.
    pub epochs_begin_at_one: bool,
}

impl ClusterSpec {
    /// The bound of the clock drift: far larger than that of real clocks, so that errors show.
    pub const DRIFT_PPM: u64 = 100_000;
    /// The factor by which a change of the settings may lengthen a lease.
    pub const LONGEST: u64 = 3;
    /// The largest number of members in a simulation.
    pub const MOST_MEMBERS: usize = 9;

    /// The number of items that a step touches if steps take time.
    pub const SLICE: usize = 16;
    /// The longest permitted step of a member.
    pub const LONGEST_STEP_NS: u64 = 200 * MS;

    /// A cluster with all faults enabled.
    pub fn new(algorithm: &str, members: usize) -> Self {
        Self {
            algorithm: algorithm.into(),
            members,
            clients: members * 2,
            tenants: members.div_ceil(2),
            mutexes: 2,
            jobs: 0,
            long_holders: 0,
            locks_per_long_holder: 0,
            item_ns: 0,
            most_own_locks: None,
            faults: Fault::ALL.iter().copied().collect(),
            chaos_ns: 20_000 * MS,
            longest_ttl_ns: 3_000 * MS,
            bug: None,
            forgets_epochs: false,
            epochs_begin_at_one: false,
        }
    }

    /// The specification after the random choices of this seed, which are made only if faults are enabled. Every
    /// fourth run has hundreds of lock names and small tables, which members must empty repeatedly. Every tenth of
    /// the other runs has hundreds of holds and steps that take time.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut spec = self.clone();
        let mut rng = Rng::new(seed, Purpose::Modes);
        if !spec.faults.is_empty() && spec.jobs == 0 && spec.long_holders == 0 && rng.chance(0.25) {
            spec.jobs = 300 + rng.below(700);
            spec.most_own_locks = Some(spec.clients + 4 + rng.below(8));
        }
        // With more members, algorithms that broadcast would be too slow at this cost.
        let few = (1..=5).contains(&spec.members);
        if !spec.faults.is_empty() && spec.jobs == 0 && spec.long_holders == 0 && few && rng.chance(0.1) {
            spec.long_holders = spec.members.min(3);
            spec.locks_per_long_holder = 100 + rng.below(80);
            spec.item_ns = MS;
        }
        spec
    }

    /// The time within which every waiter must be served after the faults have ended: a recorded hold of a client that
    /// does not know of the record ends with its time to live. An operator may have made the leases longer, and a view that
    /// is never started is followed by another one that waits for them again.
    pub fn longest_wait_ns(&self) -> u64 {
        let ttl_ns = if self.longest_ttl_ns > self.chaos_ns { 2 * self.longest_ttl_ns } else { 0 };
        let settings_ns = if self.faults.contains(&Fault::Settings) { 10_000 * MS } else { 0 };
        15_000 * MS + ttl_ns + settings_ns
    }

    /// The duration of a run.
    pub fn end_ns(&self) -> u64 {
        self.chaos_ns + self.longest_wait_ns() + 3_000 * MS
    }

    /// Draws how long a long hold lasts: in one of eight cases anything between 1 ms and 60 s, each order of magnitude
    /// alike; otherwise as usual. The hold ends with the faults, so that waiters can be served in time, unless holds are to
    /// outlive all faults.
    pub(super) fn long_stay_ns(&self, now: u64, usual_ns: u64, rng: &mut Rng) -> u64 {
        if !rng.chance(0.125) {
            return usual_ns;
        }
        let exponent = rng.below(1_000) as f64 / 1_000.0;
        let stay_ns = (MS as f64 * 60_000_f64.powf(exponent)) as u64;
        let outlives_ns = if self.longest_ttl_ns > self.chaos_ns { self.longest_ttl_ns } else { 0 };
        let latest_ns = self.chaos_ns + outlives_ns;
        stay_ns.min(latest_ns.saturating_sub(now))
    }

    /// Whether clients of unaffected members must never lose a hold: true if faults come one at a time and affect
    /// no link.
    pub fn spares_survivors(&self) -> bool {
        self.faults.iter().all(|fault| fault.spares_survivors())
    }

    /// Whether no recorded hold may be lost: true if no fault affects clients or loses the log, and holds live longer than
    /// all faults together.
    pub fn spares_recorded_holds(&self) -> bool {
        self.longest_ttl_ns > self.chaos_ns && self.faults.iter().all(|fault| fault.spares_recorded_holds())
    }

    /// Draws settings of a cluster: times up to [`Self::LONGEST`] times as long, and perhaps another algorithm.
    pub(super) fn settings(&self, rng: &mut Rng) -> ClusterSettings {
        let usual = self.config().cluster;
        let factor = 1 + rng.below(Self::LONGEST as usize) as u64;
        let other = rng.chance(0.5).then(|| rng.pick(any::ALL).slug);
        ClusterSettings {
            algorithm: vec![(ALGORITHM.into(), other.unwrap_or(&self.algorithm).into())],
            lease_ns: factor * usual.lease_ns,
            longest_lease_ns: usual.longest_lease_ns,
            shortest_ttl_ns: usual.shortest_ttl_ns,
            longest_ttl_ns: usual.longest_ttl_ns,
            renewal_ns: factor * usual.renewal_ns,
            silence_ns: factor * usual.silence_ns,
            settle_ns: factor * usual.settle_ns,
            drift_ppm: usual.drift_ppm,
        }
    }

    /// The configuration that all members share.
    pub fn config(&self) -> Config<Option<BugSwitch>> {
        let mut config = Config::new((1..=self.members as u32).map(MemberId)).with_bugs(self.bug);
        config.cluster.algorithm = vec![(ALGORITHM.into(), self.algorithm.clone())];
        config.cluster.drift_ppm = Self::DRIFT_PPM;
        config.cluster.longest_ttl_ns = self.longest_ttl_ns;
        if self.faults.contains(&Fault::Settings) {
            config.cluster.longest_lease_ns = Self::LONGEST * config.cluster.lease_ns;
        }
        config.rounds = 2;
        // Small chunks: every list has several, so that chunks are lost and reordered too.
        config.chunk_bytes = 40;
        if let Some(own) = self.most_own_locks {
            config.most_locks = 2 * self.members * own;
        }
        if self.item_ns > 0 {
            config.slice = Self::SLICE;
            config.chunk_bytes = 600;
            config.install_ns = 10 * self.item_ns;
        }
        config
    }
}
