//! The sites of a simulated system and the messages between them, without their types.
//!
//! The simulator handles a message for each few dozen nanoseconds, too often for one allocation each. So the messages
//! under way stay here, in a table of the algorithm's type, and outside of it a message is its number. A step is one
//! virtual call, and leaves its effects as plain data in the caller's [`Effects`].

use super::started;
use super::state::State;
use crate::simulator::observer::encoded_size;
use lockkeeper_core::protocol::TimerChange;
use lockkeeper_core::{
    ApplicationInput, InvariantViolated, MessageKinds, MutualExclusion, Out, Setup, Site, SiteId,
};
use slab::Slab;
use std::fmt::Display;

/// The number of a message under way. It is used again after the message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId(usize);

/// The number of an armed timer. A timer that is armed again gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u64);

/// A message that a step sends.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The receiver.
    pub to: SiteId,
    /// The message.
    pub message: MessageId,
    /// The index of the message's type.
    pub kind: usize,
    /// Number of tokens in the message.
    pub tokens: u32,
    /// The size of the message in a compact binary encoding.
    pub bytes: u64,
}

/// The effects of one step.
#[derive(Debug)]
pub struct Effects {
    /// The messages sent, in order.
    pub sends: Vec<Outgoing>,
    /// The timers armed, each with its delay in thousandths of T. Timers that were disarmed never expire.
    pub armed: Vec<(TimerId, u64)>,
    /// The indices of the rules that fired.
    pub rules: Vec<usize>,
    /// Number of entries. A correct algorithm enters at most once in a step.
    pub entries: usize,
    /// The site's fence clock: the fence of the entry, if there is one.
    pub fence: u64,
    /// Number of tokens at the site.
    pub tokens: u32,
    /// The result of the algorithm's own check of the site's state.
    pub invariant: Result<(), InvariantViolated>,
}

impl Default for Effects {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            armed: Vec::new(),
            rules: Vec::new(),
            entries: 0,
            fence: 0,
            tokens: 0,
            invariant: Ok(()),
        }
    }
}

/// The sites of a system. Each step replaces the given [`Effects`].
pub trait Sites {
    /// Starts the next site, in the order of the numbers; or replaces a crashed site by its incarnation number
    /// `incarnation`, which has lost its state.
    fn start(&mut self, site: SiteId, incarnation: u32, effects: &mut Effects);

    /// The application of a site requests or releases.
    fn input(&mut self, site: SiteId, input: ApplicationInput, effects: &mut Effects);

    /// A message arrives, with the sender's fence clock, and is gone.
    fn deliver(&mut self, message: MessageId, from: SiteId, to: SiteId, fence: u64, effects: &mut Effects);

    /// A timer of a site expires; `false` if it is no longer armed.
    fn timer(&mut self, site: SiteId, timer: TimerId, effects: &mut Effects) -> bool;

    /// A site's failure detector suspects another.
    fn suspect(&mut self, site: SiteId, suspect: SiteId, effects: &mut Effects);

    /// Counts a hold that existed before the first step as an entry.
    fn stamp(&mut self, site: SiteId);

    /// The state of a site.
    fn state(&self, site: SiteId) -> &dyn State;

    /// The text of a message.
    fn message(&self, message: MessageId) -> &dyn Display;

    /// A second message that is equal to this one.
    fn copy(&mut self, message: MessageId) -> MessageId;

    /// Removes a message that is lost.
    fn discard(&mut self, message: MessageId);

    /// The armed timers of a site, in the order of the algorithm's timers.
    fn armed(&self, site: SiteId) -> Vec<TimerId>;

    /// Disarms all timers of a site.
    fn disarm(&mut self, site: SiteId);
}

/// The sites of algorithm `P`.
pub(super) struct SitesOf<P: MutualExclusion> {
    setup: Setup<P::Options>,
    sites: Vec<Site<P>>,
    out: Out<P>,
    messages: Slab<P::Message>,
    timers: Timers<P::Timer>,
}

impl<P: MutualExclusion> SitesOf<P> {
    /// A system whose sites are not started.
    pub fn new(setup: Setup<P::Options>) -> Self {
        let processes = setup.sites + P::helpers(&setup.options);
        Self {
            sites: Vec::new(),
            out: Out::new(processes),
            messages: Slab::new(),
            timers: Timers::new(processes),
            setup,
        }
    }

    /// Stamps the entries of a step, and writes its effects.
    fn stepped(&mut self, id: SiteId, effects: &mut Effects) {
        for _ in 0..self.out.outputs.len() {
            self.sites[id.index()].stamp();
        }
        self.write(id, effects);
    }

