//! Measures a run and checks its properties. The observer does not influence the run.

use crate::property::{Names, Property, Violation};
use crate::simulator::causality::{Causality, Past};
use crate::simulator::metrics::Measures;
use crate::simulator::time::Time;
use lockkeeper_core::mutex::list;
use lockkeeper_core::{Holder, Mode, ModeCounts, Sharing, SiteId, Timestamp};
use std::collections::{BTreeSet, VecDeque};

/// The maximum number of processes for which happened-before is tracked: it costs a bit per site on every
/// message.
pub const CAUSALITY_LIMIT: usize = 1_000;

/// The measured entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of entries before the first measured one.
    pub warmup: u64,
    /// Number of measured entries.
    pub entries: u64,
    /// Whether the window extends from a request until the network is quiet, instead of from exit to exit.
    pub whole: bool,
    /// How long later requests may be served before an earlier one until it counts as starvation. Shorter
    /// waits can be due to the delay of messages.
    pub starvation_after: Time,
}

/// The data that the observer attaches to a message.
#[derive(Clone, Debug, Default)]
pub struct Piggyback {
    clock: u64,
    past: Past,
    past_sent: u64,
}

/// A site's current request.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    requested_at: Time,
    mode: Mode,
    /// Number of competing entries at the time of the request.
    entries_then: u64,
    timestamp: Option<Timestamp>,
}

/// The counters that are separate for exclusive and shared entries.
#[derive(Clone, Debug, Default)]
struct OfMode {
    entries: u64,
    /// The highest fence so far.
    fence: u64,
    /// The timestamps of the waiting requests.
    pending: BTreeSet<Timestamp>,
}

/// The observer of one run.
#[derive(Debug)]
pub struct Observer {
    names: Names,
    sharing: Sharing,
    window: Window,
    open: bool,
    opened_at: Time,
    /// The start of the current idle period, or the time of the last message in it.
    idle_mark: Time,
    measures: Measures,
    waits: Vec<Wait>,
    waiting: ModeCounts,
    inside: ModeCounts,
    /// The mode in which each site is inside, if it is.
    held: Vec<Option<Mode>>,
    /// The sites that started inside and still are. They made no request, so their holds are not measured.
    started_inside: BTreeSet<SiteId>,
    /// The site that requested while no other was inside or waiting, if no other has requested since.
    alone: Option<SiteId>,
    /// The exits that made room for a waiter, in order, until an entry takes that room.
    contended_exits: VecDeque<Time>,
    entries: u64,
    exits: u64,
    of_mode: [OfMode; 2],
    /// For protocols without timestamps of their own: Lamport clocks that advance with each request.
    clocks: Vec<u64>,
    causality: Option<Causality>,
    violations: Vec<Violation>,
}

impl Observer {
    /// An observer of a system with these numbers of processes and message types, in which the holders start
    /// inside.
    pub fn new(
        names: Names,
        (processes, kinds): (usize, usize),
        window: Window,
        sharing: Sharing,
        holders: &[Holder],
    ) -> Self {
        let causality = (processes <= CAUSALITY_LIMIT).then(|| Causality::new(processes));
        let mut measures = Measures::default();
        let counts = &mut measures.counts;
        counts.by_kind = vec![0; kinds];
        counts.entries_of = vec![0; names.sites];
        counts.load_of = vec![0; processes];
        counts.causal_inversions = causality.as_ref().map(|_| 0);
        let mut observer = Self {
            names,
            sharing,
            window,
            open: window.warmup == 0,
            opened_at: Time::ZERO,
            idle_mark: Time::ZERO,
            measures,
            waits: vec![Wait::default(); processes],
            waiting: ModeCounts::default(),
            inside: ModeCounts::default(),
            held: vec![None; processes],
            started_inside: holders.iter().map(|holder| holder.site).collect(),
            alone: None,
            contended_exits: VecDeque::new(),
            entries: 0,
            exits: 0,
            of_mode: Default::default(),
            clocks: vec![0; processes],
            causality,
            violations: Vec::new(),
        };
        for holder in holders {
            observer.come_in(holder.site, holder.mode);
            observer.of_mode[holder.mode as usize].fence = 1;
        }
        observer
    }

    /// Number of waiting sites.
    pub fn waiting(&self) -> usize {
        self.waiting.all()
    }

