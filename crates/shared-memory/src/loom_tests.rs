//! Two threads, in every interleaving and with every stale value that the memory model allows.
//!
//! `RUSTFLAGS='--cfg loom' cargo test -p lockkeeper-shared-memory --lib --target-dir target/loom`
//!
//! loom checks the accesses to the data: it panics if two guards exist at once, or if a guard has not seen the writes
//! of an earlier one. Three processes are checked by the lab's register machines, which have no weak memory but scale
//! further.

use crate::algorithm::{About, Sealed};
use crate::sync::write_before_read;
use crate::wait_strategy::{WaitEnded, WaitStrategy};
use crate::{
    Algorithm, Bakery, BlackWhiteBakery, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Mutex, Peterson,
    Semaphore, Szymanski, TestAndSet, Ticket,
};
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

/// Explores two threads that enter the given number of times each.
fn explore<A: Algorithm + 'static>(entries: [usize; 2], preemptions: Option<usize>) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let mutex = Arc::new(Mutex::<A, usize>::new(2, 0));
        let work = |mutex: &Mutex<A, usize>, entries: usize| {
            let mut slot = mutex.slot().expect("two slots for two threads");
            for _ in 0..entries {
                *slot.lock() += 1;
            }
        };
        let shared = mutex.clone();
        let other = thread::spawn(move || work(&shared, entries[1]));
        work(&mutex, entries[0]);
        other.join().expect("the other thread ends");
        let sum = *mutex.slot().expect("a free slot").lock();
        assert_eq!(sum, entries[0] + entries[1]);
    });
}

/// Explores a thread that enters, and one that gives up at its first wait, and then enters.
fn explore_giving_up<A: Algorithm + 'static>() {
    let mut builder = Builder::new();
    builder.preemption_bound = PREEMPTIONS;
    builder.check(|| {
        let mutex = Arc::new(Mutex::<A, usize>::new(2, 0));
        let shared = mutex.clone();
        let other = thread::spawn(move || {
            let mut slot = shared.slot().expect("two slots for two threads");
            let tried = slot.try_lock().map(|mut guard| *guard += 1).is_some();
            *slot.lock() += 1;
            usize::from(tried) + 1
        });
        *mutex.slot().expect("two slots for two threads").lock() += 1;
        let entries = other.join().expect("the other thread ends") + 1;
        assert_eq!(*mutex.slot().expect("a free slot").lock(), entries);
    });
}

/// The bound on preemptions of threads that do not wait: enough to find the bugs of the mutants below, and seconds
/// instead of minutes for the bakeries.
const PREEMPTIONS: Option<usize> = Some(3);

macro_rules! holds {
    ($($name:ident: $algorithm:ty;)*) => { $(
        #[test]
        fn $name() {
            explore::<$algorithm>([1, 1], PREEMPTIONS);
            explore::<$algorithm>([2, 1], PREEMPTIONS);
        }
    )* };
}

macro_rules! holds_with_a_thread_that_gives_up {
    ($($name:ident: $algorithm:ty;)*) => { $(
        #[test]
        fn $name() {
            explore_giving_up::<$algorithm>();
        }
    )* };
}

// The queues, whose requests stay when a thread gives up, and the waiting room, whose others must not wait for it.
holds_with_a_thread_that_gives_up! {
    ticket_that_is_abandoned: Ticket;
    mcs_node_that_is_abandoned: Mcs;
    clh_node_that_is_abandoned: Clh;
    szymanski_room_that_is_left: Szymanski;
}

holds! {
    dijkstra: Dijkstra;
    bakery: Bakery;
    black_white_bakery: BlackWhiteBakery;
    test_and_set: TestAndSet;
    semaphore: Semaphore;
    eisenberg_mcguire: EisenbergMcGuire;
    peterson: Peterson;
    filter: Filter;
    szymanski: Szymanski;
    ticket: Ticket;
    mcs: Mcs;
    clh: Clh;
}

/// The bakery with one part omitted.
struct Without<const WHAT: u8>(Bakery);
const CHOOSING: u8 = 0;
const FENCE_AFTER_CHOOSING: u8 = 1;
const FENCE_AFTER_TICKET: u8 = 2;

