//! Benchmarks of Lockkeeper and its alternatives: on the same machine, in one run, with the same workload and
//! the same client loop. `lockkeeper bench` is the command around it; `docs/benchmarks.md` describes the
//! measurements and their fairness.
//!
//! ```text
//!   locks ── for each repeat, engine, workload ──┐
//!     │ servers   started on loopback, ended     │ worker   processes of clients: `lockkeeper bench client`
//!     ▼                                          ▼
//!   etcd, redis-server, `lockkeeper up`, …  ◀──  client   one loop over `trait Client`, checked by `exclusion`
//!                                                │
//!   run: figures, medians  ◀── JSON lines ───────┘
//! ```

pub mod checker;
pub mod client;
pub mod engine;
pub mod exclusion;
pub mod failover;
pub mod growth;
pub mod locks;
pub mod machine;
pub mod process;
pub mod report;
pub mod run;
pub mod servers;
pub mod simulator;
pub mod workload;

mod error;
mod job;
mod metrics;
mod page;
mod worker;

pub use error::{BenchError, FileError, Missing};
