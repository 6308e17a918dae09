//! The mutex of textbooks: one bit, and an instruction that reads and sets it at once.
//!
//! **Idea.** Whoever finds the bit clear while setting it is inside. The hardware does what Dijkstra's problem forbids
//! itself: reading and writing in one step.
//!
//! **Promises** that one at most is inside and that somebody enters; who, is left to chance, and one may wait for ever.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::patience::{GaveUp, Patience};
use crate::sync::atomic::{AtomicBool, Ordering};

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
        idea: "one bit, read and set in one step: who found it clear is inside",
        needs: "an instruction that reads and writes at once",
        fairness: "somebody enters, but one may wait for ever",
    };

    fn new(_slots: usize) -> Self {
        Self { in_use: AtomicBool::new(false) }
    }

    fn enter(&self, _me: usize, patience: &mut impl Patience) -> Result<(), GaveUp> {
        loop {
            // Acquire: what was done inside before is seen. No fence: one instruction does it all, so that nothing can come
            // between its read and its write. Where the bit was set already, it writes nothing; relaxed, for what it read
            // then leads nowhere.
            let set = self.in_use.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if set.is_ok() {
                return Ok(());
            }
            patience.pause()?;
        }
    }

    fn exit(&self, _me: usize) {
        // Release: the other half of the exchange.
        self.in_use.store(false, Ordering::Release);
    }

    fn withdraw(&self, _me: usize) {
        // Who is not inside has left no trace.
    }
}
