//! The `etcd` engine: locks between machines, stored in an etcd cluster (API version 3; tested with 3.4).
//!
//! # The keys
//!
//! ```text
//! /lockkeeper/NAME/m/x.HOLDER     an exclusive request for a mutex, granted or waiting
//! /lockkeeper/NAME/m/s.HOLDER     … a shared request
//! /lockkeeper/NAME/p3/HOLDER      … a request for one of 3 permits
//! /lockkeeper/.as/NAME/OWNER      the path of the owner's detached hold: see `detached`
//! ```
//!
//! `NAME` and `HOLDER` are escaped; a path in the URL replaces `/lockkeeper`. The value is a [`RequestRecord`] as JSON.
//! Every key is attached to its **own lease**, so the request leaves the queue when its owner gives it up (the lease
//! is revoked) or stops renewing (the lease expires). An idle lock has no keys.
//!
//! # The recipe
//!
//! 1. Choose a random lease id and grant the lease. Because the client chooses the id, a grant that is repeated after
//!    a lost reply finds the existing lease.
//! 2. In one transaction: create the key unless it exists or the name is in use as another type of lock, and read all
//!    keys of the name. A repeated transaction finds its own key.
//! 3. Order the keys by *create revision*. A request with no conflicting key ahead of it is granted:
//!    [`RequestQueue`](line::Line).
//! 4. Otherwise watch only the keys that can lead to the grant, from the revision of the last read on, so that no
//!    event is missed; then read again. The time of the grant is written into its own key on condition that the key
//!    still exists. This is the check **at the moment of entry** that etcd 3.4.3's own lock lacked: it granted the
//!    lock to a waiter whose lease had expired.
//!
//! `try` creates its key only on condition that it is granted at once, so it is never queued.
//!
//! The **fence** is the key's create revision. Revisions rise with every change of the store, and conflicting
//! requests are granted in the order of their keys, so fences rise from one to the next. They fall only if the
//! cluster is restored from a backup.
//!
//! # Losing a hold
//!
//! The lease is counted as in [`crate::lease`]. In addition, each request watches its own key: if an administrator
//! deletes it or revokes the lease, the holder or waiter is notified at once and not at the next renewal.
//!
//! # Assumptions
//!
//! etcd's clock runs at the right speed during a lease. Older versions of etcd (3.4 among them, as far as we know)
//! let a leader that has just been cut off confirm renewals for up to an election timeout; the fence, not the lease,
//! covers that. Leases last whole seconds and at least 1.5 election timeouts (2 s by default): the holder counts a
//! shorter time to live as 1 s, while the server keeps the lease for that minimum.

mod changes;
mod connection;
mod detached;
mod diagnose;
mod keys;
mod lock_key;
mod requests;
mod server;

use self::requests::Read;
use super::options::PASSWORD_FILE;
use super::request_queue::{self, RequestRecord};
use super::servers::Servers;
use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, DetachedState, Engine, EngineUrl, Request, WhenBusy,
    catalogue,
};
use crate::info::LockInfo;
use crate::{LockName, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The options of a URL.
const OPTIONS: [&str; 4] = ["ca", "cert", "key", PASSWORD_FILE];

/// The engine of `etcd:` URLs, and of `etcds:` or `etcd+tls:` over TLS.
pub(crate) struct EtcdEngine {
    server: Arc<server::Server>,
    root: Arc<keys::Root>,
}

impl EtcdEngine {
    /// Connects, and checks that etcd replies and accepts the credentials.
    pub async fn open(url: &EngineUrl) -> Result<EtcdEngine> {
        let servers = Servers::parse(url, 2379, &OPTIONS)?;
        let root =
            keys::Root::new(&servers.path).ok_or_else(|| url.bad("its path is longer than 512 bytes"))?;
        let server = server::Server::connect(url, servers, root.all()).await?;
        Ok(EtcdEngine { server: Arc::new(server), root: Arc::new(root) })
    }
}

impl Engine for EtcdEngine {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::ETCD
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(lock_key::acquire(self.server.clone(), self.root.clone(), request, when_busy))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let found = self.server.scan(self.root.of(name).all(), Read::Values).await?;
            let records = found.entries.iter().filter_map(|kv| record(kv.create_revision, &kv.value));
            Ok(request_queue::info(name.as_str(), records.collect()))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            let found = self.server.scan(self.root.all(), Read::Values).await?;
            let mut locks: BTreeMap<String, Vec<(i64, RequestRecord)>> = BTreeMap::new();
            for kv in &found.entries {
                if let Some((number, record)) = record(kv.create_revision, &kv.value) {
                    locks.entry(record.name.clone()).or_default().push((number, record));
                }
            }
            Ok(locks.into_iter().map(|(name, records)| request_queue::info(&name, records)).collect())
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        let range = name.map_or_else(|| self.root.all(), |name| self.root.of(name).all());
        Box::pin(async move {
            let changes = changes::EtcdChanges::watch(self.server.clone(), range).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(detached::find(&self.server, &self.root, name, owner, lasts))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(diagnose::cluster(&self.server))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(detached::release(&self.server, &self.root, name, owner))
    }
}

/// Parses a record. A foreign key under our path is ignored: it is neither a holder nor a waiter.
fn record(create_revision: i64, value: &[u8]) -> Option<(i64, RequestRecord)> {
    Some((create_revision, serde_json::from_slice(value).ok()?))
}
