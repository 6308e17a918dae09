//! Holds of named owners, which need no client: they last until they are released or their deadline passes.
//!
//! A detached hold is the single hold of a lease whose id is computed from token, lock and owner, so that every daemon
//! finds it and an owner has at most one of them. It is recorded in the cluster's log like every hold of a lease, and the
//! reply to its request is sent once the record is committed. The deadline is part of the payload, as Unix time. The home
//! counts it on the lease clock; a daemon that adopts the hold, after a crash, a leave or a restart of all daemons, goes on
//! with the time that is left by its own wall clock.
//!
//! ```text
//! hold-as ── lock granted ── Record ── reply        hold-as again: the same fence, a later deadline, Record ── reply
//! daemon 1 ──────────────────┴──────✗
//! daemon 2                          adopts the hold ──────────────────────────────── deadline: End, the lock is free
//! ```
//!
//! A process can work under such a hold (`ttl` of its terms above 0): then the hold does not end before the time to live
//! has passed since the process's last keep-alive, either.

use super::id::LeaseId;
use super::lease::{Lease, LeaseEntry, State};
use super::local_leases::LocalLeases;
use super::messages::LeasePresence;
use super::operations::{
    CallerIdentity, DetachedHold, DetachedOperation, DetachedReply, HoldRef, HoldRequest, LeaseError,
    LeaseOperation, LeaseTerms, OperationReply,
};
use super::receipt::Granted;
use super::{Leases, Place, RECORD_TIMEOUT, SEARCH_PAUSE};
use lockkeeper_cluster::{HoldGuard, LockMode, MOST_TABLE_BYTES, now_ns};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The longest time to the deadline of a detached hold.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Time between two checks whether the table of recorded holds has refused a record.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The part of a record's payload that describes a detached hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DetachedPayload {
    /// The deadline in milliseconds of Unix time.
    pub until_ms: u64,
    pub mode: LockMode,
    /// Whether the process that worked under the hold has ended its work.
    pub left: bool,
}

/// The deadline of a detached lease, and the use of its hold by a process.
pub(super) struct DetachedState {
    /// The time from the grant to the deadline.
    lasts: Duration,
    mode: LockMode,
    /// The deadline on the lease clock; 0 before the grant.
    until_ns: u64,
    /// The same in milliseconds of Unix time.
    pub until_ms: u64,
    /// The time on the lease clock until which a process may work under the hold; 0 if none does.
    used_until_ns: u64,
    /// Whether the process has ended its work.
    left: bool,
}

impl DetachedState {
    /// A hold that is requested.
    pub fn new(lasts: Duration, mode: LockMode) -> Self {
        Self { lasts, mode, until_ns: 0, until_ms: 0, used_until_ns: 0, left: false }
    }

    /// A hold that this daemon's member has adopted.
    pub fn adopted(payload: &DetachedPayload) -> Self {
        let lasts = Duration::from_millis(payload.until_ms.saturating_sub(unix_ms()));
        let mut adopted = Self::new(lasts, payload.mode);
        adopted.begin();
        // Not the present time plus the rest: rounding would move the deadline with every adoption.
        adopted.until_ms = payload.until_ms;
        adopted.left = payload.left;
        adopted
    }

    /// Begins the time to the deadline.
    pub fn begin(&mut self) {
        self.until_ns = now_ns().saturating_add(nanoseconds(self.lasts));
        let lasts_ms = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        self.until_ms = unix_ms().saturating_add(lasts_ms);
    }

    pub fn payload(&self) -> DetachedPayload {
        DetachedPayload { until_ms: self.until_ms, mode: self.mode, left: self.left }
    }

    /// Handles a keep-alive of the process: it may work under the hold until this time. Returns the end of the lease.
    pub fn begin_ttl(&mut self, until_ns: u64) -> u64 {
        if !self.left {
            self.used_until_ns = until_ns;
        }
        self.ends_ns()
    }

    /// The end of the lease on the lease clock.
    fn ends_ns(&self) -> u64 {
        if self.left { self.until_ns } else { self.until_ns.max(self.used_until_ns) }
    }

    fn is_in_use(&self) -> bool {
        !self.left && now_ns() < self.used_until_ns
    }

    fn left(&self) -> Duration {
        Duration::from_nanos(self.until_ns.saturating_sub(now_ns()))
    }
}

impl Lease {
    /// Handles another request for the hold of a detached lease: its deadline moves.
    pub fn request_again(
        &self,
        state: &mut State,
        number: u64,
        request: &HoldRequest,
    ) -> Result<(), LeaseError> {
        let (Some(detached), Some(lasts)) = (&mut state.detached, request.lasts) else { return Ok(()) };
        if detached.mode != request.mode {
            return Err(LeaseError::Invalid(format!(
                "`{}` holds `{}` as {}, or waits for it, and requests it as {}: release it first",
                self.terms.owner, request.lock, detached.mode, request.mode
            )));
        }
        detached.lasts = lasts;
        self.move_deadline(state, number);
        Ok(())
    }

