//! The holders and waiters of a lock, and the descriptions that they supplied.

use crate::Fence;
pub use lockkeeper_text::LockMode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The type of lock that a request of this mode implies, for error messages.
pub(crate) fn lock_type(mode: LockMode) -> String {
    match mode {
        LockMode::Exclusive | LockMode::Shared => "a mutex".into(),
        LockMode::Permit { of } => format!("a semaphore of {of} permits"),
    }
}

/// The self-description of a holder or waiter. Engines store it as JSON beside their own state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tag {
    /// The unique id of the acquisition; the child of `lockkeeper run` gets it as `LOCKKEEPER_HOLDER`.
    pub holder: String,
    /// The name of the machine.
    pub host: String,
    /// The process id on that machine.
    pub pid: u32,
    /// The time of the request, in milliseconds of Unix time by the clock of its machine.
    pub since_ms: u64,
    /// The metadata that the application added with `.metadata(..)`; a candidate's value is under `value`.
    pub metadata: BTreeMap<String, String>,
}

/// A holder or a waiter of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Participant {
    /// Its self-description.
    pub tag: Tag,
    /// The mode in which it requests or holds the lock.
    #[serde(rename = "kind")]
    pub mode: LockMode,
    /// The start of the hold or of the wait, in milliseconds of Unix time.
    pub since_ms: u64,
    /// Its fence, if it is a holder, its hold is not a permit, and the engine has fences.
    pub fence: Option<Fence>,
    /// Set if the hold is stored with a deadline and does not depend on its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<Detached>,
}

/// The part of a hold that does not depend on a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detached {
    /// The owner's name; the holder's id if the lock is kept by [`Acquire::at_least`](crate::Acquire::at_least).
    pub owner: String,
    /// The end of the hold in milliseconds of Unix time by this machine's clock, for display: the engine counts on its
    /// own clock.
    pub until_ms: u64,
}

impl Detached {
    /// The detached hold of an owner that ends after `left`.
    #[allow(dead_code, reason = "for engines with detached holds")]
    pub(crate) fn ending_in(owner: impl Into<String>, left: Duration) -> Detached {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Detached { owner: owner.into(), until_ms: now_ms().saturating_add(left_ms) }
    }

    /// The time until the end, by this machine's clock.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(now_ms()))
    }
}

impl Participant {
    /// The duration of the hold or wait so far, by this machine's clock.
    pub fn age(&self) -> Duration {
        Duration::from_millis(now_ms().saturating_sub(self.since_ms))
    }
}

/// The current state of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name.
    pub name: String,
    /// The holders; several if the lock is shared or a semaphore.
    pub holders: Vec<Participant>,
    /// The waiters, next one first (on engines that know the order: see [`Capabilities`](crate::Capabilities)).
    pub waiters: Vec<Participant>,
}

impl LockInfo {
    /// Removes the fences of permits: some engines number them like other holds, but permits are held at the same
    /// time and in no order.
    pub(crate) fn without_permit_fences(mut self) -> LockInfo {
        for holder in &mut self.holders {
            holder.fence = holder.fence.filter(|_| !holder.mode.is_permit());
        }
        self
    }
}

/// Unix time in milliseconds. It is for display only, never for deciding which client holds a lock.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_json_form_of_stored_queues() {
        let modes = [LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 3 }];
        let json = serde_json::to_string(&modes).unwrap();
        assert_eq!(json, r#"["exclusive","shared",{"permit":{"of":3}}]"#);
        assert_eq!(serde_json::from_str::<[LockMode; 3]>(&json).unwrap(), modes);
    }
}
