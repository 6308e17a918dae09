//! Happened-before, logical clocks and cuts of one run (Lamport 1978; Mattern and Fidge 1988).
//!
//! | module | contents |
//! |---|---|
//! | [`history`] | the events of a run and its messages; happened-before as a relation, independent of any clock |
//! | [`cut`] | consistent and inconsistent cuts |
//! | [`sentences`] | what a history and a cut show, in sentences |
//! | [`drawing`] | the space-time diagram as SVG |
//! | [`crate::trace::clocks`] | the clocks |

pub mod cut;
pub mod drawing;
pub mod history;
pub mod sentences;

pub use cut::{Cut, CutError, CutVerdict};
pub use history::{History, HistoryError, Relation};
