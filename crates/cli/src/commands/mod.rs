//! One module per command.

pub mod algorithms;
pub mod elect;
pub mod generate;
pub mod locks;
pub mod run;
pub mod scenarios;
pub mod sim;

mod duration;
mod engine;
mod supervise;
mod words;
