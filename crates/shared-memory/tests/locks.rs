//! Every lock as a program uses it: with threads, panics, waiters that give up, and guards that are forgotten.
#![cfg(not(loom))]

use lockkeeper_shared_memory::{
    Algorithm, Bakery, BlackWhiteBakery, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Mutex, Peterson,
    Semaphore, Szymanski, TestAndSet, Ticket, mutex::Slot,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of entries of each thread where threads really contend. Smaller under miri, which is slow.
const ENTRIES: usize = if cfg!(miri) { 10 } else { 2_000 };
/// The same for locks that serve in an order: with more threads than cores, each entry may wait for a time slice.
const ORDERED_ENTRIES: usize = if cfg!(miri) { 10 } else { 250 };
/// The number of polls after which a waiter counts as kept out.
const LOOKS: usize = 100;

/// The same tests for each algorithm.
macro_rules! for_each_lock {
    ($($module:ident: $algorithm:ty, $entries:expr;)*) => { $(
        mod $module {
            use super::*;

            #[test]
            fn at_most_one_thread_is_inside() {
                super::at_most_one_thread_is_inside::<$algorithm>($entries);
            }

            #[test]
            fn dropped_slot_is_free_again() {
                super::dropped_slot_is_free_again::<$algorithm>();
            }

            #[test]
            fn panic_inside_releases_the_lock() {
                super::panic_inside_releases_the_lock::<$algorithm>();
            }

            #[test]
            fn waiter_that_gives_up_blocks_no_other() {
                super::waiter_that_gives_up_blocks_no_other::<$algorithm>();
            }

            #[test]
            fn waiter_that_panics_blocks_no_other() {
                super::waiter_that_panics_blocks_no_other::<$algorithm>();
            }

            #[test]
            fn forgotten_guard_is_released_with_its_slot() {
                super::forgotten_guard_is_released_with_its_slot::<$algorithm>();
            }

            #[test]
            fn guard_can_be_dropped_on_another_thread() {
                super::guard_can_be_dropped_on_another_thread::<$algorithm>();
            }
        }
    )* };
}

for_each_lock! {
    dijkstra: Dijkstra, ENTRIES;
    bakery: Bakery, ENTRIES;
    black_white_bakery: BlackWhiteBakery, ENTRIES;
    test_and_set: TestAndSet, ENTRIES;
    semaphore: Semaphore, ENTRIES;
    eisenberg_mcguire: EisenbergMcGuire, ORDERED_ENTRIES;
    peterson: Peterson, ORDERED_ENTRIES;
    filter: Filter, ORDERED_ENTRIES;
    szymanski: Szymanski, ORDERED_ENTRIES;
    ticket: Ticket, ORDERED_ENTRIES;
    mcs: Mcs, ORDERED_ENTRIES;
    clh: Clh, ORDERED_ENTRIES;
}

fn lock<A: Algorithm, T>(slots: usize, value: T) -> Mutex<A, T> {
    Mutex::new(slots, value)
}

fn at_most_one_thread_is_inside<A: Algorithm>(entries: usize) {
    for threads in 1..=4 {
        // The two numbers differ only inside. A thread that sees them differ entered too early.
        let mutex = lock::<A, _>(threads, (0, 0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let mut slot = mutex.slot().unwrap();
                scope.spawn(move || {
                    for _ in 0..entries {
                        let mut pair = slot.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        std::thread::yield_now();
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner(), (threads * entries, threads * entries));
    }
}

fn dropped_slot_is_free_again<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let first = mutex.slot().unwrap();
    let mut second = mutex.slot().unwrap();
    let none = mutex.slot().unwrap_err().to_string();
    assert!(none.starts_with("all 2 slots of the lock are taken"), "{none}");
    *second.lock() += 1;
    drop(first);
    let mut third = mutex.slot().expect("the first slot is free again");
    *third.lock() += 1;
    assert!(mutex.slot().is_err());
    drop((second, third));
    assert_eq!(mutex.into_inner(), 2);
}

fn panic_inside_releases_the_lock<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let mut slot = mutex.slot().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = slot.lock();
        *guard = 7;
        panic!("inside");
    }));
    assert!(panic.is_err());
    assert_eq!(*mutex.slot().unwrap().lock(), 7, "the value of the thread that panicked");
    assert_eq!(*slot.lock(), 7);
}

fn waiter_that_gives_up_blocks_no_other<A: Algorithm>() {
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
    assert_eq!(looks, LOOKS, "it polled as often as `lock_while` allows");
    assert!(third.try_lock().is_none());
    drop(guard);
    // None of the withdrawn requests delays a slot.
    assert!(third.try_lock().is_some());
    assert!(waiter.try_lock().is_some());
    assert!(holder.try_lock().is_some());
}

