//! Lists holders and waiters from the tables of the schema.

use super::session::{Args, Session};
use super::unexpected_rows;
use crate::engine::DetachedState;
use crate::info::{Detached, LockInfo, LockMode, Participant};
use crate::{Fence, Result};
use std::time::Duration;
use tokio_postgres::types::Type;

/// Settles one queue.
pub(super) async fn tidy(session: &Session, name: &str) -> Result<()> {
    let args: &Args<'_> = &[(&name, Type::TEXT), (&session.number, Type::INT8)];
    session.call("SELECT lockkeeper.tidy($1, $2)", args).await.map(drop)
}

/// Tidies the queues that have a dead or expired entry.
pub(super) async fn tidy_all(session: &Session) -> Result<()> {
    let sql = "SELECT name FROM lockkeeper.queue
                WHERE ends <= clock_timestamp() OR NOT lockkeeper.lives(session, $1)
                UNION SELECT name FROM lockkeeper.kept WHERE ends <= clock_timestamp()";
    for row in session.call(sql, &[(&session.number, Type::INT8)]).await? {
        tidy(session, row.try_get(0).map_err(|_| unexpected_rows())?).await?;
    }
    Ok(())
}

/// The live entries of one lock or of all locks. Detached holds without an entry come first.
pub(super) async fn read(session: &Session, name: Option<&str>) -> Result<Vec<LockInfo>> {
    let sql = "SELECT name, kind, permits, tag, fence, extract(epoch FROM since)::double precision * 1000, owner,
                      extract(epoch FROM until - clock_timestamp())::double precision * 1000
                 FROM (SELECT q.name, q.kind, q.permits, q.tag, q.fence, coalesce(q.held_since, q.asked) AS since,
                              k.owner, k.ends AS until, q.id
                         FROM lockkeeper.queue q LEFT JOIN lockkeeper.kept k ON k.holder = q.holder
                        WHERE lockkeeper.lives(q.session, $1)
                       UNION ALL
                       SELECT k.name, k.kind, k.permits, k.tag, k.fence, k.held_since, k.owner, k.ends, 0
                         FROM lockkeeper.kept k
                        WHERE NOT EXISTS (SELECT FROM lockkeeper.queue q WHERE q.holder = k.holder)) AS holds
                WHERE ($2::text IS NULL OR name = $2)
                ORDER BY name COLLATE \"C\", id, since";
    let rows = session.call(sql, &[(&session.number, Type::INT8), (&name, Type::TEXT)]).await?;
    let mut all: Vec<LockInfo> = Vec::new();
    for row in rows {
        let (name, participant, holds) = participant(&row).ok_or_else(unexpected_rows)?;
        if all.last().is_none_or(|last| last.name != name) {
            all.push(LockInfo { name, holders: Vec::new(), waiters: Vec::new() });
        }
        let Some(lock) = all.last_mut() else { continue };
        if holds { &mut lock.holders } else { &mut lock.waiters }.push(participant);
    }
    Ok(all)
}

/// The lock's name, a participant, and whether it is a holder.
fn participant(row: &tokio_postgres::Row) -> Option<(String, Participant, bool)> {
    let mode = mode(row.try_get(1).ok()?, row.try_get(2).ok()?)?;
    let tag = serde_json::from_str(row.try_get(3).ok()?).ok()?;
    let start_renewal = row.try_get::<_, Option<i64>>(4).ok()?;
    let fence = start_renewal.and_then(|fence| Fence::new(fence.unsigned_abs()));
    let since_ms = row.try_get::<_, f64>(5).ok()? as u64;
    let owner: Option<String> = row.try_get(6).ok()?;
    let left_ms: Option<f64> = row.try_get(7).ok()?;
    let detached = owner.zip(left_ms).map(|(owner, left_ms)| Detached::ending_in(owner, millis(left_ms)));
    let participant = Participant { tag, mode, since_ms, fence, detached };
    Some((row.try_get(0).ok()?, participant, start_renewal.is_some()))
}

/// Parses a row of `lockkeeper.detached`.
pub(super) fn detached_state(row: &tokio_postgres::Row) -> Option<DetachedState> {
    let fence = Fence::new(row.try_get::<_, i64>(0).ok()?.unsigned_abs());
    let left = millis(row.try_get(1).ok()?);
    Some(DetachedState { mode: mode(row.try_get(2).ok()?, row.try_get(3).ok()?)?, fence, left })
}

fn mode(kind: &str, permits: i32) -> Option<LockMode> {
    match kind {
        "exclusive" => Some(LockMode::Exclusive),
        "shared" => Some(LockMode::Shared),
        _ => Some(LockMode::Permit { of: u32::try_from(permits).ok()? }),
    }
}

fn millis(ms: f64) -> Duration {
    Duration::from_millis(ms.max(0.0) as u64)
}
