//! Distributed mutual exclusion and election algorithms, each written once as a pure state machine.
//!
//! An algorithm here does no I/O, reads no clock and draws no random numbers. It receives one event at a time and
//! returns the actions to take: messages to send, timers to arm, outputs for the application. The code that runs it is
//! called a *driver*: the simulator, the checker or the cluster. This crate is `no_std`, so the compiler rejects any
//! I/O.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | [`Protocol`], the interface of every algorithm, and [`Out`], the actions of one step |
//! | [`mutex`] | [`MutualExclusion`], the protocols that admit sites to a critical section |
//! | [`settings`] | [`Configure`], the options of an algorithm and the settings that they are made from |
//! | [`sharing`] | [`Sharing`], which entries may overlap and which conflict |
//! | [`election`] | [`Election`], the protocols that elect one site as leader |
//! | [`site`] | [`SiteId`], [`SiteSet`] |
//! | [`clock`] | [`LamportClock`], [`Timestamp`], [`Stamp`] |
//! | [`driver`] | [`Site`], the part that all drivers share: messages of a site to itself, and fences |
//! | [`algorithms`] | one file per mutual exclusion algorithm |
//! | [`elections`] | one file per election |
//! | [`quorum`] | constructions of quorums |
//! | [`tree`] | trees of sites |
//! | [`registry`] | the list of all algorithms and elections |
//! | [`any`] | [`AnySite`](any::AnySite), one type for every algorithm that a cluster can run |
#![no_std]

extern crate alloc;

pub mod algorithms;
pub mod any;
pub mod clock;
pub mod driver;
pub mod election;
pub mod elections;
pub mod mutex;
pub mod protocol;
pub mod quorum;
pub mod registry;
pub mod settings;
pub mod sharing;
pub mod site;
pub mod tree;

pub use clock::{LamportClock, Stamp, Timestamp};
pub use driver::Site;
pub use election::{Campaign, Elected, Election};
pub use lockkeeper_text::LockMode;
pub use mutex::{
    About, ApplicationInput, Entered, Expected, Inspect, InvariantViolated, Load, MutualExclusion,
    PaperFigures, Phase, Setup, Validate,
};
pub use protocol::{Field, MessageKind, MessageKinds, Never, Out, Protocol, Purpose, Rules, Timeout, Value};
pub use settings::Configure;
pub use sharing::{Holder, Mode, ModeCounts, Sharing};
pub use site::{SiteId, SiteSet};
