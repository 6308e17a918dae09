//! Silent deliveries before a step of the same machine, as far as the step depends on them.
//!
//! A silent delivery m at a machine is followed by a step a of the machine. If a is possible without m, does the same,
//! and leaves m silent and with the same effect, then "m, a" and "a, m" lead to the same state, and m can be deferred
//! until after a. Only the other silent deliveries have to be explored before a.
//!
//! Example: S1 waits for REPLYs of S2 and S3. Both are under way, and S3's REQUEST arrives behind its REPLY. S3's REPLY has
//! to be delivered first. S2's has not, because S1's answer to S3 is the same without it; it stays under way until S1
//! enters.
//!
//! Fences may be smaller after "a, m": a machine that learns of fewer entries has more chances to violate the order of
//! fences, and nothing else depends on them.

use super::super::kernel::StepResult;
use super::super::machine::Effect;
use super::super::net::{Explorer, channel};
use super::canonical::Canonical;
use crate::checker::explore::intern::Known;
use smallvec::SmallVec;

/// A step of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnStep {
    /// A choice, by its code.
    Choice(u32),
    /// A delivery: the sender, the message, and the rest of the channel.
    Delivery(usize, u32, u32),
}

/// A machine after some silent deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub local: u32,
    /// The contents of the channels to the machine, by sender.
    pub channels: SmallVec<[u32; super::MOST_MACHINES]>,
}

/// A silent delivery that leads from one prefix to another.
#[derive(Clone, Copy)]
struct Silent {
    before: usize,
    after: usize,
    from: usize,
    envelope: u32,
}

/// All states that silent deliveries to one machine lead to.
pub(super) struct Prefixes {
    machines: usize,
    pub all: Vec<Prefix>,
    silent: Vec<Silent>,
    /// The messages without their fences.
    outdated: Known<u32>,
}

impl Prefixes {
    pub fn new(machines: usize) -> Self {
        Self { machines, all: Vec::new(), silent: Vec::new(), outdated: Known::default() }
    }

    /// Finds all prefixes of a machine. A prefix comes after those that it can be reached from.
    pub fn find(&mut self, explorer: &mut Explorer<'_>, state: &[u32], who: usize) {
        let machines = self.machines;
        self.all.clear();
        self.silent.clear();
        let content = |from| if from == who { 0 } else { state[machines + channel(machines, from, who)] };
        self.all.push(Prefix { local: state[who], channels: (0..machines).map(content).collect() });
        let mut before = 0;
        while before < self.all.len() {
            let prefix = self.all[before].clone();
            for from in (0..machines).filter(|&from| prefix.channels[from] != 0) {
                let place = channel(machines, from, who);
                for which in 0..explorer.heads(place, prefix.channels[from]) {
                    let (envelope, rest) = explorer.head(place, prefix.channels[from], which);
                    let outcome = explorer.delivery(from, who, prefix.local, envelope);
                    let outcome = &explorer.outcomes[outcome as usize];
                    if outcome.silent {
                        let mut next =
                            Prefix { local: outcome.step.local, channels: prefix.channels.clone() };
                        next.channels[from] = rest;
                        let known = self.all.iter().position(|known| *known == next);
                        let after = known.unwrap_or_else(|| {
                            self.all.push(next);
                            self.all.len() - 1
                        });
                        self.silent.push(Silent { before, after, from, envelope });
                    }
                }
            }
            before += 1;
        }
    }

    /// Whether a step after some silent deliveries need not be explored, because one of them can be deferred until after
    /// it. `time` is the time to which the clock advances first.
    pub fn is_deferrable(
        &mut self,
        explorer: &mut Explorer<'_>,
        canonical: &mut Canonical,
        who: usize,
        prefix: usize,
        (step, time): (OwnStep, Option<u64>),
        outcome: u32,
    ) -> bool {
        let mut at = 0;
        while at < self.silent.len() {
            let silent = self.silent[at];
            at += 1;
            if silent.after == prefix
                && self.commutes(explorer, canonical, who, silent, (step, time), outcome)
            {
                return true;
            }
        }
        false
    }

    fn commutes(
        &mut self,
        explorer: &mut Explorer<'_>,
        canonical: &mut Canonical,
        who: usize,
        silent: Silent,
        (step, time): (OwnStep, Option<u64>),
        late: u32,
    ) -> bool {
        if matches!(step, OwnStep::Delivery(from, ..) if explorer.traits.fifo && from == silent.from) {
            return false;
        }
        let mut local = self.all[silent.before].local;
        if let Some(time) = time {
            local = canonical.raised(explorer, who, local, time);
        }
        let Some(early) = outcome_of(explorer, who, local, step) else { return false };
        if !self.is_same(explorer, early, late) {
            return false;
        }
        let between = explorer.outcomes[early as usize].step.local;
        let after = explorer.delivery(silent.from, who, between, silent.envelope);
        let after = &explorer.outcomes[after as usize];
        let (is_silent, reached) = (after.silent, after.step.local);
        let wanted = explorer.outcomes[late as usize].step.local;
        is_silent && (reached == wanted || reached == explorer.outdate(who, wanted))
    }

    /// Whether two outcomes are the same for the other machines and the properties, and the first one has the same or
    /// smaller fences.
    fn is_same(&mut self, explorer: &Explorer<'_>, early: u32, late: u32) -> bool {
        if early == late {
            return true;
        }
        let StepResult { sends, effect, gained, .. } = &explorer.outcomes[early as usize].step;
        let other = &explorer.outcomes[late as usize].step;
        !gained
            && !other.gained
            && is_same_effect(effect, &other.effect)
            && sends.len() == other.sends.len()
            && sends.iter().zip(&other.sends).all(|(&(to, message), &(other_to, other))| {
                to == other_to && (message == other || message == self.outdated(explorer, other))
            })
    }

    fn outdated(&mut self, explorer: &Explorer<'_>, envelope: u32) -> u32 {
        if let Some(&known) = self.outdated.get(envelope) {
            return known;
        }
        *self.outdated.insert(envelope, explorer.net.kernel.outdate_envelope(envelope))
    }
}

/// The outcome of a step in a local state; `None` if the step is not possible or changes nothing.
pub(super) fn outcome_of(explorer: &mut Explorer<'_>, who: usize, local: u32, step: OwnStep) -> Option<u32> {
    match step {
        OwnStep::Delivery(from, envelope, _) => Some(explorer.delivery(from, who, local, envelope)),
        OwnStep::Choice(code) => {
            let mut choices =
                (0..explorer.choices(who, local)).map(|which| explorer.choice(who, local, which));
            let found = choices.find(|(choice, _)| choice.code == code);
            found.map(|(_, outcome)| outcome).filter(|&outcome| !explorer.outcomes[outcome as usize].idle)
        }
    }
}

fn is_same_effect(early: &Effect, late: &Effect) -> bool {
    let same_entry = match (early.entered, late.entered) {
        (Some(early), Some(late)) => early.mode == late.mode && early.fence <= late.fence,
        (None, None) => true,
        _ => false,
    };
    same_entry
        && early.wrong.is_none()
        && late.wrong.is_none()
        && (early.exited, early.asked, early.crashed, early.skipped_fences)
            == (late.exited, late.asked, late.crashed, late.skipped_fences)
}
