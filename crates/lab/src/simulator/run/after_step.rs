//! The effects of a step: entries, messages, timers.

use super::{Event, Flight, Sim};
use crate::property::Property;
use crate::simulator::spec::Which;
use crate::simulator::time::Time;
use crate::simulator::world::{Envelope, Step};
use crate::trace::{Arrival, Stamp, What};
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{MutualExclusion, Rules, SiteId, Vocabulary};
use smallvec::SmallVec;
use std::fmt::Display;

impl<P: MutualExclusion> Sim<'_, P> {
    pub(super) fn after_step(&mut self, site: SiteId, step: Step) {
        for rule in &self.world.out.rules {
            self.rules[rule.index()] += 1;
        }
        if step.uninvited {
            let what = format!("{} entered without a request", self.names.of(site));
            self.violate(Property::Invariant, vec![site], what);
            self.stop = true;
            return;
        }
        if let Some(fence) = step.entered {
            self.events_since_entry = 0;
            self.observer.enter(site, fence, self.now);
            self.trace_bare(site, What::Enter { fence, mode: self.world.mode(site) });
            if self.is_held_inside() {
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

    /// Sends a message. `previous` is the stamp of the message before it in the same step.
    pub(super) fn send(
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

    pub(super) fn launch(&mut self, flight: Flight<P::Message>, tokens: i64) {
        let (now, from, to) = (self.now, flight.envelope.from, flight.envelope.to);
        if self.spec.by_hand {
            self.tokens_under_way += tokens;
            self.held.push(self.flights.insert(flight));
            return;
        }
        if let Some(delay) = self.take_override(&flight.envelope) {
            self.tokens_under_way += tokens;
            let place = self.flights.insert(flight);
            return match delay {
                Some(delay) => self.plan(now + delay, Event::Arrive(place)),
                None => self.lose(place),
            };
        }
        let mut arrivals: SmallVec<[Time; 2]> = SmallVec::new();
        self.network.send(now, from, to, |at| arrivals.push(at));
        let mut flight = Some(flight);
        // The last arrival takes the flight itself, the others take copies. Without an arrival it is lost.
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

    pub(super) fn take_override(&mut self, envelope: &Envelope<P::Message>) -> Option<Option<Time>> {
        let place = self.overrides.iter().position(|(which, _)| is_meant(which, envelope))?;
        Some(self.overrides.remove(place).1)
    }

    pub(super) fn lose(&mut self, place: usize) {
        let flight = self.flights.remove(place);
        self.tokens_under_way -= i64::from(P::tokens_in(&flight.envelope.message));
        if let (Some(tracer), Some(stamp)) = (&mut self.tracer, &flight.stamp) {
            let Envelope { from, to, message, .. } = &flight.envelope;
            tracer.lost(self.now, *to, Arrival { from: *from, stamp, message, sent: flight.sent });
        }
    }

    pub(super) fn change_timers(&mut self, site: SiteId) {
        let mut changes = std::mem::take(&mut self.world.out.timers);
        for change in changes.drain(..) {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            self.timers[site.index()].retain(|(known, _)| known != timer);
            if let TimerChange::Arm { timer, after_milli_t } = change {
                self.timer_generation += 1;
                let generation = self.timer_generation;
                self.timers[site.index()].push((timer, generation));
                if !self.spec.timers_by_hand {
                    let life = self.lives[site.index()];
                    let at = self.now + Time::from_milli_t(after_milli_t);
                    self.plan(at, Event::Timer { site, life, generation });
                }
            }
        }
        self.world.out.timers = changes;
    }
}

pub(super) fn is_meant<M: Vocabulary + Display>(which: &Which, envelope: &Envelope<M>) -> bool {
    let message = &envelope.message;
    // Message names in scenarios may be written in capitals.
    let named = |name: &String| {
        let text = message.to_string();
        M::WORDS[message.word()].name == name || text == *name || text.to_uppercase() == *name
    };
    which.from == envelope.from && which.to == envelope.to && which.name.as_ref().is_none_or(named)
}
