//! What serves clients over HTTP: JSON, and etcd's gRPC, on one port.

use crate::access::{Denied, Permission, Principal};
use crate::leases::{Asker, Leases, Way};
use crate::metrics::Metrics;
use crate::shared::Shared;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// What serves clients over HTTP.
pub struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    /// The highest revision that an etcd client was told.
    pub(crate) revision: AtomicI64,
}

impl Front {
    /// Begins to have sessions, and to answer other daemons about them.
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        let metrics = Arc::new(Metrics::default());
        let mut registry = Registry::default();
        shared.member.register_metrics(&mut registry);
        metrics.register(&mut registry);
        let leases = Leases::new(shared.clone(), metrics.clone());
        Arc::new(Self { shared, leases, metrics, registry, revision: AtomicI64::new(0) })
    }

    /// The daemon's counters, for those who serve clients by other ways.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(crate) fn who(&self, by: Way, token: Option<&str>) -> Result<Principal, Denied> {
        let who = self.shared.who(by.name(), token);
        if who.is_err() {
            self.metrics.refuse("token");
        }
        who
    }

    pub(crate) fn check(
        &self,
        by: Way,
        who: &Principal,
        permission: Permission,
        lock: &str,
    ) -> Result<(), Denied> {
        let checked = self.shared.check(by.name(), who, permission, lock);
        if checked.is_err() {
            self.metrics.refuse("permission");
        }
        checked
    }

    /// Whether somebody may see a lock: whoever may acquire it may.
    pub(crate) fn check_sees(&self, by: Way, who: &Principal, lock: &str) -> Result<(), Denied> {
        if who.sees(lock) {
            return Ok(());
        }
        self.check(by, who, Permission::Observe, lock)
    }

    pub(crate) fn asker(&self, by: Way, who: &Principal) -> Asker {
        let admin = who.check(Permission::Admin, "").is_ok();
        Asker { by, who: who.name().to_string(), admin }
    }
}
