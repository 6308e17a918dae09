//! The engine of a cluster member in this process: requests go to its state machine by a function call.
//!
//! ```text
//!   MemberEngine ── Member: state machine, lease ─────── other members, in other processes
//!        └ a client of the member for each `locks()`: its holds and waiting requests
//! ```
//!
//! The holds of all clients last as long as the member's lease, which it renews for all of them together. So a hold has
//! no renewal of its own: its [`Lease`] reads the member's.

use super::{
    Acquired, BoxFuture, Capabilities, Changes, Engine, Hold, Request, WhenBusy, catalogue, purpose_of,
    tag_of,
};
use crate::diagnose::{Finding, Severity, majority};
use crate::info::{LockInfo, Participant, lock_type};
use crate::lease::{Lease, Renewal};
use crate::{Error, Fence, LockMode, LockName, Loss, Result};
use lockkeeper_cluster::{
    Acquire, Acquisition, HoldGuard, LockStatus, Member, Query, is_expiry, is_revocation, revoker_in,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

pub(crate) const NAME: &str = "member";

/// The time for which a request waits while the member grants no locks, as without a majority.
const OUT_OF_SERVICE: Duration = Duration::from_secs(6);
/// The interval at which a watch looks at one lock at the other members.
const LOOK_AT_ONE: Duration = Duration::from_millis(200);
/// The interval at which a watch looks at all locks of the other members.
const LOOK_AT_ALL: Duration = Duration::from_secs(1);

pub(crate) struct MemberEngine {
    member: Member,
}

impl MemberEngine {
    /// The engine of one more client of this member.
    pub fn new(member: &Member) -> MemberEngine {
        MemberEngine { member: member.new_owner() }
    }

    fn request(&self, request: &Request) -> Acquire {
        let name = request.name.as_str();
        let acquire = match request.mode {
            LockMode::Exclusive => self.member.mutex(name),
            LockMode::Shared => self.member.shared(name),
            LockMode::Permit { of } => self.member.semaphore(name, of),
        };
        acquire.owner(request.tag.holder.as_str()).purpose(purpose_of(&request.tag))
    }

    /// A name is one type of lock: without this, a request for another type would wait until the first is not in use.
    fn check_type(&self, request: &Request) -> Result<()> {
        match self.member.mode_in_use(&Arc::from(request.name.as_str())) {
            Some(mode) if !mode.same_lock_as(request.mode) => Err(Error::KindMismatch {
                name: request.name.to_string(),
                used_as: lock_type(mode),
                asked_as: lock_type(request.mode),
            }),
            _ => Ok(()),
        }
    }

    /// Resolves when the member has granted no locks for a while.
    async fn out_of_service(&self) -> Error {
        let mut changes = self.member.status_changes();
        let mut since = None;
        loop {
            changes.mark_unchanged();
            let ended = match self.member.not_serving() {
                None => {
                    since = None;
                    changes.changed().await.is_err()
                }
                Some(trouble) => {
                    let deadline = *since.get_or_insert_with(Instant::now) + OUT_OF_SERVICE;
                    match timeout_at(deadline, changes.changed()).await {
                        Err(_) => return Error::unavailable(NAME, trouble.to_string()),
                        Ok(changed) => changed.is_err(),
                    }
                }
            };
            if ended {
                return Error::unavailable(NAME, "it has ended");
            }
        }
    }

    fn granted(&self, guard: HoldGuard) -> Acquired {
        let lease = Lease::read_from(guard.validity());
        let (losing, member, lost) = (guard.losing(), self.member.clone(), lease.clone());
        let watching = tokio::spawn(async move {
            let reason = losing.await;
            lost.revoke(loss(&reason, &member));
        });
        let (fence, ttl) = (Fence::new(guard.fence()), Some(self.member.lease()));
        let hold = MemberHold { guard, watching: Renewal::of(watching), member: self.member.clone() };
        Acquired { fence, lease, ttl, hold: Box::new(hold) }
    }

    /// The holders and waiters of one lock, or of all, as the members report them that answer in time.
    async fn look(&self, name: Option<&LockName>) -> Result<BTreeMap<String, Vec<LockStatus>>> {
        let rows: Vec<LockStatus> = match name {
            Some(name) => {
                let query = Query::One(lockkeeper_cluster::LockName::new(name.as_str()));
                let replies = self.member.query(query).await.map_err(|error| failure(error, &self.member))?;
                replies.into_iter().flat_map(|reply| reply.locks).collect()
            }
            None => {
                let tables = self.member.query_all().await.map_err(|error| failure(error, &self.member))?;
                tables.into_iter().flat_map(|(_, table)| table).collect()
            }
        };
        let mut locks = BTreeMap::<String, Vec<LockStatus>>::new();
        for row in rows {
            locks.entry(row.lock.name.to_string()).or_default().push(row);
        }
        Ok(locks)
    }

    /// The acquisitions that hold or wait. Each has another number, so that equal sets are the same state.
    async fn acquisitions(&self, name: Option<&LockName>) -> Result<BTreeSet<(String, Acquisition, bool)>> {
        let mut all = BTreeSet::new();
        for (name, rows) in self.look(name).await? {
            for row in rows {
                all.extend(row.holders.iter().map(|holder| (name.clone(), holder.acquisition, true)));
                all.extend(row.waiters.iter().map(|waiter| (name.clone(), waiter.acquisition, false)));
            }
        }
        Ok(all)
    }

    /// Whether no other member can join: a member without a join token does not listen for others.
    fn is_alone(&self) -> bool {
        self.member.config().join_token.is_none()
    }

    fn findings(&self) -> Vec<Finding> {
        let voters = self.member.voters();
        let mut findings: Vec<Finding> = majority("this cluster", voters.voters.len()).into_iter().collect();
        if let Some(trouble) = self.member.not_serving() {
            let found = format!("this member grants no locks: {trouble}");
            findings.push(Finding::new(Severity::Critical, "health", found, "start the other members"));
        }
        let me = self.member.id();
        for id in voters.members.into_iter().filter(|id| *id != me && !self.member.is_connected(*id)) {
            let found =
                format!("{id} has no connection to this member: fewer crashes are survived without it");
            findings.push(Finding::new(
                Severity::Warning,
                "health",
                found,
                "start it, or remove it for good",
            ));
        }
        findings
    }
}

/// A hold of a client of the member; released when dropped.
struct MemberHold {
    guard: HoldGuard,
    /// Waits for the loss of the hold.
    watching: Renewal,
    member: Member,
}

impl Hold for MemberHold {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let MemberHold { guard, watching, member } = *self;
            // The watch also ends with a release, which is no loss.
            drop(watching);
            guard.release().await.map_err(|error| failure(error, &member))
        })
    }
}

