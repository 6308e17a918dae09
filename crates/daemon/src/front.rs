//! State of the HTTP port, which serves both the JSON API and etcd's gRPC API.

use crate::access::{Denied, Permission, Principal};
use crate::credential::Credential;
use crate::leases::{Asker, Fault, Leases, Watch, Way};
use crate::metrics::Metrics;
use crate::quotas::{Charge, Quotas, Resource, principal};
use crate::rights::Action;
use crate::shared::Shared;
use crate::snapshots::Snapshots;
use crate::turns::{Turn, Turns};
use crate::worker::Worker;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// State of the HTTP port. The native protocol uses its quotas, metrics and snapshots, too.
pub struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    /// The highest revision that an etcd client has received.
    pub(crate) revision: AtomicI64,
    /// Rate limit of each token. The number of entries is bounded by the token file.
    rates: DefaultKeyedRateLimiter<Arc<str>>,
    /// Limits the number of requests in progress.
    room: Arc<Semaphore>,
    /// The usage of each principal.
    pub(crate) quotas: Arc<Quotas>,
    /// Snapshots of all locks, for lists.
    pub(crate) snapshots: Arc<Snapshots>,
    /// Limits the number of lists in progress.
    turns: Turns,
}

impl Front {
    /// Creates the state, starts the session service, and begins to reply to other daemons about its
    /// sessions.
    pub fn new(shared: Arc<Shared>) -> Result<Arc<Self>, String> {
        let metrics = Arc::new(Metrics::default());
        let mut registry = Registry::default();
        shared.member.register_metrics(&mut registry);
        metrics.register(&mut registry);
        let worker = Arc::new(Worker::start()?);
        let quotas = Quotas::new(shared.limits.clone(), metrics.clone(), Some(shared.member.clone()));
        quotas.set_tokens(shared.access.count());
        let leases = Leases::new(shared.clone(), metrics.clone(), quotas.clone(), worker.clone());
        let (member, most_bytes) = (shared.member.clone(), shared.limits.list_bytes);
        let snapshots = Snapshots::new(member, worker, metrics.clone(), most_bytes);
        let turns = Turns::default();
        let rates = RateLimiter::keyed(Quota::per_second(shared.limits.requests_per_second));
        let room = Arc::new(Semaphore::new(shared.limits.sessions.min(Semaphore::MAX_PERMITS)));
        let revision = AtomicI64::new(0);
        Ok(Arc::new(Self {
            shared,
            leases,
            metrics,
            registry,
            revision,
            rates,
            room,
            quotas,
            snapshots,
            turns,
        }))
    }

    /// The rate limiter of one connection.
    pub(crate) fn new_rate(&self) -> DefaultDirectRateLimiter {
        RateLimiter::direct(Quota::per_second(self.shared.limits.requests_per_second))
    }

    /// Reserves a place among the requests in progress.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            self.metrics.refuse("requests");
            let what = String::from("too many requests are being answered by this daemon");
            Fault::TooMany { what, limit: self.shared.limits.sessions as u64 }
        })
    }

    /// The error for a caller that exceeds its rate limit.
    pub(crate) fn too_fast(&self) -> Fault {
        self.metrics.refuse("rate");
        let limit = u64::from(self.shared.limits.requests_per_second.get());
        Fault::TooMany { what: String::from("too many requests in a second"), limit }
    }

    /// Checks the rate limit of a principal.
    pub(crate) fn check_rate(&self, account: &Arc<str>) -> Result<(), Fault> {
        if self.rates.check_key(account).is_err() {
            return Err(self.too_fast());
        }
        Ok(())
    }

    /// The name under which quotas count the usage of a client.
    pub(crate) fn account(&self, who: &Principal, address: Option<IpAddr>) -> Arc<str> {
        principal(self.shared.access.needs_token().then(|| who.name()), address)
    }

    /// Opens a watch stream and charges it to the principal until the charge is dropped.
    pub(crate) fn watch(&self, account: &Arc<str>, prefixes: Vec<String>) -> Result<(Watch, Charge), Fault> {
        let charge = self.quotas.charge(account, Resource::Watches)?;
        Ok((self.leases.watch(prefixes), charge))
    }

    /// Waits for a turn to build a list. The turn lasts until the list has been sent. Default: each principal
    /// has at most a quarter of all turns, and at least one.
    pub(crate) async fn turn(&self, account: &Arc<str>) -> Result<Turn, Fault> {
        let limits = &self.shared.limits;
        let own = limits.per_principal.lists.unwrap_or_else(|| (limits.lists / 4).max(1));
        let turn = self.turns.take(account, own, limits.lists);
        tokio::time::timeout(limits.patience(), turn).await.map_err(|_| {
            self.metrics.refuse(Resource::Lists.name());
            let what = format!("too many lists of `{account}` at a time (limits.per_principal.lists)");
            Fault::TooMany { what, limit: own as u64 }
        })
    }

    /// Drops the state of principals that have not sent requests for a while.
    pub(crate) fn tidy(&self) {
        self.rates.retain_recent();
        self.quotas.set_tokens(self.shared.access.count());
    }

    /// The daemon's metrics, for servers of other protocols.
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

    /// Tracks the rights of a principal for a request or stream that lasts.
    pub(crate) fn credential(&self, who: &Principal) -> Credential {
        Credential::new(self.shared.clone(), who.clone())
    }

    pub(crate) fn asker(&self, by: Way, who: &Principal, account: &Arc<str>) -> Asker {
        let admin = who.check(Permission::Admin, "").is_ok();
        Asker { by, who: who.name().to_string(), admin, account: account.to_string() }
    }
}