impl<const WHAT: u8> Sealed for Without<WHAT> {}

impl<const WHAT: u8> Algorithm for Without<WHAT> {
    const ABOUT: About = Bakery::ABOUT;

    fn new(slots: usize) -> Self {
        Self(Bakery::new(slots))
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        let unless = |what: u8, step: &dyn Fn()| {
            if WHAT != what {
                step();
            }
        };
        unless(CHOOSING, &|| self.0.begin_choosing(me));
        unless(FENCE_AFTER_CHOOSING, &write_before_read);
        self.0.take_ticket(me);
        self.0.end_choosing(me);
        unless(FENCE_AFTER_TICKET, &write_before_read);
        for j in self.0.others(me) {
            self.0.until_chosen(j, strategy)?;
            self.0.until_after(me, j, strategy)?;
        }
        Ok(())
    }

    fn exit(&self, me: usize) {
        self.0.exit(me);
    }

    fn withdraw(&self, me: usize) {
        self.0.withdraw(me);
    }
}

/// An algorithm whose trying protocol is another one.
macro_rules! with_another_entry {
    ($($(#[$doc:meta])* $name:ident($of:ty): $enter:expr;)*) => { $(
        $(#[$doc])*
        struct $name($of);

        impl Sealed for $name {}

        impl Algorithm for $name {
            const ABOUT: About = <$of as Algorithm>::ABOUT;

            fn new(slots: usize) -> Self {
                Self(<$of as Algorithm>::new(slots))
            }

            fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
                $enter(&self.0, me, strategy)
            }

            fn exit(&self, me: usize) {
                self.0.exit(me);
            }

            fn withdraw(&self, me: usize) {
                self.0.withdraw(me);
            }
        }
    )* };
}

with_another_entry! {
    /// Dijkstra's algorithm without its fence: both slots announce themselves, and neither sees the other.
    UnfencedDijkstra(Dijkstra): |of: &Dijkstra, me, strategy| of.try_to_enter(me, strategy, || ());
    /// The same of Eisenberg and McGuire's algorithm.
    UnfencedEisenbergMcGuire(EisenbergMcGuire):
        |of: &EisenbergMcGuire, me, strategy| of.try_to_enter(me, strategy, || ());
    /// Peterson's algorithm without the fence between `flag` and `turn`.
    PetersonWithoutFirstFence(Peterson):
        |of: &Peterson, me, strategy| of.try_to_enter(me, strategy, || (), write_before_read);
    /// Peterson's algorithm without the fence behind `turn`.
    PetersonWithoutSecondFence(Peterson):
        |of: &Peterson, me, strategy| of.try_to_enter(me, strategy, write_before_read, || ());
    /// The filter without the fence between `level` and `victim`.
    FilterWithoutFirstFence(Filter):
        |of: &Filter, me, strategy| of.try_to_enter(me, strategy, || (), write_before_read);
    /// The filter without the fence behind `victim`.
    FilterWithoutSecondFence(Filter):
        |of: &Filter, me, strategy| of.try_to_enter(me, strategy, write_before_read, || ());
}

macro_rules! caught {
    ($($name:ident: $algorithm:ty;)*) => { $(
        #[test]
        #[should_panic(expected = "Causality violation")]
        fn $name() {
            explore::<$algorithm>([1, 1], PREEMPTIONS);
        }
    )* };
}

caught! {
    the_bakery_without_choosing_is_caught: Without<CHOOSING>;
    the_bakery_without_its_first_fence_is_caught: Without<FENCE_AFTER_CHOOSING>;
    the_bakery_without_its_second_fence_is_caught: Without<FENCE_AFTER_TICKET>;
    dijkstra_without_its_fence_is_caught: UnfencedDijkstra;
    eisenberg_mcguire_without_its_fence_is_caught: UnfencedEisenbergMcGuire;
    peterson_without_its_first_fence_is_caught: PetersonWithoutFirstFence;
    peterson_without_its_second_fence_is_caught: PetersonWithoutSecondFence;
    filter_without_its_first_fence_is_caught: FilterWithoutFirstFence;
    filter_without_its_second_fence_is_caught: FilterWithoutSecondFence;
}
