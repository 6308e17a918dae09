//! Clients of HTTP and of etcd's API count a time that an answer names on a clock of their own. This is the allowance for that clock.
//!
//! The daemon counts on the raw hardware clock, which no time service changes. A client counts on the clock that its language offers, and that
//! one is slewed: chrony slows it down by up to 83,333 parts per million (its default `maxslewrate`), so that the client counts 1 s while
//! 1.09 s pass. Beside that, both hardware clocks drift by some ten millionths. A tenth covers all of it.
//!
//! So what a client is told is shorter than what the daemon keeps: [`told`] for a time that is named in an answer, [`kept`] for how long the
//! daemon must keep its part if a client was told so much.

use std::time::Duration;

/// By how much a client's clock may run slower than the daemon's raw clock, in millionths.
pub const CLIENT_DRIFT_PPM: u32 = 100_000;

const MILLION: u32 = 1_000_000;

/// What a client may count on its own clock, if the daemon keeps its part for so long.
pub fn told(kept: Duration) -> Duration {
    kept * (MILLION - CLIENT_DRIFT_PPM) / MILLION
}

/// For how long the daemon keeps its part, if a client counts so much on its own clock.
pub fn kept(told: Duration) -> Duration {
    // Rounded up: `told` of it is at least as much again.
    told * MILLION / (MILLION - CLIENT_DRIFT_PPM) + Duration::from_nanos(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a client takes that counts so much on a clock which is slewed backwards as fast as chrony does, and drifts besides.
    fn counts(time: Duration) -> Duration {
        time.div_f64((1.0 - 0.083_333) * (1.0 - 0.000_5))
    }

    #[test]
    fn client_whose_clock_is_slewed_stops_in_time() {
        for ms in [1, 100, 1_200, 30_000, 86_400_000] {
            let promise = Duration::from_millis(ms);
            assert!(counts(told(promise)) <= promise, "{ms} ms");
            assert!(counts(promise) <= kept(promise), "{ms} ms");
            assert!(told(kept(promise)) >= promise, "{ms} ms");
        }
    }
}
