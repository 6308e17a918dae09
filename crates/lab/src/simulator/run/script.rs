//! The actions of a script.

use super::{Event, Sim};
use crate::simulator::spec::{Action, MessageSelector};
use crate::simulator::world::Step;
use crate::trace::EventKind;
use lockkeeper_core::{Phase, SiteId};

impl Sim<'_> {
    pub(super) fn act(&mut self, action: &Action) {
        match action {
            Action::Request(site, mode) => {
                if self.world.is_up(*site) {
                    self.plan_request_in(*mode, self.now, *site);
                }
            }
            Action::Exit(site) => {
                let event = Event::Exit { site: *site, incarnation: self.incarnations[site.index()] };
                if self.world.phase(*site) == Phase::Inside && !self.is_paused(*site, event) {
                    self.exit(*site);
                }
            }
            Action::Crash(site) => self.crash(*site),
            Action::Recover(site) => self.recover(*site),
            Action::Pause(site) => {
                if self.world.is_up(*site) && self.paused[site.index()].is_none() {
                    self.paused[site.index()] = Some(Vec::new());
                    self.trace_bare(*site, EventKind::Pause);
                }
            }
            Action::Resume(site) => {
                if let Some(kept) = self.paused[site.index()].take() {
                    self.trace_bare(*site, EventKind::Resume);
                    for event in kept {
                        self.plan(self.now, event);
                    }
                }
            }
            Action::Deliver(selector) => match self.take_held(selector) {
                Some(place) => self.arrive(place),
                None => self.say(&selector.not_under_way()),
            },
            Action::Duplicate(selector) => match self.take_held(selector) {
                Some(place) => {
                    let flight = &self.flights[place];
                    let copy = flight.copy(self.world.copy(flight.message));
                    let copy = self.take_off(copy);
                    self.held.insert(0, copy);
                    self.arrive(place);
                }
                None => self.say(&selector.not_under_way()),
            },
            Action::Suspect(site, suspect) => {
                if self.world.is_up(*site) {
                    self.suspect(*site, *suspect);
                }
            }
            Action::Forget(site) => {
                if self.world.is_up(*site) && self.world.phase(*site) == Phase::Idle {
                    self.say(&format!("the state of {} is thrown away", self.names.of(*site)));
                    self.world.forget(*site);
                    self.after_step(*site, Step::default());
                }
            }
            Action::Wake(site, which) => self.wake(*site, *which),
            Action::Lose(selector) => match self.take_held(selector) {
                Some(place) => self.lose(place),
                None => self.overrides.push((selector.clone(), None)),
            },
            Action::Slow(selector, delay) => self.overrides.push((selector.clone(), Some(*delay))),
            Action::Cut(left, right, one_way) => {
                self.network.cut(left.clone(), right.clone(), *one_way, self.now);
                let sites = |sites: &[SiteId]| lockkeeper_core::mutex::list(sites, "no site");
                let arrow = if *one_way { "to" } else { "and" };
                let between = if *one_way { "from" } else { "between" };
                self.say(&format!("the way {between} {} {arrow} {} is cut", sites(left), sites(right)));
            }
            Action::Heal(left, right) => {
                self.network.heal(left, right, self.now);
                self.say("the cut heals");
            }
            Action::Remark(text) => self.say(text),
            // Scenarios of mutual exclusion have no elections.
            Action::Campaign(_) => {}
        }
    }

    pub(super) fn crash(&mut self, site: SiteId) {
        if !self.world.is_up(site) {
            return;
        }
        let was_waiting = self.world.phase(site) == Phase::Waiting;
        self.world.crash(site);
        self.observer.crash(site, was_waiting, self.now);
        self.incarnations[site.index()] += 1;
        self.first_inside.take_if(|first| *first == site);
        self.backlog[site.index()].clear();
        // The events that waited during the pause are dropped, since the site has crashed.
        for event in self.paused[site.index()].take().into_iter().flatten() {
            match event {
                Event::Arrive(place) => self.lose(place),
                Event::Request { .. } => self.requests_planned -= 1,
                _ => {}
            }
        }
        self.trace_bare(site, EventKind::Crash);
        self.detector.crashed(site, self.now);
        for other in SiteId::all(self.world.processes()).filter(|&other| other != site) {
            self.plan_suspicion(other, site);
        }
    }

    /// Plans the suspicion by which an oracle notifies a site of another's crash.
    pub(super) fn plan_suspicion(&mut self, site: SiteId, suspect: SiteId) {
        if let Some(delay) = self.detector.crash_noticed_after(self.spec.network.delay.typical()) {
            self.plan(self.now + delay, Event::Suspect { site, suspect });
        }
    }

    pub(super) fn recover(&mut self, site: SiteId) {
        if self.world.is_up(site) {
            return;
        }
        self.world.restart(site);
        self.busy_until[site.index()] = self.now;
        self.trace(site, EventKind::Recover);
        self.after_step(site, Step::default());
        for other in SiteId::all(self.world.processes()).filter(|&other| other != site) {
            if !self.world.is_up(other) {
                self.plan_suspicion(site, other);
            }
        }
        if self.spec.load.is_high() && site.index() < self.spec.sites && !self.load_is_done() {
            self.plan_request(self.now, site);
        }
    }

    fn wake(&mut self, site: SiteId, which: usize) {
        match self.world.armed(site).get(which) {
            Some(&timer) => self.timer(site, timer),
            None => self.say(&format!("({} has no such timer armed)", self.names.of(site))),
        }
    }

    pub(super) fn take_held(&mut self, selector: &MessageSelector) -> Option<usize> {
        let place = self.held.iter().position(|&place| self.is_meant(selector, &self.flights[place]))?;
        Some(self.held.remove(place))
    }
}
