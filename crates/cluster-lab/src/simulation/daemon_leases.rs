//! A lease of a tenant at a daemon, as `lockkeeper-daemon` and the driver of its member keep it.
//!
//! The lease holds its lock through a session in the daemon's process. The hold is recorded with a payload, from which the
//! daemon of the member that adopts the hold creates the lease again.

use super::spec::ClusterSpec;
use super::tenants::{HoldId, LeaseId, Renewal, RenewalReply, ReportedValidity};
use lockkeeper_member::{BugSwitch, Fence, HoldRecord, LockRequest, SessionId, certainly_left};
use serde::{Deserialize, Serialize};

/// The duration for which a daemon keeps a lock if a tenant measures `ttl_ns` on its own clock.
pub fn kept_ns(ttl_ns: u64) -> u64 {
    let (million, drift) = (1_000_000, u128::from(ClusterSpec::DRIFT_PPM));
    let longest = (u128::from(ttl_ns) * (million + drift)).div_ceil(million - drift);
    u64::try_from(longest).unwrap_or(u64::MAX)
}

/// The lease of the clients in a daemon's process: that of its member. A gap between two leases ends all holds under the
/// first that are not recorded, so the next one has another number.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessLease {
    /// Its end on the daemon's clock; 0 if there is none.
    pub until_ns: u64,
    /// The number of the lease.
    pub number: u64,
}

impl ProcessLease {
    /// Ends the lease if it has expired.
    pub fn end_if_over(&mut self, clock: u64, until_ns: u64) {
        if self.until_ns != 0 && clock >= self.until_ns.min(until_ns) {
            *self = Self { until_ns: 0, number: self.number + 1 };
        }
    }

    /// Updates the lease from that of the member, after a step.
    pub fn follow(&mut self, clock: u64, until_ns: u64) {
        if until_ns > clock {
            self.until_ns = until_ns;
        } else {
            self.end_if_over(clock, until_ns);
        }
    }

    /// The end of the lease; 0 if it does not run.
    fn valid_until_ns(self, clock: u64) -> u64 {
        if clock < self.until_ns { self.until_ns } else { 0 }
    }
}

/// The payload that is stored with the record of a hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payload {
    lease: LeaseId,
    ttl_ns: u64,
    request: u64,
    lock_request: LockRequest,
}

/// A wait or a hold of a lease.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The number of the acquisition.
    pub number: u64,
    /// The request for the lock.
    pub lock_request: LockRequest,
    /// The hold, once the lock is granted.
    pub hold: Option<DaemonHold>,
}

/// A hold at the daemon.
#[derive(Clone, Copy, Debug)]
pub struct DaemonHold {
    fence: Option<Fence>,
    /// The number of the [`ProcessLease`] under which it was granted.
    lease: u64,
    /// Whether the member has reported its record.
    pub recorded: bool,
    /// The end of the last promise that outlives the member's lease; 0 if there was none.
    promised_until_ns: u64,
    /// The time until which the tenant may rely on a promise of the daemon where the hold lived before; 0 if it was not
    /// adopted.
    owed_until_ns: u64,
}

/// A lease at a daemon.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The boot of the daemon's machine. A later boot does not know the lease.
    pub boot: u64,
    /// The session in the daemon's process.
    pub session: SessionId,
    /// The end of the lease on the daemon's clock.
    pub deadline_ns: u64,
    /// The earliest end of an adopted lease; 0 if it was not adopted.
    owed_until_ns: u64,
    /// The time to live.
    pub ttl_ns: u64,
    /// The current wait or hold.
    pub entry: Option<Entry>,
    /// Adopted holds of earlier requests, whose releases were not answered. The tenant repeats them.
    earlier: Vec<u64>,
    /// Holds that were revoked, and the time until which the tenant may rely on each.
    pub taken_away: Vec<(u64, u64)>,
    request: u64,
    next_number: u64,
}

/// The requests and releases that a renewal makes the daemon send to its member.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The acquisitions to release.
    pub release: Vec<u64>,
    /// The acquisition to request.
    pub acquire: Option<(u64, LockRequest)>,
}

impl Lease {
    /// Creates a lease with a new session.
    pub fn new(boot: u64, session: SessionId, ttl_ns: u64, clock: u64) -> Self {
        Self {
            boot,
            session,
            deadline_ns: clock.saturating_add(kept_ns(ttl_ns)),
            owed_until_ns: 0,
            ttl_ns,
            entry: None,
            earlier: Vec::new(),
            taken_away: Vec::new(),
            request: 0,
            next_number: 1,
        }
    }

