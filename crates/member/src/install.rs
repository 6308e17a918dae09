//! The start of a view at a member: in slices, and nothing is granted in the view before the last one.

use crate::chunks::{ChunkedList, ChunkedListBuilder, Reassembly};
use crate::instance::ViewContext;
use crate::link::Link;
use crate::member::{Member, Message, ViewState};
use crate::slices::DeferredDrop;
use crate::table::LockId;
use crate::{Body, BugSwitch, Bugs, Node, Note, Out, ReportedHold, StartHold, View};
use alloc::collections::BTreeSet;
use lockkeeper_core::{MutualExclusion, SiteId};

/// The state of a frozen member.
#[derive(Clone, Debug)]
pub(crate) struct FreezeState {
    /// The holds when the member froze first. They do not change until a start.
    pub report: OwnReport,
    /// The coordinator that requested the report, its epoch and first chunk, while the report is being made.
    pub report_request: Option<(Node, u64, u32)>,
    /// The start, as far as it has arrived.
    pub start: Reassembly<StartHold>,
    /// The progress of the installation, once the whole start has arrived.
    pub installing: Option<Installing>,
}

/// The member's report for the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum OwnReport {
    /// The first `next` active locks are in the list.
    Partial {
        next: usize,
        list: ChunkedListBuilder<ReportedHold>,
    },
    Complete(ChunkedList<ReportedHold>),
}

/// The progress of an installation.
#[derive(Clone, Debug)]
pub(crate) struct Installing {
    /// The hold that is indexed next: the number of its chunk, and its index there.
    indexed: (u32, u32),
    /// Number of active locks, from the first one on, that are ready for the new view.
    ready: usize,
    /// The locks in use, by the order of their first waiter.
    order: BTreeSet<(u64, LockId)>,
}

impl FreezeState {
    pub fn new(report: OwnReport) -> Self {
        Self { report, report_request: None, start: Reassembly::default(), installing: None }
    }

