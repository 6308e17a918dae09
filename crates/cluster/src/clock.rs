//! The lease clock: never goes back, counts sleep, is not slewed.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the clock that leases are counted on: the raw hardware clock, which no time service speeds up or slows down, and the
/// time that the machine was suspended.
pub fn now_ns() -> u64 {
    let read = |id| {
        let time = clock_gettime(id);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    // A pause between the second and the third reading looks like sleep, by which time it has passed: what is returned lies
    // between the moment of the call and that of the return, so it never goes back.
    let raw = read(ClockId::MonotonicRaw);
    let monotonic = read(ClockId::Monotonic);
    let boot = read(ClockId::Boottime);
    raw + boot.saturating_sub(monotonic)
}

/// The Unix time at which that clock showed 0.
pub(crate) fn unix_ns_at_zero() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now_ns())
}
