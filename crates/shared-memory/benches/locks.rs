//! What each lock costs, beside `std::sync::Mutex` and `parking_lot::Mutex`.
//!
//! `cargo bench -p lockkeeper-shared-memory`
//!
//! A program of its own, without a harness: threads that contend are timed as a whole, and each number is the median of
//! five runs. The critical section adds one to a number; nothing else is done between entries.

use lockkeeper_shared_memory::{
    Algorithm, Bakery, BlackWhiteBakery, Dijkstra, Mutex, Semaphore, Slot, TestAndSet,
};
use std::sync::Barrier;
use std::time::Instant;

/// Entries of each run without and with contention.
const ALONE: u64 = 1_000_000;
const TOGETHER: u64 = 200_000;

/// One thread's way to the number.
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
        *self.lock().expect("nobody panics") += 1;
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
    println!("\nnobody else wants in: nanoseconds for an entry and an exit, by the lock's number of slots");
    println!("  {:24} {:>9} {:>9} {:>9}", "", "1 slot", "4 slots", "16 slots");
    row("std::sync::Mutex", [1, 1, 1].map(|_| std_mutex(1, ALONE)));
    row("parking_lot::Mutex", [1, 1, 1].map(|_| parking_lot(1, ALONE)));
    row("test-and-set", [1, 4, 16].map(|slots| slotted::<TestAndSet>(slots, 1, ALONE)));
    row("semaphore", [1, 4, 16].map(|slots| slotted::<Semaphore>(slots, 1, ALONE)));
    row("dijkstra", [1, 4, 16].map(|slots| slotted::<Dijkstra>(slots, 1, ALONE)));
    row("bakery", [1, 4, 16].map(|slots| slotted::<Bakery>(slots, 1, ALONE)));
    row("black-white-bakery", [1, 4, 16].map(|slots| slotted::<BlackWhiteBakery>(slots, 1, ALONE)));

    println!("\nall want in all the time: nanoseconds from one entry to the next, by the number of threads");
    println!("  {:24} {:>9} {:>9} {:>9}", "", "2 threads", "4 threads", "8 threads");
    let threads = [2, 4, 8];
    row("std::sync::Mutex", threads.map(|threads| std_mutex(threads, TOGETHER)));
    row("parking_lot::Mutex", threads.map(|threads| parking_lot(threads, TOGETHER)));
    row("test-and-set", threads.map(|threads| slotted::<TestAndSet>(threads, threads, TOGETHER)));
    row("semaphore", threads.map(|threads| slotted::<Semaphore>(threads, threads, TOGETHER)));
    row("dijkstra", threads.map(|threads| slotted::<Dijkstra>(threads, threads, TOGETHER)));
    row("bakery", threads.map(|threads| slotted::<Bakery>(threads, threads, TOGETHER)));
    row("black-white-bakery", threads.map(|threads| slotted::<BlackWhiteBakery>(threads, threads, TOGETHER)));
}

fn row(name: &str, nanoseconds: [f64; 3]) {
    let [a, b, c] = nanoseconds;
    println!("  {name:24} {a:>9.1} {b:>9.1} {c:>9.1}");
}

fn slotted<A: Algorithm>(slots: usize, threads: usize, entries: u64) -> f64 {
    median(|| {
        let mutex = Mutex::<A, u64>::new(slots, 0);
        let tills = (0..threads).map(|_| mutex.slot().expect("a slot for each thread")).collect();
        let took = time(tills, entries);
        assert_eq!(mutex.into_inner(), entries);
        took
    })
}

fn std_mutex(threads: usize, entries: u64) -> f64 {
    median(|| {
        let mutex = std::sync::Mutex::new(0);
        let took = time(vec![&mutex; threads], entries);
        assert_eq!(mutex.into_inner().expect("nobody panics"), entries);
        took
    })
}

fn parking_lot(threads: usize, entries: u64) -> f64 {
    median(|| {
        let mutex = parking_lot::Mutex::new(0);
        let took = time(vec![&mutex; threads], entries);
        assert_eq!(mutex.into_inner(), entries);
        took
    })
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut runs: Vec<f64> = (0..5).map(|_| run()).collect();
    runs.sort_by(f64::total_cmp);
    runs[2]
}

/// Nanoseconds per entry, with each thread making its share of the entries.
fn time(tills: Vec<impl Till>, entries: u64) -> f64 {
    let share = entries / tills.len() as u64;
    let start = Barrier::new(tills.len() + 1);
    let took = std::thread::scope(|scope| {
        for mut till in tills {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                (0..share).for_each(|_| till.add_one());
            });
        }
        start.wait();
        Started(Instant::now())
    });
    took.0.elapsed().as_nanos() as f64 / entries as f64
}

/// When the threads began; the scope has waited for them when it hands this out.
struct Started(Instant);
