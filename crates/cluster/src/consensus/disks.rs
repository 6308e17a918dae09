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
use super::wire::Disk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Maximum number of remembered stores, and of processes for each.
const MOST_STORES: usize = 4096;
const MOST_STARTS: usize = 64;

#[derive(Debug, Default)]
struct Seen {
    commits: u64,
    starts: BTreeSet<u64>,
}

/// The counts that this member has seen of all stores.
#[derive(Debug, Default)]
pub(crate) struct Disks(Mutex<BTreeMap<StoreName, Seen>>);

impl Disks {
    /// Remembers the count of a store. Returns `false` if the store was opened at an older state than it has shown
    /// before.
    pub fn accept(&self, disk: &Disk) -> bool {
        let mut stores = locked(&self.0);
        if stores.len() >= MOST_STORES && !stores.contains_key(&disk.store) {
            return true;
        }
        let seen = stores.entry(disk.store).or_default();
        // A late message of a known process may have a low count.
        if !seen.starts.contains(&disk.start) {
            if disk.opened < seen.commits {
                return false;
            }
            if seen.starts.len() >= MOST_STARTS {
                seen.starts.pop_first();
            }
            seen.starts.insert(disk.start);
        }
        seen.commits = seen.commits.max(disk.commits);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(start: u64, opened: u64, commits: u64) -> Disk {
        Disk { store: 5, start, opened, commits }
    }

    #[test]
    fn a_store_that_is_opened_at_an_older_state_is_refused() {
        let disks = Disks::default();
        assert!(disks.accept(&disk(1, 30, 31)));
        assert!(disks.accept(&disk(1, 30, 40)));
        assert!(!disks.accept(&disk(2, 32, 32)), "a backup from commit 31");
        assert!(!disks.accept(&disk(2, 32, 45)), "it stays refused, however much it writes");
        assert!(disks.accept(&Disk { store: 6, ..disk(2, 1, 1) }), "another store");
    }

    #[test]
    fn a_restart_and_a_late_message_are_accepted() {
        let disks = Disks::default();
        assert!(disks.accept(&disk(1, 30, 40)));
        assert!(disks.accept(&disk(2, 41, 41)), "the same disk, opened again");
        assert!(disks.accept(&disk(1, 30, 35)), "a message of the process before, late");
        assert!(!disks.accept(&disk(3, 36, 36)));
    }
}
