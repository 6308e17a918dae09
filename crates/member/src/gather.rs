//! Gathering: a view that is decided starts with the report of every member, and once the missing have no lease.

use crate::parts::{Arriving, Part, Parted};
use crate::{Config, Flaw, Held, Holding, Node, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What a member holds, as far as it has reported.
#[derive(Clone, Debug, Default)]
struct Reporting {
    /// The newest view that started there.
    installed: u64,
    holds: Arriving<Holding>,
}

/// The coordinator's work for one view. A view names its coordinator; nobody else may start it, and it starts once.
#[derive(Clone, Debug)]
pub(crate) struct Gather {
    pub view: View,
    previous: View,
    reports: BTreeMap<Node, Reporting>,
    start: Option<Parted<Held>>,
    pub started_ns: Option<u64>,
}

impl Gather {
    pub fn new(view: View, previous: View) -> Self {
        Self { view, previous, reports: BTreeMap::new(), start: None, started_ns: None }
    }

    pub fn started(&self) -> bool {
        self.start.is_some()
    }

    /// Who held what at the start, once it was.
    pub fn holds_at_start(&self) -> Option<&Parted<Held>> {
        self.start.as_ref()
    }

    /// Who is to be asked for its report, and from which part on: whoever has not reported, and does not go on by itself.
    pub fn silent(&mut self) -> Vec<(Node, u32)> {
        let mut silent = Vec::new();
        for &node in &self.view.members {
            let part = match self.reports.get_mut(&node) {
                None => Some(0),
                Some(Reporting { holds, .. }) => holds.is_stuck().then(|| holds.next()),
            };
            silent.extend(part.map(|part| (node, part)));
        }
        silent
    }

    /// A part of a report arrives. Gives the part to ask for next, if more is to be asked for.
    pub fn report(&mut self, from: Node, installed: u64, part: Part<Holding>) -> Option<u32> {
        if !self.view.has(from) || self.started() {
            return None;
        }
        let reporting = self.reports.entry(from).or_default();
        reporting.installed = installed;
        reporting.holds.take(part).then(|| reporting.holds.next())
    }

    fn complete(&self) -> impl Iterator<Item = (Node, &Reporting)> {
        let reports = self.reports.iter().map(|(&node, reporting)| (node, reporting));
        reports.filter(|(_, reporting)| reporting.holds.is_complete())
    }

    /// Who may hold something and has not reported. If some member saw the view before this one start, then whoever was missing
    /// in that one has been waited for.
    fn missing(&self) -> Vec<Node> {
        let previous_started =
            self.complete().any(|(_, reporting)| reporting.installed == self.previous.epoch);
        let mut missing = self.view.missing.clone();
        missing.retain(|node| !previous_started || self.previous.has(*node));
        missing
    }

    /// Starts the view as soon as it may start, and returns whether it has. `founded_ns`: when the leases of a lost cluster have
    /// expired; `over`: when a node's last lease has expired; `known`: whether a node was known to hold something.
    pub fn start(
        &mut self,
        now: u64,
        config: &Config,
        founded_ns: u64,
        over: impl Fn(Node) -> u64,
        known: impl Fn(Node) -> bool,
    ) -> bool {
        let members = self.view.members.len();
        let enough = if config.has(Flaw::StartsWithoutEveryReport) { members / 2 + 1 } else { members };
        if self.started() || self.complete().count() < enough {
            return false;
        }
        let no_wait = config.has(Flaw::NoWait) || config.has(Flaw::ProposerWaits);
        let mut awaited = self.missing().into_iter();
        let waits = |node: Node| {
            !no_wait && now < over(node) && (known(node) || !config.has(Flaw::WaitsForKnownHoldersOnly))
        };
        if awaited.any(waits) {
            return false;
        }
        // Nobody here has seen a view start: the locks of a cluster that lost all its disks may still be held.
        let new = self.view.founding && self.complete().all(|(_, reporting)| reporting.installed == 0);
        if new && now < founded_ns {
            return false;
        }
        self.start = Some(Parted::new(self.holds(), config.part_bytes, Held::bytes));
        self.started_ns = Some(now);
        true
    }

    /// What everybody reported.
    fn holds(&self) -> Vec<Held> {
        let of = |(node, reporting): (Node, &Reporting)| {
            let held = move |held: &Holding| Held {
                lock: held.lock.clone(),
                node,
                claim: held.claim,
                units: held.units,
            };
            reporting.holds.items.iter().map(held).collect::<Vec<_>>()
        };
        self.complete().flat_map(of).collect()
    }
}
