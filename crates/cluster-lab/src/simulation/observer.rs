//! Checks the properties of a cluster from outside. It does not influence the run.

use lockkeeper_member::{
    ChunkedList, Fence, Generation, LockMode, LockName, Node, Note, Report, SessionId, StartHold, ToClient,
    ToMember,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A property that a cluster guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// At no instant of true time do two clients with valid leases have conflicting holds.
    Exclusion,
    /// Fences rise strictly between conflicting entries.
    Fences,
    /// No epoch starts twice.
    OneStart,
    /// A member that has reported for a view grants nothing with a fence of an older view. No member does once a
    /// newer view has started.
    #[serde(rename = "wedge")]
    Frozen,
    /// A member grants only while it has a lease.
    Lease,
    /// A report does not change until the next start.
    Report,
    /// When the newest view starts, no member outside of it has a lease.
    LeasesOver,
    /// After the faults have ended, every waiter is served.
    Service,
    /// Clients of unaffected members keep their holds.
    Survivors,
    /// A client that reaches the cluster loses no recorded hold.
    RecordedHolds,
    /// A member promises a hold for its time to live only if the hold is recorded, and only while it has a lease.
    Promises,
    /// The start of a view has every recorded hold, and no two holds that conflict.
    Starts,
    /// The table of recorded holds accepts only writes of a member of the newest view, in that incarnation and epoch.
    Records,
    /// A client that knows a newer generation of its session gains nothing by messages of an older one.
    Generations,
    /// No step of a member takes longer than [`ClusterSpec::LONGEST_STEP_NS`](super::ClusterSpec::LONGEST_STEP_NS).
    Steps,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "one holder at a time",
            Self::Fences => "rising fences",
            Self::OneStart => "one start per epoch",
            Self::Frozen => "no grant of an old view",
            Self::Lease => "no grant without a lease",
            Self::Report => "reports that stay",
            Self::LeasesOver => "no lease outside of a view that starts",
            Self::Service => "service after the faults",
            Self::Survivors => "no lock lost by survivors",
            Self::RecordedHolds => "no recorded hold lost",
            Self::Promises => "promises of recorded holds only",
            Self::Starts => "starts with every recorded hold",
            Self::Records => "records by their present homes only",
            Self::Generations => "no message of an older generation accepted",
            Self::Steps => "no long step",
        })
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The seed of the run.
    pub seed: u64,
    /// The number of entries.
    pub entries: u64,
    /// The number of re-entrant acquisitions.
    pub nested: u64,
    /// The number of entries of clients without a session of their own.
    pub leased: u64,
    /// The number of views that started.
    pub views: u64,
    /// The number of sessions that were lost while they held a lock.
    pub lost: u64,
    /// The number of recorded holds that were lost.
    pub lost_recorded: u64,
    /// The number of holds that members have recorded.
    pub recorded: u64,
    /// The number of holds that members have adopted.
    pub adopted: u64,
    /// The number of leases of clients without a session of their own that daemons have adopted.
    pub adopted_leases: u64,
    /// The number of planned leaves.
    pub leaves: u64,
    /// The number of frames between members.
    pub frames: u64,
    /// The first violation: its time, the property, and a description.
    pub broken: Option<(u64, Property, String)>,
}

/// The fences of a re-entrant acquisition.
#[derive(Clone, Copy, Debug)]
pub struct NestedFences {
    /// The fence of the first acquisition of the hold.
    pub first: Option<Fence>,
    /// The fence of the re-entrant acquisition.
    pub nested: Option<Fence>,
}

/// A client that uses a lock.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The number of the client.
    pub client: usize,
    /// The session of the acquisition.
    pub session: SessionId,
    /// The number of the acquisition in that session.
    pub number: u64,
    /// The mode of the hold.
    pub mode: LockMode,
    /// Whether the acquisition is re-entrant.
    pub reentrant: bool,
}

