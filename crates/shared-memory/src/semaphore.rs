//! Dijkstra's semaphore: a number of permits; P waits for one and takes it, V gives one back.
//!
//! **Idea.** With one permit it is a mutex; with more, that many may be inside at once. P's test and its decrement are
//! one step, as is V.
//!
//! **Promises** what the test-and-set mutex promises: somebody enters, but one may wait for ever.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::patience::{Backoff, GaveUp, Patience};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A number of permits.
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
    /// A semaphore with that many permits.
    pub fn with_permits(permits: usize) -> Self {
        Self { s: AtomicUsize::new(permits) }
    }

    /// Waits for a permit; dropping it gives it back.
    pub fn acquire(&self) -> Permit<'_> {
        self.p();
        Permit { semaphore: self }
    }

    /// How many permits are free at the moment.
    pub fn free(&self) -> usize {
        self.s.load(Ordering::Relaxed)
    }

    /// Dijkstra's P, also called wait: waits until there is a permit, and takes it.
    pub fn p(&self) {
        let taken = self.wait(&mut Backoff::default());
        debug_assert!(taken.is_ok(), "a backoff never gives up");
    }

    /// Dijkstra's V, also called signal: one permit more. Unlike a lock's exit, anybody may call it.
    pub fn v(&self) {
        // Release: whoever takes this permit sees what was done before it was given.
        let before = self.s.fetch_add(1, Ordering::Release);
        assert!(before < usize::MAX, "a semaphore cannot hold more than {} permits", usize::MAX);
    }

    fn wait(&self, patience: &mut impl Patience) -> Result<(), GaveUp> {
        loop {
            // Relaxed: a guess, which the exchange below confirms.
            let s = self.s.load(Ordering::Relaxed);
            // Acquire: the other half of V.
            if s > 0 && self.s.compare_exchange(s, s - 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
            patience.pause()?;
        }
    }
}

/// A permit of a [`Semaphore`]; dropping it gives it back.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once has been given back"]
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
        idea: "a number of permits: P takes one and waits while there is none, V gives one back; as a lock, it has one",
        needs: "an instruction that reads and writes at once",
        fairness: "somebody enters, but one may wait for ever",
    };

    fn new(_slots: usize) -> Self {
        Self::with_permits(1)
    }

    fn enter(&self, _me: usize, patience: &mut impl Patience) -> Result<(), GaveUp> {
        self.wait(patience)
    }

    fn exit(&self, _me: usize) {
        self.v();
    }

    fn withdraw(&self, _me: usize) {
        // Who has no permit has nothing to give back.
    }
}
