//! State of the HTTP port, which serves both the JSON API and etcd's gRPC API.

use crate::access::{Denied, Permission, Principal};
use crate::context::DaemonContext;
use crate::credential::Credential;
use crate::leases::{CallerIdentity, LeaseError, Leases, Protocol, Watch};
use crate::list_permits::{ListPermit, ListPermits};
use crate::metrics::Metrics;
use crate::quotas::{Charge, Quotas, Resource, principal};
use crate::rights::Action;
use crate::snapshots::Snapshots;
use crate::worker::Worker;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// State of the HTTP port. The native protocol uses its quotas, metrics and snapshots, too.
pub struct ClientService {
    pub(crate) context: Arc<DaemonContext>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    /// The highest revision that an etcd client has received.
    pub(crate) revision: AtomicI64,
    /// Rate limit of each token. The number of entries is bounded by the token file.
    rates: DefaultKeyedRateLimiter<Arc<str>>,
    /// Limits the number of requests in progress.
    requests: Arc<Semaphore>,
    /// The usage of each principal.
    pub(crate) quotas: Arc<Quotas>,
    /// Snapshots of all locks, for lists.
    pub(crate) snapshots: Arc<Snapshots>,
    /// Limits the number of lists in progress.
    list_permits: ListPermits,
}

impl ClientService {
    /// Creates the state, starts the session service, and begins to reply to other daemons about its
    /// sessions. Fails if the thread for lists cannot be started.
    pub fn new(context: Arc<DaemonContext>) -> std::io::Result<Arc<Self>> {
        let metrics = Arc::new(Metrics::default());
        let mut registry = Registry::default();
        context.member.register_metrics(&mut registry);
        metrics.register(&mut registry);
        let worker = Arc::new(Worker::start()?);
        let quotas = Quotas::new(context.limits.clone(), metrics.clone(), Some(context.member.clone()));
        quotas.set_tokens(context.access.count());
        let leases = Leases::new(context.clone(), metrics.clone(), quotas.clone(), worker.clone());
        let (member, most_bytes) = (context.member.clone(), context.limits.list_bytes);
        let snapshots = Snapshots::new(member, worker, metrics.clone(), most_bytes);
        let list_permits = ListPermits::default();
        let rates = RateLimiter::keyed(Quota::per_second(context.limits.requests_per_second));
        let requests = Arc::new(Semaphore::new(context.limits.sessions.min(Semaphore::MAX_PERMITS)));
        let revision = AtomicI64::new(0);
        Ok(Arc::new(Self {
            context,
            leases,
            metrics,
            registry,
            revision,
            rates,
            requests,
            quotas,
            snapshots,
            list_permits,
        }))
    }

    /// The rate limiter of one connection.
    pub(crate) fn new_rate(&self) -> DefaultDirectRateLimiter {
        RateLimiter::direct(Quota::per_second(self.context.limits.requests_per_second))
    }

    /// Reserves one of the permits for requests in progress.
    pub(crate) fn request_permit(&self) -> Result<OwnedSemaphorePermit, LeaseError> {
        self.requests.clone().try_acquire_owned().map_err(|_| {
            self.metrics.refuse("requests");
            let what = String::from("too many requests are being answered by this daemon");
            LeaseError::LimitExceeded { what, limit: self.context.limits.sessions as u64 }
        })
    }

    /// The error for a caller that exceeds its rate limit.
    pub(crate) fn too_fast(&self) -> LeaseError {
        self.metrics.refuse("rate");
        let limit = u64::from(self.context.limits.requests_per_second.get());
        LeaseError::LimitExceeded { what: String::from("too many requests in a second"), limit }
    }

    /// Checks the rate limit of a principal.
    pub(crate) fn check_rate(&self, account: &Arc<str>) -> Result<(), LeaseError> {
        if self.rates.check_key(account).is_err() {
            return Err(self.too_fast());
        }
        Ok(())
    }

    /// The name under which quotas count the usage of a client.
    pub(crate) fn account(&self, who: &Principal, address: Option<IpAddr>) -> Arc<str> {
        principal(self.context.access.needs_token().then(|| who.name()), address)
    }

    /// Opens a watch stream and charges it to the principal until the charge is dropped.
    pub(crate) fn watch(
        &self,
        account: &Arc<str>,
        prefixes: Vec<String>,
    ) -> Result<(Watch, Charge), LeaseError> {
        let charge = self.charge_watch(account)?;
        Ok((self.leases.watch(prefixes), charge))
    }

    /// Charges a watch to the principal until the charge is dropped.
    pub(crate) fn charge_watch(&self, account: &Arc<str>) -> Result<Charge, LeaseError> {
        Ok(self.quotas.charge(account, Resource::Watches)?)
    }

    /// Waits for a permit to build a list. It is kept until the list has been sent. Default: each principal
    /// has at most a quarter of all permits, and at least one.
    pub(crate) async fn list_permit(&self, account: &Arc<str>) -> Result<ListPermit, LeaseError> {
        let limits = &self.context.limits;
        let own = limits.per_principal.lists.unwrap_or_else(|| (limits.lists / 4).max(1));
        let list_permit = self.list_permits.take(account, own, limits.lists);
        tokio::time::timeout(limits.request_timeout(), list_permit).await.map_err(|_| {
            self.metrics.refuse(Resource::Lists.name());
            let what = format!("too many lists of `{account}` at a time (limits.per_principal.lists)");
            LeaseError::LimitExceeded { what, limit: own as u64 }
        })
    }

    /// Drops the state of principals that have not sent requests for a while.
    pub(crate) fn forget_idle_principals(&self) {
        self.rates.retain_recent();
        self.quotas.set_tokens(self.context.access.count());
    }

    /// The daemon's metrics, for servers of other protocols.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(crate) fn authenticate(&self, protocol: Protocol, token: Option<&str>) -> Result<Principal, Denied> {
        let who = self.context.authenticate(protocol.name(), token);
        if who.is_err() {
            self.metrics.refuse("token");
        }
        who
    }

    pub(crate) fn check(
        &self,
        protocol: Protocol,
        who: &Principal,
        action: Action,
        lock: &str,
    ) -> Result<(), Denied> {
        let checked = self.context.check(protocol.name(), who, action, lock);
        if checked.is_err() {
            self.metrics.refuse("permission");
        }
        checked
    }

    /// Tracks the rights of a principal for a request or stream that lasts.
    pub(crate) fn credential(&self, who: &Principal) -> Credential {
        Credential::new(self.context.clone(), who.clone())
    }

    pub(crate) fn identity(&self, protocol: Protocol, who: &Principal, account: &Arc<str>) -> CallerIdentity {
        let admin = who.check(Permission::Admin, "").is_ok();
        CallerIdentity { protocol, token_name: who.name().to_string(), admin, account: account.to_string() }
    }
}
