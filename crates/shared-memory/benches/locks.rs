//! The cost of each lock, compared with `std::sync::Mutex` and `parking_lot::Mutex`.
//!
//! `cargo bench -p lockkeeper-shared-memory`
//!
//! A program of its own, without a harness: contending threads are timed as a whole, and each number is the median of
//! five runs. The critical section adds one to a number; threads do nothing else between entries.

use lockkeeper_shared_memory::{
    Algorithm, Bakery, BlackWhiteBakery, Clh, Dijkstra, EisenbergMcGuire, Filter, Mcs, Mutex, Peterson,
    Semaphore, Slot, Szymanski, TestAndSet, Ticket,
};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The duration of each run: many time slices of the scheduler, so that threads really contend.
const RUN: Duration = Duration::from_millis(200);

/// The access of one thread to the number.
trait Till: Send {
    fn add_one(&mut self);
}

impl<A: Algorithm> Till for Slot<'_, A, u64> {
    fn add_one(&mut self) {
        *self.lock() += 1;
    }
}

impl Till for &std::sync::Mutex<u64> {
    fn add_one(&mut self) {
        *self.lock().expect("no thread panics") += 1;
    }
}

impl Till for &parking_lot::Mutex<u64> {
    fn add_one(&mut self) {
        *self.lock() += 1;
    }
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    println!("{cores} cores; median of five runs");
    println!("\nwithout contention: nanoseconds for an entry and an exit, by the number of slots");
    println!("  {:24} {:>9} {:>9} {:>9}", "", "1 slot", "4 slots", "16 slots");
    row("std::sync::Mutex", [1, 1, 1].map(|_| std_mutex(1)));
    row("parking_lot::Mutex", [1, 1, 1].map(|_| parking_lot(1)));
    for (name, run) in LOCKS {
        row(name, [1, 4, 16].map(|slots| run(slots, 1)));
    }

    println!("\nfull contention: nanoseconds from one entry to the next, by the number of threads");
    println!("  {:24} {:>9} {:>9} {:>9}", "", "2 threads", "4 threads", "8 threads");
    let threads = [2, 4, 8];
    row("std::sync::Mutex", threads.map(std_mutex));
    row("parking_lot::Mutex", threads.map(parking_lot));
    for (name, run) in LOCKS {
        row(name, threads.map(|threads| run(threads, threads)));
    }
}

/// Runs a lock with a number of slots, of which a number of threads use one each.
type Run = fn(slots: usize, threads: usize) -> f64;

/// The locks of this crate.
const LOCKS: [(&str, Run); 12] = [
    ("test-and-set", slotted::<TestAndSet>),
    ("semaphore", slotted::<Semaphore>),
    ("ticket", slotted::<Ticket>),
    ("mcs", slotted::<Mcs>),
    ("clh", slotted::<Clh>),
    ("dijkstra", slotted::<Dijkstra>),
    ("eisenberg-mcguire", slotted::<EisenbergMcGuire>),
    ("bakery", slotted::<Bakery>),
    ("peterson", slotted::<Peterson>),
    ("filter", slotted::<Filter>),
    ("szymanski", slotted::<Szymanski>),
    ("black-white-bakery", slotted::<BlackWhiteBakery>),
];

fn row(name: &str, nanoseconds: [f64; 3]) {
    let [a, b, c] = nanoseconds;
    println!("  {name:24} {a:>9.1} {b:>9.1} {c:>9.1}");
}

fn slotted<A: Algorithm>(slots: usize, threads: usize) -> f64 {
    median(|| {
        let mutex = Mutex::<A, u64>::new(slots, 0);
        let took = run((0..threads).map(|_| mutex.slot().expect("a slot for each thread")).collect());
        took.as_nanos() as f64 / mutex.into_inner() as f64
    })
}

fn std_mutex(threads: usize) -> f64 {
    median(|| {
        let mutex = std::sync::Mutex::new(0_u64);
        let took = run(vec![&mutex; threads]);
        took.as_nanos() as f64 / mutex.into_inner().expect("no thread panics") as f64
    })
}

fn parking_lot(threads: usize) -> f64 {
    median(|| {
        let mutex = parking_lot::Mutex::new(0_u64);
        let took = run(vec![&mutex; threads]);
        took.as_nanos() as f64 / mutex.into_inner() as f64
    })
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut runs: Vec<f64> = (0..5).map(|_| run()).collect();
    runs.sort_by(f64::total_cmp);
    runs[2]
}

/// All threads add one in a loop for [`RUN`]. Returns the actual duration.
fn run(tills: Vec<impl Till>) -> Duration {
    let start = Barrier::new(tills.len() + 1);
    let stop = AtomicBool::new(false);
    let mut started = Instant::now();
    std::thread::scope(|scope| {
        for mut till in tills {
            let (start, stop) = (&start, &stop);
            scope.spawn(move || {
                start.wait();
                while !stop.load(Ordering::Relaxed) {
                    till.add_one();
                }
            });
        }
        start.wait();
        started = Instant::now();
        std::thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
    });
    started.elapsed()
}
