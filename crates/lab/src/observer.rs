//! Watches a run: measures it and checks what must hold. It sees everything and changes nothing.

use crate::causality::{Causality, Past};
use crate::metrics::Measures;
use crate::property::{Names, Property, Violation};
use crate::time::Time;
use lockkeeper_core::{MutualExclusion, SiteId, Timestamp, Vocabulary};
use std::collections::BTreeSet;

/// Above so many processes, happened-before is not watched: it costs a bit per site on every message.
pub const CAUSALITY_LIMIT: usize = 1_000;

/// Which entries are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Entries before the first one that counts.
    pub warmup: u64,
    /// How many entries count.
    pub entries: u64,
    /// Whether it runs from a request until all is quiet, or from exit to exit.
    pub whole: bool,
    /// How long a request may be passed by later ones before that is starvation and not a long way.
    pub patience: Time,
}

/// What the observer sends along with a message.
#[derive(Clone, Debug, Default)]
pub struct Piggyback {
    clock: u64,
    past: Past,
    past_sent: u64,
}

/// What is known of a site's present request.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    asked_at: Time,
    entries_then: u64,
    timestamp: Option<Timestamp>,
}

/// The observer of one run.
#[derive(Debug)]
pub struct Observer {
    names: Names,
    window: Window,
    open: bool,
    opened_at: Time,
    /// When the present stretch in which nobody wants anything began, or its last message.
    idle_mark: Time,
    measures: Measures,
    waits: Vec<Wait>,
    waiting: usize,
    inside: Vec<SiteId>,
    /// Who started inside, while it still is: it never asked, so its stay is not measured.
    started_inside: Option<SiteId>,
    /// The site that asked while nobody else was inside or waiting, if nobody has asked since.
    alone: Option<SiteId>,
    /// The last exit, if somebody was waiting then and nobody has entered since.
    contended_exit: Option<Time>,
    entries: u64,
    exits: u64,
    last_fence: u64,
    pending: BTreeSet<Timestamp>,
    /// For protocols without timestamps of their own: a Lamport clock that ticks with each request.
    clocks: Vec<u64>,
    causality: Option<Causality>,
    violations: Vec<Violation>,
}

impl Observer {
    /// An observer of a system in which `holder` starts inside.
    pub fn new(names: Names, processes: usize, words: usize, window: Window, holder: Option<SiteId>) -> Self {
        let causality = (processes <= CAUSALITY_LIMIT).then(|| Causality::new(processes));
        let mut measures = Measures::default();
        let counts = &mut measures.counts;
        counts.by_word = vec![0; words];
        counts.entries_of = vec![0; names.sites];
        counts.load_of = vec![0; processes];
        counts.causal_inversions = causality.as_ref().map(|_| 0);
        Self {
            names,
            window,
            open: window.warmup == 0,
            opened_at: Time::ZERO,
            idle_mark: Time::ZERO,
            measures,
            waits: vec![Wait::default(); processes],
            waiting: 0,
            inside: holder.into_iter().collect(),
            started_inside: holder,
            alone: None,
            contended_exit: None,
            entries: 0,
            exits: 0,
            last_fence: u64::from(holder.is_some()),
            pending: BTreeSet::new(),
            clocks: vec![0; processes],
            causality,
            violations: Vec::new(),
        }
    }