    /// Creates a lease again from the record of a hold that the daemon's member has adopted. The tenant was promised at
    /// most the time to live, by the daemon where the lease lived before. That daemon reports the rest of its promise
    /// until its own clock reaches the end, which is `owed_until_ns` on this daemon's clock if that one is the slowest
    /// and this one the fastest.
    pub fn adopted(
        boot: u64,
        record: &HoldRecord,
        (clock, owed_until_ns): (u64, u64),
        process: ProcessLease,
        bug: Option<BugSwitch>,
    ) -> Option<(LeaseId, Self)> {
        let payload: Payload = postcard::from_bytes(&record.payload).ok()?;
        let mut lease = Self::new(boot, record.acquisition.session, payload.ttl_ns, clock);
        if bug == Some(BugSwitch::AdoptedLeaseCutShort) {
            lease.deadline_ns = clock + kept_ns(payload.ttl_ns) / 2;
        } else {
            lease.owed_until_ns = owed_until_ns;
            lease.deadline_ns = lease.deadline_ns.max(owed_until_ns);
        }
        lease.request = payload.request;
        lease.next_number = record.acquisition.number + 1;
        // The daemon itself reports no more than the time to live: another one that adopts the hold after it adds only
        // the drift between two clocks.
        let (promised_until_ns, owed_until_ns) = match bug {
            Some(BugSwitch::AdoptedPromiseForgotten) => (0, 0),
            _ => (clock.saturating_add(record.ttl_ns), owed_until_ns),
        };
        let (fence, lease_number, recorded) = (record.fence, process.number, true);
        let hold = DaemonHold { fence, lease: lease_number, recorded, promised_until_ns, owed_until_ns };
        let (number, lock_request) = (record.acquisition.number, payload.lock_request);
        lease.entry = Some(Entry { number, lock_request, hold: Some(hold) });
        Some((payload.lease, lease))
    }

    /// Adds another hold of the same lease that was adopted, too.
    pub fn merge(&mut self, other: Self) {
        let (newer, older) =
            if other.request > self.request { (other, self.clone()) } else { (self.clone(), other) };
        let next_number = newer.next_number.max(older.next_number);
        let earlier = older.entry.iter().map(|entry| entry.number).chain(older.earlier.iter().copied());
        let earlier = newer.earlier.iter().copied().chain(earlier).collect();
        let deadline_ns = newer.deadline_ns.max(older.deadline_ns);
        let owed_until_ns = newer.owed_until_ns.max(older.owed_until_ns);
        *self = Self { next_number, earlier, deadline_ns, owed_until_ns, ..newer };
    }

    /// The payload of the record of the present hold.
    pub fn payload(&self, lease: LeaseId) -> Option<Vec<u8>> {
        let entry = self.entry.as_ref()?;
        let (ttl_ns, request, lock_request) = (self.ttl_ns, self.request, entry.lock_request.clone());
        let payload = Payload { lease, ttl_ns, request, lock_request };
        Some(postcard::to_allocvec(&payload).expect("a payload can be encoded into memory"))
    }

