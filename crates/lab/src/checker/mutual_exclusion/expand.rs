//! The successors of a global state.

use super::machine::{Fault, Violation};
use super::net::{Action, Explorer, channel};
use super::seen::dearer;
use crate::checker::explore::{Goals, Next, Worker};
use crate::checker::tla;
use crate::property::Property;
use lockkeeper_core::SiteId;

impl Worker for Explorer<'_> {
    type Action = Action;
    type Violation = Violation;
    type Property = Property;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let (locals, sent) = self.net.kernel.start();
        let machines = self.machines;
        self.next.fill(0);
        self.next[..machines].copy_from_slice(&locals);
        for (from, to, envelope) in sent {
            let place = channel(machines, from, to);
            self.next[machines + place] = self.push(place, self.next[machines + place], envelope);
        }
        found(&self.next);
    }

    fn expand(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> Option<Violation> {
        self.seen.expanded += 1;
        self.stands_for = 1.0;
        // Quiet: without a new request or a fault, no machine can take another step.
        let mut quiet = true;
        for who in 0..self.machines {
            quiet &= if self.net.reduced {
                self.expand_after_silence(state, tallies, who, found)
            } else {
                self.expand_machine(state, tallies, who, found)
            };
        }
        self.seen.stood_for += self.stands_for;
        if quiet { self.when_quiet(state, tallies) } else { None }
    }

    fn property(violation: &Violation) -> Property {
        violation.property
    }

    fn describe(&mut self, _from: &[u32], action: &Action) -> Vec<String> {
        vec![self.net.describe(action)]
    }

    /// The goals are the entries of the machines that wait.
    fn pending(&mut self, state: &[u32]) -> Goals {
        self.waiting(state)
    }

    /// Fair runs deliver messages, leave, and handle timers. On a FIFO channel the fair action is "deliver the
    /// head", independent of the message at the head.
    fn fair_action(&self, action: &Action) -> Option<u64> {
        let (from, to, what) = match *action {
            Action::Deliver(from, to, envelope) => (from, to, if self.traits.fifo { 0 } else { envelope }),
            Action::Choice(who, choice) if choice.fault.is_none() && !choice.free => (who, who, choice.code),
            _ => return None,
        };
        Some((from as u64) << 48 | (to as u64) << 32 | u64::from(what))
    }

    fn unreached(&self, goal: usize) -> Violation {
        let victim = SiteId::new(goal);
        let what = format!("{victim} waits for ever while the others enter again and again");
        Violation { property: Property::NoStarvation, sites: vec![victim], what }
    }
}

impl tla::Sites for Explorer<'_> {
    fn inside(&mut self, state: &[u32]) -> Vec<usize> {
        (0..self.machines).filter(|&who| self.facts(who, state[who]).inside).collect()
    }

    fn waiting_sites(&mut self, state: &[u32]) -> Vec<usize> {
        (0..self.machines).filter(|&who| self.facts(who, state[who]).waiting).collect()
    }
}

