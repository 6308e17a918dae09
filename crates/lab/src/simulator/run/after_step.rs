//! The effects of a step: entries, messages, timers.

use super::{Event, Flight, Sim};
use crate::algorithm::{Outgoing, TimerId};
use crate::property::Property;
use crate::simulator::spec::MessageSelector;
use crate::simulator::time::Time;
use crate::simulator::world::Step;
use crate::trace::{Arrival, EventKind, Stamp};
use lockkeeper_core::SiteId;
use smallvec::SmallVec;

impl Sim<'_> {
    pub(super) fn after_step(&mut self, site: SiteId, step: Step) {
        for &rule in &self.world.effects.rules {
            self.rules[rule] += 1;
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
            self.trace_bare(site, EventKind::Enter { fence, mode: self.world.mode(site) });
            if self.is_held_inside() {
                self.first_inside = Some(site);
            } else {
                self.plan_exit(site);
            }
            self.stop |= self.observer.violations().iter().any(|v| v.property == Property::MutualExclusion);
        }
        if let Err(what) = self.world.effects.invariant {
            let what = format!("{}: {what}", self.names.of(site));
            self.violate(Property::Invariant, vec![site], what);
        }
        let fence = self.world.effects.fence;
        let mut stamp = None;
        for index in 0..self.world.effects.sends.len() {
            stamp = self.send(site, fence, self.world.effects.sends[index], stamp);
        }
        for index in 0..self.world.effects.armed.len() {
            self.plan_timer(site, self.world.effects.armed[index]);
        }
        if self.world.tokens() + self.tokens_under_way > 1 {
            self.violate(Property::Invariant, vec![site], "there is more than one token".into());
        }
    }

    /// Sends a message with the sender's fence clock. `previous` is the stamp of the message before it in the
    /// same step.
    pub(super) fn send(
        &mut self,
        from: SiteId,
        fence: u64,
        sent: Outgoing,
        previous: Option<Stamp>,
    ) -> Option<Stamp> {
        let Outgoing { to, message, kind, tokens, bytes } = sent;
        self.observer.send(from, kind, bytes);
        let now = self.now;
        let stamp = self.tracer.as_mut().map(|tracer| tracer.stamp(from, previous));
        let piggyback = self.observer.piggyback(from);
        self.launch(Flight {
            from,
            to,
            message,
            kind,
            tokens,
            fence,
            sent: now,
            piggyback,
            stamp: stamp.clone(),
            in_service: false,
        });
        stamp
    }

    pub(super) fn launch(&mut self, flight: Flight) {
        let (now, from, to) = (self.now, flight.from, flight.to);
        if self.spec.by_hand {
            let place = self.take_off(flight);
            self.held.push(place);
            return;
        }
        if let Some(delay) = self.take_override(&flight) {
            let place = self.take_off(flight);
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
            let copy = if left == 0 {
                flight.take()
            } else {
                flight.as_ref().map(|flight| flight.copy(self.world.copy(flight.message)))
            };
            if let Some(copy) = copy {
                let place = self.take_off(copy);
                self.plan(at, Event::Arrive(place));
            }
        }
        if let Some(lost) = flight {
            let place = self.take_off(lost);
            self.lose(place);
        }
    }

    pub(super) fn take_off(&mut self, flight: Flight) -> usize {
        self.tokens_under_way += i64::from(flight.tokens);
        self.flights.insert(flight)
    }

    fn take_override(&mut self, flight: &Flight) -> Option<Option<Time>> {
        let place = self.overrides.iter().position(|(selector, _)| self.is_meant(selector, flight))?;
        Some(self.overrides.remove(place).1)
    }

    /// Whether a script's description of a message fits this one.
    pub(super) fn is_meant(&self, selector: &MessageSelector, flight: &Flight) -> bool {
        let text = || self.world.message(flight.message).to_string();
        selector.selects((flight.from, flight.to), self.kinds[flight.kind].name, text)
    }

    pub(super) fn lose(&mut self, place: usize) {
        let Flight { from, to, message, tokens, sent, stamp, .. } = self.flights.remove(place);
        self.tokens_under_way -= i64::from(tokens);
        if let (Some(tracer), Some(stamp)) = (&mut self.tracer, &stamp) {
            let message = self.world.message(message);
            tracer.lost(self.now, to, Arrival { from, stamp, message, sent });
        }
        self.world.discard(message);
    }

    pub(super) fn plan_timer(&mut self, site: SiteId, (timer, after_milli_t): (TimerId, u64)) {
        if !self.spec.timers_by_hand {
            let incarnation = self.incarnations[site.index()];
            let at = self.now + Time::from_milli_t(after_milli_t);
            self.plan(at, Event::Timer { site, incarnation, timer });
        }
    }
}
