//! The `postgres` engine: locks stored in a PostgreSQL server, first come, first served.
//!
//! # The recipe
//!
//! Each lock has a queue: the rows of one name in the table `lockkeeper.queue`; see `schema.sql`. Functions change
//! it, with one call for each operation: enter, look, renew, leave. Each call runs to its end on the server and
//! settles the queue: it removes dead entries, grants the entries that may now hold, and notifies exactly their
//! sessions (`NOTIFY` to the session's own channel).
//!
//! An entry ends in one of three ways:
//!
//! - **It leaves**: released, dropped, cancelled.
//! - **Its connection ends.** Each session holds an advisory lock that the server releases with the connection. A
//!   session whose lock is free is dead, and its holds and queued requests are removed at once. The first two waiters
//!   of a lock block on the advisory lock of the holder, each on a separate connection, so that the successor of a
//!   killed holder is granted the lock at once. All other waiters check once a second.
//! - **Its lease ends**: a holder that was stopped or cut off does not renew, and loses the lock after its time to
//!   live.
//!
//! A session is one connection, shared by all holds and waiters of a [`crate::Lockkeeper`]. It cannot move to a new
//! connection: when it ends, [`crate::Guard::lost`] fires for all its holds and its waiters get an error, at once.
//!
//! # A connection that is cut
//!
//! The holder counts its lease from when it sent the last confirmed renewal. The server must not end the session
//! before that, so each session sets the server's TCP timeouts to twice its longest lease: see
//! [`session::Session::allow_for`]. One case remains: the server restarts, or an administrator terminates the
//! session, *while* the network to the holder is cut. Then the lock is granted again before the holder's lease is
//! over, and only the fence distinguishes the two holders. The fence comes from a sequence, whose values are durable
//! before they are used.
//!
//! # Several servers
//!
//! A URL may name a primary and its standbys. A session is opened with the primary: the first server that is not in
//! recovery. If that server fails and a standby is promoted, all holds are lost, since their sessions have ended; the next
//! request opens a session with the promoted server. Replication may be behind, so the promoted server may lack the last
//! values of the sequence. Therefore the upper bits of a fence are the server's timeline, which rises with each promotion.
//!
//! # Detached holds
//!
//! The table `lockkeeper.kept` has the holds that outlive their session, with their owner and deadline by the server's
//! clock. Unlike the queue it is logged, so that a crash of the server keeps them. A detached hold counts like a holder
//! ahead of the queue, together with its entry while that exists.
//!
//! # Requirements
//!
//! PostgreSQL 14 or later, a primary, and a dedicated session: [`pooler`] detects poolers that share sessions among
//! clients (PgBouncer in transaction mode).

mod connection;
mod diagnose;
mod listing;
mod password;
mod pooler;
mod session;
mod tls;

use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, Detach, DetachedState, Engine, EngineUrl, Hold, Request,
    WhenBusy, catalogue,
};
use crate::info::{LockInfo, LockMode, lock_type};
use crate::lease::{self, Lease, NotRenewed, Renewal};
use crate::{Error, Fence, LockName, Result};
use connection::Servers;
use listing::{detached_state, read, tidy, tidy_all};
use session::{Args, Session, unavailable};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::Type;

/// The interval at which waiters that do not watch a holder's session check the queue.
const LOOK: Duration = Duration::from_secs(1);

/// The number of waiters of one lock that watch the holder's session. Each of them needs a connection.
const LISTENERS: i64 = 2;

/// The limit on such connections for one [`PostgresEngine`].
const LISTENERS_HERE: usize = 4;

pub(crate) struct PostgresEngine {
    servers: Arc<Servers>,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    listeners: tokio::sync::Semaphore,
}

impl PostgresEngine {
    pub async fn open(url: &EngineUrl) -> Result<PostgresEngine> {
        let listeners = tokio::sync::Semaphore::new(LISTENERS_HERE);
        let servers = Arc::new(Servers::parse(url)?);
        let engine = PostgresEngine { servers, session: tokio::sync::Mutex::new(None), listeners };
        engine.session().await?;
        Ok(engine)
    }

