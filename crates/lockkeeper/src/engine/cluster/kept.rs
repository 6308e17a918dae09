//! Locks that are kept for some time after their holder has released them: `Acquire::at_least`.
//!
//! The time to live of such a hold is at least that long, so the cluster keeps the lock when the process or its machine
//! dies. A process that lives releases the lock when the time is over; one that ends earlier leaves its session behind,
//! without closing it.

use super::client::Client;
use super::link::RequestLocation;
use crate::Loss;
use crate::lease::Lease;
use lockkeeper_system::lease_clock::now_ns;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

/// The time for which a lock is kept.
pub(super) struct KeptUntil {
    pub until_ns: u64,
    /// The lease of the hold.
    pub lease: Lease,
    /// The runtime on which the lock is released, if it still runs then.
    pub runtime: Handle,
}

/// A lock whose holder has released it before its time is over.
struct KeptLock {
    location: Option<Arc<Mutex<RequestLocation>>>,
    /// Keeps the connection open.
    _client: Arc<Client>,
}

impl Drop for KeptLock {
    fn drop(&mut self) {
        // The runtime ends before the time is over.
        if let Some(location) = self.location.take() {
            let link = location.lock().unwrap_or_else(|e| e.into_inner()).link.clone();
            link.leave_behind();
        }
    }
}

impl KeptUntil {
    /// Whether the time is over, or an operator has revoked the hold.
    pub fn is_over(&self) -> bool {
        now_ns() >= self.until_ns || self.lease.is_revoked()
    }

    /// Releases the lock when the time is over.
    pub fn release_later(self, location: Arc<Mutex<RequestLocation>>, client: Arc<Client>) {
        let mut kept = KeptLock { location: Some(location), _client: client };
        let KeptUntil { until_ns, lease, runtime } = self;
        runtime.spawn(async move {
            // The clock of the timer does not count the time in which the machine is suspended.
            let over = tokio::time::sleep(Duration::from_nanos(until_ns.saturating_sub(now_ns())));
            tokio::select! {
                () = over => {}
                () = revoked(&lease) => {}
            }
            if let Some(location) = kept.location.take() {
                RequestLocation::leave(&location);
            }
        });
    }
}

/// Resolves when the hold is revoked. A hold that is lost in another way is kept nevertheless.
async fn revoked(lease: &Lease) {
    if !matches!(lease.lost().await, Loss::Revoked { .. }) {
        std::future::pending().await
    }
}
