//! The engine of a lockkeeper cluster: sessions over the native protocol.
//!
//! ```text
//!   ClusterEngine ── Client ── Link ─────── connection ─────── a daemon, which is a member of the cluster
//!                       │        └ ClientSession: the client's half of a session, pure
//!                       └ older links, while something is held through them
//! ```
//!
//! A client has one session at a time for its new requests. When its daemon goes away, the waiting requests move to
//! another daemon in their original order, and the holds keep their session: any daemon relays its messages, and another
//! member adopts the holds that the cluster has recorded. A hold is lost when its promise ends, and its holder is notified
//! before.

mod address;
mod client;
mod delegations;
mod diagnose;
mod link;
mod owned;
mod probe;
mod revocation;
mod stream;

use self::address::Daemons;
use self::client::{Client, ClientError};
use self::link::{PendingRequest, RequestLocation, RequestOutcome};
use self::stream::ConnectError;
use super::{
    Acquired, BoxFuture, Capabilities, Changes, DetachedState, Engine, EngineUrl, Hold, Request, WhenBusy,
    catalogue, detached_until, purpose_of, tag_of,
};
use crate::cluster::ClusterStatus;
use crate::diagnose::Finding;
use crate::error::RejectionKind;
use crate::info::{LockInfo, Participant, lock_type};
use crate::lease::Lease;
use crate::{Error, Fence, LockName, Loss, Result};
use lockkeeper_session::protocol::{DaemonQuery, DaemonReply, LockLine, ParticipantLine, Refusal};
use lockkeeper_session::{Ended, LockRequest};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

pub use self::probe::probe;

const NAME: &str = "lockkeeper";

/// The error in a URL, found without connecting.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn parse_error(url: &EngineUrl) -> Option<Error> {
    Daemons::parse(url).err()
}

/// The engine of a cluster of daemons.
pub(crate) struct ClusterEngine {
    client: Arc<Client>,
    /// Whether the cluster had one member when it was opened.
    alone: bool,
}

impl ClusterEngine {
    pub async fn open(url: &EngineUrl) -> Result<ClusterEngine> {
        Self::connect(url, true).await
    }

    async fn connect(url: &EngineUrl, for_locks: bool) -> Result<ClusterEngine> {
        let client = Client::open(Daemons::parse(url)?, for_locks).await;
        let client = client.map_err(no_connection)?;
        let alone = client.welcome().is_some_and(|welcome| welcome.members <= 1);
        Ok(ClusterEngine { client, alone })
    }

    /// The state of one lock, if it has a holder or a waiter; or of all locks, page by page.
    async fn locks(&self, name: Option<String>) -> Result<Vec<LockInfo>> {
        if let Some(name) = name {
            return match self.query(DaemonQuery::Locks(Some(name))).await? {
                DaemonReply::Locks(lines) => Ok(lines.into_iter().map(info).collect()),
                other => Err(unexpected(&other)),
            };
        }
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = DaemonQuery::LocksPage { prefix: String::new(), after: after.take(), limit: u32::MAX };
            match self.query(page).await? {
                DaemonReply::LocksPage { locks, next, .. } => {
                    all.extend(locks.into_iter().map(info));
                    after = next;
                }
                other => return Err(unexpected(&other)),
            }
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    async fn query(&self, query: DaemonQuery) -> Result<DaemonReply> {
        match self.client.query(query).await {
            Err(error) => Err(no_connection(error)),
            Ok(DaemonReply::Refused(why)) => Err(rejection(why)),
            Ok(DaemonReply::Invalid(why)) => Err(Error::BadOption(why)),
            Ok(answer) => Ok(answer),
        }
    }

    /// Sends one lock request, and waits for its outcome.
    async fn request(&self, request: LockRequest) -> (RequestOutcome, RequestGuard) {
        let (sender, receiver) = oneshot::channel();
        let location = RequestLocation { link: self.client.link(), number: 0, given_up: false };
        let location = Arc::new(Mutex::new(location));
        // From here on, dropping `guard` cancels the request.
        let guard = RequestGuard { location: Some(location.clone()), _client: self.client.clone() };
        self.client.ask(PendingRequest { request, sender, location });
        let outcome = receiver.await;
        (outcome.unwrap_or_else(|_| RequestOutcome::Unreachable(String::from("the connection ended"))), guard)
    }
}

/// A request or the hold that it led to; cancelled or released when dropped.
struct RequestGuard {
    location: Option<Arc<Mutex<RequestLocation>>>,
    /// Keeps the connection open while the lock is held.
    _client: Arc<Client>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(location) = self.location.take() {
            RequestLocation::leave(&location);
        }
    }
}

