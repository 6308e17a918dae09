//! Eisenberg and McGuire, "Further comments on Dijkstra's concurrent programming control problem", CACM 15(11), 1972:
//! the first solution with the bound N−1 on the number of turns for which a process waits.
//!
//! **Idea.** As Dijkstra's, but the slot that exits gives the turn to the next slot in the circle that is not idle. A
//! slot tries to enter when all slots from the turn up to itself are idle.
//!
//! **Registers.** `flag[i]`: idle, waiting or active, written by slot i alone; `turn`, written by the slot inside.
//!
//! **Guarantees** that at most one slot is inside and that every slot enters, after at most N−1 turns of others.
//!
//! **Pitfall.** A slot that is active must look for other active ones: two may have read `turn` before it changed.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The registers.
#[derive(Debug)]
pub struct EisenbergMcGuire {
    flag: Box<[Padded<AtomicU8>]>,
    turn: Padded<AtomicUsize>,
}

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const ACTIVE: u8 = 2;

impl EisenbergMcGuire {
    fn set(&self, me: usize, flag: u8) {
        // Release: another slot may enter on reading this very write, and must then see the critical section before
        // it.
        self.flag[me].0.store(flag, Ordering::Release);
    }

    fn is_idle(&self, slot: usize) -> bool {
        // Relaxed: this decides only whose turn it is.
        self.flag[slot].0.load(Ordering::Relaxed) == IDLE
    }

    /// The slots from `first` to the one before `end`, in the circle.
    fn circle(&self, first: usize, end: usize) -> impl Iterator<Item = usize> + use<> {
        let slots = self.flag.len();
        (0..(end + slots - first) % slots).map(move |step| (first + step) % slots)
    }

    /// The trying protocol. `fence` is called between the announcement and the look at the other slots. It is an
    /// argument, so that a test can omit it and observe two slots inside.
    pub(crate) fn try_to_enter(
        &self,
        me: usize,
        strategy: &mut impl WaitStrategy,
        fence: impl Fn(),
    ) -> Result<(), WaitEnded> {
        loop {
            self.set(me, WAITING);
            loop {
                // Relaxed, as all accesses to `turn`: safety depends on the flags alone.
                let turn = self.turn.0.load(Ordering::Relaxed);
                if self.circle(turn, me).all(|slot| self.is_idle(slot)) {
                    break;
                }
                strategy.pause()?;
            }
            self.set(me, ACTIVE);
            // Of two slots that are active, at least one must see the other.
            fence();
            // Acquire: a flag that is not active any more was written after that slot's critical section.
            let alone = (0..self.flag.len())
                .all(|slot| slot == me || self.flag[slot].0.load(Ordering::Acquire) != ACTIVE);
            let turn = self.turn.0.load(Ordering::Relaxed);
            if alone && (turn == me || self.is_idle(turn)) {
                self.turn.0.store(me, Ordering::Relaxed);
                return Ok(());
            }
            strategy.pause()?;
        }
    }
}

impl Sealed for EisenbergMcGuire {}

impl Algorithm for EisenbergMcGuire {
    const ABOUT: About = About {
        slug: "eisenberg-mcguire",
        title: "Eisenberg and McGuire",
        family: FAMILY,
        paper: "M. A. Eisenberg and M. R. McGuire, Further comments on Dijkstra's concurrent programming control \
                problem, CACM 15(11), 1972",
        idea: "as Dijkstra's, but the slot that exits gives the turn to the next one in the circle that is not idle",
        needs: "reads and writes of registers, one of which all write",
        fairness: "every thread enters, after at most N−1 turns of others",
        source: include_str!("eisenberg_mcguire.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { flag: each(slots), turn: Padded::default() }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.try_to_enter(me, strategy, write_before_read)
    }

    fn exit(&self, me: usize) {
        let slots = self.flag.len();
        let next = (1..slots).map(|step| (me + step) % slots).find(|&slot| !self.is_idle(slot));
        self.turn.0.store(next.unwrap_or(me), Ordering::Relaxed);
        self.set(me, IDLE);
    }

    fn withdraw(&self, me: usize) {
        // `turn` may continue to name this slot: an idle slot's turn is passed over.
        self.set(me, IDLE);
    }
}
