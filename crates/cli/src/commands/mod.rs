//! One module per command.

pub mod algorithms;
pub mod scenarios;
pub mod sim;
