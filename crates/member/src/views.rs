//! From one view to the next: freeze, report, start.

use crate::gather::Gather;
use crate::instance::Play;
use crate::link::{Answer, Link};
use crate::lock::Hold;
use crate::member::{Due, Frozen, Member, Message, Standing};
use crate::parts::{Arriving, Parted};
use crate::session::Stage;
use crate::table::LockId;
use crate::{Body, Flaw, Frame, Held, Holding, MemberId, Node, Note, Out, Packet, Part, Report, View};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lockkeeper_core::{MutualExclusion, SiteId};

/// How many frames of views to come are kept; what is left out was not acknowledged, and comes again.
const MOST_EARLY: usize = 4096;

impl<P: MutualExclusion> Member<P> {
    /// A view is decided, as consensus or the view's coordinator says: from now on nothing of an older view is granted or forwarded.
    pub(crate) fn learn(&mut self, view: View, out: &mut Out<Message<P>>) {
        let known = match &self.standing {
            Standing::Outside if !view.has(self.me) => return,
            Standing::Outside => 0,
            Standing::Wedged(view, _) | Standing::Running(view) => view.epoch,
            Standing::Excluded => return,
        };
        if view.epoch <= known {
            return;
        }
        // Left out of this view, or of one in between.
        if view.since(self.me).is_none_or(|since| known > 0 && since > known) {
            return self.exclude(out);
        }
        // This member cannot run the view's algorithm: its program is older than the leader's.
        if self.check_algorithm(&view.settings, view.members.len()).is_err() {
            return self.exclude(out);
        }
        self.adopt_settings(&view);
        if self.config.has(Flaw::NoWedge) && matches!(self.standing, Standing::Running(_)) {
            return;
        }
        self.wedge(view, out);
    }

    fn wedge(&mut self, view: View, out: &mut Out<Message<P>>) {
        out.notes.push(Note::Wedged { epoch: view.epoch });
        // A member that is frozen already has reported: the report never changes until a start.
        let report = match core::mem::replace(&mut self.standing, Standing::Outside) {
            Standing::Wedged(_, frozen) => frozen.report,
            _ => self.report(),
        };
        self.links.clear();
        self.parked.clear();
        self.standing = Standing::Wedged(view, Box::new(Frozen { report, start: Arriving::default() }));
    }

    fn report(&self) -> Parted<Holding> {
        let held = self.locks.active().filter_map(|(_, name, active)| {
            active.held().map(|(claim, units)| Holding { lock: name.clone(), claim, units })
        });
        Parted::new(held.collect(), self.config.part_bytes, Holding::bytes)
    }

    pub(crate) fn freeze(&mut self, from: Node, view: View, part: u32, out: &mut Out<Message<P>>) {
        let two = self.config.has(Flaw::TwoCoordinators);
        if from != view.coordinator && !two {
            return;
        }
        // Whoever gathers leads, as far as this member knows.
        self.leader_hint.get_or_insert(from.id);
        if two && matches!(&self.standing, Standing::Running(running) if running.epoch == view.epoch) {
            self.wedge(view.clone(), out);
        }
        self.learn(view.clone(), out);
        let (epoch, installed) = (view.epoch, self.installed);
        let unwedged;
        let report = match &self.standing {
            Standing::Wedged(wedged, frozen) if wedged.epoch == epoch => &frozen.report,
            Standing::Running(running) if self.config.has(Flaw::NoWedge) && running.epoch < epoch => {
                unwedged = self.report();
                &unwedged
            }
            _ => return,
        };
        if part == 0 {
            let report = Report { installed, holds: report.items.clone() };
            out.notes.push(Note::Reported { epoch, report });
        }
        for part in report.parts(part).collect::<Vec<_>>() {
            self.send(from, Body::Report { epoch, installed, part }, out);
        }
    }

    pub(crate) fn begin_gather(&mut self, view: View, previous: View, out: &mut Out<Message<P>>) {
        if let Some(leader) = &mut self.leader {
            leader.gather = Some(Gather::new(view, previous));
            self.gather_again(out);
        }
    }

    /// Asks whoever has not reported yet.
    pub(crate) fn gather_again(&mut self, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if gather.started() {
            return;
        }
        let (view, silent) = (gather.view.clone(), gather.silent());
        for (node, part) in silent {
            self.send(node, Body::Freeze { view: view.clone(), part }, out);
        }
    }

