//! The `redis` engine: locks on one Redis server, or on a majority of several independent ones ([Redlock](redlock)). The
//! server is the one in the URL, or the one that [Sentinel or a Redis Cluster](locate) has put in charge.
//!
//! # The recipe
//!
//! A lock is a set of leases, each with the id of its owner and its end by the *server's* clock. Every operation is
//! one run of a Lua script, `keeper.lua`, and therefore atomic: acquire (grant a lease if there is room), renew
//! (compare the owner, then extend), release (compare the owner, then delete). A mutex is a lock with room for one
//! lease.
//!
//! - **Lost replies.** An operation names the acquisition, not only the lock: a repeated acquire finds its own lease
//!   and returns the same fence; a late release does not delete the lease of the next holder.
//! - **Waiting.** Waiters subscribe, try again, and then wait for the message that a release publishes. A crashed
//!   holder publishes nothing, so waiters also try again when the first lease would end: once per lease, without
//!   polling. All waiters of a lock receive the message, and the fastest one gets the lock: there is no queue, hence
//!   no FIFO order and no list of waiters.
//! - **The fence** is one counter for the database, raised in the script that grants, and never below the server's
//!   time in microseconds. Neither a clock that is set back nor the loss of the data lowers it; only both at once do.
//!
//! # Detached holds
//!
//! A record beside the lease has the owner and the deadline, by the server's clock. The lease of such a hold never ends
//! before the deadline; a release shortens it to the deadline instead of deleting it, if it is still ours.
//!
//! # Limitations
//!
//! **No mutual exclusion without fences.** Redis acknowledges before a write is durable, and replicates after it has
//! acknowledged: a failover, or a restart with the usual `appendfsync everysec`, can lose a lease that its holder
//! still relies on. Expiry uses the server's wall clock: if it is set forward, leases end early. In all these cases
//! two clients can hold the lock at once, and the later one has the higher fence: a resource that checks it stays
//! safe.

mod address;
mod diagnose;
mod failure;
mod listener;
mod locate;
mod redlock;
mod server;

use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, Detach, DetachedState, Engine, EngineUrl, Hold, Request,
    WhenBusy, catalogue,
};
use crate::info::LockInfo;
use crate::lease::{self, Lease, NotRenewed, Renewal};
use crate::{Error, Fence, LockName, Result};
use address::{RedisUrl, Topology};
use listener::Subscription;
use server::{AcquireReply, CALL_TIMEOUT, DetachReply, Release, Released, Server};
use std::sync::Arc;
use std::time::Duration;

/// The engine of the URLs that lead to one server: the one that they name, or that has the locks now.
pub(crate) struct RedisEngine {
    server: Arc<Server>,
}

/// Opens one of the URLs in [`address`]. `redis://` with several hosts is Redlock, to which `?unfenced` applies: see
/// there.
pub(crate) async fn open(url: &EngineUrl) -> Result<Arc<dyn Engine>> {
    let url = RedisUrl::parse(url)?;
    if url.topology == Topology::Servers && url.hosts.len() > 1 {
        return Ok(Arc::new(redlock::Redlock::open(url).await?));
    }
    let server = Arc::new(Server::new("redis", url));
    server.check().await?;
    Ok(Arc::new(RedisEngine { server }))
}

impl Engine for RedisEngine {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::REDIS
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let mut lease_request = LeaseRequest::new(&self.server, &request);
            let tag = tag_text(&request)?;
            let mut free: Option<Subscription> = None;
            loop {
                let sent = lease::now();
                let look_again = match lease_request.try_acquire(&request, &tag).await? {
                    AcquireReply::Granted { fence } => match lease_request.start_renewal(sent) {
                        Ok((lease, start_renewal)) => {
                            let (fence, ttl) = (Fence::new(fence), Some(request.ttl));
                            return Ok(Some(Acquired { fence, lease, ttl, hold: Box::new(start_renewal) }));
                        }
                        // The grant took longer than its lease; another request starts a new one.
                        Err(late) => {
                            lease_request = late;
                            continue;
                        }
                    },
                    AcquireReply::Busy { look_again } => look_again,
                };
                if when_busy == WhenBusy::Try {
                    lease_request.released = true;
                    return Ok(None);
                }
                free = match free {
                    // Subscribe BEFORE the attempt that decides to wait, or a release in between would be missed.
                    None => Some(lease_request.subscribe().await?),
                    // After a failover, the releases are published by another server.
                    Some(subscription) if !self.server.is_current(&subscription).await => {
                        Some(lease_request.subscribe().await?)
                    }
                    Some(subscription) => {
                        until_free(subscription, look_again.min(self.server.longest_wait())).await
                    }
                };
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(self.server.inspect(name.as_str()))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(self.server.list())
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            let name = name.map(LockName::to_string);
            let subscription = self.server.when_changed(name.as_deref()).await?;
            Ok(Box::new(RedisChanges { server: self.server.clone(), name, subscription }) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(self.server.detached(name.as_str(), owner, lasts))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(diagnose::server(&self.server))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.server.release_as(name.as_str(), owner))
    }
}

/// Waits for a message or the end of the first lease. Returns `None` if the subscription is gone.
async fn until_free(mut subscription: Subscription, look_again: Duration) -> Option<Subscription> {
    tokio::select! {
        message = subscription.message() => message.then_some(subscription),
        // One millisecond more than reported, because the server rounds down.
        () = tokio::time::sleep(look_again + Duration::from_millis(1)) => Some(subscription),
    }
}

