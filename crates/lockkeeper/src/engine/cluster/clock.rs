//! The clock by which the client counts its leases: it counts suspend, and nobody sets or slews it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment.
pub(super) fn now_ns() -> u64 {
    let read = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    };
    // MONOTONIC_RAW is not slewed but stands still in suspend; the other two differ by the time spent there.
    let raw = read(ClockId::MonotonicRaw);
    raw + read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
}
