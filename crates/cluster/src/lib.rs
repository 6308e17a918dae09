//! A member of a lock cluster on a real machine.
//!
//! [`lockkeeper_member`] is the member itself, a pure state machine without I/O. This crate runs it: it provides the
//! network, consensus on disk ([`lockkeeper_consensus`]), and the clock.
//!
//! Applications start a member with the feature `member` of the crate `lockkeeper`, whose module `lockkeeper::member` has
//! the same [`Config`]: its locks then have the requests, guards and errors of every engine. This crate is the part that
//! this engine and the daemon share. How they request a lock here is not documented, and changes with any version; what
//! the module of that crate does not offer, such as [`Member::query_all`], [`Member::change_settings`] and
//! [`Member::register_metrics`], a program finds here:
//!
//! ```no_run
//! # #[tokio::main] async fn main() -> lockkeeper_cluster::Result<()> {
//! use lockkeeper_cluster::{Config, Member};
//!
//! let member = Member::start(Config::alone("/var/lib/my-service/locks")).await?;
//! member.register_metrics(&mut prometheus_client::registry::Registry::default());
//! member.ready().await?;
//! // let locks = lockkeeper::member::Member::from(member).locks();
//! # Ok(()) }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `member` | [`Member`]: start, query the cluster, stop; requests of the process's own clients |
//! | [`settings`] | parsing and printing of the settings that all members share |
//! | `acquire`, `hold_guard` | a request for a lock, and a hold on one |
//! | `driver` | runs the state machine: feeds it one event at a time and carries out the actions |
//! | `engine` | the interface between the API and a member, independent of the algorithm |
//! | `local` | clients in the member's own process |
//! | `dispatch` | dispatches incoming messages to the member or to consensus |
//! | `join_token` | the secret that all members of one cluster share |
//! | `net` | connections between members: frames, TLS, limits |
//! | `metrics` | counters and histograms for Prometheus |
//! | `fuzz` | with the feature `fuzzing`: entry points of the decoders for untrusted input |

mod acquire;
mod config;
mod dispatch;
mod driver;
mod engine;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod hold_guard;
mod join_token;
mod local;
mod member;
mod metrics;
mod net;
mod not_serving;
pub mod settings;

#[doc(hidden)]
pub use acquire::Acquire;
pub use acquire::MOST_PERMITS;
pub use config::{Config, ConfigError, Times};
pub use dispatch::QueryHandler;
pub use engine::{ClientIdentity, ClientTransport, MemberStatus};
pub use error::{Error, OptionError, Result};
#[doc(hidden)]
pub use hold_guard::{HoldGuard, is_expiry, is_revocation, revoker_in};
pub use join_token::{JoinToken, JoinTokenError};
pub use lockkeeper_consensus::SettingsError as ConsensusSettingsError;
pub use lockkeeper_member::{
    Acquisition, ClusterSettings, LONGEST_NAME, LONGEST_PAYLOAD, LockList, LockMode, LockName, LockStatus,
    MOST_TABLE_BYTES, MemberId, Node, Participant, Proof, Query, Reply, SessionId, SettingsError, ToClient,
    ToMember, View, WaitCause, WaitExplanation, WaitGraph,
};
pub use lockkeeper_system::lease_clock::now_ns;
pub use member::{AdoptedSession, Member, Voters};
pub use net::Error as NetError;
pub use net::authority::{self, Authority, AuthorityError};
pub use net::tls::{Pem, Tls, TlsError};
pub use not_serving::{NotServing, NotServingReason};
