//! Who holds what and who waits for what, over all members; and why somebody waits.

use crate::lock::Active;
use crate::member::{Due, Member, Message};
use crate::{Acquisition, Body, Fence, LockName, Node, Note, Out, SessionId, Tag};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use lockkeeper_core::{Claim, MutualExclusion};
use serde::{Deserialize, Serialize};

/// What the clients of one member hold and wait for.
pub type Table = Vec<LockStatus>;

/// One lock, as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Which.
    pub lock: LockName,
    /// Who holds it through this member.
    pub holders: Vec<Who>,
    /// Who waits for it at this member, the first one first.
    pub waiters: Vec<Who>,
}

/// Somebody who holds a lock or waits for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// By which acquisition.
    pub acquisition: Acquisition,
    /// How: alone, shared, or by a permit.
    pub claim: Claim,
    /// What it said of itself.
    pub tag: Tag,
    /// With which fence, if it holds.
    pub fence: Option<Fence>,
    /// For how long it has held or waited, on its member's clock, when that member was asked.
    pub for_ns: u64,
    /// Since when, in milliseconds of Unix time on its member's machine: for people.
    pub since_ms: u64,
}

impl<P: MutualExclusion> Member<P> {
    /// What the clients of this member hold and wait for, in the order of the locks' names.
    pub fn table(&self, now: u64) -> Table {
        let mut scan = TableScan::new(usize::MAX);
        while !self.scan(now, usize::MAX, &mut scan) {}
        scan.finish().0
    }

    /// Looks at so many more locks for a table; tells whether the table is complete. A lock that somebody begins to use meanwhile may
    /// be missing; one that somebody uses all the time is not.
    pub fn scan(&self, now: u64, most: usize, scan: &mut TableScan) -> bool {
        let mut left = most;
        // From the last one on: a lock that is put aside leaves its place to one that was looked at before.
        let mut next = scan.next.unwrap_or(usize::MAX).min(self.locks.active_count());
        while next > 0 && left > 0 {
            next -= 1;
            left -= 1;
            if let Some((_, name, active)) =
                self.locks.active_at(next).filter(|(_, _, active)| active.is_busy())
            {
                left = left.saturating_sub((active.holds.len() + active.queue.len()) / 4);
                scan.add(name, active, || self.status(now, name, active));
            }
        }
        scan.next = Some(next);
        next == 0 && scan.write_rows(left)
    }

    fn status(&self, now: u64, name: &LockName, active: &Active) -> LockStatus {
        let held = active.holds.iter().flat_map(|hold| {
            hold.acquisitions().map(|acquisition| Who {
                acquisition,
                claim: hold.claim,
                tag: hold.tag.clone(),
                fence: hold.fence,
                for_ns: now.saturating_sub(hold.since_ns),
                since_ms: self.config.unix_ms(hold.since_ns),
            })
        });
        let waits = active.queue.iter().map(|waiter| Who {
            acquisition: waiter.acquisition,
            claim: waiter.claim,
            tag: waiter.tag.clone(),
            fence: None,
            for_ns: now.saturating_sub(waiter.since_ns),
            since_ms: self.config.unix_ms(waiter.since_ns),
        });
        LockStatus { lock: name.clone(), holders: held.collect(), waiters: waits.collect() }
    }

    /// Another member asks what is held and waited for here.
    pub(crate) fn asked(&mut self, from: Node, question: u64) {
        const MOST: usize = 64;
        let new = |asking: &Asking| (asking.from, asking.question) != (from, question);
        if self.scans.len() < MOST && self.scans.iter().all(new) {
            self.scans.push_back(Asking { from, question, scan: TableScan::new(MOST_BYTES) });
        }
    }

    /// Answers the first query that is not answered yet.
    pub(crate) fn go_on_scanning(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while self.may_go_on() {
            let Some(mut asking) = self.scans.pop_front() else { return };
            let most = self.config.slice().saturating_sub(self.work);
            let done = self.scan(now, most, &mut asking.scan);
            self.spend(if done { 1 } else { most });
            if !done {
                return self.scans.push_front(asking);
            }
            let (table, left_out) = asking.scan.finish();
            self.send(asking.from, Body::Tell { question: asking.question, table, left_out }, out);
        }
    }

