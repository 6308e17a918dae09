//! Partial-order reduction: steps of different machines commute, so not every order of them has to be tried.
//!
//! A step concerns one machine: it takes a message from a channel to that machine and appends to channels from it. Two
//! steps of different machines can therefore be taken in either order, and lead to the same state. In a state it is
//! enough to try every step of a *closed* group of machines, if
//! - no step of the group is seen by others: nobody enters, leaves or stops by it. So what is wrong in some order of
//!   the steps is wrong in an order that is tried; how many pass a waiting machine stays the same, too;
//! - no machine outside can send to one of the group before the group moves, or only behind what is on its way in the
//!   same channel already: then whatever the others do, the group's next steps stay as they are;
//! - the group can do something else than ask: so a state in which nothing happens unless somebody asks is not passed by.
//!
//! Whether a machine can send to another before hearing from the group is answered from the local steps that were seen
//! in the searches before ([`Sends`]). The first search knows of none and skips too much; the search is repeated until
//! it sees no step that had not been seen before. Then nothing was skipped wrongly: take a shortest run that
//! ends with a local step never seen. All steps before its last were seen, so the answers that the search relied on are
//! right about them, and moving the group's steps to the front of the run gives, step by step, one that the search took.

use super::net::{Explorer, Outcome, channel};
use std::collections::BTreeSet;

/// A local step, as far as others are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalStep {
    before: u32,
    after: u32,
    /// Whose message caused it; nobody's if the machine took it of its own accord.
    from: Option<usize>,
    /// To whom it sends, one bit each.
    to: u64,
}

/// Which machine can send to which, before hearing from whom.
#[derive(Clone, Debug, Default)]
pub struct Sends {
    machines: usize,
    /// For each machine, for each set of machines that it may hear from, for each receiver: its local states in which it
    /// can.
    can: Vec<Vec<bool>>,
}

impl Sends {
    /// From the local steps of each machine.
    pub fn new(steps: &[BTreeSet<LocalStep>]) -> Self {
        let machines = steps.len();
        let mut sends = Self { machines, can: Vec::new() };
        sends.can.resize((machines << machines) * machines, Vec::new());
        for (who, steps) in steps.iter().enumerate() {
            let locals = steps.iter().map(|step| step.before.max(step.after) + 1).max().unwrap_or(0) as usize;
            let mut into: Vec<Vec<&LocalStep>> = vec![Vec::new(); locals];
            for step in steps {
                into[step.after as usize].push(step);
            }
            for heard in 0..1_u64 << machines {
                let heeded = |step: &LocalStep| step.from.is_none_or(|from| heard >> from & 1 == 1);
                for to in (0..machines).filter(|&to| to != who) {
                    let mut can = vec![false; locals];
                    let mut new: Vec<u32> = steps
                        .iter()
                        .filter(|step| step.to >> to & 1 == 1 && heeded(step))
                        .map(|step| step.before)
                        .collect();
                    while let Some(local) = new.pop() {
                        if !std::mem::replace(&mut can[local as usize], true) {
                            new.extend(
                                into[local as usize]
                                    .iter()
                                    .filter(|step| heeded(step))
                                    .map(|step| step.before),
                            );
                        }
                    }
                    let place = sends.place(who, heard, to);
                    sends.can[place] = can;
                }
            }
        }
        sends
    }

    fn place(&self, who: usize, heard: u64, to: usize) -> usize {
        ((who << self.machines) + heard as usize) * self.machines + to
    }

    /// Whether a machine in this state can send to another, as long as it hears only from these.
    #[inline]
    fn can(&self, who: usize, local: u32, heard: u64, to: usize) -> bool {
        let can = self.can.get(self.place(who, heard, to));
        can.and_then(|can| can.get(local as usize)).copied().unwrap_or(false)
    }
}

/// What a machine can do in a state.
struct Steps {
    count: u32,
    /// Something that is seen by others.
    visible: bool,
    /// Nothing that it will do unless it wants to.
    free: bool,
}

