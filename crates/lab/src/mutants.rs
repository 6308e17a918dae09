//! Mutants: variants of the algorithms that are wrong on purpose. The tests must detect each of them.
//!
//! Each mutant differs from its twin, the correct algorithm, by one guard. The build script generates them
//! from the source of the algorithm and the list in `build/changes.rs`.

use crate::algorithm::Algorithm;
use crate::property::Property;

/// A mutant.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's name.
    pub name: &'static str,
    /// The mutant itself.
    pub algorithm: &'static dyn Algorithm,
    /// The slug of the correct algorithm.
    pub twin: &'static str,
    /// The property that it breaks.
    pub breaks: Property,
    /// A description of the change.
    pub story: &'static str,
}

mod made {
    use super::{Mutant, Property};
    use crate::algorithm;
    use lockkeeper_core::MutualExclusion;

    include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
}

pub use made::*;

pub mod failover {
    //! Mutants that fail when the coordinator crashes.

    use super::{Mutant, Property};
    use crate::algorithm;
    use lockkeeper_core::MutualExclusion;

    include!(concat!(env!("OUT_DIR"), "/failover_mutants.rs"));
}

pub mod election {
    //! Mutants of elections.

    use crate::election::algorithm::{self, ElectionAlgorithm};
    use crate::property::Property;
    use lockkeeper_core::Election;

    /// A mutant of an election.
    #[derive(Clone, Copy, Debug)]
    pub struct Mutant {
        /// The mutant's name.
        pub name: &'static str,
        /// The mutant itself.
        pub algorithm: &'static dyn ElectionAlgorithm,
        /// The slug of the correct election.
        pub twin: &'static str,
        /// The property that it breaks.
        pub breaks: Property,
        /// A description of the change.
        pub story: &'static str,
    }

    include!(concat!(env!("OUT_DIR"), "/election_mutants.rs"));
}
