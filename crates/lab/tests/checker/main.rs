//! The checker: against published counts, against another checker, and on every algorithm and variant.

mod algorithms;
mod gallery;
mod lamport_mutex;
mod reduction;
mod same_counts;
mod stateright_model;
mod tlc;
