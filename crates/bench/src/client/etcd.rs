//! etcd's lock API, of etcd itself and of lockkeeper's daemons: nothing here knows which of them answers.

use super::{Client, Lock};
use etcd_client::{LeaseKeepAliveStream, LeaseKeeper, LockClient, LockOptions};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a lease lasts that nobody keeps alive.
const TTL_S: i64 = 10;
/// How often it is kept alive.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// A client with a connection and a lease of its own.
pub(super) struct Etcd {
    locks: LockClient,
    lease: i64,
    held: Option<Vec<u8>>,
    keeping: JoinHandle<()>,
}

impl Etcd {
    /// Connected to the first of these servers alone, so that clients spread over them as they are told.
    pub async fn open(servers: &[String]) -> Result<Etcd, String> {
        let connected = etcd_client::Client::connect([&servers[0]], None).await;
        let mut client = connected.map_err(|error| error.to_string())?;
        let lease = client.lease_grant(TTL_S, None).await.map_err(|error| error.to_string())?.id();
        let (keeper, signs) = client.lease_keep_alive(lease).await.map_err(|error| error.to_string())?;
        let keeping = tokio::spawn(keep_alive(keeper, signs));
        Ok(Etcd { locks: client.lock_client(), lease, held: None, keeping })
    }
}

/// A lease that ends early is noticed by whoever locks with it.
async fn keep_alive(mut keeper: LeaseKeeper, mut signs: LeaseKeepAliveStream) {
    while keeper.keep_alive().await.is_ok() && matches!(signs.message().await, Ok(Some(_))) {
        tokio::time::sleep(KEEP_ALIVE).await;
    }
}

impl Client for Etcd {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, String> {
        let options = LockOptions::new().with_lease(self.lease);
        let mut locked =
            self.locks.lock(lock.name, Some(options)).await.map_err(|error| error.to_string())?;
        let revision = locked.take_header().map(|header| header.revision().unsigned_abs());
        self.held = Some(locked.key().to_vec());
        Ok(revision)
    }

    async fn release(&mut self) -> Result<(), String> {
        let Some(key) = self.held.take() else { return Ok(()) };
        self.locks.unlock(key).await.map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}
