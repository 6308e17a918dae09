//! The lab: simulates, measures, checks and draws the algorithms of `lockkeeper-core`.
//!
//! Every result is a function of its inputs and a seed, on every machine and for every number of threads.
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
//! | module | contents |
//! |---|---|
//! | [`spec`] | [`Spec`], the parameters of a run |
//! | [`world`] | the sites and their steps, without time |
//! | [`sim`] | the simulator: virtual time, faults, scripts |
//! | [`network`], [`delay`] | the network: delays, losses, partitions |
//! | [`workload`], [`detector`] | requests and suspicions |
//! | [`observer`], [`metrics`], [`property`] | measurements and properties |
//! | [`trace`] | traces of runs in several formats |
//! | [`recording`] | recordings: a run with every site's state at every step |
//! | [`explore`] | the explorer: every reachable state of a model, and cycles of states |
//! | [`check`] | the checker: models of mutual exclusion, and the reports on models of every kind |
//! | [`election`] | simulator and models of elections |
//! | [`scenario`], [`figures`] | scenario files, and the textbook figures as scenarios |
//! | [`compare`], [`properties`], [`choose`], [`explain`] | tables, plots, explanations and recommendations |
//! | [`mod@conformance`] | the conformance test of an algorithm |
//! | [`registers`] | models of shared-memory algorithms: Dijkstra's and the bakeries |
//! | [`counterexamples`] | known counterexamples, each with a shortest run |
//! | [`mutants`] | mutants: wrong variants that the tests must detect |

pub mod causality;
pub mod check;
pub mod choose;
mod command;
pub mod compare;
pub mod conformance;
pub mod counterexamples;
pub mod delay;
pub mod detector;
mod dispatch;
pub mod election;
pub mod explain;
pub mod explore;
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
