//! Atomics and yielding, as the machine has them or as loom models them; nothing else in this crate asks which.

#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};

#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic, thread::yield_now};

use atomic::{Ordering, fence};

/// What this thread wrote before is seen by the others before it reads what comes after.
///
/// No acquire or release gives that: with those alone, two threads may each write their own register, read the other's
/// old value, and both enter. Every algorithm on reads and writes lives on this order. It is a fence and not accesses
/// with `SeqCst`, since loom takes the latter for acquire and release, but models the fence.
pub(crate) fn write_before_read() {
    fence(Ordering::SeqCst);
}

/// One slot's registers, on a line of their own: a thread that writes its own does not slow down those that read others'.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);

/// One for each slot.
pub(crate) fn each<T: Default>(slots: usize) -> Box<[Padded<T>]> {
    (0..slots).map(|_| Padded::default()).collect()
}

/// `std::cell::UnsafeCell` with the face of loom's, which watches who reads and writes when.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn get_mut(&self) -> *mut T {
        self.0.get()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