/// A hold on a lock of the cluster; released when dropped.
struct ClusterHold {
    request: RequestGuard,
    name: LockName,
    lease: Lease,
}

impl Hold for ClusterHold {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let ClusterHold { mut request, name, lease } = *self;
            let Some(location) = request.location.take() else { return Ok(()) };
            let confirmed = RequestLocation::leave(&location);
            // From here on the lease is not renewed. If it is valid now, the hold lasted until the release was sent.
            let lost = |reason: Loss| Err(Error::Lost { name: name.as_str().into(), reason });
            if !lease.is_valid() {
                let loss = lease.lost().await;
                if let (Loss::Revoked { .. }, Some(confirmed)) = (&loss, confirmed) {
                    // The next client is granted the lock as soon as the member has the release, and at the end of the
                    // lease otherwise: a process that ends now would not send it.
                    let _ = tokio::time::timeout(lease.valid_for(), confirmed).await;
                }
                return lost(loss);
            }
            match confirmed {
                // A delegation: the client keeps the lock for its next request.
                None => Ok(()),
                Some(confirmed) => match confirmed.await {
                    Ok(()) => Ok(()),
                    Err(_) => lost(Loss::Ended(String::from(
                        "it was taken back by force, or the session ended, before the daemon confirmed the release",
                    ))),
                },
            }
        })
    }
}

impl Engine for ClusterEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        // One member serves its clients in order of arrival.
        Capabilities { fifo: self.alone, ..catalogue::CLUSTER }
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let name = request.name.clone();
            if let Some((detach, ttl)) = owned::detached_request(&request) {
                return self.acquire_detached(request, detach, ttl, when_busy).await;
            }
            let mut lock_request = lock_request(&request)?;
            if when_busy == WhenBusy::Try {
                lock_request.timeout_ns = Some(0);
            }
            let (mut outcome, mut guard) = self.request(lock_request.clone()).await;
            if let (WhenBusy::Try, RequestOutcome::Ended(Ended::TimedOut)) = (when_busy, &outcome) {
                // The lock has no holder at this member. Another member may have the algorithm's permission, with or
                // without a holder: wait for a moment until this member can get it.
                lock_request.timeout_ns =
                    Some(self.client.welcome().map_or(200_000_000, |welcome| welcome.moment_ns));
                (outcome, guard) = self.request(lock_request).await;
            }
            match outcome {
                RequestOutcome::Granted(fence, lease) => {
                    let fence = fence.and_then(|fence| Fence::new(fence.number()));
                    let hold = ClusterHold { request: guard, name, lease: lease.clone() };
                    let ttl = Some(self.client.ttl_in_force(request.ttl));
                    Ok(Some(Acquired { fence, lease, ttl, hold: Box::new(hold) }))
                }
                RequestOutcome::Ended(Ended::TimedOut | Ended::Busy) if when_busy == WhenBusy::Try => {
                    Ok(None)
                }
                RequestOutcome::Ended(how) => Err(refused(&name, how)),
                RequestOutcome::Refused(Refusal::Because(why)) => Err(rejection(why)),
                RequestOutcome::Refused(Refusal::InUseAs(mode)) => Err(Error::KindMismatch {
                    name: name.as_str().into(),
                    used_as: lock_type(mode),
                    asked_as: lock_type(request.mode),
                }),
                // Perhaps because a daemon has refused the connection.
                RequestOutcome::Unreachable(reason) => Err(rejection(reason)),
            }
        })
    }

    fn grants_detached(&self) -> bool {
        true
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let mut found = self.locks(Some(name.as_str().into())).await?;
            let none = || LockInfo { name: name.as_str().into(), holders: Vec::new(), waiters: Vec::new() };
            Ok(found.pop().unwrap_or_else(none))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(self.locks(None))
    }

    fn changes<'a>(&'a self, _name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            let receiver = self.client.watch().await.map_err(no_connection)?;
            let watching = ClusterChanges { receiver, _client: self.client.clone() };
            Ok(Box::new(watching) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(self.find_detached(name, owner, lasts))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(diagnose::cluster(self))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.release_owned(name, owner))
    }
}

