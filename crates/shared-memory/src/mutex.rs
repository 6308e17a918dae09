//! A lock around data, with a fixed number of slots.

use crate::algorithm::Algorithm;
use crate::mutex_guard::{MutexGuard, Protected};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait_strategy::{Backoff, WaitEnded, WaitStrategy, While};
use crate::{
    Bakery, BlackWhiteBakery, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Peterson, Semaphore, Szymanski,
    TestAndSet, Ticket,
};
use std::fmt;

/// Data that one thread at a time can access, protected by an [`Algorithm`] for a fixed number of slots.
pub struct Mutex<A, T> {
    algorithm: A,
    /// The slots in use. Taking a slot may use instructions that locking must not: it happens once per thread.
    taken: Box<[AtomicBool]>,
    value: Protected<T>,
}

/// A lock that uses [`Dijkstra`]'s algorithm.
pub type DijkstraMutex<T> = Mutex<Dijkstra, T>;
/// A lock that uses Lamport's [`Bakery`].
pub type BakeryMutex<T> = Mutex<Bakery, T>;
/// A lock that uses Taubenfeld's [`BlackWhiteBakery`].
pub type BlackWhiteBakeryMutex<T> = Mutex<BlackWhiteBakery, T>;
/// A lock that uses [`TestAndSet`].
pub type TestAndSetMutex<T> = Mutex<TestAndSet, T>;
/// A lock that uses a [`Semaphore`] with one permit.
pub type SemaphoreMutex<T> = Mutex<Semaphore, T>;
/// A lock that uses the algorithm of [`EisenbergMcGuire`].
pub type EisenbergMcGuireMutex<T> = Mutex<EisenbergMcGuire, T>;
/// A lock that uses a tournament of [`Peterson`]'s algorithm.
pub type PetersonMutex<T> = Mutex<Peterson, T>;
/// A lock that uses Peterson's [`Filter`].
pub type FilterMutex<T> = Mutex<Filter, T>;
/// A lock that uses [`Szymanski`]'s waiting room.
pub type SzymanskiMutex<T> = Mutex<Szymanski, T>;
/// A lock that uses [`Ticket`]s.
pub type TicketMutex<T> = Mutex<Ticket, T>;
/// A lock that uses the queue of Mellor-Crummey and Scott, [`Mcs`].
pub type McsMutex<T> = Mutex<Mcs, T>;
/// A lock that uses the queue of Craig, Landin and Hagersten, [`Clh`].
pub type ClhMutex<T> = Mutex<Clh, T>;

impl<A: Algorithm, T> Mutex<A, T> {
    /// Creates a lock for this many threads at a time.
    ///
    /// # Panics
    /// If `slots` is 0: no thread could use the lock.
    pub fn new(slots: usize, value: T) -> Self {
        assert!(slots > 0, "a lock needs at least one slot: one for each thread that will use it");
        let taken = (0..slots).map(|_| AtomicBool::new(false)).collect();
        Self { algorithm: A::new(slots), taken, value: Protected::new(value) }
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.taken.len()
    }

    /// Takes the lowest free slot. Dropping it frees it.
    pub fn slot(&self) -> Result<Slot<'_, A, T>, NoFreeSlot> {
        // Acquire: the accesses of the slot's last user to its registers happen before those of this one.
        let free = self.taken.iter().position(|taken| !taken.swap(true, Ordering::Acquire));
        let number = free.ok_or(NoFreeSlot { slots: self.slots() })?;
        Ok(Slot { mutex: self, number, inside: false })
    }

    /// Returns the data. The borrow checker ensures that no slot is left.
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

/// The error of [`Mutex::slot`] when all slots are in use.
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

/// One slot of a lock: the process of the papers.
///
/// It can move to another thread, but locking needs `&mut`, and the guard keeps that borrow: no two threads can use one
/// slot at the same time.
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
    /// Whether the slot has entered and not exited. A forgotten guard leaves it set.
    inside: bool,
}

impl<'a, A: Algorithm, T> Slot<'a, A, T> {
    /// Waits until the slot enters.
    pub fn lock(&mut self) -> MutexGuard<'_, A, T> {
        match MutexGuard::enter(self, &mut Backoff::default()) {
            Ok(guard) => guard,
            Err(WaitEnded) => unreachable!("a backoff never gives up"),
        }
    }

    /// Waits until the slot enters, as long as `go_on` returns true; it is called before each further poll.
    pub fn lock_while(&mut self, go_on: impl FnMut() -> bool) -> Option<MutexGuard<'_, A, T>> {
        MutexGuard::enter(self, &mut While::new(go_on)).ok()
    }

    /// Enters only if that needs no waiting. Two slots that try at the same time may both fail.
    pub fn try_lock(&mut self) -> Option<MutexGuard<'_, A, T>> {
        self.lock_while(|| false)
    }

    pub(crate) fn value(&self) -> &'a Protected<T> {
        &self.mutex.value
    }

    pub(crate) fn go_inside(&mut self, strategy: &mut impl WaitStrategy) -> Result<Inside<'_, A>, WaitEnded> {
        self.leave_if_inside();
        let algorithm = &self.mutex.algorithm;
        // Withdraws when dropped, also when `strategy` panics.
        let attempt = Attempt { algorithm, number: self.number };
        algorithm.enter(self.number, strategy)?;
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
        // Release: the accesses of this user happen before those of the slot's next user.
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

/// A slot that is inside. Dropping it exits.
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

/// A slot that is trying. Dropping it withdraws.
struct Attempt<'a, A: Algorithm> {
    algorithm: &'a A,
    number: usize,
}

impl<A: Algorithm> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        self.algorithm.withdraw(self.number);
    }
}
