//! Machines: drifting clocks, crashes and pauses.

use lockkeeper_lab::simulator::rng::Rng;

/// A machine's clock. It runs fast or slow, never goes back, and continues while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
    /// Nanoseconds that it counts in a true millisecond.
    rate: u64,
}

impl Clock {
    /// A clock without drift.
    pub fn right() -> Self {
        Self { offset_ns: 0, rate: 1_000_000 }
    }

    /// Draws a clock within the bound. Two of three clocks are at one of its ends, where errors are most likely.
    pub fn draw(drift_ppm: u64, rng: &mut Rng) -> Self {
        let rate = match rng.below(3) {
            0 => 1_000_000 - drift_ppm,
            1 => 1_000_000 + drift_ppm,
            _ => 1_000_000 - drift_ppm + rng.below(2 * drift_ppm as usize + 1) as u64,
        };
        Self { offset_ns: rng.below(1 << 40) as u64, rate }
    }

    /// The reading of the clock at this true time.
    pub fn read(self, true_ns: u64) -> u64 {
        // Example: at 100,000 ppm fast, the rate is 1,100,000: the clock counts 1.1 ms in a true millisecond.
        self.offset_ns + (u128::from(true_ns) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// The first true time at which the clock reads at least `reading_ns`.
    pub fn when(self, reading_ns: u64) -> u64 {
        let since = u128::from(reading_ns.saturating_sub(self.offset_ns)) * 1_000_000;
        u64::try_from(since.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

/// The state of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The clock of the machine.
    pub clock: Clock,
    /// Whether it runs, perhaps paused.
    pub up: bool,
    /// Paused until this time: no event reaches it, and its clock continues.
    pub paused_until_ns: u64,
    /// The end of the member's current step, for which other events wait. Consensus runs in tasks of its own and
    /// does not wait.
    pub busy_until_ns: u64,
    /// The number of restarts. A connection does not survive a restart.
    pub boots: u64,
}

impl Machine {
    /// Creates a machine that runs.
    pub fn new(clock: Clock) -> Self {
        Self { clock, up: true, paused_until_ns: 0, busy_until_ns: 0, boots: 0 }
    }

    /// Whether it handles events at this time.
    pub fn is_awake(&self, now: u64) -> bool {
        self.up && now >= self.paused_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_lab::simulator::rng::Purpose;

    #[test]
    fn when_is_the_first_time_at_which_a_drifting_clock_shows_a_reading() {
        let mut rng = Rng::new(1, Purpose::Faults);
        for _ in 0..1000 {
            let clock = Clock::draw(100_000, &mut rng);
            let reading = clock.read(7) + rng.below(1 << 36) as u64;
            let at = clock.when(reading);
            assert!(clock.read(at) >= reading && (at == 0 || clock.read(at - 1) < reading));
        }
    }
}
