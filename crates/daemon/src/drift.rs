//! Allowance for the clocks of HTTP and etcd clients, which measure the durations in replies on clocks of their own.
//!
//! The daemon measures on the raw hardware clock, which no time service adjusts. A client measures on the clock that
//! its language offers, which may be slewed: chrony slows it down by up to 83,333 parts per million (its default
//! `maxslewrate`), so that the client measures 1 s while 1.09 s pass. In addition, both hardware clocks drift by some
//! ten parts per million. An allowance of one tenth covers both.
//!
//! Durations in replies are therefore shorter than those that the daemon keeps. [`client_duration`] computes the
//! duration for a reply, and [`daemon_duration`] the duration that the daemon must keep for a given reply. Example: a
//! reply that promises 9 s obliges the daemon to keep the lock for 10 s.

use std::time::Duration;

/// Maximum slowdown of a client's clock relative to the daemon's raw clock, in parts per million.
pub const CLIENT_DRIFT_PPM: u32 = 100_000;

const MILLION: u32 = 1_000_000;

/// The duration that a client may measure on its own clock if the daemon keeps the lock for `kept`.
pub fn client_duration(kept: Duration) -> Duration {
    kept * (MILLION - CLIENT_DRIFT_PPM) / MILLION
}

/// The duration for which the daemon must keep the lock if a client measures `measured` on its own clock.
pub fn daemon_duration(measured: Duration) -> Duration {
    // Rounded up, so that `client_duration(daemon_duration(x)) >= x`.
    measured * MILLION / (MILLION - CLIENT_DRIFT_PPM) + Duration::from_nanos(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real time that passes while a client measures `time` on a clock that chrony slows down at its maximum rate
    /// and that drifts, too.
    fn counts(time: Duration) -> Duration {
        time.div_f64((1.0 - 0.083_333) * (1.0 - 0.000_5))
    }

    #[test]
    fn client_whose_clock_is_slewed_stops_in_time() {
        for ms in [1, 100, 1_200, 30_000, 86_400_000] {
            let promise = Duration::from_millis(ms);
            assert!(counts(client_duration(promise)) <= promise, "{ms} ms");
            assert!(counts(promise) <= daemon_duration(promise), "{ms} ms");
            assert!(client_duration(daemon_duration(promise)) >= promise, "{ms} ms");
        }
    }
}
