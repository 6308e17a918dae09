//! The client's half of a session: its lease, its acquisitions and its delegations.

use crate::delegation::Delegation;
use crate::durable::DurableHold;
use crate::{
    BugSwitch, Bugs, Ended, Fence, Generation, LockRequest, NoBugs, SessionId, Tag, ToClient, ToMember,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How long after the grant a client may keep an idle delegation. Usually a waiting client causes a recall earlier;
/// where the lock's algorithm cannot detect waiters, this bounds how long they wait for an idle lock.
pub const MAX_DELEGATION_NS: u64 = 10_000_000;

/// The state of an acquisition at its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Requested, and not granted yet.
    Waiting(LockRequest),
    /// Held, with this fence; usable only while the session's lease runs.
    Held(Option<Fence>),
    /// Held as an idle delegation; the fence is that of the last entry.
    Delegated(Option<Fence>),
    /// Released or cancelled, and not acknowledged yet.
    Releasing,
    /// Ended, with this outcome.
    Ended(Ended),
}

/// A client's session at the client: a pure state machine, the counterpart of a member. Its driver
/// sends the messages that it returns, and may send all of them again at any time.
#[derive(Clone, Debug)]
pub struct ClientSession<B: Bugs = NoBugs> {
    id: SessionId,
    /// The generation of the session, once the member has sent it.
    pub(crate) generation: Option<Generation>,
    /// Whether the member has ever renewed the lease.
    pub(crate) alive: bool,
    /// Expiry of the lease, on the client's own clock: the client may use its holds until then, and recorded holds for
    /// as long as they are promised.
    pub(crate) lease_until_ns: u64,
    pub(crate) lost: bool,
    pub(crate) acquisitions: BTreeMap<u64, Progress>,
    /// Number of acquisitions that have ended since the last keep-alive.
    ended: u64,
    next: u64,
    /// Acquisitions with a delegation, by number.
    delegations: BTreeMap<u64, Delegation>,
    /// Holds whose delegations have ended while the locks were in use, and the descriptions of their users. The member records
    /// such a hold only once it knows of the use, so the message is repeated over each new connection until then.
    pub(crate) in_use: BTreeMap<u64, Tag>,
    /// Recorded holds, by number.
    pub(crate) durable: BTreeMap<u64, DurableHold>,
    /// Whether the lease has expired, and only recorded holds are left.
    pub(crate) expired: bool,
    /// Holds that have lapsed while the session continues, to be released at the member.
    pub(crate) lapsed: Vec<u64>,
    /// Holds that the client released while it could use them, and whose release is not answered yet.
    released_in_time: BTreeSet<u64>,
    /// Longest duration of a delegation: [`MAX_DELEGATION_NS`], except in simulations with another time scale.
    pub max_delegation_ns: u64,
    /// Bug switches, for simulations.
    pub(crate) bugs: B,
}

impl ClientSession {
    /// Creates a session. The id is never reused.
    pub fn new(id: SessionId) -> Self {
        Self::with_bugs(id, NoBugs)
    }
}

impl<B: Bugs> ClientSession<B> {
    /// Creates a session with bug switches, for simulations.
    pub fn with_bugs(id: SessionId, bugs: B) -> Self {
        Self {
            id,
            generation: None,
            alive: false,
            lease_until_ns: 0,
            lost: false,
            acquisitions: BTreeMap::new(),
            ended: 0,
            next: 0,
            delegations: BTreeMap::new(),
            in_use: BTreeMap::new(),
            durable: BTreeMap::new(),
            expired: false,
            lapsed: Vec::new(),
            released_in_time: BTreeSet::new(),
            max_delegation_ns: MAX_DELEGATION_NS,
            bugs,
        }
    }

    /// The session that follows a lost one. Requests that wait are kept under their numbers, to be sent in the same
    /// order. Holds are lost.
    pub fn reopen(&self, id: SessionId) -> Self {
        let waiting =
            self.acquisitions.iter().filter(|(_, progress)| matches!(progress, Progress::Waiting(_)));
        let acquisitions = waiting.map(|(&number, progress)| (number, progress.clone())).collect();
        Self {
            acquisitions,
            next: self.next,
            max_delegation_ns: self.max_delegation_ns,
            ..Self::with_bugs(id, self.bugs)
        }
    }