    /// Whether work is left that needs no other event.
    pub fn is_at_work(&self) -> bool {
        self.installing.is_some() || matches!(self.report, OwnReport::Partial { .. })
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Begins to install a view whose start has arrived completely. The view starts from the reports; then the
    /// releases that arrived while frozen are applied; then local waiters request their locks, the oldest first.
    pub(crate) fn install(&mut self, holds: ChunkedList<StartHold>, out: &mut Out<Message<P>>) {
        let ViewState::Frozen(view, frozen) = &mut self.view_state else { return };
        let place = view.site(self.me).map_or(0, SiteId::index);
        let Ok(context) = ViewContext::new(&self.config.cluster.algorithm, view.members.len(), place) else {
            return self.exclude(out);
        };
        self.context = Some(context);
        frozen.installing = Some(Installing { indexed: (0, 0), ready: 0, order: BTreeSet::new() });
        let old = self.locks.set_start_holds(holds);
        self.discard_start(old);
    }

    /// Installs more of the start. With the last of it, the member runs in the view.
    pub(crate) fn continue_installing(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let ViewState::Frozen(_, frozen) = &mut self.view_state else { return };
        let Some(mut installing) = frozen.installing.take() else { return };
        let done = self.index_start(now, &mut installing) && self.make_ready(&mut installing);
        if done {
            return self.begin_view(now, installing.order, out);
        }
        if let ViewState::Frozen(_, frozen) = &mut self.view_state {
            frozen.installing = Some(installing);
        }
    }

    /// Indexes the holds of the start by their locks, and adopts those that this member gets. Returns whether all of them
    /// are indexed.
    fn index_start(&mut self, now: u64, installing: &mut Installing) -> bool {
        let (chunk, place) = &mut installing.indexed;
        while *chunk < self.locks.start_holds().count() {
            if !self.has_budget() {
                return false;
            }
            self.spend(1);
            if self.locks.index_start(*chunk, *place) {
                self.adopt_from_start(now, *chunk, *place);
                *place += 1;
            } else {
                (*chunk, *place) = (*chunk + 1, 0);
            }
        }
        true
    }

    fn adopt_from_start(&mut self, now: u64, chunk: u32, place: u32) {
        let ViewState::Frozen(View { epoch, .. }, _) = &self.view_state else { return };
        let (epoch, held) = (*epoch, self.locks.start_holds().at(chunk, place));
        let record = held.filter(|held| held.node == self.me).and_then(|held| held.adopted.clone());
        if let Some(record) = record {
            self.adopt(now, epoch, &record);
        }
    }

    /// Resets the algorithms of the locks in use, and deactivates the others. Returns whether all locks are done.
    fn make_ready(&mut self, installing: &mut Installing) -> bool {
        while let Some((id, _, active)) = self.locks.active_at(installing.ready) {
            if !self.has_budget() {
                return false;
            }
            let (busy, order) =
                (active.is_busy(), active.queue.front().map_or(u64::MAX, |waiter| waiter.order));
            self.spend(1);
            if busy {
                installing.order.insert((order, id));
                installing.ready += 1;
                if let Some(active) = self.locks.used_mut(id) {
                    active.begin_view();
                }
            } else {
                // The last active lock takes its index and is checked next.
                self.locks.deactivate(id);
            }
        }
        true
    }

    /// Makes the member run in the view. Instances of the old view are dropped here and nowhere else: in a new epoch,
    /// clocks may start again.
    fn begin_view(&mut self, now: u64, order: BTreeSet<(u64, LockId)>, out: &mut Out<Message<P>>) {
        let view_state = core::mem::replace(&mut self.view_state, ViewState::Outside);
        let ViewState::Frozen(view, frozen) = view_state else { return };
        if let OwnReport::Complete(report) = frozen.report {
            self.discard(DeferredDrop::Holding(report.into_chunks()));
        }
        let epoch = view.epoch;
        out.notes.push(Note::Installed { epoch });
        self.installed = epoch;
        self.installed_ns = now;
        self.recording.begin_view();
        // Other members may need long to install many holds: a silent link is not a failure before that time.
        let holds = self.locks.start_holds().len() as u64;
        self.links_count_from_ns = now.saturating_add(self.config.install_ns.saturating_mul(holds));
        self.drop_links();
        self.sent.retain(|_, sent| sent.0 >= epoch);
        self.parked.clear();
        self.clock_full = false;
        self.table_full_sent = false;
        self.message_waits = false;
        self.view_state = ViewState::Running(view);
        self.locks.next_view(order.len());
        self.resuming = order;
        self.early_left = self.early.len();
    }

    /// Stops the resumption of locks when the member freezes again: their waiters request in the next view.
    pub(crate) fn stop_resuming(&mut self) {
        let order = core::mem::take(&mut self.resuming);
        self.discard(DeferredDrop::Order(order));
        self.early_left = 0;
    }

    /// Continues to resume locks: creates the instances of locks in use, and makes the requests of local waiters, the
    /// oldest first. Then handles the messages that arrived before the view started.
    pub(crate) fn continue_resuming(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        while self.has_budget() {
            let Some((_, id)) = self.resuming.pop_first() else { break };
            self.spend(1);
            if self.locks.used_mut(id).is_some() {
                self.ensure_instance(id, true);
                self.apply_effects(now, id, out);
                self.advance(now, id, out);
            }
        }
        while self.resuming.is_empty() && self.early_left > 0 && self.has_budget() {
            let most = self.early_left.min(64);
            self.early_left -= most;
            let frames: alloc::vec::Vec<_> = self.early.drain(..most).collect();
            self.spend(most);
            for frame in frames {
                match &frame.body {
                    Body::Link { epoch: of, packet } if *of == epoch => {
                        if self.config.has(BugSwitch::HigherEpochsDropped) {
                            let link = self.links.entry(frame.from).or_insert_with(|| Link::new(now));
                            link.pretend(packet);
                        } else {
                            self.linked(now, frame, out);
                        }
                    }
                    // Frames of later views are kept; those of older views are dropped.
                    Body::Link { epoch: of, .. } if *of > epoch => self.early.push(frame),
                    _ => {}
                }
            }
        }
    }
}
