//! A whole member of a lock cluster as a pure state machine: no I/O, no clock, no randomness.
//!
//! Consensus agrees on who is here, which is rare. Inside such a *view* the classical algorithms of `lockkeeper-core` run, which is
//! cheap. When the view changes, members freeze, report what their clients hold, and start the algorithms again with these
//! holders inside. A member lets somebody hold a lock only while its lease runs, and every hold carries a fence.
//!
//! | module | what it holds |
//! |---|---|
//! | [`member`] | [`Member`]: events in, [`Out`] out; the driver's duties are numbered there |
//! | [`messages`] | what members, clients and consensus say to each other |
//! | [`config`] | [`Config`]: the settings of one member |
//! | [`settings`] | [`ClusterSettings`], which all members share, and how long one clock waits for another |
//! | [`view`] | [`View`]: who is here, who coordinates, who is missing |
//! | `views`, `install` | freeze, report, start |
//! | `slices` | long work in short steps |
//! | `leader`, `gather` | what a leader does: leases, exclusions, joins; reports and the wait for the missing |
//! | `leave` | a planned leave, which nobody waits for |
//! | `link` | exactly once and in order between two members of a view |
//! | [`parts`] | long lists in short frames |
//! | `lock`, `locks`, `instance` | one lock at one member: local queue, holds, the algorithm's site |
//! | `table`, `index`, `room` | all locks of a view, by name; a view change when it is full of idle ones |
//! | `session`, `clients` | a client's session at its member |
//! | `resident` | sessions of clients in the driver's own process, which need no keep-alives; further fences for a hold |
//! | `guard` | what another member says is looked at before it is believed |
//! | [`client`] | [`ClientSession`]: the client's half of a session |
//! | [`client_link`] | [`ClientLink`]: when the client repeats its messages, gives a daemon up, and tries another one |
//! | `journal` | which locks have changed, for those who watch |
//! | [`survey`] | who holds and waits, everywhere; [`why`] somebody waits |
//! | [`history`] | whether what consensus did, recorded, is what members are promised |
//! | [`fence`] | [`Fence`]: (epoch, clock) in one number |
//! | [`flaws`] | [`Flaw`]: wrong on purpose, for tests |
#![no_std]

extern crate alloc;

pub mod client;
pub mod client_link;
mod clients;
pub mod config;
pub mod fence;
pub mod flaws;
mod gather;
mod guard;
pub mod history;
mod ids;
mod index;
mod install;
mod instance;
mod journal;
mod kept;
mod leader;
mod leave;
mod link;
mod lock;
mod locks;
pub mod member;
pub mod messages;
pub mod parts;
mod resident;
mod room;
mod session;
pub mod settings;
mod slices;
pub mod survey;
mod table;
pub mod view;
mod views;

pub use client::{ClientSession, KEPT_NS, Progress};
pub use client_link::{ClientLink, ClientSettings, Connection, LinkEnd};
pub use config::Config;
pub use fence::Fence;
pub use flaws::Flaw;
pub use guard::MOST_MEMBERS;
pub use ids::{Acquisition, LockName, MemberId, Node, SessionId};
pub use link::Packet;
pub use lockkeeper_core::Claim;
pub use lockkeeper_text::{BadText, LONGEST_NAME, LONGEST_TAG, check_name, check_tag};
pub use member::Member;
pub use messages::*;
pub use parts::{Items, Part};
pub use resident::{NoFence, NotOpened};
pub use settings::{ClusterSettings, Inherited, certainly_left};
pub use survey::{Because, LockStatus, Query, Reply, Table, TableScan, WaitGraph, Who, Why, waiters, why};
pub use view::View;
