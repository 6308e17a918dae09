//! Redlock: a client holds a lock if it holds it on a majority of independent servers.
//!
//! After the description in Redis's own documentation ("Distributed locks with Redis"): request a lease of the same
//! length from all servers under one name; with a majority, the hold is valid for the length of the lease less the
//! time that the requests took, less drift. [`crate::lease`] counts exactly that: from BEFORE the first request was
//! sent. Without a majority, release on all servers, wait for a random time so that competing clients do not collide
//! again, and repeat. Each attempt votes under its own random value, so that a delayed release of an earlier attempt
//! cannot delete the vote of a later one.
//!
//! # Not safe without fences
//!
//! There is no fence: counters of independent servers do not agree on an order. So nothing protects the resource from
//! a holder that was paused past its lease. A server that restarts without its data, or whose clock is set forward,
//! can be counted in two majorities. Requests must therefore opt in with `.unfenced()`, or the URL with `?unfenced`.
//! Redlock is suitable for doing work once *in most cases* while a minority of the servers is down.

use super::address::RedisUrl;
use super::listener::Subscription;
use super::server::{AcquireReply, CALL_TIMEOUT, DetachReply, Release, Released, Server};
use super::{call_timeout, server, tag_text};
use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, Detach, DetachedState, Engine, Hold, Request, WhenBusy,
    catalogue,
};
use crate::error::RejectionKind;
use crate::info::{LockInfo, LockMode, Participant};
use crate::lease::{self, Lease, NotRenewed, Renewal};
use crate::{Error, LockName, Result};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// The engine's name in errors; `redis` is the engine with one server.
const NAME: &str = "redlock";

/// The limit on servers; more of them only cost time.
const SERVERS_MAX: usize = 15;

/// Clients that split the votes retry after a random time below this, doubled with each attempt.
const BACK_OFF: Duration = Duration::from_millis(4);
const BACK_OFF_DOUBLINGS: u64 = 5;

pub(crate) struct Redlock {
    servers: Arc<Servers>,
    unfenced: bool,
}

impl Redlock {
    /// Connects to at least a majority of the servers.
    pub async fn open(url: RedisUrl) -> Result<Redlock> {
        let RedisUrl { topology, hosts, access, unfenced } = url;
        if hosts.len() > SERVERS_MAX {
            let count = hosts.len();
            return Err(Error::BadOption(format!("{count} servers; at most {SERVERS_MAX} are allowed")));
        }
        let one = |host| {
            let (topology, access) = (topology.clone(), access.clone());
            Server::new(NAME, RedisUrl { topology, hosts: vec![host], access, unfenced })
        };
        let all: Vec<Server> = hosts.into_iter().map(one).collect();
        let servers = Arc::new(Servers { all });
        servers.majority(|server| async move { server.check().await.map(|()| true) }).await?;
        Ok(Redlock { servers, unfenced })
    }
}

/// The independent servers.
struct Servers {
    all: Vec<Server>,
}

/// The votes of the servers, as far as they were needed for a decision.
#[derive(Default)]
struct Votes {
    yes: usize,
    no: usize,
    /// The errors of the servers that did not vote.
    failed: Vec<Error>,
}

