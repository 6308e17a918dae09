//! The library's clients: of daemons, and of the file engine.

use super::{Client, ClientError, Lock};
use lockkeeper::{Fence, Guard, Lockkeeper};

/// A client of the engine that its URL names.
pub(super) struct Library {
    locks: Lockkeeper,
    held: Option<Guard>,
    /// Whether a release waits for its reply.
    waits: bool,
}

impl Library {
    /// Connects to the first of these daemons; the others are for failover.
    pub async fn daemons(daemons: &[String], keep: &str, waits: bool) -> Result<Library, ClientError> {
        Library::open(&format!("lockkeeper://{}?in-order&keep={keep}", daemons.join(",")), waits).await
    }

    /// Opens the locks in a folder.
    pub async fn file(folder: &[String]) -> Result<Library, ClientError> {
        Library::open(&format!("file://{}", folder.concat()), true).await
    }

    async fn open(url: &str, waits: bool) -> Result<Library, ClientError> {
        let locks = Lockkeeper::open(url).await?;
        Ok(Library { locks, held: None, waits })
    }
}

impl Client for Library {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        let guard = self.locks.mutex(lock.name).acquire().await?;
        let fence = guard.fence().map(Fence::get);
        self.held = Some(guard);
        Ok(fence)
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        match self.held.take() {
            Some(guard) if self.waits => Ok(guard.release().await?),
            guard => {
                drop(guard);
                Ok(())
            }
        }
    }
}
