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
//! | [`simulator`] | runs in virtual time, with delays, faults and measurements |
//! | [`checker`] | every reachable state of a small system: mutual exclusion, elections, shared registers |
//! | [`comparison`] | tables, plots, explanations and recommendations from measured runs |
//! | [`trace`] | traces and recordings of runs in several formats |
//! | [`election`] | simulator and models of elections |
//! | [`flp`] | the impossibility of consensus with one crash, on small protocols |
//! | [`causality`] | happened-before, logical clocks and cuts of a run |
//! | [`proof`] | proof sketches, whose steps the checker verifies |
//! | [`algorithm`] | an algorithm as a value: the rest of the lab is compiled once, not once per algorithm |
//! | [`pseudocode`] | the pseudo-code of the algorithms, line by line, with the rules that each line belongs to |
//! | [`quiz`] | exercises that are generated and graded by running them |
//! | [`quorum_systems`] | load and availability of quorum systems |
//! | [`stabilisation`] | self-stabilising rings, from random states and from all states |
//! | [`property`] | the properties that all of them check |
//! | [`mod@conformance`] | the conformance test of an algorithm |
//! | [`mutants`] | mutants: wrong variants that the tests must detect |
//!
//! The simulation of whole clusters is the crate `lockkeeper-cluster-lab`.

pub mod algorithm;
pub mod causality;
pub mod checker;
pub mod comparison;
pub mod conformance;
pub mod election;
pub mod flp;
pub mod mutants;
mod parallel;
pub mod proof;
pub mod property;
pub mod pseudocode;
pub mod quiz;
pub mod quorum_systems;
pub mod simulator;
pub mod stabilisation;
pub mod trace;
mod usage;

pub use conformance::{conformance, conformance_with};
pub use simulator::report::Report;
pub use simulator::run_spec::{Ending, RunSpec};
pub use simulator::runner::{Error, Progress, outcomes, processes, simulate, trace as trace_run};
pub use simulator::scenario::Scenario;
pub use simulator::spec::Spec;
pub use simulator::time::Time;
pub use usage::UsageError;
