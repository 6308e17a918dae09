//! The event loop of a cluster.

use super::clients::{Client, Step};
use super::consensus::{Consensus, Later, Reach};
use super::faults::{self, Fault, Trouble};
use super::hoards::Hoard;
use super::machine::{Clock, Machine};
use super::net::Net;
use super::spec::{ClusterSpec, MS};
use super::watch::{Inside, Outcome, Promise, Watch};
use lockkeeper_core::{MutualExclusion, Protocol};
use lockkeeper_lab::queue::Queue;
use lockkeeper_lab::rng::{Purpose, Rng};
use lockkeeper_lab::time::Time;
use lockkeeper_member::{
    Event, Frame, Member, MemberId, Node, Note, Out, PortEvent, Progress, SessionId, ToClient, ToMember, View,
};

pub(super) type Message<P> = <P as Protocol>::Message;

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum What<M> {
    Frame(Frame<M>),
    ToMember { member: usize, session: SessionId, said: ToMember },
    ToClient { session: SessionId, said: ToClient },
    Port(usize, u64, PortEvent),
    Tick(usize, u64),
    Look(usize),
    Hoard(usize),
    Consensus(Later),
    Trouble(usize),
    Back { machine: usize, wipe: bool },
    Mend(Vec<(usize, usize)>),
}

/// One line of a trace: when, who, what.
pub type Line<'a> = (u64, String, &'a dyn std::fmt::Debug);

