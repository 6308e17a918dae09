//! One module per command.

pub mod elect;
pub mod generate;
pub mod locks;
pub mod run;

mod duration;
mod engine;
mod supervise;
mod words;
