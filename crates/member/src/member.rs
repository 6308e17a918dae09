//! One member: its state, its events, and the lease protocol with the leader.

use crate::install::FreezeState;
use crate::instance::ViewContext;
use crate::journal::Journal;
use crate::leader::Leader;
use crate::leave::Leave;
use crate::link::Link;
use crate::lock::Effects;
use crate::query::{PendingQuery, Reply};
use crate::recording::Recording;
use crate::relay::Relay;
use crate::session::Session;
use crate::slices::{DeferredDrop, ListKind, Sending};
use crate::table::{LockId, Locks};
use crate::views::ReportChunk;
use crate::{
    Acquisition, Body, BugSwitch, Bugs, ClusterSettings, Config, Event, Frame, HoldRecord, LockMessage,
    MemberId, NoBugs, Node, Note, Out, PortEvent, PortRequest, Renewal, SessionId, SettingsError, View,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// The member's state with regard to views.
#[derive(Clone, Debug)]
pub(crate) enum ViewState {
    /// In no view yet.
    Outside,
    /// Frozen for this view, which has not started here.
    Frozen(View, Box<FreezeState>),
    /// Runs in this view.
    Running(View),
    /// This incarnation has ended.
    Excluded,
}

/// A timer of a member, by its purpose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    RequestTimeout(Acquisition),
    LongestHold(Acquisition),
    Revoked(Acquisition),
    Session(SessionId),
    CheckLink(Node),
    QueryTimeout(u64),
}

pub(crate) type Message<P> = <P as lockkeeper_core::Protocol>::Message;

