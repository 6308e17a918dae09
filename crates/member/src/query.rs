//! Holders and waiters of all members, and the reasons why clients wait.

use crate::lock::Active;
use crate::member::{Member, Message, Timer};
use crate::{Acquisition, Body, Bugs, Fence, LockName, Node, Note, Out, SessionId, Tag};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lockkeeper_core::{LockMode, MutualExclusion};
use serde::{Deserialize, Serialize};

/// The locks that a query across members selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// The locks whose names follow this one, in the order of their names: as many as fit into one reply. `None`:
    /// from the first lock on.
    Page(Option<LockName>),
    /// One lock. A member answers this without a scan of its table.
    One(LockName),
}

impl Query {
    /// Every lock, as far as one reply has room for them.
    pub const ALL: Self = Self::Page(None);
}

/// The reply of one member to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The member that replied.
    pub node: Node,
    /// The locks that its clients hold or wait for, in the order of their names.
    pub locks: LockList,
    /// Number of further locks that match the query and did not fit. They follow the last one in `locks`: the next
    /// page begins there.
    pub left_out: u64,
}

impl Reply {
    /// The last name that this reply covers, if more locks follow; `None` if the reply is complete.
    pub fn covers_until(&self) -> Option<&LockName> {
        self.locks.last().filter(|_| self.left_out > 0).map(|row| &row.lock)
    }
}

/// The locks that clients of one member hold or wait for.
pub type LockList = Vec<LockStatus>;

/// The state of one lock at one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// The lock's name.
    pub lock: LockName,
    /// The holders at this member.
    pub holders: Vec<Participant>,
    /// The waiters at this member, in the order of their queue.
    pub waiters: Vec<Participant>,
    /// Number of further holders and waiters at this member that did not fit into the reply.
    pub left_out: u32,
}

