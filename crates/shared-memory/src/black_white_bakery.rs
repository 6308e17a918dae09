//! Taubenfeld, "The black-white bakery algorithm", DISC 2004: a bakery whose tickets never exceed the number of slots.
//!
//! **Idea.** Tickets are black or white. A new one gets the colour of the shared bit `color`, and counts only tickets
//! of its own colour. The tickets of the other colour are the older ones and go first. A slot that exits sets the bit
//! to the opposite of its own colour, so that its own colour becomes the older one and gets no new tickets.
//!
//! **Registers.** `choosing[i]` and the ticket (colour, number) of slot i, written by slot i alone; `color`, written
//! only by the slot that is inside. The paper writes the colour of a ticket and then its number; here a ticket is one
//! register, written at once. The lab's register machines are the same, and are checked for two and three slots.
//!
//! **Guarantees** the same as the bakery, with numbers from 1 to N, for *atomic* registers.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The black-white bakery's registers.
#[derive(Debug)]
pub struct BlackWhiteBakery {
    slots: Box<[Padded<Registers>]>,
    /// The colour of new tickets: black if true.
    color: Padded<AtomicBool>,
}

#[derive(Debug, Default)]
struct Registers {
    choosing: AtomicBool,
    /// Twice the number, plus one if the ticket is black.
    ticket: AtomicUsize,
}

/// A ticket. The number 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    black: bool,
    number: usize,
}

impl BlackWhiteBakery {
    fn ticket(&self, slot: usize, ordering: Ordering) -> Ticket {
        let packed = self.slots[slot].0.ticket.load(ordering);
        Ticket { black: packed % 2 == 1, number: packed / 2 }
    }

    fn write_ticket(&self, me: usize, ticket: Ticket) {
        // Release: a slot that enters because this ticket is none or a later one must see the critical section before
        // it.
        let packed = 2 * ticket.number + usize::from(ticket.black);
        self.slots[me].0.ticket.store(packed, Ordering::Release);
    }

    fn take_ticket(&self, me: usize) -> Ticket {
        // Relaxed, both: the values only choose a ticket, and tickets are read again with acquire before a slot enters.
        // The fence before this call makes this read at least as recent as the tickets that are visible.
        let black = self.color.0.load(Ordering::Relaxed);
        let highest = (0..self.slots.len())
            .map(|slot| self.ticket(slot, Ordering::Relaxed))
            .filter(|ticket| ticket.black == black)
            .map(|ticket| ticket.number)
            .max();
        let ticket = Ticket { black, number: highest.unwrap_or(0) + 1 };
        self.write_ticket(me, ticket);
        ticket
    }

    /// Waits until `j` is not choosing.
    fn until_chosen(&self, j: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        // Acquire: a slot that sees that j has chosen sees j's ticket.
        while self.slots[j].0.choosing.load(Ordering::Acquire) {
            strategy.pause()?;
        }
        Ok(())
    }

    /// Waits until `j` has no ticket, or one that comes after `mine`.
    fn until_after(
        &self,
        mine: Ticket,
        me: usize,
        j: usize,
        strategy: &mut impl WaitStrategy,
    ) -> Result<(), WaitEnded> {
        let same_at_first = self.ticket(j, Ordering::Acquire).black == mine.black;
        loop {
            let theirs = self.ticket(j, Ordering::Acquire);
            let same = theirs.black == mine.black;
            // Example: mine is white and theirs is black. While the bit is white, new tickets are white, so that black
            // is the older colour and goes first. Once the bit is black, white is the older colour and mine goes first.
            let after = if same {
                (theirs.number, j) > (mine.number, me)
            } else {
                // The own ticket is of the older colour. Acquire: the bit was changed by a slot inside.
                self.color.0.load(Ordering::Acquire) != mine.black
            };
            // A ticket of another colour than at first is a new one, taken after the own ticket.
            if theirs.number == 0 || after || same != same_at_first {
                return Ok(());
            }
            strategy.pause()?;
        }
    }
}

impl Sealed for BlackWhiteBakery {}

impl Algorithm for BlackWhiteBakery {
    const ABOUT: About = About {
        slug: "black-white-bakery",
        title: "Black-white bakery",
        family: FAMILY,
        paper: "G. Taubenfeld, The black-white bakery algorithm, DISC 2004",
        idea: "a bakery with tickets of two colours: one colour is served while the other is given out",
        needs: "reads and writes of registers, one of which all write; numbers up to N",
        fairness: "first come, first served",
        source: include_str!("black_white_bakery.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { slots: each(slots), color: Padded::default() }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        // Relaxed: the fence orders it before the reads that follow; no earlier write needs to be visible with it.
        self.slots[me].0.choosing.store(true, Ordering::Relaxed);
        // As in the bakery: of two slots, at least one sees that the other is choosing, or the other's ticket.
        write_before_read();
        let mine = self.take_ticket(me);
        // Release: a slot that sees this sees the ticket.
        self.slots[me].0.choosing.store(false, Ordering::Release);
        write_before_read();
        for j in (0..self.slots.len()).filter(|&j| j != me) {
            self.until_chosen(j, strategy)?;
            self.until_after(mine, me, j, strategy)?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        let mine = self.ticket(me, Ordering::Relaxed);
        // Release: slots of the same colour may enter on this write, and must see this critical section.
        self.color.0.store(!mine.black, Ordering::Release);
        self.write_ticket(me, Ticket { number: 0, ..mine });
    }

    fn withdraw(&self, me: usize) {
        // The bit stays: only the slot inside may write it. An unused ticket does not change the colours.
        let mine = self.ticket(me, Ordering::Relaxed);
        self.slots[me].0.choosing.store(false, Ordering::Release);
        self.write_ticket(me, Ticket { number: 0, ..mine });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait_strategy::While;

    #[test]
    fn black_white_tickets_stay_small_while_a_slot_always_has_one() {
        let bakery = BlackWhiteBakery::new(3);
        let mut tickets = Vec::new();
        for round in 0..999 {
            let (me, other) = (round % 3, (round + 2) % 3);
            // The other slot exits only once this one waits for it.
            let leave = || {
                bakery.exit(other);
                true
            };
            bakery.enter(me, &mut While::new(leave)).unwrap();
            tickets.push(bakery.ticket(me, Ordering::Relaxed));
        }
        assert!(tickets.iter().all(|ticket| (1..=3).contains(&ticket.number)));
        assert!(tickets.iter().any(|ticket| ticket.black) && tickets.iter().any(|ticket| !ticket.black));
    }
}
