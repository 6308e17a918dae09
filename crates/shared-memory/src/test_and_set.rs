//! The mutex of textbooks: one bit, and an instruction that reads and sets it at once.
//!
//! **Idea.** The thread that finds the bit clear while setting it is inside. The instruction does what Dijkstra's
//! problem excludes: it reads and writes in one step.
//!
//! **Guarantees** that at most one thread is inside and that some thread enters. The order is arbitrary, and a thread
//! may starve.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The bit.
#[derive(Debug)]
pub struct TestAndSet {
    in_use: AtomicBool,
}

impl Sealed for TestAndSet {}

impl Algorithm for TestAndSet {
    const ABOUT: About = About {
        slug: "test-and-set",
        title: "Test-and-set mutex",
        family: FAMILY,
        paper: "IBM System/360's TEST AND SET instruction, 1964; as taught ever since",
        idea: "one bit, read and set in one step: the thread that found it clear is inside",
        needs: "an atomic read-modify-write instruction",
        fairness: "some thread enters, but one may wait for ever",
        source: include_str!("test_and_set.rs"),
    };

    fn new(_slots: usize) -> Self {
        Self { in_use: AtomicBool::new(false) }
    }

    fn enter(&self, _me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        loop {
            // Acquire: this thread sees all writes of earlier critical sections. No fence is needed: the read and the
            // write are one instruction, and nothing can come between them. If the bit is set already, the exchange
            // writes nothing and may be relaxed, because the value is not used.
            let set = self.in_use.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if set.is_ok() {
                return Ok(());
            }
            strategy.pause()?;
        }
    }

    fn exit(&self, _me: usize) {
        // Release: pairs with the acquire in `enter`.
        self.in_use.store(false, Ordering::Release);
    }

    fn withdraw(&self, _me: usize) {
        // A thread that has not entered has changed no register.
    }
}
