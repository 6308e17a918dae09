//! How a thread waits for its turn.
//!
//! These algorithms have no queue of sleeping threads: a thread that waits looks again and again. On a machine with more
//! threads than cores that would burn the very time that the holder needs, so a thread spins for a moment and then
//! yields to the others.

use crate::sync::yield_now;

/// How a thread waits, and whether it goes on waiting.
pub trait Patience {
    /// Called each time that the thread would have to look again.
    fn pause(&mut self) -> Result<(), GaveUp>;
}

/// The thread no longer wants to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaveUp;

/// Spins a little longer each time, then yields; never gives up.
#[derive(Debug, Default)]
pub struct Backoff {
    pauses: u32,
}

impl Backoff {
    /// After that many pauses, a thread yields: 1 + 2 + 4 + … + 32 rounds, well under a microsecond. Longer waits mean
    /// that the one who is awaited is long inside, or not running.
    const SPINS: u32 = 6;
}

impl Patience for Backoff {
    fn pause(&mut self) -> Result<(), GaveUp> {
        // A model checker's threads must say that they only wait, or it follows them for ever.
        if self.pauses < Self::SPINS && !cfg!(any(loom, miri)) {
            (0..1 << self.pauses).for_each(|_| std::hint::spin_loop());
            self.pauses += 1;
        } else {
            yield_now();
        }
        Ok(())
    }
}

/// Waits like [`Backoff`], as long as a question is answered with yes.
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

impl<F: FnMut() -> bool> Patience for While<F> {
    fn pause(&mut self) -> Result<(), GaveUp> {
        if (self.go_on)() { self.backoff.pause() } else { Err(GaveUp) }
    }
}
