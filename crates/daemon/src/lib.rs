//! The daemon: a member of a lock cluster that serves clients outside of its process.
//!
//! | module | what it holds |
//! |---|---|
//! | `shared` | what every way of asking needs: the member, and who may do what |
//! | `access` | tokens, and what each allows |
//! | `audit` | what was granted, released and refused, for later |
//! | `limits` | how much one client, and all of them, may ask for |

mod access;
mod audit;
mod etcd;
mod front;
mod http;
mod leases;
mod limits;
mod metrics;
mod shared;
mod trace;

pub use access::{Access, Denied, Permission, Principal};
pub use audit::{Audit, Entry};
pub use front::Front;
pub use http::{Accept, router, serve};
pub use leases::{Fault, LeaseId, Leases};
pub use limits::Limits;
pub use metrics::Metrics;
pub use shared::Shared;