    /// The current session, or a new one if it has ended.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut kept = self.session.lock().await;
        match &*kept {
            Some(session) if session.is_alive() => Ok(session.clone()),
            _ => {
                let session = Arc::new(Session::open(&self.servers).await?);
                *kept = Some(session.clone());
                Ok(session)
            }
        }
    }

    /// Waits for the grant. Returns the time at which the lease was requested, and the fence.
    async fn granted(&self, entry: &QueueEntry, request: &Request) -> Result<(lease::LeaseTime, u64)> {
        let waiter = entry.session.waiter(&entry.holder);
        let mut watched: Option<DeathWatch<'_>> = None;
        loop {
            let sent = lease::now();
            let (next_end, held_by) = match entry.read_state().await? {
                EntryState::Granted(fence) => return Ok((sent, fence)),
                // The request was granted, and its lease ended before the waiter noticed: join the queue again, at
                // its end.
                EntryState::Gone => {
                    let sent = lease::now();
                    match entry.enter(request, WhenBusy::Wait).await? {
                        Some(fence) => return Ok((sent, fence)),
                        None => continue,
                    }
                }
                EntryState::Wait { ahead, next_end, held_by } => {
                    (next_end, held_by.filter(|_| ahead < LISTENERS))
                }
            };
            if watched.as_ref().map(|watched| watched.session) != held_by {
                watched = held_by.and_then(|session| self.watch(&entry.session, session));
            }
            let nap = if watched.is_some() { next_end } else { next_end.min(LOOK) };
            let died = async {
                match &mut watched {
                    Some(watched) => watched.death.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waiter.woken() => {}
                _ = died => watched = None,
                () = tokio::time::sleep(nap) => {}
                reason = entry.session.ended() => return Err(entry.session_lost(reason)),
            }
        }
    }

    /// Starts to watch for the death of a session, if a connection is available for it.
    fn watch<'a>(&'a self, near: &'a Session, session: i64) -> Option<DeathWatch<'a>> {
        let permit = self.listeners.try_acquire().ok()?;
        let death = Box::pin(async move {
            let _permit = permit;
            if session::death_of(near, session).await.is_none() {
                // No connection is available: check periodically instead.
                tokio::time::sleep(LOOK).await;
            }
        });
        Some(DeathWatch { session, death })
    }
}

struct DeathWatch<'a> {
    session: i64,
    death: BoxFuture<'a, ()>,
}

impl Engine for PostgresEngine {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::POSTGRES
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let session = self.session().await?;
            session.allow_for(request.ttl).await?;
            let mut entry = QueueEntry::new(session, &request);
            let sent = lease::now();
            let (mut sent, mut fence) = match entry.enter(&request, when_busy).await? {
                Some(fence) => (sent, fence),
                None if when_busy == WhenBusy::Try => {
                    entry.left = true;
                    return Ok(None);
                }
                None => self.granted(&entry, &request).await?,
            };
            loop {
                let lease = Lease::expiring(sent, request.ttl);
                if lease.is_valid() {
                    let (fence, ttl) = (Fence::new(fence), Some(request.ttl));
                    return Ok(Some(Acquired {
                        fence,
                        ttl,
                        hold: Box::new(entry.start_renewal(&lease)),
                        lease,
                    }));
                }
                // The grant took longer than its lease: renew the lease, if the hold still exists.
                (sent, fence) = self.granted(&entry, &request).await?;
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let none = LockInfo { name: name.to_string(), holders: Vec::new(), waiters: Vec::new() };
            let session = self.session().await?;
            tidy(&session, name.as_str()).await?;
            Ok(read(&session, Some(name.as_str())).await?.pop().unwrap_or(none))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            let session = self.session().await?;
            tidy_all(&session).await?;
            read(&session, None).await
        })
    }

    fn changes<'a>(&'a self, _name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            let session = self.session().await?;
            let changed = session.changes();
            Ok(Box::new(PostgresChanges { session, changed }) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(async move {
            let (session, lasts_ms) = (self.session().await?, lasts.map(whole_ms));
            let sql = "SELECT fence, left_ms, kind, permits FROM lockkeeper.detached($1, $2, $3, $4)";
            let (name, me) = (name.as_str(), session.number);
            let args: &Args<'_> =
                &[(&name, Type::TEXT), (&me, Type::INT8), (&owner, Type::TEXT), (&lasts_ms, Type::INT8)];
            let rows = session.call(sql, args).await?;
            let state = |row| detached_state(row).ok_or_else(unexpected_rows);
            rows.first().map(state).transpose()
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { diagnose::server(&*self.session().await?).await })
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let session = self.session().await?;
            remove(&session, "SELECT lockkeeper.release_as($1, $2, $3)", name.as_str(), owner).await
        })
    }
}

/// An acquisition, created before its request is sent. Dropping it removes the request from the queue.
struct QueueEntry {
    session: Arc<Session>,
    name: String,
    holder: String,
    ttl: Duration,
    /// The runtime for the removal, as guards may be dropped outside of a runtime.
    runtime: tokio::runtime::Handle,
    left: bool,
    /// Whether the hold stays until its deadline.
    detached: bool,
}

