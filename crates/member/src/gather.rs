//! The coordinator's part of a view change: a decided view starts once every member has reported and the leases of
//! all missing members have expired.

use crate::chunks::{Chunk, ChunkedList, ChunkedListBuilder, Reassembly};
use crate::{BugSwitch, Bugs, Config, HoldRecord, Node, ReportedHold, SessionId, StartHold, View};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The report of a member, as far as it has arrived.
#[derive(Clone, Debug, Default)]
struct Reporting {
    /// The epoch of the newest view that started there.
    installed: u64,
    holds: Reassembly<ReportedHold>,
}

/// The coordinator's state for one view. Only the coordinator that a view names may start it, and it starts once.
#[derive(Clone, Debug)]
pub(crate) struct Gather {
    pub view: View,
    previous: View,
    /// The adopted records of the table at the position of the view.
    adopted: Vec<HoldRecord>,
    reports: BTreeMap<Node, Reporting>,
    /// The start, while it is built from the reports.
    building: Option<Building>,
    start: Option<ChunkedList<StartHold>>,
    pub started_ns: Option<u64>,
}

/// A start under construction: the reports that are not in it yet, and how many holds of the first chunk of the first
/// report are.
#[derive(Clone, Debug)]
struct Building {
    reports: VecDeque<(Node, VecDeque<Arc<[ReportedHold]>>)>,
    done: usize,
    /// Recorded holds that their homes do not know yet.
    adopted: VecDeque<HoldRecord>,
    /// The holds of `adopted` that are in the start: their session, and the number of their first acquisition.
    counted: BTreeSet<(SessionId, u64)>,
    start: ChunkedListBuilder<StartHold>,
}

impl Gather {
    pub fn new(view: View, previous: View, adopted: Vec<HoldRecord>) -> Self {
        let reports = BTreeMap::new();
        Self { view, previous, adopted, reports, building: None, start: None, started_ns: None }
    }

    /// Whether the view has started: the start is complete and being sent.
    pub fn started(&self) -> bool {
        self.start.is_some()
    }

    /// Whether the reports are incomplete, or the lease of a missing member is waited for.
    pub fn is_gathering(&self) -> bool {
        self.start.is_none() && self.building.is_none()
    }

    /// Whether the start is being built from the reports.
    pub fn is_building(&self) -> bool {
        self.building.is_some()
    }

    /// The holds at the start, once the view has started.
    pub fn holds_at_start(&self) -> Option<&ChunkedList<StartHold>> {
        self.start.as_ref()
    }

    /// The members whose reports are to be requested, and the first missing chunk of each: members without a report,
    /// and those whose report has made no progress lately.
    pub fn silent(&mut self) -> Vec<(Node, u32)> {
        let mut silent = Vec::new();
        for &node in &self.view.members {
            let chunk = match self.reports.get_mut(&node) {
                None => Some(0),
                Some(Reporting { holds, .. }) => holds.is_stuck().then(|| holds.next()),
            };
            silent.extend(chunk.map(|chunk| (node, chunk)));
        }
        silent
    }

    /// Handles a chunk of a report. Returns the number of the next chunk to request, if any.
    pub fn report(&mut self, from: Node, installed: u64, chunk: Chunk<ReportedHold>) -> Option<u32> {
        if !self.view.has(from) || !self.is_gathering() {
            return None;
        }
        let reporting = self.reports.entry(from).or_default();
        reporting.installed = installed;
        reporting.holds.take(chunk).then(|| reporting.holds.next())
    }

    /// The reports of which all chunks have arrived.
    fn complete(&self) -> impl Iterator<Item = (Node, &Reporting)> {
        let reports = self.reports.iter().map(|(&node, reporting)| (node, reporting));
        reports.filter(|(_, reporting)| reporting.holds.is_complete())
    }

    /// The members that may have holds and do not report. If a member saw the previous view start, the leases of the
    /// members missing in that one have been waited for.
    fn missing(&self) -> Vec<Node> {
        // Example: view 5 excluded member 3, and started. View 6 still lists 3 as missing if its leader did not know
        // that. A member that has installed view 5 proves it, so 3 is not waited for again.
        let previous_started =
            self.complete().any(|(_, reporting)| reporting.installed == self.previous.epoch);
        let mut missing = self.view.missing.clone();
        missing.retain(|node| !previous_started || self.previous.has(*node));
        missing
    }

