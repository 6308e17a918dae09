//! The settings that all members of a cluster share. Consensus decides them: every view carries them.
//!
//! A member never mixes its own configuration with the configuration of others. It takes the algorithm and the times
//! from the newest view that it has learned; its own configuration counts only when it founds a cluster.
//!
//! # When settings change
//! A lease of an earlier view may still run when a view with a shorter lease starts, and its holder still renews at
//! the earlier interval. So a view also carries the values that it [inherits](Inherited): the largest ones of the
//! earlier views that may still be in force. Example: view 7 has a lease of 6 s, view 8 one of 1.2 s. A member that
//! view 8 excludes, or view 9 soon after it, may have a lease of 6 s, so both inherit 6 s. A leader proposes a view
//! that inherits 1.2 s only after it has had view 8 for 6 s on its own clock, with an allowance for drift.

use crate::{BugSwitch, Bugs, Fence};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The settings of a cluster, the same at every member of a view. Times are in nanoseconds of a member's own clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// The algorithm of the mutexes and its options, as `algorithm=raymond`, `tree=line`.
    pub algorithm: Vec<(String, String)>,
    /// The length of a member's lease.
    pub lease_ns: u64,
    /// The longest lease that these members may ever have set. The founder of a cluster waits for it before the first
    /// view starts: the members may have lost all their disks, and with them the knowledge of the lease in force.
    pub longest_lease_ns: u64,
    /// The shortest time to live of a recorded hold: a request for less gets this, or the lease if that is longer.
    pub shortest_ttl_ns: u64,
    /// The longest time to live of a recorded hold: a request for more gets this. A waiter waits for it after a crash of
    /// the holder.
    pub longest_ttl_ns: u64,
    /// The interval at which a member renews its lease.
    pub renewal_ns: u64,
    /// The time without a renewal after which the leader excludes a member.
    pub silence_ns: u64,
    /// The time for which a view runs before another member may join it.
    pub settle_ns: u64,
    /// The largest deviation of any clock from real time, in millionths.
    pub drift_ppm: u64,
}

