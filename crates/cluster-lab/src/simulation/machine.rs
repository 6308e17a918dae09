//! Machines: clocks that drift, and stops.

use lockkeeper_lab::rng::Rng;

/// A machine's clock: it runs fast or slow, and never goes back. It counts sleep.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
    /// Nanoseconds for each true millisecond.
    rate: u64,
}

impl Clock {
    /// A clock that is right.
    pub fn right() -> Self {
        Self { offset_ns: 0, rate: 1_000_000 }
    }

    /// A clock somewhere within the bound; at either end more often than not.
    pub fn draw(drift_ppm: u64, rng: &mut Rng) -> Self {
        let rate = match rng.below(3) {
            0 => 1_000_000 - drift_ppm,
            1 => 1_000_000 + drift_ppm,
            _ => 1_000_000 - drift_ppm + rng.below(2 * drift_ppm as usize + 1) as u64,
        };
        Self { offset_ns: rng.below(1 << 40) as u64, rate }
    }

    /// What it reads.
    pub fn read(self, true_ns: u64) -> u64 {
        self.offset_ns + (u128::from(true_ns) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// The first true time at which it reads at least so much.
    pub fn when(self, reading_ns: u64) -> u64 {
        let since = u128::from(reading_ns.saturating_sub(self.offset_ns)) * 1_000_000;
        u64::try_from(since.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its clock.
    pub clock: Clock,
    /// Whether it runs at all.
    pub up: bool,
    /// Stopped until then: nothing reaches it, and its clock goes on.
    pub paused_until_ns: u64,
    /// The member's step takes until then, and other events wait for it. Consensus has tasks of its own, which go on.
    pub busy_until_ns: u64,
    /// Number of times that it was started again. A connection does not survive a start.
    pub boots: u64,
}

impl Machine {
    /// A machine that runs.
    pub fn new(clock: Clock) -> Self {
        Self { clock, up: true, paused_until_ns: 0, busy_until_ns: 0, boots: 0 }
    }

    /// Whether it does anything at this time.
    pub fn is_awake(&self, now: u64) -> bool {
        self.up && now >= self.paused_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_lab::rng::Purpose;

    #[test]
    fn a_clock_reads_what_was_asked_for_when_it_says_so() {
        let mut rng = Rng::new(1, Purpose::Faults);
        for _ in 0..1000 {
            let clock = Clock::draw(100_000, &mut rng);
            let reading = clock.read(7) + rng.below(1 << 36) as u64;
            let at = clock.when(reading);
            assert!(clock.read(at) >= reading && (at == 0 || clock.read(at - 1) < reading));
        }
    }
}
