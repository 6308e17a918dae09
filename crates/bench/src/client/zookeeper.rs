//! ZooKeeper's lock recipe: an ephemeral sequential node, and a watch on the preceding one.

use super::{Client, ClientError, Lock};
use std::collections::HashSet;
use std::time::Duration;
use zookeeper_client::{Acls, Client as Session, CreateMode, CreateOptions, Error, EventType};

/// A client with a session of its own.
pub(super) struct ZooKeeper {
    session: Session,
    /// Locks whose parent node is known to exist.
    made: HashSet<usize>,
    held: Option<String>,
}

const OPEN: Acls<'static> = Acls::anyone_all();

impl ZooKeeper {
    /// Connects to one server.
    pub async fn open(server: &str) -> Result<ZooKeeper, ClientError> {
        let connector = Session::connector().with_session_timeout(Duration::from_secs(10));
        let session = connector.connect(server).await?;
        Ok(ZooKeeper { session, made: HashSet::new(), held: None })
    }

    async fn make(&mut self, lock: Lock<'_>) -> Result<(), Error> {
        if self.made.insert(lock.number) {
            let options: CreateOptions<'_> = CreateMode::Persistent.with_acls(OPEN);
            self.session.mkdir(&format!("/{}", lock.name), &options).await?;
        }
        Ok(())
    }

    /// The complete recipe. The fence is the transaction id that created our node: nodes enter in the order
    /// of these.
    async fn enter(&mut self, lock: Lock<'_>) -> Result<u64, Error> {
        self.make(lock).await?;
        let folder = format!("/{}", lock.name);
        let options = CreateMode::EphemeralSequential.with_acls(OPEN);
        let (stat, number) = self.session.create(&format!("{folder}/n-"), &[], &options).await?;
        let own = format!("n-{number}");
        self.held = Some(format!("{folder}/{own}"));
        loop {
            let children = self.session.list_children(&folder).await?;
            // Sequence numbers have leading zeros, so their order is that of the text.
            let Some(before) = children.into_iter().filter(|child| *child < own).max() else {
                return Ok(stat.czxid.unsigned_abs());
            };
            let (there, watcher) = self.session.check_and_watch_stat(&format!("{folder}/{before}")).await?;
            if there.is_some() && watcher.changed().await.event_type == EventType::Session {
                return Err(Error::SessionExpired);
            }
        }
    }
}

impl Client for ZooKeeper {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        Ok(Some(self.enter(lock).await?))
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        let Some(node) = self.held.take() else { return Ok(()) };
        Ok(self.session.delete(&node, None).await?)
    }
}
