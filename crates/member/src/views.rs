//! The view change at one member: freeze, report, start.
//!
//! ```text
//! coordinator    Freeze ─────────┐               ┌──── Start ───┐
//!                                ▼               ▲              ▼
//! member         runs in view 4  │ frozen ─ Report              │ runs in view 5
//! ```

use crate::chunks::{ChunkedList, ChunkedListBuilder};
use crate::gather::Gather;
use crate::install::{FreezeState, OwnReport};
use crate::link::{AckTiming, Link};
use crate::member::{Member, Message, Timer, ViewState};
use crate::slices::ListKind;
use crate::{
    Body, BugSwitch, Bugs, Chunk, Frame, HoldRecord, MemberId, Node, Note, Out, Packet, Report, ReportedHold,
    StartHold, View,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// Most frames of future views that are stored. Frames beyond that are not acknowledged, so they are sent again.
const MOST_EARLY: usize = 4096;

/// One chunk of a member's report.
pub(crate) struct ReportChunk {
    /// The epoch of the view that the report is for.
    pub epoch: u64,
    /// The epoch of the view that the reporting member installed last.
    pub installed: u64,
    pub chunk: Chunk<ReportedHold>,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Handles a decided view, from consensus or from the view's coordinator. From here on, the member grants and
    /// forwards nothing of an older view.
    pub(crate) fn learn(&mut self, view: View, out: &mut Out<Message<P>>) {
        let known = match &self.view_state {
            ViewState::Outside if !view.has(self.me) => return,
            ViewState::Outside => 0,
            ViewState::Frozen(view, _) | ViewState::Running(view) => view.epoch,
            ViewState::Excluded => return,
        };
        if view.epoch <= known {
            return;
        }
        // This view excludes the member, or one that it missed did.
        if view.since(self.me).is_none_or(|since| known > 0 && since > known) {
            return self.exclude(out);
        }
        // This member cannot run the view's algorithm: its program is older than the leader's.
        if self.check_algorithm(&view.settings, view.members.len()).is_err() {
            return self.exclude(out);
        }
        self.adopt_settings(&view);
        if self.config.has(BugSwitch::NoFreeze) && matches!(self.view_state, ViewState::Running(_)) {
            return;
        }
        self.freeze_for(view, out);
    }

    /// Freezes the member for a view. It stops granting, and drops the links of the old view.
    fn freeze_for(&mut self, view: View, out: &mut Out<Message<P>>) {
        out.notes.push(Note::Frozen { epoch: view.epoch });
        // A member that is already frozen has made its report, which does not change until a start.
        let report = match core::mem::replace(&mut self.view_state, ViewState::Outside) {
            ViewState::Frozen(_, mut frozen) => {
                self.discard_start(frozen.start.items());
                frozen.report
            }
            _ => OwnReport::Partial { next: 0, list: ChunkedListBuilder::default() },
        };
        self.drop_links();
        self.parked.clear();
        self.stop_resuming();
        self.view_state = ViewState::Frozen(view, Box::new(FreezeState::new(report)));
    }

    /// The whole report in one step, for the bug switch that does not freeze.
    fn report(&self) -> ChunkedList<ReportedHold> {
        let mut list = ChunkedListBuilder::default();
        for place in 0..self.locks.active_count() {
            self.add_to_report(place, &mut list);
        }
        list.finish()
    }

    /// Adds the active lock with index `place` to the report, if it is held.
    fn add_to_report(&self, place: usize, list: &mut ChunkedListBuilder<ReportedHold>) {
        let Some((_, name, active)) = self.locks.active_at(place) else { return };
        let without_ending = self.config.has(BugSwitch::EndingNotReported)
            && active.holds.iter().all(|hold| hold.acquisition.is_none() && !hold.ending.is_empty());
        if let Some((mode, units)) = active.held().filter(|_| !without_ending) {
            let holding = ReportedHold { lock: name.clone(), mode, units };
            let bytes = holding.bytes();
            list.push(holding, bytes, self.config.chunk_bytes);
        }
    }

    /// Continues the report of the holds at the freeze. Holds do not change while the member is frozen, so this may
    /// take several steps.
    pub(crate) fn continue_reporting(&mut self, out: &mut Out<Message<P>>) {
        let ViewState::Frozen(_, frozen) = &mut self.view_state else { return };
        let OwnReport::Partial { next, list } = &mut frozen.report else { return };
        let (first, mut list) = (*next, core::mem::take(list));
        let mut place = first;
        while place < self.locks.active_count() && self.has_budget() {
            self.add_to_report(place, &mut list);
            place += 1;
            self.spend(1);
        }
        let done = place == self.locks.active_count();
        let ViewState::Frozen(_, frozen) = &mut self.view_state else { return };
        if !done {
            frozen.report = OwnReport::Partial { next: place, list };
            return;
        }
        frozen.report = OwnReport::Complete(list.finish());
        if let Some((to, epoch, chunk)) = frozen.report_request.take() {
            self.send_report(to, epoch, chunk, out);
        }
    }

    /// The report for the view of this epoch, once it is complete.
    pub(crate) fn own_report(&self, epoch: u64) -> Option<&ChunkedList<ReportedHold>> {
        match &self.view_state {
            ViewState::Frozen(frozen_view, frozen) if frozen_view.epoch == epoch => match &frozen.report {
                OwnReport::Complete(report) => Some(report),
                OwnReport::Partial { .. } => None,
            },
            _ => None,
        }
    }

    /// Sends the report to the coordinator, beginning with chunk `part`.
    fn send_report(&mut self, to: Node, epoch: u64, chunk: u32, out: &mut Out<Message<P>>) {
        let Some(holds) = self.own_report(epoch) else { return };
        if chunk == 0 {
            let report = Report { installed: self.installed, holds: holds.clone() };
            out.notes.push(Note::Reported { epoch, report });
        }
        self.send_chunks(to, ListKind::Report, epoch, chunk);
    }

    /// Handles a freeze: freezes for the view, and reports once the report is complete.
    pub(crate) fn freeze(&mut self, from: Node, view: View, chunk: u32, out: &mut Out<Message<P>>) {
        let two = self.config.has(BugSwitch::TwoCoordinators);
        if from != view.coordinator && !two {
            return;
        }
        // The coordinator leads, as far as this member knows.
        self.leader_hint.get_or_insert(from.id);
        if two && matches!(&self.view_state, ViewState::Running(running) if running.epoch == view.epoch) {
            self.freeze_for(view.clone(), out);
        }
        self.learn(view.clone(), out);
        let (epoch, installed) = (view.epoch, self.installed);
        match &mut self.view_state {
            ViewState::Frozen(frozen_view, frozen) if frozen_view.epoch == epoch => {
                if matches!(frozen.report, OwnReport::Partial { .. }) {
                    frozen.report_request = Some((from, epoch, chunk));
                } else {
                    self.send_report(from, epoch, chunk, out);
                }
            }
            ViewState::Running(running) if self.config.has(BugSwitch::NoFreeze) && running.epoch < epoch => {
                let holds = self.report();
                for chunk in (0..holds.count()).filter_map(|number| holds.chunk(number)) {
                    self.send(from, Body::Report { epoch, installed, chunk }, out);
                }
                let report = Report { installed, holds };
                out.notes.push(Note::Reported { epoch, report });
            }
            _ => {}
        }
    }

    /// As the coordinator of a new view: begins to gather the reports of its members.
    pub(crate) fn begin_gather(
        &mut self,
        view: View,
        previous: View,
        adopted: Vec<HoldRecord>,
        out: &mut Out<Message<P>>,
    ) {
        if let Some(leader) = &mut self.leader {
            let before = leader.gather.replace(Gather::new(view, previous, adopted));
            if let Some(before) = before {
                self.discard_gather(before);
            }
            self.gather_again(out);
        }
    }

    /// Requests the reports that have not arrived completely.
    pub(crate) fn gather_again(&mut self, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if !gather.is_gathering() {
            return;
        }
        let (view, silent) = (gather.view.clone(), gather.silent());
        for (node, chunk) in silent {
            self.send(node, Body::Freeze { view: view.clone(), chunk }, out);
        }
    }

    /// As the coordinator: handles a chunk of a report.
    pub(crate) fn reported(
        &mut self,
        now: u64,
        from: Node,
        ReportChunk { epoch, installed, chunk }: ReportChunk,
        out: &mut Out<Message<P>>,
    ) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if gather.view.epoch == epoch {
            if let Some(chunk) = gather.report(from, installed, chunk) {
                let view = gather.view.clone();
                self.send(from, Body::Freeze { view, chunk }, out);
            }
            self.try_start(now);
        }
    }

    /// Begins to build the start, once every member has reported and the leases of all excluded members have expired.
    pub(crate) fn try_start(&mut self, now: u64) {
        let Some(leader) = &mut self.leader else { return };
        let Some(mut gather) = leader.gather.take() else { return };
        let gather_view = gather.view.clone();
        let known = |node: Node| self.locks.start_holds().iter().any(|held| held.node == node);
        let over = |node: Node| leader.lease_over_ns(node, &gather_view, &self.config);
        gather.begin_start(now, &self.config, leader.founded_ns(&self.config), over, known);
        leader.gather = Some(gather);
    }

    /// Continues to build the start from the reports. Once it is complete, sends it to every member of the view.
    pub(crate) fn continue_starting(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let most = self.config.slice().saturating_sub(self.work);
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if !gather.is_building() || most == 0 {
            return;
        }
        let taken = gather.continue_building(now, most, self.config.chunk_bytes);
        let started = gather.holds_at_start().cloned().map(|holds| (gather.view.clone(), holds));
        self.spend(taken);
        if let Some((view, holds)) = started {
            let (epoch, members) = (view.epoch, view.members.clone());
            out.notes.push(Note::Started { view, holds });
            for node in members {
                self.send_chunks(node, ListKind::Start, epoch, 0);
            }
        }
    }

    /// Sends the start, beginning with chunk `first`.
    pub(crate) fn send_start(&mut self, to: Node, epoch: u64, first: u32) {
        self.send_chunks(to, ListKind::Start, epoch, first);
    }

    /// As the leader: sends the freeze or the start again to a member whose renewal shows that it has missed it.
    pub(crate) fn resend_freeze_or_start(&mut self, node: Node, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_ref().and_then(|leader| leader.gather.as_ref()) else { return };
        if !gather.view.has(node) {
            return;
        }
        let (epoch, view) = (gather.view.epoch, gather.view.clone());
        // The first chunk is enough: a member that has it already requests the chunks that it lacks.
        let body = match gather.holds_at_start().and_then(|start| start.chunk(0)) {
            Some(chunk) => Body::Start { epoch, chunk },
            None => Body::Freeze { view, chunk: 0 },
        };
        self.send(node, body, out);
    }

    /// As a frozen member: handles a chunk of the start, and installs the view once all chunks have arrived.
    pub(crate) fn start(
        &mut self,
        from: Node,
        epoch: u64,
        chunk: Chunk<StartHold>,
        out: &mut Out<Message<P>>,
    ) {
        let not_frozen = self.config.has(BugSwitch::NoFreeze) && self.applied.epoch == epoch;
        let two = self.config.has(BugSwitch::TwoCoordinators);
        match &mut self.view_state {
            ViewState::Frozen(view, frozen) if view.epoch == epoch && (from == view.coordinator || two) => {
                if frozen.installing.is_some() {
                    return;
                }
                let more = frozen.start.take(chunk);
                if frozen.start.is_complete() {
                    let holds = frozen.start.items();
                    self.install(holds, out);
                } else if more {
                    let chunk = frozen.start.next();
                    self.send(from, Body::More { epoch, chunk }, out);
                }
            }
            ViewState::Running(view) if not_frozen && view.epoch < epoch && chunk.of == 1 => {
                let (report, view) = (OwnReport::Complete(ChunkedList::default()), self.applied.clone());
                self.view_state = ViewState::Frozen(view, Box::new(FreezeState::new(report)));
                self.install(ChunkedList::of(Vec::from([chunk.items])), out);
            }
            _ => {}
        }
    }

    /// Requests the next chunk of a start of which no chunk has arrived lately.
    pub(crate) fn request_start(&mut self, out: &mut Out<Message<P>>) {
        if let ViewState::Frozen(view, frozen) = &mut self.view_state
            && frozen.start.is_stuck()
        {
            let (to, epoch, chunk) = (view.coordinator, view.epoch, frozen.start.next());
            self.send(to, Body::More { epoch, chunk }, out);
        }
    }

    /// Handles a link frame of the present view; stores those of future views, and drops those of old ones.
    pub(crate) fn linked(&mut self, now: u64, frame: Frame<Message<P>>, out: &mut Out<Message<P>>) {
        let Body::Link { epoch, packet } = frame.body else { return };
        let (from, present) = (frame.from, self.running().map(|view| view.epoch));
        if present != Some(epoch) {
            let known = present.unwrap_or(self.installed);
            if epoch > known && self.early.len() < MOST_EARLY {
                if self.config.has(BugSwitch::HigherEpochsDropped) {
                    let acknowledged = packet.payload.as_ref().map_or(0, |(number, _)| number + 1);
                    self.send(
                        from,
                        Body::Link { epoch, packet: Packet { acknowledged, payload: None } },
                        out,
                    );
                }
                self.early.push(Frame { body: Body::Link { epoch, packet }, ..frame });
            } else if self.config.has(BugSwitch::LowerEpochsAccepted)
                && present.is_some()
                && let Some((_, message)) = packet.payload
            {
                self.deliver(now, from, message, out);
            }
            return;
        }
        if !self.running().is_some_and(|view| view.has(from)) {
            return;
        }
        // A payload whose lock does not fit into the table is not acknowledged; the acknowledgement in the packet
        // counts.
        let never = self.config.has(BugSwitch::TableNeverReclaimed);
        let Packet { acknowledged, payload } = packet;
        let (payload, refused) = match payload {
            Some((_, message)) if !self.has_room_for(&message.lock) && !never => (None, true),
            payload => (payload, false),
        };
        let packet = Packet { acknowledged, payload };
        if refused {
            self.defer_message(now);
        }
        let (mut delivered, most) = (VecDeque::new(), self.most_messages());
        let link = self.links.entry(from).or_insert_with(|| Link::new(now));
        let answer = link.receive(now, packet, most, &mut delivered);
        self.delivers |= link.is_ready();
        match answer {
            AckTiming::None => {}
            AckTiming::Soon => self.check_link(now, from, out),
            AckTiming::AtOnce => self.acknowledge(from, out),
        }
        self.deliver_all(now, from, delivered, out);
    }

    /// Number of messages that this step may deliver: each of them may cause a reply to every member.
    fn most_messages(&self) -> usize {
        let members = self.running().map_or(1, |view| view.members.len());
        (self.config.slice().saturating_sub(self.work) / members.max(1)).max(1)
    }

    /// Delivers messages to their locks.
    fn deliver_all(
        &mut self,
        now: u64,
        from: Node,
        messages: VecDeque<crate::LockMessage<Message<P>>>,
        out: &mut Out<Message<P>>,
    ) {
        for message in messages {
            if self.config.has(BugSwitch::TableNeverReclaimed) && !self.has_room_for(&message.lock) {
                continue;
            }
            self.deliver(now, from, message, out);
        }
    }

    /// Delivers messages that an earlier step left, because too many were ready at once.
    pub(crate) fn continue_delivering(&mut self, now: u64, out: &mut Out<Message<P>>) {
        if !core::mem::take(&mut self.delivers) {
            return;
        }
        let ready = self.links.iter().filter(|(_, link)| link.is_ready()).map(|(&node, _)| node);
        for node in ready.collect::<Vec<_>>() {
            let (mut delivered, most, may) = (VecDeque::new(), self.most_messages(), self.has_budget());
            let Some(link) = self.links.get_mut(&node) else { continue };
            if may {
                link.continue_delivering(now, most, &mut delivered);
            }
            self.delivers |= link.is_ready();
            self.check_link(now, node, out);
            self.deliver_all(now, node, delivered, out);
        }
    }

    /// Sends an acknowledgement to that member if one is due; otherwise sets a timer for it.
    pub(crate) fn check_link(&mut self, now: u64, from: Node, out: &mut Out<Message<P>>) {
        let wait_ns = self.config.acknowledge_ns;
        let link = self.links.get_mut(&from);
        match link.and_then(|link| link.acknowledges_at(now, wait_ns)) {
            Some(at) if at > now => {
                self.timers.insert((at, Timer::CheckLink(from)));
            }
            Some(_) => self.acknowledge(from, out),
            None => {}
        }
    }

    /// Sends an acknowledgement, unless a payload has carried it in the meantime.
    pub(crate) fn acknowledge(&mut self, to: Node, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        let Some(link) = self.links.get_mut(&to).filter(|link| link.has_unacknowledged_arrivals()) else {
            return;
        };
        let packet = link.acknowledgement();
        self.send(to, Body::Link { epoch, packet }, out);
    }

    /// Sends payloads again that have been unacknowledged for `after_ns`: to all members, or to one.
    pub(crate) fn resend(&mut self, now: u64, after_ns: u64, only: Option<MemberId>) {
        if self.running().is_some() {
            let links = self.links.iter_mut().filter(|(to, _)| only.is_none_or(|only| to.id == only));
            for (_, link) in links {
                self.resends |= link.resend(now, after_ns);
            }
        }
    }
}
