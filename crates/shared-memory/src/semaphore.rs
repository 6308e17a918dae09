//! Dijkstra's semaphore: a number of permits. P waits for one and takes it, V returns one.
//!
//! **Idea.** With one permit it is a mutex; with more, that many threads may be inside at once. The test and the
//! decrement of P are one step, as is V.
//!
//! **Guarantees** the same as the test-and-set mutex: some thread enters, but one may starve.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::wait_strategy::{Backoff, WaitEnded, WaitStrategy};

/// A counting semaphore.
///
/// ```
/// use lockkeeper_shared_memory::Semaphore;
///
/// let printers = Semaphore::with_permits(2);
/// let first = printers.acquire();
/// let second = printers.acquire();
/// assert_eq!(printers.free(), 0); // a third would wait
/// drop(first);
/// assert_eq!(printers.free(), 1);
/// # drop(second);
/// ```
#[derive(Debug)]
pub struct Semaphore {
    s: AtomicUsize,
}

impl Semaphore {
    /// Creates a semaphore with this many permits.
    pub fn with_permits(permits: usize) -> Self {
        Self { s: AtomicUsize::new(permits) }
    }

    /// Waits for a permit. Dropping it returns it.
    pub fn acquire(&self) -> Permit<'_> {
        self.p();
        Permit { semaphore: self }
    }

    /// The number of free permits at the moment.
    pub fn free(&self) -> usize {
        self.s.load(Ordering::Relaxed)
    }

    /// Dijkstra's P, also called wait: waits until there is a permit, and takes it.
    pub fn p(&self) {
        let taken = self.wait(&mut Backoff::default());
        debug_assert!(taken.is_ok(), "a backoff never gives up");
    }

    /// Dijkstra's V, also called signal: adds one permit. Unlike the exit of a lock, any thread may call it.
    pub fn v(&self) {
        // Release: the thread that takes this permit sees the writes before this call.
        let before = self.s.fetch_add(1, Ordering::Release);
        assert!(before < usize::MAX, "a semaphore cannot hold more than {} permits", usize::MAX);
    }

    fn wait(&self, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        loop {
            // Relaxed: the exchange below confirms the value.
            let s = self.s.load(Ordering::Relaxed);
            // Acquire: pairs with the release in `v`.
            if s > 0 && self.s.compare_exchange(s, s - 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
            strategy.pause()?;
        }
    }
}

/// A permit of a [`Semaphore`]. Dropping it returns it.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once is returned at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.v();
    }
}

impl Sealed for Semaphore {}

impl Algorithm for Semaphore {
    const ABOUT: About = About {
        slug: "semaphore",
        title: "Semaphore",
        family: FAMILY,
        paper: "E. W. Dijkstra, Over de sequentialiteit van procesbeschrijvingen, EWD35, about 1962",
        idea: "a number of permits: P takes one and waits while there is none, V returns one; as a lock, it has one",
        needs: "an atomic read-modify-write instruction",
        fairness: "some thread enters, but one may wait for ever",
        source: include_str!("semaphore.rs"),
    };

    fn new(_slots: usize) -> Self {
        Self::with_permits(1)
    }

    fn enter(&self, _me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.wait(strategy)
    }

    fn exit(&self, _me: usize) {
        self.v();
    }

    fn withdraw(&self, _me: usize) {
        // A thread without a permit has nothing to return.
    }
}
