//! The event loop of a simulated cluster.

use super::clients::{Client, Peer};
use super::connections::Connects;
use super::consensus::{Consensus, ConsensusEvent, Reach};
use super::daemon_leases::{Lease, ProcessLease};
use super::faults::{self, Fault, FaultEvent};
use super::long_holders::LongHolder;
use super::machine::{Clock, Machine};
use super::net::Net;
use super::observer::{Observer, Outcome, Property};
use super::spec::{ClusterSpec, MS};
use super::tenants::{LeaseId, RenewalReply, SentRenewal, Tenant};
use lockkeeper_core::{MutualExclusion, Protocol};
use lockkeeper_lab::simulator::queue::Queue;
use lockkeeper_lab::simulator::rng::{Purpose, Rng};
use lockkeeper_lab::simulator::time::Time;
use lockkeeper_member::{
    Body, BugSwitch, Event, Frame, Member, MemberId, Node, Note, Out, PortEvent, PortRequest, Proof,
    SessionId, SettingsError, ToClient, ToMember, View,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type SimMember<P> = Member<P, Option<BugSwitch>>;
pub(super) type Message<P> = <P as Protocol>::Message;

/// A scheduled event.
#[derive(Clone, Debug)]
pub(super) enum ScheduledEvent<M> {
    /// A frame of the cluster with this number.
    Frame(u64, Frame<M>),
    ToMember {
        client: usize,
        peer: Peer,
        message: ToMember,
    },
    ToClient {
        /// The daemon whose connection carries the message.
        daemon: usize,
        session: SessionId,
        message: ToClient,
    },
    Port(usize, u64, PortEvent),
    Tick(usize, u64),
    Client(usize),
    Connection(usize, Peer, Connects),
    Tenant(usize),
    Renewal(SentRenewal),
    RenewalReply {
        tenant: usize,
        daemon: usize,
        reply: RenewalReply,
    },
    /// A daemon answers another one, in its boot with this number, that it does not have a lease.
    LeaseAbsent {
        via: usize,
        boot: u64,
        lease: LeaseId,
        from: usize,
        epoch: u64,
    },
    Local {
        machine: usize,
        session: SessionId,
        message: ToMember,
    },
    Leases {
        machine: usize,
        boot: u64,
    },
    LongHolder(usize),
    /// An event of the voters of the cluster with this number.
    Consensus(u64, ConsensusEvent),
    FaultEvent(usize),
    Back {
        machine: usize,
        wipe: bool,
    },
    Mend(Vec<(usize, usize)>),
}

/// One line of a trace: the time, the participant, and the event.
pub type Line<'a> = (u64, String, &'a dyn std::fmt::Debug);

/// Receives the lines of a trace.
pub type Trace<'a> = &'a mut dyn FnMut(Line<'_>);

/// A cluster, its clients, and the events that are scheduled.
pub struct Sim<'a, P: MutualExclusion> {
    pub(super) spec: &'a ClusterSpec,
    pub(super) now: u64,
    queue: Queue<ScheduledEvent<Message<P>>>,
    pub(super) machines: Vec<Machine>,
    pub(super) members: Vec<Option<SimMember<P>>>,
    incarnations: u64,
    /// When each member's next tick is scheduled.
    tick_ns: Vec<u64>,
    pub(super) clients: Vec<Client>,
    pub(super) long_holders: Vec<LongHolder>,
    pub(super) tenants: Vec<Tenant>,
    /// When each tenant takes its next step.
    pub(super) tenant_wake_ns: Vec<u64>,
    /// The leases of tenants, by daemon.
    pub(super) leases: BTreeMap<(usize, LeaseId), Lease>,
    /// For each daemon, the lease of its member as the clients in its process see it.
    pub(super) process_leases: Vec<ProcessLease>,
    /// For each daemon and lease: an epoch, and the daemons that do not have the lease in it.
    pub(super) absent_leases: BTreeMap<(usize, LeaseId), (u64, BTreeSet<usize>)>,
    pub(super) lease_sessions: u64,
    /// When each daemon checks its leases next.
    pub(super) lease_wake_ns: BTreeMap<usize, u64>,
    pub(super) net: Net,
    pub(super) consensus: Consensus,
    fault_events: Vec<(u64, FaultEvent)>,
    /// For each machine, the time until which its clients may lose their holds because of a recent fault.
    pub(super) hit_until_ns: Vec<u64>,
    pub(super) observer: Observer,
    /// The arrival time of the last message of each session: at the member (`true`) and at the client (`false`).
    pub(super) arrivals: BTreeMap<(SessionId, bool), u64>,
    out: Out<Message<P>>,
    /// Whether the member of the present step ran in a view before it.
    ran_before: bool,
    /// The rest of its lease at that time. A step may promise a hold and then give the lease up, in its departure notice.
    lease_before_ns: u64,
    /// Draws the settings of each incarnation of a member.
    configuring: Rng,
    trace: Option<Trace<'a>>,
}

