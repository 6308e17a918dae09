//! The simulator: one run in virtual time.

use crate::detector::Detector;
use crate::metrics::Measures;
use crate::network::Network;
use crate::observer::{Observer, Piggyback, Window};
use crate::property::{Names, Property, Violation};
use crate::queue::Queue;
use crate::spec::{Action, LoadSpec, Scripted, Spec, Which};
use crate::time::Time;
use crate::trace::{Arrival, Sent, Stamp, Tracer, What};
use crate::workload::Workload;
use crate::world::{Envelope, Step, World};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{MutualExclusion, Out, Phase, Protocol, Rules, Setup, SiteId, Vocabulary};
use slab::Slab;
use smallvec::SmallVec;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What was measured.
    pub measures: Measures,
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// Which of the protocol's rules fired, and how often.
    pub rules: Vec<u64>,
    /// How many messages of each kind were delivered in the whole run.
    pub delivered: Vec<u64>,
    /// How many events there were.
    pub events: u64,
    /// How long it took, in virtual time.
    pub end: Time,
    /// Whether the caller asked it to stop before its end.
    pub interrupted: bool,
}

/// A message under way, with all that travels along.
struct Flight<M> {
    envelope: Envelope<M>,
    sent: Time,
    piggyback: Piggyback,
    stamp: Option<Stamp>,
    /// Arrived, and waiting for the site to get round to it.
    in_service: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize),
    Ask {
        site: SiteId,
        life: u32,
    },
    /// A request from outside, which queues where the site is busy.
    Arrival {
        site: SiteId,
    },
    Exit {
        site: SiteId,
        life: u32,
    },
    Timer {
        site: SiteId,
        life: u32,
        generation: u64,
    },
    Script(usize),
    Suspect {
        site: SiteId,
        suspect: SiteId,
    },
    Heartbeat {
        site: SiteId,
    },
    HeartbeatArrives {
        from: SiteId,
        to: SiteId,
    },
    WrongSuspicion,
}

impl Event {
    /// Whether it belongs to the background that goes on even when nothing is left to happen.
    fn is_background(self) -> bool {
        matches!(self, Self::Heartbeat { .. } | Self::HeartbeatArrives { .. } | Self::WrongSuspicion)
    }
}

/// How often the caller is told of progress, in events.
const PROGRESS_EVERY: u64 = 1 << 16;

/// One run.
pub struct Sim<'a, P: MutualExclusion> {
    spec: &'a Spec,
    script: Vec<Scripted>,
    world: World<P>,
    network: Network,
    workload: Workload,
    observer: Observer,
    detector: Detector,
    tracer: Option<Tracer<'a>>,
    names: Names,
    queue: Queue<Event>,
    flights: Slab<Flight<P::Message>>,
    /// Messages that only the script delivers, oldest first.
    held: Vec<usize>,
    /// What the script wants done to messages not sent yet.
    wishes: Vec<(Which, Option<Time>)>,
    /// Where sites are paused, what waits for them.
    paused: Vec<Option<Vec<Event>>>,
    busy_until: Vec<Time>,
    /// How often each site has started; what was planned for an earlier life is void.
    lives: Vec<u32>,
    timers: Vec<Vec<(P::Timer, u64)>>,
    timer_generation: u64,
    backlog: Vec<u64>,
    now: Time,
    events: u64,
    /// Events in the queue that are not background.
    foreground: u64,
    last_foreground: Time,
    asks_planned: u64,
    arrivals_planned: u64,
    /// At high load, the very first site stays inside until everybody's first request is known: otherwise a site that
    /// can enter without a message would enter again and again before anything has arrived anywhere.
    first_inside: Option<SiteId>,
    script_left: usize,
    events_since_entry: u64,
    tokens_under_way: i64,
    delivered: Vec<u64>,
    rules: Vec<u64>,
    stop: bool,
}

