//! Detached holds: persistent nodes with a deadline.
//!
//! ```text
//! /lockkeeper/NAME/dx.OWNER     persistent: the exclusive hold of an owner, with or without a process
//! /lockkeeper/NAME/ds.OWNER     … a shared hold
//! /lockkeeper/NAME/dp.OWNER     … a permit
//! ```
//!
//! The data is a [`RequestRecord`] with a [`DetachedRecord`]. The node is created, on condition that the ephemeral node
//! of the request still exists, when the lock has been granted. From then on it counts as a holder ahead of the queue,
//! and the ephemeral node does not count; when it expires, the ephemeral one counts again. Versions of this engine that
//! do not know such a node report it as foreign.
//!
//! # The clock
//!
//! ZooKeeper has no timers for ordinary nodes: the clients that want the lock remove a node whose deadline has passed.
//! The **leader's** clock counts, not theirs. The leader stamps every write; a node expires when another write has a
//! stamp that is later by the time in the record. A client that finds a detached node writes the lock's node,
//! unchanged, to get such a stamp, and adds the time that has passed here since the reply, which is less than has
//! passed there. If the leadership moves to a server with another clock, the hold ends earlier or later by the
//! difference.

use super::ensemble::{Ensemble, fresh_children, retry};
use super::nodes::{self, LockNode};
use crate::engine::DetachedState;
use crate::engine::request_queue::{DetachedRecord, RequestRecord};
use crate::info::LockMode;
use crate::lease::{self, LeaseTime};
use crate::{Fence, LockName, Result};
use std::time::Duration;
use zookeeper_client::{Client, Error as ZkError, Stat};

/// A detached hold whose deadline has not been reached.
pub(super) struct LiveHold {
    /// The name of its node.
    pub id: String,
    pub mode: LockMode,
    /// The beginning of the name of its ephemeral node, which may exist beside it.
    pub prefix: String,
    /// Not before the server's deadline.
    pub ends: LeaseTime,
    record: RequestRecord,
    version: i32,
}

/// The time of the leader, at least.
#[derive(Clone, Copy)]
struct ServerTime {
    ms: i64,
    /// When the reply with that time had arrived.
    read: LeaseTime,
}

impl ServerTime {
    /// Gets a stamp by writing the lock's node, whose data stays the same.
    async fn get(client: &Client, lock: &LockNode, data: &[u8]) -> Result<ServerTime, ZkError> {
        let stat = client.set_data(lock.path(), data, None).await?;
        Ok(ServerTime { ms: stat.mtime, read: lease::now() })
    }

    /// The reading of our clock at which the leader's clock has reached the deadline of a record; not before that.
    fn end_of(self, stat: &Stat, detached: &DetachedRecord) -> LeaseTime {
        let deadline_ms = stat.mtime.saturating_add_unsigned(detached.lasts_ms);
        let left_ms = u64::try_from(deadline_ms.saturating_sub(self.ms)).unwrap_or(0);
        self.read.plus(Duration::from_millis(left_ms))
    }
}

/// Reads the detached holds of a lock whose nodes have these names, and removes those whose deadline has passed.
pub(super) async fn live(
    client: &Client,
    lock: &LockNode,
    lock_data: &[u8],
    names: &[&String],
) -> Result<Vec<LiveHold>, ZkError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let time = ServerTime::get(client, lock, lock_data).await?;
    let mut live = Vec::new();
    for name in names {
        let (data, stat) = match client.get_data(&lock.child(name)).await {
            Err(ZkError::NoNode) => continue,
            found => found?,
        };
        let record = serde_json::from_slice::<RequestRecord>(&data).ok();
        let Some((record, detached)) = record.and_then(|it| Some((it.clone(), it.detached?))) else {
            let reason = &"its data is not Lockkeeper's; delete it or use another path";
            return Err(ZkError::UnmarshalError { entity: "the node of a detached hold", reason });
        };
        let ends = time.end_of(&stat, &detached);
        if ends.left().is_none() {
            match client.delete(&lock.child(name), Some(stat.version)).await {
                Ok(()) | Err(ZkError::NoNode) => continue,
                // Its owner has moved the deadline: the next reader finds the new one.
                Err(ZkError::BadVersion) => {}
                Err(error) => return Err(error),
            }
        }
        live.push(LiveHold {
            id: (*name).clone(),
            mode: record.mode,
            prefix: nodes::prefix(record.mode, &record.tag.holder),
            ends,
            version: stat.version,
            record,
        });
    }
    Ok(live)
}