    pub(crate) fn reported(
        &mut self,
        now: u64,
        from: Node,
        epoch: u64,
        (installed, part): (u64, Part<Holding>),
        out: &mut Out<Message<P>>,
    ) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if gather.view.epoch == epoch {
            if let Some(part) = gather.report(from, installed, part) {
                let view = gather.view.clone();
                self.send(from, Body::Freeze { view, part }, out);
            }
            self.try_start(now, out);
        }
    }

    /// Starts the view, once everybody has reported and no missing member has a lease.
    pub(crate) fn try_start(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(leader) = &mut self.leader else { return };
        let Some(mut gather) = leader.gather.take() else { return };
        let gather_view = gather.view.clone();
        let known = |node: Node| self.locks.start_holds().iter().any(|held| held.node == node);
        let over = |node: Node| leader.lease_over_ns(node, &gather_view, &self.config);
        let starts = gather.start(now, &self.config, leader.founded_ns(&self.config), over, known);
        let view = gather.view.clone();
        let holds = gather.holds_at_start().filter(|_| starts).map(|start| start.items.clone());
        leader.gather = Some(gather);
        if let Some(holds) = holds {
            let (epoch, members) = (view.epoch, view.members.clone());
            out.notes.push(Note::Started { view, holds });
            for node in members {
                self.send_start(node, epoch, 0, out);
            }
        }
    }

    /// Sends the start, from this part on.
    pub(crate) fn send_start(&mut self, to: Node, epoch: u64, first: u32, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_ref().and_then(|leader| leader.gather.as_ref()) else { return };
        if gather.view.epoch != epoch || !gather.view.has(to) {
            return;
        }
        let Some(start) = gather.holds_at_start() else { return };
        for part in start.parts(first).collect::<Vec<_>>() {
            self.send(to, Body::Start { epoch, part }, out);
        }
    }

    /// To the leader: a member's renewal shows that it has missed a freeze or a start.
    pub(crate) fn remind(&mut self, node: Node, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_ref().and_then(|leader| leader.gather.as_ref()) else { return };
        if !gather.view.has(node) {
            return;
        }
        let (epoch, view) = (gather.view.epoch, gather.view.clone());
        // The first part is enough: whoever has it already asks for what it lacks.
        let body = match gather.holds_at_start().and_then(|start| start.parts(0).next()) {
            Some(part) => Body::Start { epoch, part },
            None => Body::Freeze { view, part: 0 },
        };
        self.send(node, body, out);
    }

    /// To a frozen member: a part of the start arrives. With the last one, the view starts.
    pub(crate) fn start(
        &mut self,
        now: u64,
        from: Node,
        epoch: u64,
        part: Part<Held>,
        out: &mut Out<Message<P>>,
    ) {
        let unwedged = self.config.has(Flaw::NoWedge) && self.applied.epoch == epoch;
        let two = self.config.has(Flaw::TwoCoordinators);
        match &mut self.standing {
            Standing::Wedged(view, frozen) if view.epoch == epoch && (from == view.coordinator || two) => {
                let more = frozen.start.take(part);
                if frozen.start.is_complete() {
                    let (view, holds) = (view.clone(), core::mem::take(&mut frozen.start.items));
                    self.install(now, view, holds, out);
                } else if more {
                    let part = frozen.start.next();
                    self.send(from, Body::More { epoch, part }, out);
                }
            }
            Standing::Running(view) if unwedged && view.epoch < epoch && part.of == 1 => {
                self.install(now, self.applied.clone(), part.items, out);
            }
            _ => {}
        }
    }

    /// Asks for the rest of a start of which nothing has come lately.
    pub(crate) fn ask_for_start(&mut self, out: &mut Out<Message<P>>) {
        if let Standing::Wedged(view, frozen) = &mut self.standing
            && frozen.start.is_stuck()
        {
            let (to, epoch, part) = (view.coordinator, view.epoch, frozen.start.next());
            self.send(to, Body::More { epoch, part }, out);
        }
    }

    /// The view starts: from the reports, then what came while frozen is applied, then local waiters ask, oldest first.
    fn install(&mut self, now: u64, view: View, holds: Vec<Held>, out: &mut Out<Message<P>>) {
        let (epoch, members) = (view.epoch, view.members.len());
        let place = view.site(self.me).map_or(0, SiteId::index);
        let Ok(play) = Play::new(&self.config.cluster.algorithm, members, place) else {
            return self.exclude(out);
        };
        out.notes.push(Note::Installed { epoch });
        self.installed = epoch;
        self.links.clear();
        self.parked.clear();
        self.clock_full = false;
        self.installed_ns = now;
        self.told_table_full = false;
        self.message_waits = false;
        self.standing = Standing::Running(view);
        self.play = Some(play);
        let busy = self.take_over_locks();
        self.locks.held_at_start(holds);
        self.resume(now, busy, out);
        self.take_early(now, epoch, out);
    }

    /// A table for the new view, with the locks that somebody here holds or waits for; gives these, with the order of their first
    /// waiter. Instances go here and nowhere else: in a new epoch, fresh clocks are safe.
    fn take_over_locks(&mut self) -> Vec<(u64, LockId)> {
        let table = self.locks.next();
        let mut old = core::mem::replace(&mut self.locks, table);
        let active: Vec<LockId> = old.active().map(|(id, _, _)| id).collect();
        let mut taken = Vec::with_capacity(active.len());
        for id in active {
            let Some(active) = old.deactivate(id).filter(|active| active.is_busy()) else { continue };
            let id = self.locks.own_entry(&old.get(id).name);
            for waiter in &active.queue {
                self.set(waiter.acquisition, Stage::Waiting(id));
            }
            for acquisition in active.holds.iter().flat_map(Hold::acquisitions) {
                self.set(acquisition, Stage::Held(id));
            }
            taken.push((active.queue.front().map_or(u64::MAX, |waiter| waiter.order), id));
            self.locks.adopt(id, active);
        }
        self.old_locks.extend(old.into_chunks());
        taken
    }

    fn resume(&mut self, now: u64, mut busy: Vec<(u64, LockId)>, out: &mut Out<Message<P>>) {
        busy.sort_unstable();
        for &(_, id) in &busy {
            self.ensure_instance(id, true);
            if let Some(active) = &mut self.locks.get_mut(id).active {
                active.holds.retain(|hold| hold.acquisition.is_some());
            }
            self.do_wants(now, id, out);
        }
        for (_, id) in busy {
            self.look_after(now, id, out);
        }
    }

    fn take_early(&mut self, now: u64, epoch: u64, out: &mut Out<Message<P>>) {
        for frame in core::mem::take(&mut self.early) {
            match &frame.body {
                Body::Link { epoch: of, packet } if *of == epoch => {
                    if self.config.has(Flaw::HigherEpochsDropped) {
                        let link = self.links.entry(frame.from).or_insert_with(|| Link::new(now));
                        link.pretend(packet);
                    } else {
                        self.linked(now, frame, out);
                    }
                }
                Body::Link { epoch: of, .. } if *of > epoch => self.early.push(frame),
                _ => {}
            }
        }
    }

    /// A frame of a view: of the present one, or of none.
    pub(crate) fn linked(&mut self, now: u64, frame: Frame<Message<P>>, out: &mut Out<Message<P>>) {
        let Body::Link { epoch, packet } = frame.body else { return };
        let (from, present) = (frame.from, self.running().map(|view| view.epoch));
        if present != Some(epoch) {
            let known = present.unwrap_or(self.installed);
            if epoch > known && self.early.len() < MOST_EARLY {
                if self.config.has(Flaw::HigherEpochsDropped) {
                    let acknowledged = packet.payload.as_ref().map_or(0, |(number, _)| number + 1);
                    self.send(
                        from,
                        Body::Link { epoch, packet: Packet { acknowledged, payload: None } },
                        out,
                    );
                }
                self.early.push(Frame { body: Body::Link { epoch, packet }, ..frame });
            } else if self.config.has(Flaw::LowerEpochsAccepted)
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
        let never = self.config.has(Flaw::TableNeverReclaimed);
        let Packet { acknowledged, payload } = packet;
        let (payload, refused) = match payload {
            Some((_, message)) if !self.has_room_for(&message.lock) && !never => (None, true),
            payload => (payload, false),
        };
        let packet = Packet { acknowledged, payload };
        if refused {
            self.leave_message_waiting(now);
        }
        let mut delivered = VecDeque::new();
        let link = self.links.entry(from).or_insert_with(|| Link::new(now));
        match link.receive(now, packet, &mut delivered) {
            Answer::None => {}
            Answer::Soon => self.look_at_link(now, from, out),
            Answer::AtOnce => self.acknowledge(from, out),
        }
        for message in delivered {
            if self.config.has(Flaw::TableNeverReclaimed) && !self.has_room_for(&message.lock) {
                continue;
            }
            self.deliver(now, from, message, out);
        }
    }

    /// Looks whether something that arrived from there has waited for so long that it must be acknowledged.
    pub(crate) fn look_at_link(&mut self, now: u64, from: Node, out: &mut Out<Message<P>>) {
        let wait_ns = self.config.acknowledge_ns;
        let link = self.links.get_mut(&from);
        match link.and_then(|link| link.acknowledges_at(now, wait_ns)) {
            Some(at) if at > now => {
                self.due.insert((at, Due::LookAtLink(from)));
            }
            Some(_) => self.acknowledge(from, out),
            None => {}
        }
    }

    /// Says what has arrived from there, unless something was said since that did.
    pub(crate) fn acknowledge(&mut self, to: Node, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        let Some(link) = self.links.get_mut(&to).filter(|link| link.owes()) else { return };
        let packet = link.acknowledgement();
        self.send(to, Body::Link { epoch, packet }, out);
    }

    /// Sends again what has waited for so long for its acknowledgement: to everybody, or to one member.
    pub(crate) fn resend(
        &mut self,
        now: u64,
        after_ns: u64,
        only: Option<MemberId>,
        out: &mut Out<Message<P>>,
    ) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        let from = self.me;
        for (to, link) in self.links.iter_mut().filter(|(to, _)| only.is_none_or(|only| to.id == only)) {
            for packet in link.resend(now, after_ns) {
                let body = Body::Link { epoch, packet };
                out.frames.push(Frame { from, to: to.id, life: Some(to.incarnation), body });
            }
        }
    }
}