impl<'a, P: MutualExclusion> Sim<'a, P> {
    /// A run at its start.
    pub fn new(spec: &'a Spec, options: P::Options, seed: u64, tracer: Option<Tracer<'a>>) -> Self {
        let setup = Setup { holder: spec.holder, ..Setup::new(spec.sites, options) };
        let mut first_sends = Vec::new();
        let world: World<P> = World::new(setup, |world, site| {
            first_sends.extend(world.out.sends.drain(..).map(|(to, message)| (site, to, message)));
        });
        let processes = world.processes();
        let names = Names { sites: spec.sites };
        let window = Window {
            warmup: spec.warmup(),
            entries: spec.entries,
            whole: !matches!(spec.load, LoadSpec::High | LoadSpec::Poisson(_)),
            patience: Time::from_ticks(
                spec.network.delay.typical().ticks().saturating_mul(50 * (spec.sites as u64 + 1)),
            ),
        };
        let words = P::Message::WORDS.len();
        let script = spec.whole_script();
        let mut sim = Self {
            network: Network::new(&spec.network, seed),
            script_left: script.len(),
            script,
            workload: Workload::new(spec.load, spec.sites, seed),
            observer: Observer::new(names, processes, words, window, spec.holder),
            detector: Detector::new(spec.detector, processes, seed),
            tracer,
            names,
            queue: Queue::default(),
            flights: Slab::new(),
            held: Vec::new(),
            wishes: Vec::new(),
            paused: vec![None; processes],
            busy_until: vec![Time::ZERO; processes],
            lives: vec![0; processes],
            timers: vec![Vec::new(); processes],
            timer_generation: 0,
            backlog: vec![0; processes],
            now: Time::ZERO,
            events: 0,
            foreground: 0,
            last_foreground: Time::ZERO,
            asks_planned: 0,
            arrivals_planned: 0,
            first_inside: None,
            events_since_entry: 0,
            tokens_under_way: 0,
            delivered: vec![0; words],
            rules: vec![0; P::Rule::ALL.len()],
            stop: false,
            world,
            spec,
        };
        for (from, to, message) in first_sends {
            if let Some(tracer) = &mut sim.tracer {
                tracer.local(Time::ZERO, from, What::Start, &[], &[Sent { to, message: &message }]);
            }
            sim.send(from, to, message, None);
        }
        sim.plan_start();
        sim
    }

    fn plan_start(&mut self) {
        for index in 0..self.script.len() {
            self.plan(self.script[index].at, Event::Script(index));
        }
        if let Some(holder) = self.spec.holder {
            self.plan_exit(holder);
        }
        match self.spec.load {
            LoadSpec::High | LoadSpec::Burst => self.everybody_asks(),
            LoadSpec::Poisson(_) => {
                for site in SiteId::all(self.spec.sites) {
                    self.plan_arrival(site);
                }
            }
            LoadSpec::Low | LoadSpec::Pairs | LoadSpec::Script => {}
        }
        if let Some(first) = self.detector.first_heartbeat() {
            for site in SiteId::all(self.world.processes()) {
                self.plan(first, Event::Heartbeat { site });
            }
        }
        if let Some(first) = self.detector.until_wrong_suspicion() {
            self.plan(first, Event::WrongSuspicion);
        }
    }

    /// Runs to the end. `go_on` is told the number of entries now and then and may end the run.
    pub fn run(mut self, mut go_on: impl FnMut(u64) -> bool) -> (Outcome, std::io::Result<()>) {
        let mut interrupted = false;
        self.when_quiet();
        while !self.stop && !self.is_over() {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            if !event.is_background() {
                self.foreground -= 1;
            }
            if !event.is_background() && !matches!(event, Event::Arrival { .. }) {
                self.last_foreground = at;
            }
            self.handle(event);
            self.watch_for_stalls();
            self.when_quiet();
            if self.events.is_multiple_of(PROGRESS_EVERY) && !go_on(self.observer.entries()) {
                interrupted = true;
                break;
            }
        }
        if !interrupted && !self.stop {
            self.check_for_deadlock();
        }
        let traced = self.tracer.take().map_or(Ok(()), |tracer| tracer.finish(self.now));
        let (measures, violations) = self.observer.finish(self.now);
        let outcome = Outcome {
            measures,
            violations,
            rules: self.rules,
            delivered: self.delivered,
            events: self.events,
            end: self.now,
            interrupted,
        };
        (outcome, traced)
    }

