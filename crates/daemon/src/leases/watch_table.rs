//! The table of all watched locks, with a version for each lock.

use super::id::LeaseId;
use super::operations::Hold;
use crate::listing::{LockView, Party};
use lockkeeper_cluster::{LockStatus, MemberId, Node};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// Number of locks no longer in use that are remembered for watchers that have not seen the end of their use.
const MOST_UNUSED: usize = 1 << 16;

/// A lock, as shown to watchers.
pub(crate) struct WatchedLock {
    pub view: LockView,
    /// The event for watchers, encoded once for all of them.
    pub encoded: OnceLock<String>,
}

impl WatchedLock {
    fn new(view: LockView) -> Arc<Self> {
        Arc::new(Self { view, encoded: OnceLock::new() })
    }
}

/// A summary of the holders of a lock, to detect changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldersSummary {
    /// The highest fence of its holders; 0 for permits, `None` without holders.
    pub fence: Option<u64>,
    /// The newest hold by a lease.
    pub hold: Option<HoldSummary>,
}

/// A summary of a hold by a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldSummary {
    pub lease: LeaseId,
    /// The fence of its last change.
    pub revision: u64,
}

/// The state of a lock at one member.
pub(super) struct Row {
    /// The number of the full reading of the member's table in which the row was read, or which preceded the change.
    pub sync: u64,
    pub node: Node,
    pub received_at: Instant,
    pub status: LockStatus,
    /// The holds of leases.
    pub holds: Vec<Hold>,
}

struct Entry {
    rows: BTreeMap<MemberId, Row>,
    shown: Arc<WatchedLock>,
    version: u64,
}

/// All watched locks.
#[derive(Default)]
pub(super) struct WatchTable {
    locks: BTreeMap<Arc<str>, Entry>,
    versions: BTreeMap<u64, Arc<str>>,
    newest: u64,
    /// Locks no longer in use, the oldest version first.
    unused: VecDeque<(u64, Arc<str>)>,
    /// The newest version of a lock that was dropped from `over`.
    forgotten: u64,
    syncs: u64,
}

