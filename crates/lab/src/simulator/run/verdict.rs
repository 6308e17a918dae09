//! Violations of progress, reports of waiting sites, and trace output.

use super::Sim;
use crate::algorithm::Outgoing;
use crate::property::{Property, Violation};
use crate::simulator::world::World;
use crate::trace::{EventKind, Sent};
use lockkeeper_core::mutex::Family;
use lockkeeper_core::{Phase, SiteId};
use smallvec::SmallVec;

impl Sim<'_> {
    pub(super) fn violate(&mut self, property: Property, sites: Vec<SiteId>, what: String) {
        self.observer.violated(Violation { property, at: self.now, sites, what });
    }

    /// Reports starvation if no site enters for a large number of events although one waits.
    pub(super) fn watch_for_stalls(&mut self) {
        self.events_since_entry += 1;
        let processes = self.world.processes() as u64;
        let most_events = 1_000_000 + 100 * processes.min(10_000).pow(2);
        if self.observer.waiting() == 0 {
            self.events_since_entry = 0;
        } else if self.events_since_entry > most_events {
            let waiting = self.waiting_sites();
            let what = format!("{most_events} events without an entry; {}", self.who_waits_for_whom());
            self.violate(Property::NoStarvation, waiting, what);
            self.stop = true;
        }
    }

    pub(super) fn check_for_deadlock(&mut self) {
        // In a scripted run, undelivered messages and sites inside are only waiting for the script: not a
        // deadlock.
        let some_site_inside =
            || SiteId::all(self.spec.sites).any(|site| self.world.phase(site) == Phase::Inside);
        let over = (!self.spec.by_hand || self.flights.is_empty())
            && (self.spec.cs.is_some() || !some_site_inside())
            && (!self.spec.timers_by_hand || !self.is_some_timer_armed());
        if self.observer.waiting() > 0 && over && self.nothing_can_happen() {
            let what = format!("nothing can happen any more; {}", self.who_waits_for_whom());
            let waiting = self.waiting_sites();
            self.violate(Property::NoDeadlock, waiting, what);
        }
    }

    fn is_some_timer_armed(&self) -> bool {
        SiteId::all(self.world.processes()).any(|site| !self.world.armed(site).is_empty())
    }

    pub(super) fn waiting_sites(&self) -> Vec<SiteId> {
        SiteId::all(self.spec.sites).filter(|&site| self.world.phase(site) == Phase::Waiting).collect()
    }

    pub(super) fn who_waits_for_whom(&self) -> String {
        const MOST: usize = 12;
        let status = |site: SiteId| match (self.world.is_up(site), self.world.phase(site)) {
            (false, _) => " (crashed)",
            (true, Phase::Inside) => " (inside)",
            (true, _) if self.paused[site.index()].is_some() => " (paused)",
            _ => "",
        };
        let waits =
            SiteId::all(self.world.processes()).filter(|&site| self.world.is_up(site)).filter_map(|site| {
                let for_whom = self.world.state(site).waits_for();
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
        let lost = if self.world.tokens() + self.tokens_under_way == 0 && self.about.family == Family::Token {
            "; the token is lost"
        } else {
            ""
        };
        waits.join("; ") + lost
    }

    /// Traces a step with the rules that fired and the messages sent.
    pub(super) fn trace(&mut self, site: SiteId, what: EventKind<'_>) {
        if let Some(tracer) = &mut self.tracer {
            let (why, sends) = step_in_words(&self.world, &self.sentences);
            tracer.local(self.now, site, what, &why, &sends);
        }
    }

    /// Traces an event that is not a step of the algorithm.
    pub(super) fn trace_bare(&mut self, site: SiteId, what: EventKind<'_>) {
        if let Some(tracer) = &mut self.tracer {
            tracer.local(self.now, site, what, &[], &[]);
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        if let Some(tracer) = &mut self.tracer {
            tracer.say(self.now, text);
        }
    }
}

/// The rules that fired in a step, and the messages that it sent.
pub(super) fn step_in_words<'w>(
    world: &'w World,
    sentences: &[&'static str],
) -> (SmallVec<[&'static str; 4]>, SmallVec<[Sent<'w>; 4]>) {
    let why = world.effects.rules.iter().map(|&rule| sentences[rule]).collect();
    let sent = |sent: &Outgoing| Sent { to: sent.to, message: world.message(sent.message) };
    let sends = world.effects.sends.iter().map(sent).collect();
    (why, sends)
}
