//! The member's half of a client's session.

use crate::table::LockId;
use crate::{BugSwitch, Bugs, Config, Ended, Generation, Node, Proof, ToClient};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// The state of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting(LockId),
    Held(LockId),
    Over(Ended),
}

/// A session at this member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub generation: Generation,
    /// The proof of the client that opened the session.
    pub proof: Proof,
    /// The member that the client is connected to, if it is not this one.
    pub via: Option<Node>,
    /// The epoch in which this member has adopted the session; 0 if it was opened here.
    pub adopted_in: u64,
    /// Number of records of its holds that were committed here.
    pub recorded: u64,
    /// When recorded holds were last promised for their time to live, by this member or a previous one.
    pub durably_promised_ns: Option<u64>,
    /// While holds of a silent client are ended one by one: the last acquisition that was examined.
    pub examined: Option<u64>,
    pub acquisitions: BTreeMap<u64, Stage>,
    /// The client knows the outcome of every acquisition with a lower number.
    pub settled: u64,
    /// The time, on this member's clock, until which the client may use its holds.
    pub promised_until_ns: u64,
    /// When the client sent its last keep-alive, on its own clock.
    pub keep_alive_sent_ns: Option<u64>,
    /// When the last message of the client arrived.
    pub last_message_ns: u64,
    /// Whether this member has adopted the session and has received no message of its client since.
    pub is_orphan: bool,
    /// Revoked acquisitions, listed in every answer to a keep-alive until the client releases them.
    pub revoked: BTreeSet<u64>,
    /// The names of the operators that revoked some of these acquisitions.
    pub revoked_by: BTreeMap<u64, String>,
    /// Whether the client is in the driver's own process and never falls silent: see [`resident`](crate::resident).
    pub resident: bool,
    /// Number of acquisitions that hold or wait.
    pub open: usize,
    /// Whether the session has ended, and its holds and requests are removed in small steps.
    pub ends: bool,
}

impl Session {
    /// Grants the session a lease, limited by the rest of the member's own lease. `None` if that has expired.
    pub fn promise(&mut self, now: u64, lease_left_ns: u64, config: &Config<impl Bugs>) -> Option<u64> {
        let bound = if config.has(BugSwitch::ClientOutlivesMember) { u64::MAX } else { lease_left_ns };
        let duration = config.session_ns().min(bound);
        if duration == 0 || lease_left_ns == 0 {
            return None;
        }
        self.promised_until_ns = self.promised_until_ns.max(now.saturating_add(config.outwait(duration)));
        Some(duration)
    }

    /// Whether the client is silent and its lease has expired.
    pub fn is_over(&self, now: u64, config: &Config<impl Bugs>) -> bool {
        if self.resident {
            return false;
        }
        if config.has(BugSwitch::SilentClientForgotten) {
            return now >= self.last_message_ns.saturating_add(config.session_ns() / 2);
        }
        now >= self.promised_until_ns && now >= self.last_message_ns.saturating_add(config.session_ns())
    }

    /// Whether the client has sent nothing since the session was adopted, or for longer than its lease: then only
    /// records protect its holds.
    pub fn is_in_jeopardy(&self, now: u64, config: &Config<impl Bugs>) -> bool {
        let silent = now >= self.last_message_ns.saturating_add(config.session_ns());
        self.is_orphan || (silent && !self.resident)
    }

    /// The time until which the client may use a recorded hold with this time to live.
    pub fn record_promised_until_ns(&self, ttl_ns: u64, config: &Config<impl Bugs>) -> u64 {
        self.durably_promised_ns.map_or(0, |at| at.saturating_add(config.outwait(ttl_ns)))
    }

    /// Forgets acquisitions below this number, whose outcome the client knows: at most `most` of them, the rest with
    /// later calls. Returns those that are open nevertheless: a request that was in transit for so long that it
    /// arrived after its session had ended and was opened again. The caller cancels them.
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
            self.revoked_by.remove(&number);
            if !matches!(stage, Stage::Over(_)) {
                open.push((number, stage));
            }
        }
        let numbers = open.iter().map(|&(number, _)| number).collect();
        self.acquisitions.extend(open);
        numbers
    }

    /// Records the state of an acquisition.
    pub fn set(&mut self, number: u64, stage: Stage) {
        let is_open = |stage: Stage| !matches!(stage, Stage::Over(_));
        self.open += usize::from(is_open(stage));
        let before = self.acquisitions.insert(number, stage);
        self.open -= usize::from(before.is_some_and(is_open));
    }

    /// Whether no acquisition has used this number.
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.settled && !self.acquisitions.contains_key(&number)
    }

    /// The messages that name the operators who revoked holds of the session.
    pub fn revokers(&self) -> impl Iterator<Item = ToClient> {
        self.revoked_by.iter().map(|(&number, by)| ToClient::RevokedBy { number, by: by.clone() })
    }

    /// Whether the session has neither holds nor requests.
    pub fn is_done(&self) -> bool {
        self.open == 0
    }
}