impl Engine for MemberEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        // One member serves its clients in order of arrival.
        Capabilities { fifo: self.is_alone(), ..catalogue::MEMBER }
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            self.check_type(&request)?;
            let acquire = self.request(&request);
            let granted = match when_busy {
                WhenBusy::Try => acquire.try_acquire().await,
                WhenBusy::Wait => tokio::select! {
                    biased;
                    granted = acquire.acquire() => granted.map(Some),
                    error = self.out_of_service() => return Err(error),
                },
            };
            Ok(granted.map_err(|error| failure(error, &self.member))?.map(|guard| self.granted(guard)))
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let rows = self.look(Some(name)).await?.remove(name.as_str());
            Ok(merge(name.to_string(), rows.unwrap_or_default()))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async {
            let locks = self.look(None).await?.into_iter().map(|(name, rows)| merge(name, rows));
            Ok(locks.filter(|lock| !lock.holders.is_empty() || !lock.waiters.is_empty()).collect())
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            // BEFORE the first look, so that a change during it is not missed.
            let own = self.member.watch_table();
            let engine = MemberEngine::new(&self.member);
            let seen = if self.is_alone() { BTreeSet::new() } else { self.acquisitions(name).await? };
            Ok(Box::new(MemberChanges { engine, name: name.cloned(), own, seen }) as Box<dyn Changes>)
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { Ok(self.findings()) })
    }
}

