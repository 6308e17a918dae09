//! Bounds of the search: which events may happen in a cluster, and how often.

use super::error::ViewsError;
use lockkeeper_member::{BugSwitch, ClusterSettings, Config, MemberId};

/// The largest number of members. With more, even the smallest bounds give too many states.
pub(super) const MOST_MEMBERS: usize = 5;

/// How often each kind of event may happen after all members run in one view. The search leaves out all other
/// events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The number of members.
    pub members: usize,
    /// The number of time units that pass.
    pub units: u64,
    /// The number of crashes.
    pub crashes: u8,
    /// The number of restarts, each with a new incarnation.
    pub restarts: u8,
    /// The number of times that a member pauses.
    pub sleeps: u8,
    /// The number of times that the voters elect another leader.
    pub elections: u8,
    /// The number of lock requests of all clients together.
    pub lock_requests: u8,
    /// The members whose clients request the lock in shared mode, one bit each. The other clients request it
    /// exclusively.
    pub readers: u32,
    /// The number of views decided after the first.
    pub views: u8,
    /// The fence clock at which a lock needs a new view. Default: a very large one.
    pub largest_clock: Option<u64>,
    /// Whether renewals, their replies and the voters' confirmations may be delayed, too.
    pub late_leases: bool,
    /// If set, clocks drift by a quarter: fast for the members in this bit set, slow for all others.
    pub fast: Option<u32>,
    /// Whether it is also checked that every waiter is served once faults have ended.
    pub service: bool,
}

/// Whether the client of this member requests the lock in shared mode.
pub(super) fn is_reader(readers: u32, who: usize) -> bool {
    readers >> who & 1 == 1
}

impl Default for Bounds {
    /// Three members, one crash and one request.
    fn default() -> Self {
        Self {
            members: 3,
            units: 4,
            crashes: 1,
            restarts: 0,
            sleeps: 0,
            elections: 0,
            lock_requests: 1,
            readers: 0,
            views: 1,
            largest_clock: None,
            late_leases: false,
            fast: None,
            service: false,
        }
    }
}

impl Bounds {
    /// Returns an error if the search does not support these bounds.
    pub(super) fn check(&self) -> Result<(), ViewsError> {
        match self.members {
            2..=MOST_MEMBERS => Ok(()),
            members => Err(ViewsError::Members { members }),
        }
    }

    /// The reading of a member's clock at this time.
    pub(super) fn clock(&self, who: usize, now: u64) -> u64 {
        now * match self.fast {
            None => UNIT_NS,
            Some(fast) if fast >> who & 1 == 1 => UNIT_NS + DRIFT_NS,
            Some(_) => UNIT_NS - DRIFT_NS,
        }
    }

    /// The configuration of the members.
    pub(super) fn config(&self, bug: Option<BugSwitch>) -> Config<Option<BugSwitch>> {
        // A slow clock must reach the tick in every unit, too.
        let tick_ns = if self.fast.is_some() { UNIT_NS - DRIFT_NS } else { UNIT_NS };
        let standard = Config::new((1..=self.members as u32).map(MemberId)).with_bugs(bug);
        Config {
            cluster: ClusterSettings {
                lease_ns: 4 * UNIT_NS,
                longest_lease_ns: 4 * UNIT_NS,
                renewal_ns: tick_ns,
                silence_ns: 2 * UNIT_NS,
                settle_ns: UNIT_NS,
                drift_ppm: if self.fast.is_some() { 1_000_000 * DRIFT_NS / UNIT_NS } else { 0 },
                ..ClusterSettings::default()
            },
            election_ns: 0,
            round_trip_ns: 0,
            resend_ns: tick_ns,
            // No delayed acknowledgements: that is one frame less to be delivered late.
            acknowledge_ns: 0,
            margin_ns: 0,
            // Sessions do not expire here.
            session_ns: Some(1 << 20),
            largest_clock: self.largest_clock.unwrap_or(standard.largest_clock),
            // No hold is recorded within the units that pass.
            record_after_ns: u64::MAX,
            is_new: true,
            ..standard
        }
    }

    /// These bounds with every combination of fast and slow clocks, if clocks drift.
    pub(super) fn mixtures(self) -> Vec<Self> {
        match self.fast {
            None => vec![self],
            Some(_) => (0..1 << self.members).map(|fast| Self { fast: Some(fast), ..self }).collect(),
        }
    }
}

/// The length of a time unit on a clock without drift, and the difference of a drifting clock per unit. A fast
/// clock counts 5 ns in a unit, a slow one 3 ns.
const UNIT_NS: u64 = 4;
const DRIFT_NS: u64 = 1;
