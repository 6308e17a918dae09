//! How a thread waits.
//!
//! These algorithms have no queue of sleeping threads: a waiting thread polls. On a machine with more threads than
//! cores, pure spinning would use the time that the holder needs, so a thread spins for a moment and then yields to the
//! others.

use crate::sync::yield_now;

/// The waiting strategy of a thread, and the condition under which it gives up.
pub trait WaitStrategy {
    /// Called before each further poll.
    fn pause(&mut self) -> Result<(), WaitEnded>;
}

/// The error of a thread that gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEnded;

/// Spins twice as long each time, then yields; never gives up.
#[derive(Debug, Default)]
pub struct Backoff {
    pauses: u32,
}

impl Backoff {
    /// The number of pauses before a thread yields: 1 + 2 + 4 + … + 32 spins, well under a microsecond. A longer wait
    /// means that the other thread stays inside for long, or is not running.
    const SPINS: u32 = 6;
}

impl WaitStrategy for Backoff {
    fn pause(&mut self) -> Result<(), WaitEnded> {
        // Under a model checker a waiting thread must yield, or the checker would explore its loop without end.
        if self.pauses < Self::SPINS && !cfg!(any(loom, miri)) {
            (0..1 << self.pauses).for_each(|_| std::hint::spin_loop());
            self.pauses += 1;
        } else {
            yield_now();
        }
        Ok(())
    }
}

/// Waits like [`Backoff`] as long as `go_on` returns true.
#[derive(Debug)]
pub(crate) struct While<F> {
    go_on: F,
    backoff: Backoff,
}

impl<F: FnMut() -> bool> While<F> {
    pub(crate) fn new(go_on: F) -> Self {
        Self { go_on, backoff: Backoff::default() }
    }
}

impl<F: FnMut() -> bool> WaitStrategy for While<F> {
    fn pause(&mut self) -> Result<(), WaitEnded> {
        if (self.go_on)() { self.backoff.pause() } else { Err(WaitEnded) }
    }
}