impl WatchTable {
    /// The newest version.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The number of the next full reading of a member's table.
    pub fn next_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }

    /// Clears the table when the last watch has ended. Versions continue to increase.
    pub fn clear(&mut self) {
        let (newest, syncs) = (self.newest, self.syncs);
        *self = Self { newest, syncs, forgotten: newest, ..Self::default() };
    }

    /// The locks with a version above `seen`, in the order of their versions.
    pub fn since(&self, seen: u64) -> impl Iterator<Item = (u64, &Arc<WatchedLock>)> {
        let versions = self.versions.range((Bound::Excluded(seen), Bound::Unbounded));
        versions.filter_map(|(version, name)| Some((*version, &self.locks.get(name)?.shown)))
    }

    /// Whether a watcher that began at version `began` and has seen all changes up to `seen` has missed the end of a
    /// lock's use.
    pub fn has_forgotten_since(&self, seen: u64, began: u64) -> bool {
        seen < self.forgotten && began < self.forgotten
    }

    /// A summary of the holders of a lock.
    pub fn summary(&self, lock: &str) -> HoldersSummary {
        let Some(entry) = self.locks.get(lock) else { return HoldersSummary::default() };
        let fence = |party: &Party| party.who.fence.map_or(0, |fence| fence.number());
        let holds = entry.rows.values().flat_map(|row| &row.holds);
        let newest = holds.max_by_key(|hold| (hold.fence, hold.version));
        HoldersSummary {
            fence: entry.shown.view.holders.iter().map(fence).max(),
            hold: newest.map(|hold| HoldSummary { lease: hold.lease, revision: hold.revision }),
        }
    }

    /// The newest hold of a lock by a lease.
    pub fn leader(&self, lock: &str) -> Option<Hold> {
        let holds = self.locks.get(lock)?.rows.values().flat_map(|row| &row.holds);
        holds.max_by_key(|hold| (hold.fence, hold.version)).cloned()
    }

    /// Stores the state of a lock at one member. Returns whether holds by leases may have changed.
    pub fn put(&mut self, member: MemberId, row: Row) -> bool {
        let (name, status) = (row.status.lock.name.clone(), &row.status);
        let is_used = !status.holders.is_empty() || !status.waiters.is_empty() || !row.holds.is_empty();
        if !is_used && !self.locks.contains_key(&name) {
            return false;
        }
        let entry = self.locks.entry(name.clone()).or_insert_with(|| Entry {
            rows: BTreeMap::new(),
            shown: WatchedLock::new(LockView::new(name.clone())),
            version: 0,
        });
        let had_holds = entry.rows.get(&member).is_some_and(|row| !row.holds.is_empty());
        let has_holds = !row.holds.is_empty();
        if is_used {
            entry.rows.insert(member, row);
        } else {
            entry.rows.remove(&member);
        }
        self.show(&name);
        had_holds || has_holds
    }

    /// Removes rows of a member that this full reading of its table did not contain, among the next `most` locks
    /// after `after`. Returns the last of these locks if there are more.
    pub fn sweep(
        &mut self,
        member: MemberId,
        sync: u64,
        after: Option<Arc<str>>,
        most: usize,
    ) -> Option<Arc<str>> {
        let begin = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut names: Vec<Arc<str>> = self
            .locks
            .range::<Arc<str>, _>((begin, Bound::Unbounded))
            .take(most)
            .map(|(name, _)| name.clone())
            .collect();
        let last = names.last().cloned().filter(|_| names.len() == most);
        let locks = &mut self.locks;
        names.retain(|name| {
            let Some(entry) = locks.get_mut(name) else { return false };
            let old = entry.rows.get(&member).is_some_and(|row| row.sync < sync);
            old && entry.rows.remove(&member).is_some()
        });
        names.iter().for_each(|name| self.show(name));
        last
    }

    /// Merges the rows of all members for a lock. It gets a new version if the result differs.
    fn show(&mut self, name: &Arc<str>) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        let rows = entry.rows.values().map(|row| (row.node, row.received_at, row.status.clone()));
        let view = LockView::of(name.clone(), rows);
        if entry.version > 0 && view.is_same(&entry.shown.view) {
            return;
        }
        let unused = view.is_empty();
        self.newest += 1;
        self.versions.remove(&entry.version);
        self.versions.insert(self.newest, name.clone());
        (entry.shown, entry.version) = (WatchedLock::new(view), self.newest);
        if unused {
            self.unused.push_back((self.newest, name.clone()));
            self.forget_some();
        }
    }

    fn forget_some(&mut self) {
        while self.unused.len() > MOST_UNUSED
            && let Some((version, name)) = self.unused.pop_front()
        {
            // The lock may be in use again.
            if self.locks.get(&name).is_some_and(|entry| entry.version == version && entry.rows.is_empty()) {
                self.locks.remove(&name);
                self.versions.remove(&version);
                self.forgotten = version;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_cluster::{Acquisition, LockMode, Participant, SessionId};
    use lockkeeper_member::{LockName, Tag};

    fn row(sync: u64, name: &str, holders: &[u64]) -> Row {
        let who = |client: &u64| Participant {
            acquisition: Acquisition { session: SessionId { client: *client, number: 1 }, number: 1 },
            mode: LockMode::Shared,
            tag: Tag::default(),
            fence: None,
            for_ns: 0,
            since_ms: 0,
            detached_until_ms: None,
            in_jeopardy: false,
        };
        let holders = holders.iter().map(who).collect();
        let status = LockStatus { lock: LockName::new(name), holders, waiters: Vec::new(), left_out: 0 };
        let node = Node { id: MemberId(1), incarnation: 1 };
        Row { sync, node, received_at: Instant::now(), status, holds: Vec::new() }
    }

    fn changes(table: &WatchTable, seen: u64) -> Vec<(&str, usize)> {
        table.since(seen).map(|(_, shown)| (&*shown.view.name, shown.view.holders.len())).collect()
    }

    #[test]
    fn watcher_sees_each_change_once_and_nothing_that_did_not_change() {
        let mut table = WatchTable::default();
        let member = MemberId(1);
        let sync = table.next_sync();
        for name in ["a", "b", "c"] {
            table.put(member, row(sync, name, &[1]));
        }
        assert_eq!(changes(&table, 0), [("a", 1), ("b", 1), ("c", 1)]);
        let seen = table.newest();
        table.put(member, row(sync, "a", &[1]));
        assert_eq!(changes(&table, seen), [], "the same again");
        table.put(member, row(sync, "b", &[1, 2]));
        table.put(member, row(sync, "b", &[2]));
        table.put(member, row(sync, "c", &[]));
        assert_eq!(changes(&table, seen), [("b", 1), ("c", 0)]);
    }

    #[test]
    fn locks_missing_in_the_next_reading_of_a_member_are_removed() {
        let mut table = WatchTable::default();
        let (one, two) = (MemberId(1), MemberId(2));
        let sync = table.next_sync();
        for number in 0..10 {
            table.put(one, row(sync, &number.to_string(), &[1]));
        }
        table.put(two, row(sync, "9", &[2]));
        let (seen, again) = (table.newest(), table.next_sync());
        table.put(one, row(again, "3", &[1]));
        let mut after = table.sweep(one, again, None, 4);
        while after.is_some() {
            after = table.sweep(one, again, after, 4);
        }
        let changed = changes(&table, seen);
        assert_eq!(changed.len(), 9, "{changed:?}");
        assert!(changed.iter().all(|(name, holders)| *holders == usize::from(*name == "9") && *name != "3"));
    }

    #[test]
    fn watcher_that_is_too_far_behind_is_detected() {
        let mut table = WatchTable::default();
        let member = MemberId(1);
        table.put(member, row(1, "kept", &[1]));
        let began = table.newest();
        for number in 0..=MOST_UNUSED {
            table.put(member, row(1, &number.to_string(), &[1]));
            table.put(member, row(1, &number.to_string(), &[]));
        }
        assert!(table.has_forgotten_since(began, began));
        assert!(!table.has_forgotten_since(table.newest(), began), "it has seen all of it");
        assert!(!table.has_forgotten_since(0, table.newest()), "it begins now");
        assert_eq!(table.locks.len(), MOST_UNUSED + 1);
    }
}
