//! Whole clusters in the lab: the members and clients that production runs, without sockets, disks and real clocks.
//!
//! | module | job |
//! |---|---|
//! | [`simulation`] | random runs in virtual time, with every fault that a cluster must survive |
//! | [`views`] | every reachable state of a small cluster while its view changes |

pub mod simulation;
pub mod views;

pub use simulation::{
    ClusterReport, ClusterSpec, Fault, Found, Line, Outcome, Promise, Trace, algorithms, run, run_traced,
};
