//! Requests about the node of an acquisition: search, removal, renewal, and a watch on its deletion.

use super::ensemble::{Session, fresh_children, is_session_end, retry};
use super::nodes::LockNode;
use crate::lease::{Lease, NotRenewed};
use std::sync::Arc;
use zookeeper_client::{Client, Error as ZkError};

/// The name of the child that begins with `prefix`.
pub(super) async fn find(client: &Client, lock: &LockNode, prefix: &str) -> Result<Option<String>, ZkError> {
    match fresh_children(client, lock.path()).await {
        Err(ZkError::NoNode) => Ok(None),
        children => Ok(children?.into_iter().find(|child| child.starts_with(prefix))),
    }
}

/// Removes a node, whether its name is known or not. Returns true if this call did, false if it did not exist.
pub(super) async fn remove(
    client: &Client,
    lock: &LockNode,
    prefix: &str,
    own: &Option<String>,
) -> Result<bool, ZkError> {
    // Requests of a session are executed in order: a creation without a reply so far is executed before this.
    let name = match own {
        Some(name) => name.clone(),
        None => match retry(|| find(client, lock, prefix)).await? {
            Some(name) => name,
            None => return Ok(false),
        },
    };
    let path = lock.child(&name);
    let mut asked = false;
    let delete = || {
        let again = std::mem::replace(&mut asked, true);
        let deleted = client.delete(&path, None);
        async move {
            match deleted.await {
                Ok(()) => Ok(true),
                // In a repeated request: the first one may have been executed.
                Err(ZkError::NoNode) => Ok(again),
                Err(error) => Err(error),
            }
        }
    };
    retry(delete).await
}

/// Sends one renewal. The parent module explains why a ping is not enough.
pub(super) async fn renew(client: &Client, own: &str) -> Result<(), NotRenewed> {
    let (synced, stat) = (client.sync(own), client.check_stat(own));
    let seen = async {
        synced.await?;
        stat.await
    };
    match seen.await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(NotRenewed::Gone("its node is gone".into())),
        Err(error) if is_session_end(&error) => Err(NotRenewed::Gone(error.to_string())),
        Err(error) => Err(NotRenewed::TryAgain(error.to_string())),
    }
}

/// A task that watches our own node, so that its deletion by another client or the end of the session is noticed at
/// once. It also removes the node of a hold that is lost and not yet dropped, since the session may continue.
pub(super) struct DeletionWatch(tokio::task::AbortHandle);

impl DeletionWatch {
    pub fn start(
        session: Arc<Session>,
        lock: LockNode,
        lease: Lease,
        prefix: &str,
        own: &str,
    ) -> DeletionWatch {
        let (prefix, path, own) = (prefix.to_owned(), lock.child(own), Some(own.to_owned()));
        let task = tokio::spawn(async move {
            tokio::select! {
                reason = until_gone(&session.client, &path) => lease.lose(reason),
                _ = lease.lost() => {
                    // The holder was promised this time to stop.
                    tokio::time::sleep(lease.valid_for()).await;
                    let _ = remove(&session.client, &lock, &prefix, &own).await;
                }
            }
        });
        DeletionWatch(task.abort_handle())
    }
}

/// Resolves with the reason when the node is gone.
async fn until_gone(client: &Client, path: &str) -> String {
    loop {
        match retry(|| client.check_and_watch_stat(path)).await {
            Ok((Some(_), watcher)) => {
                watcher.changed().await;
            }
            Ok((None, _)) => return "its node was deleted by another client".into(),
            Err(error) => return error.to_string(),
        }
    }
}

impl Drop for DeletionWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