    /// Whether nothing more is asked for and everybody has been served, or nothing can happen any more.
    fn is_over(&self) -> bool {
        if self.load_is_done() && self.asks_planned == 0 && self.observer.is_idle() && self.is_quiet() {
            return true;
        }
        // Suspicions may yet come from silence, but not for ever.
        self.nothing_can_happen() && self.now >= self.last_foreground + self.detector.patience()
    }

    /// Whether only the background goes on, and requests that arrive where one is waiting already.
    fn nothing_can_happen(&self) -> bool {
        let nobody_can_ask = || {
            SiteId::all(self.spec.sites)
                .all(|site| !self.world.is_up(site) || self.world.phase(site) != Phase::Idle)
        };
        self.foreground == self.arrivals_planned && (self.arrivals_planned == 0 || nobody_can_ask())
    }

    fn load_is_done(&self) -> bool {
        match self.spec.load {
            LoadSpec::Script => self.script_left == 0,
            _ => self.observer.entries() >= self.spec.warmup() + self.spec.entries,
        }
    }

    /// Whether no message is under way; a token that never rests does not count.
    fn is_quiet(&self) -> bool {
        P::ABOUT.perpetual || self.flights.is_empty()
    }

    // ---------------------------------------------------------------- planning

    fn plan(&mut self, at: Time, event: Event) {
        self.foreground += u64::from(!event.is_background());
        self.queue.push(at, event);
    }

    fn plan_ask(&mut self, at: Time, site: SiteId) {
        self.asks_planned += 1;
        self.plan(at, Event::Ask { site, life: self.lives[site.index()] });
    }

    fn plan_exit(&mut self, site: SiteId) {
        if let Some(cs) = &self.spec.cs {
            let at = self.now + cs.draw(0, 0, self.workload.rng());
            self.plan(at, Event::Exit { site, life: self.lives[site.index()] });
        }
    }

    fn plan_arrival(&mut self, site: SiteId) {
        let at = self.now + self.workload.until_next_arrival();
        self.arrivals_planned += 1;
        self.plan(at, Event::Arrival { site });
    }

    fn everybody_asks(&mut self) {
        for site in SiteId::all(self.spec.sites).filter(|&site| self.world.is_up(site)).collect::<Vec<_>>() {
            if self.spec.holder != Some(site) || self.events > 0 {
                self.plan_ask(self.now, site);
            }
        }
    }

    /// Does what waits for the network to be quiet: at high load, the first exit; at low load and between bursts, the
    /// next request.
    fn when_quiet(&mut self) {
        if self.first_inside.is_some() && self.flights.is_empty() && self.asks_planned == 0 {
            let first = self.first_inside.take();
            first.into_iter().for_each(|site| self.plan_exit(site));
        }
        self.ask_at_low_load();
    }

    fn ask_at_low_load(&mut self) {
        let waits_for_quiet = matches!(self.spec.load, LoadSpec::Low | LoadSpec::Pairs | LoadSpec::Burst);
        if !waits_for_quiet || self.asks_planned > 0 || !self.observer.is_idle() || !self.is_quiet() {
            return;
        }
        self.observer.quiet(self.now);
        if self.load_is_done() {
            return;
        }
        if self.spec.load == LoadSpec::Burst {
            return self.everybody_asks();
        }
        let world = &self.world;
        let Some(site) = self.workload.next_site(|site| world.is_up(site)) else { return };
        let pause = if P::ABOUT.perpetual {
            self.workload.pause(self.spec.network.delay.typical())
        } else {
            Time::ZERO
        };
        self.plan_ask(self.now + pause, site);
    }

