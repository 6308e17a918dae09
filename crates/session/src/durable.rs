//! Recorded holds at the client: they are promised for their whole time to live, and survive their member.
//!
//! A hold is protected in two stages. At first only by the lease of its session, which is at most as long as that of the
//! member. Once the cluster has recorded the hold, each answer to a keep-alive also promises its time to live, counted
//! from when the keep-alive was sent:
//!
//! ```text
//! granted    Recorded (index 1)     Alive (recorded 1)         connection lost
//! │ lease ──────┼───────────────────────┼─── lease ────┤             │
//! │             ├─ time to live ────────┼─ time to live ─────────────┼──────────────┤ lapses
//! ```
//!
//! The index determines which answers promise the hold: an answer that the member sent before it had the record does
//! not, even if it arrives after [`ToClient::Recorded`].

use crate::{BugSwitch, Bugs, ClientSession, Generation, Progress, ToClient, ToMember};
use alloc::vec::Vec;

/// A recorded hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurableHold {
    /// The index of its record; 0 if the session was adopted with it.
    index: u64,
    ttl_ns: u64,
    /// The end of the promise, on the client's own clock; 0 before the first one.
    until_ns: u64,
}

impl<B: Bugs> ClientSession<B> {
    /// The time, on the client's own clock, until which the client may use this acquisition if no keep-alive is answered
    /// any more; 0 for a lost session.
    pub fn hold_until_ns(&self, number: u64) -> u64 {
        // Before the first lease, the client may still give up the session as one that was never answered.
        if self.lost || !self.alive {
            return 0;
        }
        let promised = self.durable.get(&number).map_or(0, |hold| hold.until_ns);
        // Once the lease has expired, holds without a promise of their own have lapsed for good.
        let lease = if self.expired { 0 } else { self.lease_until_ns };
        lease.max(promised)
    }

    /// The time to live of a recorded hold; `None` if the hold is not recorded.
    pub fn recorded_ttl_ns(&self, number: u64) -> Option<u64> {
        self.durable.get(&number).map(|hold| hold.ttl_ns)
    }

    /// Whether the lease has expired while a recorded hold is still promised: the client may use that hold, and requests
    /// nothing through this session.
    pub fn has_only_recorded_holds(&self) -> bool {
        self.expired && !self.lost
    }

    /// When the next hold lapses, or the session is lost, if no keep-alive is answered.
    pub(crate) fn next_expiry_ns(&self) -> u64 {
        match (self.alive && !self.lost, self.expired) {
            (false, _) => u64::MAX,
            (true, false) => self.lease_until_ns,
            (true, true) => self.durable.values().map(|hold| hold.until_ns).min().unwrap_or(0),
        }
    }

    /// Ends the holds that are not promised any more: they become releases, and are never usable again. Without a promised
    /// hold, the session is lost. A recorded hold that the client has released counts until the release is answered:
    /// otherwise a member that adopts the hold would keep it for its whole time to live.
    pub(crate) fn expire(&mut self, now: u64) {
        if self.lost || !self.alive || now < self.lease_until_ns {
            return;
        }
        let promised = |hold: Option<&DurableHold>| hold.is_some_and(|hold| now < hold.until_ns);
        if !self.durable.values().any(|hold| promised(Some(hold))) {
            self.lost = true;
            return;
        }
        let lapsed: Vec<u64> = if self.expired {
            self.durable.iter().filter(|(_, hold)| !promised(Some(hold))).map(|(&number, _)| number).collect()
        } else {
            let held = |progress: &Progress| matches!(progress, Progress::Held(_) | Progress::Delegated(_));
            let held = self.acquisitions.iter().filter(|(_, progress)| held(progress));
            held.map(|(&number, _)| number).filter(|number| !promised(self.durable.get(number))).collect()
        };
        self.expired = true;
        if !self.bugs.has(BugSwitch::LapsedHoldRevived) {
            lapsed.iter().for_each(|&number| self.release(number));
            self.lapsed.extend(lapsed);
        }
        self.durable.retain(|_, hold| now < hold.until_ns);
    }

