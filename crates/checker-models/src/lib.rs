//! One model in the form of two checkers, so that they can be compared: their counts by the tests of the lab, their
//! speed and memory by its benchmark and by `lockkeeper bench check`.

pub mod lamport_mutex;
#[cfg(feature = "stateright")]
pub mod stateright_model;
