//! The simulator: one run in virtual time.
//!
//! This file contains the run and its loop. `events` handles each event, `after_step` processes the messages
//! and entries of a step, `script` executes faults and scenarios, `verdict` reports violations and traces,
//! and `stage` exposes the state of the sites.

mod after_step;
mod events;
mod script;
mod stage;
mod verdict;

use crate::algorithm::{Configured, MessageId, TimerId};
use crate::property::{Names, Violation};
use crate::simulator::detector::Detector;
use crate::simulator::metrics::Measures;
use crate::simulator::network::Network;
use crate::simulator::observer::{Observer, Piggyback, Window};
use crate::simulator::queue::Queue;
use crate::simulator::spec::{LoadSpec, MessageSelector, Scripted, Spec};
use crate::simulator::time::Time;
use crate::simulator::workload::Workload;
use crate::simulator::world::World;
use crate::trace::{EventKind, Sent, Stamp, Tracer};
use lockkeeper_core::{About, MessageKind, Mode, Phase, Setup, Sharing, SiteId};
use slab::Slab;
use std::collections::VecDeque;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The measurements.
    pub measures: Measures,
    /// The violations.
    pub violations: Vec<Violation>,
    /// How often each of the protocol's rules fired.
    pub rules: Vec<u64>,
    /// How many messages of each type were delivered in the whole run.
    pub delivered: Vec<u64>,
    /// Number of events.
    pub events: u64,
    /// The duration, in virtual time.
    pub end: Time,
    /// Whether the caller stopped it before its end.
    pub interrupted: bool,
}

/// A message under way, with its piggybacked data.
struct Flight {
    from: SiteId,
    to: SiteId,
    message: MessageId,
    /// The index of the message's type.
    kind: usize,
    /// Number of tokens in the message.
    tokens: u32,
    /// The sender's fence clock.
    fence: u64,
    sent: Time,
    piggyback: Piggyback,
    stamp: Option<Stamp>,
    /// Whether it has arrived and waits to be processed.
    in_service: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize),
    Request {
        site: SiteId,
        incarnation: u32,
        mode: Mode,
    },
    /// A request from outside, which queues if the site is busy.
    Arrival {
        site: SiteId,
    },
    Exit {
        site: SiteId,
        incarnation: u32,
    },
    Timer {
        site: SiteId,
        incarnation: u32,
        timer: TimerId,
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
    /// Whether it is a background event: these recur even when the system is at rest.
    fn is_background(self) -> bool {
        matches!(self, Self::Heartbeat { .. } | Self::HeartbeatArrives { .. } | Self::WrongSuspicion)
    }
}

/// Number of events between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 16;

/// One run.
pub struct Sim<'a> {
    spec: &'a Spec,
    about: &'static About,
    kinds: &'static [MessageKind],
    /// The sentences of the algorithm's rules.
    sentences: Vec<&'static str>,
    script: Vec<Scripted>,
    world: World,
    network: Network,
    workload: Workload,
    observer: Observer,
    detector: Detector,
    tracer: Option<Tracer<'a>>,
    names: Names,
    queue: Queue<Event>,
    flights: Slab<Flight>,
    /// Messages that wait for the script to deliver them, oldest first.
    held: Vec<usize>,
    /// The script's instructions for messages not sent yet: a delay, or `None` to lose the message.
    overrides: Vec<(MessageSelector, Option<Time>)>,
    /// For each paused site, the events that wait for it.
    paused: Vec<Option<Vec<Event>>>,
    busy_until: Vec<Time>,
    /// Number of crashes of each site. Events planned for an earlier incarnation are ignored.
    incarnations: Vec<u32>,
    /// The requests that wait in each site's own queue.
    backlog: Vec<VecDeque<Mode>>,
    now: Time,
    events: u64,
    /// Number of events in the queue that are not background events.
    foreground: u64,
    last_foreground: Time,
    requests_planned: u64,
    arrivals_planned: u64,
    /// At high load, the first site to enter stays inside until all other sites' first requests have been
    /// delivered. Otherwise a site that can enter without a message would enter repeatedly before any request
    /// has arrived. This does not apply if others can be inside at the same time, since the site might then
    /// have to stay for ever.
    first_inside: Option<SiteId>,
    script_left: usize,
    events_since_entry: u64,
    tokens_under_way: i64,
    delivered: Vec<u64>,
    rules: Vec<u64>,
    stop: bool,
}

