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
    /// The number of planned leaves.
    pub leaves: u8,
    /// The client with a session of its own at the last member, which holds the lock when the search starts.
    pub holder: Option<Holder>,
}

/// A client that holds the lock through a session of its own. It runs the state machine of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Whether its hold is recorded and promised when the search starts. Otherwise it has just been granted.
    pub recorded: bool,
    /// The number of times that the client sends everything it has to send, each time to any one member.
    pub contacts: u8,
    /// Whether the client may release its hold.
    pub releases: bool,
    /// Whether the client still reaches the cluster once the faults have ended. Otherwise its hold must end by itself.
    pub returns: bool,
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
            leaves: 0,
            holder: None,
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

    /// The reading of a clock without drift at this time.
    pub(super) fn clock_without_drift(&self, now: u64) -> u64 {
        now * UNIT_NS
    }

    /// The configuration of the members.
    pub(super) fn config(&self, bug: Option<BugSwitch>) -> Config<Option<BugSwitch>> {
        // A slow clock must reach the tick in every unit, too.
        let tick_ns = if self.fast.is_some() { UNIT_NS - DRIFT_NS } else { UNIT_NS };
        let standard = Config::new((1..=self.members as u32).map(MemberId)).with_bugs(bug);
        // With a recorded hold, a lease and a time to live pass one after the other. A shorter lease keeps that small.
        let lease_ns = if self.holder.is_some() { LEASE_OF_HOLDER } else { 4 } * UNIT_NS;
        let standard_settings = ClusterSettings::default();
        let (shortest_ttl_ns, longest_ttl_ns) = match self.holder {
            Some(_) => (UNIT_NS, TTL_NS),
            None => (standard_settings.shortest_ttl_ns, standard_settings.longest_ttl_ns),
        };
        Config {
            cluster: ClusterSettings {
                lease_ns,
                longest_lease_ns: lease_ns,
                shortest_ttl_ns,
                longest_ttl_ns,
                renewal_ns: tick_ns,
                silence_ns: 2 * UNIT_NS,
                settle_ns: UNIT_NS,
                drift_ppm: if self.fast.is_some() { 1_000_000 * DRIFT_NS / UNIT_NS } else { 0 },
                ..standard_settings
            },
            election_ns: 0,
            round_trip_ns: 0,
            resend_ns: tick_ns,
            // No delayed acknowledgements: that is one frame less to be delivered late.
            acknowledge_ns: 0,
            margin_ns: 0,
            // Without a holder, every client always reaches its member, so no session may expire.
            session_ns: Some(if self.holder.is_some() { lease_ns } else { 1 << 20 }),
            largest_clock: self.largest_clock.unwrap_or(standard.largest_clock),
            // A hold is recorded at the next tick, or not at all.
            record_after_ns: if self.holder.is_some() { 0 } else { u64::MAX },
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
/// With a [`Holder`], the length of a lease in units, and the time to live of its hold.
const LEASE_OF_HOLDER: u64 = 2;
pub(super) const TTL_NS: u64 = 6 * UNIT_NS;
const DRIFT_NS: u64 = 1;
