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
use crate::{Algorithm, Bakery, BlackWhiteBakery, Dijkstra, Mutex, Semaphore, TestAndSet};
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

holds! {
    dijkstra: Dijkstra;
    bakery: Bakery;
    black_white_bakery: BlackWhiteBakery;
    test_and_set: TestAndSet;
    semaphore: Semaphore;
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

/// Dijkstra's algorithm without its fence: both slots announce themselves, and neither sees the other.
struct UnfencedDijkstra(Dijkstra);

impl Sealed for UnfencedDijkstra {}

impl Algorithm for UnfencedDijkstra {
    const ABOUT: About = Dijkstra::ABOUT;

    fn new(slots: usize) -> Self {
        Self(Dijkstra::new(slots))
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.0.try_to_enter(me, strategy, || ())
    }

    fn exit(&self, me: usize) {
        self.0.exit(me);
    }

    fn withdraw(&self, me: usize) {
        self.0.withdraw(me);
    }
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
}