/// The observer of a run.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// The result of the run so far.
    pub outcome: Outcome,
    /// The clients that use each lock and have not released it. Their leases may have expired.
    pub inside: BTreeMap<LockName, Vec<Inside>>,
    /// The highest fence of each lock, for each mode.
    highest: BTreeMap<LockName, BTreeMap<LockMode, Fence>>,
    starts: BTreeMap<u64, ChunkedList<StartHold>>,
    reports: BTreeMap<Node, (u64, Report)>,
    granted: BTreeSet<(SessionId, u64)>,
    /// The lock of each acquisition requested from a member, and whether the request is re-entrant.
    requested: BTreeMap<(SessionId, u64), (LockName, bool)>,
    /// The acquisitions of each lock and session that were granted and have not ended.
    held: BTreeMap<(SessionId, Generation, LockName), BTreeSet<u64>>,
    /// The session and fence of the last entry of each lock.
    last: BTreeMap<LockName, (SessionId, Fence)>,
    installed: BTreeMap<Node, u64>,
    /// The first violation whose consequences are worth waiting for.
    cause: Option<(u64, Property, String)>,
}

impl Observer {
    /// Records a violation. Only the first one counts.
    pub fn broken(&mut self, now: u64, property: Property, how: String) {
        self.outcome.broken.get_or_insert((now, property, how));
    }

    /// Records a violation that does not end the run: if it leads to the violation of another property, that one is
    /// reported.
    pub fn broken_inside(&mut self, now: u64, property: Property, how: String) {
        self.cause.get_or_insert((now, property, how));
    }

    /// The result at the end of the run.
    pub fn finish(mut self) -> Outcome {
        self.outcome.broken = self.outcome.broken.or(self.cause);
        self.outcome
    }

    /// Records that a client starts to use a lock. `valid` decides whether another client may still use its hold.
    pub fn enters(
        &mut self,
        now: u64,
        lock: &LockName,
        who: Inside,
        fence: Option<Fence>,
        valid: impl Fn(&Inside) -> bool,
    ) {
        self.outcome.entries += 1;
        self.exclusion(now, lock, who.clone(), valid);
        if let Some(fence) = fence {
            // A re-entrant request may overtake the release before it. Then the session has held the lock without
            // interruption, and the fence is the same.
            let before = self.last.insert(lock.clone(), (who.session, fence));
            if !who.reentrant || before != Some((who.session, fence)) {
                self.fence(now, lock, who.mode, fence);
            }
        }
    }

    /// Records a re-entrant acquisition.
    pub fn enters_nested(
        &mut self,
        now: u64,
        lock: &LockName,
        who: Inside,
        NestedFences { first, nested }: NestedFences,
        valid: impl Fn(&Inside) -> bool,
    ) {
        self.outcome.nested += 1;
        self.exclusion(now, lock, who.clone(), valid);
        // Acquisitions of one hold have the same fence.
        if let Some(fence) = nested.filter(|_| nested != first) {
            self.fence(now, lock, who.mode, fence);
        }
    }

    fn exclusion(&mut self, now: u64, lock: &LockName, who: Inside, valid: impl Fn(&Inside) -> bool) {
        let inside = self.inside.entry(lock.clone()).or_default();
        let mut others: Vec<&Inside> =
            inside.iter().filter(|other| other.session != who.session && valid(other)).collect();
        // A session with two acquisitions of a lock counts once.
        others.sort_by_key(|other| other.session);
        others.dedup_by_key(|other| other.session);
        let named: Vec<String> = others.iter().map(|other| other.session.to_string()).collect();
        let admitted = who.mode.fits(others.iter().map(|other| other.mode));
        let (session, mode) = (who.session, who.mode);
        inside.push(who);
        if !admitted {
            let how = format!("{session} enters {lock} ({mode}) while {} may use it", named.join(", "));
            self.broken(now, Property::Exclusion, how);
        }
    }

    fn fence(&mut self, now: u64, lock: &LockName, mode: LockMode, fence: Fence) {
        let highest = self.highest.entry(lock.clone()).or_default();
        let bound =
            highest.iter().filter(|(other, _)| mode.conflicts(**other)).map(|(_, &fence)| fence).max();
        let of_its_kind = highest.entry(mode).or_insert(fence);
        *of_its_kind = fence.max(*of_its_kind);
        if bound.is_some_and(|bound| fence <= bound) {
            self.broken(
                now,
                Property::Fences,
                format!("an entry of {lock} has the fence {fence}, not above {bound:?}"),
            );
        }
    }

