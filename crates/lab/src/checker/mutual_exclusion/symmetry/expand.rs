//! The successors of a state of a [`Symmetric`](super::Symmetric) system.

use super::super::machine::Violation;
use super::super::net::{Action, channel};
use super::commute::{OwnStep, outcome_of};
use super::{APART, HALF, Symmetrical, just_after};
use crate::checker::explore::{Next, Worker};
use crate::property::Property;
use lockkeeper_core::Stamp;

impl Worker for Symmetrical<'_> {
    type Action = Action;
    type Violation = Violation;
    type Property = Property;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let Self { explorer, canonical, .. } = self;
        let tallies = vec![0; explorer.next_tallies.len()];
        let mut starts = Vec::new();
        explorer.start(&mut |state| starts.extend_from_slice(state));
        canonical.form(explorer, &starts, &tallies, |state, _| found(state));
    }

    fn expand(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> Option<Violation> {
        self.explorer.seen.expanded += 1;
        let requests = u64::from(self.canonical.requests_in(&self.explorer, state).count_ones());
        let mut quiet = true;
        for who in 0..self.explorer.machines {
            quiet &= self.expand_machine(state, tallies, who, requests, found);
        }
        if quiet { self.explorer.when_quiet(state, tallies) } else { None }
    }

    fn property(violation: &Violation) -> Property {
        violation.property
    }

    fn describe(&mut self, from: &[u32], action: &Action) -> Vec<String> {
        self.explorer.describe(from, action)
    }

    fn unreached(&self, goal: usize) -> Violation {
        self.explorer.unreached(goal)
    }
}