/// The Unix time at the beginning of a run. Larger than the reading of any clock.
const UNIX_EPOCH_NS: u64 = 1 << 42;

/// The proof of a client.
pub(super) fn proof(client: u64) -> Proof {
    Proof(u128::from(client + 1).to_le_bytes())
}

struct Machines<'a>(&'a [Machine], &'a Net, u64);

impl Reach for Machines<'_> {
    fn awake(&self, machine: usize) -> bool {
        self.0[machine].is_awake(self.2)
    }

    fn linked(&self, one: usize, other: usize) -> bool {
        self.1.is_open(one, other) && self.1.is_open(other, one)
    }
}

impl<'a, P: MutualExclusion> Sim<'a, P> {
    /// Creates a run at its start. Returns an error if the specification is invalid.
    pub fn new(spec: &'a ClusterSpec, seed: u64, trace: Option<Trace<'a>>) -> Result<Self, SettingsError> {
        let mut rng = Rng::new(seed, Purpose::Faults);
        let machines = spec.members + spec.clients + spec.tenants + spec.long_holders;
        let drifts = spec.faults.contains(&Fault::Drift);
        let clock =
            |rng: &mut Rng| if drifts { Clock::draw(ClusterSpec::DRIFT_PPM, rng) } else { Clock::right() };
        let machines: Vec<Machine> = (0..machines).map(|_| Machine::new(clock(&mut rng))).collect();
        let mut workload = Rng::new(seed, Purpose::Workload);
        let client = |number: usize| {
            let rng = Rng::new(workload.below(usize::MAX) as u64, Purpose::Workload);
            Client::new(number as u64, spec, rng, spec.bug)
        };
        let mut tenants = Rng::new(seed ^ 0x7e4a, Purpose::Workload);
        let tenant = |number: usize| {
            Tenant::new(number, spec, Rng::new(tenants.below(usize::MAX) as u64, Purpose::Workload))
        };
        let mut consensus = Consensus::new(spec.members, Rng::new(seed, Purpose::Consensus));
        consensus.late = !spec.spares_survivors();
        consensus.forgets = spec.forgets_epochs;
        consensus.bug = spec.bug;
        let mut sim = Self {
            spec,
            now: 0,
            queue: Queue::default(),
            members: vec![None; spec.members],
            incarnations: 0,
            tick_ns: vec![u64::MAX; spec.members],
            clients: (0..spec.clients).map(client).collect(),
            long_holders: (0..spec.long_holders).map(|number| LongHolder::new(number, spec)).collect(),
            tenants: (0..spec.tenants).map(tenant).collect(),
            tenant_wake_ns: vec![0; spec.tenants],
            leases: BTreeMap::new(),
            process_leases: vec![ProcessLease::default(); spec.members],
            absent_leases: BTreeMap::new(),
            lease_sessions: 0,
            lease_wake_ns: BTreeMap::new(),
            net: Net::new(Rng::new(seed, Purpose::Network), spec.faults.clone(), spec.chaos_ns),
            consensus,
            fault_events: faults::draw(spec, &mut rng),
            hit_until_ns: vec![0; machines.len()],
            machines,
            observer: Observer::default(),
            arrivals: BTreeMap::new(),
            out: Out::default(),
            ran_before: false,
            lease_before_ns: 0,
            configuring: Rng::new(!seed, Purpose::Faults),
            trace,
        };
        sim.observer.outcome.seed = seed;
        sim.begin()?;
        Ok(sim)
    }

    fn begin(&mut self) -> Result<(), SettingsError> {
        for machine in 0..self.spec.members {
            self.start_incarnation(machine)?;
        }
        for client in 0..self.clients.len() {
            self.after(client as u64 * MS, ScheduledEvent::Client(client));
        }
        for tenant in 0..self.tenants.len() {
            self.after(0, ScheduledEvent::Tenant(tenant));
        }
        for long_holder in 0..self.long_holders.len() {
            self.after(1_000 * MS, ScheduledEvent::LongHolder(long_holder));
        }
        self.after(0, ScheduledEvent::Consensus(0, ConsensusEvent::CheckMajority));
        for fault_event in 0..self.fault_events.len() {
            self.after(self.fault_events[fault_event].0, ScheduledEvent::FaultEvent(fault_event));
        }
        Ok(())
    }

