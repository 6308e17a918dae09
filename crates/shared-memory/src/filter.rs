//! Peterson, "Myths about the mutual exclusion problem", IPL 12(3), 1981: the algorithm for N processes, known as the
//! filter lock (Herlihy and Shavit).
//!
//! **Idea.** N−1 levels before the critical section, each of which keeps one slot back: the slot that came last, the
//! level's victim, waits as long as another slot is at its level or at a higher one.
//!
//! **Registers.** `level[i]`, written by slot i alone; `victim[l]`, written by all.
//!
//! **Guarantees** that at most one slot is inside and that every slot enters; it may be overtaken without a bound on
//! how often while it is slow between two levels.
//!
//! **Why a slot sees all earlier critical sections.** All writes are releases and all reads acquires. A slot A passes a
//! level because it read a lower level of each other slot, which that slot wrote at its exit or later, or because a
//! slot C has become the victim after it. At most N−l slots are beyond level l, so that C could come to the level only
//! after one of those that A waited for had left, and A sees what C saw.
//!
//! **Pitfall.** `level` is written before `victim`: in the other order, two slots enter.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The filter's registers.
#[derive(Debug)]
pub struct Filter {
    /// The level of each slot: 0 is outside.
    level: Box<[Padded<AtomicUsize>]>,
    /// The victim of each level from 1 on. The first entry is not used.
    victim: Box<[Padded<AtomicUsize>]>,
}

impl Filter {
    /// The trying protocol. The fences are arguments, so that a test can omit one and observe two slots inside.
    pub(crate) fn try_to_enter(
        &self,
        me: usize,
        strategy: &mut impl WaitStrategy,
        after_level: impl Fn(),
        after_victim: impl Fn(),
    ) -> Result<(), WaitEnded> {
        for level in 1..self.level.len() {
            self.level[me].0.store(level, Ordering::Release);
            // As in Peterson's algorithm for two: a slot that becomes the victim later sees this level.
            after_level();
            let victim = &self.victim[level].0;
            victim.store(me, Ordering::Release);
            after_victim();
            for other in (0..self.level.len()).filter(|&other| other != me) {
                while self.level[other].0.load(Ordering::Acquire) >= level
                    && victim.load(Ordering::Acquire) == me
                {
                    strategy.pause()?;
                }
            }
        }
        Ok(())
    }
}

impl Sealed for Filter {}

impl Algorithm for Filter {
    const ABOUT: About = About {
        slug: "filter",
        title: "Filter lock",
        family: FAMILY,
        paper: "G. L. Peterson, Myths about the mutual exclusion problem, IPL 12(3), 1981",
        idea: "N−1 levels, each of which keeps back the slot that came last while others are at it or beyond",
        needs: "reads and writes of registers, of which all write N−1",
        fairness: "every thread enters, but may be overtaken any number of times",
        source: include_str!("filter.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { level: each(slots), victim: each(slots) }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.try_to_enter(me, strategy, write_before_read, write_before_read)
    }

    fn exit(&self, me: usize) {
        // Release: a slot that enters on reading this zero sees the critical section before it.
        self.level[me].0.store(0, Ordering::Release);
    }

    fn withdraw(&self, me: usize) {
        // The victims stay: a slot at level 0 keeps no other back.
        self.exit(me);
    }
}
