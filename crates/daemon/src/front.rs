//! What serves clients over HTTP: JSON, and etcd's gRPC, on one port.

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
    /// What every principal uses.
    pub(crate) quotas: Arc<Quotas>,
    /// The table of all locks, for lists.
    pub(crate) snapshots: Arc<Snapshots>,
    /// Turns for making lists.
    turns: Turns,
}

impl Front {
    /// Begins to have sessions, and to answer other daemons about them.
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

    /// Whether a principal asks too often.
    pub(crate) fn check_rate(&self, account: &Arc<str>) -> Result<(), Fault> {
        if self.rates.check_key(account).is_err() {
            return Err(self.too_fast());
        }
        Ok(())
    }

    /// Under which name quotas count what a client uses.
    pub(crate) fn account(&self, who: &Principal, address: Option<IpAddr>) -> Arc<str> {
        principal(self.shared.access.needs_token().then(|| who.name()), address)
    }

    /// Counts a watch stream for as long as it lasts.
    pub(crate) fn watch(&self, account: &Arc<str>, prefixes: Vec<String>) -> Result<(Watch, Charge), Fault> {
        let charge = self.quotas.charge(account, Resource::Watches)?;
        Ok((self.leases.watch(prefixes), charge))
    }

    /// A turn to make a list, once there is one: it lasts until the list is sent. A principal has one turn at a time, unless the
    /// configuration gives it more.
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

    /// Drops what is known of principals that have not come for a while.
    pub(crate) fn tidy(&self) {
        self.rates.retain_recent();
        self.quotas.set_tokens(self.shared.access.count());
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

    pub(crate) fn asker(&self, by: Way, who: &Principal, account: &Arc<str>) -> Asker {
        let admin = who.check(Permission::Admin, "").is_ok();
        Asker { by, who: who.name().to_string(), admin, account: account.to_string() }
    }
}
