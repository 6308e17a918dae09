//! Holders and waiters in the whole cluster, for watch streams. Other daemons are queried only while there are
//! watches.
//!
//! The daemon reads the table of each member once, in pages, and then only its changes. All watchers share the merged
//! table. Each lock in it has a version, and a watcher only stores the version up to which it has seen the table. The
//! cost of a change for each watcher is thus independent of the number of locks.

use super::local_leases::LocalLeases;
use super::messages::{ChangeNumbers, ChunkKind, DaemonReply, DaemonRequest, TableChunk, TableRange};
use super::operations::Hold;
use super::outgoing_waits::{POLL_INTERVAL, POLL_TIMEOUT};
use super::peers::Peers;
use super::watch_table::{Row, WatchTable};
use crate::access::covers;
use crate::worker::Worker;
use lockkeeper_cluster::{LockName, LockStatus, MemberId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub(crate) use super::watch_table::{HoldersSummary, WatchedLock};

/// Delay after a change, so that changes in quick succession are sent together.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Pause before a request is repeated, and period at which the list of members is checked.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of prefixes in a request. If more are watched, all locks are requested.
const MOST_PREFIXES: usize = 64;
/// Approximate size of one page of a table, in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Approximate maximum size of the row of one lock, in bytes.
const ROW_BYTES: usize = 64 << 10;
/// Number of rows or versions that are processed before the mutex of the table is released.
const SLICE: usize = 256;

/// The watched prefixes, and whether the members are followed for them.
#[derive(Default)]
struct Interest {
    /// Number of watches of each prefix.
    prefixes: BTreeMap<String, usize>,
    running: bool,
}

/// Follows all members while there are watches.
pub(super) struct ClusterWatcher {
    local: Arc<LocalLeases>,
    peers: Arc<Peers>,
    worker: Arc<Worker>,
    table: Mutex<WatchTable>,
    /// The newest version in the table.
    news: watch::Sender<u64>,
    /// Incremented when holds by leases may have changed.
    holds: watch::Sender<u64>,
    interest: Mutex<Interest>,
    /// The prefixes that are followed. They cover all that are watched, and may cover more.
    followed: watch::Sender<Vec<String>>,
    /// Kept, since the member counts changes only while it has receivers.
    tables: OnceLock<watch::Receiver<u64>>,
    me: Weak<Self>,
}

impl ClusterWatcher {
    pub fn new(local: Arc<LocalLeases>, peers: Arc<Peers>, worker: Arc<Worker>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            local,
            peers,
            worker,
            table: Mutex::default(),
            news: watch::Sender::new(0),
            holds: watch::Sender::new(0),
            interest: Mutex::default(),
            followed: watch::Sender::default(),
            tables: OnceLock::new(),
            me: me.clone(),
        })
    }

    fn table(&self) -> MutexGuard<'_, WatchTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interest(&self) -> MutexGuard<'_, Interest> {
        self.interest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the locks with these prefixes.
    pub fn watch(&self, prefixes: Vec<String>) -> Watch {
        let mut interest = self.interest();
        for prefix in &prefixes {
            *interest.prefixes.entry(prefix.clone()).or_default() += 1;
        }
        let is_covered = |prefix: &String| covers(&self.followed.borrow(), prefix);
        if !interest.running || !prefixes.iter().all(is_covered) {
            self.followed.send_replace(all_of(&interest.prefixes));
        }
        if let (false, Some(me)) = (interest.running, self.me.upgrade()) {
            interest.running = true;
            tokio::spawn(me.run());
        }
        drop(interest);
        let (news, holds) = (self.news.subscribe(), self.holds.subscribe());
        let began = self.table().newest();
        Watch { watcher: self.me.clone(), prefixes, began, seen: 0, news, holds }
    }

    /// Follows every member until no watch is left.
    async fn run(self: Arc<Self>) {
        let mut following: HashMap<MemberId, AbortHandle> = HashMap::new();
        loop {
            {
                let mut interest = self.interest();
                if interest.prefixes.is_empty() {
                    interest.running = false;
                    following.values().for_each(AbortHandle::abort);
                    self.table().clear();
                    return;
                }
            }
            let mut members = self.peers.others();
            members.push(self.peers.me());
            let gone: Vec<MemberId> = following.keys().copied().filter(|id| !members.contains(id)).collect();
            for member in gone {
                following.remove(&member).inspect(AbortHandle::abort);
                self.forget(member).await;
            }
            for member in members {
                let follow = || tokio::spawn(self.clone().follow(member)).abort_handle();
                following.entry(member).or_insert_with(follow);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Follows one member: reads its whole table, then its changes.
    async fn follow(self: Arc<Self>, member: MemberId) {
        let mut followed = self.followed.subscribe();
        let mut range = TableRange::Page(None);
        let mut first: Option<ChangeNumbers> = None;
        let mut sync = 0;
        let (mut received_at, mut began) = (Instant::now(), Instant::now());
        loop {
            let prefixes = followed.borrow_and_update().clone();
            let read = tokio::select! {
                read = self.read(member, range.clone(), prefixes) => read,
                // A new watch needs other prefixes: read the whole table again.
                _ = followed.changed() => {
                    (range, first) = (TableRange::Page(None), None);
                    continue;
                }
            };
            let Some(chunk) = read else {
                if received_at.elapsed() > POLL_TIMEOUT || self.peers.is_gone(member) {
                    (range, first) = (TableRange::Page(None), None);
                    self.forget(member).await;
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            received_at = Instant::now();
            if first.is_none() {
                (sync, began) = (self.table().next_sync(), received_at);
            }
            let (next, kind) = (chunk.next, chunk.kind.clone());
            self.take(member, sync, chunk, received_at).await;
            range = match kind {
                ChunkKind::Page(Some(after)) => {
                    first.get_or_insert(next);
                    TableRange::Page(Some(after))
                }
                ChunkKind::Page(None) => {
                    let changes = *first.get_or_insert(next);
                    self.sweep(member, sync).await;
                    // Limits the cost of repeated full readings, which clients can provoke, to half of this daemon's
                    // time.
                    tokio::time::sleep(began.elapsed().min(POLL_TIMEOUT)).await;
                    TableRange::Changes(changes)
                }
                ChunkKind::Changes => TableRange::Changes(next),
                ChunkKind::Unknown => {
                    first = None;
                    TableRange::Page(None)
                }
            };
        }
    }

    async fn read(&self, member: MemberId, range: TableRange, prefixes: Vec<String>) -> Option<TableChunk> {
        if member == self.peers.me() {
            return self.read_own_table(range, prefixes).await;
        }
        let request = DaemonRequest::ReadTable { range, prefixes };
        match self.peers.send_once(member, &request, POLL_INTERVAL * 3).await {
            Ok(DaemonReply::Table(seen)) => seen,
            _ => None,
        }
    }

    /// Stores the rows of a member in the table, [`SLICE`] rows at a time.
    async fn take(&self, member: MemberId, sync: u64, chunk: TableChunk, received_at: Instant) {
        let (node, mut holds) = (chunk.node, false);
        let mut rows = chunk.rows.into_iter().peekable();
        while rows.peek().is_some() {
            {
                let mut table = self.table();
                for (status, of_leases) in rows.by_ref().take(SLICE) {
                    holds |= table.put(member, Row { sync, node, received_at, status, holds: of_leases });
                }
                self.notify(&table);
            }
            tokio::task::yield_now().await;
        }
        if holds {
            self.holds.send_modify(|changes| *changes += 1);
        }
    }

    /// After the whole table of a member was read: removes rows that it no longer contains.
    async fn sweep(&self, member: MemberId, sync: u64) {
        let mut after: Option<Arc<str>> = None;
        loop {
            {
                let mut table = self.table();
                after = table.sweep(member, sync, after, SLICE);
                self.notify(&table);
            }
            if after.is_none() {
                return self.holds.send_modify(|changes| *changes += 1);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn forget(&self, member: MemberId) {
        let sync = self.table().next_sync();
        self.sweep(member, sync).await;
    }

    fn notify(&self, table: &WatchTable) {
        let newest = table.newest();
        self.news.send_if_modified(|before| std::mem::replace(before, newest) != newest);
    }

    /// A page of this member's table, or its changes, which it waits for. `None` if the worker thread has failed.
    pub async fn read_own_table(&self, range: TableRange, prefixes: Vec<String>) -> Option<TableChunk> {
        let mut tables = self.tables.get_or_init(|| self.peers.member.watch_table()).clone();
        let mut changes = self.local.changes.subscribe();
        let numbers = |tables: &mut watch::Receiver<u64>, changes: &mut watch::Receiver<u64>| {
            (*tables.borrow_and_update(), *changes.borrow_and_update())
        };
        let now = numbers(&mut tables, &mut changes);
        match range {
            TableRange::Page(after) => self.read_page(now, after, prefixes).await,
            TableRange::Changes(seen) => {
                if now == seen {
                    let changed = async {
                        tokio::select! {
                            _ = tables.changed() => {}
                            _ = changes.changed() => {}
                        }
                        tokio::time::sleep(BATCH_DELAY).await;
                    };
                    let _ = tokio::time::timeout(POLL_INTERVAL, changed).await;
                }
                Some(self.read_changes(seen, &prefixes))
            }
        }
    }

    async fn read_page(
        &self,
        next: ChangeNumbers,
        after: Option<String>,
        prefixes: Vec<String>,
    ) -> Option<TableChunk> {
        let member = self.peers.member.clone();
        let node = member.status().node;
        let page = move || {
            let (mut table, left_out) = member.table_page(after.map(LockName::new), PAGE_BYTES);
            let last = table.last().filter(|_| left_out > 0).map(|row| row.lock.name.to_string());
            table.retain(|row| covers(&prefixes, &row.lock.name));
            (table, last)
        };
        let (table, last) = self.worker.run(page).await?;
        Some(TableChunk { next, node, rows: self.with_holds(table), kind: ChunkKind::Page(last) })
    }

    fn read_changes(&self, seen: ChangeNumbers, prefixes: &[String]) -> TableChunk {
        let member = &self.peers.member;
        let node = member.status().node;
        let (Some((mut table, next)), Some((names, next_hold))) =
            (member.table_changes(seen.0), self.local.changed_since(seen.1))
        else {
            return TableChunk { next: seen, node, rows: Vec::new(), kind: ChunkKind::Unknown };
        };
        table.retain(|row| covers(prefixes, &row.lock.name));
        let known: BTreeSet<&str> = table.iter().map(|row| &*row.lock.name).collect();
        let more: Vec<LockStatus> = names
            .iter()
            .filter(|name| covers(prefixes, name) && !known.contains(name.as_str()))
            .map(|name| member.table_row(name, ROW_BYTES))
            .collect();
        table.extend(more);
        TableChunk { next: (next, next_hold), node, rows: self.with_holds(table), kind: ChunkKind::Changes }
    }

    fn with_holds(&self, table: Vec<LockStatus>) -> Vec<(LockStatus, Vec<Hold>)> {
        table
            .into_iter()
            .map(|row| {
                let holds = self.local.holds_on(&row.lock.name);
                (row, holds)
            })
            .collect()
    }
}

/// All watched prefixes, or the empty prefix if there are too many.
fn all_of(prefixes: &BTreeMap<String, usize>) -> Vec<String> {
    let all = crate::access::without_covered(prefixes.keys().cloned());
    if all.len() > MOST_PREFIXES { vec![String::new()] } else { all }
}

/// A watch of the locks under some prefixes.
pub(crate) struct Watch {
    watcher: Weak<ClusterWatcher>,
    prefixes: Vec<String>,
    /// The newest version when the watch began. Locks no longer in use by then are not shown.
    began: u64,
    seen: u64,
    news: watch::Receiver<u64>,
    holds: watch::Receiver<u64>,
}

impl Watch {
    /// The next locks to show, at least one and at most `most`: first all locks in use, then those that have changed.
    /// `None` if the daemon stops, or if the watcher is so far behind that it has missed the end of a lock's use; it
    /// must begin anew. Cancel safe.
    pub async fn next_batch(&mut self, most: usize) -> Option<Vec<Arc<WatchedLock>>> {
        loop {
            let watcher = self.watcher.upgrade()?;
            self.news.borrow_and_update();
            let (mut looked, mut found) = (0, Vec::new());
            {
                let table = watcher.table();
                if table.has_forgotten_since(self.seen, self.began) {
                    return None;
                }
                for (version, shown) in table.since(self.seen).take(SLICE) {
                    (self.seen, looked) = (version, looked + 1);
                    let over = shown.view.is_empty() && version <= self.began;
                    if !over && covers(&self.prefixes, &shown.view.name) {
                        found.push(shown.clone());
                        if found.len() == most {
                            break;
                        }
                    }
                }
            }
            if !found.is_empty() {
                return Some(found);
            }
            drop(watcher);
            if looked == SLICE {
                tokio::task::yield_now().await;
            } else {
                self.news.changed().await.ok()?;
            }
        }
    }

    /// Skips all changes so far.
    pub fn skip(&mut self) {
        self.seen = self.watcher.upgrade().map_or(self.seen, |watcher| watcher.table().newest());
    }

    /// Resolves when the holds of leases may have changed; `false` if the daemon stops.
    pub async fn holds_changed(&mut self) -> bool {
        self.holds.changed().await.is_ok()
    }

    /// Resolves when the table may have changed. It never does once the daemon stops.
    pub async fn changed(&mut self) {
        let changed = async {
            tokio::select! {
                changed = self.news.changed() => changed,
                changed = self.holds.changed() => changed,
            }
        };
        if changed.await.is_err() {
            std::future::pending().await
        }
    }

    /// The present holders of a lock in the table. Marks all changes so far as seen.
    pub fn summary(&mut self, lock: &str) -> HoldersSummary {
        self.news.borrow_and_update();
        self.holds.borrow_and_update();
        self.watcher.upgrade().map(|watcher| watcher.table().summary(lock)).unwrap_or_default()
    }

    /// The newest hold of a lock by a lease.
    pub fn leader(&mut self, lock: &str) -> Option<Hold> {
        self.holds.borrow_and_update();
        self.watcher.upgrade()?.table().leader(lock)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let mut interest = watcher.interest();
        for prefix in &self.prefixes {
            if let Some(count) = interest.prefixes.get_mut(prefix) {
                *count -= 1;
                if *count == 0 {
                    interest.prefixes.remove(prefix);
                }
            }
        }
    }
}