fn waiter_that_panics_blocks_no_other<A: Algorithm>() {
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

fn forgotten_guard_is_released_with_its_slot<A: Algorithm>() {
    let mutex = lock::<A, _>(3, 0);
    let (mut forgetful, mut other, _third) = three(&mutex);
    std::mem::forget(forgetful.lock());
    assert!(other.try_lock().is_none(), "still inside");
    *forgetful.lock() += 1;
    assert!(other.try_lock().is_some(), "the slot locked again and released");
    std::mem::forget(forgetful.lock());
    assert!(other.try_lock().is_none(), "still inside");
    drop(forgetful);
    assert!(other.try_lock().is_some(), "the slot is dropped");
}

fn guard_can_be_dropped_on_another_thread<A: Algorithm>() {
    let mutex = lock::<A, _>(2, 0);
    let mut slot = mutex.slot().unwrap();
    let mut guard = slot.lock();
    std::thread::scope(|scope| {
        scope.spawn(move || *guard += 1);
    });
    assert_eq!(*mutex.slot().unwrap().try_lock().expect("the lock is free"), 1);
}

fn three<A: Algorithm, T>(mutex: &Mutex<A, T>) -> (Slot<'_, A, T>, Slot<'_, A, T>, Slot<'_, A, T>) {
    let mut slots = (0..3).map(|_| mutex.slot().expect("three slots"));
    let mut slot = || slots.next().expect("three slots");
    (slot(), slot(), slot())
}

/// The holder is inside, the early slot waits, and then the late slot comes. Returns whether the late one enters before
/// the early one. Runs on one thread: a waiting slot calls the given closure before each poll.
fn overtakes<A: Algorithm>(early_slot: usize) -> bool {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, one, other) = three(&mutex);
    let (mut early, mut late) = if early_slot == 1 { (one, other) } else { (other, one) };
    let mut guard = Some(holder.lock());
    let mut overtaken = false;
    let mut first = true;
    let entered = early.lock_while(|| {
        // The early slot waits, so it is through its doorway.
        if std::mem::take(&mut first) {
            let mut looks = 0;
            let ahead = late.lock_while(|| {
                // The late slot waits as well. Now the holder exits.
                guard = None;
                looks += 1;
                looks < LOOKS
            });
            overtaken = ahead.is_some();
        }
        true
    });
    assert!(entered.is_some(), "the early slot enters eventually");
    overtaken
}

#[test]
fn bakeries_and_queues_serve_first_the_slot_that_is_first_through_the_doorway() {
    for early in [1, 2] {
        assert!(!overtakes::<Bakery>(early));
        assert!(!overtakes::<BlackWhiteBakery>(early));
        assert!(!overtakes::<Ticket>(early));
        assert!(!overtakes::<Mcs>(early));
        assert!(!overtakes::<Clh>(early));
    }
}

#[test]
fn other_locks_let_a_later_slot_overtake() {
    for early in [1, 2] {
        assert!(overtakes::<Dijkstra>(early));
        assert!(overtakes::<TestAndSet>(early));
        assert!(overtakes::<Semaphore>(early));
    }
}

/// The places of slots that have given up are passed over, in every order, any number of times.
fn abandoned_places_are_passed_over<A: Algorithm>() {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, mut early, mut late) = three(&mutex);
    let guard = holder.lock();
    assert!(early.try_lock().is_none() && late.try_lock().is_none());
    drop(guard);
    for _ in 0..5 {
        let guard = late.try_lock().expect("the lock is free");
        assert!(early.try_lock().is_none() && holder.try_lock().is_none() && early.try_lock().is_none());
        drop(guard);
        let guard = early.try_lock().expect("the lock is free");
        assert!(late.try_lock().is_none() && holder.try_lock().is_none());
        drop(guard);
    }
}

/// Whether a slot that has given up comes before a later slot when it comes back while the holder is inside.
fn keeps_its_place<A: Algorithm>() -> bool {
    let mutex = lock::<A, _>(3, 0);
    let (mut holder, mut early, mut late) = three(&mutex);
    let mut guard = Some(holder.lock());
    assert!(early.try_lock().is_none(), "the first place");
    let mut came_back = false;
    let entered = late.lock_while(|| {
        let mut polls = 0;
        came_back |= early
            .lock_while(|| {
                guard = None;
                polls += 1;
                polls < LOOKS
            })
            .is_some();
        true
    });
    assert!(entered.is_some());
    came_back
}

#[test]
fn queues_pass_over_slots_that_have_given_up() {
    abandoned_places_are_passed_over::<Ticket>();
    abandoned_places_are_passed_over::<Mcs>();
    abandoned_places_are_passed_over::<Clh>();
}

#[test]
fn slot_that_has_given_up_keeps_its_place_until_it_is_passed() {
    assert!(keeps_its_place::<Ticket>());
    assert!(keeps_its_place::<Mcs>());
    assert!(!keeps_its_place::<Clh>(), "the slot behind has taken the place over");
}

#[test]
#[should_panic(expected = "at least one slot")]
fn lock_without_slots_is_rejected() {
    lock::<Bakery, _>(0, ());
}

#[test]
fn semaphore_admits_as_many_threads_as_it_has_permits() {
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
    assert_eq!(semaphore.free(), 3, "any thread may add a permit");
}
