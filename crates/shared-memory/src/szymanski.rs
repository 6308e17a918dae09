//! Szymanski, "A simple solution to Lamport's concurrent programming problem with linear wait", ICS 1988: a waiting
//! room with a door.
//!
//! **Idea.** Slots gather in a waiting room while its door is open. The last of those that come in closes the door;
//! then all in the room enter in the order of their numbers, and the last one opens the door again.
//!
//! **Registers.** `flag[i]`, written by slot i alone: 0 outside, 1 requests, 2 waits in the room for others, 3 is in the
//! door, 4 has closed the door.
//!
//! **Guarantees** that at most one slot is inside and that every slot enters: a slot that requests is overtaken by
//! each other at most once before it is in the room.
//!
//! **Pitfalls.** The other flags are read in ascending order: a slot that looks at higher numbers first may come through
//! the door behind a slot that has left. In the paper, a slot in the room waits for another to close the door; if that
//! one gives up its request, no slot ever does. Here a slot that finds no other on its way into the room goes back into
//! the door and closes it. The exit waits, too: until no higher slot is on its way through the door.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{Backoff, WaitEnded, WaitStrategy};

/// The registers.
#[derive(Debug)]
pub struct Szymanski {
    flag: Box<[Padded<AtomicU8>]>,
}

const OUTSIDE: u8 = 0;
const REQUESTS: u8 = 1;
const IN_ROOM: u8 = 2;
const IN_DOOR: u8 = 3;
const CLOSED: u8 = 4;

impl Szymanski {
    fn set(&self, me: usize, flag: u8) {
        // Release: another slot may enter on reading this very write, and must then see the critical section before
        // it.
        self.flag[me].0.store(flag, Ordering::Release);
    }

    fn read(&self, slot: usize) -> u8 {
        // A fence before every read: the proof is about interleavings, and needs the order of the reads as well as that
        // of a write before a read. Acquire: pairs with the release in `set`.
        write_before_read();
        self.flag[slot].0.load(Ordering::Acquire)
    }

    fn others(&self, me: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.flag.len()).filter(move |&slot| slot != me)
    }

    /// Waits in the room until the door is closed. Returns whether another slot has closed it; otherwise no other slot
    /// is on its way into the room.
    fn until_closed(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<bool, WaitEnded> {
        loop {
            let mut coming = false;
            for other in self.others(me) {
                match self.read(other) {
                    CLOSED => return Ok(true),
                    REQUESTS | IN_DOOR => coming = true,
                    _ => {}
                }
            }
            if !coming {
                return Ok(false);
            }
            strategy.pause()?;
        }
    }
}

impl Sealed for Szymanski {}

impl Algorithm for Szymanski {
    const ABOUT: About = About {
        slug: "szymanski",
        title: "Szymanski's waiting room",
        family: FAMILY,
        paper: "B. K. Szymanski, A simple solution to Lamport's concurrent programming problem with linear wait, ICS \
                1988",
        idea: "gather in a waiting room; the last one in closes the door, and the room is emptied in the order of \
               numbers",
        needs: "reads and writes of registers with one writer and five values each",
        fairness: "every thread enters; each other thread overtakes it at most once",
        source: include_str!("szymanski.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { flag: each(slots) }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.set(me, REQUESTS);
        for other in self.others(me) {
            while self.read(other) >= IN_DOOR {
                strategy.pause()?;
            }
        }
        loop {
            self.set(me, IN_DOOR);
            if self.others(me).all(|other| self.read(other) != REQUESTS) {
                break;
            }
            self.set(me, IN_ROOM);
            if self.until_closed(me, strategy)? {
                break;
            }
        }
        self.set(me, CLOSED);
        for lower in 0..me {
            while self.read(lower) >= IN_ROOM {
                strategy.pause()?;
            }
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        let mut backoff = Backoff::default();
        for higher in me + 1..self.flag.len() {
            while matches!(self.read(higher), IN_ROOM | IN_DOOR) {
                // A slot in the room sees that the door is closed, and one in the door does not wait.
                let waited = backoff.pause();
                debug_assert!(waited.is_ok(), "a backoff never gives up");
            }
        }
        self.set(me, OUTSIDE);
    }

    fn withdraw(&self, me: usize) {
        self.set(me, OUTSIDE);
    }
}
