//! The commands, with one module for each.

pub mod algorithms;
pub mod bench;
pub mod check;
pub mod choose;
pub mod cluster;
pub mod compare;
pub mod demo;
pub mod elect;
pub mod election;
pub mod explain;
pub mod flag_table;
pub mod generate;
pub mod lab;
pub mod locks;
pub mod operator;
pub mod process_tree;
pub mod properties;
pub mod quorums;
pub mod replay;
pub mod run;
pub mod scenarios;
pub mod sim;
pub mod step;
pub mod supervise;
pub mod threads;
pub mod token;
pub mod up;

mod bench_lab;
mod bench_locks;
mod check_cluster;
mod check_many;
mod cluster_address;
mod describe;
mod duration;
mod engine;
mod sim_cluster;
