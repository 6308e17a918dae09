//! `etcd`: locks among machines, kept by an etcd cluster (API version 3; tested with 3.4).
//!
//! # The keys
//!
//! ```text
//! /lockkeeper/NAME/m/x.HOLDER     one that holds or waits for a mutex alone
//! /lockkeeper/NAME/m/s.HOLDER     … shared
//! /lockkeeper/NAME/p3/HOLDER      … for one of 3 permits
//! ```
//!
//! `NAME` and `HOLDER` are escaped; a path in the URL replaces `/lockkeeper`. The value is a [`Record`]
//! as JSON. Every key hangs on a **lease of its own**, so the place in the line goes when
//! its owner gives it up (the lease is revoked) or stops renewing (it expires). An idle lock has no key at all.
//!
//! # The recipe
//!
//! 1. Choose a random lease id and grant the lease. Chosen by us, a grant repeated after a lost reply finds itself.
//! 2. In one transaction: create the key unless it is there or the name is in use as another kind of lock,
//!    and read all keys of the name. A repeated one finds its own key.
//! 3. Order the keys by *create revision*. Whoever has nobody conflicting ahead holds: [`Line`](line::Line).
//! 4. Otherwise watch only what can let us in, from the revision of the last look on, so that nothing is missed;
//!    then look again. Putting the time of entry into our own key, on condition that it still exists,
//!    is the check **at the moment of entry** that etcd 3.4.3's own lock lacked: a waiter whose lease had died was let in.
//!
//! `try` makes its key only on condition that it would hold at once, so it never stands in the line.
//!
//! The **fence** is the key's create revision. Revisions rise with every change of the store, and conflicting
//! entries enter in the order of their keys, so fences rise between them. They fall only if the cluster is restored from
//! a backup.
//!
//! # Losing a hold
//!
//! The lease is counted as in [`crate::lease`]. Besides, each claim watches its own key: if an
//! administrator deletes it or revokes the lease, holder and waiter learn that at once and not at the next renewal.
//!
//! # What it relies on
//!
//! etcd's clock running at the right speed while a lease runs. Older versions of etcd (3.4 among them, as far as we know) let a leader that has just been
//! cut off answer renewals for up to an election timeout; the fence, not the lease, covers that. Leases last
//! whole seconds and at least 1.5 election timeouts (2 s by default): a shorter time to live is
//! counted as 1 s by the holder and kept for that long by the server.

mod changes;
mod claim;
mod connection;
mod keys;
mod requests;
mod server;

use self::requests::Read;
use super::line::{self, Record};
use super::servers::Servers;
use crate::engine::{Acquired, BoxFuture, Capabilities, Changes, Engine, EngineUrl, Patience, Request};
use crate::info::LockInfo;
use crate::{LockName, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The engine of `etcd:` URLs.
pub(crate) struct EtcdEngine {
    server: Arc<server::Server>,
    root: keys::Root,
}

impl EtcdEngine {
    /// Connects, and checks that etcd answers there and lets us in.
    pub async fn open(url: &EngineUrl) -> Result<EtcdEngine> {
        let servers = Servers::parse(url, 2379)?;
        let root =
            keys::Root::new(&servers.path).ok_or_else(|| url.bad("its path is longer than 512 bytes"))?;
        let server = server::Server::connect(url, servers).await?;
        server.scan(root.all(), Read::Keys).await?;
        Ok(EtcdEngine { server: Arc::new(server), root })
    }
}

impl Engine for EtcdEngine {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fence: true,
            fifo: true,
            shared: true,
            semaphore: true,
            waiters: true,
            election: true,
            expires: true,
        }
    }

    fn acquire(&self, request: Request, patience: Patience) -> BoxFuture<'_, Result<Option<Acquired>>> {
        let keys = self.root.of(&request.name);
        Box::pin(claim::acquire(self.server.clone(), keys, request, patience))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let found = self.server.scan(self.root.of(name).all(), Read::Values).await?;
            let records = found.entries.iter().filter_map(|kv| record(kv.create_revision, &kv.value));
            Ok(line::info(name.as_str(), records.collect()))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            let found = self.server.scan(self.root.all(), Read::Values).await?;
            let mut locks: BTreeMap<String, Vec<(i64, Record)>> = BTreeMap::new();
            for kv in &found.entries {
                if let Some((number, record)) = record(kv.create_revision, &kv.value) {
                    locks.entry(record.name.clone()).or_default().push((number, record));
                }
            }
            Ok(locks.into_iter().map(|(name, records)| line::info(&name, records)).collect())
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        let range = name.map_or_else(|| self.root.all(), |name| self.root.of(name).all());
        Box::pin(async move {
            let changes = changes::EtcdChanges::watch(self.server.clone(), range).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }
}

/// A key of somebody else's making under our path is nobody who holds or waits.
fn record(create_revision: i64, value: &[u8]) -> Option<(i64, Record)> {
    Some((create_revision, serde_json::from_slice(value).ok()?))
}
