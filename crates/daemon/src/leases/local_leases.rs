//! The leases that live at this daemon.

use super::adoption::follow_adoptions;
use super::detached::DetachedState;
use super::id::LeaseId;
use super::lease::{EntryPhase, Lease, LeaseEntry};
use super::local_wait::LocalWait;
use super::messages::{LeasePresence, WaitOutcome};
use super::operations::{
    CallerIdentity, Hold, HoldLoss, HoldRef, HoldRequest, LeaseError, LeaseOperation, LeaseSummary,
    LeaseTerms, OperationReply,
};
use crate::audit::{AuditEntry, AuditEvent, RefusalReason};
use crate::context::DaemonContext;
use crate::metrics::Metrics;
use crate::quotas::{Quotas, Resource};
use crate::rights::Action;
use lockkeeper_cluster::{HoldGuard, now_ns};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument;

/// Number of changes that are remembered for other daemons that follow them.
const MOST_CHANGES: usize = 1 << 16;

/// The leases that live at this daemon, with their holds and waits.
pub(super) struct LocalLeases {
    pub context: Arc<DaemonContext>,
    pub metrics: Arc<Metrics>,
    leases: Mutex<HashMap<LeaseId, Registration>>,
    pub quotas: Arc<Quotas>,
    /// The holds of each lock.
    held: Mutex<HashMap<String, BTreeSet<(LeaseId, u64)>>>,
    /// The locks for which a hold of a lease has begun, ended or changed its value; the newest last.
    changed: Mutex<VecDeque<String>>,
    /// The number of the next such change.
    pub changes: watch::Sender<u64>,
    /// Notifications of the member that it has adopted holds.
    pub adoptions: Mutex<watch::Receiver<u64>>,
    pub me: Weak<Self>,
}

pub(super) enum Registration {
    /// Reserved while other daemons are queried whether they have this id.
    Reserved,
    Created(Arc<Lease>),
}

impl LocalLeases {
    pub fn new(context: Arc<DaemonContext>, metrics: Arc<Metrics>, quotas: Arc<Quotas>) -> Arc<Self> {
        let adoptions = Mutex::new(context.member.adoptions());
        let local = Arc::new_cyclic(|me| Self {
            adoptions,
            context,
            metrics,
            leases: Mutex::default(),
            quotas,
            held: Mutex::default(),
            changed: Mutex::default(),
            changes: watch::Sender::new(0),
            me: me.clone(),
        });
        tokio::spawn(follow_adoptions(local.me.clone()));
        local
    }