    /// Moves the deadline of a held lock to the time that was requested last.
    fn move_deadline(&self, state: &mut State, number: u64) {
        let State { detached: Some(detached), entries, deadline_ns, .. } = state else { return };
        let Some(entry) = entries.get(&number).filter(|entry| entry.guard().is_some()) else { return };
        detached.begin();
        *deadline_ns = Some(detached.ends_ns());
        self.record(Some(detached), entry);
        self.deadline_changed.notify_one();
    }

    fn detached_hold(&self, state: &State) -> Option<DetachedHold> {
        let (&number, _) = state.entries.first_key_value()?;
        let (hold, detached) = (self.hold_now(state, number)?, state.detached.as_ref()?);
        let (mode, owner) = (detached.mode, self.terms.owner.clone());
        Some(DetachedHold { hold, mode, owner, left: detached.left(), until_ms: detached.until_ms })
    }

    fn is_record_unfit(&self, number: u64) -> bool {
        let state = self.state();
        state.entries.get(&number).and_then(LeaseEntry::guard).is_some_and(HoldGuard::is_record_unfit)
    }
}

impl LocalLeases {
    /// Performs an operation on the hold of a detached lease. A change of the deadline is not recorded yet.
    pub fn perform_detached(
        &self,
        lease: &Arc<Lease>,
        op: &DetachedOperation,
    ) -> Result<DetachedReply, LeaseError> {
        self.process_losses(lease);
        let mut state = lease.state();
        let Some(&number) = state.entries.keys().next().filter(|_| !state.over) else {
            let lost = state.last_lost().map(|lost| lost.why.clone());
            let stopped = matches!(op, DetachedOperation::Leave | DetachedOperation::Discard);
            if let Some(retained) = state.retained.take_if(|_| stopped) {
                retained.release();
            }
            return Ok(DetachedReply { lost, ..DetachedReply::default() });
        };
        let is_held = state.entries.get(&number).is_some_and(|entry| entry.guard().is_some());
        let Some(detached) = &mut state.detached else { return Ok(DetachedReply::default()) };
        let ends = match op {
            DetachedOperation::Find { lasts } => {
                detached.lasts = lasts.unwrap_or(detached.lasts);
                if lasts.is_some() {
                    lease.move_deadline(&mut state, number);
                    // The caller relies on the hold from now on, even if the request that acquired it is withdrawn.
                    if let Some(entry) = state.entries.get_mut(&number).filter(|_| is_held) {
                        entry.kept = true;
                    }
                }
                false
            }
            DetachedOperation::KeepAlive => {
                lease.keep_alive(&mut state)?;
                false
            }
            DetachedOperation::Leave => {
                detached.left = true;
                let ends_ns = detached.ends_ns();
                state.deadline_ns = Some(ends_ns);
                lease.deadline_changed.notify_one();
                // A daemon that adopts the hold must not wait for the process.
                let State { detached, entries, .. } = &*state;
                if let Some(entry) = entries.get(&number) {
                    lease.record(detached.as_ref(), entry);
                }
                // A deadline that has passed ends the hold here, BEFORE the task that waits for it runs.
                ends_ns <= now_ns()
            }
            DetachedOperation::Release => is_held && !detached.is_in_use(),
            DetachedOperation::Discard => true,
            DetachedOperation::Withdraw => {
                drop(state);
                self.drop_interest(lease, number, LeaseEntry::withdraw_claim);
                return Ok(DetachedReply { released: true, ..DetachedReply::default() });
            }
        };
        if !ends {
            let released = matches!(op, DetachedOperation::Leave);
            return Ok(DetachedReply { hold: lease.detached_hold(&state), released, lost: None });
        }
        drop(state);
        let released = self.release(lease, &HoldRef::Number(number), None).is_some();
        // A hold that is valid by its record alone, because the member has no lease at the moment, is released as well.
        let released = released || is_held;
        Ok(DetachedReply { released, ..DetachedReply::default() })
    }
}

