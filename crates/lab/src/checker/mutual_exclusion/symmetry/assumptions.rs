//! The assumptions of the search by symmetry, verified for each local step that it computes.
//!
//! | assumption | test |
//! |---|---|
//! | a step does not depend on the names of the machines | the same step with the machines renamed, in every way |
//! | only the order of requests matters, by (time, site) | the same step with two requests at equal times, where their sites keep the order; and with requests further apart |
//! | a clock decides nothing but the times of later requests and messages | the same step with the clock advanced |
//! | of a message's time, only whether it is later than the receiver's request matters | the same step with an earlier and a later time |
//!
//! Example: a mutant of the bakery compares tickets by their numbers alone. In the search, all tickets differ, so that it
//! would never meet the defect. But a site with ticket 8 that receives AWAIT-TURN(16) waits, and with AWAIT-TURN(8) from a
//! higher site it answers: the assumption does not hold, and the search is not used.

use super::super::machine::{Cause, Effect, Machines};
use super::{APART, just_after};
use lockkeeper_core::{SiteId, Stamp};

/// The result of a step: the state after it, the messages, and the effects that the properties depend on.
#[derive(PartialEq)]
struct Outcome<L, E> {
    local: L,
    /// Receiver and message, sorted: the order of messages to different machines means nothing.
    sends: Vec<(usize, E)>,
    effect: (bool, bool, bool, bool, u128, bool),
}

type OutcomeOf<S> = Outcome<<S as Machines>::Local, <S as Machines>::Envelope>;
/// A state and the message that arrives, with its sender.
type BeforeOf<'a, S> = (<S as Machines>::Local, Option<(usize, <S as Machines>::Envelope)>);

/// Whether a step satisfies the assumptions.
pub(in super::super) fn hold<S: Machines>(
    system: &S,
    who: usize,
    local: &S::Local,
    cause: &Cause<'_, S::Envelope>,
) -> bool {
    let (choice, message) = match *cause {
        Cause::Choice(code) => (code, None),
        Cause::Message(from, envelope) => (0, Some((from, envelope.clone()))),
    };
    let test = Test { system, who, choice, before: (local.clone(), message) };
    let expected = test.run(who, &test.before);
    test.ignores_names(&expected)
        && test.ignores_distances(&expected)
        && test.ignores_clock(&expected)
        && test.ignores_time_of_message(&expected)
}

struct Test<'a, S: Machines> {
    system: &'a S,
    who: usize,
    choice: u32,
    before: BeforeOf<'a, S>,
}