/// A holder of a lock, or a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// The acquisition that holds or waits.
    pub acquisition: Acquisition,
    /// The mode: exclusive, shared, or a permit.
    pub mode: LockMode,
    /// The client's description of the request.
    pub tag: Tag,
    /// The fence of a hold.
    pub fence: Option<Fence>,
    /// How long it has held or waited at the time of the reply, on its member's clock.
    pub for_ns: u64,
    /// The beginning of the hold or the wait, in milliseconds of Unix time on its member's machine: for operators.
    pub since_ms: u64,
    /// The deadline of a [detached](Member::detach_resident) hold, in milliseconds of Unix time.
    pub detached_until_ms: Option<u64>,
    /// Whether the client of a hold is disconnected or has sent nothing since its session was adopted: if it does not
    /// come back, the hold ends with its time to live.
    pub in_jeopardy: bool,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// The locks that clients of this member hold or wait for, in the order of their names.
    pub fn table(&self, now: u64) -> LockList {
        let mut scan = LockScan::new(Query::ALL, usize::MAX);
        while !self.scan(now, usize::MAX, &mut scan) {}
        scan.finish().0
    }

    /// Adds up to about `most` more locks to a table. Returns whether the table is complete. A lock whose use begins
    /// during the scan may be missing; one that is in use all the time is not.
    pub fn scan(&self, now: u64, most: usize, scan: &mut LockScan) -> bool {
        let mut left = most;
        if let Query::One(lock) = &scan.query {
            let row = self.status_of(now, lock, MOST_BYTES / 2);
            scan.table =
                Vec::from_iter(Some(row).filter(|row| !row.holders.is_empty() || !row.waiters.is_empty()));
            return true;
        }
        // Downwards from the last one: a lock that becomes idle is replaced in the list by the last one, which was
        // scanned before.
        let mut next = scan.next.unwrap_or(usize::MAX).min(self.locks.active_count());
        while next > 0 && left > 0 {
            next -= 1;
            left -= 1;
            if let Some((_, name, active)) =
                self.locks.active_at(next).filter(|(_, _, active)| active.is_busy())
            {
                left = left.saturating_sub((active.holds.len() + active.queue.len()) / 4);
                scan.add(name, |most_bytes| self.status(now, name, active, most_bytes));
            }
        }
        scan.next = Some(next);
        next == 0 && scan.write_rows(left)
    }

    /// The state of one lock at this member, in about `most_bytes` bytes; without holders and waiters if no client of
    /// this member uses it.
    pub fn status_of(&self, now: u64, lock: &LockName, most_bytes: usize) -> LockStatus {
        let active = self.locks.find(lock).and_then(|id| self.locks.get(id).active.as_ref());
        match active {
            Some(active) => self.status(now, lock, active, most_bytes),
            None => LockStatus { lock: lock.clone(), holders: Vec::new(), waiters: Vec::new(), left_out: 0 },
        }
    }

    /// The row of one lock, of about `most_bytes` bytes at most: the holders come first, then the waiters in the
    /// order of their queue.
    fn status(&self, now: u64, name: &LockName, active: &Active, most_bytes: usize) -> LockStatus {
        let held = active.holds.iter().flat_map(|hold| {
            hold.acquisitions().map(|acquisition| Participant {
                acquisition,
                mode: hold.mode,
                tag: hold.tag.clone(),
                fence: hold.fence,
                for_ns: now.saturating_sub(hold.since_ns),
                since_ms: self.config.unix_ms(hold.since_ns),
                detached_until_ms: hold.detached_until_ms,
                in_jeopardy: hold.detached_until_ms.is_none()
                    && self.is_in_jeopardy(now, acquisition.session),
            })
        });
        let waits = active.queue.iter().map(|waiter| Participant {
            acquisition: waiter.acquisition,
            mode: waiter.mode,
            tag: waiter.tag.clone(),
            fence: None,
            for_ns: now.saturating_sub(waiter.since_ns),
            since_ms: self.config.unix_ms(waiter.since_ns),
            detached_until_ms: None,
            in_jeopardy: false,
        });
        let mut left = most_bytes;
        let mut fits = |who: &Participant| {
            left = left.saturating_sub(bytes_of(who));
            left > 0
        };
        let holders: Vec<Participant> = held.take_while(&mut fits).collect();
        let waiters: Vec<Participant> = waits.take_while(&mut fits).collect();
        let all =
            active.holds.iter().map(|hold| hold.acquisitions().count()).sum::<usize>() + active.queue.len();
        let left_out = u32::try_from(all - holders.len() - waiters.len()).unwrap_or(u32::MAX);
        LockStatus { lock: name.clone(), holders, waiters, left_out }
    }

    fn is_in_jeopardy(&self, now: u64, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.is_in_jeopardy(now, &self.config))
    }

    /// Handles a query of another member.
    pub(crate) fn receive_query(&mut self, from: Node, number: u64, query: Query) {
        const MOST: usize = 64;
        let new = |pending: &PendingQuery| (pending.from, pending.number) != (from, number);
        if self.scans.len() < MOST && self.scans.iter().all(new) {
            self.scans.push_back(PendingQuery { from, number, scan: LockScan::new(query, MOST_BYTES) });
        }
    }

    /// Continues to answer queries, the oldest first.
    pub(crate) fn continue_scanning(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while self.has_budget() {
            let Some(mut pending) = self.scans.pop_front() else { return };
            let most = self.config.slice().saturating_sub(self.work);
            let done = self.scan(now, most, &mut pending.scan);
            self.spend(if done { 1 } else { most });
            if !done {
                return self.scans.push_front(pending);
            }
            let (locks, left_out) = pending.scan.finish();
            self.send(pending.from, Body::Reply { number: pending.number, locks, left_out }, out);
        }
    }

    /// The mode in which a client of this member holds the lock, or else in which the first waiter requests it.
    pub fn mode_in_use(&self, lock: &LockName) -> Option<LockMode> {
        let active = self.locks.get(self.locks.find(lock)?).active.as_ref()?;
        let held = active.holds.first().map(|hold| hold.mode);
        held.or_else(|| active.queue.front().map(|waiter| waiter.mode))
    }

    /// Sends a query to every member of the view. The driver chooses its number.
    pub(crate) fn send_query(&mut self, now: u64, number: u64, query: &Query, out: &mut Out<Message<P>>) {
        let members = self.running().map_or_else(Vec::new, |view| view.members.clone());
        self.query_replies.insert(number, Vec::new());
        self.timers.insert((now + 10 * self.config.round_trip_ns, Timer::QueryTimeout(number)));
        for node in members {
            self.send(node, Body::Query { number, query: query.clone() }, out);
        }
    }

    /// Handles a reply to a query. The query ends with the reply of the last member.
    pub(crate) fn receive_reply(&mut self, number: u64, reply: Reply, out: &mut Out<Message<P>>) {
        let members = self.running().map_or(0, |view| view.members.len());
        let Some(replies) = self.query_replies.get_mut(&number) else { return };
        if replies.iter().all(|earlier| earlier.node != reply.node) {
            replies.push(reply);
        }
        if replies.len() >= members {
            self.end_query(number, out);
        }
    }

    /// Reports the replies that have arrived: all members have replied, or the query has timed out.
    pub(crate) fn end_query(&mut self, number: u64, out: &mut Out<Message<P>>) {
        if let Some(mut replies) = self.query_replies.remove(&number) {
            replies.sort_by_key(|reply| reply.node);
            out.notes.push(Note::Replies(number, replies));
        }
    }
}