/// Removes the node of a detached hold, if it is still that of this holder.
pub(super) async fn remove(client: &Client, path: &str, holder: &str) -> Result<(), ZkError> {
    let remove = || async {
        let (data, stat) = match client.get_data(path).await {
            Err(ZkError::NoNode) => return Ok(()),
            found => found?,
        };
        let record = serde_json::from_slice::<RequestRecord>(&data).ok();
        if record.is_none_or(|record| record.tag.holder != holder) {
            return Ok(());
        }
        match client.delete(path, Some(stat.version)).await {
            Ok(()) | Err(ZkError::NoNode | ZkError::BadVersion) => Ok(()),
            Err(error) => Err(error),
        }
    };
    retry(remove).await
}

/// Whether the node of a detached hold is that of this holder.
pub(super) async fn is_of(client: &Client, path: &str, holder: &str) -> Result<bool, ZkError> {
    match client.get_data(path).await {
        Err(ZkError::NoNode) => Ok(false),
        found => {
            let record = serde_json::from_slice::<RequestRecord>(&found?.0).ok();
            Ok(record.is_some_and(|record| record.tag.holder == holder))
        }
    }
}

/// The detached hold of an owner, and the names of all children.
async fn look(
    client: &Client,
    lock: &LockNode,
    owner: &str,
) -> Result<Option<(LiveHold, Vec<String>)>, ZkError> {
    let children = match fresh_children(client, lock.path()).await {
        Err(ZkError::NoNode) => return Ok(None),
        children => children?,
    };
    let its: Vec<&String> = children.iter().filter(|child| nodes::is_detached_for(child, owner)).collect();
    if its.is_empty() {
        return Ok(None);
    }
    let (lock_data, _) = client.get_data(lock.path()).await?;
    let live = live(client, lock, &lock_data, &its).await?;
    Ok(live.into_iter().next().map(|hold| (hold, children)))
}

impl Ensemble {
    /// The detached hold of an owner; with `lasts`, its deadline is first set to that time from now.
    pub async fn detached(
        &self,
        name: &LockName,
        owner: &str,
        lasts: Option<Duration>,
    ) -> Result<Option<DetachedState>> {
        let (session, lock) = (self.query_session().await?, self.root.of(name));
        let client = &session.client;
        loop {
            let found = self.ask(|| look(client, &lock, owner)).await?.map_err(|e| self.refused(&e))?;
            let Some((hold, _)) = found else { return Ok(None) };
            let fence = hold.record.detached.as_ref().and_then(|detached| Fence::new(detached.fence));
            let state = |left| Ok(Some(DetachedState { mode: hold.mode, fence, left }));
            let Some(lasts) = lasts else { return state(hold.ends.left().unwrap_or_default()) };
            let detached = hold.record.detached.clone().map(|detached| detached.lasting(lasts));
            let json = RequestRecord { detached, ..hold.record.clone() }.to_json()?;
            let path = lock.child(&hold.id);
            match self.ask(|| client.set_data(&path, &json, Some(hold.version))).await? {
                Ok(_) => return state(lasts),
                // It has changed since, or ended.
                Err(ZkError::BadVersion | ZkError::NoNode) => {}
                Err(error) => return Err(self.refused(&error)),
            }
        }
    }

    /// Releases the detached hold of an owner. Returns false if it has none, or if its process still has its node.
    pub async fn release_detached(&self, name: &LockName, owner: &str) -> Result<bool> {
        let (session, lock) = (self.query_session().await?, self.root.of(name));
        let client = &session.client;
        let mut asked = false;
        loop {
            let found = self.ask(|| look(client, &lock, owner)).await?.map_err(|e| self.refused(&e))?;
            let Some((hold, children)) = found else { return Ok(asked) };
            if children.iter().any(|child| child.starts_with(&hold.prefix)) {
                return Ok(false);
            }
            let path = lock.child(&hold.id);
            asked = true;
            match self.ask(|| client.delete(&path, Some(hold.version))).await? {
                Ok(()) => return Ok(true),
                // In a repeated request, the first one may have been executed; or the owner has moved the deadline.
                Err(ZkError::NoNode | ZkError::BadVersion) => {}
                Err(error) => return Err(self.refused(&error)),
            }
        }
    }
}
