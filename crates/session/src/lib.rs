//! The client's half of a session with a member of a lock cluster, as pure state machines: no I/O, no clock, no
//! randomness.
//!
//! A client opens a session with a member, keeps it alive, and requests locks through it. The client's half is here, so
//! that a client does not contain the algorithms and the state of members; the member's half is in `lockkeeper-member`.
//! The cluster's simulation runs both halves against each other.
//!
//! | module | content |
//! |---|---|
//! | [`client_session`] | [`ClientSession`]: the lease, the acquisitions and the delegations of a session |
//! | [`client_link`] | [`ClientLink`]: when the client resends, gives up a daemon, and connects to another one |
//! | `delegation` | a lock that stays with its client, which may enter it again without messages |
//! | `durable` | recorded holds, which survive their member |
//! | [`messages`] | messages between a client and its member |
//! | `ids` | [`SessionId`], [`Acquisition`], [`LockName`], [`Proof`] |
//! | [`fence`] | [`Fence`]: (epoch, clock) in one number |
//! | [`bug_switches`] | [`BugSwitch`]: safeguards that simulations leave out; daemons and clients contain none (feature `bug-switches`) |
//! | `protocol` | the native protocol: frames, messages and versions between clients and daemons (feature `protocol`) |
#![no_std]

extern crate alloc;
#[cfg(feature = "protocol")]
extern crate std;

pub mod bug_switches;
pub mod client_link;
pub mod client_session;
mod delegation;
mod durable;
pub mod fence;
mod ids;
pub mod messages;
#[cfg(feature = "protocol")]
pub mod protocol;

#[cfg(feature = "bug-switches")]
pub use bug_switches::UnknownBugSwitch;
pub use bug_switches::{BugSwitch, Bugs, NoBugs};
pub use client_link::{ClientLink, ClientSettings, Connection, LinkEnd};
pub use client_session::{ClientSession, MAX_DELEGATION_NS, Progress};
pub use fence::Fence;
pub use ids::{Acquisition, LockName, Proof, SessionId};
pub use lockkeeper_text::{BadText, LONGEST_NAME, LONGEST_TAG, LockMode, check_name, check_tag};
pub use messages::*;