/// Approximate limit of the table in a reply, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// A query of another member that is being answered.
#[derive(Clone, Debug)]
pub(crate) struct PendingQuery {
    from: Node,
    number: u64,
    scan: LockScan,
}

/// Approximate size of a holder or waiter in a reply, in bytes.
fn bytes_of(who: &Participant) -> usize {
    64 + who.tag.owner.len() + who.tag.purpose.len()
}

/// A table under construction. If it becomes too large, the locks with the first names are kept.
#[derive(Clone, Debug)]
pub struct LockScan {
    query: Query,
    /// Number of active locks, from the first one on, that are still to be scanned.
    next: Option<usize>,
    rows: BTreeMap<LockName, (usize, LockStatus)>,
    bytes: usize,
    most_bytes: usize,
    /// The lowest name that did not fit: neither do those after it.
    bound: Option<LockName>,
    left_out: u64,
    /// The rows written so far, once every lock was scanned.
    table: LockList,
}

impl LockScan {
    /// Creates a scan for this query, with a table of about `most_bytes` bytes at most.
    pub fn new(query: Query, most_bytes: usize) -> Self {
        Self {
            query,
            next: None,
            rows: BTreeMap::new(),
            bytes: 0,
            most_bytes,
            bound: None,
            left_out: 0,
            table: Vec::new(),
        }
    }

    /// Adds the row of a lock, unless it lies outside of the page or does not fit.
    fn add(&mut self, name: &LockName, status: impl FnOnce(usize) -> LockStatus) {
        if matches!(&self.query, Query::Page(Some(after)) if name <= after) {
            return;
        }
        if self.bound.as_ref().is_some_and(|bound| name >= bound) {
            self.left_out += 1;
            return;
        }
        // A row takes at most half of the table, so that every page has at least one lock.
        let row = status(self.most_bytes / 2);
        let bytes =
            32 + row.lock.name.len() + row.holders.iter().chain(&row.waiters).map(bytes_of).sum::<usize>();
        if let Some((before, _)) = self.rows.insert(name.clone(), (bytes, row)) {
            self.bytes -= before;
        }
        self.bytes += bytes;
        while self.bytes > self.most_bytes
            && let Some((name, (bytes, _))) = self.rows.pop_last()
        {
            self.bytes -= bytes;
            self.left_out += 1;
            self.bound = Some(name);
        }
    }

    /// Writes up to `most` rows into the table, in the order of their names. Returns whether all rows are written.
    fn write_rows(&mut self, most: usize) -> bool {
        if self.table.is_empty() {
            self.table.reserve_exact(self.rows.len());
        }
        for _ in 0..most {
            let Some((_, (_, row))) = self.rows.pop_first() else { break };
            self.table.push(row);
        }
        self.rows.is_empty()
    }

    /// The table, in the order of the locks' names, and the number of locks that did not fit.
    pub fn finish(mut self) -> (LockList, u64) {
        self.write_rows(usize::MAX);
        (self.table, self.left_out)
    }
}

/// All waiters of a lock, over all members, the longest wait first. Among clients of one member this is the order in
/// which they are served; between members it is an approximation, because the algorithm decides the order.
pub fn waiters<'a>(tables: &'a [(Node, LockList)], lock: &LockName) -> Vec<(Node, &'a Participant)> {
    let rows = tables.iter().flat_map(|(node, table)| table.iter().map(move |row| (*node, row)));
    let here = rows.filter(|(_, row)| row.lock == *lock);
    let mut all: Vec<_> =
        here.flat_map(|(node, row)| row.waiters.iter().map(move |who| (node, who))).collect();
    // The sort is stable, so waiters of one member stay in the order of their queue.
    all.sort_by_key(|(_, who)| core::cmp::Reverse(who.for_ns));
    all
}

/// One step of an explanation: the waiter waits for the lock, which the holder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCause {
    /// The waiting acquisition.
    pub waiter: Acquisition,
    /// The lock that it waits for.
    pub lock: LockName,
    /// The acquisition that holds it.
    pub holder: Acquisition,
}