struct ClusterChanges {
    receiver: watch::Receiver<u64>,
    _client: Arc<Client>,
}

impl Changes for ClusterChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(
            async move { self.receiver.changed().await.map_err(|_| unavailable("the client has ended")) },
        )
    }
}

fn unavailable(reason: impl Into<String>) -> Error {
    Error::unavailable(NAME, reason)
}

/// The error of a client that has no connection.
fn no_connection(error: ClientError) -> Error {
    let kind = match &error {
        ClientError::Refused(ConnectError::Refused { why, .. }) => kind(why),
        _ => RejectionKind::Unavailable,
    };
    kind.error(NAME, error.to_string()).caused_by(error)
}

/// The error for a request that a daemon rejects, with its reason.
fn rejection(why: String) -> Error {
    kind(&why).error(NAME, why)
}

/// The kind of a rejection. The protocol has only the daemon's sentence, which the tests of this engine compare.
fn kind(why: &str) -> RejectionKind {
    const KINDS: [(&str, RejectionKind); 6] = [
        ("a valid token is needed", RejectionKind::Unauthenticated),
        (" does not allow ", RejectionKind::PermissionDenied),
        (" may not acquire ", RejectionKind::PermissionDenied),
        (" belongs to another token", RejectionKind::PermissionDenied),
        ("at most ", RejectionKind::LimitExceeded),
        ("more than ", RejectionKind::LimitExceeded),
    ];
    let found = KINDS.iter().find(|(text, _)| why.contains(text));
    found.map_or(RejectionKind::Unavailable, |(_, kind)| *kind)
}

fn unexpected(answer: &DaemonReply) -> Error {
    unavailable(format!("the reply of the daemon does not match the query: {answer:?}"))
}

fn refused(name: &LockName, how: Ended) -> Error {
    let reason = match how {
        Ended::Refused => String::from("it cannot be requested in this mode"),
        Ended::Leaving => String::from("the daemon is leaving its cluster, and there is no other"),
        Ended::Full { limit } => format!(
            "the clients of the daemon use {limit} different locks, as many as it serves at a time; release some, or use another daemon"
        ),
        _ => String::from("the wait for it ended"),
    };
    let kind = match how {
        Ended::Full { .. } => RejectionKind::LimitExceeded,
        _ => RejectionKind::Unavailable,
    };
    kind.error(NAME, format!("`{name}`: {reason}"))
}

/// Converts the request to the protocol's type. The tag is sent as JSON, and shown with the lock.
fn lock_request(request: &Request) -> Result<LockRequest> {
    let lock = lockkeeper_session::LockName::new(request.name.as_str());
    let mut lock_request = LockRequest { mode: request.mode, ..LockRequest::exclusive(lock) };
    lock_request.ttl_ns = u64::try_from(request.ttl.as_nanos()).unwrap_or(u64::MAX).max(1);
    lock_request.tag.owner.clone_from(&request.tag.holder);
    lock_request.tag.purpose = purpose_of(&request.tag);
    lock_request.tag.check().map_err(|why| {
        Error::BadOption(format!(
            "the holder and its metadata, as others are shown them, are not accepted: {why}"
        ))
    })?;
    Ok(lock_request)
}