/// The longest lease that settings may contain: a view change waits for it.
const LONGEST_LEASE_NS: u64 = 3_600_000_000_000;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// The reason why a member cannot run with its settings. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The allowed drift is so large that a clock may stand still.
    Drift {
        /// The drift, in millionths.
        ppm: u64,
    },
    /// The lease is 0 or longer than any lease may be.
    LeaseOutOfRange {
        /// The length of the lease, in nanoseconds.
        lease_ns: u64,
    },
    /// The lease is longer than the longest lease for which a founder waits, or that one is longer than any lease may
    /// be.
    LeaseAboveLongest {
        /// The length of the lease, in nanoseconds.
        lease_ns: u64,
        /// The longest lease that the members may ever have set.
        longest_lease_ns: u64,
    },
    /// The shortest time to live is 0 or above the longest, or that one is longer than any time may be.
    TtlOutOfRange {
        /// The shortest time to live.
        shortest_ns: u64,
        /// The longest time to live.
        longest_ns: u64,
    },
    /// The silence is shorter than two renewals.
    SilenceTooShort {
        /// The interval of renewals.
        renewal_ns: u64,
        /// The time without a renewal after which a member is excluded.
        silence_ns: u64,
    },
    /// The silence or the time for which a view settles is longer than any lease may be.
    TimeTooLong {
        /// The longer of the two.
        time_ns: u64,
    },
    /// The lease ends before the voters have elected a new leader.
    LeaseTooShort {
        /// The length of the lease, in nanoseconds.
        lease_ns: u64,
        /// The shortest lease that outlasts an election.
        least_ns: u64,
    },
    /// The largest fence clock is 0 or does not fit into a fence.
    LargestClock {
        /// The largest clock of the configuration.
        clock: u64,
    },
    /// The algorithm can deadlock.
    CanDeadlock {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// The algorithm is not a mutex.
    NotAMutex {
        /// The algorithm's name.
        algorithm: &'static str,
    },
    /// The algorithm does not exist, or rejects its options or the number of members. The text is the algorithm's.
    Algorithm(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drift { .. } => {
                f.write_str("the drift must be below 1000000 ppm: with more, a clock may stand still")
            }
            Self::LeaseOutOfRange { .. } => {
                write!(f, "a lease lasts between 1 ns and {} s", LONGEST_LEASE_NS / NS_PER_SECOND)
            }
            Self::LeaseAboveLongest { lease_ns, longest_lease_ns } => write!(
                f,
                "a lease of {lease} ms is longer than longest_lease, {} ms: if all members lost their data, a new \
                 cluster would not wait for such a lease. Write longest_lease = \"{lease}ms\" in the configuration of \
                 every member, then set longest_lease={lease}ms together with the lease",
                longest_lease_ns / NS_PER_MS,
                lease = lease_ns / NS_PER_MS,
            ),
            Self::TtlOutOfRange { shortest_ns, longest_ns } => write!(
                f,
                "the times to live from {} to {} ms are not possible: the shortest must be above 0 and at most the \
                 longest, and that at most {} s",
                shortest_ns / NS_PER_MS,
                longest_ns / NS_PER_MS,
                LONGEST_LEASE_NS / NS_PER_SECOND
            ),
            Self::SilenceTooShort { .. } => f.write_str(
                "one lost renewal would exclude a member: the silence must be at least two renewals",
            ),
            Self::TimeTooLong { .. } => {
                write!(f, "no time may be longer than {} s", LONGEST_LEASE_NS / NS_PER_SECOND)
            }
            Self::LeaseTooShort { lease_ns, least_ns } => write!(
                f,
                "a lease of {} ms is too short: if the leader crashed, every member would lose its lease and every \
                 client its locks; with these times (renewal, two elections, a decision and a round trip) it must be \
                 at least {} ms",
                lease_ns / NS_PER_MS,
                least_ns / NS_PER_MS
            ),
            Self::LargestClock { .. } => {
                write!(f, "the largest clock must be between 1 and {}", Fence::LARGEST_CLOCK)
            }
            Self::CanDeadlock { algorithm } => {
                write!(f, "{algorithm} can deadlock: a cluster does not run it")
            }
            Self::NotAMutex { algorithm } => write!(
                f,
                "{algorithm} is not a mutex: choose one for the cluster, which serves shared holders and permits with it"
            ),
            Self::Algorithm(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for SettingsError {}

impl Default for ClusterSettings {
    /// Times for a local network: a crash of a member blocks locks for less than two seconds.
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            algorithm: Vec::new(),
            lease_ns: 1_200 * MS,
            longest_lease_ns: 1_200 * MS,
            shortest_ttl_ns: 1_000 * MS,
            longest_ttl_ns: 60_000 * MS,
            renewal_ns: 200 * MS,
            silence_ns: 700 * MS,
            settle_ns: 500 * MS,
            drift_ppm: 500,
        }
    }
}

impl ClusterSettings {
    /// Rejects settings that are unsafe, or with which the loss of one message would exclude a member. The algorithm
    /// is checked by [`Member::check_settings`](crate::Member::check_settings).
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.drift_ppm >= 1_000_000 {
            return Err(SettingsError::Drift { ppm: self.drift_ppm });
        }
        if self.lease_ns == 0 || self.lease_ns > LONGEST_LEASE_NS {
            return Err(SettingsError::LeaseOutOfRange { lease_ns: self.lease_ns });
        }
        if self.lease_ns > self.longest_lease_ns || self.longest_lease_ns > LONGEST_LEASE_NS {
            let (lease_ns, longest_lease_ns) = (self.lease_ns, self.longest_lease_ns);
            return Err(SettingsError::LeaseAboveLongest { lease_ns, longest_lease_ns });
        }
        if self.shortest_ttl_ns == 0
            || self.shortest_ttl_ns > self.longest_ttl_ns
            || self.longest_ttl_ns > LONGEST_LEASE_NS
        {
            let (shortest_ns, longest_ns) = (self.shortest_ttl_ns, self.longest_ttl_ns);
            return Err(SettingsError::TtlOutOfRange { shortest_ns, longest_ns });
        }
        if self.renewal_ns == 0 || self.silence_ns < self.renewal_ns.saturating_mul(2) {
            let (renewal_ns, silence_ns) = (self.renewal_ns, self.silence_ns);
            return Err(SettingsError::SilenceTooShort { renewal_ns, silence_ns });
        }
        if self.silence_ns > LONGEST_LEASE_NS || self.settle_ns > LONGEST_LEASE_NS {
            return Err(SettingsError::TimeTooLong { time_ns: self.silence_ns.max(self.settle_ns) });
        }
        Ok(())
    }

    /// The least time to live in force: a hold is promised for the lease in any case.
    pub fn least_ttl_ns(&self) -> u64 {
        self.shortest_ttl_ns.max(self.lease_ns)
    }

    /// The time to live in force for a request: within the limits of these settings; 0 for a hold that is never recorded.
    pub fn ttl_in_force_ns(&self, requested_ns: u64) -> u64 {
        let least = self.least_ttl_ns();
        if requested_ns == 0 { 0 } else { requested_ns.clamp(least, self.longest_ttl_ns.max(least)) }
    }

    /// The differences to other settings, for an error message: `algorithm raymond instead of naimi-trehel, lease
    /// 6000 ms …`. Empty if there are none.
    pub fn differences(&self, other: &Self) -> String {
        let mut found = Vec::new();
        let (own, theirs) = (self.algorithm_text(), other.algorithm_text());
        if own != theirs {
            found.push(format!("algorithm {own} instead of {theirs}"));
        }
        let times = [
            ("lease", self.lease_ns, other.lease_ns),
            ("longest_lease", self.longest_lease_ns, other.longest_lease_ns),
            ("shortest_ttl", self.shortest_ttl_ns, other.shortest_ttl_ns),
            ("longest_ttl", self.longest_ttl_ns, other.longest_ttl_ns),
            ("renewal", self.renewal_ns, other.renewal_ns),
            ("silence", self.silence_ns, other.silence_ns),
            ("settle", self.settle_ns, other.settle_ns),
        ];
        for (name, own, theirs) in times.into_iter().filter(|(_, own, theirs)| own != theirs) {
            found.push(format!("{name} {} ms instead of {} ms", own / 1_000_000, theirs / 1_000_000));
        }
        if self.drift_ppm != other.drift_ppm {
            found.push(format!("drift {} ppm instead of {} ppm", self.drift_ppm, other.drift_ppm));
        }
        found.join(", ")
    }

    /// The algorithm's name and its options: `raymond (tree=line)`.
    pub fn algorithm_text(&self) -> String {
        let named = |(name, _): &&(String, String)| name == lockkeeper_core::any::ALGORITHM;
        let name = self.algorithm.iter().rfind(named).map_or(lockkeeper_core::any::DEFAULT, |(_, name)| name);
        let options = self.algorithm.iter().filter(|pair| !named(pair));
        let mut options: Vec<String> = options.map(|(name, value)| format!("{name}={value}")).collect();
        options.sort_unstable();
        if options.is_empty() { name.into() } else { format!("{name} ({})", options.join(", ")) }
    }
}

