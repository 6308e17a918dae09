//! The clock for the client's leases: it counts during suspend, and is neither set nor slewed.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since an arbitrary point in time.
pub(super) fn now_ns() -> u64 {
    let read = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    };
    // MONOTONIC_RAW is not slewed but stops during suspend. BOOTTIME − MONOTONIC is the time spent in suspend.
    let raw = read(ClockId::MonotonicRaw);
    raw + read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
}