    pub(super) fn after(&mut self, delay: u64, what: ScheduledEvent<Message<P>>) {
        self.queue.push(Time::from_ticks(self.now + delay), what);
    }

    pub(super) fn trace(&mut self, who: impl FnOnce() -> String, what: &dyn std::fmt::Debug) {
        if let Some(trace) = &mut self.trace {
            trace((self.now, who(), what));
        }
    }

    /// Begins a new incarnation of a member, which knows only its configuration.
    pub(super) fn start_incarnation(&mut self, machine: usize) -> Result<(), SettingsError> {
        self.incarnations += 1;
        let node = Node { id: MemberId(machine as u32 + 1), incarnation: self.incarnations };
        let clock = self.machines[machine].clock.read(self.now);
        let mut config = self.spec.config();
        if self.spec.faults.contains(&Fault::Settings) {
            config.cluster = self.spec.settings(&mut self.configuring);
        }
        // After the loss of all disks, the machines do not know how long an earlier cluster has promised holds.
        config.is_new = self.consensus.cluster == 0;
        // Unix time is right when the incarnation begins, and drifts with the machine's clock from then on.
        config.unix_ns_at_zero = UNIX_EPOCH_NS + self.now - clock;
        self.members[machine] = Some(Member::new(node, config, clock)?);
        self.tick_ns[machine] = self.now;
        self.after(0, ScheduledEvent::Tick(machine, self.incarnations));
        self.trace(|| node.to_string(), &"begins");
        Ok(())
    }

    /// Runs to the end, or to the first violation.
    pub fn run(mut self) -> Outcome {
        while let Some((at, what)) = self.queue.pop() {
            if at.ticks() >= self.spec.end_ns() || self.observer.outcome.broken.is_some() {
                break;
            }
            self.now = at.ticks();
            self.happens(what);
        }
        self.check_service();
        self.observer.finish()
    }

    fn happens(&mut self, what: ScheduledEvent<Message<P>>) {
        match what {
            ScheduledEvent::Frame(cluster, frame) => {
                // Members drop frames of another cluster, even of one with the same name and members.
                if cluster == self.consensus.cluster {
                    let machine = frame.to.0 as usize - 1;
                    self.at(machine, |frame| ScheduledEvent::Frame(cluster, frame), frame, Event::Frame);
                }
            }
            ScheduledEvent::ToMember { client, peer, message } => {
                if self.is_connected(client, peer) {
                    self.observer.requested(peer.session, &message);
                    let again = |message| ScheduledEvent::ToMember { client, peer, message };
                    self.at(peer.daemon, again, message, |message| {
                        Event::Client(peer.session, proof(client as u64), message)
                    });
                }
            }
            ScheduledEvent::ToClient { daemon, session, message } => {
                self.deliver_to_client(daemon, session, message);
            }
            ScheduledEvent::Port(machine, incarnation, event) => {
                if self.incarnation(machine) == Some(incarnation) {
                    self.at(
                        machine,
                        |event| ScheduledEvent::Port(machine, incarnation, event),
                        event,
                        Event::Port,
                    );
                }
            }
            ScheduledEvent::Tick(machine, incarnation) => {
                if self.incarnation(machine) == Some(incarnation) && self.now >= self.tick_ns[machine] {
                    self.at(machine, |()| ScheduledEvent::Tick(machine, incarnation), (), |()| Event::Tick);
                }
            }
            ScheduledEvent::Client(client) => self.drive_client(client),
            ScheduledEvent::Connection(client, peer, how) => self.connection(client, peer, how),
            ScheduledEvent::Tenant(tenant) => self.drive_tenant(tenant),
            ScheduledEvent::Renewal(sent) => self.renewed(sent),
            ScheduledEvent::RenewalReply { tenant, daemon, reply } => {
                self.deliver_to_tenant(tenant, daemon, reply)
            }
            ScheduledEvent::Local { machine, session, message } => {
                let again = |message| ScheduledEvent::Local { machine, session, message };
                self.observer.requested(session, &message);
                self.at(machine, again, message, |message| {
                    Event::Client(session, proof(session.client), message)
                });
            }
            ScheduledEvent::LeaseAbsent { via, boot, lease, from, epoch } => {
                if self.machines[via].up && self.machines[via].boots == boot {
                    self.lease_absent(via, lease, from, epoch);
                }
            }
            ScheduledEvent::Leases { machine, boot } => self.advance_leases(machine, boot),
            ScheduledEvent::LongHolder(long_holder) => self.look_at_hoard(long_holder),
            // Events of voters that have since lost their disks are dropped.
            ScheduledEvent::Consensus(cluster, ConsensusEvent::CheckMajority)
                if cluster != self.consensus.cluster =>
            {
                self.after(
                    0,
                    ScheduledEvent::Consensus(self.consensus.cluster, ConsensusEvent::CheckMajority),
                );
            }
            ScheduledEvent::Consensus(cluster, _) if cluster != self.consensus.cluster => {}
            ScheduledEvent::Consensus(_, later) => {
                self.consensus(|consensus, now, reach, later_on, notifications| {
                    consensus.happens(now, later, reach, later_on, notifications);
                })
            }
            ScheduledEvent::FaultEvent(number) => self.inject(self.fault_events[number].1.clone()),
            ScheduledEvent::Back { machine, wipe } => self.back(machine, wipe),
            ScheduledEvent::Mend(ways) => ways.into_iter().for_each(|(from, to)| self.mend(from, to)),
        }
    }