/// One incarnation of a member of a lock cluster, as a pure state machine. `P` is the algorithm of its mutexes, `B` is
/// [`NoBugs`] except in simulations.
///
/// # Duties of the driver
/// 1. Give each incarnation of a member a number that is never reused.
/// 2. Call [`handle`](Self::handle) for one event at a time, with the reading of a clock that is monotonic, counts
///    suspended time, and drifts by at most [`ClusterSettings::drift_ppm`]. Read it AFTER the event arrived.
/// 3. Then perform all actions in [`Out`]. Frames may be lost, duplicated and reordered; they are never corrupted.
/// 4. Send a tick no later than [`wake_ns`](Self::wake_ns), or as soon after it as the machine allows.
/// 5. On [`Note::Excluded`], drop the member and create one with a new incarnation; on [`Note::Left`], drop it.
///
/// # Duties of consensus
/// 6. Decide one view for each epoch: a proposal takes effect only if its epoch is one more than the last one's, and
///    its proposer still leads in its term. A decided view is durable at a majority BEFORE it is reported to any
///    member.
/// 7. Report to each incarnation of a member the newest view and the present leader. Report views in order. Report
///    [`PortEvent::Leading`] only once an entry of that term is applied, so that the leader knows every view decided
///    before it led.
/// 8. Answer [`PortRequest::Confirm`] only if a majority replied AFTER the request that it knows of no later term.
/// 9. On [`PortRequest::StepDown`], transfer the leadership to another voter if possible. Only latency depends on it.
#[derive(Clone, Debug)]
pub struct Member<P: MutualExclusion, B: Bugs = NoBugs> {
    pub(crate) config: Config<B>,
    pub(crate) me: Node,
    /// The state with regard to views.
    pub(crate) view_state: ViewState,
    /// The newest view that consensus reported.
    pub(crate) applied: View,
    /// The epoch of the newest view that started here.
    pub(crate) installed: u64,
    /// Expiry of the lease, on this clock: clients of this member may hold locks until then.
    pub(crate) lease_until_ns: u64,
    /// The supposed leader, which receives the renewals.
    pub(crate) leader_hint: Option<MemberId>,
    /// The leader's state, while this member leads.
    pub(crate) leader: Option<Leader>,
    pub(crate) leave: Option<Leave>,
    /// The last number given to a confirmation request.
    pub(crate) confirmations: u64,
    pub(crate) links: BTreeMap<Node, Link<LockMessage<Message<P>>>>,
    /// Frames of views that have not started here; not acknowledged before they have.
    pub(crate) early: Vec<Frame<Message<P>>>,
    pub(crate) locks: Locks<P>,
    /// The context that all locks of the present view share.
    pub(crate) context: Option<ViewContext<P>>,
    pub(crate) effects: Effects<Message<P>>,
    /// Obsolete data, freed in small steps.
    pub(crate) deferred_drops: Vec<DeferredDrop<Message<P>>>,
    /// Number of items that this step has touched.
    pub(crate) work: usize,
    /// Chunks of lists to be sent.
    pub(crate) sending: VecDeque<Sending>,
    /// For each member and list: the view of the chunks sent last, and their number.
    pub(crate) sent: BTreeMap<(Node, ListKind), (u64, u32)>,
    /// Locks in use that have no instance in the present view yet, by the order of their first waiter.
    pub(crate) resuming: BTreeSet<(u64, LockId)>,
    /// Number of early frames that are still to be handled.
    pub(crate) early_left: usize,
    /// Sessions that have ended, whose holds are released in small steps.
    pub(crate) ending: VecDeque<SessionId>,
    /// Queries of other members about the locks here, being answered.
    pub(crate) scans: VecDeque<PendingQuery>,
    /// The lease runs again, and parked locks are being advanced.
    pub(crate) unparks: bool,
    /// A retransmission is under way on some link.
    pub(crate) resends: bool,
    /// Messages have arrived that a later step delivers.
    pub(crate) delivers: bool,
    /// Number of holds, including those that have ended and are only in the report of a frozen member.
    pub(crate) held: usize,
    /// A link without progress counts as a failure from this time on.
    pub(crate) links_count_from_ns: u64,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Holds that may have to be recorded, each with the time since which it is in use.
    pub(crate) young_holds: VecDeque<(u64, Acquisition)>,
    /// Adopted holds of resident clients that the driver has not taken over yet.
    pub(crate) adopted_residents: Vec<crate::HoldRecord>,
    pub(crate) recording: Recording,
    /// Sessions at other members, of clients that are connected to this one.
    pub(crate) relays: BTreeMap<SessionId, Relay>,
    /// Whether a client of a session here is connected to another member.
    pub(crate) relayed_sessions: bool,
    /// The timers, by time.
    pub(crate) timers: BTreeSet<(u64, Timer)>,
    /// Locks with a waiter that could be granted if the lease ran.
    pub(crate) parked: VecDeque<LockId>,
    /// Whether the fence clock of a lock is exhausted in this view.
    pub(crate) clock_full: bool,
    /// When the present view started here.
    pub(crate) installed_ns: u64,
    /// Whether the leader was notified in this view that the table is full.
    pub(crate) table_full_sent: bool,
    /// Whether a message of another member is unacknowledged because the table has no room for its lock.
    pub(crate) message_waits: bool,
    /// The epoch of the view that the cluster's settings come from.
    settings_epoch: u64,
    /// Number of requests so far, which orders waiters.
    pub(crate) order: u64,
    /// Number of session generations so far.
    pub(crate) next_generation: u64,
    /// Nodes that request to join, and when their last message arrived.
    pub(crate) joiners: BTreeMap<Node, u64>,
    /// The replies to each query of this member's driver, so far.
    pub(crate) query_replies: BTreeMap<u64, Vec<Reply>>,
    /// Changes of locks, recorded from the driver's first request for them.
    pub(crate) journal: Option<Journal>,
    /// Frames of this member to itself.
    pub(crate) to_self: VecDeque<Frame<Message<P>>>,
    /// When the next beat is due: retransmissions and other periodic work.
    next_beat_ns: u64,
    next_renewal_ns: u64,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Creates an incarnation that is in no view. Fails if the settings cannot work; the text of the error is for the
    /// operator.
    pub fn new(me: Node, config: Config<B>, now: u64) -> Result<Self, SettingsError> {
        config.check()?;
        let options = crate::instance::options::<P>(&config.cluster.algorithm, config.peers.len().max(1), 0)?;
        let about = P::about(&options);
        if !about.deadlock_free {
            return Err(SettingsError::CanDeadlock { algorithm: about.slug });
        }
        if !matches!(P::sharing(&options), lockkeeper_core::Sharing::Mutex) {
            return Err(SettingsError::NotAMutex { algorithm: about.slug });
        }
        for members in 1..=config.peers.len() {
            crate::instance::options::<P>(&config.cluster.algorithm, members, 0)?;
        }
        Ok(Self {
            config,
            me,
            view_state: ViewState::Outside,
            applied: View::none(),
            installed: 0,
            lease_until_ns: 0,
            leader_hint: None,
            leader: None,
            leave: None,
            confirmations: 0,
            links: BTreeMap::new(),
            early: Vec::new(),
            locks: Locks::new(me.incarnation),
            context: None,
            effects: Effects::default(),
            deferred_drops: Vec::new(),
            work: 0,
            sending: VecDeque::new(),
            sent: BTreeMap::new(),
            resuming: BTreeSet::new(),
            early_left: 0,
            ending: VecDeque::new(),
            scans: VecDeque::new(),
            unparks: false,
            resends: false,
            delivers: false,
            held: 0,
            links_count_from_ns: 0,
            sessions: BTreeMap::new(),
            young_holds: VecDeque::new(),
            adopted_residents: Vec::new(),
            recording: Recording::default(),
            relays: BTreeMap::new(),
            relayed_sessions: false,
            timers: BTreeSet::new(),
            parked: VecDeque::new(),
            clock_full: false,
            installed_ns: 0,
            table_full_sent: false,
            message_waits: false,
            settings_epoch: 0,
            order: 0,
            next_generation: 0,
            joiners: BTreeMap::new(),
            query_replies: BTreeMap::new(),
            journal: None,
            to_self: VecDeque::new(),
            next_beat_ns: now,
            next_renewal_ns: now,
        })
    }

