//! The configuration of a member, and the arithmetic of leases.

use crate::settings::{SettingsError, outwait};
use crate::{BugSwitch, Bugs, ClusterSettings, Fence, MemberId, NoBugs};
use alloc::vec::Vec;

/// A member's settings. Times are in nanoseconds of the member's own clock.
#[derive(Clone, Debug)]
pub struct Config<B: Bugs = NoBugs> {
    /// All possible members, until [`Event::Peers`](crate::Event::Peers) replaces the list.
    pub peers: Vec<MemberId>,
    /// The settings that all members share: those of the newest view that the member knows; before the first one,
    /// those of its configuration file.
    pub cluster: ClusterSettings,
    /// The longest time that the voters take to elect a new leader.
    pub election_ns: u64,
    /// The longest time for a decision of the voters, and for a request and its reply.
    pub round_trip_ns: u64,
    /// The time after which an unacknowledged payload is sent again.
    pub resend_ns: u64,
    /// How long an acknowledgement waits for a payload that can carry it: well below `resend_ns`; 0 sends it at once.
    pub acknowledge_ns: u64,
    /// Margin that is added to every wait for another clock.
    pub margin_ns: u64,
    /// The longest lease of a session, where it differs from the member's lease: in the exhaustive search, whose
    /// clients never fall silent.
    pub session_ns: Option<u64>,
    /// Number of grants, per client that waits here when the lock comes to this member, before the lock goes on to
    /// other members. Each client gets about the same share, independent of the number of members.
    pub rounds: u32,
    /// The most further entries of a delegation while no other client waits.
    pub max_delegated_entries: u32,
    /// The same while other clients wait, if the cluster has several members: a client that enters again at once
    /// saves a handoff.
    pub max_contended_entries: u32,
    /// Approximate size of a chunk of a report or a start, in bytes.
    pub chunk_bytes: usize,
    /// Additional time that a link may be silent after a view has started, for each hold at the start: the other end
    /// is installing the view.
    pub install_ns: u64,
    /// Approximate limit of the locks, sessions, holds or messages that one step touches. Longer work continues in
    /// later steps.
    pub slice: usize,
    /// The largest clock of a fence. A lock that reaches it waits for a new view.
    pub largest_clock: u64,
    /// The most locks that a member knows in one view: bounds its memory. One half is divided among the members of
    /// the view, as the number of different locks that the clients of each may use at a time
    /// ([`most_own_locks`](Self::most_own_locks)). The other half is a reserve, so that messages about locks of other
    /// members' clients always find room.
    pub most_locks: usize,
    /// The time after which a hold that is in use is recorded, so that it survives this member: see
    /// [`records`](crate::records). Rounded up to the next beat ([`resend_ns`](Self::resend_ns)).
    pub record_after_ns: u64,
    /// Whether these members have never been a cluster before. Otherwise the founder of a cluster waits for the longest
    /// time to live: the members may have lost all their disks, and with them the records of holds.
    pub is_new: bool,
    /// The Unix time, in nanoseconds, at which the member's clock showed 0: for times that operators read.
    pub unix_ns_at_zero: u64,
    /// Bug switches, for simulations.
    pub bugs: B,
}

impl Config {
    /// Defaults for a local network: a crash of a member blocks locks for less than two seconds.
    pub fn new(peers: impl IntoIterator<Item = MemberId>) -> Self {
        const MS: u64 = 1_000_000;
        Self {
            peers: peers.into_iter().collect(),
            cluster: ClusterSettings::default(),
            election_ns: 400 * MS,
            round_trip_ns: 100 * MS,
            resend_ns: 50 * MS,
            acknowledge_ns: 12 * MS,
            margin_ns: 10 * MS,
            session_ns: None,
            rounds: 1,
            max_delegated_entries: 1024,
            max_contended_entries: 3,
            chunk_bytes: 64 * 1024,
            install_ns: 10_000,
            slice: 1024,
            largest_clock: Fence::LARGEST_CLOCK,
            most_locks: 1 << 23,
            record_after_ns: 50 * MS,
            is_new: false,
            unix_ns_at_zero: 0,
            bugs: NoBugs,
        }
    }

