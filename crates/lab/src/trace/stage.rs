//! The visible state of a run between two of its events.

use lockkeeper_core::{Field, Mode, Phase, SiteId};
use serde::Serialize;

/// The state of a run between two of its events, independent of the algorithm.
pub trait Stage {
    /// The current state of one process.
    fn site(&self, site: SiteId) -> SiteState;

    /// The messages that wait for a script to deliver them, oldest first.
    fn held(&self) -> Vec<Held>;
}

/// The state of a process at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteState {
    /// The phase.
    pub phase: Phase,
    /// The mode of the request or hold.
    pub mode: Mode,
    /// Whether it is running. A crashed process has no state.
    pub up: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// Number of tokens that it has.
    pub tokens: u32,
    /// Number of armed timers.
    pub timers: usize,
    /// The algorithm's variables, with the paper's names.
    pub fields: Vec<Field>,
    /// The target of its pointer, in algorithms that build a tree.
    pub points_to: Option<SiteId>,
    /// The processes that it waits for.
    pub waits_for: Vec<SiteId>,
    /// The members of its quorum, in algorithms with quorums.
    pub quorum: Vec<SiteId>,
}

/// A message that waits to be delivered by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The sender.
    pub from: SiteId,
    /// The receiver.
    pub to: SiteId,
    /// The text of the message.
    pub text: String,
}