enum EntryState {
    Granted(u64),
    Gone,
    Wait { ahead: i64, next_end: Duration, held_by: Option<i64> },
}

impl QueueEntry {
    fn new(session: Arc<Session>, request: &Request) -> QueueEntry {
        QueueEntry {
            session,
            name: request.name.to_string(),
            holder: request.tag.holder.clone(),
            ttl: request.ttl,
            runtime: tokio::runtime::Handle::current(),
            left: false,
            detached: false,
        }
    }

    /// Joins the queue. Returns the fence if the lock was granted at once.
    async fn enter(&self, request: &Request, when_busy: WhenBusy) -> Result<Option<u64>> {
        let tag =
            serde_json::to_string(&request.tag).map_err(|e| Error::BadOption(format!("metadata: {e}")))?;
        let (mode, permits) = match request.mode {
            LockMode::Exclusive => ("exclusive", 0),
            LockMode::Shared => ("shared", 0),
            LockMode::Permit { of } => ("permit", i32::try_from(of).unwrap_or(i32::MAX)),
        };
        let (ttl_ms, non_blocking) = (self.ttl.as_millis() as i64, when_busy == WhenBusy::Try);
        let sql =
            "SELECT granted, used_as, pg_backend_pid() FROM lockkeeper.enter($1, $2, $3, $4, $5, $6, $7, $8)";
        let rows = self
            .session
            .call(
                sql,
                &[
                    (&self.name, Type::TEXT),
                    (&self.session.number, Type::INT8),
                    (&self.holder, Type::TEXT),
                    (&mode, Type::TEXT),
                    (&permits, Type::INT4),
                    (&ttl_ms, Type::INT8),
                    (&tag, Type::TEXT),
                    (&non_blocking, Type::BOOL),
                ],
            )
            .await?;
        let row = rows.first().ok_or_else(unexpected_rows)?;
        if row.try_get::<_, i32>(2).map_err(|_| unexpected_rows())? != self.session.backend {
            return Err(unavailable(pooler::ADVICE.into()));
        }
        if let Some(permits) = row.try_get::<_, Option<i32>>(1).map_err(|_| unexpected_rows())? {
            let used_as = match u32::try_from(permits) {
                Ok(of) if of > 0 => LockMode::Permit { of },
                _ => LockMode::Exclusive,
            };
            return Err(Error::KindMismatch {
                name: self.name.clone(),
                used_as: lock_type(used_as),
                asked_as: lock_type(request.mode),
            });
        }
        Ok(row.try_get::<_, Option<i64>>(0).map_err(|_| unexpected_rows())?.map(|fence| fence as u64))
    }

    async fn read_state(&self) -> Result<EntryState> {
        let sql = "SELECT granted, place, ends_ms, held_by FROM lockkeeper.look($1, $2, $3)";
        let args: &Args<'_> =
            &[(&self.name, Type::TEXT), (&self.session.number, Type::INT8), (&self.holder, Type::TEXT)];
        let rows = self.session.call(sql, args).await.map_err(|e| self.session_lost(e.to_string()))?;
        let row = rows.first().ok_or_else(unexpected_rows)?;
        if let Some(fence) = row.try_get::<_, Option<i64>>(0).map_err(|_| unexpected_rows())? {
            return Ok(EntryState::Granted(fence as u64));
        }
        let Some(ahead) = row.try_get::<_, Option<i64>>(1).map_err(|_| unexpected_rows())? else {
            return Ok(EntryState::Gone);
        };
        let ends_ms: Option<f64> = row.try_get(2).map_err(|_| unexpected_rows())?;
        let next_end = Duration::from_millis(ends_ms.unwrap_or(0.0).max(0.0) as u64 + 1);
        Ok(EntryState::Wait { ahead, next_end, held_by: row.try_get(3).map_err(|_| unexpected_rows())? })
    }

    fn session_lost(&self, reason: String) -> Error {
        Error::SessionLost { engine: "postgres", name: self.name.clone(), reason }
    }

    /// Starts the renewal.
    fn start_renewal(self, lease: &Lease) -> RenewedEntry {
        self.session.bind(&self.holder, lease);
        let (session, holder) = (self.session.clone(), self.holder.clone());
        let renewal = lease::keep_renewed(lease.clone(), self.ttl, move || {
            let (session, holder) = (session.clone(), holder.clone());
            async move {
                let sql = "SELECT lockkeeper.renew($1), pg_backend_pid()";
                match session.call(sql, &[(&holder, Type::TEXT)]).await {
                    Ok(rows) if serves(&rows, session.backend) == Some(false) => {
                        Err(NotRenewed::Gone(pooler::ADVICE.into()))
                    }
                    Ok(rows) => match rows.first().and_then(|row| row.try_get::<_, Option<i64>>(0).ok()?) {
                        Some(_) => Ok(()),
                        None => Err(NotRenewed::Gone("the server does not know this hold any more".into())),
                    },
                    Err(error) => Err(NotRenewed::TryAgain(error.into_reason())),
                }
            }
        });
        RenewedEntry { _renewal: renewal, entry: self }
    }
}

