//! The interface of the algorithms, and the list of them.

use crate::wait_strategy::{WaitEnded, WaitStrategy};
use crate::{
    bakery, black_white_bakery, clh, dijkstra, eisenberg_mcguire, filter, mcs, peterson, semaphore,
    szymanski, test_and_set, ticket,
};
use serde::Serialize;

/// The shared registers of one algorithm, and the operations of a slot on them.
///
/// Sealed, because the lock hands out `&mut` data on the guarantee of the algorithm: a wrong implementation would be
/// unsound. Slots are numbered from 0. A slot is used by one thread at a time, which [`crate::Mutex`] ensures.
pub trait Algorithm: Sealed + Send + Sync {
    /// The description of the algorithm.
    const ABOUT: About;

    /// Creates the registers for this many slots, with no thread inside.
    fn new(slots: usize) -> Self;

    /// The trying protocol. Returns when `me` is inside. On an error the caller must call [`Algorithm::withdraw`].
    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded>;

    /// The exit protocol.
    fn exit(&self, me: usize);

    /// Undoes an [`Algorithm::enter`] that did not finish.
    fn withdraw(&self, me: usize);
}

/// Prevents implementations of [`Algorithm`] in other crates.
pub trait Sealed {}

/// The description of an algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name on the command line.
    pub slug: &'static str,
    /// The full name.
    pub title: &'static str,
    /// Always `shared memory`: the name of this family in lists of all algorithms.
    pub family: &'static str,
    /// The authors, the publication and the year.
    pub paper: &'static str,
    /// The idea, in one sentence.
    pub idea: &'static str,
    /// The requirements on the machine.
    pub needs: &'static str,
    /// The fairness among waiting threads.
    pub fairness: &'static str,
    /// The text of the source file, whose header explains the algorithm.
    #[serde(skip)]
    pub source: &'static str,
}

/// All algorithms: first those that need only reads and writes, then those that need an atomic instruction; oldest
/// first.
pub const ALL: [About; 12] = [
    dijkstra::Dijkstra::ABOUT,
    eisenberg_mcguire::EisenbergMcGuire::ABOUT,
    bakery::Bakery::ABOUT,
    peterson::Peterson::ABOUT,
    filter::Filter::ABOUT,
    szymanski::Szymanski::ABOUT,
    black_white_bakery::BlackWhiteBakery::ABOUT,
    test_and_set::TestAndSet::ABOUT,
    semaphore::Semaphore::ABOUT,
    ticket::Ticket::ABOUT,
    mcs::Mcs::ABOUT,
    clh::Clh::ABOUT,
];

/// The name of the family.
pub(crate) const FAMILY: &str = "shared memory";