/// An explanation why a session waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitExplanation {
    /// The chain of waits, beginning with the session in question.
    pub chain: Vec<WaitCause>,
    /// If the chain returns to one of its sessions: the index of that session's step. None of the waits on such a
    /// cycle ends by itself.
    pub cycle: Option<usize>,
}

/// Follows the waits of a session over all locks, through the tables of all members. Returns a cycle if there is one,
/// otherwise the longest chain that was found. To explain several sessions, create one [`WaitGraph`].
pub fn why(tables: &[(Node, LockList)], session: SessionId) -> WaitExplanation {
    let rows = tables.iter().flat_map(|(_, table)| table);
    WaitGraph::new(rows.map(|row| (&row.lock, &*row.holders, &*row.waiters))).why(session)
}

/// The locks that each session waits for, and the holders of these locks.
#[derive(Clone, Debug, Default)]
pub struct WaitGraph {
    waits: BTreeMap<SessionId, Vec<(Acquisition, LockMode, LockName)>>,
    holders: BTreeMap<LockName, Vec<(Acquisition, LockMode)>>,
}

/// The longest search, in steps from a waiter to a holder: sessions that all wait for each other have exponentially
/// many chains.
const MOST_STEPS: usize = 100_000;

impl WaitGraph {
    /// Creates a graph. Each row is a lock with its holders and waiters; a lock may have a row for each member.
    pub fn new<'a>(
        rows: impl Iterator<Item = (&'a LockName, &'a [Participant], &'a [Participant])> + Clone,
    ) -> Self {
        let mut graph = Self::default();
        for (lock, _, waiters) in rows.clone() {
            for who in waiters {
                let wait = (who.acquisition, who.mode, lock.clone());
                graph.waits.entry(who.acquisition.session).or_default().push(wait);
                graph.holders.entry(lock.clone()).or_default();
            }
        }
        // Locks without waiters are not part of any chain.
        for (lock, holders, _) in rows {
            if let Some(all) = graph.holders.get_mut(lock) {
                all.extend(holders.iter().map(|who| (who.acquisition, who.mode)));
            }
        }
        graph
    }

