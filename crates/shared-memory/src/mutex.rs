//! A lock around data, with a fixed number of slots.

use crate::algorithm::Algorithm;
use crate::guard::{Guard, Protected};
use crate::patience::{Backoff, GaveUp, Patience, While};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Bakery, BlackWhiteBakery, Dijkstra, Semaphore, TestAndSet};
use std::fmt;

/// Data that one thread at a time can use, kept by an [`Algorithm`] for a fixed number of slots.
pub struct Mutex<A, T> {
    algorithm: A,
    /// Which slots are in use. Taking a slot may use instructions that locking must not: it happens once per thread.
    taken: Box<[AtomicBool]>,
    value: Protected<T>,
}

/// A lock by [`Dijkstra`]'s algorithm.
pub type DijkstraMutex<T> = Mutex<Dijkstra, T>;
/// A lock by Lamport's [`Bakery`].
pub type BakeryMutex<T> = Mutex<Bakery, T>;
/// A lock by Taubenfeld's [`BlackWhiteBakery`].
pub type BlackWhiteBakeryMutex<T> = Mutex<BlackWhiteBakery, T>;
/// A lock by [`TestAndSet`].
pub type TestAndSetMutex<T> = Mutex<TestAndSet, T>;
/// A lock by a [`Semaphore`] with one permit.
pub type SemaphoreMutex<T> = Mutex<Semaphore, T>;

impl<A: Algorithm, T> Mutex<A, T> {
    /// A lock for that many threads at a time.
    ///
    /// # Panics
    /// With no slots: nobody could ever use it.
    pub fn new(slots: usize, value: T) -> Self {
        assert!(slots > 0, "a lock needs at least one slot: one for each thread that will use it");
        let taken = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Self { algorithm: A::new(slots), taken, value: Protected::new(value) }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.taken.len()
    }

    /// Takes a free slot, the lowest; dropping it gives it back.
    pub fn slot(&self) -> Result<Slot<'_, A, T>, NoFreeSlot> {
        // Acquire: what the slot's last user did to its registers comes before what this one does.
        let free = self.taken.iter().position(|taken| !taken.swap(true, Ordering::Acquire));
        let number = free.ok_or(NoFreeSlot { slots: self.slots() })?;
        Ok(Slot { mutex: self, number, inside: false })
    }

    /// The data, once nobody has a slot any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<A: Algorithm, T> fmt::Debug for Mutex<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("algorithm", &A::ABOUT.slug)
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}

/// All slots of a lock are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFreeSlot {
    slots: usize,
}

impl fmt::Display for NoFreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all {} slots of the lock are taken: make it with one slot for each thread, or drop a slot first",
            self.slots
        )
    }
}

impl std::error::Error for NoFreeSlot {}

/// One place at a lock: what the papers call a process.
///
/// It can move to another thread, but locking needs it by `&mut`, and its guard keeps that borrow: no two threads
/// can use one slot at a time.
///
/// ```compile_fail,E0499
/// # use lockkeeper_shared_memory::BakeryMutex;
/// let mutex = BakeryMutex::new(1, 0);
/// let mut slot = mutex.slot().unwrap();
/// let first = slot.lock();
/// let second = slot.lock(); // the slot is still inside
/// drop(first);
/// ```
pub struct Slot<'a, A: Algorithm, T> {
    mutex: &'a Mutex<A, T>,
    number: usize,
    /// Whether it has entered and not left; a guard that was forgotten leaves it set.
    inside: bool,
}

impl<'a, A: Algorithm, T> Slot<'a, A, T> {
    /// Waits for its turn.
    pub fn lock(&mut self) -> Guard<'_, A, T> {
        match Guard::enter(self, &mut Backoff::default()) {
            Ok(guard) => guard,
            Err(GaveUp) => unreachable!("a backoff never gives up"),
        }
    }

    /// Waits for its turn as long as `go_on` says so; it is asked each time before the slot looks again.
    pub fn lock_while(&mut self, go_on: impl FnMut() -> bool) -> Option<Guard<'_, A, T>> {
        Guard::enter(self, &mut While::new(go_on)).ok()
    }

    /// Enters only if that needs no waiting. Two who try at the same time may both fail.
    pub fn try_lock(&mut self) -> Option<Guard<'_, A, T>> {
        self.lock_while(|| false)
    }

    pub(crate) fn value(&self) -> &'a Protected<T> {
        &self.mutex.value
    }

    pub(crate) fn go_inside(&mut self, patience: &mut impl Patience) -> Result<Inside<'_, A>, GaveUp> {
        self.leave_if_inside();
        let algorithm = &self.mutex.algorithm;
        // Withdraws unless disarmed, also when `patience` panics.
        let attempt = Attempt { algorithm, number: self.number };
        algorithm.enter(self.number, patience)?;
        std::mem::forget(attempt);
        self.inside = true;
        Ok(Inside { algorithm, number: self.number, inside: &mut self.inside })
    }

    fn leave_if_inside(&mut self) {
        if std::mem::take(&mut self.inside) {
            self.mutex.algorithm.exit(self.number);
        }
    }
}

impl<A: Algorithm, T> Drop for Slot<'_, A, T> {
    fn drop(&mut self) {
        self.leave_if_inside();
        // Release: the slot's next user comes after all that this one did.
        self.mutex.taken[self.number].store(false, Ordering::Release);
    }
}

impl<A: Algorithm, T> fmt::Debug for Slot<'_, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("number", &self.number)
            .field("inside", &self.inside)
            .finish_non_exhaustive()
    }
}

/// A slot that is inside; dropping it is the exit.
pub(crate) struct Inside<'a, A: Algorithm> {
    algorithm: &'a A,
    number: usize,
    inside: &'a mut bool,
}

impl<A: Algorithm> Drop for Inside<'_, A> {
    fn drop(&mut self) {
        *self.inside = false;
        self.algorithm.exit(self.number);
    }
}

/// A slot that is trying; dropping it withdraws.
struct Attempt<'a, A: Algorithm> {
    algorithm: &'a A,
    number: usize,
}

impl<A: Algorithm> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        self.algorithm.withdraw(self.number);
    }
}
