//! A client's session, as its member keeps it.

use crate::{Birth, Config, Ended, Flaw, LockName};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Where an acquisition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting(LockName),
    Held(LockName),
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
}

impl Session {
    /// Promises the client so long as the member's own lease lets it; `None` where that is nothing.
    pub fn promise(&mut self, now: u64, lease_left_ns: u64, config: &Config) -> Option<u64> {
        let bound = if config.has(Flaw::ClientOutlivesMember) { u64::MAX } else { lease_left_ns };
        let duration = config.session_ns.min(bound);
        if duration == 0 || lease_left_ns == 0 {
            return None;
        }
        self.promised_until_ns = self.promised_until_ns.max(now.saturating_add(config.outwait(duration)));
        Some(duration)
    }

    /// Whether the client has fallen silent, and nothing promised to it is left.
    pub fn is_over(&self, now: u64, config: &Config) -> bool {
        if config.has(Flaw::SilentClientForgotten) {
            return now >= self.heard_ns.saturating_add(config.session_ns / 2);
        }
        now >= self.promised_until_ns && now >= self.heard_ns.saturating_add(config.session_ns)
    }

    /// The client has heard how everything below ended: it need not be remembered. Gives what is open nevertheless: a wish that was
    /// under way for so long that it began again in a session that was over. Nobody wants it.
    pub fn settle(&mut self, below: u64) -> Vec<u64> {
        self.settled = self.settled.max(below);
        let settled = self.settled;
        self.revoked = self.revoked.split_off(&settled);
        self.acquisitions.retain(|&number, stage| number >= settled || !matches!(stage, Stage::Over(_)));
        self.acquisitions.range(..settled).map(|(&number, _)| number).collect()
    }

    /// Whether this number was never used.
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.settled && !self.acquisitions.contains_key(&number)
    }

    /// What the session holds or waits for.
    pub fn open(&self) -> Vec<(u64, LockName)> {
        let open = self.acquisitions.iter().filter_map(|(&number, stage)| match stage {
            Stage::Waiting(lock) | Stage::Held(lock) => Some((number, lock.clone())),
            Stage::Over(_) => None,
        });
        open.collect()
    }
}