    /// How many sites wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits and nobody is inside.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.inside.is_empty()
    }

    /// How many entries there have been.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// What did not hold, so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Notes the first violation of each property.
    pub fn violated(&mut self, violation: Violation) {
        if self.violations.iter().all(|known| known.property != violation.property) {
            self.violations.push(violation);
        }
    }

    /// A site asks.
    pub fn request(&mut self, site: SiteId, now: Time) {
        if self.window.whole && !self.open && self.exits >= self.window.warmup && self.measured() == 0 {
            self.open_window(now);
        }
        self.alone = self.is_idle().then_some(site);
        self.waiting += 1;
        self.clocks[site.index()] += 1;
        self.waits[site.index()] = Wait { asked_at: now, entries_then: self.entries, timestamp: None };
        if let Some(causality) = &mut self.causality {
            causality.request(site);
        }
    }

    /// The site's request now has this timestamp; to be called after the step that made it.
    pub fn stamped(&mut self, site: SiteId, own: Option<Timestamp>) {
        let time = self.clocks[site.index()];
        let timestamp = own.unwrap_or(Timestamp { time, site });
        self.waits[site.index()].timestamp = Some(timestamp);
        self.pending.insert(timestamp);
    }

    /// A site enters.
    pub fn enter(&mut self, site: SiteId, fence: u64, now: Time) {
        self.check_exclusion(site, now);
        self.check_fence(site, fence, now);
        let wait = std::mem::take(&mut self.waits[site.index()]);
        self.waiting -= 1;
        self.inside.push(site);

        let counts = &mut self.measures.counts;
        if self.open {
            self.measures.waiting.record(now - wait.asked_at);
            if self.alone == Some(site) {
                self.measures.client_delay.record(now - wait.asked_at);
            }
            if let Some(exit) = self.contended_exit {
                self.measures.sync_delay.record(now - exit);
            }
            counts.max_bypass = counts.max_bypass.max(self.entries - wait.entries_then);
            let earliest = self.pending.first() == wait.timestamp.as_ref();
            counts.timestamp_inversions += u64::from(wait.timestamp.is_some() && !earliest);
        }
        self.contended_exit = None;
        self.entries += 1;
        // Kept for the response time, which ends with the exit.
        self.waits[site.index()].asked_at = wait.asked_at;
        if let Some(timestamp) = wait.timestamp {
            self.pending.remove(&timestamp);
        }
        self.overtakes(site, now);
    }

    fn overtakes(&mut self, site: SiteId, now: Time) {
        let Some(causality) = &mut self.causality else { return };
        let overtaking = causality.enter(site);
        if self.open
            && let Some(inversions) = &mut self.measures.counts.causal_inversions
        {
            *inversions += u64::from(overtaking.overtaken > 0);
        }
        // A fair algorithm lets each other site pass a few times at most; while a request is on its way, a site that
        // enters without messages may pass it more often, but not for long.
        let bound = 64.max(8 * self.names.sites as u64);
        if let Some((victim, count)) = overtaking.worst
            && count > bound
            && now - self.waits[victim.index()].asked_at > self.window.patience
        {
            let what = format!(
                "{} has waited since {} T while {count} requests that were made later, knowing of it, were served",
                self.names.of(victim),
                self.waits[victim.index()].asked_at
            );
            self.violated(Violation { property: Property::NoStarvation, at: now, sites: vec![victim], what });
        }
    }

    fn check_exclusion(&mut self, site: SiteId, now: Time) {
        let Some(&other) = self.inside.first() else { return };
        let what = format!("{} enters while {} is inside", self.names.of(site), self.names.of(other));
        let sites = vec![other, site];
        self.violated(Violation { property: Property::MutualExclusion, at: now, sites, what });
    }

    fn check_fence(&mut self, site: SiteId, fence: u64, now: Time) {
        if fence <= self.last_fence {
            let what = format!(
                "{} enters with fence {fence}, and the entry before had {}",
                self.names.of(site),
                self.last_fence
            );
            self.violated(Violation { property: Property::FenceMonotone, at: now, sites: vec![site], what });
        }
        self.last_fence = self.last_fence.max(fence);
    }

    /// A site is about to leave. To be called BEFORE its exit step, whose messages belong to what follows.
    pub fn exit(&mut self, site: SiteId, now: Time) {
        self.inside.retain(|&inside| inside != site);
        self.idle_mark = now;
        self.contended_exit = (self.waiting > 0).then_some(now);
        if self.started_inside.take_if(|started| *started == site).is_some() {
            return;
        }
        if self.open {
            self.measures.counts.entries += 1;
            self.measures.counts.entries_of[site.index()] += 1;
            self.measures.response.record(now - self.waits[site.index()].asked_at);
        }
        self.exits += 1;
        if self.window.whole {
            return;
        }
        if self.exits == self.window.warmup {
            self.open_window(now);
        } else if self.exits == self.window.warmup.saturating_add(self.window.entries)
            && self.window.warmup > 0
        {
            self.close_window(now);
        }
    }

    /// A site crashes: it neither waits nor is inside any more.
    pub fn crash(&mut self, site: SiteId, was_waiting: bool, now: Time) {
        self.idle_mark = now;
        self.inside.retain(|&inside| inside != site);
        self.started_inside.take_if(|started| *started == site);
        if was_waiting {
            self.waiting -= 1;
            if let Some(timestamp) = self.waits[site.index()].timestamp.take() {
                self.pending.remove(&timestamp);
            }
            if let Some(causality) = &mut self.causality {
                causality.forget(site);
            }
        }
    }

    /// A message is sent.
    #[inline]
    pub fn send<P: MutualExclusion>(&mut self, from: SiteId, message: &P::Message) {
        if self.open {
            let counts = &mut self.measures.counts;
            counts.by_word[message.word()] += 1;
            counts.bytes += encoded_size(message);
            counts.load_of[from.index()] += 1;
        }
    }

    /// Messages were sent by a step that no exit caused, while nobody wanted anything.
    pub fn sent_while_idle(&mut self, messages: usize, now: Time) {
        if self.open && messages > 0 {
            self.measures.counts.idle_messages += messages as u64;
            self.measures.counts.idle_time += now - self.idle_mark;
        }
        self.idle_mark = now;
    }

    /// What to send along with a message.
    #[inline]
    pub fn piggyback(&self, from: SiteId) -> Piggyback {
        let (past, past_sent) =
            self.causality.as_ref().map(|causality| causality.stamp(from)).unwrap_or_default();
        Piggyback { clock: self.clocks[from.index()], past, past_sent }
    }

    /// A message is received.
    #[inline]
    pub fn receive(&mut self, to: SiteId, piggyback: &Piggyback) {
        let clock = &mut self.clocks[to.index()];
        *clock = piggyback.clock.max(*clock);
        if self.open {
            self.measures.counts.load_of[to.index()] += 1;
        }
        if let Some(causality) = &mut self.causality {
            causality.receive(to, &piggyback.past, piggyback.past_sent);
        }
    }

    /// So many requests queue at one site.
    pub fn backlog(&mut self, length: u64) {
        self.measures.counts.backlog = self.measures.counts.backlog.max(length);
    }

    /// All is quiet: a window that lasts until then may close.
    pub fn quiet(&mut self, now: Time) {
        if self.window.whole && self.measured() >= self.window.entries {
            self.close_window(now);
        }
    }

    /// The run is over.
    pub fn finish(mut self, now: Time) -> (Measures, Vec<Violation>) {
        self.close_window(now);
        (self.measures, self.violations)
    }

    fn measured(&self) -> u64 {
        self.measures.counts.entries
    }

    fn open_window(&mut self, now: Time) {
        self.idle_mark = now;
        self.open = true;
        self.opened_at = now;
    }

    fn close_window(&mut self, now: Time) {
        if self.open {
            self.open = false;
            self.measures.counts.time = now - self.opened_at;
        }
    }
}

/// The size of a message in a compact binary encoding.
#[inline]
pub(crate) fn encoded_size<M: serde::Serialize>(message: &M) -> u64 {
    use postcard::ser_flavors::Size;
    postcard::serialize_with_flavor::<_, Size, usize>(message, Size::default()).unwrap_or(0) as u64
}
