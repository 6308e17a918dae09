//! A whole member of a lock cluster as a pure state machine: no I/O, no clock, no randomness.
//!
//! Consensus agrees on the set of members, which changes rarely. Within such a *view*, the classical algorithms of
//! `lockkeeper-core` grant the locks, which is cheap. When the view changes, members freeze, report the holds of
//! their clients, and start the algorithms again with these holders inside. A member grants a lock only while its
//! lease runs, and every hold carries a fence, except for one of several permits.
//!
//! Simulations create members with bug switches, `Member<P, Option<BugSwitch>>`. The member of a daemon, `Member<P>`,
//! has none: see [`lockkeeper_session::bug_switches`].
//!
//! The other half of a session, at the client, and the messages between both are in `lockkeeper-session`.
//!
//! | module | content |
//! |---|---|
//! | [`member`] | [`Member`]: events in, [`Out`] out; the driver's duties are numbered there |
//! | [`messages`] | messages between members and consensus; events and actions |
//! | [`config`] | [`Config`]: the settings of one member |
//! | [`settings`] | [`ClusterSettings`], which all members share, and lease waits with an allowance for clock drift |
//! | [`view`] | [`View`]: the members, the coordinator, and the members that were excluded |
//! | `views`, `install` | the view change: freeze, report, start |
//! | `slices` | long work in short steps |
//! | `leader`, `gather` | the leader: leases, exclusions, joins; the reports and the wait for excluded members |
//! | `leave` | a planned leave, after which no lease has to be waited for |
//! | `link` | exactly-once, in-order delivery between two members of a view |
//! | [`chunks`] | long lists as chunks that fit into frames |
//! | `lock`, `locks`, `instance` | one lock at one member: local queue, holds, the algorithm's site |
//! | `table`, `index`, `capacity` | all locks of a view, by name; the view change when the table is full of idle locks |
//! | `session`, `clients` | a client's session at its member |
//! | [`records`], `recording` | the table of recorded holds; which holds a member records, and when their locks are free |
//! | `adoption` | sessions and holds of an excluded member, at the member that adopts them |
//! | `relay` | messages of clients whose session is at another member |
//! | `resident` | sessions of clients in the driver's own process, which need no keep-alives; more fences for a hold |
//! | `frame_validation` | validation of frames from other members |
//! | `journal` | the locks that have changed, for watchers |
//! | [`query`] | holders and waiters of all members; [`why`] a client waits |
//! | [`history`] | checks a recorded history of consensus against its contract with members |
#![no_std]

extern crate alloc;

mod adoption;
mod capacity;
pub mod chunks;
mod clients;
pub mod config;
mod frame_validation;
mod gather;
pub mod history;
mod ids;
mod index;
mod install;
mod instance;
mod journal;
mod leader;
mod leave;
mod link;
mod lock;
mod locks;
pub mod member;
pub mod messages;
pub mod query;
mod recording;
pub mod records;
mod relay;
mod resident;
mod session;
pub mod settings;
mod slices;
mod table;
pub mod view;
mod views;

pub use chunks::{Chunk, ChunkedList};
pub use config::Config;
pub use frame_validation::{FrameFault, MOST_MEMBERS};
pub use ids::{MemberId, Node};
pub use link::Packet;
pub use lockkeeper_session::{
    Acquisition, BadText, BugSwitch, Bugs, Ended, Fence, Generation, LONGEST_NAME, LONGEST_TAG, LockMode,
    LockName, LockRequest, NoBugs, Proof, SessionId, Tag, ToClient, ToMember, check_name, check_tag,
};
pub use member::Member;
pub use messages::*;
pub use query::{
    LockList, LockScan, LockStatus, Participant, Query, Reply, WaitCause, WaitExplanation, WaitGraph,
    waiters, why,
};
pub use records::{
    HoldRecord, HoldTable, LONGEST_PAYLOAD, MOST_TABLE_BYTES, RecordChange, RecordOutcome, RecordWrite,
};
pub use resident::{NoFence, NotOpened};
pub use settings::{ClusterSettings, Inherited, SettingsError, certainly_left};
pub use view::View;