impl<S: Machines> Test<'_, S> {
    fn run(&self, who: usize, before: &BeforeOf<'_, S>) -> OutcomeOf<S> {
        let (mut local, message) = before.clone();
        let cause = match &message {
            None => Cause::Choice(self.choice),
            Some((from, envelope)) => Cause::Message(*from, envelope),
        };
        let step = self.system.step(who, &mut local, cause);
        self.system.settle(&mut local);
        // Sets the numbers to 0 that no longer matter.
        self.system.stamps(&mut local, &mut |_| {});
        let Effect { entered, exited, asked, crashed, rules, wrong, .. } = step.effect;
        let mut sends = step.sends;
        sends.sort();
        Outcome { local, sends, effect: (entered.is_some(), exited, asked, crashed, rules, wrong.is_some()) }
    }

    fn ignores_names(&self, expected: &OutcomeOf<S>) -> bool {
        permutations(self.system.machines()).iter().all(|to| {
            let rename = |site: SiteId| SiteId::new(to[site.index()]);
            let (mut local, message) = self.before.clone();
            self.system.rename(&mut local, &rename);
            let message = message.map(|(from, envelope)| (to[from], envelope));
            let found = self.run(to[self.who], &(local, message));
            let mut local = expected.local.clone();
            self.system.rename(&mut local, &rename);
            let mut sends: Vec<_> =
                expected.sends.iter().map(|(receiver, envelope)| (to[*receiver], envelope.clone())).collect();
            sends.sort();
            found == Outcome { local, sends, effect: expected.effect }
        })
    }

    fn ignores_distances(&self, expected: &OutcomeOf<S>) -> bool {
        let (mut requests, mut others) = (Vec::new(), Vec::new());
        self.visit(&mut self.before.clone(), &mut |stamp| match stamp {
            Stamp::Request(time, site) => requests.push((*time, site)),
            Stamp::Clock(time) | Stamp::Bound(time) | Stamp::Message(time) => others.push(*time),
        });
        requests.sort_unstable();
        requests.dedup();
        let further = requests.iter().all(|&(time, _)| {
            self.is_same_after(expected, &|other: &mut u64| *other += if *other >= time { APART } else { 0 })
        });
        let equal = requests.windows(2).all(|pair| {
            let ((first, site), (second, other_site)) = (pair[0], pair[1]);
            let between = others.iter().any(|time| (first..=second).contains(time));
            site > other_site
                || between
                || self.is_same_after(expected, &|other: &mut u64| {
                    *other -= if *other >= second { second - first } else { 0 };
                })
        });
        further && equal
    }

    /// Whether the step with other times is the step with these other times in its outcome.
    fn is_same_after(&self, expected: &OutcomeOf<S>, change: &dyn Fn(&mut u64)) -> bool {
        let mut before = self.before.clone();
        let mut visit = |stamp: Stamp<'_>| change(time_of(stamp));
        self.visit(&mut before, &mut visit);
        let mut wanted =
            Outcome { local: expected.local.clone(), sends: expected.sends.clone(), effect: expected.effect };
        self.visit_outcome(&mut wanted, &mut visit);
        self.run(self.who, &before) == wanted
    }

    fn ignores_clock(&self, expected: &OutcomeOf<S>) -> bool {
        let advance = |stamp: Stamp<'_>| {
            if let Stamp::Clock(time) = stamp {
                *time += 100 * APART;
            }
        };
        let mut before = self.before.clone();
        self.system.stamps(&mut before.0, &mut { advance });
        self.without_new_times(self.run(self.who, &before)) == self.without_new_times(self.copy(expected))
    }

    fn ignores_time_of_message(&self, expected: &OutcomeOf<S>) -> bool {
        let Some((from, envelope)) = &self.before.1 else { return true };
        let facts = self.system.facts(self.who, &self.before.0);
        let own = facts.timestamp.filter(|_| facts.waiting).map_or(0, |own| own.time);
        let mut before = self.before.clone();
        let mut other = envelope.clone();
        self.system.stamps_in(*from, &mut other, &mut |stamp| {
            if let Stamp::Message(time) = stamp {
                *time = if own > 0 && *time > own { just_after(own + APART) } else { own.saturating_sub(1) };
            }
        });
        before.1 = Some((*from, other));
        self.without_new_times(self.run(self.who, &before)) == self.without_new_times(self.copy(expected))
    }

    fn copy(&self, outcome: &OutcomeOf<S>) -> OutcomeOf<S> {
        Outcome { local: outcome.local.clone(), sends: outcome.sends.clone(), effect: outcome.effect }
    }

    /// The outcome without clocks, the times of messages, and the time of a new request.
    fn without_new_times(&self, mut outcome: OutcomeOf<S>) -> OutcomeOf<S> {
        let mut known = Vec::new();
        self.visit(&mut self.before.clone(), &mut |stamp| {
            if let Stamp::Request(time, _) = stamp {
                known.push(*time);
            }
        });
        self.visit_outcome(&mut outcome, &mut |stamp| match stamp {
            Stamp::Request(time, _) if known.contains(time) => {}
            other => *time_of(other) = u64::MAX,
        });
        outcome
    }

    fn visit(&self, (local, message): &mut BeforeOf<'_, S>, visit: &mut dyn FnMut(Stamp<'_>)) {
        self.system.stamps(local, visit);
        if let Some((from, envelope)) = message {
            self.system.stamps_in(*from, envelope, visit);
        }
    }

    fn visit_outcome(&self, outcome: &mut OutcomeOf<S>, visit: &mut dyn FnMut(Stamp<'_>)) {
        self.system.stamps(&mut outcome.local, visit);
        for (_, envelope) in &mut outcome.sends {
            self.system.stamps_in(self.who, envelope, visit);
        }
        outcome.sends.sort();
    }
}

fn time_of(stamp: Stamp<'_>) -> &mut u64 {
    match stamp {
        Stamp::Request(time, _) | Stamp::Clock(time) | Stamp::Bound(time) | Stamp::Message(time) => time,
    }
}

/// All permutations of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |start: &Vec<usize>| {
            let rest = (0..count).filter(|number| !start.contains(number));
            rest.map(|number| [&start[..], &[number]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_six_permutations_of_three() {
        let all = super::permutations(3);
        assert_eq!(all.len(), 6);
        assert!(all.contains(&vec![2, 0, 1]));
    }
}
