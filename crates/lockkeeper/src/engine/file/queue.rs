//! The queue of one lock as plain data: grants, the next waiter, and the entries to watch.

use super::detached::DetachedRecord;
use super::process::Process;
use crate::engine::fifo;
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag, now_ms};
use crate::{Fence, LockName, Result};
use serde::{Deserialize, Serialize};

/// A request in the queue, granted or waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The name of its FIFO.
    pub id: String,
    #[serde(rename = "kind")]
    pub mode: LockMode,
    pub tag: Tag,
    pub owner: Process,
    /// The pid namespace of the process ids.
    pub pid_namespace: String,
    /// Set when the request is granted.
    pub held: Option<Grant>,
    /// A process that works under this hold.
    pub child: Option<Process>,
    /// Set if the hold outlives its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<DetachedRecord>,
}

/// The data that a grant adds to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    pub fence: u64,
    pub since_ms: u64,
}

/// The queue of one lock. The holders are always a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    pub name: String,
    pub entries: Vec<Entry>,
}

/// A queue as stored.
///
/// Queues with detached holds have version 2; all others have version 1, which has no `version` and whose list is
/// `entries`. A program that knows only version 1 would remove detached holds: it misses `entries`, and reports the
/// file as damaged.
#[derive(Serialize, Deserialize)]
struct StoredQueue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Entry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Vec<Entry>>,
}

impl Queue {
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let (name, entries) = (self.name.clone(), self.entries.clone());
        serde_json::to_vec(&match self.has_detached_holds() {
            true => StoredQueue { version: Some(2), name, entries: None, queue: Some(entries) },
            false => StoredQueue { version: None, name, entries: Some(entries), queue: None },
        })
    }

    pub fn from_json(bytes: &[u8]) -> serde_json::Result<Queue> {
        use serde::de::Error;
        let stored: StoredQueue = serde_json::from_slice(bytes)?;
        let entries = match (stored.version, stored.entries, stored.queue) {
            (None, Some(entries), None) | (Some(2), None, Some(entries)) => entries,
            (None | Some(2), ..) => return Err(serde_json::Error::custom("its list is missing")),
            (Some(other), ..) => {
                let newer = format!("its version {other} is unknown to this version of lockkeeper");
                return Err(serde_json::Error::custom(newer));
            }
        };
        Ok(Queue { name: stored.name, entries })
    }

    pub fn position(&self, id: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }

    /// Whether the entry at `i` may hold the lock, given that all entries ahead of it are alive.
    fn may_hold(&self, i: usize) -> bool {
        fifo::may_hold(self.entries[i].mode, self.entries[..i].iter().map(|ahead| ahead.mode))
    }

    /// Removes dead entries among those that hold or may hold, and grants the ones that may now hold. It stops at the
    /// first live entry that must wait, so the cost does not grow with the queue.
    ///
    /// Returns the ids of the entries granted now.
    pub fn settle(
        &mut self,
        mut alive: impl FnMut(&Entry) -> Result<bool>,
        mut next_fence: impl FnMut() -> Result<u64>,
    ) -> Result<Vec<String>> {
        let mut granted = Vec::new();
        let mut i = 0;
        while i < self.entries.len() && self.may_hold(i) {
            if !alive(&self.entries[i])? {
                self.entries.remove(i);
                continue;
            }
            let entry = &mut self.entries[i];
            if entry.held.is_none() {
                entry.held = Some(Grant { fence: next_fence()?, since_ms: now_ms() });
                granted.push(entry.id.clone());
            }
            i += 1;
        }
        Ok(granted)
    }

    /// The positions that the waiter at `i` watches: the entry right ahead; for the first waiter of a semaphore,
    /// every holder, since any of them may make room.
    pub fn watched_by(&self, i: usize) -> std::ops::Range<usize> {
        let first_waiter = i > 0 && self.entries[i - 1].held.is_some();
        match self.entries[i].mode {
            LockMode::Permit { .. } if first_waiter => 0..i,
            _ => i.saturating_sub(1)..i,
        }
    }

    /// The ids to wake, besides the granted ones, when the entry at `i` changes or goes: its watchers.
    pub fn watchers_of(&self, i: usize) -> impl Iterator<Item = &str> {
        let behind = i + 1..self.entries.len();
        behind.filter(move |w| self.watched_by(*w).contains(&i)).map(|w| self.entries[w].id.as_str())
    }

    /// The first waiter. After a grant it may have to watch more entries than before.
    pub fn first_waiter(&self) -> Option<&str> {
        self.entries.iter().find(|entry| entry.held.is_none()).map(|entry| entry.id.as_str())
    }

    /// The holders and waiters at a reading of the lease clock.
    pub fn info(self, now_ns: u64) -> LockInfo {
        let participant = |entry: Entry| Participant {
            since_ms: entry.held.map_or(entry.tag.since_ms, |held| held.since_ms),
            fence: entry.held.and_then(|held| Fence::new(held.fence)),
            mode: entry.mode,
            tag: entry.tag,
            detached: entry.detached.and_then(|record| {
                let left = record.left(now_ns)?;
                Some(Detached::ending_in(record.owner, left))
            }),
        };
        let (holders, waiters): (Vec<_>, Vec<_>) =
            self.entries.into_iter().partition(|entry| entry.held.is_some());
        let all = |entries: Vec<Entry>| entries.into_iter().map(participant).collect();
        LockInfo { name: self.name, holders: all(holders), waiters: all(waiters) }
    }
}

