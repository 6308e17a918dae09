//! The daemon: a member of a lock cluster that serves clients outside of its process.
//!
//! | module | what it holds |
//! |---|---|
//! | `daemon` | [`Daemon`]: a member, and everything that serves its clients |
//! | `config` | what it is told at its start |
//! | `shared` | what every way of asking needs: the member, and who may do what |
//! | `access` | tokens, and what each allows |
//! | `rights` | every action of every protocol, and the right that it needs |
//! | `credential` | what a connection is allowed while tokens change |
//! | `audit` | what was granted, released and refused, for later |
//! | `limits`, `quotas`, `turns` | how much one client, and all of them, may ask for, and what each principal uses |
//! | `listen`, `room` | where clients connect, and how many may |
//! | `listing`, `snapshots` | what people want to see of a cluster, and the table of all locks for it |
//! | `worker` | the thread on which long lists are made |
//! | `upkeep` | what is done again and again: changed files are read again |
//! | `tls` | the daemon's certificate, and those of its clients |
//! | `native` | the protocol of the Rust client |
//! | `drift` | the allowance for clients' clocks |
//! | `leases` | what clients of all other ways have: sessions that live at one daemon |
//! | `front`, `http`, `etcd` | JSON over HTTP, and etcd's lock API, on one port |
//! | `fuzz` | with the feature `fuzzing`: what reads bytes from outside, for fuzzing |
//! | `panics` | a panic is logged with its place |
//! | `metrics`, `trace` | what is counted, and what follows an acquire through the logs |

mod access;
mod audit;
mod config;
mod credential;
mod daemon;
mod drift;
mod etcd;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod http;
mod leases;
mod limits;
mod listen;
mod listing;
mod metrics;
mod native;
mod panics;
mod quotas;
mod rights;
mod room;
mod shared;
mod snapshots;
mod tls;
mod trace;
mod turns;
mod upkeep;
mod worker;

pub use access::{Access, Denied, Permission, Principal, date, hash};
pub use audit::{Audit, Entry, Refused, Rotation};
pub use config::{CLIENTS_PORT, ClientTls, Config, HTTP_PORT, MEMBERS_PORT};
pub use daemon::{Addresses, Daemon, Ending};
pub use drift::CLIENT_DRIFT_PPM;
pub use etcd::PATHS as ETCD_PATHS;
pub use front::Front;
pub use http::{router, serve};
pub use leases::{Fault, LeaseId, Leases};
pub use limits::{Limits, PerPrincipal};
pub use listen::{Arrived, Listener, Stream, Tls};
pub use lockkeeper_cluster::{Config as MemberConfig, JoinToken, MemberId};
pub use metrics::Metrics;
pub use native::Clients;
pub use panics::log_panics;
pub use rights::{Action, table as rights_table};
pub use shared::Shared;
