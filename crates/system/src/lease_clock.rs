//! The lease clock: monotonic, includes time in suspend, not slewed.

use rustix::time::{ClockId, clock_gettime};

/// Time on the lease clock, in nanoseconds: the raw hardware clock, which no time service speeds up or slows down, plus
/// the time for which the machine was suspended.
pub fn now_ns() -> u64 {
    let read = |id| {
        let time = clock_gettime(id);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    // A preemption between the second and the third reading counts as suspend, but that much time has in fact passed.
    // So the result lies between the time of the call and the time of the return, and never goes back.
    let raw = read(ClockId::MonotonicRaw);
    let monotonic = read(ClockId::Monotonic);
    let boot = read(ClockId::Boottime);
    raw + boot.saturating_sub(monotonic) + jumped_ns()
}

#[cfg(feature = "clock-jumps")]
static JUMPED_NS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Advances the lease clock of this process at once, as a suspend does: timers do not notice. For tests.
#[cfg(feature = "clock-jumps")]
pub fn jump(by: std::time::Duration) {
    let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    JUMPED_NS.fetch_add(by_ns, std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "clock-jumps")]
fn jumped_ns() -> u64 {
    JUMPED_NS.load(std::sync::atomic::Ordering::SeqCst)
}

#[cfg(not(feature = "clock-jumps"))]
fn jumped_ns() -> u64 {
    0
}

/// The Unix time at which the lease clock showed 0, in nanoseconds.
pub fn unix_ns_at_zero() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now_ns())
}
