//! Craig, "Building FIFO and priority-queuing spin locks from atomic swap", 1993; Magnusson, Landin and Hagersten,
//! "Queue locks on cache coherent multiprocessors", IPPS 1994: the CLH lock.
//!
//! **Idea.** A queue without links. A slot locks its node, exchanges `tail` for it, and waits at the node that it found
//! there. Its exit unlocks its own node, and it goes on with the node at which it waited.
//!
//! **Registers.** `tail`, and N + 1 nodes with one register each. Nodes are named by numbers, in place of the papers'
//! pointers.
//!
//! **Guarantees** that at most one thread is inside and that threads enter in the order of their exchanges. One
//! instruction enters, and one write exits.
//!
//! **A thread that gives up** writes into its node which node it waited for (after Scott, PODC 2002). The slot behind it
//! takes that over as soon as it sees it; before that, the slot may come back and wait at its old place.
//!
//! **Pitfall.** A slot must not go on with its own node: the slot behind it may still wait there.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Padded, each};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The queue.
#[derive(Debug)]
pub struct Clh {
    /// The node of the slot that came last.
    tail: Padded<AtomicUsize>,
    /// The states of the nodes.
    nodes: Box<[Padded<AtomicUsize>]>,
    slots: Box<[Padded<Place>]>,
}

/// The place of a slot in the queue. Only the slot itself uses it.
#[derive(Debug, Default)]
struct Place {
    node: AtomicUsize,
    /// The node before its own.
    before: AtomicUsize,
}

/// The state of a node whose slot has left, or of one that is not in use.
const UNLOCKED: usize = 0;
const LOCKED: usize = 1;
/// The state of an abandoned node that the slot behind has taken out of the queue.
const TAKEN: usize = 2;
/// The state of a node whose slot has given up: this number plus the node before it.
const ABANDONED: usize = 3;

impl Clh {
    /// Goes back to the place that the slot has abandoned, if it is still there. Returns the node before it.
    fn come_back(&self, mine: usize) -> Option<usize> {
        let node = &self.nodes[mine].0;
        // Relaxed: only this slot writes an abandoned state.
        let before = node.load(Ordering::Relaxed).checked_sub(ABANDONED)?;
        let back = node.compare_exchange(ABANDONED + before, LOCKED, Ordering::Relaxed, Ordering::Relaxed);
        back.is_ok().then_some(before)
    }
}

impl Sealed for Clh {}

impl Algorithm for Clh {
    const ABOUT: About = About {
        slug: "clh",
        title: "CLH queue lock",
        family: FAMILY,
        paper: "T. S. Craig, Building FIFO and priority-queuing spin locks from atomic swap, 1993; P. Magnusson, A. \
                Landin and E. Hagersten, Queue locks on cache coherent multiprocessors, IPPS 1994",
        idea: "a queue without links; each thread waits at the node of the thread before it, and keeps that node",
        needs: "an atomic exchange instruction",
        fairness: "first come, first served",
        source: include_str!("clh.rs"),
    };

    fn new(slots: usize) -> Self {
        let place = |node| Padded(Place { node: AtomicUsize::new(node), before: AtomicUsize::new(0) });
        // One node more than slots: the last one is in the queue at first, unlocked.
        Self {
            tail: Padded(AtomicUsize::new(slots)),
            nodes: each(slots + 1),
            slots: (0..slots).map(place).collect(),
        }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        let place = &self.slots[me].0;
        let mine = place.node.load(Ordering::Relaxed);
        let mut before = self.come_back(mine).unwrap_or_else(|| {
            // Relaxed: the exchange publishes it. Acquire: the state of the node before.
            self.nodes[mine].0.store(LOCKED, Ordering::Relaxed);
            self.tail.0.swap(mine, Ordering::AcqRel)
        });
        loop {
            place.before.store(before, Ordering::Relaxed);
            let node = &self.nodes[before].0;
            // Acquire: pairs with the release in `exit` and in `withdraw`.
            match node.load(Ordering::Acquire) {
                UNLOCKED => return Ok(()),
                // If the slot of that node comes back first, the exchange fails, and this slot waits for it.
                state @ ABANDONED.. => {
                    if node.compare_exchange(state, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        before = state - ABANDONED;
                    }
                }
                _ => strategy.pause()?,
            }
        }
    }

    fn exit(&self, me: usize) {
        let place = &self.slots[me].0;
        // The node before this one is in no slot's use any more: it becomes this slot's own.
        let mine = place.node.swap(place.before.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: the slot behind enters on this write, and must see the critical section before it.
        self.nodes[mine].0.store(UNLOCKED, Ordering::Release);
    }

    fn withdraw(&self, me: usize) {
        let Place { node, before } = &self.slots[me].0;
        let state = ABANDONED + before.load(Ordering::Relaxed);
        // Release: the slot behind goes on to a node that was in the queue before this write.
        self.nodes[node.load(Ordering::Relaxed)].0.store(state, Ordering::Release);
    }
}