    /// Whether this is the acquisition of the tenant's current request.
    pub fn is_current(&self, number: u64) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.number == number)
    }

    /// The present hold.
    pub fn hold_mut(&mut self) -> Option<&mut DaemonHold> {
        self.entry.as_mut()?.hold.as_mut()
    }

    /// Handles the grant of an acquisition. Returns whether it is the current one.
    pub fn granted(&mut self, number: u64, fence: Option<Fence>, process: ProcessLease) -> bool {
        let Some(entry) = self.entry.as_mut().filter(|entry| entry.number == number) else { return false };
        let (lease, recorded, promised_until_ns, owed_until_ns) = (process.number, false, 0, 0);
        let hold = DaemonHold { fence, lease, recorded, promised_until_ns, owed_until_ns };
        entry.hold.get_or_insert(hold);
        true
    }

    /// The time until which the present hold is valid, on the daemon's clock. 0 if it is lost.
    fn valid_until_ns(&self, clock: u64, process: ProcessLease) -> u64 {
        let hold = self.entry.as_ref().and_then(|entry| entry.hold);
        hold.map_or(0, |hold| {
            let lease_until_ns = process.valid_until_ns(clock);
            if hold.recorded {
                hold.promised_until_ns.max(lease_until_ns)
            } else if hold.lease == process.number {
                lease_until_ns
            } else {
                0
            }
        })
    }

    /// Ends a hold that is not recorded and whose member's lease has expired. Returns the acquisition to release.
    pub fn lose_expired(&mut self, clock: u64, process: ProcessLease) -> Option<u64> {
        let entry = self.entry.take_if(|entry| {
            let lost = |hold: DaemonHold| {
                !hold.recorded && (hold.lease != process.number || clock >= process.until_ns)
            };
            entry.hold.is_some_and(lost)
        });
        entry.map(|entry| entry.number)
    }

    /// Handles the revocation of the present hold: the daemon keeps the lock for as long as the tenant may rely on it.
    /// `lease_until_ns` is the latest end of a lease of the member that the daemon may have reported.
    pub fn revoked(&mut self, lease_until_ns: u64) {
        if let Some(entry) = self.entry.take() {
            let promised = entry.hold.map_or(0, |hold| hold.promised_until_ns.max(hold.owed_until_ns));
            self.taken_away.push((entry.number, promised.max(lease_until_ns)));
        }
    }

    /// Handles a renewal: extends the lease, unless a recorded hold cannot be promised now. `promised` is whether
    /// the member has promised it; `None` if the hold has no current record. Returns whether the tenant is answered.
    pub fn keep_alive(
        &mut self,
        clock: u64,
        longest_ttl_ns: u64,
        process: ProcessLease,
        promised: Option<bool>,
    ) -> bool {
        let kept_ns = kept_ns(self.ttl_ns);
        match promised {
            Some(false) => return clock < self.valid_until_ns(clock, process),
            Some(true) => {
                let until_ns = clock.saturating_add(kept_ns.min(longest_ttl_ns));
                if let Some(hold) = self.hold_mut() {
                    hold.promised_until_ns = hold.promised_until_ns.max(until_ns);
                }
            }
            None => {}
        }
        self.deadline_ns = clock.saturating_add(kept_ns).max(self.owed_until_ns);
        true
    }

    /// Adopts the tenant's request if it is newer than the present one.
    pub fn follow_request(&mut self, renewal: &Renewal) -> Changes {
        let mut changes = Changes::default();
        if renewal.creates || renewal.request < self.request {
            return changes;
        }
        changes.release = std::mem::take(&mut self.earlier);
        if renewal.request == self.request {
            return changes;
        }
        self.request = renewal.request;
        changes.release.extend(self.entry.take().map(|entry| entry.number));
        if let Some(lock_request) = renewal.lock_request.clone() {
            let number = self.next_number;
            self.next_number += 1;
            self.entry = Some(Entry { number, lock_request: lock_request.clone(), hold: None });
            changes.acquire = Some((number, lock_request));
        }
        changes
    }

    /// The reply to a renewal.
    pub fn reply(
        &self,
        clock: u64,
        renewal: &Renewal,
        process: ProcessLease,
        bug: Option<BugSwitch>,
    ) -> RenewalReply {
        let allows = |left_ns: u64| match bug {
            Some(BugSwitch::LeaseWithoutDrift) => left_ns,
            _ => certainly_left(left_ns, ClusterSpec::DRIFT_PPM, 0),
        };
        let current = renewal.request == self.request && !renewal.creates;
        let until_ns = self.valid_until_ns(clock, process).min(self.deadline_ns);
        let entry = self.entry.as_ref().filter(|_| current);
        let held = entry.and_then(|entry| Some((entry.number, entry.hold?))).filter(|_| clock < until_ns);
        let held = held.map(|(number, hold)| {
            let id: HoldId = (self.session, number);
            let promised = hold.promised_until_ns > process.valid_until_ns(clock);
            ReportedValidity { id, left_ns: allows(until_ns - clock), fence: hold.fence, promised }
        });
        RenewalReply {
            lease: renewal.lease,
            sent_ns: renewal.sent_ns,
            request: renewal.request,
            serves: process.valid_until_ns(clock) > 0,
            lost: current && renewal.lock_request.is_some() && self.entry.is_none(),
            gone: false,
            held,
        }
    }

    /// Begins a new session, because the member has begun a new incarnation. A hold is lost; a wait continues. Returns
    /// the request to send again.
    pub fn begin_again(&mut self, session: SessionId) -> Option<(u64, LockRequest)> {
        self.session = session;
        self.earlier.clear();
        self.taken_away.clear();
        self.entry.take_if(|entry| entry.hold.is_some());
        self.entry.as_ref().map(|entry| (entry.number, entry.lock_request.clone()))
    }
}