    /// The requests that wait, in the order in which they were made.
    pub fn waiting_requests(&self) -> Vec<(u64, LockRequest)> {
        let waiting = |(&number, progress): (&u64, &Progress)| match progress {
            Progress::Waiting(request) => Some((number, request.clone())),
            _ => None,
        };
        self.acquisitions.iter().filter_map(waiting).collect()
    }

    /// Expiry of the lease, on the client's own clock, if it is not renewed; 0 for a lost session.
    pub fn lease_until_ns(&self) -> u64 {
        if self.lost { 0 } else { self.lease_until_ns }
    }

    /// The session's id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The generation of the session; `None` before the first message of a member.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// The numbers of the acquisitions that are held.
    pub fn held(&self) -> impl Iterator<Item = u64> + '_ {
        let held =
            |(&number, progress): (&u64, &Progress)| matches!(progress, Progress::Held(_)).then_some(number);
        self.acquisitions.iter().filter_map(held)
    }

    /// Whether the session is lost: its lease expired and no recorded hold is promised any more, or no member knows it.
    /// It never recovers; open another one.
    pub fn is_lost(&mut self, now: u64) -> bool {
        self.expire(now);
        self.lost
    }

    /// Whether the session's lease has expired. If a session is lost without that, its member does not know it.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.alive && now >= self.lease_until_ns
    }

    /// Whether an acquisition has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.acquisitions.values().any(|progress| !matches!(progress, Progress::Ended(_)))
    }

    /// Whether a lock is held, or its release is not acknowledged yet.
    pub(crate) fn is_used(&self) -> bool {
        let used = |progress: &Progress| matches!(progress, Progress::Held(_) | Progress::Releasing);
        self.acquisitions.values().any(used)
    }

    /// Whether the member has ever renewed the lease.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether the client may use the acquisition now.
    pub fn may_use(&self, now: u64, number: u64) -> bool {
        let held = matches!(self.acquisitions.get(&number), Some(Progress::Held(_)));
        held && now < self.hold_until_ns(number)
    }

    /// The state of an acquisition.
    pub fn progress(&self, number: u64) -> Option<&Progress> {
        self.acquisitions.get(&number)
    }

    /// Requests a lock. Returns the number of the acquisition.
    pub fn acquire(&mut self, request: LockRequest) -> u64 {
        self.next += 1;
        self.acquisitions.insert(self.next, Progress::Waiting(request));
        self.next
    }

    /// Adds a hold that another driver has acquired in this session.
    pub fn restore(&mut self, number: u64, fence: Option<Fence>) {
        self.next = self.next.max(number);
        self.acquisitions.insert(number, Progress::Held(fence));
    }

    /// Releases a lock, or cancels the request.
    pub fn release(&mut self, number: u64) {
        self.delegations.remove(&number);
        self.in_use.remove(&number);
        self.keep_until_released(number);
        if let Some(progress @ (Progress::Waiting(_) | Progress::Held(_) | Progress::Delegated(_))) =
            self.acquisitions.get_mut(&number)
        {
            *progress = Progress::Releasing;
        }
    }

    /// Releases a lock, or cancels the request, at this time. If the hold is usable now, its release is confirmed once
    /// no member knows the session.
    pub(crate) fn release_at(&mut self, now: u64, number: u64) {
        if self.may_use(now, number) {
            self.released_in_time.insert(number);
        }
        self.release(number);
    }

    /// Handles the answer that no member knows the session. A hold that the client could use when it released it was
    /// granted to no other client before, and no member holds it now: it is released. The member has forgotten the
    /// outcome, for example because the connection broke before the answer and the session was closed without holds.
    fn end_unknown(&mut self) {
        self.lost = true;
        for number in core::mem::take(&mut self.released_in_time) {
            self.end(number, Ended::Released);
        }
    }

    /// Leaves a lock. With a delegation, the client keeps the lock idle and sends nothing; the driver then calls
    /// [`end_delegations`](Self::end_delegations), at once if another client waits and no local caller has entered again.
    /// Returns `false` without one: then the caller has to [release](Self::release) the lock.
    pub fn keep_as_delegation(&mut self, now: u64, number: u64) -> bool {
        let Some(delegation) = self.delegations.get(&number) else { return false };
        let Some(progress) = self.acquisitions.get_mut(&number) else { return false };
        let Progress::Held(fence) = *progress else { return false };
        let keeps = delegation.allows_entry(now) && !self.lost && now < self.lease_until_ns;
        if keeps {
            *progress = Progress::Delegated(fence);
        }
        keeps
    }

    /// Enters a lock again under an idle delegation, without a message. Returns the number of the acquisition, which
    /// is [held](Progress::Held) again with the next fence. `None` if the request has to be sent to the member.
    pub fn reenter(&mut self, now: u64, request: &LockRequest) -> Option<u64> {
        if self.delegations.is_empty() || self.lost || now >= self.lease_until_ns {
            return None;
        }
        let (&number, delegation) = self.delegations.iter_mut().find(|(number, delegation)| {
            delegation.serves(request)
                && matches!(self.acquisitions.get(number), Some(Progress::Delegated(_)))
        })?;
        let progress = self.acquisitions.get_mut(&number)?;
        let Progress::Delegated(fence) = *progress else { return None };
        let fence = delegation.enter(now, fence, &request.tag)?;
        *progress = Progress::Held(fence);
        Some(number)
    }

    /// Number of further entries that the delegation allows, and how many of them were made.
    pub fn entries(&self, number: u64) -> (u32, u32) {
        self.delegations.get(&number).map_or((0, 0), Delegation::entries)
    }

    /// Whether another client waited already when the delegation was granted.
    pub fn is_contended(&self, number: u64) -> bool {
        self.delegations.get(&number).is_some_and(|delegation| delegation.contended)
    }

    /// When to call [`end_delegations`](Self::end_delegations) next: 0 (at once) if another client waits for an idle
    /// delegation.
    pub fn next_delegation_end_ns(&self) -> Option<u64> {
        let until = |(number, delegation): (&u64, &Delegation)| {
            let unused = || matches!(self.acquisitions.get(number), Some(Progress::Delegated(_)));
            if delegation.contended && unused() { 0 } else { delegation.until_ns }
        };
        self.delegations.iter().map(until).min()
    }

    /// Ends the delegations that have expired by `now`; [`u64::MAX`] ends all of them. Returns the messages to send.
    pub fn end_delegations(&mut self, now: u64) -> Vec<ToMember> {
        if self.delegations.is_empty() {
            return Vec::new();
        }
        let unused = |number: &u64| matches!(self.acquisitions.get(number), Some(Progress::Delegated(_)));
        let over = |(number, delegation): &(&u64, &Delegation)| {
            now >= delegation.until_ns || (delegation.contended && unused(number))
        };
        let over: Vec<u64> = self.delegations.iter().filter(over).map(|(&number, _)| number).collect();
        over.into_iter().filter_map(|number| self.end_delegation(number)).collect()
    }

    /// Ends a delegation: releases the lock if it is idle; otherwise its present user is the last one.
    fn end_delegation(&mut self, number: u64) -> Option<ToMember> {
        match *self.acquisitions.get(&number)? {
            Progress::Delegated(_) => {
                self.release(number);
                Some(ToMember::Release { number })
            }
            Progress::Held(fence) => {
                let tag = self.delegations.remove(&number).map(Delegation::into_tag).unwrap_or_default();
                self.in_use.insert(number, tag.clone());
                Some(ToMember::InUse { number, fence, tag })
            }
            _ => None,
        }
    }

    /// Forgets the leading acquisitions that have ended. The client knows the outcome of every acquisition below the
    /// returned number.
    pub fn settle(&mut self) -> u64 {
        while let Some(first) = self.acquisitions.first_entry()
            && matches!(first.get(), Progress::Ended(_))
        {
            first.remove();
        }
        self.acquisitions.first_key_value().map_or(self.next + 1, |(&number, _)| number)
    }

    /// The keep-alive to send now.
    pub fn keep_alive(&mut self, now: u64) -> ToMember {
        // Keep-alives are frequent, and a client may hold a million locks: scan them only if some have ended.
        if core::mem::take(&mut self.ended) > 0 {
            self.acquisitions.retain(|_, progress| !matches!(progress, Progress::Ended(_)));
        }
        ToMember::KeepAlive {
            sent_ns: now,
            // A session whose generation is known was opened. A member that does not know it must not open it again, with a
            // generation that may be lower, whose messages the client would ignore for ever.
            first: !self.alive && self.generation.is_none(),
            settled: self.settle(),
            generation: self.generation,
        }
    }

    /// All messages to send now: a keep-alive, every request and release that is not answered yet, and the uses of ended
    /// delegations whose holds are not recorded.
    pub fn all_messages(&mut self, now: u64) -> Vec<ToMember> {
        let mut messages = Vec::from([self.keep_alive(now)]);
        let settled = self.settle();
        messages.extend(self.acquisitions.iter().filter_map(|(&number, progress)| match progress {
            Progress::Waiting(request) => {
                Some(ToMember::Acquire { number, settled, request: request.clone() })
            }
            Progress::Releasing => Some(ToMember::Release { number }),
            Progress::Held(fence) => {
                let tag = self.in_use.get(&number)?.clone();
                Some(ToMember::InUse { number, fence: *fence, tag })
            }
            Progress::Delegated(_) | Progress::Ended(_) => None,
        }));
        messages
    }

    /// Handles a message of a member. A grant that arrives after the lease has expired is ignored. Returns the messages
    /// to send at once.
    pub fn receive(&mut self, now: u64, message: ToClient) -> Vec<ToMember> {
        if self.is_lost(now) || !self.is_of_this_generation(&message) {
            return Vec::new();
        }
        match message {
            ToClient::Alive { sent_ns, duration_ns, revoked, recorded, .. } => {
                self.alive = true;
                for number in revoked {
                    self.release(number);
                }
                let from_arrival = self.bugs.has(BugSwitch::ClientLeaseFromArrival);
                let from = if from_arrival { now } else { sent_ns.min(now) };
                self.lease_until_ns = self.lease_until_ns.max(from.saturating_add(duration_ns));
                self.expired = now >= self.lease_until_ns;
                self.extend_promises(from, recorded);
            }
            ToClient::Granted { number, fence, delegated_entries, contended, .. } => {
                if let Some(progress @ Progress::Waiting(_)) = self.acquisitions.get_mut(&number) {
                    let granted = core::mem::replace(progress, Progress::Held(fence));
                    // `delegated_entries` > 0: the grant comes with a delegation.
                    if let (Progress::Waiting(request), 1..) = (granted, delegated_entries) {
                        let for_ever = self.bugs.has(BugSwitch::DelegationsNeverEnd);
                        let max_delegation_ns = if for_ever { u64::MAX } else { self.max_delegation_ns };
                        self.delegations.insert(
                            number,
                            Delegation::new(
                                request,
                                delegated_entries,
                                contended,
                                now.saturating_add(max_delegation_ns),
                            ),
                        );
                    }
                }
            }
            ToClient::Recorded { number, index, ttl_ns, sent_ns, .. } => {
                self.recorded(number, index, ttl_ns, sent_ns.map(|sent_ns| sent_ns.min(now)));
            }
            ToClient::Resumed { generation, held } => return self.resume(generation, &held),
            ToClient::Recall { number } => return self.recall(number).into_iter().collect(),
            ToClient::Ended { number, outcome: Ended::Revoked } => match self.acquisitions.get(&number) {
                // The release has to be acknowledged before the acquisition ends.
                Some(Progress::Held(_) | Progress::Delegated(_) | Progress::Waiting(_)) => {
                    self.release(number)
                }
                Some(_) => self.end(number, Ended::Revoked),
                None => {}
            },
            ToClient::Ended { number, outcome } => self.end(number, outcome),
            ToClient::NoSession if self.alive || self.generation.is_some() => self.end_unknown(),
            // The session was never opened: it has nothing to lose.
            ToClient::NoSession => {}
            // The caller reads the reason: the hold ends with the message that follows.
            ToClient::RevokedBy { .. } => {}
        }
        Vec::new()
    }

    /// Records the outcome of an acquisition.
    fn end(&mut self, number: u64, outcome: Ended) {
        self.delegations.remove(&number);
        self.in_use.remove(&number);
        self.durable.remove(&number);
        self.released_in_time.remove(&number);
        if let Some(progress) = self.acquisitions.get_mut(&number) {
            *progress = Progress::Ended(outcome);
            self.ended += 1;
        }
    }

    /// Handles a recall.
    fn recall(&mut self, number: u64) -> Option<ToMember> {
        let keeps = self.bugs.has(BugSwitch::DelegationsNeverEnd) || !self.delegations.contains_key(&number);
        if keeps { None } else { self.end_delegation(number) }
    }
}
