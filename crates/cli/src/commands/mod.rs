//! One module per command.

pub mod algorithms;
pub mod choose;
pub mod compare;
pub mod elect;
pub mod explain;
pub mod generate;
pub mod locks;
pub mod properties;
pub mod quorums;
pub mod run;
pub mod scenarios;
pub mod sim;
pub mod supervise;

mod duration;
mod engine;
mod sim_cluster;
mod words;
