//! etcd's lock API, of etcd itself and of lockkeeper's daemons; the code is the same for both.

use super::{Client, ClientError, Lock};
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest};
use lockkeeper_etcd_api::v3lockpb::lock_client::LockClient;
use lockkeeper_etcd_api::v3lockpb::{LockRequest, UnlockRequest};
use std::time::Duration;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// Time to live of a lease that is not kept alive.
const TTL_S: i64 = 10;
/// Interval between two keep-alives.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// A client with a connection and a lease of its own.
pub(super) struct Etcd {
    locks: LockClient<Channel>,
    lease: i64,
    held: Option<Vec<u8>>,
    keeping: JoinHandle<()>,
}

impl Etcd {
    /// Connects to the first of these servers alone, so that the caller spreads clients over the servers.
    pub async fn open(servers: &[String]) -> Result<Etcd, ClientError> {
        let endpoint = Endpoint::from_shared(format!("http://{}", servers[0]))?;
        let channel = endpoint.connect().await?;
        let mut leases = LeaseClient::new(channel.clone());
        let granted = leases.lease_grant(LeaseGrantRequest { ttl: TTL_S, id: 0 }).await;
        let lease = granted.map_err(rejected)?.into_inner().id;
        let keeping = tokio::spawn(keep_alive(leases, lease));
        Ok(Etcd { locks: LockClient::new(channel), lease, held: None, keeping })
    }
}

fn rejected(status: tonic::Status) -> ClientError {
    ClientError::Etcd(Box::new(status))
}

/// Keeps a lease alive over one stream. If the lease ends early, the next lock request fails.
async fn keep_alive(mut leases: LeaseClient<Channel>, id: i64) {
    let requests = futures_util::stream::unfold(true, move |first| async move {
        if !first {
            tokio::time::sleep(KEEP_ALIVE).await;
        }
        Some((LeaseKeepAliveRequest { id }, false))
    });
    if let Ok(replies) = leases.lease_keep_alive(requests).await {
        let mut replies = replies.into_inner();
        while let Ok(Some(_)) = replies.message().await {}
    }
}

impl Client for Etcd {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        let request = LockRequest { name: lock.name.into(), lease: self.lease };
        let locked = self.locks.lock(request).await.map_err(rejected)?.into_inner();
        self.held = Some(locked.key);
        Ok(locked.header.map(|header| header.revision.unsigned_abs()))
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        let Some(key) = self.held.take() else { return Ok(()) };
        self.locks.unlock(UnlockRequest { key }).await.map(drop).map_err(rejected)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}
