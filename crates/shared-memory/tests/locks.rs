//! Every lock, as a program uses it: with threads, panics, people who give up, and guards that are forgotten.
#![cfg(not(loom))]

use lockkeeper_shared_memory::{
    Algorithm, Bakery, BlackWhiteBakery, Dijkstra, Mutex, Semaphore, TestAndSet, mutex::Slot,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often each thread enters where threads really contend; miri takes its time.
const ENTRIES: usize = if cfg!(miri) { 10 } else { 2_000 };
/// How often somebody looks again before it is clear that it does not enter.
const LOOKS: usize = 100;

/// The same tests for each algorithm.
macro_rules! for_each_lock {
    ($($module:ident: $algorithm:ty;)*) => { $(
        mod $module {
            use super::*;

            #[test]
            fn one_at_a_time() {
                super::one_at_a_time::<$algorithm>();
            }

            #[test]
            fn slots_are_counted_and_come_back() {
                super::slots_are_counted_and_come_back::<$algorithm>();
            }

            #[test]
            fn who_panics_inside_leaves() {
                super::who_panics_inside_leaves::<$algorithm>();
            }

            #[test]
            fn who_gives_up_is_not_waited_for() {
                super::who_gives_up_is_not_waited_for::<$algorithm>();
            }

            #[test]
            fn who_panics_while_it_waits_is_not_waited_for() {
                super::who_panics_while_it_waits_is_not_waited_for::<$algorithm>();
            }

            #[test]
            fn a_forgotten_guard_ends_with_its_slot() {
                super::a_forgotten_guard_ends_with_its_slot::<$algorithm>();
            }

            #[test]
            fn a_guard_may_leave_on_another_thread() {
                super::a_guard_may_leave_on_another_thread::<$algorithm>();
            }
        }
    )* };
}

for_each_lock! {
    dijkstra: Dijkstra;
    bakery: Bakery;
    black_white_bakery: BlackWhiteBakery;
    test_and_set: TestAndSet;
    semaphore: Semaphore;
}

fn lock<A: Algorithm, T>(slots: usize, value: T) -> Mutex<A, T> {
    Mutex::new(slots, value)
}

fn one_at_a_time<A: Algorithm>() {
    for threads in 1..=4 {
        // Two numbers that differ by turns only inside: whoever saw them differ came in too early.
        let mutex = lock::<A, _>(threads, (0, 0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let mut slot = mutex.slot().unwrap();
                scope.spawn(move || {
                    for _ in 0..ENTRIES {
                        let mut pair = slot.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        std::thread::yield_now();
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner(), (threads * ENTRIES, threads * ENTRIES));
    }
}

fn slots_are_counted_and_come_back<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let first = mutex.slot().unwrap();
    let mut second = mutex.slot().unwrap();
    let none = mutex.slot().unwrap_err().to_string();
    assert!(none.starts_with("all 2 slots of the lock are taken"), "{none}");
    *second.lock() += 1;
    drop(first);
    let mut third = mutex.slot().expect("the first one's slot is free again");
    *third.lock() += 1;
    assert!(mutex.slot().is_err());
    drop((second, third));
    assert_eq!(mutex.into_inner(), 2);
}

fn who_panics_inside_leaves<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let mut slot = mutex.slot().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = slot.lock();
        *guard = 7;
        panic!("inside");
    }));
    assert!(panic.is_err());
    assert_eq!(*mutex.slot().unwrap().lock(), 7, "entered, and found what the other left behind");
    assert_eq!(*slot.lock(), 7);
}

fn who_gives_up_is_not_waited_for<A: Algorithm>() {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, mut waiter, mut third) = three(&mutex);
    let guard = holder.lock();
    let mut looks = 0;
    let entered = waiter.lock_while(|| {
        looks += 1;
        looks < LOOKS
    });
    assert!(entered.is_none());
    drop(entered);
    assert_eq!(looks, LOOKS, "it waited as long as it was told to");
    assert!(third.try_lock().is_none());
    drop(guard);
    // Whichever of them tries first, nothing that was begun stands in its way.
    assert!(third.try_lock().is_some());
    assert!(waiter.try_lock().is_some());
    assert!(holder.try_lock().is_some());
}

