//! Long work in short steps. A member with a million holds must not block for a second: its renewals would be late,
//! and its clients would wait. So work that may touch many locks, holds or sessions is divided into slices: a step
//! touches about [`Config::slice`](crate::Config::slice) items, and the rest continues with the next
//! [tick](crate::Event::Tick), which [`wake_ns`](Member::wake_ns) requests at once. A list that fits into one slice
//! is handled in the step in which it begins.

use crate::chunks::ChunkedList;
use crate::member::{Member, Message, ViewState};
use crate::table::LockId;
use crate::{Body, Bugs, LockMessage, Node, Out, ReportedHold, StartHold};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// Number of table entries that each step checks for obsolete locks.
const SWEPT: usize = 16;

/// A list whose chunks are being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListKind {
    Report,
    Start,
}

/// Chunks to be sent to a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub to: Node,
    pub what: ListKind,
    pub epoch: u64,
    pub next: u32,
    pub end: u32,
}

/// Obsolete data that is too large to be freed in one step.
#[derive(Clone, Debug)]
pub(crate) enum DeferredDrop<M> {
    Held(Vec<Arc<[StartHold]>>),
    Holding(Vec<Arc<[ReportedHold]>>),
    Messages(VecDeque<(u64, LockMessage<M>)>),
    Order(BTreeSet<(u64, LockId)>),
}

impl<M> DeferredDrop<M> {
    /// Whether this can be freed at once.
    fn is_small(&self) -> bool {
        match self {
            Self::Held(chunks) => chunks.len() < 2,
            Self::Holding(chunks) => chunks.len() < 2,
            Self::Messages(messages) => messages.len() < 64,
            Self::Order(order) => order.len() < 64,
        }
    }