    /// The member's id and incarnation.
    pub fn node(&self) -> Node {
        self.me
    }

    /// The newest view that started here, if this member is in it and not frozen.
    pub fn running(&self) -> Option<&View> {
        match &self.view_state {
            ViewState::Running(view) => Some(view),
            _ => None,
        }
    }

    /// The rest of the lease; 0 if it has expired.
    pub fn lease_left_ns(&self, now: u64) -> u64 {
        self.lease_until_ns.saturating_sub(now)
    }

    /// When the next tick is due; 0 (at once) while long work continues.
    pub fn wake_ns(&self) -> u64 {
        if self.is_at_work() {
            return 0;
        }
        let next = self.timers.first().map_or(u64::MAX, |&(at, _)| at);
        next.min(self.next_beat_ns)
    }

    /// Handles one event. `out` is cleared first.
    pub fn handle(&mut self, now: u64, event: Event<Message<P>>, out: &mut Out<Message<P>>) {
        out.clear();
        if matches!(self.view_state, ViewState::Excluded) {
            return;
        }
        // Long work that was under way continues with ticks only, so that other events are delayed as little as
        // possible.
        let (busy, tick) = (self.is_at_work(), matches!(event, Event::Tick));
        match event {
            Event::Frame(frame) => self.frame(now, frame, out),
            Event::Client(session, proof, message) => self.client_message(now, session, proof, message, out),
            Event::Port(event) => self.port(now, event, out),
            Event::Tick => {}
            Event::Peers(peers) => self.peers(now, peers),
            Event::Connected(peer) => self.resend(now, 0, Some(peer)),
            Event::Leave { timeout_ns } => self.leave(now, timeout_ns, out),
            Event::Revoke(lock, acquisition, by) => self.revoke_hold_of(now, &lock, acquisition, by, out),
            Event::Query(number, query) => self.send_query(now, number, &query, out),
            Event::Change(settings) => self.change_settings(now, settings),
        }
        // Then the timers, the frames to itself, and a slice of the long work.
        self.ticks(now, out);
        loop {
            while let Some(frame) = self.to_self.pop_front() {
                self.frame(now, frame, out);
            }
            let before = self.work;
            if !self.has_budget() || busy && !tick {
                break;
            }
            self.continue_work(now, out);
            if self.work == before && self.to_self.is_empty() {
                break;
            }
        }
        self.write_records(now, out);
        self.route_to_clients(out);
        self.free_obsolete();
        out.work = core::mem::take(&mut self.work);
        if tick && out.work == 0 {
            self.free_more_obsolete();
        }
    }