impl Symmetrical<'_> {
    /// Passes to `found` every step of a machine that is not silent, after the silent deliveries that it depends on.
    /// Returns whether the machine can come to rest by silent deliveries alone.
    fn expand_machine(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        requests: u64,
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> bool {
        self.prefixes.find(&mut self.explorer, state, who);
        let machines = self.explorer.machines;
        let mut quiet = false;
        let mut here = std::mem::take(&mut self.here);
        for prefix in 0..self.prefixes.all.len() {
            let local = self.prefixes.all[prefix].local;
            here.clear();
            here.extend_from_slice(state);
            here[who] = local;
            let mut at_rest = true;
            for from in (0..machines).filter(|&from| from != who) {
                let content = self.prefixes.all[prefix].channels[from];
                here[machines + channel(machines, from, who)] = content;
                at_rest &= content == 0;
            }
            for which in 0..self.explorer.choices(who, local) {
                let (choice, outcome) = self.explorer.choice(who, local, which);
                // Without faults, no site is suspected or crashes.
                let faulty = choice.fault.is_some() || choice.suspects.is_some();
                if faulty || self.explorer.outcomes[outcome as usize].idle {
                    continue;
                }
                at_rest &= choice.free;
                self.explorer.seen.rules |= self.explorer.outcomes[outcome as usize].step.effect.rules;
                let step = (OwnStep::Choice(choice.code), Action::Choice(who, choice));
                self.take((&here, tallies), (who, prefix), requests, step, outcome, found);
            }
            quiet |= at_rest;
            for from in (0..machines).filter(|&from| from != who) {
                let place = channel(machines, from, who);
                let content = here[machines + place];
                for which in 0..if content == 0 { 0 } else { self.explorer.heads(place, content) } {
                    let (envelope, rest) = self.explorer.head(place, content, which);
                    let outcome = self.explorer.delivery(from, who, local, envelope);
                    if !self.explorer.outcomes[outcome as usize].silent {
                        let step =
                            (OwnStep::Delivery(from, envelope, rest), Action::Deliver(from, who, envelope));
                        self.take((&here, tallies), (who, prefix), requests, step, outcome, found);
                    }
                }
            }
        }
        self.here = here;
        quiet
    }

    /// Takes a step with every relevant time of the clock.
    fn take(
        &mut self,
        (here, tallies): (&[u32], &[u8]),
        (who, prefix): (usize, usize),
        requests: u64,
        (step, action): (OwnStep, Action),
        outcome: u32,
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) {
        let new_request = self.new_request(who, outcome);
        let mut times = std::mem::take(&mut self.times);
        times.clear();
        match new_request {
            // The request is placed behind each of the requests that precede it, or may precede it.
            Some(time) => {
                times.extend((time / APART..=requests).map(|before| APART * before + HALF - 1));
            }
            None => self.later_times(here, who, outcome, &mut times),
        }
        if new_request.is_none() {
            self.take_at((here, tallies), (who, prefix), (step, None), action, None, found);
        }
        for &time in &times {
            let placed = new_request.map(|_| time + 1);
            self.take_at((here, tallies), (who, prefix), (step, Some(time)), action, placed, found);
        }
        self.times = times;
    }

    /// The time of a request that is made in a step: it is between those of two requests of the canonical state.
    fn new_request(&mut self, who: usize, outcome: u32) -> Option<u64> {
        if let Some(&known) = self.new_requests.get(outcome) {
            return known;
        }
        let local = self.explorer.outcomes[outcome as usize].step.local;
        let mut new = None;
        let net = self.explorer.net;
        net.kernel.stamps(who, local, &mut |stamp| {
            if let Stamp::Request(time, _) = stamp
                && !time.is_multiple_of(APART)
            {
                new = Some(*time);
            }
        });
        *self.new_requests.insert(outcome, new)
    }

    /// The times of the clock with which a message of a step becomes later than its receiver's own request, although the
    /// sender has not seen that request.
    fn later_times(&mut self, here: &[u32], who: usize, outcome: u32, times: &mut Vec<u64>) {
        for which in 0..self.explorer.outcomes[outcome as usize].step.sends.len() {
            let (to, envelope) = self.explorer.outcomes[outcome as usize].step.sends[which];
            let own = self.canonical.own_request(&mut self.explorer, to as usize, here[to as usize]);
            let own = u64::from(own) * HALF;
            let earlier = self.message_time(who, envelope).is_some_and(|time| time < own);
            if earlier && !times.contains(&just_after(own)) {
                times.push(just_after(own));
            }
        }
    }

    /// The time of a message that its receiver compares with its own request.
    fn message_time(&mut self, from: usize, envelope: u32) -> Option<u64> {
        if let Some(&known) = self.message_times.get(envelope) {
            return known;
        }
        let mut found = None;
        let net = self.explorer.net;
        net.kernel.stamps_in(from, envelope, &mut |stamp| {
            if let Stamp::Message(time) = stamp {
                found = Some(*time);
            }
        });
        *self.message_times.insert(envelope, found)
    }

    /// Takes a step after the clock has advanced to a time. `placed` is the time of the request that the step makes.
    fn take_at(
        &mut self,
        (here, tallies): (&[u32], &[u8]),
        (who, prefix): (usize, usize),
        (step, time): (OwnStep, Option<u64>),
        action: Action,
        placed: Option<u64>,
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) {
        let Self { explorer, canonical, prefixes, rows, .. } = self;
        let mut local = here[who];
        if let Some(time) = time {
            local = canonical.raised(explorer, who, local, time);
        }
        let Some(outcome) = outcome_of(explorer, who, local, step) else { return };
        if prefixes.is_deferrable(explorer, canonical, who, prefix, (step, time), outcome) {
            return;
        }
        let popped = match step {
            OwnStep::Choice(_) => None,
            OwnStep::Delivery(from, _, rest) => Some((channel(explorer.machines, from, who), rest)),
        };
        let violation = explorer.apply(here, tallies, who, outcome, popped);
        rows.clear();
        rows.extend_from_slice(&explorer.next);
        if let Some(time) = placed {
            place_among_messages(explorer, canonical, who, time, rows);
        }
        let tallies = explorer.next_tallies.clone();
        for row in rows.chunks_exact(here.len()) {
            canonical.form(explorer, row, &tallies, |state, tallies| {
                found(Next { action, state, tallies, violation: violation.clone(), beyond: false });
            });
        }
    }
}

/// Replaces the state in `rows` by one for each way to place a new request among the messages under way to its site.
fn place_among_messages(
    explorer: &super::Explorer<'_>,
    canonical: &mut super::Canonical,
    who: usize,
    time: u64,
    rows: &mut Vec<u32>,
) {
    let machines = explorer.machines;
    let slots = rows.len();
    for from in (0..machines).filter(|&from| from != who) {
        let place = channel(machines, from, who);
        let placements = canonical.placements(explorer, place, rows[machines + place], time);
        if let [(content, false)] = placements[..] {
            rows.chunks_exact_mut(slots).for_each(|row| row[machines + place] = content);
            continue;
        }
        let before = std::mem::take(rows);
        for row in before.chunks_exact(slots) {
            for &(content, raises) in &placements {
                let start = rows.len();
                rows.extend_from_slice(row);
                rows[start + machines + place] = content;
                if raises {
                    rows[start + from] =
                        canonical.raised_at_rest(explorer, from, row[from], just_after(time));
                }
            }
        }
    }
}