/// The file name of a lock's queue: only letters, digits and `-_%.`, never beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub String);

impl Key {
    /// The key of a name. A long name keeps a readable beginning and gets a hash; the full name in the queue detects
    /// collisions.
    pub fn of(name: &LockName) -> Key {
        let mut key = String::new();
        for (i, byte) in name.as_str().bytes().enumerate() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => key.push(byte.into()),
                b'.' if i > 0 => key.push('.'),
                _ => key.push_str(&format!("%{byte:02X}")),
            }
        }
        if key.len() > 200 {
            // `%` followed by `~` is not an encoded byte, so a long key never equals a short one.
            key = format!("{}%~{:032x}", &key[..120], fnv128(name.as_str().as_bytes()));
        }
        Key(key)
    }
}

/// FNV-1a with 128 bits. It detects accidents, not attacks; attackers cannot write here anyway.
pub(super) fn fnv128(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn entry(id: &str, mode: LockMode) -> Entry {
        let tag =
            Tag { holder: id.into(), host: "h".into(), pid: 1, since_ms: 0, metadata: Default::default() };
        let owner = Process { pid: 1, started: 1 };
        let (id, pid_namespace) = (id.into(), String::new());
        Entry { id, mode, tag, owner, pid_namespace, held: None, child: None, detached: None }
    }

    /// Builds a queue: `x` is exclusive, `s` shared, a digit a permit; the ids are the positions.
    fn queue(modes: &str) -> Queue {
        let mode = |c: char| match c {
            'x' => LockMode::Exclusive,
            's' => LockMode::Shared,
            digit => LockMode::Permit { of: digit.to_digit(10).unwrap() },
        };
        let entries = modes.chars().enumerate().map(|(i, c)| entry(&i.to_string(), mode(c))).collect();
        Queue { name: "n".into(), entries }
    }

    fn settle(queue: &mut Queue, dead: &str) -> String {
        let mut fence = 0;
        let alive = |entry: &Entry| Ok(!dead.contains(&entry.id));
        let next = || {
            fence += 1;
            Ok(fence)
        };
        queue.settle(alive, next).unwrap().concat()
    }

    #[test]
    fn grants_are_first_come_first_served() {
        for (modes, dead, granted) in [
            ("xxx", "", "0"),
            ("xxx", "0", "1"),
            ("xxx", "01", "2"),
            ("ssxs", "", "01"),
            ("ssxs", "01", "2"),
            ("xsss", "", "0"),
            ("xsss", "0", "123"),
            ("ssxs", "2", "01"),
            ("2222", "", "01"),
            ("2222", "0", "12"),
            ("2222", "012", "3"),
            ("", "", ""),
        ] {
            assert_eq!(settle(&mut queue(modes), dead), granted, "{modes} with dead {dead:?}");
        }
    }

    #[test]
    fn a_reader_behind_a_waiting_writer_waits_even_while_readers_hold() {
        let mut queue = queue("ss");
        settle(&mut queue, "");
        queue.entries.push(entry("2", LockMode::Exclusive));
        queue.entries.push(entry("3", LockMode::Shared));
        assert_eq!(settle(&mut queue, ""), "", "no barging: the writer would starve");
    }

    /// For every set of deaths: a live waiter is notified, or no waiter could be granted anyway.
    #[test]
    fn every_set_of_deaths_wakes_a_waiter_that_can_be_granted() {
        for modes in ["xxxx", "ssxs", "xssx", "sxsx", "2222", "3333", "1111", "22222", "sssxx"] {
            let mut before = queue(modes);
            settle(&mut before, "");
            for mask in 0..1u32 << modes.len() {
                let dead: String =
                    (0..modes.len()).filter(|i| mask >> i & 1 == 1).map(|i| i.to_string()).collect();
                check_progress(&before, &dead);
            }
        }
    }

    /// Lets woken waiters act in turn until none is woken. Then no waiter may be left that could be granted.
    fn check_progress(before: &Queue, dead: &str) {
        let mut queue = before.clone();
        // Each live waiter watches the entries that it saw when it last read the queue.
        let mut watches: Vec<(String, BTreeSet<String>)> = look(&queue, dead);
        loop {
            let woken = watches.iter().position(|(_, seen)| {
                seen.iter().any(|id| dead.contains(id.as_str()) || queue.position(id).is_none())
            });
            let Some(woken) = woken else { break };
            let me = watches[woken].0.clone();
            settle(&mut queue, dead);
            // As in `QueuedRequest::position_of`: remove dead entries that it would watch, and settle again.
            while let Some(i) = queue.position(&me).filter(|i| queue.entries[*i].held.is_none()) {
                let Some(gone) = queue.watched_by(i).find(|w| dead.contains(&queue.entries[*w].id)) else {
                    break;
                };
                queue.entries.remove(gone);
                settle(&mut queue, dead);
            }
            // The edit woke the granted entries and the first waiter: all read the queue again.
            watches = look(&queue, dead);
        }
        let stuck = settle(&mut queue.clone(), dead);
        assert_eq!(stuck, "", "{before:?} with dead {dead:?} left a waiter blocked forever");
    }

    fn look(queue: &Queue, dead: &str) -> Vec<(String, BTreeSet<String>)> {
        let waiting = (0..queue.entries.len())
            .filter(|i| queue.entries[*i].held.is_none() && !dead.contains(queue.entries[*i].id.as_str()));
        waiting
            .map(|i| {
                let seen = queue.watched_by(i).map(|w| queue.entries[w].id.clone()).collect();
                (queue.entries[i].id.clone(), seen)
            })
            .collect()
    }

    #[test]
    fn keys_are_plain_file_names_and_differ() {
        let names = ["a", "../x", ".", "..", "a/b", "a%2Fb", "a\\b", "ä", "A", "-", "~", "x y"];
        let long = [format!("{}1", "x".repeat(400)), format!("{}2", "x".repeat(400)), "/".repeat(512)];
        let all: Vec<&str> = names.into_iter().chain(long.iter().map(String::as_str)).collect();
        let keys: BTreeSet<String> = all.iter().map(|n| Key::of(&LockName::new(*n).unwrap()).0).collect();
        assert_eq!(keys.len(), all.len());
        for key in keys {
            assert!(!key.starts_with('.') && !key.contains('/') && key.len() < 250, "{key}");
        }
    }
}