impl Explorer<'_> {
    /// The machines whose steps are enough to try in this state, one bit each; every bit if all must be.
    pub(super) fn enough(&mut self, sends: &Sends, state: &[u32]) -> u64 {
        let machines = self.machines;
        let (mut enabled, mut visible, mut free) = ([0_u32; 64], 0_u64, 0_u64);
        for (who, enabled) in enabled[..machines].iter_mut().enumerate() {
            let steps = self.steps_of(state, who);
            *enabled = steps.count;
            visible |= u64::from(steps.visible) << who;
            free |= u64::from(steps.free) << who;
        }
        let mut best = (u32::MAX, u64::MAX);
        for seed in (0..machines).filter(|&seed| enabled[seed] > 0) {
            let Some(group) = self.close(sends, state, 1 << seed, visible) else { continue };
            if group & !free == 0 {
                continue;
            }
            let members = (0..machines).filter(|who| group >> who & 1 == 1);
            best = best.min((members.map(|who| enabled[who]).sum(), group));
        }
        let all: u32 = enabled[..machines].iter().sum();
        if best.0 < all { best.1 } else { u64::MAX }
    }

    /// The smallest closed group around these machines; `None` if one of its steps is seen by others.
    fn close(&self, sends: &Sends, state: &[u32], mut group: u64, visible: u64) -> Option<u64> {
        let machines = self.machines;
        loop {
            if group & visible != 0 {
                return None;
            }
            let outside = (0..machines).filter(|who| group >> who & 1 == 0).find(|&who| {
                let heard = (0..machines)
                    .filter(|&from| from != who)
                    .filter(|&from| {
                        group >> from & 1 == 0 || state[machines + channel(machines, from, who)] != 0
                    })
                    .fold(0, |heard, from| heard | 1 << from);
                (0..machines).filter(|to| group >> to & 1 == 1).any(|to| {
                    let behind = self.traits.fifo && state[machines + channel(machines, who, to)] != 0;
                    !behind && sends.can(who, state[who], heard, to)
                })
            });
            match outside {
                Some(who) => group |= 1 << who,
                None => return Some(group),
            }
        }
    }

    /// What a machine can do in this state.
    fn steps_of(&mut self, state: &[u32], who: usize) -> Steps {
        let machines = self.machines;
        let mut steps = Steps { count: 0, visible: false, free: true };
        for which in 0..self.choices(who, state[who]) {
            let (choice, outcome) = self.choice(who, state[who], which);
            let Outcome { idle, ref step, .. } = self.outcomes[outcome as usize];
            if !idle && choice.fault.is_none() && choice.suspects.is_none() {
                steps.count += 1;
                steps.visible |= step.effect.is_visible();
                steps.free &= choice.free;
            }
        }
        for from in (0..machines).filter(|&from| from != who) {
            let place = channel(machines, from, who);
            let content = state[machines + place];
            if content == 0 {
                continue;
            }
            for which in 0..self.heads(place, content) {
                let (parcel, _) = self.head(place, content, which);
                let outcome = self.delivery(from, who, state[who], parcel);
                steps.count += 1;
                steps.free = false;
                steps.visible |= self.outcomes[outcome as usize].step.effect.is_visible();
            }
        }
        steps
    }

    /// The local steps of each machine that this worker has taken.
    pub fn local_steps(&self) -> Vec<Vec<LocalStep>> {
        let step = |before: u32, from: Option<usize>, outcome: u32| {
            let outcome = &self.outcomes[outcome as usize].step;
            let to = outcome.sends.iter().fold(0, |to, (who, _)| to | 1 << who);
            LocalStep { before, after: outcome.local, from, to }
        };
        let of = |site: &super::net::SiteCache| {
            let own = site.choices.iter().flat_map(|(before, choices)| {
                let plain =
                    |choice: &super::machine::Choice| choice.fault.is_none() && choice.suspects.is_none();
                choices
                    .iter()
                    .filter(move |(choice, _)| plain(choice))
                    .map(move |&(_, outcome)| (before, None, outcome))
            });
            let messages = site.deliveries.iter().enumerate().flat_map(|(from, memo)| {
                memo.iter().map(move |(before, _, outcome)| (before, Some(from), outcome))
            });
            // When another enters, excluding all others, what this one knows of fences grows old: that moves it, too.
            let aged =
                site.outdated.iter().map(|(before, &after)| LocalStep { before, after, from: None, to: 0 });
            let steps = own.chain(messages).map(|(before, from, outcome)| step(before, from, outcome));
            steps.chain(aged).collect()
        };
        self.sites.iter().map(of).collect()
    }
}
