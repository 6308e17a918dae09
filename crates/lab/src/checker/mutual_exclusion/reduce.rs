//! Partial-order reduction: a delivery that is invisible to other machines is deferred until its machine
//! takes a visible step.
//!
//! A delivery is *silent* if the receiving machine sends nothing in reaction, neither enters nor leaves, and
//! does nothing else that a property depends on. It changes only the machine's own state and the channel from
//! which only this machine receives. No other machine can observe whether it has happened, so it commutes
//! with every step of every other machine. Each run can therefore be reordered until its silent deliveries
//! stand directly before a visible step of the same machine, or at the very end. The search explores only
//! such runs:
//! - a step is any number of silent deliveries to a machine, followed by one visible step of that machine.
//!   The states between them are not stored;
//! - a state counts as quiescent if every machine, by itself, can come to rest by silent deliveries alone.
//!
//! Example: B and C each have an ACK under way to them and react to it with nothing. The full search visits
//! four states (no ACK delivered, B's, C's, both). The reduced search visits one, and delivers B's ACK as
//! part of B's next visible step.
//!
//! Visible steps occur in the same orders as before, so every violation in one of them is found, and the
//! counts of bypasses and messages stay the same. Silent deliveries are explored wherever they are possible,
//! so violations in them and the rules that they fire are recorded, too.
//!
//! The reduction needs no knowledge of the algorithm, and every state that it stores is also reached by the
//! full search.

use super::kernel::StepResult;
use super::machine::{Facts, Faults, Violation};
use super::net::{Action, Explorer, channel};
use crate::checker::explore::Next;

/// Whether a delivery affects no machine but the receiver.
pub(super) fn is_silent(step: &StepResult, before: &Facts, after: &Facts, faults: Faults) -> bool {
    // Without faults, the sender knows every fence that the receiver learns, so deferring the
    // delivery changes no verdict on an entry. With faults, the sender may crash and forget it.
    let known = if faults.none() { after.fence } else { before.fence };
    let same = Facts { fence: known, ..before.clone() } == *after;
    same && step.sends.is_empty() && !step.effect.is_visible() && !step.effect.asked && !step.beyond
}

impl Explorer<'_> {
    /// Passes to `found` every visible step of a machine after any number of silent deliveries to it. Returns
    /// whether the machine can come to rest by silent deliveries alone.
    pub(super) fn expand_after_silence(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> bool {
        let mut quiet = false;
        // `reached` is a work list: rows of `slots` integers, each a state after some silent deliveries.
        let slots = state.len();
        let mut reached = std::mem::take(&mut self.reached);
        reached.clear();
        reached.extend_from_slice(state);
        let mut here = std::mem::take(&mut self.here);
        let mut at = 0;
        while at < reached.len() {
            here.clear();
            here.extend_from_slice(&reached[at..at + slots]);
            quiet |= self.expand_machine(&here, tallies, who, found);
            self.deliver_silently(&mut here, who, &mut reached);
            at += slots;
        }
        self.stands_for *= (reached.len() / slots) as f64;
        (self.reached, self.here) = (reached, here);
        quiet
    }

    /// Appends every state that one silent delivery leads to, unless it is in the list.
    fn deliver_silently(&mut self, state: &mut [u32], who: usize, reached: &mut Vec<u32>) {
        let machines = self.machines;
        let local = state[who];
        for from in (0..machines).filter(|&from| from != who) {
            let place = channel(machines, from, who);
            let content = state[machines + place];
            if content == 0 {
                continue;
            }
            for which in 0..self.heads(place, content) {
                let (envelope, rest) = self.head(place, content, which);
                let outcome = self.delivery(from, who, local, envelope);
                let outcome = &self.outcomes[outcome as usize];
                if !outcome.silent {
                    continue;
                }
                (state[who], state[machines + place]) = (outcome.step.local, rest);
                if !reached.chunks_exact(state.len()).any(|known| known == state) {
                    reached.extend_from_slice(state);
                }
                (state[who], state[machines + place]) = (local, content);
            }
        }
    }
}