impl<'a> Sim<'a> {
    /// A run in its initial state.
    pub fn new(spec: &'a Spec, algorithm: &dyn Configured, seed: u64, tracer: Option<Tracer<'a>>) -> Self {
        let (holders, clocks) = (spec.holders.clone(), spec.clocks.clone());
        let setup = Setup { holders, clocks, ..Setup::new(spec.sites, ()) };
        let (mut first_sends, mut first_timers) = (Vec::new(), Vec::new());
        let world = World::new(algorithm, &setup, |site, effects| {
            first_sends.extend(effects.sends.iter().map(|&sent| (site, sent)));
            first_timers.extend(effects.armed.iter().map(|&armed| (site, armed)));
        });
        let algorithm = algorithm.algorithm();
        let (kinds, sentences) = (algorithm.kinds(), algorithm.rules());
        let processes = world.processes();
        let names = Names { sites: spec.sites };
        let window = Window {
            warmup: spec.warmup(),
            entries: spec.entries,
            whole: !(spec.load.is_high() || matches!(spec.load, LoadSpec::Poisson(_))),
            starvation_after: Time::from_ticks(
                spec.network.delay.typical().ticks().saturating_mul(50 * (spec.sites as u64 + 1)),
            ),
        };
        let script = spec.whole_script();
        let mut sim = Self {
            network: Network::new(&spec.network, seed),
            script_left: script.len(),
            script,
            workload: Workload::new(spec.load, spec.sites, spec.readers, seed),
            observer: Observer::new(names, (processes, kinds.len()), window, world.sharing(), &spec.holders),
            detector: Detector::new(spec.detector, processes, seed),
            tracer,
            names,
            queue: Queue::default(),
            flights: Slab::new(),
            held: Vec::new(),
            overrides: Vec::new(),
            paused: vec![None; processes],
            busy_until: vec![Time::ZERO; processes],
            incarnations: vec![0; processes],
            backlog: vec![VecDeque::new(); processes],
            now: Time::ZERO,
            events: 0,
            foreground: 0,
            last_foreground: Time::ZERO,
            requests_planned: 0,
            arrivals_planned: 0,
            first_inside: None,
            events_since_entry: 0,
            tokens_under_way: 0,
            delivered: vec![0; kinds.len()],
            rules: vec![0; sentences.len()],
            stop: false,
            about: algorithm.about(),
            kinds,
            sentences,
            world,
            spec,
        };
        for holder in &spec.holders {
            let fence = sim.world.state(holder.site).fence();
            sim.trace_bare(holder.site, EventKind::Enter { fence, mode: holder.mode });
        }
        for (from, sent) in first_sends {
            if let Some(tracer) = &mut sim.tracer {
                let sends = [Sent { to: sent.to, message: sim.world.message(sent.message) }];
                tracer.local(Time::ZERO, from, EventKind::Start, &[], &sends);
            }
            let fence = sim.world.state(from).fence();
            sim.send(from, fence, sent, None);
        }
        for (site, armed) in first_timers {
            sim.plan_timer(site, armed);
        }
        sim.plan_start();
        sim
    }