    /// Keeps a recorded hold that the client releases in the session until the release is answered, or until any member
    /// would have ended the hold by itself.
    pub(crate) fn keep_until_released(&mut self, number: u64) {
        let lease_until_ns = self.lease_until_ns;
        if let Some(hold) = self.durable.get_mut(&number) {
            hold.until_ns = hold.until_ns.max(lease_until_ns.saturating_add(hold.ttl_ns));
        }
    }

    /// Whether the message belongs to the generation that the client knows, or begins a newer one. A former member of
    /// the session does not know the present holds, and a newer member sends [`ToClient::Resumed`] first.
    pub(crate) fn is_of_this_generation(&mut self, message: &ToClient) -> bool {
        match message {
            ToClient::Alive { generation, .. }
            | ToClient::Granted { generation, .. }
            | ToClient::Recorded { generation, .. } => {
                let known = *self.generation.get_or_insert(*generation);
                known == *generation || *generation < known && self.bugs.has(BugSwitch::OldGenerationAccepted)
            }
            ToClient::Resumed { generation, .. } => self.generation.is_some_and(|known| *generation > known),
            ToClient::Recall { .. }
            | ToClient::Ended { .. }
            | ToClient::RevokedBy { .. }
            | ToClient::NoSession => true,
        }
    }

    /// Handles the message that a hold is recorded.
    pub(crate) fn recorded(&mut self, number: u64, index: u64, ttl_ns: u64, from_ns: Option<u64>) {
        let known = matches!(self.acquisitions.get(&number), Some(Progress::Held(_) | Progress::Releasing));
        if known {
            self.in_use.remove(&number);
            let hold = self.durable.entry(number).or_insert(DurableHold { index, ttl_ns, until_ns: 0 });
            let until_ns = from_ns.map_or(0, |from_ns| from_ns.saturating_add(ttl_ns));
            hold.until_ns = hold.until_ns.max(until_ns);
        }
    }

    /// Handles the promise in an answer to a keep-alive that was sent at `from_ns`.
    pub(crate) fn extend_promises(&mut self, from_ns: u64, recorded: Option<u64>) {
        let whole_session = self.bugs.has(BugSwitch::PromisedPerSession) && !self.durable.is_empty();
        let Some(recorded) = recorded else { return };
        for hold in self.durable.values_mut().filter(|hold| hold.index <= recorded || whole_session) {
            hold.until_ns = hold.until_ns.max(from_ns.saturating_add(hold.ttl_ns));
        }
        if whole_session {
            let ttl_ns = self.durable.values().map(|hold| hold.ttl_ns).max().unwrap_or(0);
            let held = self.acquisitions.iter().filter(|(_, progress)| matches!(progress, Progress::Held(_)));
            for number in held.map(|(&number, _)| number).collect::<Vec<_>>() {
                let until_ns = from_ns.saturating_add(ttl_ns);
                self.durable.entry(number).or_insert(DurableHold { index: 0, ttl_ns, until_ns });
            }
        }
    }

    /// Handles the message that another member has adopted the session with these holds and their times to live. Returns
    /// the releases of holds that the client has given up already.
    pub(crate) fn resume(&mut self, generation: Generation, held: &[(u64, u64)]) -> Vec<ToMember> {
        self.generation = Some(generation);
        // The holds that another member has adopted are recorded.
        self.in_use.clear();
        let is_adopted = |number: u64| held.iter().any(|&(adopted, _)| adopted == number);
        let mine = self.acquisitions.iter().filter_map(|(&number, progress)| {
            let held = matches!(progress, Progress::Held(_) | Progress::Delegated(_));
            (held && !is_adopted(number)).then_some(number)
        });
        let kept = self.bugs.has(BugSwitch::LapsedHoldRevived);
        for lost in mine.filter(|_| !kept).collect::<Vec<_>>() {
            self.release(lost);
        }
        let mut messages = Vec::new();
        for &(number, ttl_ns) in held {
            match self.acquisitions.get(&number) {
                Some(Progress::Held(_)) => {
                    let until_ns = self.durable.get(&number).map_or(0, |hold| hold.until_ns);
                    self.durable.insert(number, DurableHold { index: 0, ttl_ns, until_ns });
                }
                None | Some(Progress::Ended(_)) => messages.push(ToMember::Release { number }),
                Some(_) => {}
            }
        }
        messages
    }
}