/// A watch: the member reports changes of its own clients, and the other members are queried.
struct MemberChanges {
    engine: MemberEngine,
    name: Option<LockName>,
    own: watch::Receiver<u64>,
    /// The state at the last look at all members.
    seen: BTreeSet<(String, Acquisition, bool)>,
}

impl Changes for MemberChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let interval = if self.name.is_some() { LOOK_AT_ONE } else { LOOK_AT_ALL };
            let alone = self.engine.is_alone();
            loop {
                tokio::select! {
                    changed = self.own.changed() => {
                        return changed.map_err(|_| Error::unavailable(NAME, "it has ended"));
                    }
                    () = sleep(interval), if !alone => {}
                }
                let now = self.engine.acquisitions(self.name.as_ref()).await?;
                if now != self.seen {
                    self.seen = now;
                    return Ok(());
                }
            }
        })
    }
}

/// Merges the rows of one lock at several members.
fn merge(name: String, rows: Vec<LockStatus>) -> LockInfo {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for row in rows {
        holders.extend(row.holders);
        waiters.extend(row.waiters);
    }
    // Members reply at different times: one may report a hold that has passed to a client of another member since. An
    // exclusive hold excludes all those with lower fences.
    let newest =
        holders.iter().filter(|who| who.mode == LockMode::Exclusive).filter_map(|who| who.fence).max();
    holders.retain(|who| newest.is_none() || who.fence.is_none() || who.fence >= newest);
    waiters.sort_by_key(|who| std::cmp::Reverse(who.for_ns));
    let all = |who: Vec<lockkeeper_cluster::Participant>| who.into_iter().map(participant).collect();
    LockInfo { name, holders: all(holders), waiters: all(waiters) }
}

fn participant(who: lockkeeper_cluster::Participant) -> Participant {
    let fence = who.fence.and_then(|fence| Fence::new(fence.number()));
    let (owner, purpose) = (who.tag.owner, who.tag.purpose);
    let tag = tag_of(&owner, &purpose, &who.acquisition.to_string(), who.since_ms);
    let detached = super::detached_until(owner, who.detached_until_ms);
    Participant { tag, mode: who.mode, since_ms: who.since_ms, fence, detached }
}

/// The reason for the loss of a hold.
fn loss(reason: &str, member: &Member) -> Loss {
    if is_revocation(reason) {
        return Loss::Revoked { by: revoker_in(reason).map(String::from) };
    }
    if !is_expiry(reason) {
        return Loss::Ended(reason.into());
    }
    // Without trouble, this process was paused or too slow.
    member.not_serving().map_or(Loss::Expired, |trouble| Loss::Unreachable(trouble.to_string()))
}

/// The library's error for one of the member.
pub(crate) fn failure(error: lockkeeper_cluster::Error, member: &Member) -> Error {
    use lockkeeper_cluster::Error as MemberError;
    match error {
        MemberError::Lost { name, reason } => Error::Lost { name, reason: loss(&reason, member) },
        error => not_started(error),
    }
}

/// The library's error for one of a member that has not started.
pub(crate) fn not_started(error: lockkeeper_cluster::Error) -> Error {
    use crate::error::RejectionKind;
    use lockkeeper_cluster::Error as MemberError;
    match error {
        MemberError::BadName(why) => Error::BadName(why.to_string()),
        MemberError::BadOption(why) => Error::BadOption(why.to_string()),
        MemberError::Config(why) => Error::BadOption(why.to_string()),
        MemberError::LimitExceeded(why) => RejectionKind::LimitExceeded.error(NAME, why),
        error => Error::unavailable(NAME, error.to_string()).caused_by(error),
    }
}
