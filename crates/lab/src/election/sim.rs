//! The simulator of elections: one run in virtual time.
//!
//! An election has no load, no entries and no measured window. Everything else is shared with the simulator
//! of mutual exclusion: queue, network, detectors, scripts, traces.

mod by_hand;

use super::ElectionSpec;
use super::algorithm::ConfiguredElection;
use super::electorate::Electorate;
use super::report::{ElectionDuration, Run, Violation};
use crate::algorithm::{Actions, Event as Cause, Message, Timer};
use crate::property::Property;
use crate::simulator::detector::Detector;
use crate::simulator::network::Network;
use crate::simulator::queue::Queue;
use crate::simulator::spec::{Action, MessageSelector, Scripted};
use crate::simulator::time::Time;
use crate::trace::{Arrival, EventKind, Held, Sent, SiteState, Stage, Stamp, Tracer};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{Campaign, Elected, Mode, Phase, SiteId};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The maximum number of events per pair of sites. A longer run is assumed to be infinite.
const MOST_EVENTS_PER_PAIR: u64 = 2_000;

#[derive(Clone)]
struct Flight {
    from: SiteId,
    to: SiteId,
    message: Message,
    sent: Time,
    stamp: Option<Stamp>,
    /// Whether it has arrived and waits to be processed.
    in_service: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize),
    Campaign(SiteId),
    Timer { site: SiteId, generation: u64 },
    Script(usize),
    Suspect { site: SiteId, suspect: SiteId },
    Heartbeat(SiteId),
    HeartbeatArrives { from: SiteId, to: SiteId },
    WrongSuspicion,
}

impl Event {
    /// Whether it is a background event: these recur even when the system is at rest.
    fn is_background(self) -> bool {
        matches!(self, Self::Heartbeat(_) | Self::HeartbeatArrives { .. } | Self::WrongSuspicion)
    }
}

/// One run.
pub struct Sim<'a> {
    spec: &'a ElectionSpec,
    election: &'a dyn ConfiguredElection,
    script: Vec<Scripted>,
    electorate: Electorate,
    network: Network,
    detector: Detector,
    tracer: Option<Tracer<'a>>,
    queue: Queue<Event>,
    flights: Slab<Flight>,
    /// Messages that wait for the script to deliver them, oldest first.
    held: Vec<usize>,
    /// The script's instructions for messages not sent yet: a delay, or `None` to lose the message.
    overrides: Vec<(MessageSelector, Option<Time>)>,
    /// Where the script delivers messages: pairs of a site and a crashed one that it has not suspected yet.
    unnoticed: BTreeSet<(SiteId, SiteId)>,
    /// For each paused site, the events that wait for it.
    paused: Vec<Option<Vec<Event>>>,
    busy_until: Vec<Time>,
    timers: Vec<Vec<(Timer, u64)>>,
    generation: u64,
    now: Time,
    /// Number of events in the queue that are not background events.
    foreground: u64,
    last_foreground: Time,
    /// The time since which messages have been sent without agreement.
    unsettled_since: Option<Time>,
    run: Run,
}

impl<'a> Sim<'a> {
    /// A run in its initial state.
    pub fn new(
        spec: &'a ElectionSpec,
        election: &'a dyn ConfiguredElection,
        seed: u64,
        tracer: Option<Tracer<'a>>,
    ) -> Self {
        let sites = spec.system.sites;
        let mut sim = Self {
            electorate: Electorate::new(election, sites, seed),
            election,
            script: spec.system.whole_script(),
            network: Network::new(&spec.system.network, seed),
            detector: Detector::new(spec.system.detector, sites, seed),
            tracer,
            queue: Queue::default(),
            flights: Slab::new(),
            held: Vec::new(),
            overrides: Vec::new(),
            unnoticed: BTreeSet::new(),
            paused: vec![None; sites],
            busy_until: vec![Time::ZERO; sites],
            timers: vec![Vec::new(); sites],
            generation: 0,
            now: Time::ZERO,
            foreground: 0,
            last_foreground: Time::ZERO,
            unsettled_since: None,
            run: Run::new(sites, election.algorithm().kinds().len()),
            spec,
        };
        sim.plan_start();
        sim
    }

