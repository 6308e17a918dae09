//! Holders and waiters, as the tables have them.

use super::server::{Server, column, no_rows, value};
use crate::engine::{BoxFuture, Changes, DetachedState};
use crate::info::{Detached, LockInfo, LockMode, Participant};
use crate::{Fence, LockName, Result};
use mysql_async::Row;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which a watch reads the counters of changes.
const WATCH: Duration = Duration::from_millis(100);

/// The number of such readings after which a watch removes what has expired.
const READINGS: u32 = 10;

/// Settles one queue.
pub(super) async fn tidy(server: &Arc<Server>, name: &str) -> Result<()> {
    server.call("CALL lockkeeper_tidy(?)", vec![value(name)]).await.map(drop)
}

/// Settles the queues that have an expired entry.
pub(super) async fn tidy_all(server: &Arc<Server>) -> Result<()> {
    let sql = "SELECT name FROM lockkeeper_queue WHERE ends <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
               UNION
               SELECT name FROM lockkeeper_kept WHERE ends <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    for row in &server.call(sql, Vec::new()).await?.rows {
        tidy(server, &column::<String>(row, 0)?).await?;
    }
    Ok(())
}

/// The entries of one lock or of all locks. Detached holds without an entry come first.
pub(super) async fn read(server: &Arc<Server>, name: Option<&str>) -> Result<Vec<LockInfo>> {
    let sql = "SELECT name, kind, permits, tag, fence, since, owner,
                      until - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
                 FROM (SELECT q.name, q.kind, q.permits, q.tag, q.fence, COALESCE(q.held_since, q.asked) AS since,
                              k.owner, k.ends AS until, q.id
                         FROM lockkeeper_queue q LEFT JOIN lockkeeper_kept k ON k.holder = q.holder
                       UNION ALL
                       SELECT k.name, k.kind, k.permits, k.tag, k.fence, k.held_since, k.owner, k.ends, 0
                         FROM lockkeeper_kept k
                        WHERE NOT EXISTS (SELECT 1 FROM lockkeeper_queue q WHERE q.holder = k.holder)) AS holds
                WHERE ? IS NULL OR name = ?
                ORDER BY name, id, since";
    let reply = server.call(sql, vec![value(name), value(name)]).await?;
    let mut all: Vec<LockInfo> = Vec::new();
    for row in &reply.rows {
        let (name, participant, holds) = participant(row)?;
        if all.last().is_none_or(|last| last.name != name) {
            all.push(LockInfo { name, holders: Vec::new(), waiters: Vec::new() });
        }
        let Some(lock) = all.last_mut() else { continue };
        if holds { &mut lock.holders } else { &mut lock.waiters }.push(participant);
    }
    Ok(all)
}

/// The lock's name, a participant, and whether it is a holder.
fn participant(row: &Row) -> Result<(String, Participant, bool)> {
    let mode = mode(&column::<String>(row, 1)?, column(row, 2)?)?;
    let tag = serde_json::from_slice(&column::<Vec<u8>>(row, 3)?).map_err(|_| no_rows())?;
    let fence: Option<u64> = column(row, 4)?;
    let since_ms = column::<i64>(row, 5)?.unsigned_abs() / 1000;
    let owner: Option<String> = column(row, 6)?;
    let left: Option<i64> = column(row, 7)?;
    let detached = owner.zip(left).map(|(owner, left)| Detached::ending_in(owner, positive(left)));
    let participant = Participant { tag, mode, since_ms, fence: fence.and_then(Fence::new), detached };
    Ok((column(row, 0)?, participant, fence.is_some()))
}

/// Parses a row of `lockkeeper_detached`.
pub(super) fn detached_state(row: &Row) -> Result<DetachedState> {
    let mode = mode(&column::<String>(row, 2)?, column(row, 3)?)?;
    Ok(DetachedState { mode, fence: Fence::new(column(row, 0)?), left: positive(column(row, 1)?) })
}

fn mode(kind: &str, permits: i32) -> Result<LockMode> {
    match kind {
        "exclusive" => Ok(LockMode::Exclusive),
        "shared" => Ok(LockMode::Shared),
        "permit" => Ok(LockMode::Permit { of: u32::try_from(permits).map_err(|_| no_rows())? }),
        _ => Err(no_rows()),
    }
}

fn positive(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}

/// A watch on the counters of changes.
pub(super) struct MysqlChanges {
    server: Arc<Server>,
    name: Option<String>,
    seen: i64,
    /// The number of readings since the last removal of what has expired.
    readings: u32,
}

impl MysqlChanges {
    pub async fn watch(server: Arc<Server>, name: Option<&LockName>) -> Result<MysqlChanges> {
        let mut changes = MysqlChanges { server, name: name.map(LockName::to_string), seen: 0, readings: 0 };
        changes.seen = changes.count().await?;
        Ok(changes)
    }

    async fn count(&self) -> Result<i64> {
        let (sql, values) = match &self.name {
            Some(name) => (
                "SELECT changes FROM lockkeeper_shard WHERE id = CRC32(?) MOD 256",
                vec![value(name.as_bytes())],
            ),
            None => ("SELECT CAST(SUM(changes) AS SIGNED) FROM lockkeeper_shard", Vec::new()),
        };
        column(self.server.call(sql, values).await?.rows.first().ok_or_else(no_rows)?, 0)
    }
}

impl Changes for MysqlChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            loop {
                let count = self.count().await?;
                if std::mem::replace(&mut self.seen, count) != count {
                    return Ok(());
                }
                tokio::time::sleep(WATCH).await;
                self.readings += 1;
                // What expires changes no counter before it is removed.
                if self.readings >= READINGS {
                    self.readings = 0;
                    tidy_all(&self.server).await?;
                }
            }
        })
    }
}
