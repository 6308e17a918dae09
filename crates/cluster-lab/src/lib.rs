//! Whole clusters in the lab: the same members and clients as in production, without sockets, disks and real clocks.
//!
//! | module | job |
//! |---|---|
//! | [`simulation`] | random runs in virtual time, with all faults that a cluster must survive |
//! | [`views`] | every reachable state of a small cluster while its view changes |

pub mod simulation;
pub mod views;

pub use lockkeeper_member::BugSwitch;
pub use simulation::{
    ClusterReport, ClusterSpec, Fault, Found, Line, Outcome, Property, SimulationError, Trace, UnknownFault,
    algorithms, run, run_traced,
};