/// The largest values of earlier views that may still be in force while a view runs, the view's own included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inherited {
    /// The longest lease that a member may have.
    pub lease_ns: u64,
    /// The longest silence that a member may assume to be allowed.
    pub silence_ns: u64,
    /// The largest drift that a lease was granted under.
    pub drift_ppm: u64,
}

impl Inherited {
    /// The values of one view's settings.
    pub fn of(settings: &ClusterSettings) -> Self {
        let ClusterSettings { lease_ns, silence_ns, drift_ppm, .. } = *settings;
        Self { lease_ns, silence_ns, drift_ppm }
    }

    /// The larger value of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            lease_ns: self.lease_ns.max(other.lease_ns),
            silence_ns: self.silence_ns.max(other.silence_ns),
            drift_ppm: self.drift_ppm.max(other.drift_ppm),
        }
    }

    /// How long to wait on this clock until a lease that was granted before has certainly expired on any other clock.
    pub fn lease_wait_ns(&self, margin_ns: u64, bugs: impl Bugs) -> u64 {
        if bugs.has(BugSwitch::NoDrift) {
            self.lease_ns
        } else {
            outwait(self.lease_ns, self.drift_ppm, margin_ns)
        }
    }
}

/// The longest duration that this clock can promise to another one, so that it has expired there before `duration_ns`
/// has passed here: (d − margin)·(1−ρ)/(1+ρ). It is the inverse of waiting for another clock.
pub fn certainly_left(duration_ns: u64, drift_ppm: u64, margin_ns: u64) -> u64 {
    let million = 1_000_000_u128;
    let drift = u128::from(drift_ppm.min(999_999));
    let left = u128::from(duration_ns.saturating_sub(margin_ns)) * (million - drift) / (million + drift);
    u64::try_from(left).unwrap_or(u64::MAX)
}

/// How long to wait on this clock until `duration_ns` has certainly passed on any other: d·(1+ρ)/(1−ρ), plus the
/// margin.
pub(crate) fn outwait(duration_ns: u64, drift_ppm: u64, margin_ns: u64) -> u64 {
    let million = 1_000_000_u128;
    let drift = u128::from(drift_ppm.min(999_999));
    let longest = (u128::from(duration_ns) * (million + drift)).div_ceil(million - drift);
    u64::try_from(longest).unwrap_or(u64::MAX).saturating_add(margin_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn differences_name_both_values() {
        let own = ClusterSettings {
            algorithm: vec![("algorithm".to_string(), "raymond".to_string()), ("tree".into(), "line".into())],
            lease_ns: 6_000_000_000,
            longest_lease_ns: 6_000_000_000,
            ..ClusterSettings::default()
        };
        assert_eq!(
            own.differences(&ClusterSettings::default()),
            "algorithm raymond (tree=line) instead of naimi-trehel, lease 6000 ms instead of 1200 ms, longest_lease \
             6000 ms instead of 1200 ms"
        );
        assert_eq!(own.differences(&own), "");
    }

    #[test]
    fn a_lease_longer_than_longest_lease_is_refused() {
        let settings = ClusterSettings { lease_ns: 2_000_000_000, ..ClusterSettings::default() };
        let refused = settings.check().unwrap_err();
        assert!(matches!(refused, SettingsError::LeaseAboveLongest { lease_ns: 2_000_000_000, .. }));
        assert!(refused.to_string().contains("longest_lease=2000ms"));
        let settings = ClusterSettings { longest_lease_ns: 2_000_000_000, ..settings };
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn a_fast_clock_waits_long_enough_for_a_slow_one() {
        // 900 on a clock that is 10 % slow are 1000 in real time; those are 1100 on a clock that is 10 % fast.
        assert_eq!(outwait(900, 100_000, 0), 1100);
    }

    #[test]
    fn a_duration_promised_to_another_clock_expires_there_first() {
        // 900 on a clock that is 10 % slow are 1000 in real time; those are 1100 on a clock that is 10 % fast.
        assert_eq!(certainly_left(1100, 100_000, 0), 900);
        assert_eq!(certainly_left(5, 100_000, 10), 0);
    }
}
