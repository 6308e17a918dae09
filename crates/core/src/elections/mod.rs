//! Elections, one file each, to be read beside the paper.

pub mod bully;
pub mod chang_roberts;
pub mod elector;
pub mod hirschberg_sinclair;
pub mod itai_rodeh;
pub mod raft;
pub mod relay;
pub mod ring_election;