impl Servers {
    fn quorum(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Sends a request to all servers at once, and returns when the votes decide: a majority for yes, or no majority
    /// possible. After a majority, the other servers get the same time again, since every vote counts when a server
    /// fails later.
    async fn votes<'a, F>(&'a self, try_acquire: impl Fn(&'a Server) -> F) -> Votes
    where
        F: Future<Output = Result<bool>> + 'a,
    {
        let mut answers: FuturesUnordered<F> = self.all.iter().map(try_acquire).collect();
        let mut votes = Votes::default();
        let asked = tokio::time::Instant::now();
        while votes.yes < self.quorum() && votes.yes + answers.len() >= self.quorum() {
            match answers.next().await {
                Some(Ok(true)) => votes.yes += 1,
                Some(Ok(false)) => votes.no += 1,
                Some(Err(error)) => votes.failed.push(error),
                None => break,
            }
        }
        if votes.yes >= self.quorum() {
            let rest = async { while answers.next().await.is_some() {} };
            let _ = tokio::time::timeout(asked.elapsed(), rest).await;
        }
        votes
    }

    /// Whether a majority votes yes; an error if too few servers reply to decide.
    async fn majority<'a, F>(&'a self, try_acquire: impl Fn(&'a Server) -> F) -> Result<bool>
    where
        F: Future<Output = Result<bool>> + 'a,
    {
        let votes = self.votes(try_acquire).await;
        match votes.yes >= self.quorum() {
            true => Ok(true),
            false if votes.failed.len() > self.all.len() - self.quorum() => {
                Err(self.no_majority(votes.failed))
            }
            false => Ok(false),
        }
    }

    /// The error for too few votes. It has the kind of the failures if they have the same.
    fn no_majority(&self, failed: Vec<Error>) -> Error {
        let mut kinds = failed.iter().map(RejectionKind::of);
        let first = kinds.next().flatten().unwrap_or(RejectionKind::Unavailable);
        let kind = if kinds.all(|kind| kind == Some(first)) { first } else { RejectionKind::Unavailable };
        let reasons: Vec<String> = failed.into_iter().map(Error::into_reason).collect();
        let (count, reasons) = (self.all.len(), reasons.join("; "));
        kind.error(NAME, format!("no majority of the {count} servers answers: {reasons}"))
    }

    /// Reads from all servers, and returns the holders on which a majority agrees.
    async fn agreed<F>(&self, read: impl Fn(usize) -> F) -> Result<Vec<LockInfo>>
    where
        F: Future<Output = Result<Vec<LockInfo>>>,
    {
        let answers: FuturesUnordered<F> = (0..self.all.len()).map(read).collect();
        let answers: Vec<Result<Vec<LockInfo>>> = answers.collect().await;
        let (read, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        if read.len() < self.quorum() {
            let failed: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
            return Err(self.no_majority(failed));
        }
        let mut seen: BTreeMap<(String, String), (usize, Participant)> = BTreeMap::new();
        for lock in read.into_iter().flatten().flatten() {
            for holder in lock.holders {
                let key = (lock.name.clone(), holder.tag.holder.clone());
                // The fence counters of the servers are independent: leave them out.
                let holder = Participant { fence: None, ..holder };
                seen.entry(key).or_insert((0, holder)).0 += 1;
            }
        }
        let start_renewal = seen.into_iter().filter(|(_, (servers, _))| *servers >= self.quorum());
        Ok(start_renewal
            .map(|((name, _), (_, holder))| LockInfo { name, holders: vec![holder], waiters: Vec::new() })
            .collect())
    }
}

impl Engine for Redlock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::REDLOCK
    }

    fn unfenced(&self) -> bool {
        self.unfenced
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let mut vote_request = VoteRequest::new(&self.servers, &request);
            let tag = tag_text(&request)?;
            let mut subscriptions: Option<Vec<Subscription>> = None;
            for attempt in 0u64.. {
                vote_request.begin_attempt();
                let sent = lease::now();
                let votes = vote_request.try_acquire(&request, &tag).await;
                if votes.yes >= self.servers.quorum() {
                    let lease = Lease::expiring(sent, request.ttl);
                    if lease.is_valid() {
                        let ttl = Some(request.ttl);
                        let hold = Box::new(vote_request.start_renewal(&lease, request, tag));
                        return Ok(Some(Acquired { fence: None, lease, ttl, hold }));
                    }
                }
                // A grant without a majority would only block other clients.
                vote_request.release_all().await;
                if votes.failed.len() > self.servers.all.len() - self.servers.quorum() {
                    return Err(self.servers.no_majority(votes.failed));
                }
                if when_busy == WhenBusy::Try {
                    vote_request.released = true;
                    return Ok(None);
                }
                match &mut subscriptions {
                    None => subscriptions = Some(vote_request.subscribe().await?),
                    // Some votes for us indicate competing clients, which back off as we do; after several attempts
                    // they indicate a holder that lacks some servers.
                    Some(active) if votes.yes == 0 || attempt > BACK_OFF_DOUBLINGS => {
                        let end = vote_request.first_end().await;
                        if !until_free(active, end).await {
                            subscriptions = None;
                        }
                    }
                    Some(_) => {}
                }
                tokio::time::sleep(random_below(BACK_OFF * (1 << attempt.min(BACK_OFF_DOUBLINGS)))).await;
            }
            Ok(None)
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let servers = &self.servers;
            let read = async |i: usize| Ok(vec![servers.all[i].inspect(name.as_str()).await?]);
            let none = LockInfo { name: name.to_string(), holders: Vec::new(), waiters: Vec::new() };
            Ok(servers.agreed(read).await?.pop().unwrap_or(none))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(self.servers.agreed(|i| self.servers.all[i].list()))
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            let name = name.map(LockName::to_string);
            let subscriptions = self.servers.subscribe(|server| server.when_changed(name.as_deref())).await?;
            Ok(Box::new(RedlockChanges { servers: self.servers.clone(), name, subscriptions })
                as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(async move {
            let shortest = std::sync::Mutex::new(None);
            let has_it = self.servers.majority(|server| {
                let shortest = &shortest;
                async move {
                    let Some(found) = server.detached(name.as_str(), owner, lasts).await? else {
                        return Ok(false);
                    };
                    let mut shortest = shortest.lock().unwrap_or_else(|e| e.into_inner());
                    *shortest = Some(shortest.map_or(found.left, |left: Duration| left.min(found.left)));
                    Ok(true)
                }
            });
            let left = has_it.await?.then_some(shortest).and_then(|shortest| shortest.into_inner().ok()?);
            // Redlock has only mutexes, and no fences.
            Ok(left.map(|left| DetachedState { mode: LockMode::Exclusive, fence: None, left }))
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(super::diagnose::servers(&self.servers.all))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.servers.majority(|server| server.release_as(name.as_str(), owner)))
    }
}

impl Servers {
    /// Subscribes on all servers that reply, at least a majority.
    async fn subscribe<'a, F>(&'a self, subscribe: impl Fn(&'a Server) -> F) -> Result<Vec<Subscription>>
    where
        F: Future<Output = Result<Subscription>> + 'a,
    {
        let answers: FuturesUnordered<F> = self.all.iter().map(subscribe).collect();
        let answers: Vec<Result<Subscription>> = answers.collect().await;
        let (subscriptions, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        if subscriptions.len() < self.quorum() {
            let failed: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
            return Err(self.no_majority(failed));
        }
        Ok(subscriptions.into_iter().flatten().collect())
    }

    /// The time until the first lease ends, of one lock or of all, according to the servers that reply.
    async fn first_end(&self, name: Option<&str>) -> Option<Duration> {
        let answers: FuturesUnordered<_> = self.all.iter().map(|server| server.first_end(name)).collect();
        let ends: Vec<Result<Option<Duration>>> = answers.collect().await;
        ends.into_iter().filter_map(Result::ok).flatten().min()
    }
}

/// Waits for a message of any server, or the end of the first lease. Returns false if a subscription is gone.
async fn until_free(subscriptions: &mut [Subscription], end: Option<Duration>) -> bool {
    let mut messages: FuturesUnordered<_> = subscriptions.iter_mut().map(Subscription::message).collect();
    tokio::select! {
        message = messages.next() => message == Some(true),
        // Without a lease, the lock was released in the meantime.
        () = tokio::time::sleep(end.unwrap_or_default() + Duration::from_millis(1)) => true,
    }
}

/// A random number from the random keys of the hasher. The owners of a holder's attempts have to differ, but need not
/// be secret.
fn random() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

fn random_below(limit: Duration) -> Duration {
    limit.mul_f64(random() as f64 / u64::MAX as f64)
}

/// An acquisition on all servers, created before its request is sent. Dropping it releases the votes that it may have
/// got.
struct VoteRequest {
    servers: Arc<Servers>,
    name: String,
    /// The id of the holder, the same for all attempts.
    holder: String,
    /// The owner of a vote as the servers store it: the id of the holder and a random value of this attempt.
    owner: String,
    ttl: Duration,
    runtime: tokio::runtime::Handle,
    released: bool,
    /// Whether the votes stay until their deadline.
    detached: bool,
}

impl VoteRequest {
    fn new(servers: &Arc<Servers>, request: &Request) -> VoteRequest {
        VoteRequest {
            servers: servers.clone(),
            name: request.name.to_string(),
            holder: request.tag.holder.clone(),
            owner: String::new(),
            ttl: request.ttl,
            runtime: tokio::runtime::Handle::current(),
            released: false,
            detached: false,
        }
    }

    fn not_held(&self) -> Error {
        let reason = "no majority of the servers knew this hold any more".into();
        Error::Lost { name: self.name.clone(), reason }
    }

    /// Chooses the owner of the votes of the next attempt. The previous attempt must have been released.
    fn begin_attempt(&mut self) {
        self.owner = format!("{}#{:016x}", self.holder, random());
    }

    async fn try_acquire(&self, request: &Request, tag: &str) -> Votes {
        self.servers.votes(|server| grant(server, CALL_TIMEOUT, &self.owner, request, tag)).await
    }

    /// Releases on all servers, and waits for those that reply soon.
    async fn release_all(&self) {
        let within = call_timeout(self.ttl);
        let all = self.servers.all.iter();
        let _: Vec<_> = all
            .map(|server| server.release(within, &self.name, &self.owner, Release::Entirely))
            .collect::<FuturesUnordered<_>>()
            .collect()
            .await;
    }

    async fn subscribe(&self) -> Result<Vec<Subscription>> {
        self.servers.subscribe(|server| server.when_free(&self.name)).await.map_err(|error| {
            Error::SessionLost { engine: NAME, name: self.name.clone(), reason: error.to_string() }
        })
    }

    async fn first_end(&self) -> Option<Duration> {
        self.servers.first_end(Some(&self.name)).await
    }

    /// Starts the renewal by repeated acquires: they also acquire the lock on servers that were slow or have lost
    /// their data. No other client can have a majority during the lease.
    fn start_renewal(self, lease: &Lease, request: Request, tag: String) -> RenewedVotes {
        let (servers, ttl) = (self.servers.clone(), self.ttl);
        let asked = Arc::new((self.owner.clone(), request, tag));
        let renewal = lease::keep_renewed(lease.clone(), ttl, move || {
            let (servers, asked) = (servers.clone(), asked.clone());
            async move {
                let (owner, request, tag) = &*asked;
                match servers.majority(|server| grant(server, call_timeout(ttl), owner, request, tag)).await {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        Err(NotRenewed::Gone("no majority of the servers knows this hold any more".into()))
                    }
                    Err(error) => Err(NotRenewed::TryAgain(error.into_reason())),
                }
            }
        });
        RenewedVotes { _renewal: renewal, vote_request: self }
    }
}

impl Drop for VoteRequest {
    /// Releases on all servers, as [`super`] does on one server.
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let (servers, within) = (self.servers.clone(), call_timeout(self.ttl));
        let (name, owner) = (std::mem::take(&mut self.name), std::mem::take(&mut self.owner));
        let how = if self.detached { Release::ToDeadline } else { Release::Entirely };
        self.runtime.spawn(async move {
            let all = servers.all.iter().map(|server| server.release(within, &name, &owner, how));
            all.collect::<FuturesUnordered<_>>().for_each(|_| std::future::ready(())).await;
        });
    }
}

/// Whether this server grants the lock to the owner, or has already granted it.
async fn grant(server: &Server, within: Duration, owner: &str, request: &Request, tag: &str) -> Result<bool> {
    let hold = server::Hold { name: request.name.as_str(), holder: owner, ttl: request.ttl };
    let answer = server.acquire(within, &hold, request.mode, tag).await?;
    Ok(matches!(answer, AcquireReply::Granted { .. }))
}

struct RenewedVotes {
    _renewal: Renewal,
    vote_request: VoteRequest,
}

impl RenewedVotes {
    /// Returns when a majority has released; dropping the request then releases on the other servers.
    async fn end(self: Box<Self>, how: Release) -> Result<()> {
        let RenewedVotes { _renewal: renewal, mut vote_request } = *self;
        drop(renewal);
        vote_request.detached &= how == Release::ToDeadline;
        let within = call_timeout(vote_request.ttl);
        let (name, owner) = (&vote_request.name, &vote_request.owner);
        let released = vote_request.servers.majority(|server| async move {
            Ok(!matches!(server.release(within, name, owner, how).await?, Released::NotHeld))
        });
        match released.await? {
            true => Ok(()),
            false => Err(vote_request.not_held()),
        }
    }
}

impl Hold for RenewedVotes {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(Release::ToDeadline))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(Release::Entirely))
    }

    /// A majority has to store it. A server that did not get the request holds its vote only for the lease.
    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let VoteRequest { servers, name, owner, .. } = &self.vote_request;
            let taken = std::sync::atomic::AtomicBool::new(false);
            let stored = servers.majority(|server| {
                let (detach, taken) = (&detach, &taken);
                async move {
                    let reply = server.detach(CALL_TIMEOUT, name, owner, detach).await?;
                    let has_one = matches!(reply, DetachReply::OwnerHasOne);
                    taken.fetch_or(has_one, std::sync::atomic::Ordering::Relaxed);
                    Ok(matches!(reply, DetachReply::Stored))
                }
            });
            match stored.await? {
                true => self.vote_request.detached = true,
                false if taken.into_inner() => return Ok(false),
                false => return Err(self.vote_request.not_held()),
            }
            Ok(true)
        })
    }
}

struct RedlockChanges {
    servers: Arc<Servers>,
    name: Option<String>,
    subscriptions: Vec<Subscription>,
}

impl Changes for RedlockChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let name = self.name.as_deref();
            let end = self.servers.first_end(name).await.unwrap_or(Duration::from_secs(3600));
            if !until_free(&mut self.subscriptions, Some(end)).await {
                self.subscriptions = self.servers.subscribe(|server| server.when_changed(name)).await?;
            }
            Ok(())
        })
    }
}
