//! Gathering: a view that is decided starts with the report of every member, and once the missing have no lease.

use crate::{Config, Flaw, Held, LockName, Node, Report, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use lockkeeper_core::Mode;

/// The coordinator's work for one view. A view names its coordinator; nobody else may start it, and it starts once.
#[derive(Clone, Debug)]
pub(crate) struct Gather {
    pub view: View,
    previous: View,
    reports: BTreeMap<Node, Report>,
    start: Option<Vec<Held>>,
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
    pub fn holds_at_start(&self) -> Option<&[Held]> {
        self.start.as_deref()
    }

    /// Who has not reported yet.
    pub fn silent(&self) -> impl Iterator<Item = Node> + '_ {
        self.view.members.iter().copied().filter(|node| !self.reports.contains_key(node))
    }

    pub fn report(&mut self, from: Node, report: Report) {
        if self.view.has(from) && !self.started() {
            self.reports.entry(from).or_insert(report);
        }
    }

    /// Who may hold something and has not reported. If some member saw the view before this one start, then whoever was missing
    /// in that one has been waited for.
    fn missing(&self) -> Vec<Node> {
        let previous_started = self.reports.values().any(|report| report.installed == self.previous.epoch);
        let mut missing =
            if previous_started { self.previous.members.clone() } else { self.view.missing.clone() };
        missing.retain(|node| !self.view.has(*node));
        missing
    }

    /// The start, once it may be: `over` tells when a node's last lease is over, `known` whether it was known to hold something.
    pub fn start(
        &mut self,
        now: u64,
        config: &Config,
        over: impl Fn(Node) -> u64,
        known: impl Fn(Node) -> bool,
    ) -> Option<&[Held]> {
        if self.start.is_none() {
            let enough = if config.has(Flaw::StartsWithoutEveryReport) {
                self.view.members.len() / 2 + 1
            } else {
                self.view.members.len()
            };
            if self.reports.len() < enough {
                return None;
            }
            let no_wait = config.has(Flaw::NoWait) || config.has(Flaw::ProposerWaits);
            let mut awaited = self.missing().into_iter();
            let waits = |node: Node| {
                !no_wait && now < over(node) && (known(node) || !config.has(Flaw::WaitsForKnownHoldersOnly))
            };
            if awaited.any(waits) {
                return None;
            }
            self.start = Some(self.holds());
            self.started_ns = Some(now);
        }
        self.start.as_deref()
    }

    fn holds(&self) -> Vec<Held> {
        let of = |(&node, report): (&Node, &Report)| {
            let held = |(lock, mode, units): &(LockName, Mode, u32)| Held {
                lock: lock.clone(),
                node,
                mode: *mode,
                units: *units,
            };
            report.holds.iter().map(held).collect::<Vec<_>>()
        };
        let mut holds: Vec<Held> = self.reports.iter().flat_map(of).collect();
        holds.sort();
        holds
    }
}
