//! One file per algorithm, each readable beside its paper.

pub mod centralized;
pub mod lamport;
pub mod ricart_agrawala;
pub mod token_ring;
pub mod token_ring_parked;
