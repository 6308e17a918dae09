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
mod kept;
mod link;
mod probe;
mod revocation;
mod stream;

use self::address::Daemons;
use self::client::Client;
use self::kept::KeptUntil;
use self::link::{PendingRequest, RequestLocation, RequestOutcome};
use super::{Acquired, BoxFuture, Capabilities, Changes, Detach, Engine, EngineUrl, Hold, Request, WhenBusy};
use crate::info::{LockInfo, Participant, Tag, lock_type};
use crate::lease::Lease;
use crate::{Error, Fence, LockName, Loss, Result};
use lockkeeper_session::protocol::{
    ClusterLine, DaemonQuery, DaemonReply, LockLine, ParticipantLine, Refusal,
};
use lockkeeper_session::{Ended, LockRequest};
use lockkeeper_system::lease_clock::now_ns;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
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
        let client = client.map_err(|error| unavailable(error.to_string()))?;
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
            Err(error) => Err(unavailable(error.to_string())),
            Ok(DaemonReply::Refused(why)) => Err(unavailable(why)),
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
        let guard =
            RequestGuard { location: Some(location.clone()), client: self.client.clone(), kept: None };
        self.client.ask(PendingRequest { request, sender, location });
        let outcome = receiver.await;
        (outcome.unwrap_or_else(|_| RequestOutcome::Unreachable(String::from("the connection ended"))), guard)
    }
}

/// A request or the hold that it led to; cancelled or released when dropped.
struct RequestGuard {
    location: Option<Arc<Mutex<RequestLocation>>>,
    /// Keeps the connection open while the lock is held.
    client: Arc<Client>,
    /// The time for which the lock is kept, whether it is released or not.
    kept: Option<KeptUntil>,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let Some(location) = self.location.take() else { return };
        match self.kept.take().filter(|kept| !kept.is_over()) {
            Some(kept) => kept.release_later(location, self.client.clone()),
            None => drop(RequestLocation::leave(&location)),
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
            if self.request.kept.as_ref().is_some_and(|kept| !kept.is_over()) {
                let (name, lease) = (self.name.clone(), self.lease.clone());
                drop(self);
                return match lease.is_valid() {
                    true => Ok(()),
                    false => {
                        Err(Error::Lost { name: name.to_string(), reason: lease.lost().await.to_string() })
                    }
                };
            }
            let ClusterHold { mut request, name, lease } = *self;
            let Some(location) = request.location.take() else { return Ok(()) };
            let confirmed = RequestLocation::leave(&location);
            // From here on the lease is not renewed. If it is valid now, the hold lasted until the release was sent.
            let lost = |reason: String| Err(Error::Lost { name: name.as_str().into(), reason });
            if !lease.is_valid() {
                let loss = lease.lost().await;
                if let (Loss::Revoked { .. }, Some(confirmed)) = (&loss, confirmed) {
                    // The next client is granted the lock as soon as the member has the release, and at the end of the
                    // lease otherwise: a process that ends now would not send it.
                    let _ = tokio::time::timeout(lease.valid_for(), confirmed).await;
                }
                return lost(loss.to_string());
            }
            match confirmed {
                // A delegation: the client keeps the lock for its next request.
                None => Ok(()),
                Some(confirmed) => match confirmed.await {
                    Ok(()) => Ok(()),
                    Err(_) => lost(String::from(
                        "it was taken back by force, or the session ended, before the daemon confirmed the release",
                    )),
                },
            }
        })
    }

    /// Waits until the cluster has promised the hold for the whole time. A hold with an owner needs more: see
    /// [`Capabilities::detached`].
    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            check_kept(&self.request.client, detach.lasts)?;
            let lasts_ns = u64::try_from(detach.lasts.as_nanos()).unwrap_or(u64::MAX);
            let until_ns = now_ns().saturating_add(lasts_ns);
            let Some(location) = self.request.location.clone() else { return Ok(false) };
            let (link, number) = {
                let location = location.lock().unwrap_or_else(|e| e.into_inner());
                (location.link.clone(), location.number)
            };
            let promised = self.lease.until(|| link.promised_until_ns(number) >= until_ns).await;
            promised.map_err(|loss| Error::Lost { name: self.name.to_string(), reason: loss.to_string() })?;
            let (lease, runtime) = (self.lease.clone(), Handle::current());
            self.request.kept = Some(KeptUntil { until_ns, lease, runtime });
            Ok(true)
        })
    }

    fn discard(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.request.kept = None;
        self.release()
    }
}

