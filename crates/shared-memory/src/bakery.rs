//! Lamport, "A new solution of Dijkstra's concurrent programming problem", CACM 17(8), 1974: the bakery.
//!
//! **Idea.** A slot takes a ticket one higher than all it sees, and waits until no slot has a lower one. Two slots may
//! take the same number: then the lower slot goes first. Taking a ticket takes time, so `choosing` announces it.
//!
//! **Registers.** `choosing[i]` and `number[i]`, written by slot i alone.
//!
//! **Guarantees** that at most one slot is inside, and that a slot that is through the *doorway* (has its ticket)
//! before another one comes to it enters first; no slot starves. It needs no atomic registers: a read that overlaps a
//! write may return any value (Lamport's *safe register*). The lab's register machines check that; here registers are
//! atomic, because the language requires it.
//!
//! **Pitfalls.** Without `choosing` two slots enter. Tickets grow as long as there is always a slot with one: here they
//! are 64 bits wide, enough for five centuries at a billion a second; for small ones, see
//! [`crate::black_white_bakery`].

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The bakery's registers.
#[derive(Debug)]
pub struct Bakery {
    slots: Box<[Padded<Registers>]>,
}

#[derive(Debug, Default)]
struct Registers {
    choosing: AtomicBool,
    number: AtomicU64,
}

impl Bakery {
    pub(crate) fn begin_choosing(&self, me: usize) {
        // Relaxed: no earlier write needs to be visible with it. The caller's fence orders it before the reads that
        // follow.
        self.slots[me].0.choosing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_ticket(&self, me: usize) {
        // Relaxed: only the numbers matter here. They are read again, with acquire, before a slot enters.
        let highest = self.slots.iter().map(|slot| slot.0.number.load(Ordering::Relaxed)).max().unwrap_or(0);
        // Release: a slot that finds this ticket higher than its own enters, and must see the last critical section of
        // this slot. It may never have seen the zero that ended that section, because this write replaces it.
        self.slots[me].0.number.store(highest + 1, Ordering::Release);
    }

    pub(crate) fn end_choosing(&self, me: usize) {
        // Release: a slot that sees this sees the ticket.
        self.slots[me].0.choosing.store(false, Ordering::Release);
    }

    /// Waits until `j` is not choosing.
    pub(crate) fn until_chosen(&self, j: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        // Acquire: pairs with the release in `end_choosing`.
        while self.slots[j].0.choosing.load(Ordering::Acquire) {
            strategy.pause()?;
        }
        Ok(())
    }

    /// Waits until `j` has no ticket, or a later one than `me`.
    pub(crate) fn until_after(
        &self,
        me: usize,
        j: usize,
        strategy: &mut impl WaitStrategy,
    ) -> Result<(), WaitEnded> {
        let mine = self.slots[me].0.number.load(Ordering::Relaxed);
        loop {
            // Acquire: pairs with the releases in `exit` and `take_ticket`.
            let theirs = self.slots[j].0.number.load(Ordering::Acquire);
            if theirs == 0 || (theirs, j) > (mine, me) {
                return Ok(());
            }
            strategy.pause()?;
        }
    }

    pub(crate) fn others(&self, me: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.slots.len()).filter(move |&j| j != me)
    }
}

impl Sealed for Bakery {}

impl Algorithm for Bakery {
    const ABOUT: About = About {
        slug: "bakery",
        title: "Lamport's bakery",
        family: FAMILY,
        paper: "L. Lamport, A new solution of Dijkstra's concurrent programming problem, CACM 17(8), 1974",
        idea: "take a ticket higher than all others, wait until no other slot has a lower one",
        needs: "reads and writes of registers with one writer each, which need not even be atomic",
        fairness: "first come, first served",
        source: include_str!("bakery.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { slots: each(slots) }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.begin_choosing(me);
        // This slot writes `choosing` and then reads j's number. Slot j writes its number and then, after the fence
        // below, reads whether this slot is choosing. At least one of the two sees the other's write: either this slot
        // takes a higher ticket than j, or j waits until this slot has its ticket.
        write_before_read();
        self.take_ticket(me);
        self.end_choosing(me);
        write_before_read();
        for j in self.others(me) {
            self.until_chosen(j, strategy)?;
            self.until_after(me, j, strategy)?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        // Release: a slot that enters on reading this zero sees the critical section before it.
        self.slots[me].0.number.store(0, Ordering::Release);
    }

    fn withdraw(&self, me: usize) {
        // The paper lets a process stop anywhere and return with its registers at zero. Withdrawing does the same.
        self.end_choosing(me);
        self.exit(me);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait_strategy::While;

    #[test]
    fn bakery_tickets_grow_while_a_slot_always_has_one() {
        let bakery = Bakery::new(2);
        let mut tickets = Vec::new();
        for round in 0..1_000 {
            let (me, other) = (round % 2, 1 - round % 2);
            // The other slot exits only once this one waits for it.
            let leave = || {
                bakery.exit(other);
                true
            };
            bakery.enter(me, &mut While::new(leave)).unwrap();
            tickets.push(bakery.slots[me].0.number.load(Ordering::Relaxed));
        }
        assert!(tickets.iter().copied().eq(1..=1_000));
    }
}
