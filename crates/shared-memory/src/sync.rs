//! Atomics and yielding: of the machine, or as loom models them. No other module depends on which.

#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};

#[cfg(loom)]
pub(crate) use loom::{cell::UnsafeCell, sync::atomic, thread::yield_now};

use atomic::{Ordering, fence};

/// Orders the earlier writes of this thread before its later reads, as seen by all threads.
///
/// Acquire and release do not give this order. With those alone, two threads may each write their own register, read
/// the old value of the other's, and both enter:
///
/// ```text
/// thread 0              thread 1
/// write a = true        write b = true
/// read b: false         read a: false      allowed without the fence
/// ```
///
/// Every algorithm that uses only reads and writes relies on it. It is a fence and not `SeqCst` accesses, because loom
/// treats the latter as acquire and release, but models the fence.
pub(crate) fn write_before_read() {
    fence(Ordering::SeqCst);
}

/// The registers of one slot, on cache lines of their own, so that a write does not slow down reads of other slots.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);

/// Creates one value for each slot.
pub(crate) fn each<T: Default>(slots: usize) -> Box<[Padded<T>]> {
    (0..slots).map(|_| Padded::default()).collect()
}

/// `std::cell::UnsafeCell` with the interface of loom's, which checks that accesses do not overlap.
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
