//! The actions of a script on single messages, timers and sites.

use super::{Event, Flight, Sim};
use crate::algorithm::Event as Cause;
use crate::simulator::spec::{Action, MessageSelector};
use crate::simulator::time::Time;
use crate::trace::{EventKind, Held};
use lockkeeper_core::{Campaign, SiteId};

impl Sim<'_> {
    pub(super) fn act_by_hand(&mut self, action: &Action) {
        match action {
            Action::Campaign(site) => self.campaign(*site),
            Action::Suspect(site, suspect) if self.electorate.is_up(*site) => {
                self.suspect(*site, *suspect);
            }
            Action::Wake(site, which) => self.wake(*site, *which),
            Action::Deliver(selector) | Action::Duplicate(selector) => match self.take_held(selector) {
                Some(place) => {
                    if matches!(action, Action::Duplicate(_)) {
                        let again = self.flights[place].clone();
                        self.held.insert(0, self.flights.insert(again));
                    }
                    self.arrive(place);
                }
                None => self.say(&selector.not_under_way()),
            },
            Action::Lose(selector) => match self.take_held(selector) {
                Some(place) => self.lose(place),
                None => self.overrides.push((selector.clone(), None)),
            },
            Action::Slow(selector, delay) => self.overrides.push((selector.clone(), Some(*delay))),
            Action::Remark(text) => self.say(text),
            // The other actions are in the caller, or belong to mutual exclusion.
            _ => {}
        }
    }

    pub(super) fn campaign(&mut self, site: SiteId) {
        if self.can_act(site, Event::Campaign(site)) {
            self.step(site, &Cause::Input(Campaign), EventKind::Campaign);
        }
    }

    /// The first of a site's armed timers, in the order of the algorithm's timers, expires for `which = 0`.
    fn wake(&mut self, site: SiteId, which: usize) {
        let timers = &mut self.timers[site.index()];
        timers.sort();
        if which >= timers.len() {
            return self.say(&format!("({site} has no such timer armed)"));
        }
        let (timer, generation) = timers[which].clone();
        if self.can_act(site, Event::Timer { site, generation }) {
            self.timers[site.index()].remove(which);
            self.step(site, &Cause::Timer(timer), EventKind::Timer);
        }
    }

    fn is_meant(&self, selector: &MessageSelector, flight: &Flight) -> bool {
        let kind = self.election.algorithm().kinds()[flight.message.kind()].name;
        selector.selects((flight.from, flight.to), kind, || flight.message.to_string())
    }

    fn take_held(&mut self, selector: &MessageSelector) -> Option<usize> {
        let place = self.held.iter().position(|&place| self.is_meant(selector, &self.flights[place]))?;
        Some(self.held.remove(place))
    }

    /// The script's instruction for a message that is being sent, if there is one.
    pub(super) fn take_override(&mut self, flight: &Flight) -> Option<Option<Time>> {
        let place = self.overrides.iter().position(|(selector, _)| self.is_meant(selector, flight))?;
        Some(self.overrides.remove(place).1)
    }

    /// The messages that wait for the script to deliver them.
    pub(super) fn held_messages(&self) -> Vec<Held> {
        let held = |&place: &usize| {
            let Flight { from, to, ref message, .. } = self.flights[place];
            Held { from, to, text: message.to_string() }
        };
        self.held.iter().map(held).collect()
    }

    /// Whether nothing has to happen any more in a run that is driven by hand: no message can arrive, no timer is
    /// armed, and every site has noticed all crashes.
    pub(super) fn is_at_rest(&self) -> bool {
        let arrives = |&place: &usize| {
            let Flight { from, to, .. } = self.flights[place];
            self.electorate.is_up(to) && !self.network.is_cut(from, to, self.now)
        };
        let unnoticed = |&(site, crashed): &(SiteId, SiteId)| {
            self.electorate.is_up(site) && !self.electorate.is_up(crashed)
        };
        !self.held.iter().any(arrives)
            && self.timers.iter().all(Vec::is_empty)
            && !self.unnoticed.iter().any(unnoticed)
    }
}