    /// Replaces the list of possible members. This excludes no member from a view: a member that is to go leaves, or
    /// falls silent.
    fn peers(&mut self, now: u64, mut peers: Vec<MemberId>) {
        peers.sort_unstable();
        peers.dedup();
        self.config.peers = peers;
        if matches!(self.view_state, ViewState::Outside) {
            self.next_renewal_ns = now;
            self.next_beat_ns = now;
        }
    }

    /// Checks settings that an operator requests. The text of the error is for the operator.
    pub fn check_settings(&self, settings: &ClusterSettings) -> Result<(), SettingsError> {
        self.config.check_cluster(settings)?;
        (1..=self.config.peers.len().max(self.applied.members.len()).max(1))
            .try_for_each(|members| self.check_algorithm(settings, members))
    }

    /// Checks that this member can run the algorithm in a view of this many members.
    pub(crate) fn check_algorithm(
        &self,
        settings: &ClusterSettings,
        members: usize,
    ) -> Result<(), SettingsError> {
        crate::instance::options::<P>(&settings.algorithm, members, 0).map(drop)
    }

    /// Whether this member waits for the start of the first view of a new cluster.
    pub fn founds(&self) -> bool {
        matches!(&self.view_state, ViewState::Frozen(view, _) if view.founding && self.installed == 0)
    }

    /// Whether this member leads the voters, as far as it knows.
    pub fn leads(&self) -> bool {
        self.leader.is_some()
    }

    /// The settings of the newest view that this member knows, or its own before the first view.
    pub fn settings(&self) -> &ClusterSettings {
        &self.config.cluster
    }

    /// Adopts the settings of this view, unless it has those of a newer one.
    pub(crate) fn adopt_settings(&mut self, view: &View) {
        if view.epoch > self.settings_epoch && !self.config.has(BugSwitch::OwnLeaseWaitedFor) {
            self.settings_epoch = view.epoch;
            let own = core::mem::replace(&mut self.config.cluster, view.settings.clone());
            if self.config.has(BugSwitch::OwnAlgorithm) {
                self.config.cluster.algorithm = own.algorithm;
            }
        }
    }

    /// Handles an operator's request to change the settings. The leader proposes a view with them. Invalid settings,
    /// and requests at other members, are ignored.
    fn change_settings(&mut self, now: u64, settings: ClusterSettings) {
        if self.check_settings(&settings).is_err() {
            return;
        }
        if let Some(leader) = &mut self.leader {
            leader.change = Some(settings).filter(|settings| *settings != self.applied.settings);
            self.next_beat_ns = now;
        }
    }

    /// Sends a frame to one incarnation of a member.
    pub(crate) fn send(&mut self, to: Node, body: Body<Message<P>>, out: &mut Out<Message<P>>) {
        self.send_to(to.id, Some(to.incarnation), body, out);
    }

    /// Sends a frame to a member; `incarnation` restricts it to one incarnation.
    fn send_to(
        &mut self,
        to: MemberId,
        incarnation: Option<u64>,
        body: Body<Message<P>>,
        out: &mut Out<Message<P>>,
    ) {
        let frame = Frame { from: self.me, to, incarnation, body };
        if to == self.me.id {
            self.to_self.push_back(frame);
        } else {
            out.frames.push(frame);
        }
    }

    /// Validates a frame and handles it. A frame for another incarnation is dropped.
    fn frame(&mut self, now: u64, frame: Frame<Message<P>>, out: &mut Out<Message<P>>) {
        let from = frame.from;
        if frame.incarnation.is_some_and(|incarnation| incarnation != self.me.incarnation) {
            return;
        }
        if let Err(why) = self.check(&frame) {
            return out.notes.push(Note::Refused { from, why });
        }
        match frame.body {
            Body::Renew(renewal) => self.renew(now, from, renewal, out),
            Body::Renewed { sent_ns, duration_ns } => self.renewed(now, sent_ns, duration_ns),
            Body::Excluded { epoch } => self.receive_exclusion(epoch, out),
            Body::Join => {
                self.joiners.insert(from, now);
            }
            Body::Freeze { view, chunk } => self.freeze(from, view, chunk, out),
            Body::Report { epoch, installed, chunk } => {
                self.reported(now, from, ReportChunk { epoch, installed, chunk }, out);
            }
            Body::Start { epoch, chunk } => self.start(from, epoch, chunk, out),
            Body::More { epoch, chunk } => self.send_start(from, epoch, chunk),
            Body::Link { .. } => self.linked(now, frame, out),
            Body::Relay { session, proof, message } => {
                self.receive_relay(now, from, (session, proof, message), out);
            }
            Body::Relayed { session, message } => self.receive_relayed(from, session, message, out),
            Body::NotHome { session, epoch } => self.receive_not_home(now, from, session, epoch, out),
            Body::Query { number, query } => self.receive_query(from, number, query),
            Body::Reply { number, locks, left_out } => {
                self.receive_reply(number, Reply { node: from, locks, left_out }, out)
            }
        }
    }