/// Whether a renewal has run in the session's own backend.
fn serves(rows: &[tokio_postgres::Row], backend: i32) -> Option<bool> {
    Some(rows.first()?.try_get::<_, i32>(1).ok()? == backend)
}

/// Whether an error reports that a pooler shares the sessions: the server was reached, and cannot keep locks there.
pub(crate) fn is_shared_pool(error: &Error) -> bool {
    error.to_string().contains(pooler::ADVICE)
}

/// Removes an entry from the queue; its detached hold continues.
const LEAVE: &str = "SELECT lockkeeper.leave($1, $2, $3)";
/// Removes an entry from the queue, and its detached hold.
const DISCARD: &str = "SELECT lockkeeper.discard($1, $2, $3)";

/// Calls a function that removes a hold, by its holder or owner. Returns whether it existed.
async fn remove(session: &Session, sql: &str, name: &str, holder: &str) -> Result<bool> {
    let args: &Args<'_> = &[(&name, Type::TEXT), (&session.number, Type::INT8), (&holder, Type::TEXT)];
    let rows = session.call(sql, args).await?;
    rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(unexpected_rows)
}

impl Drop for QueueEntry {
    /// Removes the entry. The request goes over the same connection as `enter` and `detach`, so it also finds what is
    /// still in flight.
    fn drop(&mut self) {
        self.session.unbind(&self.holder);
        if !self.left && self.session.is_alive() {
            let (session, sql) = (self.session.clone(), if self.detached { LEAVE } else { DISCARD });
            let (name, holder) = (std::mem::take(&mut self.name), std::mem::take(&mut self.holder));
            self.runtime.spawn(async move { remove(&session, sql, &name, &holder).await.map(drop) });
        }
    }
}

/// A granted entry, and the task that renews its lease.
struct RenewedEntry {
    _renewal: Renewal,
    entry: QueueEntry,
}

impl RenewedEntry {
    async fn end(self: Box<Self>, sql: &str) -> Result<()> {
        let RenewedEntry { _renewal: renewal, mut entry } = *self;
        drop(renewal);
        entry.detached &= sql == LEAVE;
        let reason = if !entry.session.is_alive() {
            entry.session.ended().await.into()
        } else if remove(&entry.session, sql, &entry.name, &entry.holder).await? {
            entry.left = true;
            return Ok(());
        } else {
            NOT_KNOWN.into()
        };
        entry.left = true;
        Err(Error::Lost { name: entry.name.clone(), reason })
    }
}

/// The reason for the loss of a hold that the server has ended.
const NOT_KNOWN: &str = "the server did not know this hold any more";

impl Hold for RenewedEntry {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(LEAVE))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(DISCARD))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let QueueEntry { session, name, holder, .. } = &self.entry;
            let (me, lasts_ms) = (session.number, whole_ms(detach.lasts));
            let args: &Args<'_> = &[
                (name, Type::TEXT),
                (&me, Type::INT8),
                (holder, Type::TEXT),
                (&detach.owner, Type::TEXT),
                (&lasts_ms, Type::INT8),
            ];
            let rows = session.call("SELECT lockkeeper.detach($1, $2, $3, $4, $5)", args).await?;
            let stored: i32 = rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(unexpected_rows)?;
            match stored {
                1 => self.entry.detached = true,
                0 => return Ok(false),
                _ => return Err(Error::Lost { name: name.clone(), reason: NOT_KNOWN.into() }),
            }
            Ok(true)
        })
    }
}

/// The duration in milliseconds, rounded up: a lock is kept for at least the requested time.
fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

struct PostgresChanges {
    session: Arc<Session>,
    changed: tokio::sync::watch::Receiver<()>,
}

impl Changes for PostgresChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    _ = self.changed.changed() => return Ok(()),
                    reason = self.session.ended() => return Err(unavailable(reason)),
                    // Expired leases and dead sessions cause no notification by themselves; tidying sends one.
                    () = tokio::time::sleep(LOOK) => tidy_all(&self.session).await?,
                }
            }
        })
    }
}

fn unexpected_rows() -> Error {
    unavailable("the schema `lockkeeper` returns rows of another form; is it of another version?".into())
}
