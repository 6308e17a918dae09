//! Mutual exclusion for threads that share memory.
//!
//! Twelve algorithms behind one safe lock around data. A lock has a fixed number of *slots*, as the papers have a fixed
//! number of processes; a thread takes a slot and locks through it.
//!
//! ```
//! use lockkeeper_shared_memory::BakeryMutex;
//!
//! let balance = BakeryMutex::new(2, 1_000);
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         let mut atm = balance.slot().expect("two slots for two threads");
//!         scope.spawn(move || *atm.lock() += 10_000);
//!     }
//! });
//! assert_eq!(balance.into_inner(), 21_000);
//! ```
//!
//! | module | lock | requirements on the machine, and guarantees |
//! |---|---|---|
//! | [`dijkstra`] | [`DijkstraMutex`] | reads and writes; a thread may starve |
//! | [`eisenberg_mcguire`] | [`EisenbergMcGuireMutex`] | reads and writes; at most N−1 turns of others |
//! | [`bakery`] | [`BakeryMutex`] | reads and writes; first come, first served; growing tickets |
//! | [`peterson`] | [`PetersonMutex`] | reads and writes; every thread enters |
//! | [`filter`] | [`FilterMutex`] | reads and writes; every thread enters |
//! | [`szymanski`] | [`SzymanskiMutex`] | reads and writes; every thread enters |
//! | [`black_white_bakery`] | [`BlackWhiteBakeryMutex`] | reads and writes; first come, first served; small tickets |
//! | [`test_and_set`] | [`TestAndSetMutex`] | an atomic read-modify-write instruction; a thread may starve |
//! | [`semaphore`] | [`SemaphoreMutex`] | the same |
//! | [`ticket`] | [`TicketMutex`] | an atomic fetch-and-add; first come, first served |
//! | [`mcs`] | [`McsMutex`] | an atomic exchange and compare-and-swap; first come, first served |
//! | [`clh`] | [`ClhMutex`] | an atomic exchange; first come, first served |
//!
//! All of them wait by polling, and let other threads run in between: see [`wait_strategy`]. For a program that only needs a
//! lock, `std::sync::Mutex` is the better choice; `cargo bench` measures the difference.
//!
//! **A thread that panics inside** leaves the critical section like one that returns: the guard is dropped, and the
//! next thread enters and finds the data as they are. There is no poisoning. **A thread that gives up**
//! ([`Slot::lock_while`], [`Slot::try_lock`]), or panics while it waits, withdraws its request, and no other thread
//! waits for it; in a queue, its place remains, and is passed over or taken again by the same slot. **A guard that is forgotten** (`std::mem::forget`) keeps the lock until its slot locks again or is
//! dropped.

pub mod algorithm;
pub mod bakery;
pub mod bank;
pub mod black_white_bakery;
pub mod clh;
pub mod dijkstra;
pub mod eisenberg_mcguire;
pub mod filter;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod mcs;
pub mod mutex;
mod mutex_guard;
pub mod peterson;
pub mod semaphore;
mod sync;
pub mod szymanski;
pub mod test_and_set;
pub mod ticket;
pub mod wait_strategy;

pub use algorithm::{ALL, About, Algorithm};
pub use bakery::Bakery;
pub use black_white_bakery::BlackWhiteBakery;
pub use clh::Clh;
pub use dijkstra::Dijkstra;
pub use eisenberg_mcguire::EisenbergMcGuire;
pub use filter::Filter;
pub use mcs::Mcs;
pub use mutex::{
    BakeryMutex, BlackWhiteBakeryMutex, ClhMutex, DijkstraMutex, EisenbergMcGuireMutex, FilterMutex,
    McsMutex, Mutex, NoFreeSlot, PetersonMutex, SemaphoreMutex, Slot, SzymanskiMutex, TestAndSetMutex,
    TicketMutex,
};
pub use mutex_guard::MutexGuard;
pub use peterson::Peterson;
pub use semaphore::Semaphore;
pub use szymanski::Szymanski;
pub use test_and_set::TestAndSet;
pub use ticket::Ticket;
