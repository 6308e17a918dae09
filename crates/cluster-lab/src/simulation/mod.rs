//! Random runs of whole clusters in virtual time.
//!
//! The members are the same [`Member`](lockkeeper_member::Member)s that real drivers run. Their machines crash, pause
//! and have drifting clocks; the network cuts links and loses, duplicates and delays frames; consensus is a model that
//! lags behind.
//!
//! A run has two phases. In the first, faults happen as the seed determines. Then all faults end, and every waiter must
//! be served within [`ClusterSpec::longest_wait_ns`].
//!
//! | module | content |
//! |---|---|
//! | [`spec`] | [`ClusterSpec`]: the input of a run, except for the seed |
//! | `sim` | the event loop |
//! | `machine` | machines that stop, and clocks that drift |
//! | `net` | cut links; lost, duplicated and delayed messages |
//! | `consensus` | the model of the consensus port |
//! | `faults` | draws the schedule of the faults |
//! | `fault_injection` | applies the faults and repairs them |
//! | `clients` | clients: which locks they request, and how long they hold them |
//! | `long_holders` | clients that hold hundreds of locks |
//! | `connections` | drives the clients' links: connections to daemons, messages, timers |
//! | `tenants` | clients without a session of their own |
//! | `daemon_leases` | the daemons' half of their leases |
//! | `leases` | drives both |
//! | `recorded_holds` | checks starts and promises against the table of recorded holds |
//! | [`observer`] | the properties that every run must satisfy |

mod clients;
mod connections;
mod consensus;
#[cfg(test)]
mod consensus_tests;
mod daemon_leases;
mod fault_injection;
mod faults;
mod leases;
mod long_holders;
mod machine;
mod net;
pub mod observer;
mod recorded_holds;
mod runner;
mod sim;
pub mod spec;
mod tenants;

pub use faults::{Fault, UnknownFault};
pub use observer::{Outcome, Property};
pub use runner::{ClusterReport, Found, SimulationError, algorithms, run, run_traced};
pub use sim::{Line, Trace};
pub use spec::ClusterSpec;
