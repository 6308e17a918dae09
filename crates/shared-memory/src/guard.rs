//! The guard, and the only unsafe code of the workspace.
//!
//! A lock around data gives `&mut T` to threads that hold only `&Mutex`: that the algorithm lets one in at a time is
//! something which the compiler cannot see. What must be believed is in this file: that [`Algorithm::enter`]
//! excludes all other slots until `exit`. loom and miri watch the cell for accesses that overlap.
#![allow(unsafe_code)]

use crate::algorithm::Algorithm;
use crate::mutex::{Inside, Slot};
use crate::patience::{GaveUp, Patience};
use crate::sync::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
type Pointer<T> = loom::cell::MutPtr<T>;
#[cfg(not(loom))]
type Pointer<T> = *mut T;

/// Data that only a [`Guard`] reaches.
#[derive(Debug)]
pub(crate) struct Protected<T>(UnsafeCell<T>);

// SAFETY: a shared `Protected` gives the data only to guards, and there is at most one guard at a time, whose owner has
// seen all that earlier guards did (acquire and release in the algorithms). So sharing it means handing the data from
// thread to thread, which is what `T: Send` allows.
unsafe impl<T: Send> Sync for Protected<T> {}

impl<T> Protected<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// The right to use the data, until it is dropped.
///
/// It may be sent to another thread if the data may, and shared if the data may be shared:
///
/// ```compile_fail,E0277
/// # use lockkeeper_shared_memory::BakeryMutex;
/// let mutex = BakeryMutex::new(1, std::cell::Cell::new(0));
/// let mut slot = mutex.slot().unwrap();
/// let guard = slot.lock();
/// std::thread::scope(|scope| { scope.spawn(|| guard.set(1)); });
/// ```
#[must_use = "a guard that is dropped at once has locked nothing"]
pub struct Guard<'a, A: Algorithm, T> {
    // Dropped first: no access to the data may follow the exit.
    pointer: Pointer<T>,
    _inside: Inside<'a, A>,
    /// A guard is like the `&mut T` that it stands for.
    _data: PhantomData<&'a mut T>,
}

// SAFETY: a guard is a `&mut T` and the duty to leave, and no algorithm cares which thread does that. Only the raw pointer
// keeps the compiler from seeing it.
unsafe impl<A: Algorithm, T: Send> Send for Guard<'_, A, T> {}
// SAFETY: a shared guard gives only `&T`.
unsafe impl<A: Algorithm, T: Sync> Sync for Guard<'_, A, T> {}

impl<'a, A: Algorithm, T> Guard<'a, A, T> {
    /// Enters through a slot.
    pub(crate) fn enter(slot: &'a mut Slot<'_, A, T>, patience: &mut impl Patience) -> Result<Self, GaveUp> {
        let value = slot.value();
        let inside = slot.go_inside(patience)?;
        Ok(Self { pointer: value.0.get_mut(), _inside: inside, _data: PhantomData })
    }
}

impl<A: Algorithm, T> Deref for Guard<'_, A, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the pointer is to the data of a lock that outlives the guard. The slot went inside before the pointer
        // was made, and leaves only after this guard is gone: by the algorithm's word there is no other guard, and
        // this one is borrowed for as long as the reference lives.
        #[cfg(not(loom))]
        return unsafe { &*self.pointer };
        // SAFETY: as above; and loom complains if another guard has a pointer at the same time.
        #[cfg(loom)]
        return unsafe { self.pointer.deref() };
    }
}

impl<A: Algorithm, T> DerefMut for Guard<'_, A, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively for as long as the reference lives.
        #[cfg(not(loom))]
        return unsafe { &mut *self.pointer };
        // SAFETY: as above.
        #[cfg(loom)]
        return unsafe { self.pointer.deref() };
    }
}

impl<A: Algorithm, T: fmt::Debug> fmt::Debug for Guard<'_, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
