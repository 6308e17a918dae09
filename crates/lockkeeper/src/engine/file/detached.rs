//! Detached holds: entries with a deadline that stay in the queue without a living process.
//!
//! # The clock
//!
//! The deadline is a reading of the lease clock of one boot: it counts suspend, and no process can set it. The wall
//! clock decides nothing, since a clock that is set forward would end a hold too early.
//!
//! After a **reboot** the lease clock starts at zero, and nothing but the wall clock knows how long the machine was
//! off. So each record also has the rest that was left when it was written: that much of the new lease clock has to
//! pass. It is the time since the boot, and the whole of it lies after the record was written. A hold therefore never
//! ends too early, and too late by at most the time from its last write until the boot.
//!
//! ```text
//!   written: 600 s left          power off    boot                        the hold ends
//!      │────────── 100 s ────────────│ ? │──────────────── 600 s ───────────────│
//! ```
//!
//! # Durability
//!
//! A queue with such an entry is on disk (fsync) before the change takes effect, and is never torn. It has another form
//! than other queues: version 1 of this engine, which would remove the entry with its process, reports it as damaged.

use super::queue::{Entry, Key, Queue};
use super::store::{Edit, Store};
use crate::engine::{Detach, DetachedState};
use crate::{Error, Fence, LockName, Result};
use lockkeeper_system::lease_clock;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The part of an entry that does not depend on a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DetachedRecord {
    /// The owner's name.
    pub owner: String,
    /// The boot whose lease clock `until_ns` refers to.
    pub boot: String,
    /// The deadline.
    pub until_ns: u64,
    /// The rest when this was written.
    pub left_ns: u64,
}

impl DetachedRecord {
    /// The time until the deadline; `None` if it has passed.
    pub fn left(&self, now_ns: u64) -> Option<Duration> {
        self.until_ns.checked_sub(now_ns).filter(|left| *left > 0).map(Duration::from_nanos)
    }
}

/// The reading of the lease clock after this time.
fn after(lasts: Duration) -> u64 {
    lease_clock::now_ns().saturating_add(u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX))
}

impl Entry {
    /// Whether this is the detached hold of an owner. Dead entries have been removed.
    fn is_detached_hold_of(&self, owner: &str) -> bool {
        self.detached.as_ref().is_some_and(|detached| detached.owner == owner)
    }

    /// Converts an entry of an earlier boot. Returns false if it does not outlast the reboot.
    fn outlasts_reboot(&mut self, boot: &str, now_ns: u64) -> bool {
        let (Some(detached), Some(held)) = (&mut self.detached, self.held) else { return false };
        // Entries that were converted before this process was killed are of this boot already.
        if detached.boot != boot {
            detached.boot = boot.into();
            detached.until_ns = detached.left_ns;
            // Process ids, and ids made from them, may be in use by others now; fences are unique over all boots.
            self.id = format!("fence-{}", held.fence);
            self.child = None;
        }
        detached.left(now_ns).is_some()
    }
}

impl Queue {
    pub fn has_detached_holds(&self) -> bool {
        self.entries.iter().any(|entry| entry.detached.is_some())
    }

    /// Removes what does not outlast a reboot.
    pub fn after_reboot(mut self, boot: &str, now_ns: u64) -> Queue {
        self.entries.retain_mut(|entry| entry.outlasts_reboot(boot, now_ns));
        self
    }

    /// Updates the rests that are stored.
    pub fn with_rests(mut self, now_ns: u64) -> Queue {
        for detached in self.entries.iter_mut().filter_map(|entry| entry.detached.as_mut()) {
            detached.left_ns = detached.left(now_ns).map_or(0, |left| left.as_nanos() as u64);
        }
        self
    }
}

/// Stores that the entry `id` outlives its process. Returns false if the owner has a detached hold already.
pub(super) fn detach(edit: &Edit<'_>, key: &Key, name: &str, id: &str, detach: Detach) -> Result<bool> {
    let mut queue = edit.tidy(key, name)?;
    if queue.entries.iter().any(|entry| entry.is_detached_hold_of(&detach.owner)) {
        return Ok(false);
    }
    let Some(i) = queue.position(id) else {
        let reason = "its entry was removed from the queue".into();
        return Err(Error::Lost { name: name.into(), reason });
    };
    let (until_ns, boot) = (after(detach.lasts), edit.store.boot.clone());
    queue.entries[i].detached = Some(DetachedRecord { owner: detach.owner, boot, until_ns, left_ns: 0 });
    edit.publish(key, &queue, &[])?;
    Ok(true)
}

