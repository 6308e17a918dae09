//! Failure detectors: when a site suspects another.

use crate::simulator::rng::{Purpose, Rng};
use crate::simulator::spec::DetectorSpec;
use crate::simulator::time::Time;
use lockkeeper_core::SiteId;

/// The failure detectors of all sites of one run.
#[derive(Clone, Debug)]
pub struct Detector {
    spec: DetectorSpec,
    processes: usize,
    /// For timeouts: when each site last received a heartbeat from each other, and whether it suspects it.
    last_heartbeats: Vec<(Time, bool)>,
    /// When each site last crashed.
    crashed_at: Vec<Time>,
    rng: Rng,
}

impl Detector {
    /// The detectors of a run with the given seed.
    pub fn new(spec: DetectorSpec, processes: usize, seed: u64) -> Self {
        let pairs = if matches!(spec, DetectorSpec::Timeout(_)) { processes * processes } else { 0 };
        let last_heartbeats = vec![(Time::ZERO, false); pairs];
        let crashed_at = vec![Time::ZERO; processes];
        Self { spec, processes, last_heartbeats, crashed_at, rng: Rng::new(seed, Purpose::Detector) }
    }

    /// A site crashes.
    pub fn crashed(&mut self, site: SiteId, now: Time) {
        self.crashed_at[site.index()] = now;
    }

    /// Whether a site that receives a delayed message from a crashed one must be notified of the crash again.
    pub fn notifies_again(&self, down: SiteId, message_delay: Time, now: Time) -> bool {
        let noticed = self.crash_noticed_after(message_delay);
        noticed.is_some_and(|delay| now > self.crashed_at[down.index()] + delay)
    }

    /// The delay after which an oracle notifies the others of a crash; `None` if there is no oracle.
    pub fn crash_noticed_after(&self, message_delay: Time) -> Option<Time> {
        matches!(self.spec, DetectorSpec::Perfect | DetectorSpec::False(_)).then_some(message_delay)
    }

    /// The time between two heartbeats of a site: half of the timeout.
    pub fn heartbeat_pause(&self) -> Option<Time> {
        match self.spec {
            DetectorSpec::Timeout(timeout) => Some(Time::from_ticks((timeout.ticks() / 2).max(1))),
            _ => None,
        }
    }

    /// The time of the first heartbeats.
    pub fn first_heartbeat(&self) -> Option<Time> {
        self.heartbeat_pause().map(|_| Time::ZERO)
    }

    /// The time for which a suspicion can still arise after all other events.
    pub fn longest_suspicion(&self) -> Time {
        match self.spec {
            DetectorSpec::Timeout(timeout) => Time::from_ticks(timeout.ticks().saturating_mul(4)),
            _ => Time::ZERO,
        }
    }

    /// A heartbeat arrived.
    pub fn heartbeat_arrived(&mut self, site: SiteId, from: SiteId, now: Time) {
        self.last_heartbeats[site.index() * self.processes + from.index()] = (now, false);
    }

    /// The sites that a site starts to suspect, because no heartbeat arrived within the timeout.
    pub fn newly_silent(&mut self, site: SiteId, now: Time) -> Vec<SiteId> {
        let DetectorSpec::Timeout(timeout) = self.spec else { return Vec::new() };
        let mut silent = Vec::new();
        for other in SiteId::all(self.processes).filter(|&other| other != site) {
            let (last, suspected) = &mut self.last_heartbeats[site.index() * self.processes + other.index()];
            if !*suspected && now - *last > timeout {
                *suspected = true;
                silent.push(other);
            }
        }
        silent
    }

    /// The time until the next false suspicion.
    pub fn until_wrong_suspicion(&mut self) -> Option<Time> {
        match self.spec {
            DetectorSpec::False(rate) if self.processes > 1 => {
                let mean = 1.0 / (rate * self.processes as f64);
                Some(Time::clamped(self.rng.exponential(mean)) + Time::from_ticks(1))
            }
            _ => None,
        }
    }

    /// The two sites of a false suspicion, chosen at random: the one that suspects and the suspected one. It
    /// is true by chance if the latter has crashed.
    pub fn wrong_suspicion(&mut self) -> (SiteId, SiteId) {
        let site = self.rng.below(self.processes);
        let other = (site + 1 + self.rng.below(self.processes - 1)) % self.processes;
        (SiteId::new(site), SiteId::new(other))
    }
}
