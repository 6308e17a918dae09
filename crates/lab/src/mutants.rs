//! Wrong-on-purpose variants of the algorithms: what tests must catch, or they prove nothing.
//!
//! Each differs from its twin, the real algorithm, by one guard. The build script makes them from the text of the
//! real file and the list in `build/changes.rs`.

use crate::property::Property;
use lockkeeper_core::MutualExclusion;

/// A variant.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The slug of the real algorithm.
    pub twin: &'static str,
    /// The property that it breaks.
    pub breaks: Property,
    /// What was changed.
    pub story: &'static str,
}

/// Something to be done with a variant and its twin.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<Wrong: MutualExclusion, Twin: MutualExclusion>(self) -> Self::Output;
}

mod made {
    use super::{Mutant, Property, Visitor};
    use lockkeeper_core::MutualExclusion;

    include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
}

pub use made::*;

pub mod failover {
    //! Variants that break when the coordinator crashes.

    use super::{Mutant, Property, Visitor};
    use lockkeeper_core::MutualExclusion;

    include!(concat!(env!("OUT_DIR"), "/failover_mutants.rs"));
}

pub mod election {
    //! Variants of elections.

    use crate::election::Property;
    use lockkeeper_core::Election;

    /// A variant.
    #[derive(Clone, Copy, Debug)]
    pub struct Mutant {
        /// Its name.
        pub name: &'static str,
        /// The slug of the real election.
        pub twin: &'static str,
        /// The property that it breaks.
        pub breaks: Property,
        /// What was changed.
        pub story: &'static str,
    }

    /// Something to be done with a variant and its twin.
    pub trait Visitor {
        /// What comes of it.
        type Output;

        /// Does it.
        fn visit<Wrong: Election, Twin: Election>(self) -> Self::Output;
    }

    include!(concat!(env!("OUT_DIR"), "/election_mutants.rs"));
}