/// The detached hold of an owner; with `lasts`, its deadline is first set to that time from now.
pub(super) async fn find(
    store: &Store,
    name: &LockName,
    owner: &str,
    lasts: Option<Duration>,
) -> Result<Option<DetachedState>> {
    let (edit, key) = (store.edit().await?, Key::of(name));
    let mut queue = edit.tidy(&key, name.as_str())?;
    let Some(i) = queue.entries.iter().position(|entry| entry.is_detached_hold_of(owner)) else {
        return Ok(None);
    };
    if let (Some(lasts), Some(detached)) = (lasts, &mut queue.entries[i].detached) {
        detached.until_ns = after(lasts);
        // They wait for the old deadline.
        let wake: Vec<String> = queue.watchers_of(i).map(str::to_owned).collect();
        edit.publish(&key, &queue, &wake)?;
    }
    let entry = &queue.entries[i];
    let left = entry.detached.as_ref().and_then(|detached| detached.left(lease_clock::now_ns()));
    Ok(Some(DetachedState {
        mode: entry.mode,
        fence: entry.held.and_then(|held| Fence::new(held.fence)),
        left: left.unwrap_or_default(),
    }))
}

/// Releases the detached hold of an owner, unless its process still works under it.
pub(super) async fn release(store: &Store, name: &LockName, owner: &str) -> Result<bool> {
    let (edit, key) = (store.edit().await?, Key::of(name));
    let mut queue = edit.tidy(&key, name.as_str())?;
    let Some(i) = queue.entries.iter().position(|entry| entry.is_detached_hold_of(owner)) else {
        return Ok(false);
    };
    if store.watch_process(&queue.entries[i])?.is_some() {
        return Ok(false);
    }
    edit.remove(&key, &mut queue, i)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::file::process::Process;
    use crate::engine::file::queue::Grant;
    use crate::info::{LockMode, Tag};

    const SECOND: u64 = 1_000_000_000;

    fn entry(detached: Option<DetachedRecord>) -> Entry {
        let tag =
            Tag { holder: "h".into(), host: "h".into(), pid: 1, since_ms: 0, metadata: Default::default() };
        let process = Process { pid: 1, started: 1 };
        Entry {
            id: "1-1-0".into(),
            mode: LockMode::Exclusive,
            tag,
            owner: process,
            pid_namespace: String::new(),
            held: Some(Grant { fence: 7, since_ms: 0 }),
            child: Some(process),
            detached,
        }
    }

    fn record(until_s: u64) -> DetachedRecord {
        DetachedRecord { owner: "web-3".into(), boot: "old".into(), until_ns: until_s * SECOND, left_ns: 0 }
    }

    fn queue(entries: Vec<Entry>) -> Queue {
        Queue { name: "n".into(), entries }
    }

    #[test]
    fn a_record_ends_at_its_deadline() {
        let record = record(5);
        assert_eq!(record.left(3 * SECOND), Some(Duration::from_secs(2)));
        assert_eq!(record.left(5 * SECOND), None);
        assert_eq!(record.left(9 * SECOND), None);
    }

    /// The new lease clock counts from the boot. However wrong the wall clock is, the hold does not end before the
    /// machine has been up for the rest that was stored.
    #[test]
    fn after_a_reboot_a_hold_lasts_until_the_machine_was_up_for_its_rest() {
        // Written at 1000 s of the old boot, with a deadline at 1600 s.
        let written = queue(vec![entry(Some(record(1600))), entry(None)]).with_rests(1000 * SECOND);
        assert_eq!(written.entries[0].detached.as_ref().map(|detached| detached.left_ns), Some(600 * SECOND));
        let booted = written.clone().after_reboot("new", 20 * SECOND);
        assert_eq!(booted.entries.len(), 1, "an entry without a record is gone");
        let kept = &booted.entries[0];
        let detached = kept.detached.as_ref().unwrap();
        assert_eq!((detached.boot.as_str(), detached.until_ns), ("new", 600 * SECOND));
        assert_eq!(
            (kept.id.as_str(), kept.child),
            ("fence-7", None),
            "other processes may have these ids now"
        );
        // The conversion is repeated if it was interrupted, and must not start the rest anew.
        let again = booted.with_rests(30 * SECOND).after_reboot("new", 30 * SECOND);
        assert_eq!(again.entries[0].detached.as_ref().map(|detached| detached.until_ns), Some(600 * SECOND));
        assert!(written.after_reboot("new", 600 * SECOND).entries.is_empty(), "up for as long as the rest");
    }
}
