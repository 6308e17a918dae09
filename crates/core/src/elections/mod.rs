//! One file per election, each readable beside its paper.

pub mod bully;
pub mod chang_roberts;
pub mod elector;
pub mod relay;
pub mod ring_election;
