//! Snapshots of the cluster's lock table. Concurrent requests for lists share one query of all members.
//!
//! ```text
//!   reader 1 ──┐ waits
//!              ├─▶ one query of all members ─▶ snapshot ─▶ readers 1
//!   reader 2 ────┐ arrives during the query: it must see all grants before its arrival
//!   reader 3 ────┴─────▶ the next query ─────────────────▶ readers 2, 3
//! ```
//!
//! Queries take at most half of the time: each one is followed by a pause of the same length.

use crate::leases::LeaseError;
use crate::listing::{self, LockView};
use crate::metrics::Metrics;
use crate::worker::Worker;
use lockkeeper_cluster::{LockName, Member, MemberId, Query, Reply, SessionId, WaitExplanation, WaitGraph};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time for which further pages of a list are served from the same snapshot.
const CACHE_TIME: Duration = Duration::from_secs(5);
/// The maximum pause between two queries.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A snapshot of the locks that are held or waited for, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub locks: Vec<LockView>,
    /// The snapshot begins after this name; `None`: at the first lock.
    after: Option<Arc<str>>,
    /// The snapshot ends with this name; `None`: at the last lock. Further locks need another snapshot that begins
    /// there.
    until: Option<Arc<str>>,
    /// Approximate number of locks after the end of the snapshot.
    pub left_out: u64,
    /// Members that did not reply in time. Holds and waits of their clients are missing.
    pub silent: Vec<MemberId>,
    graph: OnceLock<WaitGraph>,
}

impl Snapshot {
    pub fn find(&self, name: &str) -> Option<&LockView> {
        let index = self.locks.binary_search_by(|lock| (*lock.name).cmp(name)).ok()?;
        self.locks.get(index)
    }

    /// Explains why a session waits.
    pub fn why(&self, session: SessionId) -> WaitExplanation {
        let graph = self.graph.get_or_init(|| {
            let rows: Vec<_> =
                self.locks.iter().filter(|lock| !lock.waiters.is_empty()).map(parties).collect();
            WaitGraph::new(rows.iter().map(|(lock, holders, waiters)| (lock, &holders[..], &waiters[..])))
        });
        graph.why(session)
    }

    /// The index ranges of the locks that have one of these prefixes and follow `after`. No prefix may cover another.
    pub fn ranges(&self, prefixes: &[String], after: Option<&str>) -> Vec<std::ops::Range<usize>> {
        // Example: in a, a/1, a/2, b/1, c, c/1 the prefixes "a/" and "c" after "a/1" select the ranges 2..3 and 4..6.
        let first = after.map_or(0, |after| self.locks.partition_point(|lock| *lock.name <= *after));
        let range = |prefix: &String| {
            let begin = self.locks.partition_point(|lock| *lock.name < **prefix);
            let count = self.locks[begin..].partition_point(|lock| lock.name.starts_with(prefix.as_str()));
            begin.max(first)..(begin + count).max(first)
        };
        prefixes.iter().map(range).filter(|range| !range.is_empty()).collect()
    }

    /// Whether the locks that follow this name begin in this snapshot.
    fn covers(&self, after: Option<&str>) -> bool {
        let begins = self.after.as_deref().is_none_or(|from| after.is_some_and(|after| after >= from));
        begins && self.until.as_deref().is_none_or(|until| after.is_none_or(|after| after < until))
    }

    /// The name at which the next snapshot begins; `None` if this one contains the last lock.
    pub fn until(&self) -> Option<&Arc<str>> {
        self.until.as_ref()
    }
}

type LockParties = (LockName, Vec<lockkeeper_cluster::Participant>, Vec<lockkeeper_cluster::Participant>);

fn parties(lock: &LockView) -> LockParties {
    let all = |parties: &[crate::listing::Party]| parties.iter().map(|party| party.who.clone()).collect();
    (LockName::new(lock.name.clone()), all(&lock.holders), all(&lock.waiters))
}

/// One page of the table: the locks by name, and the name up to which every member has replied.
struct TablePage {
    locks: Vec<LockView>,
    until: Option<LockName>,
    left_out: u64,
    bytes: usize,
}