    fn plan_start(&mut self) {
        for index in 0..self.script.len() {
            self.plan(self.script[index].at, Event::Script(index));
        }
        for holder in &self.spec.holders {
            self.plan_exit(holder.site);
        }
        match self.spec.load {
            LoadSpec::High | LoadSpec::Burst => self.all_sites_request(),
            LoadSpec::Staggered => {
                for site in SiteId::all(self.spec.sites) {
                    let at = self.workload.pause(self.spec.network.delay.typical());
                    if self.world.phase(site) == Phase::Idle {
                        self.plan_request(at, site);
                    }
                }
            }
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

    /// Runs to the end. `go_on` is called with the number of entries at intervals; the run stops when it
    /// returns `false`.
    pub fn run(self, go_on: impl FnMut(u64) -> bool) -> (Outcome, std::io::Result<()>) {
        self.run_watched(go_on, |_| ())
    }

    /// Like [`Sim::run`]; calls `look` with the sites after each entry.
    pub fn run_watched(
        mut self,
        mut go_on: impl FnMut(u64) -> bool,
        mut look: impl FnMut(&World),
    ) -> (Outcome, std::io::Result<()>) {
        let mut interrupted = !self.show();
        self.when_quiet();
        while !interrupted && !self.stop && !self.is_over() {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.events += 1;
            if !event.is_background() {
                self.foreground -= 1;
            }
            if !event.is_background() && !matches!(event, Event::Arrival { .. }) {
                self.last_foreground = at;
            }
            let entries = self.observer.entries();
            self.handle(event);
            if self.observer.entries() > entries {
                look(&self.world);
            }
            self.watch_for_stalls();
            self.when_quiet();
            let is_due = self.events.is_multiple_of(PROGRESS_EVERY);
            interrupted = !self.show() || (is_due && !go_on(self.observer.entries()));
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

    /// Whether all requests are made and granted, or no further event can matter.
    fn is_over(&self) -> bool {
        if self.load_is_done() && self.requests_planned == 0 && self.observer.is_idle() && self.is_quiet() {
            return true;
        }
        // A timeout may still cause a suspicion, but only within a bounded time.
        self.nothing_can_happen() && self.now >= self.last_foreground + self.detector.longest_suspicion()
    }

    /// Whether only background events remain, and arrivals at sites that already wait.
    fn nothing_can_happen(&self) -> bool {
        let no_site_can_request = || {
            SiteId::all(self.spec.sites)
                .all(|site| !self.world.is_up(site) || self.world.phase(site) != Phase::Idle)
        };
        self.foreground == self.arrivals_planned && (self.arrivals_planned == 0 || no_site_can_request())
    }

    fn load_is_done(&self) -> bool {
        match self.spec.load {
            LoadSpec::Script => self.script_left == 0,
            _ => self.observer.entries() >= self.spec.warmup().saturating_add(self.spec.entries),
        }
    }

    /// Whether no message is under way. A perpetual token does not count.
    fn is_quiet(&self) -> bool {
        self.about.perpetual || self.flights.is_empty()
    }

    fn plan(&mut self, at: Time, event: Event) {
        self.foreground += u64::from(!event.is_background());
        self.queue.push(at, event);
    }

    fn plan_request(&mut self, at: Time, site: SiteId) {
        let mode = self.workload.next_mode();
        self.plan_request_in(mode, at, site);
    }

    fn plan_request_in(&mut self, mode: Mode, at: Time, site: SiteId) {
        self.requests_planned += 1;
        self.plan(at, Event::Request { site, incarnation: self.incarnations[site.index()], mode });
    }

    /// Whether the site that just entered is the first one, and must stay inside until all sites have
    /// requested.
    fn is_held_inside(&self) -> bool {
        self.spec.load.is_high()
            && self.observer.entries() == 1
            && !self.about.perpetual
            && self.world.sharing() == Sharing::Mutex
    }

    fn plan_exit(&mut self, site: SiteId) {
        if let Some(cs) = &self.spec.cs {
            let at = self.now + cs.draw(0, 0, self.workload.rng());
            self.plan(at, Event::Exit { site, incarnation: self.incarnations[site.index()] });
        }
    }

    fn plan_arrival(&mut self, site: SiteId) {
        let at = self.now + self.workload.until_next_arrival();
        self.arrivals_planned += 1;
        self.plan(at, Event::Arrival { site });
    }

    fn all_sites_request(&mut self) {
        for site in SiteId::all(self.spec.sites).filter(|&site| self.world.is_up(site)).collect::<Vec<_>>() {
            if self.world.phase(site) == Phase::Idle || self.events > 0 {
                self.plan_request(self.now, site);
            }
        }
    }

    /// Performs the actions that wait for a quiet network: at high load, the exit of the first site; at low
    /// load and between bursts, the next request.
    fn when_quiet(&mut self) {
        if self.first_inside.is_some() && self.flights.is_empty() && self.requests_planned == 0 {
            let first = self.first_inside.take();
            first.into_iter().for_each(|site| self.plan_exit(site));
        }
        self.request_at_low_load();
    }

    fn request_at_low_load(&mut self) {
        let waits_for_quiet = matches!(self.spec.load, LoadSpec::Low | LoadSpec::Pairs | LoadSpec::Burst);
        if !waits_for_quiet || self.requests_planned > 0 || !self.observer.is_idle() || !self.is_quiet() {
            return;
        }
        self.observer.quiet(self.now);
        if self.load_is_done() {
            return;
        }
        if self.spec.load == LoadSpec::Burst {
            return self.all_sites_request();
        }
        let world = &self.world;
        let Some(site) = self.workload.next_site(|site| world.is_up(site)) else { return };
        let pause = if self.about.perpetual {
            self.workload.pause(self.spec.network.delay.typical())
        } else {
            Time::ZERO
        };
        self.plan_request(self.now + pause, site);
    }
}

impl Flight {
    /// A second flight of the same message. `message` is the message's copy.
    fn copy(&self, message: MessageId) -> Self {
        Self {
            message,
            piggyback: self.piggyback.clone(),
            stamp: self.stamp.clone(),
            in_service: false,
            ..*self
        }
    }
}