    fn plan_start(&mut self) {
        let leader = self.electorate.live().next_back();
        if let Some(leader) = leader {
            self.trace_bare(leader, EventKind::Elected { leader });
        }
        for index in 0..self.script.len() {
            self.plan(self.script[index].at, Event::Script(index));
        }
        for (site, at) in &self.spec.initiators {
            self.plan(*at, Event::Campaign(*site));
        }
        if let Some(first) = self.detector.first_heartbeat() {
            for site in SiteId::all(self.electorate.len()) {
                self.plan(first, Event::Heartbeat(site));
            }
        }
        if let Some(first) = self.detector.until_wrong_suspicion() {
            self.plan(first, Event::WrongSuspicion);
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> (Run, std::io::Result<()>) {
        let most = MOST_EVENTS_PER_PAIR * (self.electorate.len() as u64 + 1).pow(2);
        let mut goes_on = self.show();
        while goes_on
            && (self.foreground > 0 || self.now < self.last_foreground + self.detector.longest_suspicion())
        {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.run.events += 1;
            if !event.is_background() {
                self.foreground -= 1;
                self.last_foreground = at;
            }
            self.handle(event);
            goes_on = self.show();
            if self.run.events > most {
                let what = format!("after {most} events messages are still being sent");
                self.violate(Property::Termination, what);
                break;
            }
        }
        self.judge();
        let traced = self.tracer.take().map_or(Ok(()), |tracer| tracer.finish(self.now));
        self.run.end = self.now;
        (self.run, traced)
    }

    /// Passes the state of the sites to the tracer; `false` if the tracer ends the run.
    fn show(&mut self) -> bool {
        let Some(mut tracer) = self.tracer.take() else { return true };
        let goes_on = tracer.look(self);
        self.tracer = Some(tracer);
        goes_on
    }

    fn judge(&mut self) {
        match self.electorate.agreement() {
            Ok(leader) => self.run.leader = Some(leader),
            // A run that is driven by hand can end while sites still have to react.
            Err(_) if self.spec.system.by_hand && !self.is_at_rest() => {}
            Err(disagreement) => self.violate(Property::Agreement, disagreement.to_string()),
        }
        for (outcome, site) in self.run.outcome.iter_mut().zip(SiteId::all(self.electorate.len())) {
            outcome.up = self.electorate.is_up(site);
            outcome.leader = self.electorate.leader_at(site).filter(|_| outcome.up);
        }
    }

    fn violate(&mut self, property: Property, what: String) {
        if self.run.violations.iter().all(|known| known.property != property) {
            self.run.violations.push(Violation { property, at: self.now, what });
        }
    }

    fn plan(&mut self, at: Time, event: Event) {
        self.foreground += u64::from(!event.is_background());
        self.queue.push(at, event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(place) => self.arrive(place),
            Event::Campaign(site) => self.campaign(site),
            Event::Timer { site, generation } => {
                let is_armed =
                    |timers: &[(_, u64)]| timers.iter().position(|(_, known)| *known == generation);
                let Some(place) = is_armed(&self.timers[site.index()]) else { return };
                if self.can_act(site, event) {
                    let (timer, _) = self.timers[site.index()].swap_remove(place);
                    self.step(site, &Cause::Timer(timer), EventKind::Timer);
                }
            }
            Event::Script(index) => {
                let action = self.script[index].action.clone();
                self.act(&action);
            }
            Event::Suspect { site, suspect } => {
                if self.can_act(site, event) {
                    self.suspect(site, suspect);
                }
            }
            Event::Heartbeat(site) => self.heartbeat(site),
            Event::HeartbeatArrives { from, to } => {
                if self.electorate.is_up(to) && !self.network.is_cut(from, to, self.now) {
                    self.detector.heartbeat_arrived(to, from, self.now);
                }
            }
            Event::WrongSuspicion => {
                let (site, suspect) = self.detector.wrong_suspicion();
                if self.electorate.is_up(site) {
                    self.suspect(site, suspect);
                }
                if let Some(pause) = self.detector.until_wrong_suspicion() {
                    self.plan(self.now + pause, Event::WrongSuspicion);
                }
            }
        }
    }

    /// Whether the site is up and not paused. If it is paused, stores the event until it resumes.
    fn can_act(&mut self, site: SiteId, event: Event) -> bool {
        match &mut self.paused[site.index()] {
            Some(kept) => {
                kept.push(event);
                false
            }
            None => self.electorate.is_up(site),
        }
    }

    fn suspect(&mut self, site: SiteId, suspect: SiteId) {
        self.unnoticed.remove(&(site, suspect));
        self.step(site, &Cause::Suspect(suspect), EventKind::Suspect { suspect });
    }

    fn heartbeat(&mut self, site: SiteId) {
        let Some(pause) = self.detector.heartbeat_pause() else { return };
        self.plan(self.now + pause, Event::Heartbeat(site));
        if !self.electorate.is_up(site) || self.paused[site.index()].is_some() {
            return;
        }
        for to in SiteId::all(self.electorate.len()).filter(|&to| to != site) {
            for at in self.arrivals(site, to) {
                self.plan(at, Event::HeartbeatArrives { from: site, to });
            }
        }
        for suspect in self.detector.newly_silent(site, self.now) {
            self.suspect(site, suspect);
        }
    }

    fn arrivals(&mut self, from: SiteId, to: SiteId) -> SmallVec<[Time; 2]> {
        let mut arrivals = SmallVec::new();
        self.network.send(self.now, from, to, |at| arrivals.push(at));
        arrivals
    }

    fn arrive(&mut self, place: usize) {
        let flight = &mut self.flights[place];
        let (from, to) = (flight.from, flight.to);
        if !self.electorate.is_up(to) || self.network.is_cut(from, to, self.now) {
            return self.lose(place);
        }
        let service = self.network.service(to);
        if service > Time::ZERO && !flight.in_service {
            flight.in_service = true;
            let done = self.busy_until[to.index()].max(self.now) + service;
            self.busy_until[to.index()] = done;
            return self.plan(done, Event::Arrive(place));
        }
        if self.can_act(to, Event::Arrive(place)) {
            let Flight { message, sent, stamp, .. } = self.flights.remove(place);
            let actions = self.electorate.step(to, &Cause::Message(from, message.clone()));
            if let (Some(tracer), Some(stamp)) = (&mut self.tracer, &stamp) {
                let (why, sends) = step_in_words(self.election, &actions);
                tracer.receive(self.now, to, Arrival { from, stamp, message: &message, sent }, &why, &sends);
            }
            self.settle(to, actions);
        }
    }

    fn lose(&mut self, place: usize) {
        let Flight { from, to, message, sent, stamp, .. } = self.flights.remove(place);
        if let (Some(tracer), Some(stamp)) = (&mut self.tracer, &stamp) {
            tracer.lost(self.now, to, Arrival { from, stamp, message: &message, sent });
        }
    }

    /// Takes a step that is not caused by a message.
    fn step(&mut self, site: SiteId, cause: &Cause<Campaign>, what: EventKind<'_>) {
        let actions = self.electorate.step(site, cause);
        self.after_step(site, actions, what);
    }

    /// Traces a step that was not caused by a message, and carries out its actions.
    fn after_step(&mut self, site: SiteId, actions: Actions<Elected>, what: EventKind<'_>) {
        if let Some(tracer) = &mut self.tracer {
            let (why, sends) = step_in_words(self.election, &actions);
            tracer.local(self.now, site, what, &why, &sends);
        }
        self.settle(site, actions);
    }

    /// Carries out the actions of a step.
    fn settle(&mut self, site: SiteId, actions: Actions<Elected>) {
        if let Some((property, what)) = self.electorate.leader_violation(site, &actions) {
            self.violate(property, what);
        }
        self.measure_agreement(!actions.sends.is_empty());
        let mut stamp = None;
        for (to, message) in actions.sends {
            self.run.count(&message);
            stamp = self.tracer.as_mut().map(|tracer| tracer.stamp(site, stamp.take()));
            self.send(Flight {
                from: site,
                to,
                message,
                sent: self.now,
                stamp: stamp.clone(),
                in_service: false,
            });
        }
        for Elected(leader) in actions.outputs {
            self.run.outcome[site.index()].since = Some(self.now);
            if leader == site {
                self.run.announced.push(super::report::Announced { at: self.now, site });
            }
            self.trace_bare(site, EventKind::Elected { leader });
        }
        self.change_timers(site, actions.timers);
    }

    /// Measures elections: from the first message sent without agreement until agreement.
    fn measure_agreement(&mut self, sends: bool) {
        let agreed = self.electorate.agreement().is_ok();
        if agreed && let Some(from) = self.unsettled_since.take() {
            self.run.elections.push(ElectionDuration { from, to: self.now });
        } else if !agreed && sends {
            self.unsettled_since.get_or_insert(self.now);
        }
    }

    fn send(&mut self, flight: Flight) {
        if self.spec.system.by_hand {
            self.held.push(self.flights.insert(flight));
            return;
        }
        if let Some(delay) = self.take_override(&flight) {
            let place = self.flights.insert(flight);
            return match delay {
                Some(delay) => self.plan(self.now + delay, Event::Arrive(place)),
                None => self.lose(place),
            };
        }
        let arrivals = self.arrivals(flight.from, flight.to);
        if arrivals.is_empty() {
            let place = self.flights.insert(flight);
            return self.lose(place);
        }
        for at in arrivals {
            let place = self.flights.insert(flight.clone());
            self.plan(at, Event::Arrive(place));
        }
    }

    fn change_timers(&mut self, site: SiteId, changes: Vec<TimerChange<Timer>>) {
        for change in changes {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.timers[site.index()].retain(|(known, _)| known != timer);
            if let TimerChange::Arm { timer, after_milli_t } = change {
                self.generation += 1;
                self.timers[site.index()].push((timer, self.generation));
                if !self.spec.system.timers_by_hand {
                    let at = self.now + Time::from_milli_t(after_milli_t);
                    self.plan(at, Event::Timer { site, generation: self.generation });
                }
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Crash(site) if self.electorate.is_up(*site) => self.crash(*site),
            Action::Recover(site) if !self.electorate.is_up(*site) => {
                let actions = self.electorate.restart(self.election, *site);
                self.busy_until[site.index()] = self.now;
                self.after_step(*site, actions, EventKind::Recover);
            }
            Action::Pause(site) if self.electorate.is_up(*site) => {
                self.paused[site.index()].get_or_insert_default();
                self.trace_bare(*site, EventKind::Pause);
            }
            Action::Resume(site) => {
                if let Some(kept) = self.paused[site.index()].take() {
                    self.trace_bare(*site, EventKind::Resume);
                    kept.into_iter().for_each(|event| self.plan(self.now, event));
                }
            }
            Action::Cut(left, right, one_way) => {
                self.network.cut(left.clone(), right.clone(), *one_way, self.now);
                self.say("the network is cut");
            }
            Action::Heal(left, right) => {
                self.network.heal(left, right, self.now);
                self.say("the cut heals");
            }
            _ => self.act_by_hand(action),
        }
    }

    fn crash(&mut self, site: SiteId) {
        self.electorate.crash(site);
        if self.spec.system.by_hand {
            self.unnoticed.extend(self.electorate.live().map(|other| (other, site)));
        }
        self.timers[site.index()].clear();
        for event in self.paused[site.index()].take().into_iter().flatten() {
            if let Event::Arrive(place) = event {
                self.lose(place);
            }
        }
        self.trace_bare(site, EventKind::Crash);
        self.measure_agreement(false);
        let delay = self.spec.system.network.delay.typical();
        if let Some(delay) = self.detector.crash_noticed_after(delay) {
            for other in SiteId::all(self.electorate.len()).filter(|&other| other != site) {
                self.plan(self.now + delay, Event::Suspect { site: other, suspect: site });
            }
        }
    }

    fn trace_bare(&mut self, site: SiteId, what: EventKind<'_>) {
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

impl Stage for Sim<'_> {
    /// A site that considers itself the leader counts as inside; the others point to their leader.
    fn site(&self, site: SiteId) -> SiteState {
        let (state, up) = (self.electorate.state(site), self.electorate.is_up(site));
        let leader = self.electorate.leader_at(site).filter(|_| up);
        SiteState {
            phase: if leader == Some(site) { Phase::Inside } else { Phase::Idle },
            mode: Mode::Exclusive,
            up,
            paused: self.paused[site.index()].is_some(),
            tokens: 0,
            timers: self.timers[site.index()].len(),
            fields: if up { state.fields() } else { Vec::new() },
            points_to: leader.filter(|leader| *leader != site),
            waits_for: Vec::new(),
            quorum: Vec::new(),
        }
    }

    fn held(&self) -> Vec<Held> {
        self.held_messages()
    }
}

/// The rules that fired in a step, and the messages that it sent.
fn step_in_words<'a>(
    election: &dyn ConfiguredElection,
    actions: &'a Actions<Elected>,
) -> (SmallVec<[&'static str; 4]>, SmallVec<[Sent<'a>; 4]>) {
    let why = actions.rules.iter().filter_map(|&rule| election.algorithm().rule(rule)).collect();
    let sends = actions.sends.iter().map(|(to, message)| Sent { to: *to, message }).collect();
    (why, sends)
}
