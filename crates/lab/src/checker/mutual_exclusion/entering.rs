//! The effects of a step on other machines: entries, crashes and tokens; and the violations in them.

use super::machine::{Entry, Facts, Violation};
use super::net::{Explorer, channel};
use crate::property::Property;
use lockkeeper_core::{Mode, ModeCounts, SiteId};

/// With unlimited requests, a waiter that was bypassed this many times counts as bypassed without bound.
const MOST_BYPASS: u8 = 24;

/// The violation: a fence that is not larger than an earlier one.
pub(super) fn no_larger_fence(site: SiteId) -> Violation {
    let what = format!("{site} enters with a fence that is not larger than that of an earlier entry");
    Violation { property: Property::FenceMonotone, sites: vec![site], what }
}

impl Explorer<'_> {
    /// Applies the effects of a step on the other machines to `next`; returns the violation in the step, if
    /// there is one.
    pub(super) fn announce(&mut self, state: &[u32], who: usize, outcome: u32) -> Option<Violation> {
        let machines = self.machines;
        let effect = &self.outcomes[outcome as usize].step.effect;
        let (entered, asked, crashed) = (effect.entered, effect.asked, effect.crashed);
        let wrong = effect.wrong.clone();
        if crashed {
            // Messages under way to a crashed machine are lost.
            for from in (0..machines).filter(|&from| from != who) {
                self.next[machines + channel(machines, from, who)] = 0;
            }
        }
        if asked && self.traits.tallied.bypass {
            self.next_tallies[who] = 0;
        }
        let Some(entry) = entered else { return wrong };
        // A violation of mutual exclusion takes precedence over every other violation of the step.
        match self.enters(state, who, entry) {
            Some(worst) if worst.property == Property::MutualExclusion => Some(worst),
            other => wrong.or(other),
        }
    }

    /// A machine enters: checks that it may, counts the waiters that it bypasses, and outdates the fences
    /// that the other machines know.
    fn enters(&mut self, state: &[u32], who: usize, entry: Entry) -> Option<Violation> {
        self.seen.entered |= 1 << who;
        let me = SiteId::new(who);
        let sharing = self.traits.sharing;
        let own = self.facts(who, self.next[who]).timestamp;
        // An entry that excludes all others conflicts with every earlier one. Some machine knows the largest
        // of their fences.
        let excludes = sharing.conflict(entry.mode, Mode::Shared);
        let (mut inside, mut holders) = (ModeCounts::default(), Vec::new());
        let mut violation = None;
        for other in (0..self.machines).filter(|&other| other != who) {
            let name = SiteId::new(other);
            let Facts { waiting, inside: is_inside, mode, fence, timestamp, .. } =
                *self.facts(other, state[other]);
            if is_inside {
                inside.add(mode);
                holders.push(name);
            }
            if excludes && fence > entry.fence {
                violation = violation.or_else(|| Some(no_larger_fence(me)));
            }
            if waiting && sharing.compete(entry.mode, mode) {
                self.pass(other);
            }
            if waiting
                && sharing.conflict(entry.mode, mode)
                && let (Some(own), Some(theirs)) = (own, timestamp)
                && theirs < own
            {
                let what = format!("{me} enters with {own} while {name} waits with {theirs}");
                let sites = vec![me, name];
                violation = violation.or(Some(Violation { property: Property::TimestampOrder, sites, what }));
            }
        }
        if excludes {
            self.outdate_others(who);
        }
        if sharing.admits(inside, entry.mode) {
            return violation;
        }
        let what =
            format!("{me} enters while {} is inside", lockkeeper_core::mutex::list(&holders, "no site"));
        holders.push(me);
        Some(Violation { property: Property::MutualExclusion, sites: holders, what })
    }

    /// Marks the fences known to all other machines, and those in messages under way, as earlier than this
    /// entry.
    fn outdate_others(&mut self, who: usize) {
        let machines = self.machines;
        for other in (0..machines).filter(|&other| other != who) {
            self.next[other] = self.outdate(other, self.next[other]);
        }
        for place in 0..machines * (machines - 1) {
            self.next[machines + place] = self.outdate_channel(place, self.next[machines + place]);
        }
    }

    fn pass(&mut self, waiting: usize) {
        if self.traits.tallied.bypass {
            // Where runs are infinite, either a small bound exists or none.
            let most = if self.traits.limits.is_some() { MOST_BYPASS } else { u8::MAX };
            let tally = &mut self.next_tallies[waiting];
            *tally = if tally.saturating_add(1) >= most { u8::MAX } else { *tally + 1 };
            self.seen.max_bypass = self.seen.max_bypass.max(*tally);
        }
    }

    pub(super) fn outdate(&mut self, who: usize, local: u32) -> u32 {
        if let Some(&older) = self.sites[who].outdated.get(local) {
            return older;
        }
        *self.sites[who].outdated.insert(local, self.net.kernel.outdate(who, local))
    }

    fn outdate_channel(&mut self, place: usize, content: u32) -> u32 {
        if let Some(&older) = self.channels[place].outdated.get(content) {
            return older;
        }
        let envelopes = self.net.content(place, content);
        let older =
            envelopes.into_iter().map(|envelope| self.net.kernel.outdate_envelope(envelope)).collect();
        *self.channels[place].outdated.insert(content, self.net.number(place, older))
    }

    pub(super) fn count_tokens(&mut self) -> Option<Violation> {
        let machines = self.machines;
        let mut tokens = 0;
        for who in 0..machines {
            tokens += self.facts(who, self.next[who]).tokens;
        }
        for place in 0..machines * (machines - 1) {
            tokens += self.tokens_in_channel(place, self.next[machines + place]);
        }
        (tokens > 1).then(|| Violation {
            property: Property::Invariant,
            sites: Vec::new(),
            what: format!("there are {tokens} tokens"),
        })
    }

    fn tokens_in_channel(&mut self, place: usize, content: u32) -> u32 {
        if let Some(&tokens) = self.channels[place].tokens.get(content) {
            return tokens;
        }
        let envelopes = self.net.content(place, content);
        let tokens = envelopes.into_iter().map(|envelope| self.net.kernel.tokens_in(envelope)).sum();
        *self.channels[place].tokens.insert(content, tokens)
    }
}