/// The tag as the script stores it.
fn tag_text(request: &Request) -> Result<String> {
    serde_json::to_string(&request.tag).map_err(|e| Error::BadOption(format!("metadata: {e}")))
}

/// The time limit for one attempt of an operation on a lease: a stuck attempt, a new connection and another attempt
/// fit into a third of the lease.
fn call_timeout(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(10), CALL_TIMEOUT)
}

/// An acquisition, created before its request is sent. Dropping it releases the lease that the request may have led
/// to.
struct LeaseRequest {
    server: Arc<Server>,
    name: String,
    holder: String,
    ttl: Duration,
    /// The runtime for the release, as guards may be dropped outside of a runtime.
    runtime: tokio::runtime::Handle,
    released: bool,
    /// Whether the hold stays until its deadline.
    detached: bool,
}

impl LeaseRequest {
    fn new(server: &Arc<Server>, request: &Request) -> LeaseRequest {
        LeaseRequest {
            server: server.clone(),
            name: request.name.to_string(),
            holder: request.tag.holder.clone(),
            ttl: request.ttl,
            runtime: tokio::runtime::Handle::current(),
            released: false,
            detached: false,
        }
    }

    async fn try_acquire(&self, request: &Request, tag: &str) -> Result<AcquireReply> {
        self.server.acquire(CALL_TIMEOUT, &self.hold(), request.mode, tag).await
    }

    async fn subscribe(&self) -> Result<Subscription> {
        self.server.when_free(&self.name).await.map_err(|error| Error::SessionLost {
            engine: "redis",
            name: self.name.clone(),
            reason: error.to_string(),
        })
    }

    fn hold(&self) -> server::Hold<'_> {
        server::Hold { name: &self.name, holder: &self.holder, ttl: self.ttl }
    }

    fn not_held(&self) -> Error {
        let reason = "the server did not know this hold any more".into();
        Error::Lost { name: self.name.clone(), reason }
    }

    /// Starts the renewal, or returns the request if its lease has already expired.
    fn start_renewal(self, sent: lease::LeaseTime) -> Result<(Lease, RenewedLease), LeaseRequest> {
        let lease = Lease::expiring(sent, self.ttl);
        if !lease.is_valid() {
            return Err(self);
        }
        let (server, name, holder, ttl) =
            (self.server.clone(), self.name.clone(), self.holder.clone(), self.ttl);
        let renewal = lease::keep_renewed(lease.clone(), ttl, move || {
            let (server, name, holder) = (server.clone(), name.clone(), holder.clone());
            async move {
                let hold = server::Hold { name: &name, holder: &holder, ttl };
                match server.renew(call_timeout(ttl), &hold).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(NotRenewed::Gone("the server does not know this hold any more".into())),
                    Err(error) => Err(NotRenewed::TryAgain(error.into_reason())),
                }
            }
        });
        Ok((lease, RenewedLease { _renewal: renewal, lease_request: self }))
    }
}

impl Drop for LeaseRequest {
    /// Releases the lease. The request goes over the same connection as the acquire, so it also releases a grant that
    /// is still in flight. If the connection broke in between, or the runtime is gone, the lease expires.
    fn drop(&mut self) {
        if !self.released {
            let server = self.server.clone();
            let (name, holder) = (std::mem::take(&mut self.name), std::mem::take(&mut self.holder));
            // Whether a request to detach was executed whose reply was not awaited, is unknown.
            let how = if self.detached { Release::ToDeadline } else { Release::Entirely };
            let release = async move { server.release(CALL_TIMEOUT, &name, &holder, how).await.map(drop) };
            self.runtime.spawn(release);
        }
    }
}

/// A granted request. The renewal stops BEFORE the lease is released.
struct RenewedLease {
    _renewal: Renewal,
    lease_request: LeaseRequest,
}

impl RenewedLease {
    async fn end(self: Box<Self>, how: Release) -> Result<()> {
        let RenewedLease { _renewal: renewal, mut lease_request } = *self;
        drop(renewal);
        lease_request.detached &= how == Release::ToDeadline;
        let (name, holder) = (&lease_request.name, &lease_request.holder);
        let released = lease_request.server.release(CALL_TIMEOUT, name, holder, how).await?;
        lease_request.released = true;
        match released {
            Released::Now | Released::Perhaps => Ok(()),
            Released::NotHeld => Err(lease_request.not_held()),
        }
    }
}

impl Hold for RenewedLease {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(Release::ToDeadline))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(Release::Entirely))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let request = &mut self.lease_request;
            match request.server.detach(CALL_TIMEOUT, &request.name, &request.holder, &detach).await? {
                DetachReply::Stored => request.detached = true,
                DetachReply::OwnerHasOne => return Ok(false),
                DetachReply::NotHeld => return Err(request.not_held()),
            }
            Ok(true)
        })
    }
}

/// A watch on changes and on the ends of leases.
struct RedisChanges {
    server: Arc<Server>,
    name: Option<String>,
    subscription: Subscription,
}

impl Changes for RedisChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // This request also ends expired leases, which causes a message.
            let name = self.name.as_deref();
            let first_end = self.server.first_end(name).await?.unwrap_or(Duration::MAX);
            if !self.server.is_current(&self.subscription).await {
                self.subscription = self.server.when_changed(name).await?;
                return Ok(());
            }
            let first_end = first_end.min(self.server.longest_wait());
            let subscription = tokio::select! {
                subscription = self.subscription.message() => subscription,
                () = tokio::time::sleep(first_end.saturating_add(Duration::from_millis(1))) => true,
            };
            if !subscription {
                self.subscription = self.server.when_changed(name).await?;
            }
            Ok(())
        })
    }
}
