//! Partial-order reduction: what concerns nobody else can wait until its machine does something that does.
//!
//! A delivery is *silent* if the machine that takes the message in sends nothing by it, and neither enters nor leaves nor
//! does anything else that is asked about. Nobody else can tell whether it has happened: it changes the machine's own
//! state and takes a message from a channel from which nobody else takes any. So it can be put off past every step of another
//! machine, and each run can be put into an order in which silent deliveries stand directly before a step of the same
//! machine that is not silent, or at the very end. Only such runs are tried:
//! - a step is any number of silent deliveries to a machine, and then one thing of that machine that is not silent. States
//!   between the two are not kept;
//! - a state is looked at as an end if every machine, for itself, can come to rest by silent deliveries alone.
//!
//! Steps that are not silent happen in the same orders as before, so what is wrong with one of them is found, and who
//! passes whom and how many messages are sent stays the same. Silent deliveries themselves are taken wherever
//! they can be, so what they break and which rules they follow is seen, too.
//!
//! Nothing has to be known of an algorithm for this, and no state that is kept is one that the full search would not meet.

use super::kernel::Stepped;
use super::machine::{Breach, Facts, Faults};
use super::net::{Action, Explorer, channel};
use super::search::Next;

/// Whether a delivery concerns nobody but the machine that takes the message in.
pub(super) fn is_silent(step: &Stepped, before: &Facts, after: &Facts, faults: Faults) -> bool {
    // What a machine learns of fences, whoever sent the message knows too, so no entry is judged differently; but whoever
    // crashes forgets it.
    let known = if faults.none() { after.fence } else { before.fence };
    let same = Facts { fence: known, ..before.clone() } == *after;
    same && step.sends.is_empty() && !step.effect.is_visible() && !step.effect.asked && !step.beyond
}

impl Explorer<'_> {
    /// Hands over everything that a machine can do after any number of silent deliveries to it; tells whether it can
    /// come to rest by them.
    pub(super) fn expand_after_silence(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        who: usize,
        found: &mut impl FnMut(Next<'_, Action, Breach>),
    ) -> bool {
        let mut quiet = false;
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

    /// Adds every state that one silent delivery leads to.
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
                let (parcel, rest) = self.head(place, content, which);
                let outcome = self.delivery(from, who, local, parcel);
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
