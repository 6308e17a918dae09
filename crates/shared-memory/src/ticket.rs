//! The ticket lock (Mellor-Crummey and Scott, TOCS 9(1), 1991; after Reed and Kanodia's sequencers, CACM 22(2), 1979).
//!
//! **Idea.** One instruction takes the next ticket. A thread is inside while `serving` shows its ticket; its exit shows
//! the next one.
//!
//! **Registers.** `next` and `serving`, written by all. For threads that give up: `abandoned`, one for each ticket that
//! may be outstanding.
//!
//! **Guarantees** that at most one thread is inside and that threads enter in the order in which they come.
//!
//! **A thread that gives up** cannot return its ticket. It marks the ticket as abandoned, and the slot that would be
//! followed by it shows the ticket after it. Until then the slot may come back and go on with its old ticket, so that
//! at most N tickets are outstanding.
//!
//! **Pitfall.** With a read and a write in place of the instruction, two threads take the same ticket.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The counters.
#[derive(Debug)]
pub struct Ticket {
    next: Padded<AtomicU64>,
    serving: Padded<AtomicU64>,
    /// The tickets of the slots. Only the slot itself uses its own.
    slots: Box<[Padded<AtomicU64>]>,
    /// Entry t mod N is t + 1 while the ticket t is abandoned and not passed.
    abandoned: Box<[Padded<AtomicU64>]>,
}

impl Ticket {
    fn entry(&self, ticket: u64) -> &AtomicU64 {
        &self.abandoned[(ticket % self.abandoned.len() as u64) as usize].0
    }

    /// Ends the abandonment of a ticket. At most one caller succeeds: the ticket's slot, or the slot that passes it.
    fn claim(&self, ticket: u64) -> bool {
        let entry = self.entry(ticket);
        // The exchange would be enough; the load spares its cost where no ticket is abandoned.
        entry.load(Ordering::Relaxed) == ticket + 1
            && entry.compare_exchange(ticket + 1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Shows a ticket, and passes those that are abandoned.
    fn serve(&self, mut ticket: u64) {
        loop {
            // Release: the thread that enters on reading this sees the critical section before it.
            self.serving.0.store(ticket, Ordering::Release);
            // This slot shows the ticket and then looks whether it is abandoned; a slot that abandons it looks
            // afterwards whether it is shown. At least one of the two sees the other's write, and passes the ticket.
            write_before_read();
            if !self.claim(ticket) {
                return;
            }
            ticket += 1;
        }
    }
}

impl Sealed for Ticket {}

impl Algorithm for Ticket {
    const ABOUT: About = About {
        slug: "ticket",
        title: "Ticket lock",
        family: FAMILY,
        paper: "J. M. Mellor-Crummey and M. L. Scott, Algorithms for scalable synchronization on shared-memory \
                multiprocessors, TOCS 9(1), 1991",
        idea: "one instruction takes the next ticket; a counter shows the ticket of the thread that is inside",
        needs: "an atomic fetch-and-add instruction",
        fairness: "first come, first served",
        source: include_str!("ticket.rs"),
    };

    fn new(slots: usize) -> Self {
        Self {
            next: Padded::default(),
            serving: Padded::default(),
            slots: each(slots),
            abandoned: each(slots),
        }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        let slot = &self.slots[me].0;
        // Relaxed, all three: only the value of the ticket matters, and `serving` orders the critical sections.
        let old = slot.load(Ordering::Relaxed);
        let mine = if self.claim(old) { old } else { self.next.0.fetch_add(1, Ordering::Relaxed) };
        slot.store(mine, Ordering::Relaxed);
        // Acquire: pairs with the release in `serve`.
        while self.serving.0.load(Ordering::Acquire) != mine {
            strategy.pause()?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        self.serve(self.slots[me].0.load(Ordering::Relaxed) + 1);
    }

    fn withdraw(&self, me: usize) {
        let mine = self.slots[me].0.load(Ordering::Relaxed);
        self.entry(mine).store(mine + 1, Ordering::Relaxed);
        write_before_read();
        // Acquire: this slot passes on what the last holder wrote.
        if self.serving.0.load(Ordering::Acquire) == mine && self.claim(mine) {
            self.serve(mine + 1);
        }
    }
}
