//! Who holds a lock, who waits, and what they said about themselves.

use crate::Fence;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a lock is wanted or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// One of so many permits.
    Permit {
        /// How many permits there are.
        of: u32,
    },
}

impl Kind {
    /// Whether two requests can queue for one lock: a name is a mutex (shared or not) or one semaphore.
    pub(crate) fn same_lock_as(self, other: Kind) -> bool {
        match (self, other) {
            (Kind::Permit { of: a }, Kind::Permit { of: b }) => a == b,
            (Kind::Permit { .. }, _) | (_, Kind::Permit { .. }) => false,
            _ => true,
        }
    }

    /// Whether a hold of this kind has a fence, on an engine with fences.
    pub(crate) fn has_fence(self) -> bool {
        !matches!(self, Kind::Permit { .. })
    }

    /// The lock that this kind of request takes the name for.
    pub(crate) fn lock_in_words(self) -> String {
        match self {
            Kind::Exclusive | Kind::Shared => "a mutex".into(),
            Kind::Permit { of } => format!("a semaphore of {of} permits"),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Exclusive => f.write_str("exclusive"),
            Kind::Shared => f.write_str("shared"),
            Kind::Permit { of } => write!(f, "1 of {of} permits"),
        }
    }
}

/// What a holder or waiter tells the others about itself. Engines store it as JSON beside their own state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Unique among all acquisitions; the child of `lockkeeper run` sees it as `LOCKKEEPER_HOLDER`.
    pub holder: String,
    /// The machine.
    pub host: String,
    /// The process on that machine.
    pub pid: u32,
    /// When it asked, in milliseconds of Unix time by the clock of its machine.
    pub since_ms: u64,
    /// What the application added with `.metadata(..)`; a candidate's value is under `value`.
    pub metadata: BTreeMap<String, String>,
}

/// One that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Participant {
    /// What it says about itself.
    pub tag: Tag,
    /// How it wants or holds the lock.
    pub kind: Kind,
    /// Since when it holds, or waits, in milliseconds of Unix time.
    pub since_ms: u64,
    /// Its fence, if it holds the lock, not a permit, and the engine has fences.
    pub fence: Option<Fence>,
}

impl Participant {
    /// How long it has held or waited, by this machine's clock.
    pub fn age(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.since_ms))
    }
}

/// One lock as an engine sees it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockInfo {
    /// The lock's name.
    pub name: String,
    /// Who holds it; several if shared or a semaphore.
    pub holders: Vec<Participant>,
    /// Who waits, next one first (where the engine knows: see its capabilities).
    pub waiters: Vec<Participant>,
}

impl LockInfo {
    /// Removes the fences of permits, which some engines number like other holds: their holders are inside together and in no order.
    pub(crate) fn without_permit_fences(mut self) -> LockInfo {
        for holder in &mut self.holders {
            holder.fence = holder.fence.filter(|_| holder.kind.has_fence());
        }
        self
    }
}

/// Unix time in milliseconds: for people to read, never for deciding who holds a lock.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
