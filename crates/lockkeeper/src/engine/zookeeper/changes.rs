//! Watching a node and what is below it, for the eyes of people and observers.

use super::ensemble::{Ensemble, persist};
use crate::Result;
use crate::engine::{BoxFuture, Changes};
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{AddWatchMode, Client, PersistentWatcher};

const TTL: Duration = Duration::from_secs(10);

/// Has a session of its own: before 3.9 a persistent watch disturbs the one-time watches of waiters on the same node.
pub(super) struct ZooKeeperChanges {
    ensemble: Arc<Ensemble>,
    path: String,
    /// `None` after the session ended.
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
        let watcher = persist(|| client.watch(&self.path, AddWatchMode::PersistentRecursive)).await;
        let watcher = watcher.map_err(|e| self.ensemble.refused(&e))?;
        self.watch = Some((watcher, client));
        Ok(())
    }
}

impl Changes for ZooKeeperChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Some((watcher, _)) = &mut self.watch else {
                // Whatever happened while nobody watched is a change.
                return self.start().await;
            };
            // A broken connection is a change too: what happened in between is not told.
            if watcher.changed().await.session_state.is_terminated() {
                self.watch = None;
            }
            Ok(())
        })
    }
}
