//! The handlers of events.

use super::verdict::step_in_words;
use super::{Event, Flight, Sim};
use crate::algorithm::TimerId;
use crate::simulator::spec::LoadSpec;
use crate::simulator::time::Time;
use crate::trace::{Arrival, EventKind};
use lockkeeper_core::{Mode, Phase, SiteId};
use smallvec::SmallVec;

impl Sim<'_> {
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(place) => self.arrive(place),
            Event::Request { site, incarnation, mode } => {
                if self.is_paused(site, event) {
                    return;
                }
                self.requests_planned -= 1;
                if incarnation == self.incarnations[site.index()] && self.world.is_up(site) {
                    self.request(site, mode);
                }
            }
            Event::Arrival { site } => {
                self.arrivals_planned -= 1;
                if !self.load_is_done() {
                    self.plan_arrival(site);
                    if self.world.is_up(site) {
                        let mode = self.workload.next_mode();
                        self.backlog[site.index()].push_back(mode);
                        self.observer.backlog(self.backlog[site.index()].len() as u64);
                        self.serve_backlog(site);
                    }
                }
            }
            Event::Exit { site, incarnation } => {
                if incarnation == self.incarnations[site.index()] && !self.is_paused(site, event) {
                    self.exit(site);
                }
            }
            Event::Timer { site, incarnation, timer } => {
                if incarnation == self.incarnations[site.index()] && !self.is_paused(site, event) {
                    self.timer(site, timer);
                }
            }
            Event::Script(index) => {
                self.script_left -= 1;
                let action = self.script[index].action.clone();
                self.act(&action);
            }
            Event::Suspect { site, suspect } => {
                // A site that has recovered announces itself; the suspicion is obsolete.
                let still_down = !self.world.is_up(suspect);
                if still_down && self.world.is_up(site) && !self.is_paused(site, event) {
                    self.suspect(site, suspect);
                }
            }
            Event::Heartbeat { site } => self.heartbeat(site),
            Event::HeartbeatArrives { from, to } => {
                if self.world.is_up(to) && !self.network.is_cut(from, to, self.now) {
                    self.detector.heartbeat_arrived(to, from, self.now);
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

    /// Whether the site is paused. If it is, stores the event until the site resumes.
    pub(super) fn is_paused(&mut self, site: SiteId, event: Event) -> bool {
        match &mut self.paused[site.index()] {
            Some(kept) => {
                kept.push(event);
                true
            }
            None => false,
        }
    }

    pub(super) fn request(&mut self, site: SiteId, mode: Mode) {
        if self.world.phase(site) != Phase::Idle {
            self.backlog[site.index()].push_back(mode);
            return;
        }
        self.observer.request(site, mode, self.now);
        let step = self.world.request(site, mode);
        self.observer.stamped(site, self.world.state(site).timestamp());
        self.trace(site, EventKind::Request { mode });
        self.after_step(site, step);
    }

    /// Makes the next request from the site's own queue, if the site is idle.
    pub(super) fn serve_backlog(&mut self, site: SiteId) {
        if self.world.phase(site) == Phase::Idle
            && self.paused[site.index()].is_none()
            && let Some(mode) = self.backlog[site.index()].pop_front()
        {
            self.request(site, mode);
        }
    }

    pub(super) fn exit(&mut self, site: SiteId) {
        self.observer.exit(site, self.now);
        let step = self.world.release(site);
        self.trace(site, EventKind::Exit);
        self.after_step(site, step);
        if self.stop || self.load_is_done() {
            return;
        }
        match self.spec.load {
            LoadSpec::High | LoadSpec::Staggered => self.plan_request(self.now, site),
            LoadSpec::Poisson(_) | LoadSpec::Script => self.serve_backlog(site),
            LoadSpec::Low | LoadSpec::Pairs | LoadSpec::Burst => {}
        }
    }

    pub(super) fn arrive(&mut self, place: usize) {
        let flight = &mut self.flights[place];
        let (from, to) = (flight.from, flight.to);
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

    pub(super) fn deliver(&mut self, place: usize) {
        let flight = self.flights.remove(place);
        let Flight { from, to, message, kind, tokens, fence, sent, piggyback, stamp, .. } = flight;
        self.tokens_under_way -= i64::from(tokens);
        self.delivered[kind] += 1;
        self.observer.receive(to, &piggyback);
        let was_idle = self.observer.is_idle();
        let text = self.tracer.is_some().then(|| self.world.message(message).to_string());
        let step = self.world.deliver(message, from, to, fence);
        if let (Some(tracer), Some(stamp), Some(text)) = (&mut self.tracer, &stamp, &text) {
            let (why, sends) = step_in_words(&self.world, &self.sentences);
            tracer.receive(self.now, to, Arrival { from, stamp, message: text, sent }, &why, &sends);
        }
        if was_idle {
            self.observer.sent_while_idle(self.world.effects.sends.len(), self.now);
        }
        self.after_step(to, step);
        let delay = self.spec.network.delay.typical();
        if !self.world.is_up(from) && self.detector.notifies_again(from, delay, self.now) {
            self.plan_suspicion(to, from);
        }
    }

    pub(super) fn timer(&mut self, site: SiteId, timer: TimerId) {
        let was_idle = self.observer.is_idle();
        let Some(step) = self.world.timer(site, timer) else { return };
        self.trace(site, EventKind::Timer);
        if was_idle {
            self.observer.sent_while_idle(self.world.effects.sends.len(), self.now);
        }
        self.after_step(site, step);
    }

    pub(super) fn suspect(&mut self, site: SiteId, suspect: SiteId) {
        let step = self.world.suspect(site, suspect);
        self.trace(site, EventKind::Suspect { suspect });
        self.after_step(site, step);
    }

    pub(super) fn heartbeat(&mut self, site: SiteId) {
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
}