impl Leases {
    /// Acquires a lock for a named owner, or finds the hold that the owner has, with its deadline moved. Returns once the
    /// record is committed. Dropping the future, or the receipt, gives up a hold that this request has acquired.
    pub(crate) async fn hold_as(
        &self,
        identity: &CallerIdentity,
        terms: LeaseTerms,
        request: HoldRequest,
    ) -> Result<(DetachedHold, Granted), LeaseError> {
        let lasts = request.lasts.unwrap_or_default();
        if lasts.is_zero() || lasts > LONGEST {
            return Err(LeaseError::Invalid(format!("a hold of {lasts:?} is not within 1 ns to 366 days")));
        }
        let id = LeaseId::detached(&identity.token_name, &request.lock, &terms.owner);
        let terms = LeaseTerms { one_hold: true, detached: true, ends_with_loss: false, ..terms };
        let gives_up_at = request.timeout.map(|timeout| Instant::now().checked_add(timeout));
        let granted = self.acquire_detached(identity, id, &terms, request).await?;
        // A request that waits for the lock without a limit also waits for the record.
        let at_least = Instant::now() + self.peers.adoption_timeout();
        let until = gives_up_at.map(|at| at.map_or(at_least, |at| at.max(at_least)));
        let find = LeaseOperation::Detached(DetachedOperation::Find { lasts: None });
        loop {
            let hold = match self.perform(identity, id, find.clone()).await {
                Ok(OperationReply::Detached(DetachedReply { hold: Some(hold), .. })) => hold,
                Err(LeaseError::Unavailable(_)) if until.is_none_or(|until| Instant::now() < until) => {
                    continue;
                }
                Err(error) => return Err(error),
                Ok(_) => return Err(LeaseError::LeaseEnded(id, String::from("the hold was lost at once"))),
            };
            return Ok((hold, granted));
        }
    }

    /// Waits for the lock by the lease of this id, which is created here if no daemon has it.
    async fn acquire_detached(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        terms: &LeaseTerms,
        request: HoldRequest,
    ) -> Result<Granted, LeaseError> {
        let timeout_at = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = timeout_at.map(|at| at.saturating_duration_since(Instant::now()));
            let request = HoldRequest { timeout: left, ..request.clone() };
            if self.local.find(id).is_some() {
                // Without an await in between, the lease has a request as soon as it exists.
                match self.local.acquire(identity, id, &request) {
                    Err(LeaseError::NoSuchLease(_)) => continue,
                    waiting => return waiting?.granted().await,
                }
            }
            let reserved = match self.local.reserve(id) {
                Ok(reserved) => reserved,
                Err(LeasePresence::Present) => continue,
                Err(_) => {
                    pause().await;
                    continue;
                }
            };
            match self.search_reserved(id).await? {
                Place::At(home) if home != self.peers.me() => {
                    drop(reserved);
                    match self.outgoing.acquire(home, identity.clone(), id, request).await {
                        Err(LeaseError::NoSuchLease(_)) => pause().await,
                        granted => return granted,
                    }
                }
                Place::Nowhere => {
                    self.local.grant(reserved, identity.clone(), terms.clone())?;
                    match self.local.acquire(identity, id, &request) {
                        Ok(waiting) => return waiting.granted().await,
                        Err(error) => {
                            let _ = self.local.perform(identity, id, LeaseOperation::Revoke);
                            return Err(error);
                        }
                    }
                }
                // Another daemon searches for it at the same time. One of the two must begin first.
                Place::At(_) | Place::Reserved => {
                    drop(reserved);
                    pause().await;
                }
            }
        }
    }

    /// Performs an operation on the hold that an owner has on a lock. The reply has no hold if there is none.
    pub(crate) async fn detached(
        &self,
        identity: &CallerIdentity,
        lock: &str,
        owner: &str,
        op: DetachedOperation,
    ) -> Result<DetachedReply, LeaseError> {
        let id = LeaseId::detached(&identity.token_name, lock, owner);
        match self.perform(identity, id, LeaseOperation::Detached(op)).await {
            Ok(OperationReply::Detached(reply)) => Ok(reply),
            Ok(_) | Err(LeaseError::NoSuchLease(_)) => Ok(DetachedReply::default()),
            Err(error) => Err(error),
        }
    }

    /// Waits until the record of a detached hold is committed, and returns its present state.
    pub(super) async fn recorded_detached(&self, lease: &Arc<Lease>) -> Result<DetachedReply, LeaseError> {
        let until = Instant::now() + RECORD_TIMEOUT;
        loop {
            let find = DetachedOperation::Find { lasts: None };
            let reply = self.local.perform_detached(lease, &find)?;
            let Some(number) = reply.hold.as_ref().map(|found| found.hold.number) else { return Ok(reply) };
            if lease.is_recorded(number) {
                return Ok(reply);
            }
            if lease.is_record_unfit(number) {
                let what = String::from("the table of recorded holds of this cluster is full, in bytes");
                return Err(LeaseError::LimitExceeded { what, limit: MOST_TABLE_BYTES as u64 });
            }
            if Instant::now() >= until {
                let why = "the hold is not recorded, since the members cannot decide at the moment: repeat the request";
                return Err(LeaseError::Unavailable(String::from(why)));
            }
            if let Some(recorded) = lease.recorded(number) {
                let _ = tokio::time::timeout(CHECK_PAUSE, recorded).await;
            }
        }
    }
}

/// Waits for a random time, so that two daemons that collide do not do so again.
async fn pause() {
    let part = getrandom::u32().unwrap_or(7) % 8 + 1;
    tokio::time::sleep(SEARCH_PAUSE * part / 4).await;
}