    /// How somebody here holds the lock, or waits for it, if anybody does.
    pub fn claimed(&self, lock: &LockName) -> Option<Claim> {
        let active = self.locks.get(self.locks.find(lock)?).active.as_ref()?;
        let held = active.holds.first().map(|hold| hold.claim);
        held.or_else(|| active.queue.front().map(|waiter| waiter.claim))
    }

    /// Asks every member of the view.
    pub(crate) fn survey(&mut self, now: u64, out: &mut Out<Message<P>>) {
        self.questions += 1;
        let question = self.questions;
        let members = self.running().map_or_else(Vec::new, |view| view.members.clone());
        self.surveys.insert(question, Vec::new());
        self.due.insert((now + 10 * self.config.round_trip_ns, Due::Survey(question)));
        for node in members {
            self.send(node, Body::Ask { question }, out);
        }
    }

    pub(crate) fn told(
        &mut self,
        from: Node,
        question: u64,
        (table, left_out): (Table, u64),
        out: &mut Out<Message<P>>,
    ) {
        let members = self.running().map_or(0, |view| view.members.len());
        let Some(told) = self.surveys.get_mut(&question) else { return };
        if told.iter().all(|(node, _)| *node != from) {
            told.push((from, table));
            if left_out > 0 {
                out.notes.push(Note::LeftOut { node: from, locks: left_out });
            }
        }
        if told.len() >= members {
            self.end_survey(question, out);
        }
    }

    pub(crate) fn end_survey(&mut self, question: u64, out: &mut Out<Message<P>>) {
        if let Some(mut told) = self.surveys.remove(&question) {
            told.sort_by_key(|(node, _)| *node);
            out.notes.push(Note::Survey(told));
        }
    }
}

/// About how many bytes of a table go into a frame.
const MOST_BYTES: usize = 4 << 20;

/// A query of another member that is being answered.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    from: Node,
    question: u64,
    scan: TableScan,
}

/// A table that is being made, lock by lock. Of a table that is too large, the first locks by name are kept.
#[derive(Clone, Debug)]
pub struct TableScan {
    /// The locks before this place, among those in use, are yet to be looked at.
    next: Option<usize>,
    rows: BTreeMap<LockName, (usize, LockStatus)>,
    bytes: usize,
    most_bytes: usize,
    /// From this name on, nothing fits.
    bound: Option<LockName>,
    left_out: u64,
    /// The table, once every lock was looked at: as many rows as are in it already.
    table: Table,
}

impl TableScan {
    /// A table of about so many bytes at most.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            next: None,
            rows: BTreeMap::new(),
            bytes: 0,
            most_bytes,
            bound: None,
            left_out: 0,
            table: Vec::new(),
        }
    }

    fn add(&mut self, name: &LockName, active: &Active, status: impl FnOnce() -> LockStatus) {
        const WHO: usize = 64;
        let least = WHO * (active.holds.len() + active.queue.len());
        if self.bound.as_ref().is_some_and(|bound| name >= bound) || least > self.most_bytes {
            self.left_out += 1;
            return;
        }
        let row = status();
        let who = |who: &Who| WHO + who.tag.owner.len() + who.tag.purpose.len();
        let bytes = 32 + row.lock.name.len() + row.holders.iter().chain(&row.waiters).map(who).sum::<usize>();
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

    /// Writes so many more rows into the table, in the order of their names; tells whether all of them are there.
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

    /// The table, in the order of the locks' names, and how many locks are left out.
    pub fn finish(mut self) -> (Table, u64) {
        self.write_rows(usize::MAX);
        (self.table, self.left_out)
    }
}

/// Everybody who waits for a lock, over all members, whoever has waited longest first. Between clients of one member this is the order
/// in which they are served; between members it is an approximation: who comes next there is the algorithm's decision.
pub fn waiters<'a>(tables: &'a [(Node, Table)], lock: &LockName) -> Vec<(Node, &'a Who)> {
    let rows = tables.iter().flat_map(|(node, table)| table.iter().map(move |row| (*node, row)));
    let here = rows.filter(|(_, row)| row.lock == *lock);
    let mut all: Vec<_> =
        here.flat_map(|(node, row)| row.waiters.iter().map(move |who| (node, who))).collect();
    // Stable: nobody overtakes another one at its own member.
    all.sort_by_key(|(_, who)| core::cmp::Reverse(who.for_ns));
    all
}

