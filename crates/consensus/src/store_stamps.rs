//! Detects a disk that was restored from a backup.
//!
//! A voter that forgets its vote can vote twice in one term, which leads to two leaders. A lost disk is harmless: an
//! empty store has another name, and so no vote. A disk that was copied back has its old name and an older content. So
//! every store counts its commits, and every query and answer carries the count. Each member remembers the highest
//! count of each store. If a process opens a store at a lower count than that, the store is older than its earlier
//! messages.
//!
//! Example: store 5 grants a vote at commit 40, and the candidate remembers 40. The machine fails, and its operator
//! copies back the backup of last night, at commit 31. The new process opens the store at 31, below 40, so its peers
//! reject it.
//!
//! The counts are only in memory. A restore while all other members restart, too, is not detected.

use super::locked;
use super::types::StoreName;
use super::wire::StoreStamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Maximum number of remembered stores, and of processes for each.
const MOST_STORES: usize = 4096;
const MOST_STARTS: usize = 64;

#[derive(Debug, Default)]
struct StampHistory {
    commits: u64,
    starts: BTreeSet<u64>,
}

/// The counts that this member has seen of all stores.
#[derive(Debug, Default)]
pub(crate) struct StoreStamps(Mutex<BTreeMap<StoreName, StampHistory>>);

impl StoreStamps {
    /// Remembers the count of a store. Returns `false` if the store was opened at an older state than it has shown
    /// before.
    pub fn accept(&self, stamp: &StoreStamp) -> bool {
        let mut stores = locked(&self.0);
        if stores.len() >= MOST_STORES && !stores.contains_key(&stamp.store) {
            return true;
        }
        let history = stores.entry(stamp.store).or_default();
        // A late message of a known process may have a low count.
        if !history.starts.contains(&stamp.start) {
            if stamp.opened < history.commits {
                return false;
            }
            if history.starts.len() >= MOST_STARTS {
                history.starts.pop_first();
            }
            history.starts.insert(stamp.start);
        }
        history.commits = history.commits.max(stamp.commits);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(start: u64, opened: u64, commits: u64) -> StoreStamp {
        StoreStamp { store: 5, start, opened, commits }
    }

    #[test]
    fn a_store_that_is_opened_at_an_older_state_is_refused() {
        let stamps = StoreStamps::default();
        assert!(stamps.accept(&stamp(1, 30, 31)));
        assert!(stamps.accept(&stamp(1, 30, 40)));
        assert!(!stamps.accept(&stamp(2, 32, 32)), "a backup from commit 31");
        assert!(!stamps.accept(&stamp(2, 32, 45)), "it stays refused, however much it writes");
        assert!(stamps.accept(&StoreStamp { store: 6, ..stamp(2, 1, 1) }), "another store");
    }

    #[test]
    fn a_restart_and_a_late_message_are_accepted() {
        let stamps = StoreStamps::default();
        assert!(stamps.accept(&stamp(1, 30, 40)));
        assert!(stamps.accept(&stamp(2, 41, 41)), "the same disk, opened again");
        assert!(stamps.accept(&stamp(1, 30, 35)), "a message of the process before, late");
        assert!(!stamps.accept(&stamp(3, 36, 36)));
    }
}
