//! Whole clusters in virtual time: the very [`Member`](lockkeeper_member::Member)s that real drivers run, on machines that crash,
//! pause and drift, over a network that cuts, loses, repeats and delays, beside a model of consensus that lags.
//!
//! A run has two halves. In the first, faults happen as the seed wants. Then everything heals, and whoever still waits must be
//! served within [`ClusterSpec::PATIENCE_NS`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | [`ClusterSpec`]: everything a run is a function of, beside the seed |
//! | `sim` | the event loop |
//! | `machine` | clocks that drift; machines that stop |
//! | `net` | cuts, losses, repetitions, delays |
//! | `consensus` | the model of the port |
//! | `faults` | the schedule of what goes wrong |
//! | `troubles` | how it happens, and passes |
//! | `clients` | clients: what they want, how long they hold it |
//! | `hoards` | clients that hold hundreds of locks |
//! | `connections` | drives the clients' links: connections to daemons, messages, timers |
//! | `tenants`, `leases` | clients without a session of their own, and the daemons' half of their leases |
//! | [`watch`] | what must hold |

mod clients;
mod connections;
mod consensus;
mod faults;
#[cfg(test)]
mod histories;
mod hoards;
mod leases;
mod machine;
mod net;
mod runner;
mod sim;
pub mod spec;
mod tenants;
mod troubles;
pub mod watch;

pub use faults::Fault;
pub use runner::{ClusterReport, Found, algorithms, run, run_traced};
pub use sim::{Line, Trace};
pub use spec::ClusterSpec;
pub use watch::{Outcome, Promise};
