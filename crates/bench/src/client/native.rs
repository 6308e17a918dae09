//! The library's own client.

use super::{Client, Lock};
use lockkeeper::{Guard, Lockkeeper};

/// A client of lockkeeper's daemons.
pub(super) struct Native {
    locks: Lockkeeper,
    held: Option<Guard>,
    /// Whether a release is waited for.
    waits: bool,
}

impl Native {
    /// Connected to the first of these daemons; the others are for when that one goes away.
    pub async fn open(daemons: &[String], waits: bool) -> Result<Native, String> {
        let url = format!("lockkeeper://{}?in-order", daemons.join(","));
        let locks = Lockkeeper::open(&url).await.map_err(|error| error.to_string())?;
        Ok(Native { locks, held: None, waits })
    }
}

impl Client for Native {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, String> {
        let guard = self.locks.mutex(lock.name).acquire().await.map_err(|error| error.to_string())?;
        let fence = guard.fence();
        self.held = Some(guard);
        Ok(Some(fence))
    }

    async fn release(&mut self) -> Result<(), String> {
        match self.held.take() {
            Some(guard) if self.waits => guard.release().await.map_err(|error| error.to_string()),
            guard => {
                drop(guard);
                Ok(())
            }
        }
    }
}
