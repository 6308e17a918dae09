//! The explorer: one search for every checked system.
//!
//! A system is a [`Model`]: its initial states, the steps from each state with their successors, the
//! violations in them, and a sentence for each step. [`Search`] visits every reachable state breadth first,
//! so that the run to a violation is a shortest one. [`cycles::search`] then finds infinite runs that violate
//! liveness.
//!
//! | model | states |
//! |---|---|
//! | [`check::net::Net`](crate::checker::mutual_exclusion::net::Net) | sites that run a mutual exclusion algorithm |
//! | [`election::model::ElectionModel`](crate::election::model::ElectionModel) | sites that elect a leader |
//! | [`registers`](crate::checker::registers) | processes that share registers |
//!
//! `lockkeeper-cluster-lab` adds a model of whole members of a cluster.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | the interface of a model |
//! | [`search`] | the breadth-first search, on one or several threads |
//! | [`cycles`], [`components`] | the search for fair cycles, in strongly connected components |
//! | [`store`], [`rows`] | packed storage of the visited states |
//! | [`intern`] | parts of states as small integers |

pub mod components;
pub mod cycles;
pub mod intern;
pub mod model;
pub mod rows;
pub mod search;
pub mod store;

pub use model::{Fairness, FoundViolation, Goals, Model, Next, Run, Step, Worker};
pub use search::{Ended, Search, SearchLimits, SearchProgress};
