//! Dijkstra, "Solution of a problem in concurrent programming control", CACM 8(9), 1965: the first solution for N.
//!
//! **Idea.** `k` names whose turn it is. Who wants in takes the turn from a `k` that does not, announces that it is about
//! to enter, and enters if nobody else has announced the same; otherwise it goes back and starts again.
//!
//! **Registers.** `b[i]`: slot i does not want in. `c[i]`: slot i is not about to enter. `k`: whose turn; all write it.
//! As in the paper, `b` and `c` are true at first.
//!
//! **Promises** that one at most is inside and that somebody enters; *not* that everybody does: a slot that is always
//! late to see `b[k]` waits for ever while others come and go. The lab shows such a schedule.
//!
//! **Pitfall.** Writing `c[i]` and then reading all other `c` needs the order that machines do not keep by themselves.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::patience::{GaveUp, Patience};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};

/// Dijkstra's registers.
#[derive(Debug)]
pub struct Dijkstra {
    slots: Box<[Padded<Registers>]>,
    k: Padded<AtomicUsize>,
}

#[derive(Debug)]
struct Registers {
    b: AtomicBool,
    c: AtomicBool,
}

impl Default for Registers {
    fn default() -> Self {
        Self { b: AtomicBool::new(true), c: AtomicBool::new(true) }
    }
}

impl Dijkstra {
    /// The trying protocol. `fence` stands between the announcement in Li4 and the look at the others: an argument, so
    /// that a test can leave it out and see two enter.
    pub(crate) fn try_to_enter(
        &self,
        me: usize,
        patience: &mut impl Patience,
        fence: impl Fn(),
    ) -> Result<(), GaveUp> {
        // Li0. Relaxed, as all of b and k: they only say whose turn it is to try. Safety rests on c alone, and every
        // thread sees the last write in the end.
        self.slots[me].0.b.store(false, Ordering::Relaxed);
        loop {
            // Li1
            if self.k.0.load(Ordering::Relaxed) != me {
                // Li2
                self.announce_nothing(me);
                // Li3
                let k = self.k.0.load(Ordering::Relaxed);
                if self.slots[k].0.b.load(Ordering::Relaxed) {
                    self.k.0.store(me, Ordering::Relaxed);
                } else {
                    patience.pause()?;
                }
                continue;
            }
            // Li4. Relaxed: who reads false only goes back, and takes nothing from it.
            self.slots[me].0.c.store(false, Ordering::Relaxed);
            // Of two that announce themselves, one at least must see the other.
            fence();
            if self.nobody_else(me) {
                return Ok(());
            }
            patience.pause()?;
        }
    }

    fn nobody_else(&self, me: usize) -> bool {
        // Acquire: a c[j] that is true again was written after j's critical section, which is seen from here on.
        (0..self.slots.len()).all(|j| j == me || self.slots[j].0.c.load(Ordering::Acquire))
    }

    fn announce_nothing(&self, me: usize) {
        // Release, in Li2 too: another may pass on this very write, and must then see what was done inside before it.
        self.slots[me].0.c.store(true, Ordering::Release);
    }
}

impl Sealed for Dijkstra {}

impl Algorithm for Dijkstra {
    const ABOUT: About = About {
        slug: "dijkstra",
        title: "Dijkstra",
        family: FAMILY,
        paper: "E. W. Dijkstra, Solution of a problem in concurrent programming control, CACM 8(9), 1965",
        idea: "who has the turn announces itself and enters if nobody else has; the turn is taken from those who do not \
               want it",
        needs: "reads and writes of registers, one of which all write",
        fairness: "somebody enters, but one may wait for ever",
    };

    fn new(slots: usize) -> Self {
        Self { slots: each(slots), k: Padded::default() }
    }

    fn enter(&self, me: usize, patience: &mut impl Patience) -> Result<(), GaveUp> {
        self.try_to_enter(me, patience, write_before_read)
    }

    fn exit(&self, me: usize) {
        self.announce_nothing(me);
        self.slots[me].0.b.store(true, Ordering::Relaxed);
    }

    fn withdraw(&self, me: usize) {
        // k may go on naming this slot: with b[me] true, the next one takes the turn.
        self.exit(me);
    }
}
