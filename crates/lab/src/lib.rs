//! The lab: simulates, measures, breaks and draws the algorithms of `lockkeeper-core`.
//!
//! Everything here is a function of its inputs and a seed, on any machine and any number of threads.
//!
//! ```
//! use lockkeeper_lab::{Progress, Spec, simulate};
//!
//! let spec = Spec::new("ricart-agrawala", 9);
//! let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
//! assert_eq!(report.messages_per_entry, Some(16.0)); // 2(N−1)
//! assert_eq!(report.sync_delay.mean, Some(1.0)); // T
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | [`Spec`], everything a run is a function of |
//! | [`world`] | the sites and their steps, without time |
//! | [`sim`] | the simulator: virtual time, faults, scripts |
//! | [`network`], [`delay`] | what happens to messages |
//! | [`workload`], [`detector`] | who asks when; who suspects whom |
//! | [`observer`], [`metrics`], [`property`] | what is measured and what must hold |
//! | [`trace`] | the story of a run, in many forms |
//! | [`recording`] | a run kept as a whole, with every site's state at every step, to be looked at back and forth |
//! | [`election`] | the same for elections, and every run of a small one |
//! | [`scenario`], [`figures`] | runs written by hand |
//! | [`compare`], [`properties`], [`choose`], [`explain`] | tables, plots and advice for people |
//! | [`mod@conformance`] | one call that tests an algorithm |
//! | [`registers`] | shared memory: Dijkstra's algorithm and the bakeries, in every reachable state |
//! | [`famous`] | famous failures, each with the shortest run to it |
//! | [`mutants`] | wrong-on-purpose variants, which the tests must catch |

pub mod causality;
pub mod check;
pub mod choose;
mod command;
pub mod compare;
pub mod conformance;
pub mod delay;
pub mod detector;
pub mod election;
mod everyone;
pub mod explain;
pub mod famous;
pub mod figures;
pub mod metrics;
pub mod mutants;
pub mod network;
pub mod observer;
pub mod properties;
pub mod property;
pub mod queue;
pub mod recording;
pub mod registers;
pub mod report;
pub mod rng;
mod runner;
pub mod scenario;
pub mod sim;
pub mod spec;
pub mod time;
pub mod trace;
pub mod workload;
pub mod world;

pub use conformance::{conformance, conformance_with};
pub use report::Report;
pub use runner::{Error, Progress, outcomes, processes, simulate, trace as trace_run};
pub use scenario::Scenario;
pub use spec::Spec;
pub use time::Time;
