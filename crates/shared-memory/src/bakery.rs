//! Lamport, "A new solution of Dijkstra's concurrent programming problem", CACM 17(8), 1974: the bakery.
//!
//! **Idea.** Who wants in takes a ticket one higher than all it sees, and waits until nobody has a lower one. Two may
//! take the same: then the lower slot goes first. Since taking a ticket takes time, `choosing` says that one is about to.
//!
//! **Registers.** `choosing[i]` and `number[i]`, written by slot i alone.
//!
//! **Promises** that one at most is inside, and that who is through the *doorway* (has its ticket) before another
//! comes to it enters first; nobody waits for ever. It needs no atomic registers: a read that overlaps a write
//! may return anything. The lab's register machines check that; here registers are atomic, as the language wants it.
//!
//! **Pitfalls.** Without `choosing` two enter. Tickets grow as long as there is always somebody with one: here they
//! are 64 bits wide, enough for five centuries at a billion a second; for small ones, see [`crate::black_white_bakery`].

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::patience::{GaveUp, Patience};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Padded, each, write_before_read};

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
        // Relaxed: nothing before it matters to who sees it. What comes after is held back by the caller's fence.
        self.slots[me].0.choosing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_ticket(&self, me: usize) {
        // Relaxed: only the numbers count here. They are read again, with acquire, before anybody enters.
        let highest = self.slots.iter().map(|slot| slot.0.number.load(Ordering::Relaxed)).max().unwrap_or(0);
        // Release: who finds this ticket higher than its own passes, and must see what this slot did inside the last
        // time. (The zero that said so may never have been seen: this write hides it.)
        self.slots[me].0.number.store(highest + 1, Ordering::Release);
    }

    pub(crate) fn end_choosing(&self, me: usize) {
        // Release: who sees it sees the ticket.
        self.slots[me].0.choosing.store(false, Ordering::Release);
    }

    /// Waits until `j` is not choosing.
    pub(crate) fn until_chosen(&self, j: usize, patience: &mut impl Patience) -> Result<(), GaveUp> {
        // Acquire: the other half of `end_choosing`.
        while self.slots[j].0.choosing.load(Ordering::Acquire) {
            patience.pause()?;
        }
        Ok(())
    }

    /// Waits until `j` has no ticket, or a later one than `me`.
    pub(crate) fn until_after(
        &self,
        me: usize,
        j: usize,
        patience: &mut impl Patience,
    ) -> Result<(), GaveUp> {
        let mine = self.slots[me].0.number.load(Ordering::Relaxed);
        loop {
            // Acquire: the other half of `exit` and `take_ticket`.
            let theirs = self.slots[j].0.number.load(Ordering::Acquire);
            if theirs == 0 || (theirs, j) > (mine, me) {
                return Ok(());
            }
            patience.pause()?;
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
        idea: "take a ticket higher than all others, wait until nobody has a lower one",
        needs: "reads and writes of registers with one writer each, which need not even be atomic",
        fairness: "first come, first served",
    };

    fn new(slots: usize) -> Self {
        Self { slots: each(slots) }
    }

    fn enter(&self, me: usize, patience: &mut impl Patience) -> Result<(), GaveUp> {
        self.begin_choosing(me);
        // Of me, who says that it is choosing and then reads j's number, and j, who writes its number and then reads
        // whether I am choosing (the fence below, in j's run), one at least sees the other: either my ticket will be
        // higher than j's, or j waits until I have one.
        write_before_read();
        self.take_ticket(me);
        self.end_choosing(me);
        write_before_read();
        for j in self.others(me) {
            self.until_chosen(j, patience)?;
            self.until_after(me, j, patience)?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        // Release: who passes on this zero sees what was done inside.
        self.slots[me].0.number.store(0, Ordering::Release);
    }

    fn withdraw(&self, me: usize) {
        // The paper lets a process stop anywhere and come back with its registers at zero; who gives up does the same.
        self.end_choosing(me);
        self.exit(me);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::patience::While;

    #[test]
    fn tickets_grow_while_there_is_always_somebody_with_one() {
        let bakery = Bakery::new(2);
        let mut tickets = Vec::new();
        for round in 0..1_000 {
            let (me, other) = (round % 2, 1 - round % 2);
            // The other one leaves only once this one waits for it.
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