/// Rejects a time for which this cluster does not keep a lock.
fn check_kept(client: &Client, lasts: Duration) -> Result<()> {
    let longest = client.ttl_in_force(lasts);
    match longest < lasts {
        true => Err(Error::BadOption(format!(
            "this cluster keeps a lock for at most {longest:?} without its holder, and {lasts:?} was requested; \
             `lockkeeper cluster set longest_ttl={}s` allows it",
            lasts.as_nanos().div_ceil(1_000_000_000)
        ))),
        false => Ok(()),
    }
}

impl Engine for ClusterEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fence: true,
            // One member serves its clients in order of arrival; between members, the algorithm decides the order.
            fifo: self.alone,
            shared: true,
            semaphore: true,
            waiters: true,
            election: true,
            expires: true,
            // By the time to live of the hold, which is limited.
            at_least: true,
            // The table of recorded holds has none without a session.
            detached: false,
        }
    }

    fn acquire(&self, mut request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let name = request.name.clone();
            if let Some(at_least) = request.at_least {
                check_kept(&self.client, at_least)?;
                request.ttl = request.ttl.max(at_least);
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
                RequestOutcome::Refused(Refusal::Because(why)) => Err(unavailable(why)),
                RequestOutcome::Refused(Refusal::InUseAs(mode)) => Err(Error::KindMismatch {
                    name: name.as_str().into(),
                    used_as: lock_type(mode),
                    asked_as: lock_type(request.mode),
                }),
                RequestOutcome::Unreachable(reason) => Err(unavailable(reason)),
            }
        })
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
            let receiver = self.client.watch().await.map_err(|error| unavailable(error.to_string()))?;
            let watching = ClusterChanges { receiver, _client: self.client.clone() };
            Ok(Box::new(watching) as Box<dyn Changes>)
        })
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
    Error::Unavailable { engine: NAME, reason: reason.into() }
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
    Error::Unavailable { engine: NAME, reason: format!("`{name}`: {reason}") }
}

/// Converts the request to the protocol's type. The tag is sent as JSON, and shown with the lock.
fn lock_request(request: &Request) -> Result<LockRequest> {
    let lock = lockkeeper_session::LockName::new(request.name.as_str());
    let mut lock_request = LockRequest { mode: request.mode, ..LockRequest::exclusive(lock) };
    lock_request.ttl_ns = u64::try_from(request.ttl.as_nanos()).unwrap_or(u64::MAX).max(1);
    lock_request.tag.owner.clone_from(&request.tag.holder);
    lock_request.tag.purpose = serde_json::to_string(&request.tag).unwrap_or_default();
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
    let mode = line.mode;
    // Clients of other interfaces, such as HTTP, set any purpose: it need not be a tag.
    let tag = serde_json::from_str(&line.purpose).unwrap_or_else(|_| {
        let mut metadata = BTreeMap::new();
        if !line.purpose.is_empty() {
            metadata.insert(String::from("purpose"), line.purpose.clone());
        }
        let holder = if line.owner.is_empty() { line.acquisition.clone() } else { line.owner.clone() };
        Tag { holder, host: String::new(), pid: 0, since_ms: line.since_ms, metadata }
    });
    let fence = line.fence.and_then(Fence::new);
    Participant { tag, mode, since_ms: line.since_ms, fence, detached: None }
}

/// A connection for operators: operations that only a cluster offers.
pub struct Operator(ClusterEngine);

impl Operator {
    /// Connects to one of the daemons that a `lockkeeper://` URL names. URLs of other engines are rejected with
    /// [`Error::BadUrl`].
    pub async fn open(url: impl Into<EngineUrl>) -> Result<Operator> {
        Ok(Operator(ClusterEngine::connect(&url.into(), false).await?))
    }

    /// The state of the cluster, as the daemon sees it.
    pub async fn cluster(&self) -> Result<ClusterLine> {
        match self.0.query(DaemonQuery::Cluster).await? {
            DaemonReply::Cluster(line) => Ok(line),
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
        };
        let seen = participant(line);
        assert_eq!((seen.tag.holder.as_str(), seen.mode), ("C1#1/1", LockMode::Permit { of: 3 }));
        assert_eq!(seen.tag.metadata["purpose"], "backup");
    }
}
