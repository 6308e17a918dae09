//! The simulator: runs of a system in virtual time, with delays, faults and measurements.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`], [`command`] | [`Spec`](spec::Spec), the parameters of a run, and the command line that repeats it |
//! | [`runner`] | runs a spec, selecting the algorithm by its name |
//! | [`run_spec`] | a run of either kind, mutual exclusion or an election |
//! | [`run`] | one run: the event loop, faults, scripts |
//! | [`world`] | the sites and their steps, without time |
//! | [`queue`], [`time`], [`rng`] | the event queue, virtual time, random numbers |
//! | [`network`], [`delay`] | the network: delays, losses, partitions |
//! | [`workload`], [`detector`] | requests and suspicions |
//! | [`observer`], [`causality`] | the observer that checks properties during a run |
//! | [`metrics`], [`report`] | measurements, and the report of runs |
//! | [`scenario`], [`figures`] | scenario files, and the textbook figures as scenarios |

pub mod causality;
pub mod command;
pub mod delay;
pub mod detector;
pub mod figures;
pub mod metrics;
pub mod network;
pub mod observer;
pub mod queue;
pub mod report;
pub mod rng;
pub mod run;
pub mod run_spec;
pub mod runner;
pub mod scenario;
pub mod spec;
pub mod time;
pub mod workload;
pub mod world;
