//! From one view to the next: freeze, report, start.

use crate::gather::Gather;
use crate::instance::Sent;
use crate::link::Link;
use crate::member::{Member, Message, Standing};
use crate::{
    Body, Flaw, Frame, Held, LockMessage, LockName, MemberId, Node, Note, Out, Packet, Report, View,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

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
        // No leader with the same settings proposes it: this member could not play its part.
        if !self.can_have(view.members.len()) {
            return self.exclude(out);
        }
        if self.config.has(Flaw::NoWedge) && matches!(self.standing, Standing::Running(_)) {
            return;
        }
        self.wedge(view, out);
    }

    fn wedge(&mut self, view: View, out: &mut Out<Message<P>>) {
        out.notes.push(Note::Wedged { epoch: view.epoch });
        // A member that is frozen already has reported: the report never changes until a start.
        let report = match core::mem::replace(&mut self.standing, Standing::Outside) {
            Standing::Wedged(_, report) => report,
            _ => self.report(),
        };
        for lock in self.locks.values_mut() {
            lock.stop();
        }
        self.links.clear();
        self.parked.clear();
        self.standing = Standing::Wedged(view, report);
    }

    fn report(&self) -> Report {
        let held = |(name, lock): (&LockName, &crate::lock::Lock<P>)| {
            lock.held().map(|(mode, units)| (name.clone(), mode, units))
        };
        Report { installed: self.installed, holds: self.locks.iter().filter_map(held).collect() }
    }

    pub(crate) fn freeze(&mut self, from: Node, view: View, out: &mut Out<Message<P>>) {
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
        let epoch = view.epoch;
        let report = match &self.standing {
            Standing::Wedged(wedged, report) if wedged.epoch == epoch => report.clone(),
            Standing::Running(running) if self.config.has(Flaw::NoWedge) && running.epoch < epoch => {
                self.report()
            }
            _ => return,
        };
        out.notes.push(Note::Reported { epoch, report: report.clone() });
        self.send(from, Body::Report { epoch, report }, out);
    }

    pub(crate) fn begin_gather(&mut self, view: View, previous: View, out: &mut Out<Message<P>>) {
        if let Some(leader) = &mut self.leader {
            leader.gather = Some(Gather::new(view, previous));
            self.gather_again(out);
        }
    }

    /// Asks whoever has not reported yet.
    pub(crate) fn gather_again(&mut self, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_ref().and_then(|leader| leader.gather.as_ref()) else { return };
        if gather.started() {
            return;
        }
        let (view, silent) = (gather.view.clone(), gather.silent().collect::<Vec<_>>());
        for node in silent {
            self.send(node, Body::Freeze(view.clone()), out);
        }
    }

    pub(crate) fn reported(
        &mut self,
        now: u64,
        from: Node,
        epoch: u64,
        report: Report,
        out: &mut Out<Message<P>>,
    ) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if gather.view.epoch == epoch {
            gather.report(from, report);
            self.try_start(now, out);
        }
    }

    /// Starts the view, once everybody has reported and no missing member has a lease.
    pub(crate) fn try_start(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(leader) = &mut self.leader else { return };
        let Some(mut gather) = leader.gather.take() else { return };
        let known = |node: Node| self.start_holds.values().flatten().any(|held| held.node == node);
        let started = gather.started();
        let over = |node: Node| leader.lease_over_ns(node, &self.config);
        let start = gather.start(now, &self.config, over, known).map(<[Held]>::to_vec);
        let view = gather.view.clone();
        leader.gather = Some(gather);
        if let Some(holds) = start.filter(|_| !started) {
            let (epoch, members) = (view.epoch, view.members.clone());
            out.notes.push(Note::Started { view, holds: holds.clone() });
            for node in members {
                self.send(node, Body::Start { epoch, holds: holds.clone() }, out);
            }
        }
    }

    /// To the leader: a member's renewal shows that it has missed a freeze or a start.
    pub(crate) fn remind(&mut self, node: Node, out: &mut Out<Message<P>>) {
        let Some(gather) = self.leader.as_mut().and_then(|leader| leader.gather.as_mut()) else { return };
        if !gather.view.has(node) {
            return;
        }
        let (epoch, view) = (gather.view.epoch, gather.view.clone());
        let holds = gather.holds_at_start().map(<[Held]>::to_vec);
        self.send(node, Body::Freeze(view), out);
        if let Some(holds) = holds {
            self.send(node, Body::Start { epoch, holds }, out);
        }
    }

    /// The view starts: from the reports, then what came while frozen is applied, then local waiters ask, oldest first.
    pub(crate) fn start(
        &mut self,
        now: u64,
        from: Node,
        epoch: u64,
        holds: Vec<Held>,
        out: &mut Out<Message<P>>,
    ) {
        let unwedged = self.config.has(Flaw::NoWedge) && self.applied.epoch == epoch;
        let view = match &self.standing {
            Standing::Wedged(view, _) if view.epoch == epoch => view.clone(),
            Standing::Running(view) if unwedged && view.epoch < epoch => self.applied.clone(),
            _ => return,
        };
        if from != view.coordinator && !self.config.has(Flaw::TwoCoordinators) {
            return;
        }
        out.notes.push(Note::Installed { epoch });
        self.installed = epoch;
        self.links.clear();
        self.clock_full = false;
        self.start_holds = BTreeMap::new();
        for held in holds {
            self.start_holds.entry(held.lock.clone()).or_default().push(held);
        }
        self.standing = Standing::Running(view);
        // Instances go here and nowhere else: in a new epoch, fresh clocks are safe.
        self.locks.retain(|_, lock| {
            lock.stop();
            lock.is_busy()
        });
        self.count_slots();
        self.resume(now, out);
        self.take_early(now, epoch, out);
    }

    fn resume(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let mut names: Vec<(u64, LockName)> = Vec::new();
        for (name, lock) in &self.locks {
            names.push((lock.queue.front().map_or(u64::MAX, |waiter| waiter.order), name.clone()));
        }
        names.sort();
        for (_, name) in &names {
            self.ensure_instance(now, name, true, out);
            if let Some(lock) = self.locks.get_mut(name) {
                lock.holds.retain(|hold| !hold.ended);
            }
        }
        for (_, name) in names {
            self.look_after(now, &name, out);
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
        let mut delivered = VecDeque::new();
        let link = self.links.entry(from).or_insert_with(|| Link::new(now));
        if link.receive(now, packet, &mut delivered) {
            let packet = link.acknowledgement();
            self.send(from, Body::Link { epoch, packet }, out);
        }
        for message in delivered {
            self.lock_message(now, from, message, out);
        }
    }

    fn lock_message(
        &mut self,
        now: u64,
        sender: Node,
        message: LockMessage<Message<P>>,
        out: &mut Out<Message<P>>,
    ) {
        if let Err(why) = self.check_lock_message(sender, &message) {
            return out.notes.push(Note::Refused { from: sender, why });
        }
        self.deliver(now, sender, message, out);
    }

    fn deliver(
        &mut self,
        now: u64,
        sender: Node,
        message: LockMessage<Message<P>>,
        out: &mut Out<Message<P>>,
    ) {
        let LockMessage { lock, from, to, clock, words } = message;
        self.ensure_instance(now, &lock, false, out);
        let Some(state) = self.locks.get_mut(&lock) else { return };
        let mut wants = crate::lock::Wants::default();
        if !state.message(Sent { from, to, clock, words }, &mut wants) {
            let why = "a message that no correct member can have sent to this lock";
            out.notes.push(Note::Refused { from: sender, why });
        }
        self.grant_wants(now, &lock, wants, out);
        self.look_after(now, &lock, out);
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