    fn write(&mut self, id: SiteId, effects: &mut Effects) {
        let Self { sites, out, messages, timers, .. } = self;
        let site = &sites[id.index()];
        effects.entries = out.outputs.len();
        effects.fence = site.fence();
        effects.tokens = site.protocol().tokens();
        effects.invariant = site.protocol().invariant();
        std::mem::swap(&mut effects.rules, &mut out.rules);
        // Taken from the end: that compiles to much less code than a draining iterator, for each algorithm.
        effects.sends.clear();
        while let Some((to, message)) = out.sends.pop() {
            effects.sends.push(Outgoing {
                to,
                kind: message.kind(),
                tokens: P::tokens_in(&message),
                bytes: encoded_size(&message),
                message: MessageId(messages.insert(message)),
            });
        }
        effects.sends.reverse();
        effects.armed.clear();
        if !out.timers.is_empty() {
            timers.change(id, &mut out.timers, &mut effects.armed);
        }
    }
}

impl<P: MutualExclusion> Sites for SitesOf<P> {
    fn start(&mut self, site: SiteId, incarnation: u32, effects: &mut Effects) {
        let started = started(site, incarnation, &self.setup, &mut self.out);
        match self.sites.get_mut(site.index()) {
            Some(before) => *before = started,
            None => self.sites.push(started),
        }
        self.write(site, effects);
    }

    fn input(&mut self, site: SiteId, input: ApplicationInput, effects: &mut Effects) {
        self.sites[site.index()].input(input, &mut self.out);
        self.stepped(site, effects);
    }

    fn deliver(&mut self, message: MessageId, from: SiteId, to: SiteId, fence: u64, effects: &mut Effects) {
        let message = self.messages.remove(message.0);
        self.sites[to.index()].deliver(from, fence, message, &mut self.out);
        self.stepped(to, effects);
    }

    fn timer(&mut self, site: SiteId, timer: TimerId, effects: &mut Effects) -> bool {
        let Some(timer) = self.timers.expire(site, timer) else { return false };
        self.sites[site.index()].timer(timer, &mut self.out);
        self.stepped(site, effects);
        true
    }

    fn suspect(&mut self, site: SiteId, suspect: SiteId, effects: &mut Effects) {
        self.sites[site.index()].suspect(suspect, &mut self.out);
        self.stepped(site, effects);
    }

    fn stamp(&mut self, site: SiteId) {
        self.sites[site.index()].stamp();
    }

    fn state(&self, site: SiteId) -> &dyn State {
        &self.sites[site.index()]
    }

    fn message(&self, message: MessageId) -> &dyn Display {
        &self.messages[message.0]
    }

    fn copy(&mut self, message: MessageId) -> MessageId {
        let copy = self.messages[message.0].clone();
        MessageId(self.messages.insert(copy))
    }

    fn discard(&mut self, message: MessageId) {
        self.messages.remove(message.0);
    }

    fn armed(&self, site: SiteId) -> Vec<TimerId> {
        self.timers.armed(site)
    }

    fn disarm(&mut self, site: SiteId) {
        self.timers.disarm(site);
    }
}

/// The armed timers of all sites. Compiled for each type of timer, of which there are few.
struct Timers<T> {
    /// Those of each site, in the order of the algorithm's timers.
    armed: Vec<Vec<(T, TimerId)>>,
    last: TimerId,
}

impl<T: Ord> Timers<T> {
    fn new(processes: usize) -> Self {
        Self { armed: (0..processes).map(|_| Vec::new()).collect(), last: TimerId(0) }
    }

    /// Arms and disarms timers of a site, and adds those that it armed to a list.
    fn change(
        &mut self,
        site: SiteId,
        changes: &mut Vec<TimerChange<T>>,
        newly_armed: &mut Vec<(TimerId, u64)>,
    ) {
        let armed = &mut self.armed[site.index()];
        for change in changes.drain(..) {
            let (TimerChange::Arm { timer, .. } | TimerChange::Disarm { timer }) = &change;
            let place = armed.binary_search_by(|(known, _)| known.cmp(timer));
            if let Ok(place) = place {
                armed.remove(place);
            }
            if let TimerChange::Arm { timer, after_milli_t } = change {
                self.last.0 += 1;
                let (Ok(place) | Err(place)) = place;
                armed.insert(place, (timer, self.last));
                newly_armed.push((self.last, after_milli_t));
            }
        }
    }

    /// Takes a timer of a site that expires; `None` if it is no longer armed.
    fn expire(&mut self, site: SiteId, timer: TimerId) -> Option<T> {
        let armed = &mut self.armed[site.index()];
        let place = armed.iter().position(|(_, known)| *known == timer)?;
        Some(armed.remove(place).0)
    }

    /// The armed timers of a site, in order.
    fn armed(&self, site: SiteId) -> Vec<TimerId> {
        self.armed[site.index()].iter().map(|&(_, timer)| timer).collect()
    }

    fn disarm(&mut self, site: SiteId) {
        self.armed[site.index()].clear();
    }
}
