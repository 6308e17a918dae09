//! A client's session, as its member keeps it.

use crate::table::LockId;
use crate::{Birth, Config, Ended, Flaw};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Where an acquisition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting(LockId),
    Held(LockId),
    Over(Ended),
}

/// One session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub birth: Birth,
    pub acquisitions: BTreeMap<u64, Stage>,
    /// The client has heard the end of everything below.
    pub settled: u64,
    /// Until then, on this member's clock, the client may be using what it holds.
    pub promised_until_ns: u64,
    /// When the client was last heard.
    pub heard_ns: u64,
    /// What must not be used any more; named in every answer until the client gives it back.
    pub revoked: BTreeSet<u64>,
    /// How many acquisitions hold or wait.
    pub open: usize,
    /// It is over, and what it held and waited for goes bit by bit.
    pub ends: bool,
}

impl Session {
    /// Promises the client so long as the member's own lease lets it; `None` where that is nothing.
    pub fn promise(&mut self, now: u64, lease_left_ns: u64, config: &Config) -> Option<u64> {
        let bound = if config.has(Flaw::ClientOutlivesMember) { u64::MAX } else { lease_left_ns };
        let duration = config.session_ns().min(bound);
        if duration == 0 || lease_left_ns == 0 {
            return None;
        }
        self.promised_until_ns = self.promised_until_ns.max(now.saturating_add(config.outwait(duration)));
        Some(duration)
    }

    /// Whether the client has fallen silent, and nothing promised to it is left.
    pub fn is_over(&self, now: u64, config: &Config) -> bool {
        if config.has(Flaw::SilentClientForgotten) {
            return now >= self.heard_ns.saturating_add(config.session_ns() / 2);
        }
        now >= self.promised_until_ns && now >= self.heard_ns.saturating_add(config.session_ns())
    }

    /// The client has heard how everything below ended: it need not be remembered. At most so many are forgotten at once; the rest
    /// follows with later calls. Gives what is open nevertheless: a wish that was under way for so long that it began again in a
    /// session that was over. Nobody wants it.
    pub fn settle(&mut self, below: u64, most: usize) -> Vec<u64> {
        self.settled = self.settled.max(below);
        let below = self.settled;
        let mut open = Vec::new();
        for _ in 0..most {
            let Some(first) = self.acquisitions.first_entry().filter(|first| *first.key() < below) else {
                break;
            };
            let (number, stage) = first.remove_entry();
            self.revoked.remove(&number);
            if !matches!(stage, Stage::Over(_)) {
                open.push((number, stage));
            }
        }
        let numbers = open.iter().map(|&(number, _)| number).collect();
        self.acquisitions.extend(open);
        numbers
    }

    /// An acquisition begins, goes on, or ends.
    pub fn set(&mut self, number: u64, stage: Stage) {
        let is_open = |stage: Stage| !matches!(stage, Stage::Over(_));
        self.open += usize::from(is_open(stage));
        let before = self.acquisitions.insert(number, stage);
        self.open -= usize::from(before.is_some_and(is_open));
    }

    /// Whether this number was never used.
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.settled && !self.acquisitions.contains_key(&number)
    }

    /// Whether the session neither holds nor waits for anything.
    pub fn is_done(&self) -> bool {
        self.open == 0
    }
}
