//! What can be seen of a run between two of its events.

use lockkeeper_core::{Field, Mode, Phase, SiteId};
use serde::Serialize;

/// A run between two of its events, whatever its algorithm.
pub trait Stage {
    /// One process as it is now.
    fn site(&self, site: SiteId) -> SiteState;

    /// The messages that only a script delivers, oldest first.
    fn held(&self) -> Vec<Held>;
}

/// A process at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteState {
    /// Where it stands.
    pub phase: Phase,
    /// How it asked, or is inside.
    pub mode: Mode,
    /// Whether it runs; one that has crashed has no state.
    pub up: bool,
    /// Whether it has stopped for a while.
    pub paused: bool,
    /// How many tokens it has.
    pub tokens: u32,
    /// How many timers it has armed.
    pub timers: usize,
    /// Its state in the paper's words.
    pub fields: Vec<Field>,
    /// Where its pointer leads, where the paper draws a tree.
    pub points_to: Option<SiteId>,
    /// Whom it cannot go on without, while it waits.
    pub waits_for: Vec<SiteId>,
    /// Whose votes it needs, where the paper has quorums.
    pub quorum: Vec<SiteId>,
}

/// A message under way that waits to be delivered by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Who sent it.
    pub from: SiteId,
    /// Who is to get it.
    pub to: SiteId,
    /// What it says.
    pub text: String,
}
