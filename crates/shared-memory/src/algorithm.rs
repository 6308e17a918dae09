//! What the algorithms have in common, and the list of them.

use crate::patience::{GaveUp, Patience};
use crate::{bakery, black_white_bakery, dijkstra, semaphore, test_and_set};
use serde::Serialize;

/// One algorithm's shared registers, and how a slot uses them.
///
/// Only this crate can implement it: the lock hands out data on the word of the algorithm, so that a wrong one would be
/// unsound. Slots are numbered from 0. A slot is used by one thread at a time; [`crate::Mutex`] sees to that.
pub trait Algorithm: Sealed + Send + Sync {
    /// For people.
    const ABOUT: About;

    /// The registers for a number of slots, nobody inside.
    fn new(slots: usize) -> Self;

    /// The trying protocol: returns when `me` is inside, or has given up and not yet withdrawn.
    fn enter(&self, me: usize, patience: &mut impl Patience) -> Result<(), GaveUp>;

    /// The exit protocol.
    fn exit(&self, me: usize);

    /// Takes back what [`Algorithm::enter`] began and did not finish.
    fn withdraw(&self, me: usize);
}

/// Keeps other crates from implementing [`Algorithm`].
pub trait Sealed {}

/// An algorithm, for people.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name to type.
    pub slug: &'static str,
    /// The name to say.
    pub title: &'static str,
    /// Always `shared memory`: the name of this family in lists of all algorithms.
    pub family: &'static str,
    /// Who published it, where and when.
    pub paper: &'static str,
    /// The idea in a sentence.
    pub idea: &'static str,
    /// What it needs of the machine.
    pub needs: &'static str,
    /// What it promises those who wait.
    pub fairness: &'static str,
}

/// All of them, the oldest first.
pub const ALL: [About; 5] = [
    dijkstra::Dijkstra::ABOUT,
    bakery::Bakery::ABOUT,
    black_white_bakery::BlackWhiteBakery::ABOUT,
    test_and_set::TestAndSet::ABOUT,
    semaphore::Semaphore::ABOUT,
];

/// The name of the family.
pub(crate) const FAMILY: &str = "shared memory";
