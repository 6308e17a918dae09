//! The commands, with one module for each. The commands of optional features are in `daemon`, `bench` and `lab`.

#[cfg(any(feature = "daemon", feature = "lab"))]
pub mod algorithms;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod elect;
pub mod engines;
#[cfg(feature = "tool")]
pub mod generate;
pub mod hold;
#[cfg(feature = "lab")]
pub mod lab;
pub mod locks;
pub mod operator;
pub mod process_tree;
pub mod run;
pub mod supervise;

mod describe;
mod duration;
mod engine;