    /// The steps that lead from a session to the holders that it waits for.
    fn steps(&self, session: SessionId) -> impl Iterator<Item = WaitCause> + '_ {
        let waits = self.waits.get(&session).into_iter().flatten();
        waits.flat_map(|(waiter, mode, lock)| {
            let holders = self.holders.get(lock).into_iter().flatten();
            let others = holders.filter(|(_, held)| held.competes(*mode));
            others.map(|(holder, _)| WaitCause { waiter: *waiter, lock: lock.clone(), holder: *holder })
        })
    }

    /// Explains why a session waits: a depth-first search, without recursion because a chain may be as long as there
    /// are sessions.
    pub fn why(&self, session: SessionId) -> WaitExplanation {
        let mut best = WaitExplanation { chain: Vec::new(), cycle: None };
        let (mut chain, mut seen): (Vec<WaitCause>, _) = (Vec::new(), BTreeSet::from([session]));
        let mut on_chain = BTreeMap::from([(session, 0_usize)]);
        let mut branches = Vec::from([(session, self.steps(session))]);
        let mut left = MOST_STEPS;
        while let Some((_, branch)) = branches.last_mut() {
            let next = branch.next().filter(|_| left > 0);
            left = left.saturating_sub(1);
            let Some(step) = next else {
                if chain.len() > best.chain.len() {
                    best.chain.clone_from(&chain);
                }
                chain.pop();
                let done = branches.pop();
                done.map(|(session, _)| on_chain.remove(&session));
                continue;
            };
            let to = step.holder.session;
            // The chain returns to one of its own sessions: a cycle.
            if let Some(&from) = on_chain.get(&to) {
                chain.push(step);
                return WaitExplanation { chain, cycle: Some(from) };
            }
            if seen.insert(to) {
                chain.push(step);
                on_chain.insert(to, chain.len());
                branches.push((to, self.steps(to)));
            } else if chain.len() + 1 > best.chain.len() {
                best.chain.clone_from(&chain);
                best.chain.push(step);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberId;
    use alloc::vec;

    fn who(client: u64) -> Participant {
        let acquisition = Acquisition { session: SessionId { client, number: 0 }, number: 0 };
        Participant {
            acquisition,
            mode: LockMode::Exclusive,
            tag: Tag::default(),
            fence: None,
            for_ns: 0,
            since_ms: 0,
            detached_until_ms: None,
            in_jeopardy: false,
        }
    }

    fn row(name: &str, holders: &[u64], waiters: &[u64]) -> LockStatus {
        let all = |clients: &[u64]| clients.iter().map(|&client| who(client)).collect();
        LockStatus { lock: LockName::new(name), holders: all(holders), waiters: all(waiters), left_out: 0 }
    }

    #[test]
    fn waiters_of_all_members_are_merged_in_the_order_of_each_queue() {
        let node = |id| Node { id: MemberId(id), incarnation: 1 };
        let waiting = |client, for_ns| Participant { for_ns, ..who(client) };
        let row = |waiters| LockStatus { lock: LockName::new("a"), holders: vec![], waiters, left_out: 0 };
        let tables = [
            (node(1), vec![row(vec![waiting(1, 9), waiting(2, 4)])]),
            (node(2), vec![row(vec![waiting(3, 7), waiting(4, 7)])]),
        ];
        let line = waiters(&tables, &LockName::new("a"));
        let clients: Vec<u64> = line.iter().map(|(_, who)| who.acquisition.session.client).collect();
        assert_eq!(clients, [1, 3, 4, 2]);
        assert_eq!(waiters(&tables, &LockName::new("b")), []);
    }

    #[test]
    fn a_table_that_is_too_large_keeps_the_first_names_and_counts_the_others() {
        let scan = |after: Option<&str>| {
            let mut scan = LockScan::new(Query::Page(after.map(LockName::new)), 1_000);
            for number in (0..100).rev().chain(100..200) {
                let name = LockName::new(alloc::format!("{number:03}"));
                scan.add(&name, |_| row(&name.name, &[], &[]));
            }
            scan.finish()
        };
        let (table, left_out) = scan(None);
        let names: Vec<&str> = table.iter().map(|row| &*row.lock.name).collect();
        assert_eq!((names.first(), names.len() as u64 + left_out), (Some(&"000"), 200));
        assert!(names.len() == 1_000 / 35 && names.is_sorted());
        let (next, still_left_out) = scan(names.last().copied());
        assert_eq!(&*next[0].lock.name, "028", "the next page begins where the first one ends");
        assert_eq!(next.len() as u64 + still_left_out, left_out);
    }

    #[test]
    fn a_wait_cycle_over_two_members_is_found() {
        let node = |id| Node { id: MemberId(id), incarnation: 1 };
        let tables = [
            (node(1), vec![row("a", &[1], &[]), row("b", &[], &[1])]),
            (node(2), vec![row("a", &[], &[2, 3]), row("b", &[2], &[])]),
        ];
        let session = |client| SessionId { client, number: 0 };
        let result = why(&tables, session(3));
        assert_eq!(result.cycle, Some(1), "3 waits for 1, which waits for 2, which waits for 1");
        assert_eq!(result.chain.len(), 3);
        assert_eq!(why(&tables, session(9)).chain, []);
        let chain = why(&[(node(1), vec![row("a", &[1], &[2])])], session(2));
        assert_eq!((chain.chain.len(), chain.cycle), (1, None));
    }

    #[test]
    fn chain_of_many_thousand_sessions_is_followed_to_its_end() {
        let node = Node { id: MemberId(1), incarnation: 1 };
        let name = |number: u64| alloc::format!("{number:05}");
        // Each session holds one lock and waits for the next one. The last one waits for nothing.
        let rows = (0..20_000).map(|number| row(&name(number), &[number + 1], &[number]));
        let chain = why(&[(node, rows.collect())], SessionId { client: 0, number: 0 });
        assert_eq!((chain.chain.len(), chain.cycle), (20_000, None));
    }

    #[test]
    fn search_for_a_cycle_among_many_waits_is_bounded() {
        let node = Node { id: MemberId(1), incarnation: 1 };
        // 600 sessions share each of two locks, and all of them wait for both: 720,000 steps, if all were taken.
        let all: Vec<u64> = (1..600).collect();
        let shared = |client: &u64| Participant { mode: LockMode::Shared, ..who(*client) };
        let row = |name: &str| LockStatus {
            lock: LockName::new(name),
            holders: all.iter().map(shared).collect(),
            waiters: all.iter().map(|client| who(*client)).collect(),
            left_out: 0,
        };
        let result = why(&[(node, vec![row("a"), row("b")])], SessionId { client: 1, number: 0 });
        assert!(result.cycle.is_some());
    }
}
