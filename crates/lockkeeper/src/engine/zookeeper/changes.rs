//! A watch on a node and its children, for observers and displays.

use super::ensemble::{Ensemble, retry};
use crate::Result;
use crate::engine::{BoxFuture, Changes};
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{AddWatchMode, Client, PersistentWatcher};

const TTL: Duration = Duration::from_secs(10);

/// A watch with its own session: before ZooKeeper 3.9 a persistent watch interferes with the one-time watches of
/// waiters on the same node.
pub(super) struct ZooKeeperChanges {
    ensemble: Arc<Ensemble>,
    path: String,
    /// `None` after the session has ended.
    watch: Option<(PersistentWatcher, Client)>,
}

impl ZooKeeperChanges {
    pub async fn watch(ensemble: Arc<Ensemble>, path: String) -> Result<ZooKeeperChanges> {
        let mut changes = ZooKeeperChanges { ensemble, path, watch: None };
        changes.start().await?;
        Ok(changes)
    }

    async fn start(&mut self) -> Result<()> {
        let client = self.ensemble.connect(TTL).await?;
        let watcher = retry(|| client.watch(&self.path, AddWatchMode::PersistentRecursive)).await;
        let watcher = watcher.map_err(|e| self.ensemble.refused(&e))?;
        self.watch = Some((watcher, client));
        Ok(())
    }
}

impl Changes for ZooKeeperChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Some((watcher, _)) = &mut self.watch else {
                // Changes may have happened without a watch, so this counts as a change.
                return self.start().await;
            };
            // A broken connection counts as a change too: events in between are not delivered.
            if watcher.changed().await.session_state.is_terminated() {
                self.watch = None;
            }
            Ok(())
        })
    }
}
