//! A member of a lock cluster on a real machine.
//!
//! [`lockkeeper_member`] is the member itself, a pure state machine without I/O. This crate runs it: it provides the
//! network, consensus on disk, and the clock.
//!
//! ```no_run
//! # #[tokio::main] async fn main() -> lockkeeper_cluster::Result<()> {
//! use lockkeeper_cluster::{Config, Member};
//!
//! let member = Member::start(Config::alone("/var/lib/my-service/locks")).await?;
//! let guard = member.mutex("orders/42").acquire().await?;
//! println!("write with fence {}", guard.fence()); // the resource rejects lower fences
//! guard.release().await?;                         // or just drop it
//! # Ok(()) }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `member` | [`Member`]: start, request locks, query the cluster, stop |
//! | [`settings`] | parsing and printing of the settings that all members share |
//! | `acquire`, `hold_guard` | a request for a lock, and a hold on one |
//! | `driver` | runs the state machine: feeds it one event at a time and carries out the actions |
//! | `engine` | the interface between the API and a member, independent of the algorithm |
//! | `local` | clients in the member's own process |
//! | `dispatch` | dispatches incoming messages to the member or to consensus |
//! | `join_token` | the secret that all members of one cluster share |
//! | `net` | connections between members: frames, TLS, limits |
//! | `consensus`, `store` | Raft, which decides the views, and its storage on disk |
//! | `metrics` | counters and histograms for Prometheus |
//! | `fuzz` | with the feature `fuzzing`: entry points of the decoders for untrusted input |

mod acquire;
mod config;
mod consensus;
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
mod store;

pub use acquire::{Acquire, MOST_PERMITS};
pub use config::{Config, ConfigError, Times};
pub use consensus::SettingsError as ConsensusSettingsError;
pub use dispatch::QueryHandler;
pub use engine::{ClientIdentity, ClientTransport, MemberStatus};
pub use error::{Error, OptionError, Result};
pub use hold_guard::HoldGuard;
pub use join_token::{JoinToken, JoinTokenError};
pub use lockkeeper_member::{
    Acquisition, ClusterSettings, LONGEST_NAME, LONGEST_PAYLOAD, LockList, LockMode, LockName, LockStatus,
    MemberId, Node, Participant, Proof, Query, Reply, SessionId, SettingsError, ToClient, ToMember, View,
    WaitCause, WaitExplanation, WaitGraph,
};
pub use lockkeeper_system::lease_clock::now_ns;
pub use member::{AdoptedSession, Member, Voters};
pub use net::Error as NetError;
pub use net::authority::{self, Authority, AuthorityError};
pub use net::tls::{Pem, Tls, TlsError};
pub use not_serving::{NotServing, NotServingReason};