    fn incarnation(&self, machine: usize) -> Option<u64> {
        self.members[machine].as_ref().map(|member| member.node().incarnation)
    }

    /// Handles an event at a member's machine: now, later if the machine is paused or busy, or never if it is down.
    pub(super) fn at<T>(
        &mut self,
        machine: usize,
        again: impl FnOnce(T) -> ScheduledEvent<Message<P>>,
        what: T,
        event: impl FnOnce(T) -> Event<Message<P>>,
    ) {
        let state = self.machines[machine];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, again(what));
        }
        if self.now < state.busy_until_ns {
            return self.after(state.busy_until_ns - self.now, again(what));
        }
        // Before the event, which may bring a new lease: a gap between two leases ends the holds of the first.
        self.follow_process_lease(machine);
        let Some(member) = &mut self.members[machine] else { return };
        let event = event(what);
        let node = member.node();
        if let Some(trace) = &mut self.trace
            && !matches!(event, Event::Tick)
        {
            trace((self.now, node.to_string(), &event));
        }
        let mut out = std::mem::take(&mut self.out);
        let clock = state.clock.read(self.now);
        self.ran_before = member.running().is_some();
        self.lease_before_ns = member.lease_left_ns(clock);
        member.handle(clock, event, &mut out);
        self.process_leases[machine].follow(clock, member.resident_until_ns(clock));
        let wake = state.clock.when(member.wake_ns()).max(self.now + 1);
        if wake < self.tick_ns[machine] || self.now >= self.tick_ns[machine] {
            self.tick_ns[machine] = wake;
            self.after(wake - self.now, ScheduledEvent::Tick(machine, node.incarnation));
        }
        let cost = out.work as u64 * self.spec.item_ns;
        self.machines[machine].busy_until_ns = self.now + cost;
        if cost > 0 {
            self.trace(|| node.to_string(), &format!("is busy for {} ms", cost / MS));
        }
        if cost > ClusterSpec::LONGEST_STEP_NS {
            let how = format!("a step of {node} touches {} items and takes {} ms", out.work, cost / MS);
            self.observer.broken(self.now, Property::Steps, how);
        }
        self.take(machine, node, &mut out);
        self.out = out;
    }

    /// Carries out the actions that a member's step has returned.
    fn take(&mut self, machine: usize, node: Node, out: &mut Out<Message<P>>) {
        for note in out.notes.drain(..) {
            self.trace(|| node.to_string(), &note);
            self.observer.note(self.now, node, &note);
            match note {
                Note::Started { view, holds } => {
                    self.check_leases(&view);
                    self.check_start(&view, &holds);
                }
                Note::Left => self.left(machine),
                // Only once the view is installed: a member ignores the messages of sessions that it adopts with a view
                // that has not started.
                Note::Installed { .. } => self.adopt_leases(machine),
                Note::Excluded => {
                    self.start_incarnation(machine).expect("the settings were good before");
                    self.consensus(|consensus, _, _, later, _| consensus.new_incarnation(machine, later));
                    self.leases_begin_again(machine);
                }
                _ => {}
            }
        }
        let clock = self.machines[machine].clock.read(self.now);
        let member = self.members[machine].as_ref();
        let lease_left_ns = member.map_or(0, |member| member.lease_left_ns(clock));
        // A step may begin or end with a view change.
        let promising_ns = lease_left_ns.max(self.lease_before_ns);
        let runs = self.ran_before || member.is_some_and(|member| member.running().is_some());
        for frame in out.frames.drain(..) {
            self.observer.outcome.frames += 1;
            if let Body::Relayed { session, message } = &frame.body {
                self.check_promise(node, *session, message, (promising_ns, runs));
                self.observer.sent(self.now, node, *session, message, lease_left_ns);
            }
            let copies = self.net.send(self.now, machine, frame.to.0 as usize - 1);
            for delay in copies.into_iter().flatten() {
                self.after(delay, ScheduledEvent::Frame(self.consensus.cluster, frame.clone()));
            }
        }
        for (session, message) in out.clients.drain(..) {
            self.trace(|| format!("{node} to {session}"), &message);
            // A relayed message was observed at the member that has the session.
            if self.members[machine].as_ref().is_some_and(|member| member.has_session(session)) {
                self.check_promise(node, session, &message, (promising_ns, runs));
                self.observer.sent(self.now, node, session, &message, lease_left_ns);
            }
            if session.is_resident() {
                self.deliver_to_lease(machine, session, message);
                continue;
            }
            let copies = self.net.send(self.now, machine, self.spec.members + session.client as usize);
            for delay in copies.into_iter().flatten() {
                let delay = self.in_order(session, false, delay);
                let (daemon, message) = (machine, message.clone());
                self.after(delay, ScheduledEvent::ToClient { daemon, session, message });
            }
        }
        for request in out.port.drain(..) {
            if let PortRequest::Write(write) = &request {
                self.trace(|| node.to_string(), write);
            }
            self.consensus(|consensus, _, reach, later, _| consensus.request(machine, request, reach, later));
        }
    }

    pub(super) fn consensus(
        &mut self,
        act: impl FnOnce(
            &mut Consensus,
            u64,
            &dyn Reach,
            &mut Vec<(u64, ConsensusEvent)>,
            &mut Vec<(usize, PortEvent)>,
        ),
    ) {
        let (mut later, mut notifications) = (Vec::new(), Vec::new());
        let reach = Machines(&self.machines, &self.net, self.now);
        act(&mut self.consensus, self.now, &reach, &mut later, &mut notifications);
        if let Some(how) = self.consensus.wrong_write.take() {
            self.observer.broken_inside(self.now, Property::Records, how);
        }
        for (delay, what) in later {
            self.after(delay, ScheduledEvent::Consensus(self.consensus.cluster, what));
        }
        for (machine, event) in notifications {
            if let Some(incarnation) = self.incarnation(machine) {
                self.after(0, ScheduledEvent::Port(machine, incarnation, event));
            }
        }
    }

    /// Checks that no member outside of the newest view has a lease when that view starts.
    fn check_leases(&mut self, view: &View) {
        // A coordinator that was paused may start a view that newer views have replaced. That is harmless: no
        // member installs it, and none of its members has a lease in it.
        if self.consensus.decided().last().is_none_or(|newest| newest.epoch != view.epoch) {
            return;
        }
        for (machine, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let left = member.lease_left_ns(self.machines[machine].clock.read(self.now));
            if left > 0 && !view.has(member.node()) {
                let how = format!(
                    "epoch {} starts while {} has a lease for {left} ns more",
                    view.epoch,
                    member.node()
                );
                return self.observer.broken(self.now, Property::LeasesOver, how);
            }
        }
    }

    /// Reports a violation of [`Property::Service`] if a client has waited for too long since the faults ended.
    fn check_service(&mut self) {
        if self.observer.outcome.broken.is_some() {
            return;
        }
        let latest = self.spec.end_ns() - self.spec.longest_wait_ns();
        let waits = |client: &Client| {
            client
                .request
                .as_ref()
                .is_some_and(|request| request.inside.is_none() && request.since_ns <= latest)
        };
        let waiting = self.clients.iter_mut().find(|client| waits(client)).map(|client| {
            let request = client.request.clone();
            let lock =
                request.as_ref().map(|request| request.lock_request.lock.to_string()).unwrap_or_default();
            let wire = request.and_then(|request| client.wire(request.session));
            let (session, connection) =
                wire.map(|wire| (wire.link.session().id().to_string(), wire.link.connection())).unzip();
            format!("{} still waits for {lock}: {connection:?}", session.unwrap_or_default())
        });
        let waiting =
            waiting.or_else(|| self.long_holders.iter().find_map(|long_holder| long_holder.lacks(latest)));
        let served = self.observer.outcome.entries > 0;
        let waiting = waiting.or_else(|| self.waiting_tenant(latest));
        if let Some(how) = waiting.or_else(|| (!served).then(|| "no client was ever served".into())) {
            self.observer.broken(self.now, Property::Service, how);
        }
    }
}