    /// Frees a part of it. Returns whether nothing is left.
    fn shrink(&mut self) -> bool {
        const MOST: usize = 1024;
        match self {
            Self::Held(chunks) => {
                chunks.pop();
                chunks.is_empty()
            }
            Self::Holding(chunks) => {
                chunks.pop();
                chunks.is_empty()
            }
            Self::Messages(messages) => {
                messages.truncate(messages.len().saturating_sub(MOST));
                messages.is_empty()
            }
            Self::Order(order) => {
                for _ in 0..MOST {
                    order.pop_first();
                }
                order.is_empty()
            }
        }
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Adds to the number of items that this step has touched.
    pub(crate) fn spend(&mut self, items: usize) {
        self.work = self.work.saturating_add(items);
    }

    /// Whether this step may touch more items.
    pub(crate) fn has_budget(&self) -> bool {
        self.work < self.config.slice()
    }

    /// Whether work is left for the next tick.
    pub(crate) fn is_at_work(&self) -> bool {
        let view_state = match &self.view_state {
            ViewState::Frozen(_, frozen) => frozen.is_at_work(),
            ViewState::Running(_) => !self.resuming.is_empty() || self.early_left > 0,
            ViewState::Outside | ViewState::Excluded => false,
        };
        view_state
            || !self.sending.is_empty()
            || !self.ending.is_empty()
            || !self.scans.is_empty()
            || self.unparks
            || self.resends
            || self.delivers
            || self.is_sweeping_out()
            || self
                .leader
                .as_ref()
                .and_then(|leader| leader.gather.as_ref())
                .is_some_and(|it| it.is_building())
    }

    /// Continues all long work, until the step has touched enough items.
    pub(crate) fn continue_work(&mut self, now: u64, out: &mut Out<Message<P>>) {
        // The work that other members wait for comes first.
        self.continue_reporting(out);
        self.continue_starting(now, out);
        self.continue_sending(out);
        self.continue_installing(now, out);
        self.continue_resuming(now, out);
        self.continue_delivering(now, out);
        self.continue_unparking(now, out);
        self.continue_ending(now, out);
        if self.is_sweeping_out() {
            self.sweep_out(now, out);
        }
        self.continue_resending(out);
        self.continue_scanning(now, out);
    }

    /// Frees a little obsolete data after every event, so that it needs no steps of its own.
    pub(crate) fn free_obsolete(&mut self) {
        self.locks.sweep(SWEPT);
        if let Some(garbage) = self.deferred_drops.last_mut()
            && garbage.shrink()
        {
            self.deferred_drops.pop();
        }
    }

    /// Frees more obsolete data, in a step that has nothing else to do.
    pub(crate) fn free_more_obsolete(&mut self) {
        let most = self.config.slice.min(1024);
        self.locks.sweep(most);
    }

    /// Frees obsolete data: at once if it is small, otherwise in small steps.
    pub(crate) fn discard(&mut self, garbage: DeferredDrop<Message<P>>) {
        if !garbage.is_small() {
            self.deferred_drops.push(garbage);
        }
    }

    pub(crate) fn discard_start(&mut self, holds: ChunkedList<StartHold>) {
        self.discard(DeferredDrop::Held(holds.into_chunks()));
    }

    /// Drops the links of a view that has ended.
    pub(crate) fn drop_links(&mut self) {
        for (_, link) in core::mem::take(&mut self.links) {
            self.discard(DeferredDrop::Messages(link.into_unacknowledged()));
        }
        self.resends = false;
        self.delivers = false;
    }

    /// Drops the leader's state: this member does not lead any more, or begins another term.
    pub(crate) fn retire(&mut self) {
        if let Some(gather) = self.leader.take().and_then(|leader| leader.gather) {
            self.discard_gather(gather);
        }
    }

    pub(crate) fn discard_gather(&mut self, gather: crate::gather::Gather) {
        let (reports, start) = gather.into_lists();
        for report in reports {
            self.discard(DeferredDrop::Holding(report.into_chunks()));
        }
        self.discard(DeferredDrop::Held(start));
    }

    /// Sends chunks of a list, from `first` on, at a member's request. The chunks sent before are probably in
    /// transit, except for the first one that the member lacks, so only a few of them are sent again. With 20 chunks
    /// sent and `first` = 10, these are 10 to 13 again, and the new ones 20 to 25.
    pub(crate) fn send_chunks(&mut self, to: Node, what: ListKind, epoch: u64, first: u32) {
        const AGAIN: u32 = 4;
        self.sending.retain(|sending| (sending.to, sending.what) != (to, what));
        let sent = self.sent.get(&(to, what)).filter(|sent| sent.0 == epoch).map_or(0, |sent| sent.1);
        let end = first.saturating_add(crate::chunks::WINDOW);
        let again = sent.min(first.saturating_add(AGAIN));
        for (next, end) in [(first, again), (first.max(sent), end)] {
            if next < end {
                self.sending.push_back(Sending { to, what, epoch, next, end });
            }
        }
    }

    /// Continues to send chunks, to all members in turns.
    fn continue_sending(&mut self, out: &mut Out<Message<P>>) {
        while self.has_budget() {
            let Some(mut sending) = self.sending.pop_front() else { return };
            let Some((body, items)) = self.listed(sending) else { continue };
            // Copying an item into a frame costs far less than work on a lock.
            self.spend(1 + items / 8);
            self.send(sending.to, body, out);
            sending.next += 1;
            let sent = self.sent.entry((sending.to, sending.what)).or_default();
            let before = if sent.0 == sending.epoch { sent.1 } else { 0 };
            *sent = (sending.epoch, before.max(sending.next));
            if sending.next < sending.end {
                self.sending.push_back(sending);
            }
        }
    }

    /// The next chunk to be sent, and its number of items.
    fn listed(&self, sending: Sending) -> Option<(Body<Message<P>>, usize)> {
        let Sending { to, what, epoch, next, .. } = sending;
        match what {
            ListKind::Report => {
                let chunk = self.own_report(epoch)?.chunk(next)?;
                let items = chunk.items.len();
                Some((Body::Report { epoch, installed: self.installed, chunk }, items))
            }
            ListKind::Start => {
                let gather = self.leader.as_ref()?.gather.as_ref()?;
                let fits = gather.view.epoch == epoch && gather.view.has(to);
                let chunk = gather.holds_at_start().filter(|_| fits)?.chunk(next)?;
                let items = chunk.items.len();
                Some((Body::Start { epoch, chunk }, items))
            }
        }
    }

    /// Continues to advance the locks that had to wait for a lease.
    fn continue_unparking(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while self.unparks && self.has_budget() {
            let runs = now < self.lease_until_ns;
            let next = if runs { self.parked.pop_front() } else { None };
            let Some(id) = next else {
                self.unparks = false;
                return;
            };
            self.spend(1);
            if let Some(active) = self.locks.used_mut(id).filter(|active| active.parked) {
                active.parked = false;
                self.advance(now, id, out);
            }
        }
    }

    /// Continues the retransmissions to all members.
    pub(crate) fn continue_resending(&mut self, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else {
            self.resends = false;
            return;
        };
        let (from, mut links) = (self.me, core::mem::take(&mut self.links));
        self.resends = false;
        for (to, link) in &mut links {
            let most = self.config.slice().saturating_sub(self.work);
            let before = out.frames.len();
            for packet in link.continue_resending(most) {
                let body = Body::Link { epoch, packet };
                out.frames.push(crate::Frame { from, to: to.id, incarnation: Some(to.incarnation), body });
            }
            self.work += out.frames.len() - before;
            self.resends |= link.resends();
        }
        self.links = links;
    }
}