    /// Whether no site waits and none is inside.
    pub fn is_idle(&self) -> bool {
        self.waiting.all() == 0 && self.inside.all() == 0
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Records the first violation of each property.
    pub fn violated(&mut self, violation: Violation) {
        if self.violations.iter().all(|known| known.property != violation.property) {
            self.violations.push(violation);
        }
    }

    /// A site requests.
    pub fn request(&mut self, site: SiteId, mode: Mode, now: Time) {
        if self.window.whole && !self.open && self.exits >= self.window.warmup && self.measured() == 0 {
            self.open_window(now);
        }
        self.alone = self.is_idle().then_some(site);
        self.waiting.add(mode);
        self.clocks[site.index()] += 1;
        let entries_then = self.competing_entries(mode);
        self.waits[site.index()] = Wait { requested_at: now, mode, entries_then, timestamp: None };
        if let Some(causality) = &mut self.causality {
            causality.request(site);
        }
    }

    /// Sets the timestamp of the site's request; call it after the step that made the request.
    pub fn stamped(&mut self, site: SiteId, own: Option<Timestamp>) {
        let time = self.clocks[site.index()];
        let timestamp = own.unwrap_or(Timestamp { time, site });
        let wait = &mut self.waits[site.index()];
        wait.timestamp = Some(timestamp);
        self.of_mode[wait.mode as usize].pending.insert(timestamp);
    }

    /// A site enters.
    pub fn enter(&mut self, site: SiteId, fence: u64, now: Time) {
        let wait = std::mem::take(&mut self.waits[site.index()]);
        let mode = wait.mode;
        self.check_exclusion(site, mode, now);
        self.check_fence(site, mode, fence, now);
        self.waiting.remove(mode);
        self.come_in(site, mode);

        // The synchronization delay is measured from the oldest exit that made room.
        let exit = self.contended_exits.pop_front();
        let passed = self.competing_entries(mode) - wait.entries_then;
        let older = wait.timestamp.is_some_and(|own| self.waits_longer(mode, own));
        if self.open {
            self.measures.waiting.record(now - wait.requested_at);
            if self.alone == Some(site) {
                self.measures.client_delay.record(now - wait.requested_at);
            }
            if let Some(exit) = exit {
                self.measures.sync_delay.record(now - exit);
            }
            let counts = &mut self.measures.counts;
            counts.max_bypass = counts.max_bypass.max(passed);
            counts.timestamp_inversions += u64::from(older);
        }
        self.entries += 1;
        let of_mode = &mut self.of_mode[mode as usize];
        of_mode.entries += 1;
        if let Some(timestamp) = wait.timestamp {
            of_mode.pending.remove(&timestamp);
        }
        // Kept for the response time, which ends at the exit.
        self.waits[site.index()].requested_at = wait.requested_at;
        self.overtakes(site, mode, now);
    }

    fn come_in(&mut self, site: SiteId, mode: Mode) {
        self.inside.add(mode);
        self.held[site.index()] = Some(mode);
        if self.open {
            let most = &mut self.measures.counts.max_inside;
            *most = self.inside.all().max(*most);
        }
    }

    /// The modes whose entries can delay a request of the given mode.
    fn competing(&self, mode: Mode) -> impl Iterator<Item = &OfMode> {
        let sharing = self.sharing;
        Mode::ALL
            .into_iter()
            .filter(move |&other| sharing.compete(mode, other))
            .map(|other| &self.of_mode[other as usize])
    }

    fn competing_entries(&self, mode: Mode) -> u64 {
        self.competing(mode).map(|of_mode| of_mode.entries).sum()
    }

    /// Whether a competing request with a smaller timestamp is waiting.
    fn waits_longer(&self, mode: Mode, own: Timestamp) -> bool {
        self.competing(mode).any(|of_mode| of_mode.pending.first().is_some_and(|first| *first < own))
    }

    fn overtakes(&mut self, site: SiteId, mode: Mode, now: Time) {
        let Some(causality) = &mut self.causality else { return };
        let (sharing, waits) = (self.sharing, &self.waits);
        let overtaking = causality.enter(site, |victim| sharing.compete(mode, waits[victim.index()].mode));
        if self.open
            && let Some(inversions) = &mut self.measures.counts.causal_inversions
        {
            *inversions += u64::from(overtaking.overtaken > 0);
        }
        // Under a fair algorithm each other site bypasses a waiter a few times at most. While a request is
        // under way, a site that enters without messages may bypass it more often, but only for a short time.
        let bound = 64.max(8 * self.names.sites as u64);
        if let Some((victim, count)) = overtaking.worst
            && count > bound
            && now - self.waits[victim.index()].requested_at > self.window.starvation_after
        {
            let what = format!(
                "{} has waited since {} T while {count} later requests that happened after it were granted",
                self.names.of(victim),
                self.waits[victim.index()].requested_at
            );
            self.violated(Violation { property: Property::NoStarvation, at: now, sites: vec![victim], what });
        }
    }

    fn check_exclusion(&mut self, site: SiteId, mode: Mode, now: Time) {
        if self.sharing.admits(self.inside, mode) {
            return;
        }
        let in_the_way = |&other: &SiteId| {
            self.held[other.index()].is_some_and(|inside| self.sharing.compete(mode, inside))
        };
        let mut sites: Vec<SiteId> = SiteId::all(self.names.sites).filter(in_the_way).collect();
        let others = list(sites.iter().map(|&other| self.names.of(other)), "no site");
        let are = if sites.len() == 1 { "is" } else { "are" };
        let what = format!("{} enters while {others} {are} inside", self.names.of(site));
        sites.push(site);
        self.violated(Violation { property: Property::MutualExclusion, at: now, sites, what });
    }

    fn check_fence(&mut self, site: SiteId, mode: Mode, fence: u64, now: Time) {
        let conflicts = Mode::ALL.into_iter().filter(|&other| self.sharing.conflict(mode, other));
        let highest = conflicts.map(|other| self.of_mode[other as usize].fence).max();
        if let Some(highest) = highest
            && fence <= highest
        {
            let what = format!(
                "{} enters with fence {fence}, but an earlier conflicting entry had {highest}",
                self.names.of(site)
            );
            self.violated(Violation { property: Property::FenceMonotone, at: now, sites: vec![site], what });
        }
        let own = &mut self.of_mode[mode as usize].fence;
        *own = fence.max(*own);
    }

    /// A site is about to leave. Call this BEFORE its exit step, whose messages belong to the following
    /// period.
    pub fn exit(&mut self, site: SiteId, now: Time) {
        let before = self.inside;
        self.go_out(site);
        self.idle_mark = now;
        if self.made_room(before) {
            self.contended_exits.push_back(now);
        }
        if self.started_inside.remove(&site) {
            return;
        }
        if self.open {
            self.measures.counts.entries += 1;
            self.measures.counts.entries_of[site.index()] += 1;
            self.measures.response.record(now - self.waits[site.index()].requested_at);
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

    fn go_out(&mut self, site: SiteId) {
        if let Some(mode) = self.held[site.index()].take() {
            self.inside.remove(mode);
        }
    }

    /// Whether the exit made room for a waiter for which there was none before.
    fn made_room(&self, before: ModeCounts) -> bool {
        Mode::ALL.into_iter().any(|mode| {
            let room = self.sharing.room(before, mode);
            self.waiting.of(mode) > room && self.sharing.room(self.inside, mode) > room
        })
    }

    /// A site crashes, and no longer waits or is inside.
    pub fn crash(&mut self, site: SiteId, was_waiting: bool, now: Time) {
        self.idle_mark = now;
        self.go_out(site);
        self.started_inside.remove(&site);
        if was_waiting {
            let wait = &mut self.waits[site.index()];
            self.waiting.remove(wait.mode);
            if let Some(timestamp) = wait.timestamp.take() {
                self.of_mode[wait.mode as usize].pending.remove(&timestamp);
            }
            if let Some(causality) = &mut self.causality {
                causality.forget(site);
            }
        }
    }

    /// A message of this type and size is sent.
    #[inline]
    pub fn send(&mut self, from: SiteId, kind: usize, bytes: u64) {
        if self.open {
            let counts = &mut self.measures.counts;
            counts.by_kind[kind] += 1;
            counts.bytes += bytes;
            counts.load_of[from.index()] += 1;
        }
    }

    /// A step that was not an exit sent messages while no site waited or was inside.
    pub fn sent_while_idle(&mut self, messages: usize, now: Time) {
        if self.open && messages > 0 {
            self.measures.counts.idle_messages += messages as u64;
            self.measures.counts.idle_time += now - self.idle_mark;
        }
        self.idle_mark = now;
    }

    /// The data to attach to a message.
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

    /// Records the queue length of requests at one site.
    pub fn backlog(&mut self, length: u64) {
        self.measures.counts.backlog = self.measures.counts.backlog.max(length);
    }

    /// The network is quiet: a window that extends until then closes.
    pub fn quiet(&mut self, now: Time) {
        if self.window.whole && self.measured() >= self.window.entries {
            self.close_window(now);
        }
    }

    /// Ends the run; returns the measurements and violations.
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
        self.measures.counts.max_inside = self.inside.all();
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