    pub fn leases(&self) -> MutexGuard<'_, HashMap<LeaseId, Registration>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, id: LeaseId) -> Option<Arc<Lease>> {
        self.adopt_pending();
        match self.leases().get(&id) {
            Some(Registration::Created(lease)) => Some(lease.clone()),
            Some(Registration::Reserved) | None => None,
        }
    }

    pub fn presence(&self, id: LeaseId) -> LeasePresence {
        self.adopt_pending();
        match self.leases().get(&id) {
            Some(Registration::Created(_)) => LeasePresence::Present,
            Some(Registration::Reserved) => LeasePresence::Reserved,
            None => LeasePresence::Absent,
        }
    }

    fn all(&self) -> Vec<Arc<Lease>> {
        let taken = |seat: &Registration| match seat {
            Registration::Created(lease) => Some(lease.clone()),
            Registration::Reserved => None,
        };
        self.leases().values().filter_map(taken).collect()
    }

    pub fn count(&self) -> usize {
        self.leases().len()
    }

    pub fn list(&self) -> Vec<LeaseSummary> {
        // A detached lease belongs to no client, and no client can name its id.
        let all = self.all().into_iter().filter(|lease| !lease.terms.detached);
        let mut list: Vec<LeaseSummary> = all.map(|lease| lease.summary()).collect();
        list.sort_by_key(|summary| summary.lease);
        list
    }

    /// The holds of a lock by leases that live here.
    pub fn holds_on(&self, lock: &str) -> Vec<Hold> {
        let held: Vec<_> = self.held().get(lock).into_iter().flatten().copied().collect();
        let hold = |(lease, number): (LeaseId, u64)| {
            let lease = self.find(lease)?;
            let state = lease.state();
            lease.hold(number, state.entries.get(&number)?)
        };
        held.into_iter().filter_map(hold).collect()
    }

    pub fn held(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<(LeaseId, u64)>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locks whose holds have changed since the change with this number, and the number of the next change.
    /// `None` if changes that old have been dropped.
    pub fn changed_since(&self, from: u64) -> Option<(BTreeSet<String>, u64)> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *self.changes.borrow();
        // Example: the next change is number 10, and 4 changes (6 to 9) are remembered. From 8 on, 2 are unread, so 2
        // are skipped; from 5 on, 5 would be unread, more than are remembered.
        let unread = usize::try_from(next.checked_sub(from)?).ok()?;
        let skip = changed.len().checked_sub(unread)?;
        Some((changed.iter().skip(skip).cloned().collect(), next))
    }

    /// Reserves an id while other daemons are queried whether they have it.
    pub fn reserve(&self, id: LeaseId) -> Result<ReservedId<'_>, LeasePresence> {
        let mut leases = self.leases();
        match leases.get(&id) {
            Some(Registration::Created(_)) => Err(LeasePresence::Present),
            Some(Registration::Reserved) => Err(LeasePresence::Reserved),
            None => {
                leases.insert(id, Registration::Reserved);
                Ok(ReservedId { local: self, id })
            }
        }
    }

    /// Creates a lease under a reserved id.
    pub fn grant(
        &self,
        reserved: ReservedId<'_>,
        identity: CallerIdentity,
        terms: LeaseTerms,
    ) -> Result<LeaseId, LeaseError> {
        let limits = &self.context.limits;
        if terms.ttl > Duration::from_secs(limits.longest_ttl_s) {
            let (asked_s, limit_s) = (terms.ttl.as_secs(), limits.longest_ttl_s);
            return Err(LeaseError::TtlTooLong { asked_s, limit_s });
        }
        let charge = self.quotas.charge(&Arc::from(identity.account.as_str()), Resource::Sessions)?;
        let (id, member) = (reserved.id, self.context.member.new_owner());
        let lease = Arc::new(Lease::new(id, terms, identity, member, (self.metrics.session(), charge)));
        self.leases().insert(id, Registration::Created(lease.clone()));
        tokio::spawn(expire(self.me.clone(), lease));
        Ok(id)
    }

    /// The lease with this id, if the caller may use it.
    pub fn lease(&self, identity: &CallerIdentity, id: LeaseId) -> Result<Arc<Lease>, LeaseError> {
        let lease = self.find(id).ok_or(LeaseError::NoSuchLease(id))?;
        if let Err(error) = lease.check(identity) {
            self.metrics.refuse("permission");
            let line = AuditEntry::new(AuditEvent::Refuse, identity.protocol.name(), &identity.token_name);
            self.context
                .audit
                .refuse(RefusalReason::Session, &AuditEntry { why: &error.to_string(), ..line });
            return Err(error);
        }
        Ok(lease)
    }

    /// Performs an operation on a lease.
    pub fn perform(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        op: LeaseOperation,
    ) -> Result<OperationReply, LeaseError> {
        let lease = self.lease(identity, id)?;
        if lease.state().has_moved(&op) {
            self.forget_moved(&lease);
            return Err(LeaseError::NoSuchLease(id));
        }
        match op {
            LeaseOperation::KeepAlive | LeaseOperation::TimeToLive => {
                self.process_losses(&lease);
                let mut state = lease.state();
                if state.over {
                    return Err(LeaseError::NoSuchLease(id));
                }
                if let LeaseOperation::KeepAlive = op {
                    lease.keep_alive(&mut state)?;
                }
                Ok(OperationReply::Status(lease.status(&state, &op)))
            }
            LeaseOperation::Revoke => {
                self.end(&lease, "it was revoked");
                Ok(OperationReply::Revoked)
            }
            LeaseOperation::Release(which, fence) => {
                Ok(OperationReply::Released(self.release(&lease, &which, fence)))
            }
            LeaseOperation::SetValue { which, fence, value } => self.set_value(&lease, &which, fence, value),
            LeaseOperation::Abandon(number) => {
                self.drop_interest(&lease, number, LeaseEntry::withdraw_claim);
                Ok(OperationReply::Released(None))
            }
            LeaseOperation::Detached(op) => self.perform_detached(&lease, &op).map(OperationReply::Detached),
        }
    }

    fn set_value(
        &self,
        lease: &Arc<Lease>,
        which: &HoldRef,
        fence: u64,
        value: Vec<u8>,
    ) -> Result<OperationReply, LeaseError> {
        let mut state = lease.state();
        let not_held = || {
            let lock = if let HoldRef::OnlyOn(lock) = which { lock } else { "this lock" };
            LeaseError::NotHeld(String::from(lock))
        };
        let number = state.number_of(which).ok_or_else(not_held)?;
        let entry = state.entries.get_mut(&number).ok_or_else(not_held)?;
        let guard = entry.guard().filter(|guard| guard.fence() == fence).ok_or_else(not_held)?;
        let revision = match guard.draw_fence() {
            Err(lockkeeper_cluster::Error::Lost { .. }) => return Err(not_held()),
            drawn => drawn?,
        };
        entry.revision = revision;
        entry.value = value;
        entry.version += 1;
        lease.record(None, entry);
        let hold = lease.hold(number, entry).ok_or_else(not_held)?;
        drop(state);
        self.notify_change(&hold.lock);
        Ok(OperationReply::Set(hold))
    }

    /// Requests a lock. Dropping the returned wait before its outcome withdraws the request, unless another request
    /// shares it.
    pub fn acquire(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        request: &HoldRequest,
    ) -> Result<LocalWait, LeaseError> {
        let lease = self.lease(identity, id)?;
        let wait = |number| self.wait(&lease, number, request);
        let entry = self.open_entry(&lease, request, wait, |entry| entry.interest += 1)?;
        Ok(LocalWait::new(self.me.clone(), lease, entry.number, entry.outcome))
    }

    /// Finds the entry of a request, or creates one whose wait `wait` starts. `claim` records the claim of the request
    /// to it.
    pub fn open_entry(
        &self,
        lease: &Arc<Lease>,
        request: &HoldRequest,
        wait: impl FnOnce(u64) -> tokio::task::AbortHandle,
        claim: impl FnOnce(&mut LeaseEntry),
    ) -> Result<OpenEntry, LeaseError> {
        self.quotas.follow_views();
        let mut state = lease.state();
        if state.over {
            return Err(LeaseError::NoSuchLease(lease.id));
        }
        let found = state.find(request);
        let number = match found {
            Some(number) => {
                lease.request_again(&mut state, number, request)?;
                number
            }
            None => {
                let limit = self.context.limits.locks_per_session;
                if state.entries.len() >= limit {
                    self.metrics.refuse("locks");
                    let what = String::from("too many locks that one session holds or waits for");
                    return Err(LeaseError::LimitExceeded { what, limit: limit as u64 });
                }
                let charge = self.quotas.wait(&lease.account, &request.lock)?;
                state.detached = request.lasts.map(|lasts| DetachedState::new(lasts, request.mode));
                state.insert(request, charge, wait)
            }
        };
        let entry = state.entries.get_mut(&number).ok_or(LeaseError::NoSuchLease(lease.id))?;
        claim(entry);
        Ok(OpenEntry { number, new: found.is_none(), outcome: entry.outcome.subscribe() })
    }

    fn wait(&self, lease: &Arc<Lease>, number: u64, request: &HoldRequest) -> tokio::task::AbortHandle {
        let (acquire, timeout) = (lease.member_request(request), request.timeout);
        let (local, lease) = (self.me.clone(), lease.clone());
        let span = tracing::info_span!(
            "acquire", trace = %request.trace, lock = %request.lock, lease = %lease.id, by = lease.creator.protocol.name()
        );
        let waiting = async move {
            let outcome = match timeout {
                Some(timeout) => acquire.acquire_within(timeout).await,
                None => acquire.acquire().await.map(Some),
            };
            if let Some(local) = local.upgrade() {
                local.finish_wait(&lease, number, outcome);
            }
        };
        tokio::spawn(waiting.instrument(span)).abort_handle()
    }

    /// Handles the outcome of a wait.
    pub fn finish_wait(
        &self,
        lease: &Arc<Lease>,
        number: u64,
        outcome: lockkeeper_cluster::Result<Option<HoldGuard>>,
    ) {
        let mut state = lease.state();
        let Some(entry) = state.entries.get_mut(&number) else { return };
        let error = match outcome {
            Ok(Some(guard)) => {
                self.metrics.waited(&entry.lock, entry.since.elapsed());
                self.log(AuditEvent::Grant, lease, entry, &guard, "");
                tokio::spawn(watch_for_loss(self.me.clone(), lease.clone(), number, guard.losing()));
                entry.since = Instant::now();
                entry.phase = EntryPhase::Held(guard);
                entry.charge.grant();
                self.held().entry(entry.lock.clone()).or_default().insert((lease.id, number));
                if let Some(detached) = &mut state.detached {
                    detached.begin();
                }
                let Some(entry) = state.entries.get(&number) else { return };
                lease.record(state.detached.as_ref(), entry);
                let hold = lease.hold(number, entry).expect("the phase was set to held");
                tracing::debug!(fence = hold.fence, "granted");
                let lock = hold.lock.clone();
                entry.outcome.send_replace(Some(Ok(hold)));
                if state.deadline_ns.is_none() {
                    lease.begin_ttl(&mut state);
                    lease.deadline_changed.notify_one();
                }
                drop(state);
                return self.notify_change(&lock);
            }
            Ok(None) => LeaseError::Busy(entry.lock.clone()),
            Err(error) => LeaseError::from(error),
        };
        tracing::debug!(%error, "not granted");
        if let Some(entry) = state.remove(number) {
            entry.outcome.send_replace(Some(Err(error)));
        }
        drop(state);
        self.end_if_hold_is_over(lease);
    }

    /// Releases a hold or withdraws a wait. Returns the last fence drawn for the hold if it was still valid.
    pub fn release(&self, lease: &Arc<Lease>, which: &HoldRef, only: Option<u64>) -> Option<u64> {
        let entry = {
            let mut state = lease.state();
            let number = state.number_of(which)?;
            let fence = state.entries.get(&number).and_then(LeaseEntry::guard).map(HoldGuard::fence);
            if only.is_some_and(|only| fence != Some(only)) {
                return None;
            }
            state.remove(number)?
        };
        let fence = self.close(lease, entry, "");
        self.end_if_hold_is_over(lease);
        fence
    }

    /// Closes an entry that was removed from its lease, and returns the last fence drawn for it if the hold was still
    /// valid.
    fn close(&self, lease: &Lease, entry: LeaseEntry, why: &str) -> Option<u64> {
        let gone = match why {
            "" => LeaseError::Withdrawn(entry.lock.clone()),
            why => LeaseError::LeaseEnded(lease.id, String::from(why)),
        };
        if let EntryPhase::Waiting(task) = &entry.phase {
            task.abort();
            entry.outcome.send_replace(Some(Err(gone)));
            return None;
        }
        let guard = entry.guard()?;
        let held = guard.is_valid();
        self.log(if held { AuditEvent::Release } else { AuditEvent::Lost }, lease, &entry, guard, why);
        self.metrics.held(&entry.lock, entry.since.elapsed());
        let revision = guard.fence().max(entry.revision);
        let lock = self.remove_from_index(lease, &entry);
        drop(entry);
        self.notify_change(&lock);
        held.then_some(revision)
    }

    /// Processes holds that were lost a moment ago and whose task has not run yet, so that no reply makes a promise
    /// about them.
    pub fn process_losses(&self, lease: &Arc<Lease>) {
        let lost: Vec<_> = lease.state().lost_by_now().collect();
        for (number, why) in lost {
            self.lose(lease, number, why);
        }
    }

    /// Handles the loss of a hold.
    fn lose(&self, lease: &Arc<Lease>, number: u64, why: &str) {
        let mut state = lease.state();
        let guard = state.entries.get(&number).and_then(LeaseEntry::guard);
        if guard.is_some_and(HoldGuard::has_moved) {
            drop(state);
            return self.forget_moved(lease);
        }
        let Some(entry) = state.remove(number) else { return };
        state.remember_lost(HoldLoss { number, lock: entry.lock.clone(), why: String::from(why) });
        drop(state);
        if let Some(guard) = entry.guard() {
            self.log(AuditEvent::Lost, lease, &entry, guard, why);
        }
        self.metrics.held(&entry.lock, entry.since.elapsed());
        tracing::warn!(lock = %entry.lock, lease = %lease.id, why, "lost");
        let lock = self.remove_from_index(lease, &entry);
        // The process that works under a detached hold learns of the loss by its next keep-alive.
        let has_process = lease.terms.detached && !lease.terms.ttl.is_zero();
        if let EntryPhase::Held(guard) = entry.phase {
            let retained = RetainedHold::new(guard);
            if has_process {
                lease.state().retained = Some(retained.clone());
            }
            tokio::spawn(keep_until_promise_ends(retained));
        }
        if lease.terms.ends_with_loss || (lease.terms.one_hold && !has_process) {
            self.end(lease, &format!("`{lock}` was lost: {why}"));
        }
        self.notify_change(&lock);
    }

    /// Applies changed tokens. A lease whose token is gone ends; a lease whose token allows less loses the holds and
    /// waits that it no longer covers.
    pub fn follow_rights(&self) {
        for lease in self.all() {
            match self.context.access.named(&lease.creator.token_name) {
                Err(_) => {
                    let why = "its token was removed or has expired";
                    self.revoke_entries(&lease, |entry| entry.guard().is_some(), why);
                    self.end(&lease, why);
                }
                Ok(who) => {
                    let denied = |entry: &LeaseEntry| Action::Acquire.check(&who, &entry.lock).is_err();
                    self.revoke_entries(&lease, denied, "its token does not allow it any more");
                }
            }
        }
    }

    /// Revokes holds and ends waits. The locks of the holds stay locked until the time promised to the client has
    /// passed.
    fn revoke_entries(&self, lease: &Arc<Lease>, which: impl Fn(&LeaseEntry) -> bool, why: &str) {
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (&number, entry) in lease.state().entries.iter().filter(|(_, entry)| which(entry)) {
            if entry.guard().is_some() { held.push(number) } else { waiting.push(number) }
        }
        for number in held {
            self.lose(lease, number, why);
        }
        for number in waiting {
            self.release(lease, &HoldRef::Number(number), None);
        }
    }

    /// Applies `change` to the number of requests that wait for an entry, and closes the entry if none is left.
    pub fn drop_interest(&self, lease: &Arc<Lease>, number: u64, change: impl FnOnce(&mut LeaseEntry)) {
        let mut state = lease.state();
        let Some(entry) = state.entries.get_mut(&number) else { return };
        change(entry);
        if !entry.is_unclaimed() {
            return;
        }
        let entry = state.remove(number);
        drop(state);
        if let Some(entry) = entry {
            self.close(lease, entry, "");
        }
        self.end_if_hold_is_over(lease);
    }

    /// Handles that the daemon that relayed a hold to its client has disappeared before confirming the delivery. If
    /// no other request has found the hold, it is lost. The client may know of the hold, and learns of the loss from
    /// its next keep-alive. A detached hold stays, since its owner may rely on it without a process that would learn of
    /// the loss: until a release, or its deadline.
    pub fn lose_unconfirmed(&self, id: LeaseId, number: u64, why: &str) {
        let Some(lease) = self.find(id).filter(|lease| !lease.terms.detached) else { return };
        let forgotten = lease.state().entries.get_mut(&number).is_some_and(|entry| {
            entry.withdraw_claim();
            entry.is_unclaimed()
        });
        if forgotten {
            self.lose(&lease, number, why);
        }
    }

    /// The current state of a hold that was granted a while ago, with what is promised of it now.
    pub fn current_hold(&self, hold: Hold) -> WaitOutcome {
        let now = self.find(hold.lease).and_then(|lease| lease.hold_now(&lease.state(), hold.number));
        now.ok_or_else(|| {
            LeaseError::LeaseEnded(hold.lease, String::from("the hold was lost before the reply was sent"))
        })
    }

    /// Ends a lease that was created for a single hold, if that hold is over.
    fn end_if_hold_is_over(&self, lease: &Arc<Lease>) {
        if lease.terms.one_hold && lease.state().entries.is_empty() {
            self.end(lease, "its hold is over");
        }
    }

    /// Ends a lease with all its holds and waits.
    fn end(&self, lease: &Arc<Lease>, why: &str) {
        let entries = {
            let mut state = lease.state();
            if std::mem::replace(&mut state.over, true) {
                return;
            }
            std::mem::take(&mut state.entries)
        };
        self.leases().remove(&lease.id);
        lease.deadline_changed.notify_one();
        for entry in entries.into_values() {
            self.close(lease, entry, why);
        }
    }

    /// Removes a hold from the index by lock, and returns the lock's name.
    pub fn remove_from_index(&self, lease: &Lease, entry: &LeaseEntry) -> String {
        let mut held = self.held();
        if let Some(holds) = held.get_mut(&entry.lock) {
            holds.remove(&(lease.id, entry.number));
            if holds.is_empty() {
                held.remove(&entry.lock);
            }
        }
        entry.lock.clone()
    }

    pub fn notify_change(&self, lock: &str) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.len() == MOST_CHANGES {
            changed.pop_front();
        }
        changed.push_back(String::from(lock));
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn log(&self, what: AuditEvent, lease: &Lease, entry: &LeaseEntry, guard: &HoldGuard, why: &str) {
        let audit = &self.context.audit;
        if !audit.is_enabled() {
            return;
        }
        let acquisition = guard.acquisition().map(|acquisition| acquisition.to_string());
        let line = AuditEntry::new(what, lease.creator.protocol.name(), &lease.creator.token_name);
        audit.write(&AuditEntry { lock: &entry.lock, acquisition, fence: Some(guard.fence()), why, ..line });
    }
}