/// Merges the replies of all members, up to the smallest name at which one of them was cut off.
fn merge(replies: Vec<Reply>, received_at: Instant) -> TablePage {
    // Example: member 1 sends a, c, e and has 2 more; member 2 sends b, c, d, g and has no more. The page ends with
    // e, because member 1 may have locks between e and g; g is read again with the next page.
    let until = replies.iter().filter_map(Reply::covers_until).min().cloned();
    let mut left_out: u64 = replies.iter().map(|reply| reply.left_out).sum();
    let mut rows = Vec::with_capacity(replies.iter().map(|reply| reply.locks.len()).sum());
    for reply in replies {
        rows.extend(reply.locks.into_iter().map(|row| (reply.node, row)));
    }
    // A stable sort is fast here: the rows of each member are already sorted.
    rows.sort_by(|(_, one), (_, other)| one.lock.cmp(&other.lock));
    let (mut locks, mut bytes): (Vec<LockView>, _) = (Vec::new(), 0);
    for (node, row) in rows {
        if until.as_ref().is_some_and(|until| row.lock > *until) {
            left_out += 1;
            continue;
        }
        if locks.last().is_none_or(|lock| lock.name != row.lock.name) {
            locks.push(LockView::new(row.lock.name.clone()));
        }
        if let Some(lock) = locks.last_mut() {
            lock.add(node, received_at, row);
        }
    }
    for lock in &mut locks {
        lock.sort();
        bytes += lock.bytes();
    }
    TablePage { locks, until, left_out, bytes }
}

type SnapshotReader = oneshot::Sender<Result<Arc<Snapshot>, LeaseError>>;

#[derive(Default)]
struct State {
    running: bool,
    /// The readers that wait for a snapshot, by the name after which it begins.
    waiting: VecDeque<(Option<Arc<str>>, Vec<SnapshotReader>)>,
    /// The newest snapshot, with the start time of its query.
    last: Option<(Instant, Arc<Snapshot>)>,
}

/// Takes snapshots of the lock table and shares them between readers.
pub(crate) struct Snapshots {
    member: Member,
    worker: Arc<Worker>,
    metrics: Arc<Metrics>,
    most_bytes: usize,
    state: Mutex<State>,
    me: Weak<Self>,
}

impl Snapshots {
    pub fn new(member: Member, worker: Arc<Worker>, metrics: Arc<Metrics>, most_bytes: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new_cyclic(|me| Self { member, worker, metrics, most_bytes, state, me: me.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread on which lists are built.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// A snapshot of the current state, beginning at the first lock.
    pub async fn take(&self) -> Result<Arc<Snapshot>, LeaseError> {
        self.take_after(None).await
    }

    /// Returns a snapshot that covers the locks after `after`. The cached one is reused if it was begun after
    /// `arrived`, or, for pages after the first, less than `CACHE_TIME` ago.
    pub async fn page(&self, after: Option<&str>, arrived: Instant) -> Result<Arc<Snapshot>, LeaseError> {
        let recent = self.state().last.clone();
        let recent =
            recent.filter(|(begun, _)| *begun >= arrived || after.is_some() && begun.elapsed() < CACHE_TIME);
        if let Some((_, snapshot)) = recent.filter(|(_, snapshot)| snapshot.covers(after)) {
            return Ok(snapshot);
        }
        let snapshot = self.take().await?;
        match after {
            Some(after) if !snapshot.covers(Some(after)) => self.take_after(Some(Arc::from(after))).await,
            _ => Ok(snapshot),
        }
    }

    /// Runs `read` on a snapshot, on the worker thread.
    pub async fn read<T, F>(&self, read: F) -> Result<T, LeaseError>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot) -> T + Send + 'static,
    {
        let snapshot = self.page(None, Instant::now()).await?;
        self.worker.run(move || read(&snapshot)).await.ok_or_else(cannot_list)
    }

    async fn take_after(&self, after: Option<Arc<str>>) -> Result<Arc<Snapshot>, LeaseError> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            match state.waiting.iter_mut().find(|(key, _)| *key == after) {
                Some((_, waiting)) => waiting.push(sender),
                None => state.waiting.push_back((after, vec![sender])),
            }
            if let (false, Some(me)) = (state.running, self.me.upgrade()) {
                state.running = true;
                tokio::spawn(me.run());
            }
        }
        receiver.await.unwrap_or_else(|_| Err(cannot_list()))
    }