    /// Handles an event of consensus.
    fn port(&mut self, now: u64, event: PortEvent, out: &mut Out<Message<P>>) {
        match event {
            PortEvent::Leader(hint) => {
                if self.leader_hint != hint {
                    self.leader_hint = hint;
                    self.next_renewal_ns = now;
                    self.next_beat_ns = now;
                }
            }
            PortEvent::Leading { term } => {
                self.retire();
                self.leader = Some(Leader::new(term, now));
                self.leader_hint = Some(self.me.id);
                // Its own lease came from the previous leader, which does not renew it any more.
                self.next_renewal_ns = now;
                self.next_beat_ns = now;
                if self.config.has(BugSwitch::TwoCoordinators) && self.applied.epoch > 0 {
                    self.begin_gather(self.applied.clone(), self.applied.clone(), Vec::new(), out);
                }
            }
            PortEvent::Deposed => self.retire(),
            PortEvent::Confirmed { number } => self.confirmed(now, number, out),
            PortEvent::Decided { view, adopted } => self.decided(now, view, adopted, out),
            PortEvent::Written { home, sequence, outcomes } => {
                if home == self.me {
                    self.written(now, sequence, &outcomes, out);
                }
            }
        }
    }

    /// Handles a decided view. Its coordinator begins to gather the reports.
    fn decided(&mut self, now: u64, view: View, adopted: Vec<HoldRecord>, out: &mut Out<Message<P>>) {
        if view.epoch <= self.applied.epoch {
            return;
        }
        let previous = core::mem::replace(&mut self.applied, view.clone());
        self.adopt_settings(&view);
        if let Some(leader) = &mut self.leader {
            leader.applied(now, &view);
        }
        self.learn(view.clone(), out);
        let term = self.leader.as_ref().map(|leader| leader.term);
        if view.coordinator == self.me && term == Some(view.term) {
            self.begin_gather(view, previous, adopted, out);
        }
    }

    /// Runs the timers that have expired, and the periodic work of a beat.
    fn ticks(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while self.timers.first().is_some_and(|&(at, _)| at <= now) && self.has_budget() {
            self.spend(1);
            if let Some((_, timer)) = self.timers.pop_first() {
                self.run_timer(now, timer, out);
            }
        }
        if now < self.next_beat_ns {
            return;
        }
        self.next_beat_ns = now + self.config.resend_ns;
        self.record_long_holds(now);
        self.drop_old_relays(now);
        self.resend(now, self.config.resend_ns, None);
        if now >= self.next_renewal_ns {
            self.next_renewal_ns = now + self.config.cluster.renewal_ns;
            self.send_renewal(now, out);
        }
        self.request_start(out);
        self.continue_leaving(now, out);
        let leaves = self.hands_on(now, out);
        if let Some(mut leader) = self.leader.take() {
            leader.drop_old_confirmations(now, &self.config);
            if leaves {
                leader.mark_departed(self.me);
            }
            let proposal = leader.proposal(now, self.me, &self.applied, &self.joiners, &self.config);
            self.leader = Some(leader);
            out.port.extend(proposal.map(PortRequest::Propose));
            self.gather_again(out);
            self.try_start(now);
        }
    }

    /// Makes the next renewal leave in this step.
    pub(crate) fn renew_at_once(&mut self, now: u64) {
        self.next_renewal_ns = now;
        self.next_beat_ns = now;
    }