impl Drop for LocalLeases {
    fn drop(&mut self) {
        for lease in self.all() {
            self.end(&lease, "the daemon stops");
        }
    }
}

/// The entry of a request.
pub(super) struct OpenEntry {
    pub number: u64,
    /// Whether the request has created it.
    pub new: bool,
    pub outcome: watch::Receiver<Option<WaitOutcome>>,
}

/// A reserved lease id. Dropping it frees the id, unless a lease was created under it.
pub(super) struct ReservedId<'a> {
    local: &'a LocalLeases,
    id: LeaseId,
}

impl Drop for ReservedId<'_> {
    fn drop(&mut self) {
        let mut leases = self.local.leases();
        if let Some(Registration::Reserved) = leases.get(&self.id) {
            leases.remove(&self.id);
        }
    }
}

/// Ends a lease when its time to live has passed.
pub(super) async fn expire(local: Weak<LocalLeases>, lease: Arc<Lease>) {
    loop {
        let deadline = {
            let state = lease.state();
            if state.over {
                return;
            }
            state.deadline_ns
        };
        match deadline.map(|at| at.saturating_sub(now_ns())) {
            None => lease.deadline_changed.notified().await,
            Some(left @ 1..) => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_nanos(left)) => {}
                    () = lease.deadline_changed.notified() => {}
                }
            }
            Some(_) => {
                if let Some(local) = local.upgrade() {
                    tracing::info!(lease = %lease.id, "expired");
                    let ended = if lease.terms.detached {
                        "its deadline has passed"
                    } else {
                        "its time to live passed without a keep-alive"
                    };
                    local.end(&lease, ended);
                }
                return;
            }
        }
    }
}

