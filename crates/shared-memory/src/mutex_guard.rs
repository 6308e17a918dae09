//! The guard, and the only unsafe code of the workspace.
//!
//! A lock around data gives `&mut T` to threads that hold only `&Mutex`. The compiler cannot check that the algorithm
//! admits one thread at a time. The unsafe code relies on one assumption: [`Algorithm::enter`] excludes all other slots
//! until `exit`. loom and miri check that accesses to the cell do not overlap.
#![allow(unsafe_code)]

use crate::algorithm::Algorithm;
use crate::mutex::{Inside, Slot};
use crate::sync::UnsafeCell;
use crate::wait_strategy::{WaitEnded, WaitStrategy};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
type Pointer<T> = loom::cell::MutPtr<T>;
#[cfg(not(loom))]
type Pointer<T> = *mut T;

/// Data that can be accessed only through a [`MutexGuard`].
#[derive(Debug)]
pub(crate) struct Protected<T>(UnsafeCell<T>);

// SAFETY: a shared `Protected` gives the data only to guards, and there is at most one guard at a time. Its owner has
// seen all writes of earlier guards (acquire and release in the algorithms). So sharing it means passing the data from
// thread to thread, which `T: Send` permits.
unsafe impl<T: Send> Sync for Protected<T> {}

impl<T> Protected<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// Exclusive access to the data, until it is dropped.
///
/// It can be sent to another thread if the data can, and shared if the data can be shared. A `Cell` cannot, so this
/// does not compile:
///
/// ```compile_fail,E0277
/// # use lockkeeper_shared_memory::BakeryMutex;
/// let mutex = BakeryMutex::new(1, std::cell::Cell::new(0));
/// let mut slot = mutex.slot().unwrap();
/// let guard = slot.lock();
/// std::thread::scope(|scope| { scope.spawn(|| guard.set(1)); });
/// ```
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct MutexGuard<'a, A: Algorithm, T> {
    // Fields are dropped in order, and no access to the data may follow the exit.
    pointer: Pointer<T>,
    _inside: Inside<'a, A>,
    /// Makes the guard behave like the `&mut T` that it represents.
    _data: PhantomData<&'a mut T>,
}

// SAFETY: a guard is a `&mut T` and the duty to exit, and every algorithm permits the exit on any thread. Only the raw
// pointer prevents the automatic implementation.
unsafe impl<A: Algorithm, T: Send> Send for MutexGuard<'_, A, T> {}
// SAFETY: a shared guard gives only `&T`.
unsafe impl<A: Algorithm, T: Sync> Sync for MutexGuard<'_, A, T> {}

impl<'a, A: Algorithm, T> MutexGuard<'a, A, T> {
    /// Enters through a slot.
    pub(crate) fn enter(
        slot: &'a mut Slot<'_, A, T>,
        strategy: &mut impl WaitStrategy,
    ) -> Result<Self, WaitEnded> {
        let value = slot.value();
        let inside = slot.go_inside(strategy)?;
        Ok(Self { pointer: value.0.get_mut(), _inside: inside, _data: PhantomData })
    }
}

impl<A: Algorithm, T> Deref for MutexGuard<'_, A, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the pointer is to the data of a lock that outlives the guard. The slot entered before the pointer was
        // made, and exits only after this guard is dropped: the algorithm guarantees that there is no other guard, and
        // this one is borrowed for as long as the reference lives.
        #[cfg(not(loom))]
        return unsafe { &*self.pointer };
        // SAFETY: as above; in addition loom panics if another guard has a pointer at the same time.
        #[cfg(loom)]
        return unsafe { self.pointer.deref() };
    }
}

impl<A: Algorithm, T> DerefMut for MutexGuard<'_, A, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively for as long as the reference lives.
        #[cfg(not(loom))]
        return unsafe { &mut *self.pointer };
        // SAFETY: as above.
        #[cfg(loom)]
        return unsafe { self.pointer.deref() };
    }
}

impl<A: Algorithm, T: fmt::Debug> fmt::Debug for MutexGuard<'_, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