    /// Sends a renewal to the leader; outside of any view, a request to join to all possible members.
    pub(crate) fn send_renewal(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let remembered = 4 * self.config.cluster.renewal_ns;
        self.joiners.retain(|_, received| now <= *received + remembered);
        let epoch = match &self.view_state {
            ViewState::Outside if self.leave.is_some() => return,
            ViewState::Outside => {
                self.joiners.insert(self.me, now);
                for id in self.config.peers.clone() {
                    self.send_to(id, None, Body::Join, out);
                }
                return;
            }
            ViewState::Excluded => return,
            ViewState::Frozen(..) if self.config.has(BugSwitch::FreezeStopsRenewals) => return,
            ViewState::Frozen(view, _) | ViewState::Running(view) => view.epoch,
        };
        let Some(leader) = self.leader_hint else { return };
        let lately = 2 * self.config.cluster.renewal_ns;
        let stuck = 2 * self.config.cluster.silence_ns;
        let renewal = Renewal {
            epoch,
            sent_ns: now,
            installed: self.installed,
            unreachable: self
                .links
                .iter()
                .filter(|(_, link)| {
                    now >= self.links_count_from_ns.saturating_add(stuck) && link.is_stuck(now, stuck)
                })
                .map(|(&node, _)| node)
                .collect(),
            joiners: self
                .joiners
                .iter()
                .filter(|&(_, &received)| now <= received + lately)
                .map(|(&node, _)| node)
                .collect(),
            clock_full: self.clock_full,
            table_full: self.table_is_full(now),
            drained: self.has_departed(),
        };
        self.send_to(leader, None, Body::Renew(renewal), out);
    }

    /// As the leader: handles a renewal.
    fn renew(&mut self, now: u64, from: Node, renewal: Renewal, out: &mut Out<Message<P>>) {
        let Some(leader) = &mut self.leader else { return };
        let (view, epoch) = (&self.applied, renewal.epoch);
        if !view.has(from) && epoch <= view.epoch && !self.config.has(BugSwitch::AnswersOldEpochs) {
            let epoch = view.epoch;
            return self.send(from, Body::Excluded { epoch }, out);
        }
        // The member has missed the freeze or the start, which is sent again below.
        let behind = renewal.installed < view.epoch;
        // The leader itself leaves in another way: see `hands_on`.
        if renewal.drained && from != self.me {
            leader.mark_departed(from);
        }
        if renewal.table_full {
            // Propose at the next beat: clients with new lock names wait for the view.
            self.next_beat_ns = now;
        }
        self.confirmations += 1;
        let (number, term) = (self.confirmations, leader.term);
        if leader.renewal(now, from, renewal, number, &self.config).is_some() {
            if self.config.has(BugSwitch::MinorityGrants) {
                return self.confirmed(now, number, out);
            }
            out.port.push(PortRequest::Confirm { number, term });
        }
        if behind {
            self.resend_freeze_or_start(from, out);
        }
    }

    /// As the leader: sends the leases that a confirmation of the leadership allows.
    fn confirmed(&mut self, now: u64, number: u64, out: &mut Out<Message<P>>) {
        let Some(leader) = &mut self.leader else { return };
        for lease in leader.confirmed(now, number, &self.applied, &self.config) {
            let (sent_ns, duration_ns) = (lease.sent_ns, lease.duration_ns);
            self.send(lease.node, Body::Renewed { sent_ns, duration_ns }, out);
        }
    }

    /// The lease is counted from when the renewal was sent, because the delay of the answer is unknown.
    fn renewed(&mut self, now: u64, sent_ns: u64, duration_ns: u64) {
        if self.has_departed() {
            return;
        }
        let from = if self.config.has(BugSwitch::LeaseFromArrival) { now } else { sent_ns.min(now) };
        self.lease_until_ns = self.lease_until_ns.max(from + duration_ns);
        if self.lease_until_ns > now {
            self.unparks = !self.parked.is_empty();
        }
    }

    /// Handles the leader's answer that a newer view excludes this member.
    fn receive_exclusion(&mut self, epoch: u64, out: &mut Out<Message<P>>) {
        let known = match &self.view_state {
            ViewState::Frozen(view, _) | ViewState::Running(view) => view.epoch,
            _ => return,
        };
        if epoch > known {
            self.exclude(out);
        }
    }
}
