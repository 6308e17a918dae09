//! Dijkstra, "Solution of a problem in concurrent programming control", CACM 8(9), 1965: the first solution for N.
//!
//! **Idea.** `k` names the slot whose turn it is. A slot that tries takes the turn if the slot `k` is not trying,
//! announces that it is about to enter, and enters if no other slot has announced the same; otherwise it starts again.
//!
//! **Registers.** `b[i]`: slot i is not trying. `c[i]`: slot i is not about to enter. `k`: the slot whose turn it is;
//! all slots write it. As in the paper, `b` and `c` are true at first.
//!
//! **Guarantees** that at most one slot is inside and that some slot enters; *not* that every slot does: one that is
//! always late to see `b[k]` waits for ever while others enter and exit. The lab shows such a schedule.
//!
//! **Pitfall.** Writing `c[i]` and then reading all other `c` needs an order that machines do not keep by default.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

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
    /// The trying protocol. `fence` is called between the announcement in Li4 and the check of the other slots. It is
    /// an argument, so that a test can omit it and observe two slots inside.
    pub(crate) fn try_to_enter(
        &self,
        me: usize,
        strategy: &mut impl WaitStrategy,
        fence: impl Fn(),
    ) -> Result<(), WaitEnded> {
        // Li0. Relaxed, as all accesses to b and k: they only decide whose turn it is to try. Safety depends on c
        // alone, and every thread eventually sees the last write.
        self.slots[me].0.b.store(false, Ordering::Relaxed);
        loop {
            // Li1
            if self.k.0.load(Ordering::Relaxed) != me {
                // Li2
                self.retract(me);
                // Li3
                let k = self.k.0.load(Ordering::Relaxed);
                if self.slots[k].0.b.load(Ordering::Relaxed) {
                    self.k.0.store(me, Ordering::Relaxed);
                } else {
                    strategy.pause()?;
                }
                continue;
            }
            // Li4. Relaxed: a slot that reads false starts again and reads nothing that this write protects.
            self.slots[me].0.c.store(false, Ordering::Relaxed);
            // Of two slots that announce themselves, at least one must see the other.
            fence();
            if self.no_other_announced(me) {
                return Ok(());
            }
            strategy.pause()?;
        }
    }

    fn no_other_announced(&self, me: usize) -> bool {
        // Acquire: a c[j] that is true again was written after j's critical section, whose writes are visible from here
        // on.
        (0..self.slots.len()).all(|j| j == me || self.slots[j].0.c.load(Ordering::Acquire))
    }

    fn retract(&self, me: usize) {
        // Release, in Li2 too: another slot may enter on reading this very write, and must then see the critical
        // section before it.
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
        idea: "the slot whose turn it is announces itself and enters if no other has; the turn is taken from a slot \
               that is not trying",
        needs: "reads and writes of registers, one of which all write",
        fairness: "some thread enters, but one may wait for ever",
        source: include_str!("dijkstra.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { slots: each(slots), k: Padded::default() }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.try_to_enter(me, strategy, write_before_read)
    }

    fn exit(&self, me: usize) {
        self.retract(me);
        self.slots[me].0.b.store(true, Ordering::Relaxed);
    }

    fn withdraw(&self, me: usize) {
        // k may continue to name this slot: because b[me] is true, the next slot takes the turn.
        self.exit(me);
    }
}
