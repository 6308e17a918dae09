//! What serves clients over HTTP: JSON, and etcd's gRPC, on one port.

use crate::access::{Denied, Permission, Principal};
use crate::credential::Credential;
use crate::leases::{Asker, Fault, Leases, Way};
use crate::metrics::Metrics;
use crate::rights::Action;
use crate::shared::Shared;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What serves clients over HTTP.
pub struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    /// The highest revision that an etcd client was told.
    pub(crate) revision: AtomicI64,
    /// How often each token may ask. There are as many as the file of tokens has.
    rates: DefaultKeyedRateLimiter<Arc<str>>,
    /// Room for what is being answered.
    room: Arc<Semaphore>,
}

impl Front {
    /// Begins to have sessions, and to answer other daemons about them.
    pub fn new(shared: Arc<Shared>) -> Arc<Self> {
        let metrics = Arc::new(Metrics::default());
        let mut registry = Registry::default();
        shared.member.register_metrics(&mut registry);
        metrics.register(&mut registry);
        let leases = Leases::new(shared.clone(), metrics.clone());
        let rates = RateLimiter::keyed(Quota::per_second(shared.limits.requests_per_second));
        let room = Arc::new(Semaphore::new(shared.limits.sessions.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { shared, leases, metrics, registry, revision: AtomicI64::new(0), rates, room })
    }

    /// How often one connection may ask.
    pub(crate) fn new_rate(&self) -> DefaultDirectRateLimiter {
        RateLimiter::direct(Quota::per_second(self.shared.limits.requests_per_second))
    }

    /// A place for a request while it is answered.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            self.metrics.refuse("requests");
            let what = String::from("too many requests are being answered by this daemon");
            Fault::TooMany { what, limit: self.shared.limits.sessions as u64 }
        })
    }

    /// Whoever asks too often is refused.
    pub(crate) fn too_fast(&self) -> Fault {
        self.metrics.refuse("rate");
        let limit = u64::from(self.shared.limits.requests_per_second.get());
        Fault::TooMany { what: String::from("too many requests in a second"), limit }
    }

    /// Whether a token asks too often. Where nobody has one, connections are counted alone.
    pub(crate) fn check_rate(&self, who: &Principal) -> Result<(), Fault> {
        if self.shared.access.needs_token() && self.rates.check_key(who.name()).is_err() {
            return Err(self.too_fast());
        }
        Ok(())
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

    pub(crate) fn check(&self, by: Way, who: &Principal, action: Action, lock: &str) -> Result<(), Denied> {
        let checked = self.shared.check(by.name(), who, action, lock);
        if checked.is_err() {
            self.metrics.refuse("permission");
        }
        checked
    }

    /// Follows the rights of a principal, for a request or a stream that lasts.
    pub(crate) fn credential(&self, who: &Principal) -> Credential {
        Credential::new(self.shared.clone(), who.clone())
    }

    pub(crate) fn asker(&self, by: Way, who: &Principal) -> Asker {
        let admin = who.check(Permission::Admin, "").is_ok();
        Asker { by, who: who.name().to_string(), admin }
    }
}