/// Takes the lines of a trace.
pub type Trace<'a> = &'a mut dyn FnMut(Line<'_>);

/// A cluster, its clients, and everything that can happen to them.
pub struct Sim<'a, P: MutualExclusion> {
    pub(super) spec: &'a ClusterSpec,
    pub(super) now: u64,
    queue: Queue<What<Message<P>>>,
    pub(super) machines: Vec<Machine>,
    pub(super) members: Vec<Option<Member<P>>>,
    lives: u64,
    /// When each member's next tick is planned.
    tick_ns: Vec<u64>,
    pub(super) clients: Vec<Client>,
    pub(super) hoards: Vec<Hoard>,
    pub(super) net: Net,
    pub(super) consensus: Consensus,
    troubles: Vec<(u64, Trouble)>,
    /// Machines to which something has happened lately: until then nothing is promised to their clients.
    pub(super) hit_until_ns: Vec<u64>,
    pub(super) watch: Watch,
    out: Out<Message<P>>,
    trace: Option<Trace<'a>>,
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
    /// The start of a run; refuses what makes no sense, in a sentence.
    pub fn new(spec: &'a ClusterSpec, seed: u64, trace: Option<Trace<'a>>) -> Result<Self, String> {
        let mut rng = Rng::new(seed, Purpose::Faults);
        let machines = spec.members + spec.clients + spec.hoards;
        let drifts = spec.faults.contains(&Fault::Drift);
        let clock =
            |rng: &mut Rng| if drifts { Clock::draw(ClusterSpec::DRIFT_PPM, rng) } else { Clock::right() };
        let machines: Vec<Machine> = (0..machines).map(|_| Machine::new(clock(&mut rng))).collect();
        let mut workload = Rng::new(seed, Purpose::Workload);
        let client = |number: usize| {
            let rng = Rng::new(workload.below(usize::MAX) as u64, Purpose::Workload);
            Client::new(number as u64, spec, rng, spec.flaw)
        };
        let mut consensus = Consensus::new(spec.members, Rng::new(seed, Purpose::Consensus));
        consensus.late = !spec.spares_survivors();
        consensus.forgets = spec.forgets_epochs;
        let mut sim = Self {
            spec,
            now: 0,
            queue: Queue::default(),
            members: vec![None; spec.members],
            lives: 0,
            tick_ns: vec![u64::MAX; spec.members],
            clients: (0..spec.clients).map(client).collect(),
            hoards: (0..spec.hoards).map(|number| Hoard::new(number, spec)).collect(),
            net: Net::new(Rng::new(seed, Purpose::Network), spec.faults.clone(), spec.chaos_ns),
            consensus,
            troubles: faults::draw(spec, &mut rng),
            hit_until_ns: vec![0; machines.len()],
            machines,
            watch: Watch::default(),
            out: Out::default(),
            trace,
        };
        sim.watch.outcome.seed = seed;
        sim.begin()?;
        Ok(sim)
    }

    fn begin(&mut self) -> Result<(), String> {
        for machine in 0..self.spec.members {
            self.begin_life(machine)?;
        }
        for client in 0..self.clients.len() {
            self.after(client as u64 * MS, What::Look(client));
        }
        for hoard in 0..self.hoards.len() {
            self.after(1_000 * MS, What::Hoard(hoard));
        }
        self.after(0, What::Consensus(Later::Look));
        for trouble in 0..self.troubles.len() {
            self.after(self.troubles[trouble].0, What::Trouble(trouble));
        }
        Ok(())
    }

    pub(super) fn after(&mut self, delay: u64, what: What<Message<P>>) {
        self.queue.push(Time::from_ticks(self.now + delay), what);
    }

    pub(super) fn tell(&mut self, who: impl FnOnce() -> String, what: &dyn std::fmt::Debug) {
        if let Some(trace) = &mut self.trace {
            trace((self.now, who(), what));
        }
    }

    /// A new life of a member: it knows nothing but its settings.
    pub(super) fn begin_life(&mut self, machine: usize) -> Result<(), String> {
        self.lives += 1;
        let node = Node { id: MemberId(machine as u32 + 1), incarnation: self.lives };
        let clock = self.machines[machine].clock.read(self.now);
        self.members[machine] = Some(Member::new(node, self.spec.config(), clock)?);
        self.tick_ns[machine] = self.now;
        self.after(0, What::Tick(machine, self.lives));
        self.tell(|| node.to_string(), &"begins");
        Ok(())
    }

    /// Runs to the end, or to the first broken promise.
    pub fn run(mut self) -> Outcome {
        while let Some((at, what)) = self.queue.pop() {
            if at.ticks() >= self.spec.end_ns() || self.watch.outcome.broken.is_some() {
                break;
            }
            self.now = at.ticks();
            self.happens(what);
        }
        self.check_service();
        self.watch.outcome
    }

    fn happens(&mut self, what: What<Message<P>>) {
        match what {
            What::Frame(frame) => {
                let machine = frame.to.0 as usize - 1;
                self.at(machine, What::Frame, frame, Event::Frame);
            }
            What::ToMember { member, session, said } => {
                let again = |(session, said)| What::ToMember { member, session, said };
                self.at(member, again, (session, said), |(session, said)| Event::Client(session, said));
            }
            What::ToClient { session, said } => self.client_hears(session, said),
            What::Port(machine, life, event) => {
                if self.life(machine) == Some(life) {
                    self.at(machine, |event| What::Port(machine, life, event), event, Event::Port);
                }
            }
            What::Tick(machine, life) => {
                if self.life(machine) == Some(life) && self.now >= self.tick_ns[machine] {
                    self.at(machine, |()| What::Tick(machine, life), (), |()| Event::Tick);
                }
            }
            What::Look(client) => self.look(client),
            What::Hoard(hoard) => self.look_at_hoard(hoard),
            What::Consensus(later) => self.consensus(|consensus, now, reach, later_on, told| {
                consensus.happens(now, later, reach, later_on, told);
            }),
            What::Trouble(number) => self.trouble(self.troubles[number].1.clone()),
            What::Back { machine, wipe } => self.back(machine, wipe),
            What::Mend(ways) => ways.into_iter().for_each(|(from, to)| self.mend(from, to)),
        }
    }

    fn life(&self, machine: usize) -> Option<u64> {
        self.members[machine].as_ref().map(|member| member.node().incarnation)
    }

    /// An event at a member's machine: now, later if it is paused, never if it is down.
    pub(super) fn at<T>(
        &mut self,
        machine: usize,
        again: impl FnOnce(T) -> What<Message<P>>,
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
        let Some(member) = &mut self.members[machine] else { return };
        let event = event(what);
        let node = member.node();
        if let Some(trace) = &mut self.trace
            && !matches!(event, Event::Tick)
        {
            trace((self.now, node.to_string(), &event));
        }
        let mut out = std::mem::take(&mut self.out);
        member.handle(state.clock.read(self.now), event, &mut out);
        let wake = state.clock.when(member.wake_ns()).max(self.now + 1);
        if wake < self.tick_ns[machine] || self.now >= self.tick_ns[machine] {
            self.tick_ns[machine] = wake;
            self.after(wake - self.now, What::Tick(machine, node.incarnation));
        }
        let cost = out.work as u64 * self.spec.item_ns;
        self.machines[machine].busy_until_ns = self.now + cost;
        if cost > 0 {
            self.tell(|| node.to_string(), &format!("is busy for {} ms", cost / MS));
        }
        if cost > ClusterSpec::LONGEST_STEP_NS {
            let how = format!("a step of {node} touches {} items and takes {} ms", out.work, cost / MS);
            self.watch.broken(self.now, Promise::Steps, how);
        }
        self.take(machine, node, &mut out);
        self.out = out;
    }

    /// Does all that a member wants done.
    fn take(&mut self, machine: usize, node: Node, out: &mut Out<Message<P>>) {
        for note in out.notes.drain(..) {
            self.tell(|| node.to_string(), &note);
            self.watch.note(self.now, node, &note);
            match note {
                Note::Started { view, .. } => self.check_leases(&view),
                Note::Left => self.left(machine),
                Note::Excluded => {
                    self.begin_life(machine).expect("the settings were good before");
                    self.consensus(|consensus, _, _, later, _| consensus.new_life(machine, later));
                }
                _ => {}
            }
        }
        for frame in out.frames.drain(..) {
            self.watch.outcome.frames += 1;
            let copies = self.net.send(self.now, machine, frame.to.0 as usize - 1);
            for delay in copies.into_iter().flatten() {
                self.after(delay, What::Frame(frame.clone()));
            }
        }
        let clock = self.machines[machine].clock.read(self.now);
        let lease_left_ns = self.members[machine].as_ref().map_or(0, |member| member.lease_left_ns(clock));
        for (session, said) in out.clients.drain(..) {
            self.tell(|| format!("{node} to {session}"), &said);
            self.watch.says(self.now, node, session, &said, lease_left_ns);
            let copies = self.net.send(self.now, machine, self.spec.members + session.client as usize);
            for delay in copies.into_iter().flatten() {
                self.after(delay, What::ToClient { session, said: said.clone() });
            }
        }
        for request in out.port.drain(..) {
            self.consensus(|consensus, _, reach, later, _| consensus.request(machine, request, reach, later));
        }
    }

    pub(super) fn consensus(
        &mut self,
        act: impl FnOnce(&mut Consensus, u64, &dyn Reach, &mut Vec<(u64, Later)>, &mut Vec<(usize, PortEvent)>),
    ) {
        let (mut later, mut told) = (Vec::new(), Vec::new());
        let reach = Machines(&self.machines, &self.net, self.now);
        act(&mut self.consensus, self.now, &reach, &mut later, &mut told);
        for (delay, what) in later {
            self.after(delay, What::Consensus(what));
        }
        for (machine, event) in told {
            if let Some(life) = self.life(machine) {
                self.after(0, What::Port(machine, life, event));
            }
        }
    }

    fn client_hears(&mut self, session: SessionId, said: ToClient) {
        let index = session.client as usize;
        if index >= self.clients.len() {
            return self.hoard_hears(index - self.clients.len(), session, &said);
        }
        let state = self.machines[self.spec.members + index];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, What::ToClient { session, said });
        }
        let client = &mut self.clients[index];
        if client.session.id() == session {
            client.heard_ns = self.now;
            let answer = client.session.hear(state.clock.read(self.now), said);
            if let Some(said) = answer {
                self.client_sends(index, said);
            }
            self.client_steps(index);
        }
    }

    fn look(&mut self, index: usize) {
        let state = self.machines[self.spec.members + index];
        if !state.up {
            return;
        }
        if self.now < state.paused_until_ns {
            return self.after(state.paused_until_ns - self.now, What::Look(index));
        }
        if self.now >= self.clients[index].wake_ns {
            self.client_steps(index);
            self.client_says(index);
            let next = self.clients[index].next_look(self.now).max(self.now + 1);
            self.clients[index].wake_ns = next;
            self.after(next - self.now, What::Look(index));
        }
    }

    fn client_steps(&mut self, index: usize) {
        let clock = self.machines[self.spec.members + index].clock.read(self.now);
        loop {
            let client = &mut self.clients[index];
            let step = client.step(self.now, clock, self.spec);
            match step {
                Step::Waits => return,
                Step::Enters => self.enters(index),
                Step::Leaves => self.watch.leaves(index),
                Step::Speaks => {}
                Step::LosesSession { held } => {
                    self.loses_session(index, held);
                    return;
                }
            }
            let client = self.clients[index].session.id();
            self.tell(|| client.to_string(), &step);
            self.client_says(index);
            let next = self.clients[index].next_look(self.now).max(self.now + 1);
            if next < self.clients[index].wake_ns {
                self.clients[index].wake_ns = next;
                self.after(next - self.now, What::Look(index));
            }
        }
    }

    fn enters(&mut self, index: usize) {
        let client = &self.clients[index];
        let Some(errand) = &client.errand else { return };
        let Some(Progress::Held(fence)) = client.session.progress(errand.number) else { return };
        let (lock, fence) = (errand.wish.lock.clone(), *fence);
        let who = Inside {
            client: index,
            session: client.session.id(),
            number: errand.number,
            claim: errand.wish.claim,
        };
        let (clients, machines, now, first) = (&self.clients, &self.machines, self.now, self.spec.members);
        self.watch.enters(now, &lock, who, fence, |other| {
            let (client, machine) = (&clients[other.client], &machines[first + other.client]);
            let same = client.session.id() == other.session;
            machine.up && same && client.session.may_use(machine.clock.read(now), other.number)
        });
    }

    fn loses_session(&mut self, index: usize, held: bool) {
        let client = &self.clients[index];
        let (session, member, machine) = (client.session.id(), client.member, self.spec.members + index);
        self.tell(|| session.to_string(), &"loses its session");
        self.watch.leaves(index);
        if held {
            self.watch.outcome.lost += 1;
            let spared = self.now >= self.hit_until_ns[member] && self.now >= self.hit_until_ns[machine];
            if self.spec.spares_survivors() && spared {
                let how =
                    format!("{session} loses what it holds at M{}, to which nothing happened", member + 1);
                self.watch.broken(self.now, Promise::Survivors, how);
            }
        }
        self.clients[index].new_session(self.now, self.spec.members);
        self.client_says(index);
    }

    fn client_says(&mut self, index: usize) {
        let clock = self.machines[self.spec.members + index].clock.read(self.now);
        for said in self.clients[index].session.say(clock) {
            self.client_sends(index, said);
        }
    }

    fn client_sends(&mut self, index: usize, said: ToMember) {
        let (session, member) = (self.clients[index].session.id(), self.clients[index].member);
        let copies = self.net.send(self.now, self.spec.members + index, member);
        for delay in copies.into_iter().flatten() {
            self.after(delay, What::ToMember { member, session, said: said.clone() });
        }
    }

    /// When the newest view starts, no member outside of it may have a lease.
    fn check_leases(&mut self, view: &View) {
        // A coordinator that slept may start a view that others have long followed: nobody joins it, and nobody in it has a lease.
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
                return self.watch.broken(self.now, Promise::LeasesOver, how);
            }
        }
    }

    /// Everybody who has waited for too long since the faults stopped is a broken promise.
    fn check_service(&mut self) {
        if self.watch.outcome.broken.is_some() {
            return;
        }
        let latest = self.spec.end_ns() - ClusterSpec::PATIENCE_NS;
        let waits = |client: &&Client| {
            client.errand.as_ref().is_some_and(|errand| errand.inside.is_none() && errand.since_ns <= latest)
        };
        let waiting = self.clients.iter().find(waits).map(|client| {
            let lock = client.errand.as_ref().map(|errand| errand.wish.lock.to_string()).unwrap_or_default();
            format!("{} at M{} still waits for {lock}", client.session.id(), client.member + 1)
        });
        let waiting = waiting.or_else(|| self.hoards.iter().find_map(|hoard| hoard.lacks(latest)));
        let served = self.watch.outcome.entries > 0;
        if let Some(how) = waiting.or_else(|| (!served).then(|| "nobody was ever served".into())) {
            self.watch.broken(self.now, Promise::Service, how);
        }
    }
}
