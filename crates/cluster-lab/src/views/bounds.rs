//! How much may happen in a cluster that is searched.

use lockkeeper_member::{ClusterSettings, Config, Flaw, MemberId};

/// The most members: with more, even the smallest bounds leave too much to search.
const MOST_MEMBERS: usize = 5;

/// How much may happen after a cluster has come together. Everything beyond is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// How many members there are.
    pub members: usize,
    /// How many units of time pass.
    pub units: u64,
    /// How often a member crashes.
    pub crashes: u8,
    /// How often one begins another life.
    pub restarts: u8,
    /// How often one stops for a while.
    pub sleeps: u8,
    /// How often the voters choose another leader.
    pub elections: u8,
    /// How often a client asks for the lock.
    pub wishes: u8,
    /// Whose clients want to share the lock rather than to have it alone: one bit each.
    pub readers: u32,
    /// How many views are decided, after the first.
    pub views: u8,
    /// At which clock of a fence a lock needs a new view, if not at a very large one.
    pub largest_clock: Option<u64>,
    /// Whether renewals, their answers and the voters' confirmations take time, too.
    pub late_leases: bool,
    /// Whether clocks drift by a quarter: who has a fast one, one bit each; all others have slow ones.
    pub fast: Option<u32>,
    /// Whether it is also checked that whoever waits at the end is served, once nothing goes wrong any more.
    pub service: bool,
}

/// Whether the client of a member wants to share.
pub(super) fn is_reader(readers: u32, who: usize) -> bool {
    readers >> who & 1 == 1
}

impl Default for Bounds {
    /// Three members of which one crashes.
    fn default() -> Self {
        Self {
            members: 3,
            units: 4,
            crashes: 1,
            restarts: 0,
            sleeps: 0,
            elections: 0,
            wishes: 1,
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
    /// Refuses what cannot be searched, in a sentence for a person.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.members {
            2..=MOST_MEMBERS => Ok(()),
            members => Err(format!("a cluster of 2 to {MOST_MEMBERS} members is checked, not of {members}")),
        }
    }

    /// What a member's clock reads at a time.
    pub(super) fn clock(&self, who: usize, now: u64) -> u64 {
        now * match self.fast {
            None => UNIT_NS,
            Some(fast) if fast >> who & 1 == 1 => UNIT_NS + DRIFT_NS,
            Some(_) => UNIT_NS - DRIFT_NS,
        }
    }

    /// The members' settings.
    pub(super) fn config(&self, flaw: Option<Flaw>) -> Config {
        // Even a slow clock ticks in every unit.
        let tick_ns = if self.fast.is_some() { UNIT_NS - DRIFT_NS } else { UNIT_NS };
        let standard = Config::new((1..=self.members as u32).map(MemberId));
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
            // One frame less to be late.
            acknowledge_ns: 0,
            margin_ns: 0,
            // Clients do not fall silent here.
            session_ns: Some(1 << 20),
            largest_clock: self.largest_clock.unwrap_or(standard.largest_clock),
            flaw,
            ..standard
        }
    }

    /// The same with every mixture of fast and slow clocks, if clocks drift.
    pub(super) fn mixtures(self) -> Vec<Self> {
        match self.fast {
            None => vec![self],
            Some(_) => (0..1 << self.members).map(|fast| Self { fast: Some(fast), ..self }).collect(),
        }
    }
}

/// A unit of time on a clock that does not drift, and by how much others differ from it.
const UNIT_NS: u64 = 4;
const DRIFT_NS: u64 = 1;
