//! The `mysql` engine: locks stored in a MariaDB or MySQL server, first come, first served.
//!
//! # The recipe
//!
//! Each lock has a queue: the rows of one name in the table `lockkeeper_queue`; see `schema.sql`. Procedures change it,
//! with one call for each operation: enter, look, leave. Each call is one transaction that the server runs to its end. It
//! takes the row of the lock's shard, removes what has expired, and grants the entries that may now hold, in order.
//!
//! # Leases, and not GET_LOCK
//!
//! A hold is a row with a deadline by the server's clock, and nothing else: no open transaction, and no lock of a session
//! (`GET_LOCK`), which ends with its connection. So a hold survives a connection that breaks, a restart of the server, and
//! a failover to a server that has the row; connections may be pooled and may change at any time. The price: a killed
//! holder is noticed when its lease ends, not when its connection ends.
//!
//! A waiter has no lease, since it holds nothing, but a *presence* of at most 10 s, which it prolongs with each look. The
//! entry of a waiter that is dead, stopped or cut off is removed when its presence ends. A grant lasts for the presence at
//! first, until the waiter knows of it: then its lease begins.
//!
//! # How a waiter learns of its grant
//!
//! The server cannot notify a client. While a [`crate::Lockkeeper`] has waiters, one query every 25 ms reads which of its
//! requests were granted, from an index and without a lock: see [`grants`].
//!
//! # Fences
//!
//! The fence of a shard rises in the transaction that grants, and is at least the server's time in microseconds. So it
//! also rises after a failover or the restoration of a backup that has lost the last grants, unless the new server's clock
//! is behind.
//!
//! # Repetition
//!
//! A call whose connection breaks is repeated, on another connection. Every procedure identifies the acquisition by its
//! holder, so that a repetition changes nothing. Calls run in tasks of their own: a caller that is dropped does not leave
//! a connection with half a reply, and the removal of its entry is sent after the reply of what is in flight.
//!
//! # Detached holds
//!
//! The table `lockkeeper_kept` has the holds that do not depend on a lease, with their owner and deadline. A detached
//! hold counts like a holder ahead of the queue, together with its entry while that exists.

mod diagnose;
mod entry;
mod grants;
mod listing;
mod server;
mod settings;

use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, DetachedState, Engine, EngineUrl, Request, WhenBusy,
    catalogue,
};
use crate::info::LockInfo;
use crate::lease::{self, Lease};
use crate::{Fence, LockName, Result};
use entry::{EntryState, QueueEntry};
use server::{Server, column, no_rows, value};
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a waiter proves its presence: a third of the longest presence.
const LOOK: Duration = Duration::from_millis(3300);

/// The engine of `mysql:` and `mariadb:` URLs.
pub(crate) struct MysqlEngine {
    server: Arc<Server>,
}

impl MysqlEngine {
    /// Connects, and creates the tables and procedures if needed.
    pub async fn open(url: &EngineUrl) -> Result<MysqlEngine> {
        let server = Server::open(settings::Settings::parse(url)?).await?;
        Ok(MysqlEngine { server: Arc::new(server) })
    }

    /// Waits for the grant. Returns the time at which the lease was requested, and the fence.
    async fn granted(&self, entry: &QueueEntry, request: &Request) -> Result<(lease::LeaseTime, u64)> {
        let waiter = self.server.grants.waiter(&self.server, entry.holder());
        // Waiters with a short time to live have a short presence.
        let look = LOOK.min((request.ttl / 3).max(Duration::from_millis(600)));
        loop {
            let sent = lease::now();
            let next_end = match entry.look().await? {
                EntryState::Granted(fence) => return Ok((sent, fence)),
                // The entry was removed because this process did not look in time: join the queue again, at its end.
                EntryState::Gone => {
                    let sent = lease::now();
                    match entry.enter(request, WhenBusy::Wait).await? {
                        Some(fence) => return Ok((sent, fence)),
                        None => continue,
                    }
                }
                EntryState::Wait { next_end } => next_end,
            };
            tokio::select! {
                () = waiter.woken() => {}
                () = tokio::time::sleep(next_end.min(look)) => {}
            }
        }
    }
}

impl Engine for MysqlEngine {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::MYSQL
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(async move {
            let mut entry = QueueEntry::new(self.server.clone(), &request);
            let sent = lease::now();
            let (mut sent, mut fence) = match entry.enter(&request, when_busy).await? {
                Some(fence) => (sent, fence),
                None if when_busy == WhenBusy::Try => {
                    entry.left();
                    return Ok(None);
                }
                None => self.granted(&entry, &request).await?,
            };
            loop {
                let lease = Lease::expiring(sent, request.ttl);
                if lease.is_valid() {
                    let (fence, ttl) = (Fence::new(fence), Some(request.ttl));
                    let hold = Box::new(entry.start_renewal(&lease));
                    return Ok(Some(Acquired { fence, ttl, hold, lease }));
                }
                // The grant took longer than its lease: renew the lease, if the hold still exists.
                (sent, fence) = self.granted(&entry, &request).await?;
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let none = LockInfo { name: name.to_string(), holders: Vec::new(), waiters: Vec::new() };
            listing::tidy(&self.server, name.as_str()).await?;
            Ok(listing::read(&self.server, Some(name.as_str())).await?.pop().unwrap_or(none))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            listing::tidy_all(&self.server).await?;
            listing::read(&self.server, None).await
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        Box::pin(async move {
            let changes = listing::MysqlChanges::watch(self.server.clone(), name).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(async move {
            let lasts = lasts.map(|lasts| i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX));
            let values = vec![value(name.as_str()), value(owner), value(lasts)];
            let reply = self.server.call("CALL lockkeeper_detached(?, ?, ?)", values).await?;
            reply.rows.first().map(listing::detached_state).transpose()
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(diagnose::server(&self.server))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let values = vec![value(name.as_str()), value(owner)];
            let reply = self.server.call("CALL lockkeeper_release_as(?, ?)", values).await?;
            self.server.grants.check_now();
            column(reply.rows.first().ok_or_else(no_rows)?, 0)
        })
    }
}