    /// Takes snapshots until no reader waits.
    async fn run(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                // Readers whose connection has closed are not served.
                state.waiting.retain(|(_, readers)| readers.iter().any(|reader| !reader.is_closed()));
                let next = state.waiting.pop_front();
                state.running = next.is_some();
                next
            };
            let Some((after, waiting)) = next else { return };
            let begun = Instant::now();
            let made = self.gather(after).await.map(Arc::new);
            if let Ok(snapshot) = &made {
                self.cache(begun, snapshot);
            }
            for reader in waiting {
                let _ = reader.send(made.clone());
            }
            tokio::time::sleep(begun.elapsed().min(LONGEST_PAUSE)).await;
        }
    }

    /// Keeps a snapshot for further pages, and drops it after [`CACHE_TIME`].
    fn cache(&self, begun: Instant, snapshot: &Arc<Snapshot>) {
        self.state().last = Some((begun, snapshot.clone()));
        let me = self.me.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CACHE_TIME).await;
            if let Some(me) = me.upgrade() {
                let mut state = me.state();
                if state.last.as_ref().is_some_and(|(begun, _)| begun.elapsed() >= CACHE_TIME) {
                    state.last = None;
                }
            }
        });
    }

    async fn gather(&self, after: Option<Arc<str>>) -> Result<Snapshot, LeaseError> {
        self.metrics.snapshot();
        let mut snapshot = Snapshot { after: after.clone(), ..Snapshot::default() };
        let (mut from, mut bytes) = (after.map(LockName::new), 0);
        loop {
            let replies = self.member.query(Query::Page(from)).await?;
            for id in listing::missing_members(&self.member, &replies) {
                if !snapshot.silent.contains(&id) {
                    snapshot.silent.push(id);
                }
            }
            let received_at = Instant::now();
            let page = self.worker.run(move || merge(replies, received_at)).await.ok_or_else(cannot_list)?;
            bytes += page.bytes;
            snapshot.locks.extend(page.locks);
            snapshot.left_out = page.left_out;
            if page.until.is_none() {
                return Ok(snapshot);
            }
            if bytes >= self.most_bytes {
                snapshot.until = page.until.map(|until| until.name);
                return Ok(snapshot);
            }
            from = page.until;
        }
    }
}

fn cannot_list() -> LeaseError {
    LeaseError::Unavailable(String::from("the list of locks could not be made; try again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_cluster::{LockStatus, Node};

    fn snapshot(names: &[&str]) -> Snapshot {
        Snapshot {
            locks: names.iter().map(|name| LockView::new(Arc::from(*name))).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn only_locks_under_the_prefixes_are_visited() {
        let snapshot = snapshot(&["a", "a/1", "a/2", "b/1", "c", "c/1"]);
        let ranges = |prefixes: &[&str], after| {
            let prefixes: Vec<String> = prefixes.iter().map(|prefix| String::from(*prefix)).collect();
            snapshot.ranges(&prefixes, after)
        };
        assert_eq!(ranges(&["a/", "c"], None), [1..3, 4..6]);
        assert_eq!(ranges(&["a/", "c"], Some("a/1")), [2..3, 4..6]);
        assert_eq!(ranges(&[""], Some("b/1")), Vec::from_iter(Some(4..6)));
        assert_eq!(ranges(&["x", "b/2"], None), []);
        assert_eq!(ranges(&[], None), []);
    }

    #[test]
    fn replies_are_merged_up_to_the_shortest_one() {
        let reply = |id, names: &[&str], left_out| Reply {
            node: Node { id: MemberId(id), incarnation: 1 },
            locks: Vec::from_iter(names.iter().map(|name| LockStatus {
                lock: LockName::new(*name),
                holders: Vec::new(),
                waiters: Vec::new(),
                left_out: 0,
            })),
            left_out,
        };
        let page =
            merge(vec![reply(1, &["a", "c", "e"], 2), reply(2, &["b", "c", "d", "g"], 0)], Instant::now());
        let names: Vec<&str> = page.locks.iter().map(|lock| &*lock.name).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
        assert_eq!((page.until, page.left_out), (Some(LockName::new("e")), 3), "g comes with the next page");
    }

    #[test]
    fn truncated_snapshot_serves_only_the_pages_that_it_contains() {
        let whole = snapshot(&["a"]);
        assert!(whole.covers(None) && whole.covers(Some("x")));
        let cut = Snapshot { until: Some(Arc::from("m")), ..snapshot(&["a"]) };
        assert!(
            cut.covers(None) && cut.covers(Some("a")) && !cut.covers(Some("m")) && !cut.covers(Some("x"))
        );
        let rest = Snapshot { after: Some(Arc::from("m")), ..snapshot(&["n"]) };
        assert!(!rest.covers(None) && !rest.covers(Some("a")) && rest.covers(Some("m")));
    }
}