    /// Begins to build the start as soon as the view may start. `founded_ns`: when the leases of a lost cluster have
    /// expired; `over`: when a node's last lease has expired; `known`: whether a node was known to have holds.
    pub fn begin_start(
        &mut self,
        now: u64,
        config: &Config<impl Bugs>,
        founded_ns: u64,
        over: impl Fn(Node) -> u64,
        known: impl Fn(Node) -> bool,
    ) {
        let members = self.view.members.len();
        let enough = if config.has(BugSwitch::StartsWithoutEveryReport) { members / 2 + 1 } else { members };
        if !self.is_gathering() || self.complete().count() < enough {
            return;
        }
        let no_wait = config.has(BugSwitch::NoWait) || config.has(BugSwitch::ProposerWaits);
        let mut awaited = self.missing().into_iter();
        let waits = |node: Node| {
            !no_wait && now < over(node) && (!config.has(BugSwitch::WaitsForKnownHoldersOnly) || known(node))
        };
        if awaited.any(waits) {
            return;
        }
        // No member has seen a view start: locks of a cluster that lost all its disks may still be held.
        let new = self.view.founding && self.complete().all(|(_, reporting)| reporting.installed == 0);
        if new && now < founded_ns {
            return;
        }
        let complete = self.reports.iter_mut().filter(|(_, reporting)| reporting.holds.is_complete());
        let reports = complete.map(|(&node, reporting)| (node, reporting.holds.items().into_chunks().into()));
        let reports = reports.collect();
        self.building = Some(Building {
            reports,
            done: 0,
            adopted: self.unknown_to_their_homes(config).into(),
            counted: BTreeSet::new(),
            start: ChunkedListBuilder::default(),
        });
    }

    /// The adopted records that are not in the report of their home. A home reports the holds that it had in its
    /// installed view. It does not know a hold that it was given later: by this view, or by an earlier one that it never
    /// installed.
    fn unknown_to_their_homes(&mut self, config: &Config<impl Bugs>) -> Vec<HoldRecord> {
        let missing_only = config.has(BugSwitch::TableForMissingOnly);
        let beside_reports = config.has(BugSwitch::TableBesideReports);
        let epoch = self.view.epoch;
        let mut adopted = core::mem::take(&mut self.adopted);
        adopted.retain(|record| {
            let installed = self.reports.get(&record.home).map_or(0, |reporting| reporting.installed);
            (record.epoch > installed || beside_reports) && (!missing_only || record.epoch == epoch)
        });
        adopted
    }

    /// Adds up to `most` holds to the start. Returns their number. With the last one, the view starts.
    pub fn continue_building(&mut self, now: u64, most: usize, chunk_bytes: usize) -> usize {
        let Some(building) = &mut self.building else { return 0 };
        let mut taken = 0;
        while let Some((node, chunks)) = building.reports.front_mut() {
            let Some(chunk) = chunks.front() else {
                building.reports.pop_front();
                continue;
            };
            for holding in chunk.iter().skip(building.done).take(most - taken) {
                let ReportedHold { lock, mode, units } = holding.clone();
                let held = StartHold { lock, node: *node, mode, units, adopted: None };
                let bytes = held.bytes();
                building.start.push(held, bytes, chunk_bytes);
                (taken, building.done) = (taken + 1, building.done + 1);
            }
            if building.done < chunk.len() {
                return taken;
            }
            building.done = 0;
            chunks.pop_front();
        }
        while let Some(record) = building.adopted.pop_front() {
            let first = building.counted.insert((record.acquisition.session, record.hold));
            let (lock, node, mode) = (record.lock.clone(), record.home, record.mode);
            let held =
                StartHold { lock, node, mode, units: u32::from(first), adopted: Some(Box::new(record)) };
            let bytes = held.bytes();
            building.start.push(held, bytes, chunk_bytes);
            taken += 1;
            if taken >= most {
                return taken;
            }
        }
        self.start = self.building.take().map(|building| building.start.finish());
        self.started_ns = Some(now);
        taken
    }

    /// All lists, to be freed in small steps.
    pub fn into_lists(self) -> (Vec<ChunkedList<ReportedHold>>, Vec<Arc<[StartHold]>>) {
        let mut reports: Vec<_> =
            self.reports.into_values().map(|mut reporting| reporting.holds.items()).collect();
        let mut start = self.start.map_or_else(Vec::new, ChunkedList::into_chunks);
        if let Some(building) = self.building {
            reports.extend(building.reports.into_iter().map(|(_, chunks)| ChunkedList::of(chunks.into())));
            start.extend(building.start.finish().into_chunks());
        }
        (reports, start)
    }
}
