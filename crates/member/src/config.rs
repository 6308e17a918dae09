//! What a member is told at its start, and the arithmetic of leases.

use crate::settings::outwait;
use crate::{ClusterSettings, Fence, Flaw, MemberId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A member's settings. Times are in nanoseconds of the member's own clock.
#[derive(Clone, Debug)]
pub struct Config {
    /// Everybody who may be a member, until [`Event::Peers`](crate::Event::Peers) says otherwise.
    pub peers: Vec<MemberId>,
    /// The settings that all members share: of the newest view that the member knows; until then, those that it was configured
    /// with.
    pub cluster: ClusterSettings,
    /// The longest time that the voters take to elect a leader once one is gone.
    pub election_ns: u64,
    /// The longest time for a decision of the voters, and for a question and its answer.
    pub round_trip_ns: u64,
    /// After how long an unacknowledged frame is sent again.
    pub resend_ns: u64,
    /// For how long an acknowledgement waits for something else to be said, which carries it: well below `resend_ns`; 0 is not at all.
    pub acknowledge_ns: u64,
    /// Added to every wait for somebody else's clock.
    pub margin_ns: u64,
    /// The longest promise to a client, where it differs from the lease: in the exhaustive search, whose clients never fall
    /// silent.
    pub session_ns: Option<u64>,
    /// How often each client that waits here when a lock comes to this member is let in, about, before it goes on to other members:
    /// the same for each client, at however many members they are.
    pub rounds: u32,
    /// How many more times a client may enter at most before it gives a lock back that nobody else wants.
    pub most_more: u32,
    /// The same while others wait, where the cluster has several members: a client that enters again at once saves them a handoff.
    pub most_brief: u32,
    /// About how many bytes of a report or a start go into one frame.
    pub part_bytes: usize,
    /// How much longer a link may carry nothing after a view has started, for each hold at the start: the other end installs it.
    pub install_ns: u64,
    /// About how many locks, sessions, holds or messages one step touches at most. Longer work goes on in later steps.
    pub slice: usize,
    /// The largest clock of a fence; at this, the lock waits for a new view.
    pub largest_clock: u64,
    /// The most locks that a member knows in one view: a bound on its memory. One half is divided among the members of the view: so
    /// many different locks the clients of each may use at a time ([`most_own_locks`](Self::most_own_locks)). The other half is a
    /// reserve, so that messages about locks of other members' clients always find room.
    pub most_locks: usize,
    /// The Unix time, in nanoseconds, at which the member's clock showed 0: for people, who ask since when.
    pub unix_ns_at_zero: u64,
    /// Wrong on purpose, for the lab's tests.
    pub flaw: Option<Flaw>,
}

impl Config {
    /// Defaults for a local network: a crash of a member costs less than two seconds.
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
            most_more: 1024,
            most_brief: 3,
            part_bytes: 64 * 1024,
            install_ns: 10_000,
            slice: 1024,
            largest_clock: Fence::LARGEST_CLOCK,
            most_locks: 1 << 23,
            unix_ns_at_zero: 0,
            flaw: None,
        }
    }

    /// Refuses settings with which a crash of the leader would cost everybody's locks, or waits would be too short.
    pub fn check(&self) -> Result<(), String> {
        self.check_cluster(&self.cluster)?;
        if self.largest_clock == 0 || self.largest_clock > Fence::LARGEST_CLOCK {
            return Err(format!("the largest clock must be between 1 and {}", Fence::LARGEST_CLOCK));
        }
        Ok(())
    }

    /// Rejects settings of a cluster that are unsafe, or with which a crash of the leader would cost every hold.
    pub fn check_cluster(&self, cluster: &ClusterSettings) -> Result<(), String> {
        cluster.check()?;
        let least = cluster.renewal_ns + 2 * self.election_ns + 2 * self.round_trip_ns;
        if cluster.lease_ns < least {
            return Err(format!(
                "a lease of {} ms is too short: a crash of the leader would cost everybody's locks; with these times \
                 (renewal, two elections, a decision and a round trip) it must be at least {} ms",
                cluster.lease_ns / 1_000_000,
                least / 1_000_000
            ));
        }
        Ok(())
    }

    /// How many different locks the clients of one member may use at a time, in a view of so many members.
    ///
    /// Some algorithms tell every member of every lock. With this share for each, the locks of all members' clients fit
    /// into every member's table.
    pub fn most_own_locks(&self, members: usize) -> usize {
        (self.most_locks / 2 / members.max(1)).max(1)
    }

    /// The longest promise to a client.
    pub fn session_ns(&self) -> u64 {
        self.session_ns.unwrap_or(self.cluster.lease_ns)
    }

    /// How long to wait on this clock until `duration_ns` has certainly passed on any other clock.
    pub fn outwait(&self, duration_ns: u64) -> u64 {
        if self.has(Flaw::NoDrift) {
            return duration_ns;
        }
        outwait(duration_ns, self.cluster.drift_ppm, self.margin_ns)
    }

    /// About how many items one step touches at most.
    pub(crate) fn slice(&self) -> usize {
        if self.has(Flaw::OneBigStep) { usize::MAX } else { self.slice.max(1) }
    }

    /// A moment of the member's clock, as people count.
    pub(crate) fn unix_ms(&self, at_ns: u64) -> u64 {
        self.unix_ns_at_zero.saturating_add(at_ns) / 1_000_000
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_a_leaders_crash_would_cost_is_refused() {
        let mut config = Config::new([MemberId(1)]);
        assert_eq!(config.check(), Ok(()));
        config.cluster.lease_ns /= 2;
        assert!(config.check().unwrap_err().contains("at least 1200 ms"));
    }
}