fn who_panics_while_it_waits_is_not_waited_for<A: Algorithm>() {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, mut waiter, mut third) = three(&mutex);
    let guard = holder.lock();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _never = waiter.lock_while(|| panic!("while waiting"));
    }));
    assert!(panic.is_err());
    drop(guard);
    assert!(third.try_lock().is_some());
    assert!(waiter.try_lock().is_some());
}

fn a_forgotten_guard_ends_with_its_slot<A: Algorithm>() {
    let mutex = lock::<A, _>(3, 0);
    let (mut forgetful, mut other, _third) = three(&mutex);
    std::mem::forget(forgetful.lock());
    assert!(other.try_lock().is_none(), "still inside");
    *forgetful.lock() += 1;
    assert!(other.try_lock().is_some(), "locked again, and left");
    std::mem::forget(forgetful.lock());
    assert!(other.try_lock().is_none(), "still inside");
    drop(forgetful);
    assert!(other.try_lock().is_some(), "its slot is gone");
}

fn a_guard_may_leave_on_another_thread<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let mut slot = mutex.slot().unwrap();
    let mut guard = slot.lock();
    std::thread::scope(|scope| {
        scope.spawn(move || *guard += 1);
    });
    assert_eq!(*mutex.slot().unwrap().try_lock().expect("free"), 1);
}

fn three<A: Algorithm, T>(mutex: &Mutex<A, T>) -> (Slot<'_, A, T>, Slot<'_, A, T>, Slot<'_, A, T>) {
    let mut slots = (0..3).map(|_| mutex.slot().expect("three slots"));
    let mut slot = || slots.next().expect("three slots");
    (slot(), slot(), slot())
}

/// The holder is inside, the early one waits, and then the late one comes: does the late one get in before the early
/// one? On one thread, since a waiting slot runs whatever it is told to before it looks again.
fn overtakes<A: Algorithm>(early_slot: usize) -> bool {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, one, other) = three(&mutex);
    let (mut early, mut late) = if early_slot == 1 { (one, other) } else { (other, one) };
    let mut guard = Some(holder.lock());
    let mut overtaken = false;
    let mut first = true;
    let entered = early.lock_while(|| {
        // The early one waits, so that it is through its doorway.
        if std::mem::take(&mut first) {
            let mut looks = 0;
            let ahead = late.lock_while(|| {
                // And so is the late one. Now the holder leaves.
                guard = None;
                looks += 1;
                looks < LOOKS
            });
            overtaken = ahead.is_some();
        }
        true
    });
    assert!(entered.is_some(), "the early one enters in the end");
    overtaken
}

#[test]
fn in_a_bakery_who_is_first_through_the_doorway_enters_first() {
    for early in [1, 2] {
        assert!(!overtakes::<Bakery>(early));
        assert!(!overtakes::<BlackWhiteBakery>(early));
    }
}

#[test]
fn elsewhere_the_one_who_looks_first_enters_first() {
    for early in [1, 2] {
        assert!(overtakes::<Dijkstra>(early));
        assert!(overtakes::<TestAndSet>(early));
        assert!(overtakes::<Semaphore>(early));
    }
}

#[test]
#[should_panic(expected = "at least one slot")]
fn a_lock_without_slots_is_refused() {
    lock::<Bakery, _>(0, ());
}

#[test]
fn a_semaphore_lets_as_many_in_as_it_has_permits() {
    let semaphore = Semaphore::with_permits(2);
    let inside = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ENTRIES {
                    let permit = semaphore.acquire();
                    let with_me = inside.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                    assert!(with_me <= 2, "{with_me} inside");
                    inside.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(semaphore.free(), 2);
    semaphore.v();
    assert_eq!(semaphore.free(), 3, "anybody may give a permit");
}