    /// Records that a client has released or lost its holds.
    pub fn leaves(&mut self, client: usize) {
        for inside in self.inside.values_mut() {
            inside.retain(|who| who.client != client);
        }
    }

    /// Records that a client has released one of several acquisitions of a lock.
    pub fn leaves_one(&mut self, client: usize, number: u64) {
        for inside in self.inside.values_mut() {
            inside.retain(|who| (who.client, who.number) != (client, number));
        }
    }

    /// Records a note of a member.
    pub fn note(&mut self, now: u64, node: Node, note: &Note) {
        match note {
            Note::Installed { epoch } => {
                self.installed.insert(node, *epoch);
            }
            Note::Reported { epoch, report } => self.report(now, node, *epoch, report),
            Note::Started { view, holds } => self.started(now, view.epoch, holds),
            _ => {}
        }
    }

    fn started(&mut self, now: u64, epoch: u64, holds: &ChunkedList<StartHold>) {
        self.outcome.views += 1;
        self.outcome.adopted += holds.iter().filter(|held| held.adopted.is_some()).count() as u64;
        if let Some(before) = self.starts.insert(epoch, holds.clone()) {
            self.broken(
                now,
                Property::OneStart,
                format!("epoch {epoch} starts twice: with {before:?} and with {holds:?}"),
            );
        }
    }

    fn report(&mut self, now: u64, node: Node, epoch: u64, report: &Report) {
        let installed = self.installed.get(&node).copied().unwrap_or(0);
        if let Some((_, before)) = self.reports.get(&node)
            && before.installed == installed
            && before != report
        {
            self.broken(now, Property::Report, format!("{node} reports {report:?} after {before:?}"));
        }
        let reported = self.reports.get(&node).map_or(0, |&(epoch, _)| epoch).max(epoch);
        self.reports.insert(node, (reported, report.clone()));
    }

    /// Records a request that arrives at a member.
    pub fn requested(&mut self, session: SessionId, message: &ToMember) {
        if let ToMember::Acquire { number, request: lock_request, .. } = message {
            self.requested.insert((session, *number), (lock_request.lock.clone(), lock_request.reentrant));
        }
    }

    /// Records a message of a member to a client. `lease_left_ns` is the remaining time of the member's lease.
    pub fn sent(&mut self, now: u64, node: Node, session: SessionId, message: &ToClient, lease_left_ns: u64) {
        if let ToClient::Ended { number, .. } = message {
            let first = (session, Generation::default(), LockName::new(""));
            let of_session = self.held.range_mut(first..).take_while(|(key, _)| key.0 == session);
            for (_, numbers) in of_session {
                numbers.remove(number);
            }
        }
        if let ToClient::Recorded { .. } = message {
            self.outcome.recorded += 1;
        }
        let ToClient::Granted { number, fence, generation, .. } = message else { return };
        // A member repeats its answers, and one that has adopted the session repeats the grants of the previous one.
        if !self.granted.insert((session, *number)) {
            return;
        }
        let requested = self.requested.get(&(session, *number)).cloned();
        let (lock, reentrant) = requested.unwrap_or_else(|| (LockName::new(""), false));
        // A member that has adopted the session has the holds of earlier generations.
        let first = (session, Generation::default(), LockName::new(""));
        let of_session = self.held.range(first..).take_while(|(key, _)| key.0 == session);
        let holds = of_session.filter(|(key, _)| key.2 == lock).any(|(_, numbers)| !numbers.is_empty());
        let nested = reentrant && holds;
        self.held.entry((session, *generation, lock)).or_default().insert(*number);
        // A re-entrant acquisition belongs to a hold that was granted before, perhaps in an earlier view. It is
        // valid only as long as that hold.
        if nested {
            return;
        }
        if lease_left_ns == 0 {
            self.broken(now, Property::Lease, format!("{node} grants to {session}, and its lease is over"));
        }
        let reported = self.reports.get(&node).map_or(0, |&(epoch, _)| epoch);
        let newest = self.starts.last_key_value().map_or(0, |(&epoch, _)| epoch).max(reported);
        if let Some(fence) = fence.filter(|fence| fence.epoch() < newest) {
            let how =
                format!("{node} grants to {session} with the fence {fence}, and epoch {newest} has begun");
            self.broken(now, Property::Frozen, how);
        }
    }
}