/// One step of an explanation: this one waits for that lock, which the other one holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Because {
    /// Who waits.
    pub waiter: Acquisition,
    /// For what.
    pub lock: LockName,
    /// Who holds it.
    pub holder: Acquisition,
}

/// Why somebody waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The chain of waits, from the one that was asked about.
    pub chain: Vec<Because>,
    /// Where the chain comes back to a session that it has passed: the number of that step. Nobody on the cycle will ever get in.
    pub cycle: Option<usize>,
}

/// Follows the waits of a session over all locks, through all tables of a survey. A cycle is found if there is one; otherwise the
/// longest chain is told.
pub fn why(tables: &[(Node, Table)], session: SessionId) -> Why {
    let mut best = Why { chain: Vec::new(), cycle: None };
    follow(tables, session, &mut Vec::new(), &mut BTreeSet::new(), &mut best);
    best
}

fn follow(
    tables: &[(Node, Table)],
    session: SessionId,
    chain: &mut Vec<Because>,
    seen: &mut BTreeSet<SessionId>,
    best: &mut Why,
) {
    if best.cycle.is_some() {
        return;
    }
    if let Some(step) = chain.iter().position(|because| because.waiter.session == session) {
        *best = Why { chain: chain.clone(), cycle: Some(step) };
        return;
    }
    if chain.len() > best.chain.len() {
        best.chain.clone_from(chain);
    }
    if !seen.insert(session) {
        return;
    }
    let rows = || tables.iter().flat_map(|(_, table)| table);
    for waits in rows() {
        for waiter in waits.waiters.iter().filter(|who| who.acquisition.session == session) {
            let holders = rows().filter(|row| row.lock == waits.lock).flat_map(|row| &row.holders);
            for holder in holders.filter(|holder| holder.claim.competes(waiter.claim)) {
                let (lock, holder) = (waits.lock.clone(), holder.acquisition);
                chain.push(Because { waiter: waiter.acquisition, lock, holder });
                follow(tables, holder.session, chain, seen, best);
                chain.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberId;
    use alloc::vec;

    fn who(client: u64) -> Who {
        let acquisition = Acquisition { session: SessionId { client, number: 0 }, number: 0 };
        Who { acquisition, claim: Claim::Alone, tag: Tag::default(), fence: None, for_ns: 0, since_ms: 0 }
    }

    fn row(name: &str, holders: &[u64], waiters: &[u64]) -> LockStatus {
        let all = |clients: &[u64]| clients.iter().map(|&client| who(client)).collect();
        LockStatus { lock: LockName::new(name), holders: all(holders), waiters: all(waiters) }
    }

    #[test]
    fn waiters_of_all_members_stand_in_one_line_and_none_overtakes_at_its_own() {
        let node = |id| Node { id: MemberId(id), incarnation: 1 };
        let waiting = |client, for_ns| Who { for_ns, ..who(client) };
        let row = |waiters| LockStatus { lock: LockName::new("a"), holders: vec![], waiters };
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
        let mut scan = TableScan::new(1_000);
        for number in (0..100).rev().chain(100..200) {
            let name = LockName::new(alloc::format!("{number:03}"));
            let active = Active::default();
            scan.add(&name, &active, || row(&name.name, &[], &[]));
        }
        let (table, left_out) = scan.finish();
        let names: Vec<&str> = table.iter().map(|row| &*row.lock.name).collect();
        assert_eq!((names.first(), names.len() as u64 + left_out), (Some(&"000"), 200));
        assert!(names.len() == 1_000 / 35 && names.is_sorted());
    }

    #[test]
    fn a_cycle_over_two_members_is_named() {
        let node = |id| Node { id: MemberId(id), incarnation: 1 };
        let tables = [
            (node(1), vec![row("a", &[1], &[]), row("b", &[], &[1])]),
            (node(2), vec![row("a", &[], &[2, 3]), row("b", &[2], &[])]),
        ];
        let session = |client| SessionId { client, number: 0 };
        let told = why(&tables, session(3));
        assert_eq!(told.cycle, Some(1), "3 waits for 1, which waits for 2, which waits for 1");
        assert_eq!(told.chain.len(), 3);
        assert_eq!(why(&tables, session(9)).chain, []);
        let chain = why(&[(node(1), vec![row("a", &[1], &[2])])], session(2));
        assert_eq!((chain.chain.len(), chain.cycle), (1, None));
    }
}