    /// The same settings with bug switches, for simulations.
    pub fn with_bugs<B: Bugs>(self, bugs: B) -> Config<B> {
        Config {
            peers: self.peers,
            cluster: self.cluster,
            election_ns: self.election_ns,
            round_trip_ns: self.round_trip_ns,
            resend_ns: self.resend_ns,
            acknowledge_ns: self.acknowledge_ns,
            margin_ns: self.margin_ns,
            session_ns: self.session_ns,
            rounds: self.rounds,
            max_delegated_entries: self.max_delegated_entries,
            max_contended_entries: self.max_contended_entries,
            chunk_bytes: self.chunk_bytes,
            install_ns: self.install_ns,
            slice: self.slice,
            largest_clock: self.largest_clock,
            most_locks: self.most_locks,
            record_after_ns: self.record_after_ns,
            is_new: self.is_new,
            unix_ns_at_zero: self.unix_ns_at_zero,
            bugs,
        }
    }
}

impl<B: Bugs> Config<B> {
    /// Rejects a configuration with which a crash of the leader would cost every hold, or waits would be too short.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_cluster(&self.cluster)?;
        if self.largest_clock == 0 || self.largest_clock > Fence::LARGEST_CLOCK {
            return Err(SettingsError::LargestClock { clock: self.largest_clock });
        }
        Ok(())
    }

    /// Rejects settings of a cluster that are unsafe, or with which a crash of the leader would cost every hold.
    pub fn check_cluster(&self, cluster: &ClusterSettings) -> Result<(), SettingsError> {
        cluster.check()?;
        let least = cluster.renewal_ns + 2 * self.election_ns + 2 * self.round_trip_ns;
        if cluster.lease_ns < least {
            return Err(SettingsError::LeaseTooShort { lease_ns: cluster.lease_ns, least_ns: least });
        }
        Ok(())
    }

    /// Number of different locks that the clients of one member may use at a time, in a view of this many members.
    ///
    /// Some algorithms send messages about every lock to every member. With this share for each, the locks of all
    /// members' clients fit into every member's table.
    pub fn most_own_locks(&self, members: usize) -> usize {
        (self.most_locks / 2 / members.max(1)).max(1)
    }

    /// The longest lease of a session.
    pub fn session_ns(&self) -> u64 {
        self.session_ns.unwrap_or(self.cluster.lease_ns)
    }

    /// How long to wait on this clock until `duration_ns` has certainly passed on any other clock.
    pub fn outwait(&self, duration_ns: u64) -> u64 {
        if self.has(BugSwitch::NoDrift) {
            return duration_ns;
        }
        outwait(duration_ns, self.cluster.drift_ppm, self.margin_ns)
    }

    /// Approximate limit of the items that one step touches.
    pub(crate) fn slice(&self) -> usize {
        if self.has(BugSwitch::OneBigStep) { usize::MAX } else { self.slice.max(1) }
    }

    /// A time of the member's clock as Unix time, in milliseconds.
    pub(crate) fn unix_ms(&self, at_ns: u64) -> u64 {
        self.unix_ns_at_zero.saturating_add(at_ns) / 1_000_000
    }

    /// The reading of the member's clock at a Unix time, in milliseconds.
    pub(crate) fn clock_ns(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_mul(1_000_000).saturating_sub(self.unix_ns_at_zero)
    }

    /// Whether a safeguard is left out; the constant `false` outside of simulations.
    #[inline]
    pub(crate) fn has(&self, bug: BugSwitch) -> bool {
        self.bugs.has(bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_shorter_than_a_leader_change_is_refused() {
        let mut config = Config::new([MemberId(1)]);
        assert_eq!(config.check(), Ok(()));
        config.cluster.lease_ns /= 2;
        let refused = config.check().unwrap_err();
        assert!(matches!(refused, SettingsError::LeaseTooShort { least_ns: 1_200_000_000, .. }), "{refused}");
        config.cluster.lease_ns *= 2;
        config.largest_clock = 0;
        assert_eq!(config.check(), Err(SettingsError::LargestClock { clock: 0 }));
    }

    #[test]
    fn a_member_without_bug_switches_stores_nothing_for_them() {
        assert_eq!(size_of::<NoBugs>(), 0);
        // The configuration that names no bug switches is the one that cannot have any.
        let _: Config<NoBugs> = Config::new([]);
    }
}