impl Explorer<'_> {
    /// Passes to `found` every step of a machine except silent deliveries. Returns whether the machine is at
    /// rest: no message is under way to it, and it takes no step unless it requests.
    #[inline]
    pub(super) fn expand_machine(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> bool {
        let machines = self.machines;
        let mut quiet = true;
        for which in 0..self.choices(who, state[who]) {
            let (choice, outcome) = self.choice(who, state[who], which);
            if self.outcomes[outcome as usize].idle {
                continue;
            }
            // A suspicion of a crashed machine is correct and free; one of a live machine is a fault.
            let fault = match choice.suspects {
                Some(other) if self.facts(other, state[other]).down => None,
                Some(_) => Some(Fault::Suspicion),
                None => choice.fault,
            };
            let spent = match fault {
                Some(fault) => match self.spend(state, fault) {
                    None => continue,
                    spent => spent,
                },
                None => None,
            };
            // Requests and faults are optional, so a state in which only they are possible is quiet.
            quiet &= fault.is_some() || choice.free;
            self.seen.rules |= self.outcomes[outcome as usize].step.effect.rules;
            let violation = self.apply(state, tallies, who, outcome, None);
            if let Some(spent) = spent {
                self.next[machines * machines] = spent;
            }
            let beyond = self.too_far || self.outcomes[outcome as usize].step.beyond;
            let (state, tallies) = (&*self.next, &*self.next_tallies);
            found(Next { action: Action::Choice(who, choice), state, tallies, violation, beyond });
        }
        for from in (0..machines).filter(|&from| from != who) {
            let place = channel(machines, from, who);
            let content = state[machines + place];
            if content == 0 {
                continue;
            }
            quiet = false;
            for which in 0..self.heads(place, content) {
                self.deliver(state, tallies, (from, who, which), found);
            }
        }
        quiet
    }

    #[inline]
    fn deliver(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        (from, to, which): (usize, usize, usize),
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) {
        let machines = self.machines;
        let place = channel(machines, from, to);
        let content = state[machines + place];
        let (envelope, rest) = self.head(place, content, which);
        let outcome = self.delivery(from, to, state[to], envelope);
        if !self.outcomes[outcome as usize].silent {
            let violation = self.apply(state, tallies, to, outcome, Some((place, rest)));
            let beyond = self.too_far || self.outcomes[outcome as usize].step.beyond;
            let action = Action::Deliver(from, to, envelope);
            found(Next { action, state: &self.next, tallies: &self.next_tallies, violation, beyond });
        }
        // A duplicate is a delivery that leaves the message in its channel.
        if let Some(spent) = self.spend(state, Fault::Duplicate) {
            let violation = self.apply(state, tallies, to, outcome, None);
            self.next[machines * machines] = spent;
            let action = Action::Duplicate(from, to, envelope);
            let beyond = self.too_far || self.outcomes[outcome as usize].step.beyond;
            found(Next { action, state: &self.next, tallies: &self.next_tallies, violation, beyond });
        }
        // A loss removes the message without a step of the receiver.
        if let Some(spent) = self.spend(state, Fault::Loss) {
            self.next.copy_from_slice(state);
            self.next[machines + place] = rest;
            self.next[machines * machines] = spent;
            let action = Action::Lose(from, to, envelope);
            found(Next { action, state: &self.next, tallies, violation: None, beyond: false });
        }
    }

    /// Checks a quiet state: nothing more happens unless a site requests.
    pub(super) fn when_quiet(&mut self, state: &[u32], tallies: &[u8]) -> Option<Violation> {
        let mut waiting = Vec::new();
        let mut entries = 0;
        for (who, &local) in state[..self.machines].iter().enumerate() {
            let facts = self.facts(who, local);
            entries += facts.entries;
            if facts.waiting {
                waiting.push(SiteId::new(who));
            }
        }
        if !waiting.is_empty() {
            let names = lockkeeper_core::mutex::list(&waiting, "");
            let verb = if waiting.len() == 1 { "waits" } else { "wait" };
            let what = format!("nothing can happen any more, unless others ask, and {names} {verb}");
            // A deadlock is also starvation. It is reported as a deadlock unless only starvation is checked.
            let asked = self.traits.only.unwrap_or(Property::NoDeadlock);
            let wanted = asked.is_violated_by(Property::NoDeadlock);
            return wanted.then_some(Violation { property: asked, sites: waiting, what });
        }
        if let (Some(most), Some(&messages)) = (self.net.most_messages, state.last())
            && entries > 0
            && messages > most * entries
        {
            let what = format!(
                "{messages} messages for {entries} entries, but the bound of the paper is {most} for each"
            );
            return Some(Violation { property: Property::MessageBound, sites: Vec::new(), what });
        }
        if entries > 0 && self.traits.tallied.messages {
            let run = tallies.last().map(|&messages| (messages, entries));
            self.seen.dearest = dearer(self.seen.dearest, run);
        }
        None
    }
}
