//! Comparisons and explanations of algorithms, from measured runs.
//!
//! | module | contents |
//! |---|---|
//! | [`table`] | the measured cost of each algorithm beside the paper's figures: tables and plots |
//! | [`properties`] | the properties that each algorithm satisfies in simulated runs |
//! | [`choose`] | recommendations for a system |
//! | [`explain`] | explanations of an algorithm, with a small run |

pub mod choose;
pub mod explain;
pub mod properties;
pub mod table;
