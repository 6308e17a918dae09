//! Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", TOCS 9(1),
//! 1991: the MCS lock.
//!
//! **Idea.** A queue of nodes, one for each waiting slot. A slot exchanges `tail` for itself, links itself behind the
//! slot that it found there, and waits at its own node until that slot grants it the lock.
//!
//! **Registers.** `tail`; for each slot a node with `next` and `state`. A node is named by the number of its slot, in
//! place of the paper's pointers.
//!
//! **Guarantees** that at most one thread is inside and that threads enter in the order of their exchanges. A waiting
//! thread reads only its own node.
//!
//! **A thread that gives up** leaves its node in the queue as abandoned (after Scott and Scherer, PPoPP 2001). The slot
//! before it passes the node; until then the slot may come back and wait at its old place.
//!
//! **Pitfall.** The last slot must leave by an instruction that compares and swaps `tail`: with a read and a write, a
//! slot that comes in between is forgotten, and waits for ever.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sync::{Padded, each};
use crate::wait_strategy::{Backoff, WaitEnded, WaitStrategy};

/// The queue.
#[derive(Debug)]
pub struct Mcs {
    /// The last slot of the queue plus one; 0 if the queue is empty.
    tail: Padded<AtomicUsize>,
    nodes: Box<[Padded<Node>]>,
}

#[derive(Debug, Default)]
struct Node {
    /// The slot behind this one plus one; 0 if there is none yet.
    next: AtomicUsize,
    state: AtomicU8,
}

/// The node is not in the queue.
const FREE: u8 = 0;
const WAITING: u8 = 1;
const GRANTED: u8 = 2;
const ABANDONED: u8 = 3;
/// The slot before it is passing the node.
const PASSED: u8 = 4;

impl Mcs {
    /// The slot behind `at`. If there is none, `at` leaves the queue.
    fn successor(&self, at: usize) -> Option<usize> {
        let next = &self.nodes[at].0.next;
        let mut backoff = Backoff::default();
        loop {
            // Acquire: pairs with the release of the link.
            match next.load(Ordering::Acquire) {
                // Release: the next slot that exchanges `tail` sees the critical section before.
                0 if self
                    .tail
                    .0
                    .compare_exchange(at + 1, 0, Ordering::Release, Ordering::Relaxed)
                    .is_ok() =>
                {
                    return None;
                }
                // A slot has exchanged `tail`, and has not linked itself yet.
                0 => {
                    let waited = backoff.pause();
                    debug_assert!(waited.is_ok(), "a backoff never gives up");
                }
                slot => return Some(slot - 1),
            }
        }
    }

    /// Changes the state of a slot's node. Returns whether it was `from`.
    fn change(&self, slot: usize, from: u8, to: u8) -> bool {
        // Release: a slot that is granted the lock sees the critical section before. Acquire: a slot whose node has been
        // passed may use it again only after the slot that passed it.
        self.nodes[slot].0.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn release(&self, me: usize) {
        let mut at = me;
        loop {
            let next = self.successor(at);
            // Release: the slot of a node that was passed uses it again only after these reads.
            self.nodes[at].0.state.store(FREE, Ordering::Release);
            let Some(next) = next else { return };
            // The next slot may abandon its node or come back at any time: one of the two changes succeeds in the end.
            at = loop {
                if self.change(next, WAITING, GRANTED) {
                    return;
                }
                if self.change(next, ABANDONED, PASSED) {
                    break next;
                }
            };
        }
    }
}

impl Sealed for Mcs {}

impl Algorithm for Mcs {
    const ABOUT: About = About {
        slug: "mcs",
        title: "MCS queue lock",
        family: FAMILY,
        paper: "J. M. Mellor-Crummey and M. L. Scott, Algorithms for scalable synchronization on shared-memory \
                multiprocessors, TOCS 9(1), 1991",
        idea: "a linked queue; each thread waits at its own node, and the thread before it grants the lock there",
        needs: "atomic exchange and compare-and-swap instructions",
        fairness: "first come, first served",
        source: include_str!("mcs.rs"),
    };

    fn new(slots: usize) -> Self {
        Self { tail: Padded::default(), nodes: each(slots) }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        let Node { next, state } = &self.nodes[me].0;
        if !self.change(me, ABANDONED, WAITING) {
            // Acquire: the slot that passes the node has finished with it.
            while state.load(Ordering::Acquire) != FREE {
                strategy.pause()?;
            }
            // Relaxed, both: the exchange publishes them.
            next.store(0, Ordering::Relaxed);
            state.store(WAITING, Ordering::Relaxed);
            // Acquire: the last slot's critical section, if it left the queue empty.
            match self.tail.0.swap(me + 1, Ordering::AcqRel) {
                0 => {
                    state.store(GRANTED, Ordering::Relaxed);
                    return Ok(());
                }
                // Release: the slot before sees this node's `state`.
                before => self.nodes[before - 1].0.next.store(me + 1, Ordering::Release),
            }
        }
        // Acquire: pairs with the release of the grant.
        while state.load(Ordering::Acquire) != GRANTED {
            strategy.pause()?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        self.release(me);
    }

    fn withdraw(&self, me: usize) {
        // A node that is being passed, or has been, is not in the queue for this slot.
        if !self.change(me, WAITING, ABANDONED) && self.nodes[me].0.state.load(Ordering::Acquire) == GRANTED {
            self.release(me);
        }
    }
}
