//! The checker: compared with published counts and another checker, and run on every algorithm and mutant.

mod algorithms;
mod gallery;
mod proofs;
mod reduction;
mod same_counts;
mod symmetry;
mod tla;
mod tlc;
