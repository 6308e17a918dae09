//! The daemon: a cluster member that serves clients in other processes.
//!
//! | module | contents |
//! |---|---|
//! | `daemon` | [`Daemon`]: a member and the listeners that serve its clients |
//! | `config` | the daemon's configuration |
//! | `context` | state that all protocols use: the member, access control and the audit log |
//! | `access` | tokens and their permissions |
//! | `rights` | every action of every protocol and the right that it needs |
//! | `credential` | the rights of an open connection, kept current while tokens change |
//! | `audit` | the audit log of grants, releases and refusals |
//! | `limits`, `quotas`, `list_permits` | limits of the daemon and of each principal; the usage of each principal |
//! | `listen`, `connection_limit` | listeners, and the limit on connections |
//! | `listing`, `snapshots` | replies for operators and observers; the snapshot of all locks behind them |
//! | `worker` | the thread that builds long lists |
//! | `maintenance` | periodic work, such as reloading changed files |
//! | `tls` | TLS: the daemon's certificate and client certificates |
//! | `native` | the protocol of the Rust client |
//! | `drift` | the allowance for the drift of clients' clocks |
//! | `leases` | the sessions of HTTP and etcd clients, each of which lives at one daemon |
//! | `client_service`, `http`, `etcd` | JSON over HTTP, and etcd's lock API, on one port |
//! | `fuzz` | with the feature `fuzzing`: entry points of the parsers for untrusted input |
//! | `panics` | logging of panics with their location |
//! | `metrics`, `trace` | metrics, and trace contexts that follow an acquire through the logs |

mod access;
mod audit;
mod client_service;
mod config;
mod connection_limit;
mod context;
mod credential;
mod daemon;
mod drift;
mod etcd;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod http;
mod leases;
mod limits;
mod list_permits;
mod listen;
mod listing;
mod maintenance;
mod metrics;
mod native;
mod panics;
mod quotas;
mod rights;
mod snapshots;
mod tls;
mod trace;
mod worker;

pub use access::{Access, Denied, ExpiryError, Permission, Principal, TokenFileError, date, hash};
pub use audit::{Audit, AuditEntry, AuditEvent, RefusalReason, Rotation};
pub use client_service::ClientService;
pub use config::{CLIENTS_PORT, ClientTls, Config, ConfigError, HTTP_PORT, MEMBERS_PORT};
pub use connection_limit::TooFewFiles;
pub use context::DaemonContext;
pub use daemon::{Addresses, Daemon, Ending, StartError};
pub use drift::CLIENT_DRIFT_PPM;
pub use etcd::PATHS as ETCD_PATHS;
pub use http::{router, serve};
pub use leases::{LeaseError, LeaseId, Leases};
pub use limits::{Limits, PerPrincipal};
pub use listen::{Accepted, HandshakeError, ListenError, Listener, Stream, Tls};
pub use lockkeeper_cluster::{Config as MemberConfig, JoinToken, MemberId};
pub use metrics::Metrics;
pub use native::Clients;
pub use panics::log_panics;
pub use rights::{Action, table as rights_table};
pub use tls::ClientTlsError;