    // ---------------------------------------------------------------- events

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(place) => self.arrive(place),
            Event::Ask { site, life } => {
                if self.is_paused(site, event) {
                    return;
                }
                self.asks_planned -= 1;
                if life == self.lives[site.index()] && self.world.is_up(site) {
                    self.ask(site);
                }
            }
            Event::Arrival { site } => {
                self.arrivals_planned -= 1;
                if !self.load_is_done() {
                    self.plan_arrival(site);
                    if self.world.is_up(site) {
                        self.backlog[site.index()] += 1;
                        self.observer.backlog(self.backlog[site.index()]);
                        self.serve_backlog(site);
                    }
                }
            }
            Event::Exit { site, life } => {
                if life == self.lives[site.index()] && !self.is_paused(site, event) {
                    self.exit(site);
                }
            }
            Event::Timer { site, life, generation } => {
                if life == self.lives[site.index()] && !self.is_paused(site, event) {
                    self.timer(site, generation);
                }
            }
            Event::Script(index) => {
                self.script_left -= 1;
                let action = self.script[index].action.clone();
                self.act(&action);
            }
            Event::Suspect { site, suspect } => {
                if self.world.is_up(site) && !self.is_paused(site, event) {
                    self.suspect(site, suspect);
                }
            }
            Event::Heartbeat { site } => self.heartbeat(site),
            Event::HeartbeatArrives { from, to } => {
                if self.world.is_up(to) && !self.network.is_cut(from, to, self.now) {
                    self.detector.heard(to, from, self.now);
                }
            }
            Event::WrongSuspicion => {
                let (site, suspect) = self.detector.wrong_suspicion();
                if self.world.is_up(site) {
                    self.suspect(site, suspect);
                }
                if let Some(pause) = self.detector.until_wrong_suspicion() {
                    self.plan(self.now + pause, Event::WrongSuspicion);
                }
            }
        }
    }

    /// Whether the site is paused; the event is then kept for when it goes on.
    fn is_paused(&mut self, site: SiteId, event: Event) -> bool {
        match &mut self.paused[site.index()] {
            Some(kept) => {
                kept.push(event);
                true
            }
            None => false,
        }
    }

    fn ask(&mut self, site: SiteId) {
        if self.world.phase(site) != Phase::Idle {
            self.backlog[site.index()] += 1;
            return;
        }
        self.observer.request(site, self.now);
        let step = self.world.request(site);
        self.observer.stamped(site, self.world.protocol(site).timestamp());
        self.trace(site, What::Request);
        self.after_step(site, step);
    }

    /// Takes up what waits in the site's own queue.
    fn serve_backlog(&mut self, site: SiteId) {
        let waits = &mut self.backlog[site.index()];
        if *waits > 0 && self.world.phase(site) == Phase::Idle && self.paused[site.index()].is_none() {
            *waits -= 1;
            self.ask(site);
        }
    }

    fn exit(&mut self, site: SiteId) {
        self.observer.exit(site, self.now);
        let step = self.world.release(site);
        self.trace(site, What::Exit);
        self.after_step(site, step);
        if self.stop || self.load_is_done() {
            return;
        }
        match self.spec.load {
            LoadSpec::High => self.plan_ask(self.now, site),
            LoadSpec::Poisson(_) | LoadSpec::Script => self.serve_backlog(site),
            LoadSpec::Low | LoadSpec::Pairs | LoadSpec::Burst => {}
        }
    }

    fn arrive(&mut self, place: usize) {
        let flight = &mut self.flights[place];
        let (from, to) = (flight.envelope.from, flight.envelope.to);
        if !self.world.is_up(to) || self.network.is_cut(from, to, self.now) {
            return self.lose(place);
        }
        let service = self.network.service(to);
        if service > Time::ZERO && !flight.in_service {
            flight.in_service = true;
            let done = self.busy_until[to.index()].max(self.now) + service;
            self.busy_until[to.index()] = done;
            return self.plan(done, Event::Arrive(place));
        }
        if !self.is_paused(to, Event::Arrive(place)) {
            self.deliver(place);
        }
    }

    fn deliver(&mut self, place: usize) {
        let Flight { envelope, sent, piggyback, stamp, .. } = self.flights.remove(place);
        let (from, to, word) = (envelope.from, envelope.to, envelope.message.word());
        self.tokens_under_way -= i64::from(P::tokens_in(&envelope.message));
        self.delivered[word] += 1;
        self.observer.receive(to, &piggyback);
        let was_idle = self.observer.is_idle();
        let told = self.tracer.is_some().then(|| envelope.message.to_string());
        let step = self.world.deliver(envelope);
        if let (Some(tracer), Some(stamp), Some(told)) = (&mut self.tracer, &stamp, &told) {
            let (why, sends) = step_in_words(&self.world.out);
            tracer.receive(self.now, to, Arrival { from, stamp, message: told, sent }, &why, &sends);
        }
        if was_idle {
            self.observer.sent_while_idle(self.world.out.sends.len(), self.now);
        }
        self.after_step(to, step);
    }

    fn timer(&mut self, site: SiteId, generation: u64) {
        let armed = &mut self.timers[site.index()];
        let Some(place) = armed.iter().position(|(_, known)| *known == generation) else { return };
        let (timer, _) = armed.swap_remove(place);
        let was_idle = self.observer.is_idle();
        let step = self.world.timer(site, timer);
        self.trace(site, What::Timer);
        if was_idle {
            self.observer.sent_while_idle(self.world.out.sends.len(), self.now);
        }
        self.after_step(site, step);
    }

    fn suspect(&mut self, site: SiteId, suspect: SiteId) {
        let step = self.world.suspect(site, suspect);
        self.trace(site, What::Suspect { suspect });
        self.after_step(site, step);
    }

    fn heartbeat(&mut self, site: SiteId) {
        let Some(pause) = self.detector.heartbeat_pause() else { return };
        self.plan(self.now + pause, Event::Heartbeat { site });
        if !self.world.is_up(site) || self.paused[site.index()].is_some() {
            return;
        }
        for to in SiteId::all(self.world.processes()).filter(|&to| to != site) {
            let mut arrivals: SmallVec<[Time; 2]> = SmallVec::new();
            self.network.send(self.now, site, to, |at| arrivals.push(at));
            for at in arrivals {
                self.plan(at, Event::HeartbeatArrives { from: site, to });
            }
        }
        for suspect in self.detector.newly_silent(site, self.now) {
            self.suspect(site, suspect);
        }
    }

    // ---------------------------------------------------------------- what a step leaves behind

    fn after_step(&mut self, site: SiteId, step: Step) {
        for rule in &self.world.out.rules {
            self.rules[rule.index()] += 1;
        }
        if step.uninvited {
            let what = format!("{} was let in without having asked", self.names.of(site));
            self.violate(Property::Invariant, vec![site], what);
            self.stop = true;
            return;
        }
        if let Some(fence) = step.entered {
            self.events_since_entry = 0;
            self.observer.enter(site, fence, self.now);
            self.trace_bare(site, What::Enter { fence });
            if self.spec.load == LoadSpec::High && self.observer.entries() == 1 && !P::ABOUT.perpetual {
                self.first_inside = Some(site);
            } else {
                self.plan_exit(site);
            }
            self.stop |= self.observer.violations().iter().any(|v| v.property == Property::MutualExclusion);
        }
        if let Err(what) = self.world.protocol(site).invariant() {
            let what = format!("{}: {what}", self.names.of(site));
            self.violate(Property::Invariant, vec![site], what);
        }
        let mut sends = std::mem::take(&mut self.world.out.sends);
        let mut stamp = None;
        for (to, message) in sends.drain(..) {
            stamp = self.send(site, to, message, stamp);
        }
        self.world.out.sends = sends;
        self.change_timers(site);
        if self.world.tokens() + self.tokens_under_way > 1 {
            self.violate(Property::Invariant, vec![site], "there is more than one token".into());
        }
    }

    /// Sends a message on its way. `previous` is the stamp of the one before it in the same step.
    fn send(
        &mut self,
        from: SiteId,
        to: SiteId,
        message: P::Message,
        previous: Option<Stamp>,
    ) -> Option<Stamp> {
        self.observer.send::<P>(from, &message);
        let now = self.now;
        let stamp = self.tracer.as_mut().map(|tracer| tracer.stamp(from, previous));
        let tokens = i64::from(P::tokens_in(&message));
        let piggyback = self.observer.piggyback(from);
        let envelope = Envelope { from, to, fence: self.world.fence(from), message };
        let flight = Flight { envelope, sent: now, piggyback, stamp: stamp.clone(), in_service: false };
        self.launch(flight, tokens);
        stamp
    }

    fn launch(&mut self, flight: Flight<P::Message>, tokens: i64) {
        let (now, from, to) = (self.now, flight.envelope.from, flight.envelope.to);
        if self.spec.by_hand {
            self.tokens_under_way += tokens;
            self.held.push(self.flights.insert(flight));
            return;
        }
        if let Some(wish) = self.take_wish(&flight.envelope) {
            self.tokens_under_way += tokens;
            let place = self.flights.insert(flight);
            return match wish {
                Some(delay) => self.plan(now + delay, Event::Arrive(place)),
                None => self.lose(place),
            };
        }
        let mut arrivals: SmallVec<[Time; 2]> = SmallVec::new();
        self.network.send(now, from, to, |at| arrivals.push(at));
        let mut flight = Some(flight);
        for (left, at) in (0..arrivals.len()).rev().zip(arrivals) {
            let copy = if left == 0 { flight.take() } else { flight.as_ref().map(Flight::copy) };
            if let Some(copy) = copy {
                self.tokens_under_way += tokens;
                let place = self.flights.insert(copy);
                self.plan(at, Event::Arrive(place));
            }
        }
        if let Some(lost) = flight {
            self.tokens_under_way += tokens;
            let place = self.flights.insert(lost);
            self.lose(place);
        }
    }

    fn take_wish(&mut self, envelope: &Envelope<P::Message>) -> Option<Option<Time>> {
        let place = self.wishes.iter().position(|(which, _)| is_meant(which, envelope))?;
        Some(self.wishes.remove(place).1)
    }

    fn lose(&mut self, place: usize) {
        let flight = self.flights.remove(place);
        self.tokens_under_way -= i64::from(P::tokens_in(&flight.envelope.message));
        if let (Some(tracer), Some(stamp)) = (&mut self.tracer, &flight.stamp) {
            let Envelope { from, to, message, .. } = &flight.envelope;
            tracer.lost(self.now, *to, Arrival { from: *from, stamp, message, sent: flight.sent });
        }
    }

    fn change_timers(&mut self, site: SiteId) {
        let mut changes = std::mem::take(&mut self.world.out.timers);
        for change in changes.drain(..) {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.timers[site.index()].retain(|(known, _)| known != timer);
            if let TimerChange::Arm { timer, after_milli_t } = change {
                self.timer_generation += 1;
                let generation = self.timer_generation;
                self.timers[site.index()].push((timer, generation));
                let life = self.lives[site.index()];
                self.plan(
                    self.now + Time::from_milli_t(after_milli_t),
                    Event::Timer { site, life, generation },
                );
            }
        }
        self.world.out.timers = changes;
    }

    // ---------------------------------------------------------------- the script

    fn act(&mut self, action: &Action) {
        match action {
            Action::Request(site) => {
                if self.world.is_up(*site) {
                    self.plan_ask(self.now, *site);
                }
            }
            Action::Exit(site) => {
                let event = Event::Exit { site: *site, life: self.lives[site.index()] };
                if self.world.phase(*site) == Phase::Inside && !self.is_paused(*site, event) {
                    self.exit(*site);
                }
            }
            Action::Crash(site) => self.crash(*site),
            Action::Recover(site) => self.recover(*site),
            Action::Pause(site) => {
                if self.world.is_up(*site) && self.paused[site.index()].is_none() {
                    self.paused[site.index()] = Some(Vec::new());
                    self.trace_bare(*site, What::Pause);
                }
            }
            Action::Resume(site) => {
                if let Some(kept) = self.paused[site.index()].take() {
                    self.trace_bare(*site, What::Resume);
                    for event in kept {
                        self.plan(self.now, event);
                    }
                }
            }
            Action::Deliver(which) => match self.take_held(which) {
                Some(place) => self.arrive(place),
                None => self.say(&format!("(there is no {} under way to deliver)", describe(which))),
            },
            Action::Lose(which) => match self.take_held(which) {
                Some(place) => self.lose(place),
                None => self.wishes.push((which.clone(), None)),
            },
            Action::Slow(which, delay) => self.wishes.push((which.clone(), Some(*delay))),
            Action::Cut(left, right, one_way) => {
                self.network.cut(left.clone(), right.clone(), *one_way, self.now);
                let sites = |sites: &[SiteId]| lockkeeper_core::mutex::list(sites, "nobody");
                let arrow = if *one_way { "to" } else { "and" };
                let between = if *one_way { "from" } else { "between" };
                self.say(&format!("the way {between} {} {arrow} {} is cut", sites(left), sites(right)));
            }
            Action::Heal(left, right) => {
                self.network.heal(left, right, self.now);
                self.say("the cut heals");
            }
            Action::Say(text) => self.say(text),
        }
    }

    fn crash(&mut self, site: SiteId) {
        if !self.world.is_up(site) {
            return;
        }
        let was_waiting = self.world.phase(site) == Phase::Waiting;
        self.world.crash(site);
        self.observer.crash(site, was_waiting, self.now);
        self.lives[site.index()] += 1;
        self.first_inside.take_if(|first| *first == site);
        self.timers[site.index()].clear();
        self.backlog[site.index()] = 0;
        // Nobody is left to handle what came during a pause.
        for event in self.paused[site.index()].take().into_iter().flatten() {
            match event {
                Event::Arrive(place) => self.lose(place),
                Event::Ask { .. } => self.asks_planned -= 1,
                _ => {}
            }
        }
        self.trace_bare(site, What::Crash);
        if let Some(delay) = self.detector.crash_noticed_after(self.spec.network.delay.typical()) {
            for other in SiteId::all(self.world.processes()).filter(|&other| other != site) {
                self.plan(self.now + delay, Event::Suspect { site: other, suspect: site });
            }
        }
    }

    fn recover(&mut self, site: SiteId) {
        if self.world.is_up(site) {
            return;
        }
        self.world.restart(site);
        self.busy_until[site.index()] = self.now;
        self.trace(site, What::Recover);
        self.after_step(site, Step::default());
        if self.spec.load == LoadSpec::High && site.index() < self.spec.sites && !self.load_is_done() {
            self.plan_ask(self.now, site);
        }
    }

    fn take_held(&mut self, which: &Which) -> Option<usize> {
        let place = self.held.iter().position(|&place| is_meant(which, &self.flights[place].envelope))?;
        Some(self.held.remove(place))
    }

    // ---------------------------------------------------------------- verdicts and traces

    fn violate(&mut self, property: Property, sites: Vec<SiteId>, what: String) {
        self.observer.violated(Violation { property, at: self.now, sites, what });
    }

    /// Nobody enters, although somebody waits and things go on happening.
    fn watch_for_stalls(&mut self) {
        self.events_since_entry += 1;
        let processes = self.world.processes() as u64;
        let patience = 1_000_000 + 100 * processes.min(10_000).pow(2);
        if self.observer.waiting() == 0 {
            self.events_since_entry = 0;
        } else if self.events_since_entry > patience {
            let waiting = self.waiting_sites();
            let what = format!("{patience} events without an entry; {}", self.who_waits_for_whom());
            self.violate(Property::NoStarvation, waiting, what);
            self.stop = true;
        }
    }

    fn check_for_deadlock(&mut self) {
        // In a script, what is still under way has only not been delivered.
        let over = !self.spec.by_hand || self.flights.is_empty();
        if self.observer.waiting() > 0 && over && self.nothing_can_happen() {
            let what = format!("nothing can happen any more; {}", self.who_waits_for_whom());
            let waiting = self.waiting_sites();
            self.violate(Property::NoDeadlock, waiting, what);
        }
    }

    fn waiting_sites(&self) -> Vec<SiteId> {
        SiteId::all(self.spec.sites).filter(|&site| self.world.phase(site) == Phase::Waiting).collect()
    }

    fn who_waits_for_whom(&self) -> String {
        const MOST: usize = 12;
        let status = |site: SiteId| match (self.world.is_up(site), self.world.phase(site)) {
            (false, _) => " (crashed)",
            (true, Phase::Inside) => " (inside)",
            (true, _) if self.paused[site.index()].is_some() => " (paused)",
            _ => "",
        };
        let waits =
            SiteId::all(self.world.processes()).filter(|&site| self.world.is_up(site)).filter_map(|site| {
                let for_whom = self.world.protocol(site).waits_for();
                let waiting = self.world.phase(site) == Phase::Waiting;
                let name = self.names.of(site);
                match for_whom.as_slice() {
                    [] if waiting => Some(format!("{name} waits")),
                    [] => None,
                    some => {
                        let named =
                            some.iter().take(MOST).map(|&on| format!("{}{}", self.names.of(on), status(on)));
                        let more = if some.len() > MOST { ", …" } else { "" };
                        Some(format!("{name} waits for {}{more}", lockkeeper_core::mutex::list(named, "")))
                    }
                }
            });
        let mut waits: Vec<String> = waits.take(MOST + 1).collect();
        if waits.len() > MOST {
            waits[MOST] = "and so on".into();
        }
        let lost = if self.world.tokens() + self.tokens_under_way == 0
            && P::ABOUT.family == lockkeeper_core::mutex::Family::Token
        {
            "; the token is lost"
        } else {
            ""
        };
        waits.join("; ") + lost
    }

    /// Tells of a step, with the rules it followed and what it sent.
    fn trace(&mut self, site: SiteId, what: What<'_>) {
        if let Some(tracer) = &mut self.tracer {
            let (why, sends) = step_in_words(&self.world.out);
            tracer.local(self.now, site, what, &why, &sends);
        }
    }

    /// Tells of something that is no step of the algorithm.
    fn trace_bare(&mut self, site: SiteId, what: What<'_>) {
        if let Some(tracer) = &mut self.tracer {
            tracer.local(self.now, site, what, &[], &[]);
        }
    }

    fn say(&mut self, text: &str) {
        if let Some(tracer) = &mut self.tracer {
            tracer.say(self.now, text);
        }
    }
}

impl<M: Clone> Flight<M> {
    fn copy(&self) -> Self {
        Self {
            envelope: self.envelope.clone(),
            sent: self.sent,
            piggyback: self.piggyback.clone(),
            stamp: self.stamp.clone(),
            in_service: false,
        }
    }
}

/// The rules that a step followed, and what it sent.
fn step_in_words<P: Protocol>(out: &Out<P>) -> (SmallVec<[&'static str; 4]>, SmallVec<[Sent<'_>; 4]>) {
    let why = out.rules.iter().map(|rule| rule.sentence()).collect();
    let sends = out.sends.iter().map(|(to, message)| Sent { to: *to, message }).collect();
    (why, sends)
}

fn is_meant<M: Vocabulary>(which: &Which, envelope: &Envelope<M>) -> bool {
    let named = |name: &String| M::WORDS[envelope.message.word()].name == name;
    which.from == envelope.from && which.to == envelope.to && which.name.as_ref().is_none_or(named)
}

fn describe(which: &Which) -> String {
    let name = which.name.as_deref().unwrap_or("message");
    format!("{name} from {} to {}", which.from, which.to)
}
