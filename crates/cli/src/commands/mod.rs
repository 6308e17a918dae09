//! One module per command.

pub mod algorithms;
pub mod elect;
pub mod generate;
pub mod locks;
pub mod run;
pub mod scenarios;
pub mod sim;
pub mod supervise;

mod duration;
mod engine;
mod words;
