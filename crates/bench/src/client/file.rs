//! The library's engine for files.

use super::{Client, Lock};
use lockkeeper::{Guard, Lockkeeper};

/// A client of the locks in a folder.
pub(super) struct File {
    locks: Lockkeeper,
    held: Option<Guard>,
}

impl File {
    /// The locks in the one folder that is named.
    pub async fn open(folder: &[String]) -> Result<File, String> {
        let url = format!("file://{}", folder.concat());
        let locks = Lockkeeper::open(&url).await.map_err(|error| error.to_string())?;
        Ok(File { locks, held: None })
    }
}

impl Client for File {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, String> {
        let guard = self.locks.mutex(lock.name).acquire().await.map_err(|error| error.to_string())?;
        let fence = guard.fence();
        self.held = Some(guard);
        Ok(Some(fence))
    }

    async fn release(&mut self) -> Result<(), String> {
        match self.held.take() {
            Some(guard) => guard.release().await.map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}
