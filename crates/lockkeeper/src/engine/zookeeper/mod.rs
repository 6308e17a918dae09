//! The `zookeeper` engine: locks between machines, stored in a ZooKeeper ensemble (3.6 or later; tested with 3.8).
//!
//! # The nodes
//!
//! ```text
//! /lockkeeper                              persistent; a path in the URL replaces it
//! /lockkeeper/NAME                         container: ZooKeeper removes it some time after its last child;
//!                                          its data is the type of lock: `m`, or `p3` for 3 permits
//! /lockkeeper/NAME/x.HOLDER-0000000007     ephemeral, sequential: an exclusive request, granted or waiting
//! /lockkeeper/NAME/s.HOLDER-0000000008     … a shared request
//! /lockkeeper/NAME/p.HOLDER-0000000009     … a request for a permit
//! /lockkeeper/NAME/dx.OWNER                persistent: a hold without a process; see `detached`
//! ```
//!
//! `NAME` and `HOLDER` are escaped. The data of the lowest nodes is a [`RequestRecord`](super::line::Record) as JSON.
//!
//! # The recipe
//!
//! 1. Create the sequential node. If the connection breaks before the reply, look for a node with our unique `HOLDER`
//!    (after a `sync`, so that a server that lags behind does not hide it) before creating another.
//! 2. Order the children by sequence number. A request with no conflicting node ahead of it is granted:
//!    [`RequestQueue`](super::line::Line).
//! 3. Otherwise watch only the nodes that can lead to the grant, and then read again. Writing the time of the grant
//!    into our own node proves, at the moment of entry, that node and session still exist.
//!
//! The **fence** is the zxid that created the node: zxids rise with every change of the ensemble, and conflicting
//! requests are granted in the order of their nodes. It fits a signed column: 32 bits of epoch, 32 of counter.
//!
//! `try` reads the queue first. If another request is created between this read and its own creation, it is queued
//! for a moment.
//!
//! # Sessions and leases
//!
//! All holds with the same time to live share a session, so an acquire costs one write and a release another.
//! ZooKeeper bounds session timeouts (2 to 20 ticks, by default 4 to 40 s); the timeout in the server's reply
//! applies.
//!
//! A renewal is a `sync`, which reaches the *leader*, and a read of our node: a server that is cut off from its
//! ensemble would answer a mere ping, too. Our server reports the session to the leader within half a tick, and a
//! report that is not yet sent is lost if that server crashes. Since a session lasts at least two ticks, a hold
//! counts **three quarters** of the session timeout and no more. In addition, each request watches its own node, and
//! notices at once when another client deletes it.

mod changes;
mod detached;
mod diagnose;
mod ensemble;
mod nodes;
mod own_node;
mod queue_node;
mod relay;

use super::options;
use super::request_queue;
use super::servers::Servers;
use super::tls::Tls;
use crate::diagnose::Finding;
use crate::engine::{
    Acquired, BoxFuture, Capabilities, Changes, DetachedState, Engine, EngineUrl, Request, WhenBusy,
    catalogue,
};
use crate::info::LockInfo;
use crate::{LockName, Result};
use std::sync::Arc;
use std::time::Duration;

/// The engine of `zookeeper:` URLs.
pub(crate) struct ZooKeeperEngine {
    ensemble: Arc<ensemble::Ensemble>,
}

impl ZooKeeperEngine {
    /// Connects, and checks that ZooKeeper replies and accepts the credentials.
    pub async fn open(url: &EngineUrl) -> Result<ZooKeeperEngine> {
        let (servers, tls) = if url.scheme() == Some("zookeeper+tls") {
            let [ca, cert, key] = options::TLS;
            let servers = Servers::parse(url, 2281, &[ca, cert, key, options::PASSWORD_FILE])?;
            let tls = Tls::of(url, &servers.options)?;
            (servers, Some(tls))
        } else {
            (Servers::parse(url, 2181, &[options::PASSWORD_FILE])?, None)
        };
        let root = nodes::Root::new(&servers.path).map_err(|error| url.bad(error.to_string()))?;
        let ensemble = ensemble::Ensemble::open(url, servers, tls, root).await?;
        Ok(ZooKeeperEngine { ensemble: Arc::new(ensemble) })
    }
}

impl Engine for ZooKeeperEngine {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn capabilities(&self) -> Capabilities {
        catalogue::ZOOKEEPER
    }

    fn acquire(&self, request: Request, when_busy: WhenBusy) -> BoxFuture<'_, Result<Option<Acquired>>> {
        Box::pin(queue_node::acquire(&self.ensemble, request, when_busy))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockInfo>> {
        Box::pin(async move {
            let records = self.ensemble.records(&self.ensemble.root.of(name)).await?;
            Ok(request_queue::info(name.as_str(), records))
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for lock in self.ensemble.locks().await? {
                let records = self.ensemble.records(&lock).await?;
                if let Some((_, first)) = records.first() {
                    let name = first.name.clone();
                    all.push(request_queue::info(&name, records));
                }
            }
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        })
    }

    fn changes<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Box<dyn Changes>>> {
        let path = match name {
            Some(name) => self.ensemble.root.of(name).path().to_owned(),
            None => self.ensemble.root.path().to_owned(),
        };
        Box::pin(async move {
            let changes = changes::ZooKeeperChanges::watch(self.ensemble.clone(), path).await?;
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }

    fn detached<'a>(
        &'a self,
        name: &'a LockName,
        owner: &'a str,
        lasts: Option<Duration>,
    ) -> BoxFuture<'a, Result<Option<DetachedState>>> {
        Box::pin(self.ensemble.detached(name, owner, lasts))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(diagnose::ensemble(&self.ensemble))
    }

    fn release_detached<'a>(&'a self, name: &'a LockName, owner: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.ensemble.release_detached(name, owner))
    }
}
