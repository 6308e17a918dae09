//! Distributed mutual exclusion and election algorithms, each written once as a pure state machine.
//!
//! An algorithm here does no I/O, reads no clock and draws no random number: it is told what happened
//! and answers with what it wants done. Whoever runs it is called a *driver*: the simulator, the
//! checker, the cluster. This crate is `no_std`, so the compiler itself keeps the world out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`protocol`] | [`Protocol`], the interface of every algorithm, and [`Out`], what a step leaves behind |
//! | [`mutex`] | [`MutualExclusion`], the family of protocols that let sites in |
//! | [`sharing`] | [`Sharing`], the one place that says who may be inside together |
//! | [`election`] | [`Election`], the family of protocols that make one site the leader |
//! | [`site`] | [`SiteId`], [`SiteSet`] |
//! | [`clock`] | [`LamportClock`], [`Timestamp`] |
//! | [`driver`] | [`Site`], the half of a driver that all drivers share: self-sends and fences |
//! | [`algorithms`] | one file per algorithm |
//! | [`elections`] | one file per election |
//! | [`quorum`] | whose votes a site needs |
//! | [`tree`] | trees of sites |
//! | [`registry`] | the only list of algorithms |
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
pub mod sharing;
pub mod site;
pub mod tree;

pub use clock::{LamportClock, Timestamp};
pub use driver::Site;
pub use election::{Campaign, Elected, Election};
pub use mutex::{About, Ask, Entered, Expected, Load, MutualExclusion, Phase, Setup};
pub use protocol::{Field, Never, Out, Protocol, Purpose, Rules, Timeout, Value, Vocabulary, Word};
pub use sharing::{Claim, Crowd, Holder, Mode, Sharing};
pub use site::{SiteId, SiteSet};
