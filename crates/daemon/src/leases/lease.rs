//! One lease: its deadline, holds and waits.

use super::adoption::HoldPayload;
use super::detached::DetachedState;
use super::id::LeaseId;
use super::local_leases::RetainedHold;
use super::messages::WaitOutcome;
use super::operations::{
    CallerIdentity, Hold, HoldLoss, HoldRef, HoldRequest, LeaseError, LeaseOperation, LeaseState,
    LeaseSummary, LeaseTerms, Slot,
};
use crate::drift;
use crate::metrics::GaugeGuard;
use crate::quotas::{Charge, LockCharge};
use crate::rights::owns_session;
use lockkeeper_cluster::{Acquire, HoldGuard, LockMode, Member, now_ns};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The deadline of a lease whose client was promised a time to live of `ttl` from now.
pub(super) fn deadline_after(ttl: Duration) -> u64 {
    let ttl_ns = u64::try_from(drift::daemon_duration(ttl).as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(ttl_ns)
}

/// Number of lost holds that are remembered for the client's next request.
const MOST_LOST: usize = 64;

/// A lease that lives at this daemon.
pub(super) struct Lease {
    pub id: LeaseId,
    pub terms: LeaseTerms,
    /// The principal that created it.
    pub creator: CallerIdentity,
    /// The lease's own session with the member.
    pub member: Member,
    state: Mutex<State>,
    /// Notified when the lease has ended or has got a deadline.
    pub deadline_changed: Notify,
    /// The name under which quotas count its usage.
    pub account: Arc<str>,
    _counted: (GaugeGuard, Charge),
}

pub(super) struct State {
    /// The deadline on the lease clock, which no time service adjusts; `None` while a lease for one hold still waits
    /// for it.
    pub deadline_ns: Option<u64>,
    /// The earliest deadline of an adopted lease, for as long as its client may rely on a promise of the daemon where
    /// it lived before; 0 if it was not adopted.
    owed_until_ns: u64,
    next: u64,
    pub entries: BTreeMap<u64, LeaseEntry>,
    slots: HashMap<(String, Slot), u64>,
    lost: VecDeque<HoldLoss>,
    pub over: bool,
    /// The lost hold of a process, for as long as the process may rely on it.
    pub retained: Option<RetainedHold>,
    /// The deadline of a detached lease; `None` before its first request.
    pub detached: Option<DetachedState>,
}

/// A hold, or a wait for one.
pub(super) struct LeaseEntry {
    pub number: u64,
    pub lock: String,
    pub charge: LockCharge,
    pub slot: Slot,
    pub since: Instant,
    pub phase: EntryPhase,
    /// Number of requests that wait for the outcome.
    pub interest: usize,
    /// Number of requests to which the hold was reported, including those whose client has not received it yet.
    pub claims: usize,
    /// Whether it stays in the queue, or held, until it is released, even if no request has a claim to it.
    pub kept: bool,
    pub value: Vec<u8>,
    pub version: u64,
    /// The last fence drawn for a change of the value; 0 if there was none since the grant.
    pub revision: u64,
    /// The outcome of the wait.
    pub outcome: watch::Sender<Option<WaitOutcome>>,
}

pub(super) enum EntryPhase {
    Waiting(AbortHandle),
    Held(HoldGuard),
}

impl Lease {
    pub fn new(
        id: LeaseId,
        terms: LeaseTerms,
        creator: CallerIdentity,
        member: Member,
        counted: (GaugeGuard, Charge),
    ) -> Self {
        let account = Arc::from(creator.account.as_str());
        let deadline_ns = (!terms.one_hold).then(|| deadline_after(terms.ttl));
        let state = State {
            deadline_ns,
            owed_until_ns: 0,
            next: 1,
            entries: BTreeMap::new(),
            slots: HashMap::new(),
            lost: VecDeque::new(),
            over: false,
            retained: None,
            detached: None,
        };
        let (state, deadline_changed) = (Mutex::new(state), Notify::new());
        Self { id, terms, creator, member, state, deadline_changed, account, _counted: counted }
    }

    /// Creates a lease whose holds this daemon's member has adopted. Its client was promised at most its time to live, by
    /// the daemon where it lived before.
    pub fn adopted(
        id: LeaseId,
        terms: LeaseTerms,
        creator: CallerIdentity,
        member: Member,
        counted: (GaugeGuard, Charge),
    ) -> Self {
        let lease = Self::new(id, terms, creator, member, counted);
        lease.state().deadline_ns = Some(deadline_after(lease.terms.ttl));
        lease
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a caller may use the lease: its creator, or a principal with `admin` on every lock.
    pub fn check(&self, identity: &CallerIdentity) -> Result<(), LeaseError> {
        if owns_session(&self.creator.token_name, &identity.token_name, identity.admin) {
            return Ok(());
        }
        Err(LeaseError::WrongOwner(self.id))
    }

    /// Whether the record of a hold is current.
    pub fn is_recorded(&self, number: u64) -> bool {
        self.state().entries.get(&number).and_then(LeaseEntry::guard).is_some_and(HoldGuard::is_recorded)
    }

    /// Resolves when the record of a hold is current. `None` if there is no such hold.
    pub fn recorded(&self, number: u64) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.state().entries.get(&number)?.guard().map(HoldGuard::recorded)
    }

    /// A request to the member.
    pub fn member_request(&self, request: &HoldRequest) -> Acquire {
        let (member, lock) = (&self.member, request.lock.clone());
        let acquire = match request.mode {
            LockMode::Exclusive => member.mutex(lock),
            LockMode::Shared => member.shared(lock),
            LockMode::Permit { of: permits } => member.semaphore(lock, permits),
        };
        acquire.owner(self.terms.owner.clone()).purpose(request.purpose.clone())
    }

    /// Extends the deadline, and the promises of recorded holds. A lease that waits for its single hold has no deadline.
    ///
    /// The client relies on a recorded hold even if this daemon's member is excluded from the view, so a member that cannot
    /// promise it any more must not extend the deadline: another member may have adopted the lease.
    pub fn keep_alive(&self, state: &mut State) -> Result<(), LeaseError> {
        if !self.promise(state) {
            let valid = state.entries.values().filter_map(LeaseEntry::guard).any(HoldGuard::is_valid);
            let why = "the member of the lease's daemon has no lease at the moment: repeat the request";
            return if valid { Ok(()) } else { Err(LeaseError::MemberHasNoLease(String::from(why))) };
        }
        if state.deadline_ns.is_some() {
            self.begin_ttl(state);
        }
        Ok(())
    }

    /// Sets the deadline to the time to live from now on. That of a detached lease is not before its own deadline.
    pub fn begin_ttl(&self, state: &mut State) {
        let ttl_until_ns = deadline_after(self.terms.ttl).max(state.owed_until_ns);
        state.deadline_ns = Some(match &mut state.detached {
            Some(detached) => detached.begin_ttl(ttl_until_ns),
            None => ttl_until_ns,
        });
    }

    /// The time for which this daemon keeps a recorded hold after a keep-alive, on its own clock: the time to live, or the
    /// longest one that the cluster allows.
    pub fn kept(&self) -> Duration {
        let longest = Duration::from_nanos(self.member.settings().longest_ttl_ns);
        drift::daemon_duration(self.terms.ttl).min(longest)
    }

    /// Promises the recorded holds for the time to live from now on, or for the longest time that the cluster allows.
    /// Returns `false` if the member cannot promise them at the moment.
    fn promise(&self, state: &State) -> bool {
        let kept = self.kept();
        let mut recorded =
            state.entries.values().filter_map(LeaseEntry::guard).filter(|guard| guard.is_recorded());
        recorded.all(|guard| guard.promise(kept))
    }

    pub fn status(&self, state: &State, op: &LeaseOperation) -> LeaseState {
        let mut status = LeaseState {
            lease: self.id,
            left: self.left(state),
            ttl: self.terms.ttl,
            valid_for: None,
            holds: Vec::new(),
            locks: Vec::new(),
            lost: state.lost.iter().cloned().collect(),
            session: None,
        };
        let guards = state.entries.values().filter_map(LeaseEntry::guard);
        // The shortest promise of a hold that was not taken away: a hold that is not recorded yet ends with this daemon's
        // member. All of them end with the lease.
        let valid_for = guards.map(HoldGuard::valid_for).filter(|valid_for| !valid_for.is_zero()).min();
        status.valid_for = valid_for.map(|valid_for| drift::client_duration(valid_for).min(status.left));
        if let LeaseOperation::TimeToLive = op {
            status.holds = self.holds(state);
            status.locks = state.entries.values().map(|entry| entry.lock.clone()).collect();
            status.session = self.member.session();
        }
        status
    }

    /// The time until the lease ends, as the client may measure it on its own clock.
    pub fn left(&self, state: &State) -> Duration {
        let left = |at: u64| drift::client_duration(Duration::from_nanos(at.saturating_sub(now_ns())));
        state.deadline_ns.map_or(self.terms.ttl, left).min(self.terms.ttl)
    }

    pub fn holds(&self, state: &State) -> Vec<Hold> {
        state.entries.iter().filter_map(|(&number, entry)| self.hold(number, entry)).collect()
    }

    pub fn hold(&self, number: u64, entry: &LeaseEntry) -> Option<Hold> {
        let guard = entry.guard()?;
        Some(Hold {
            lease: self.id,
            number,
            lock: entry.lock.clone(),
            fence: guard.fence(),
            valid_for: drift::client_duration(guard.valid_for()),
            ttl: self.terms.ttl,
            value: entry.value.clone(),
            version: entry.version,
            revision: entry.revision.max(guard.fence()),
            bare: matches!(entry.slot, Slot::Key(_)),
        })
    }

    /// The same, with a promise that does not exceed the lease.
    pub fn hold_now(&self, state: &State, number: u64) -> Option<Hold> {
        let hold = self.hold(number, state.entries.get(&number)?)?;
        Some(Hold { valid_for: hold.valid_for.min(self.left(state)), ..hold })
    }

    /// Inserts an adopted hold. Its client knows of it, or finds it by the same slot.
    pub fn restore(&self, payload: HoldPayload, guard: HoldGuard, charge: LockCharge) {
        let HoldPayload { number, slot, value, version, revision, detached, .. } = payload;
        let lock = String::from(guard.name());
        let entry = LeaseEntry {
            number,
            lock: lock.clone(),
            charge,
            slot: slot.clone(),
            since: Instant::now(),
            phase: EntryPhase::Held(guard),
            interest: 0,
            claims: 1,
            // The daemon where it was granted may have reported it to several processes of its owner.
            kept: detached.is_some(),
            value,
            version,
            revision,
            outcome: watch::Sender::new(None),
        };
        entry.outcome.send_replace(self.hold(number, &entry).map(Ok));
        let mut state = self.state();
        if let Some(guard) = entry.guard() {
            // The previous daemon reports the rest of its last promise until its own clock reaches the end, which may be
            // slower than this one. No process relies on a detached hold without a time to live.
            let owed = if self.terms.ttl.is_zero() { Duration::ZERO } else { guard.promised_for() };
            let owed_ns = u64::try_from(owed.as_nanos()).unwrap_or(u64::MAX);
            state.owed_until_ns = state.owed_until_ns.max(now_ns().saturating_add(owed_ns));
            if let Some(detached) = detached {
                guard.detach(Some(detached.until_ms));
                state.detached = Some(DetachedState::adopted(&detached));
            }
            self.begin_ttl(&mut state);
        }
        state.next = state.next.max(number + 1);
        state.slots.insert((lock, slot), number);
        state.entries.insert(number, entry);
    }

    pub fn summary(&self) -> LeaseSummary {
        let locks = self.state().entries.values().map(|entry| entry.lock.clone()).collect();
        LeaseSummary { lease: self.id, token_name: self.creator.token_name.clone(), locks }
    }
}

impl State {
    /// The entry of an earlier request with the same lock and slot, if there is one.
    pub fn find(&self, request: &HoldRequest) -> Option<u64> {
        self.slots.get(&(request.lock.clone(), request.slot.clone())).copied()
    }

    /// Inserts a new entry, which no request waits for yet.
    pub fn insert(
        &mut self,
        request: &HoldRequest,
        charge: LockCharge,
        wait: impl FnOnce(u64) -> AbortHandle,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.slots.insert((request.lock.clone(), request.slot.clone()), number);
        let entry = LeaseEntry {
            number,
            charge,
            lock: request.lock.clone(),
            slot: request.slot.clone(),
            since: Instant::now(),
            phase: EntryPhase::Waiting(wait(number)),
            interest: 0,
            claims: 0,
            kept: false,
            value: request.value.clone(),
            version: 1,
            revision: 0,
            outcome: watch::Sender::new(None),
        };
        self.entries.insert(number, entry);
        number
    }

    pub fn number_of(&self, which: &HoldRef) -> Option<u64> {
        match which {
            HoldRef::Number(number) => Some(*number),
            HoldRef::OnlyOn(lock) => self.only_on(lock),
        }
    }

    /// The entry for a lock of which the lease has a single hold.
    pub fn only_on(&self, lock: &str) -> Option<u64> {
        self.slots.get(&(String::from(lock), Slot::Only)).copied()
    }

    pub fn remove(&mut self, number: u64) -> Option<LeaseEntry> {
        let entry = self.entries.remove(&number)?;
        self.slots.remove(&(entry.lock.clone(), entry.slot.clone()));
        Some(entry)
    }

    /// The hold that was lost last.
    pub fn last_lost(&self) -> Option<&HoldLoss> {
        self.lost.back()
    }

    /// Whether another member has adopted the hold that an operation is about, or one of the holds if it is about all of
    /// them: the daemon of that member has the lease.
    pub fn has_moved(&self, op: &LeaseOperation) -> bool {
        let moved = |entry: &LeaseEntry| entry.guard().is_some_and(HoldGuard::has_moved);
        match op {
            LeaseOperation::Release(which, _) | LeaseOperation::SetValue { which, .. } => {
                self.number_of(which).and_then(|number| self.entries.get(&number)).is_some_and(moved)
            }
            LeaseOperation::Abandon(number) => self.entries.get(number).is_some_and(moved),
            LeaseOperation::KeepAlive
            | LeaseOperation::TimeToLive
            | LeaseOperation::Revoke
            | LeaseOperation::Detached(_) => self.entries.values().any(moved),
        }
    }

    /// Holds that are lost by now, with the reason, including those whose loss has not been processed yet.
    pub fn lost_by_now(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let loss = |(&number, entry): (&u64, &LeaseEntry)| Some((number, entry.guard()?.loss()?));
        self.entries.iter().filter_map(loss)
    }

    pub fn remember_lost(&mut self, lost: HoldLoss) {
        if self.lost.len() == MOST_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(lost);
    }
}

impl LeaseEntry {
    pub fn guard(&self) -> Option<&HoldGuard> {
        match &self.phase {
            EntryPhase::Held(guard) => Some(guard),
            EntryPhase::Waiting(_) => None,
        }
    }

    /// Withdraws the claim of a request to which the hold was reported.
    pub fn withdraw_claim(&mut self) {
        self.claims = self.claims.saturating_sub(1);
    }

    /// Whether no request waits for the entry or has a claim to its hold any more.
    pub fn is_unclaimed(&self) -> bool {
        !self.kept && self.interest == 0 && self.claims == 0
    }
}
