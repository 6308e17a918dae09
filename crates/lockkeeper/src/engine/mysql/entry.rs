//! An acquisition: its entry in the queue, and the hold that it becomes.

use super::server::{Server, column, no_rows, value};
use crate::engine::{BoxFuture, Detach, Hold, Request, WhenBusy};
use crate::info::{LockMode, lock_type};
use crate::lease::{self, Lease, NotRenewed, Renewal};
use crate::{Error, Result};
use mysql_async::Value;
use std::sync::Arc;
use std::time::Duration;

/// An acquisition, created before its request is sent. Dropping it removes the request from the queue.
pub(super) struct QueueEntry {
    server: Arc<Server>,
    name: String,
    holder: String,
    ttl: Duration,
    /// The runtime for the removal, as guards may be dropped outside of a runtime.
    runtime: tokio::runtime::Handle,
    /// Locked while a call about this entry is in flight, so that its removal comes after it.
    in_flight: Arc<tokio::sync::Mutex<()>>,
    left: bool,
    /// Whether the hold stays until its deadline.
    detached: bool,
}

pub(super) enum EntryState {
    Granted(u64),
    Gone,
    Wait { next_end: Duration },
}

/// The reason for the loss of a hold that the server has ended.
const NOT_KNOWN: &str = "the server did not know this hold any more";

impl QueueEntry {
    pub fn new(server: Arc<Server>, request: &Request) -> QueueEntry {
        QueueEntry {
            server,
            name: request.name.to_string(),
            holder: request.tag.holder.clone(),
            ttl: request.ttl,
            runtime: tokio::runtime::Handle::current(),
            in_flight: Arc::default(),
            left: false,
            detached: false,
        }
    }

    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Nothing is in the queue, so that there is nothing to remove.
    pub fn left(&mut self) {
        self.left = true;
    }

    /// Calls a procedure. Later calls about this entry wait for its end, also if this future is dropped.
    async fn call(&self, sql: &'static str, values: Vec<Value>) -> Result<super::server::Reply> {
        let in_flight = self.in_flight.clone().lock_owned().await;
        self.server.call_holding(sql, values, in_flight).await
    }

    /// Joins the queue. Returns the fence if the lock was granted at once.
    pub async fn enter(&self, request: &Request, when_busy: WhenBusy) -> Result<Option<u64>> {
        let tag = serde_json::to_vec(&request.tag).map_err(|e| Error::BadOption(format!("metadata: {e}")))?;
        let (kind, permits) = match request.mode {
            LockMode::Exclusive => ("exclusive", 0),
            LockMode::Shared => ("shared", 0),
            LockMode::Permit { of } => ("permit", i32::try_from(of).unwrap_or(i32::MAX)),
        };
        let values = vec![
            value(self.name.as_str()),
            value(self.holder.as_str()),
            value(self.server.client.as_str()),
            value(kind),
            value(permits),
            value(micros(self.ttl)),
            value(tag),
            value(when_busy == WhenBusy::Try),
        ];
        let reply = self.call("CALL lockkeeper_enter(?, ?, ?, ?, ?, ?, ?, ?)", values).await?;
        let row = reply.rows.first().ok_or_else(no_rows)?;
        if let Some(permits) = column::<Option<i32>>(row, 1)? {
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
        column(row, 0)
    }

    pub async fn look(&self) -> Result<EntryState> {
        let values = vec![value(self.name.as_str()), value(self.holder.as_str())];
        let reply = self.call("CALL lockkeeper_look(?, ?)", values).await;
        let reply = reply.map_err(|e| Error::SessionLost {
            engine: "mysql",
            name: self.name.clone(),
            reason: e.into_reason(),
        })?;
        let row = reply.rows.first().ok_or_else(no_rows)?;
        if let Some(fence) = column(row, 0)? {
            return Ok(EntryState::Granted(fence));
        }
        if column::<Option<bool>>(row, 1)?.is_none() {
            return Ok(EntryState::Gone);
        }
        let next_end = column::<Option<i64>>(row, 2)?.unwrap_or(i64::MAX).max(0).unsigned_abs();
        Ok(EntryState::Wait { next_end: Duration::from_micros(next_end.saturating_add(1)) })
    }

    /// Starts the renewal.
    pub fn start_renewal(self, lease: &Lease) -> RenewedEntry {
        let (server, holder) = (self.server.clone(), self.holder.clone());
        let renewal = lease::keep_renewed(lease.clone(), self.ttl, move || {
            let (server, holder) = (server.clone(), holder.clone());
            async move {
                let sql = "UPDATE lockkeeper_queue
                              SET ends = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ttl
                            WHERE holder = ? AND fence IS NOT NULL
                              AND ends > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
                match server.call(sql, vec![value(holder.as_str())]).await {
                    Ok(reply) if reply.matched > 0 => Ok(()),
                    Ok(_) => Err(NotRenewed::Gone("the server does not know this hold any more".into())),
                    Err(error) => Err(NotRenewed::TryAgain(error.into_reason())),
                }
            }
        });
        RenewedEntry { _renewal: renewal, lease: lease.clone(), entry: self }
    }
}

impl Drop for QueueEntry {
    /// Removes the entry, after what is still in flight.
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let (server, in_flight, discarded) = (self.server.clone(), self.in_flight.clone(), !self.detached);
        let (name, holder) = (std::mem::take(&mut self.name), std::mem::take(&mut self.holder));
        self.runtime.spawn(async move {
            let _in_flight = in_flight.lock().await;
            leave(&server, &name, &holder, discarded).await.map(drop)
        });
    }
}

/// Removes an entry. Returns whether it existed, and whether the call was repeated.
async fn leave(server: &Arc<Server>, name: &str, holder: &str, discarded: bool) -> Result<(bool, bool)> {
    let values = vec![value(name), value(holder), value(discarded)];
    let reply = server.call("CALL lockkeeper_leave(?, ?, ?)", values).await?;
    server.grants.check_now();
    Ok((column(reply.rows.first().ok_or_else(no_rows)?, 0)?, reply.repeated))
}

/// A granted entry.
pub(super) struct RenewedEntry {
    _renewal: Renewal,
    lease: Lease,
    entry: QueueEntry,
}

impl RenewedEntry {
    async fn end(self: Box<Self>, discarded: bool) -> Result<()> {
        let RenewedEntry { _renewal: renewal, lease, mut entry } = *self;
        drop(renewal);
        entry.detached &= !discarded;
        let was_valid = lease.is_valid();
        let (existed, repeated) = leave(&entry.server, &entry.name, &entry.holder, !entry.detached).await?;
        entry.left();
        // If the reply of the first call was lost, that call has removed it.
        if existed || repeated && was_valid {
            return Ok(());
        }
        Err(Error::Lost { name: entry.name.clone(), reason: NOT_KNOWN.into() })
    }
}

impl Hold for RenewedEntry {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(false))
    }

    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.end(true))
    }

    fn detach(&mut self, detach: Detach) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let entry = &mut self.entry;
            let values = vec![
                value(entry.name.as_str()),
                value(entry.holder.as_str()),
                value(detach.owner),
                value(micros(detach.lasts)),
            ];
            let reply = entry.call("CALL lockkeeper_detach(?, ?, ?, ?)", values).await?;
            match column::<i32>(reply.rows.first().ok_or_else(no_rows)?, 0)? {
                1 => entry.detached = true,
                0 => return Ok(false),
                _ => return Err(Error::Lost { name: entry.name.clone(), reason: NOT_KNOWN.into() }),
            }
            Ok(true)
        })
    }
}

/// The duration in microseconds, rounded up: a lock is kept for at least the requested time.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}