/// Removes a hold from its lease when it is lost.
pub(super) async fn watch_for_loss(
    local: Weak<LocalLeases>,
    lease: Arc<Lease>,
    number: u64,
    losing: impl Future<Output = String>,
) {
    let why = losing.await;
    if let Some(local) = local.upgrade() {
        local.lose(&lease, number, &why);
    }
}

/// Keeps the lock until the time promised to the client has passed. The client relies on the last reply and learns of
/// the loss later than this daemon, so no other client may be granted the lock before. The deadline is on the lease
/// clock: the clock of the timer may be slewed and then fires early, hence the loop.
async fn keep_until_promise_ends(retained: RetainedHold) {
    let promised_ns = u64::try_from(retained.promised_for().as_nanos()).unwrap_or(u64::MAX);
    let until_ns = now_ns().saturating_add(promised_ns);
    while let left @ 1.. = until_ns.saturating_sub(now_ns()) {
        tokio::time::sleep(Duration::from_nanos(left)).await;
    }
    retained.release();
}

/// A hold that was lost, and that its client may still rely on.
#[derive(Clone)]
pub(super) struct RetainedHold(Arc<Mutex<Option<HoldGuard>>>);

impl RetainedHold {
    fn new(guard: HoldGuard) -> Self {
        Self(Arc::new(Mutex::new(Some(guard))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<HoldGuard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn promised_for(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, HoldGuard::promised_for)
    }

    /// Frees the lock: the client does not rely on it any more.
    pub fn release(&self) {
        let guard = self.lock().take();
        drop(guard);
    }
}