fn info(line: LockLine) -> LockInfo {
    let all = |lines: Vec<ParticipantLine>| lines.into_iter().map(participant).collect();
    LockInfo { name: line.name, holders: all(line.holders), waiters: all(line.waiters) }
}

fn participant(line: ParticipantLine) -> Participant {
    let tag = tag_of(&line.owner, &line.purpose, &line.acquisition, line.since_ms);
    let fence = line.fence.and_then(Fence::new);
    let detached = detached_until(line.owner, line.detached_until_ms);
    Participant { tag, mode: line.mode, since_ms: line.since_ms, fence, detached }
}

/// A connection for operators: operations that only a cluster offers.
pub struct Operator(ClusterEngine);

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl Operator {
    /// Connects to one of the daemons that a `lockkeeper://` URL names. URLs of other engines are rejected with
    /// [`Error::BadUrl`].
    pub async fn open(url: impl Into<EngineUrl>) -> Result<Operator> {
        Ok(Operator(ClusterEngine::connect(&url.into(), false).await?))
    }

    /// The state of the cluster, as the daemon sees it.
    pub async fn cluster(&self) -> Result<ClusterStatus> {
        match self.0.query(DaemonQuery::Cluster).await? {
            DaemonReply::Cluster(line) => Ok(ClusterStatus::of(line)),
            other => Err(unexpected(&other)),
        }
    }

    /// Revokes all holds on a lock; returns their number. The holders are notified. The next holder has a higher
    /// fence, so a resource that checks fences rejects their later writes.
    pub async fn release_by_force(&self, name: impl Into<String>) -> Result<u32> {
        let name = LockName::new(name)?;
        match self.0.query(DaemonQuery::ForceRelease(name.as_str().into())).await? {
            DaemonReply::Released(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    /// Explains why the waiters of a lock wait: the holders they wait for, and the locks these wait for in turn. A
    /// cycle is reported as a deadlock.
    pub async fn why(&self, name: impl Into<String>) -> Result<Vec<String>> {
        let name = LockName::new(name)?;
        match self.0.query(DaemonQuery::Why(name.as_str().into())).await? {
            DaemonReply::Why(sentences) => Ok(sentences),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a dead member for good: the other members no longer wait for it, and it no longer has a vote.
    pub async fn remove(&self, member: u32) -> Result<()> {
        self.0.query(DaemonQuery::Remove(member)).await.map(drop)
    }

    /// Changes settings of the whole cluster, such as `lease` to `2s`. Returns when the daemon has a view with them. A
    /// value that the cluster rejects is an [`Error::BadOption`].
    pub async fn set(&self, changes: Vec<(String, String)>) -> Result<()> {
        self.0.query(DaemonQuery::Set(changes)).await.map(drop)
    }

    /// Makes the daemon leave its cluster and exit.
    pub async fn leave(&self) -> Result<()> {
        self.0.query(DaemonQuery::Leave).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockMode;

    #[test]
    fn a_participant_without_a_json_tag_is_shown_by_its_acquisition() {
        let line = ParticipantLine {
            acquisition: "C1#1/1".into(),
            member: 1,
            mode: LockMode::Permit { of: 3 },
            owner: String::new(),
            purpose: "backup".into(),
            fence: None,
            since_ms: 5,
            detached_until_ms: None,
            in_jeopardy: false,
        };
        let seen = participant(line);
        assert_eq!((seen.tag.holder.as_str(), seen.mode), ("C1#1/1", LockMode::Permit { of: 3 }));
        assert_eq!(seen.tag.metadata["purpose"], "backup");
    }
}
