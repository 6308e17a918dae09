//! Quotas: the usage of each principal and its limits.
//!
//! A principal is a token or, where no tokens are needed, an address. Three rules apply to each request for a
//! resource:
//!
//! 1. The principal stays within its own limit, where the configuration sets one (`limits.per_principal`).
//! 2. All principals together stay within the limit of the daemon.
//! 3. Once half of the daemon's limit is in use, a principal that has its fair share gets no more. The fair
//!    share is the limit divided by the number of principals. A single principal may thus use the whole
//!    limit, and one among several cannot exhaust it. Example: with `sessions = 100` and 4 principals the
//!    share is 25. The first principal gets 50 sessions if the others use none, and then is refused; each of
//!    the others still gets 25.

use crate::limits::Limits;
use crate::metrics::Metrics;
use lockkeeper_cluster::Member;
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The principal of clients on this machine, where no tokens are needed.
const THIS_MACHINE: &str = "this machine";

/// A resource that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Sessions,
    Holds,
    Waits,
    Names,
    Watches,
    Lists,
}

impl Resource {
    /// Its name in the configuration and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Holds => "holds",
            Self::Waits => "waits",
            Self::Names => "names",
            Self::Watches => "watches",
            Self::Lists => "lists",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Names => "different locks",
            Self::Watches => "watch streams",
            Self::Lists => "lists at a time",
            other => other.name(),
        }
    }
}

/// A request for more than a quota allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub resource: Resource,
    /// The principal; empty if the limit is that of all principals together.
    who: String,
    /// The limit that was reached.
    pub limit: usize,
    fair: bool,
}

impl Exceeded {
    /// A description of the limit, without its value.
    pub fn what(&self) -> String {
        let (what, name) = (self.resource.text(), self.resource.name());
        match (self.who.as_str(), self.fair) {
            ("", _) => format!("too many {what} at this daemon (limits.{name})"),
            (who, false) => format!("too many {what} of `{who}` (limits.per_principal.{name})"),
            (who, true) => format!(
                "too many {what} of `{who}`, which has its fair share of limits.{name} while others need the rest"
            ),
        }
    }
}

impl std::error::Error for Exceeded {}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, what, name) = (self.limit, self.resource.text(), self.resource.name());
        match (self.who.as_str(), self.fair) {
            ("", _) => write!(f, "this daemon serves at most {limit} {what} (limits.{name})"),
            (who, false) => write!(f, "`{who}` has at most {limit} {what} (limits.per_principal.{name})"),
            (who, true) => write!(
                f,
                "`{who}` has at most {limit} {what}: its fair share of limits.{name} while others need the rest"
            ),
        }
    }
}

/// The usage of one principal.
#[derive(Default)]
struct Usage {
    counts: [usize; 6],
    /// Number of holds and waits by the hash of the lock's name. A name with a count of 0 still occupies an
    /// entry in the member's table until the next view.
    names: HashMap<u64, u32>,
}

impl Usage {
    fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0) && self.names.is_empty()
    }
}

#[derive(Default)]
struct State {
    principals: HashMap<Arc<str>, Usage>,
    total: [usize; 6],
    epoch: u64,
}

/// The usage of all principals, and the limits.
pub(crate) struct Quotas {
    limits: Limits,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    hasher: RandomState,
    /// Number of tokens; 0 where none is needed.
    tokens: AtomicUsize,
    /// Number of names for which the member's table has room.
    most_names: AtomicUsize,
    /// The member and its views; `None` in unit tests.
    member: Option<(Member, Mutex<watch::Receiver<u64>>)>,
}

/// The name under which quotas count the usage of a client.
pub(crate) fn principal(token: Option<&Arc<str>>, address: Option<IpAddr>) -> Arc<str> {
    match (token, address) {
        (Some(token), _) => token.clone(),
        (None, Some(address)) if !address.to_canonical().is_loopback() => {
            Arc::from(address.to_canonical().to_string())
        }
        (None, _) => Arc::from(THIS_MACHINE),
    }
}

impl Quotas {
    pub fn new(limits: Limits, metrics: Arc<Metrics>, member: Option<Member>) -> Arc<Self> {
        let member = member.map(|member| {
            let views = member.status_changes();
            (member, Mutex::new(views))
        });
        let (state, hasher) = (Mutex::default(), RandomState::new());
        let (tokens, most_names) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { limits, metrics, state, hasher, tokens, most_names, member })
    }

    /// Sets the number of tokens in the token file.
    pub fn set_tokens(&self, tokens: usize) {
        self.tokens.store(tokens, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of principals among which a limit is shared.
    fn sharers(&self, state: &State, who: &str) -> usize {
        let known = state.principals.len() + usize::from(!state.principals.contains_key(who));
        match self.tokens.load(Ordering::Relaxed) {
            // A client from another address may connect at any time; the clients on this machine cannot be
            // distinguished.
            0 if who != THIS_MACHINE => known.max(2),
            tokens => known.max(tokens),
        }
    }

    fn limit(&self, resource: Resource) -> (Option<usize>, usize) {
        let (own, all) = (&self.limits.per_principal, &self.limits);
        match resource {
            Resource::Sessions => (own.sessions, all.sessions),
            Resource::Holds => (own.holds, all.holds),
            Resource::Waits => (own.waits, all.waits),
            Resource::Watches => (own.watches, all.watches),
            Resource::Lists => (own.lists, all.lists),
            // The member enforces the total number of names.
            Resource::Names => (own.names, self.most_names.load(Ordering::Relaxed)),
        }
    }

    /// Checks whether a principal that uses `own` units of a resource may use one more.
    fn check(&self, state: &State, who: &str, resource: Resource, own: usize) -> Result<(), Exceeded> {
        let (most_own, most) = self.limit(resource);
        let total = state.total[resource as usize];
        let exceeded = |limit, fair| Exceeded { resource, who: String::from(who), limit, fair };
        if let Some(most_own) = most_own.filter(|most| own >= *most) {
            return Err(exceeded(most_own, false));
        }
        if total >= most && resource != Resource::Names {
            return Err(Exceeded { who: String::new(), ..exceeded(most, false) });
        }
        // Example: a limit of 100 and 4 principals give a share of 25. A principal with 30 units may take more while
        // less than 50 are in use in total; from 50 on it is refused, and those below 25 still get units.
        let share = (most / self.sharers(state, who)).max(1);
        if total >= most / 2 && own >= share && share < most {
            return Err(exceeded(share, true));
        }
        Ok(())
    }

    fn refuse(&self, exceeded: Exceeded) -> Exceeded {
        self.metrics.refuse(exceeded.resource.name());
        exceeded
    }

    /// Charges one unit of a resource to a principal until the returned charge is dropped.
    pub fn charge(self: &Arc<Self>, who: &Arc<str>, resource: Resource) -> Result<Charge, Exceeded> {
        let state = &mut *self.state();
        let own = state.principals.get(who).map_or(0, |usage| usage.counts[resource as usize]);
        self.check(state, who, resource, own).map_err(|exceeded| self.refuse(exceeded))?;
        state.principals.entry(who.clone()).or_default().counts[resource as usize] += 1;
        state.total[resource as usize] += 1;
        Ok(Charge { quotas: self.clone(), who: who.clone(), resource })
    }

    /// Charges an adopted session to its principal. The limit was checked when the session was created, at another daemon.
    pub fn adopt_session(self: &Arc<Self>, who: &Arc<str>) -> Charge {
        let state = &mut *self.state();
        let resource = Resource::Sessions;
        state.principals.entry(who.clone()).or_default().counts[resource as usize] += 1;
        state.total[resource as usize] += 1;
        Charge { quotas: self.clone(), who: who.clone(), resource }
    }

    /// Charges the wait of an adopted hold, like [`adopt_session`](Self::adopt_session).
    pub fn adopt_wait(self: &Arc<Self>, who: &Arc<str>, lock: &str) -> LockCharge {
        let state = &mut *self.state();
        self.charge_wait(state, who, lock)
    }

    /// Charges a wait for a lock until the returned charge is dropped. The wait becomes a hold once it is
    /// granted.
    pub fn wait(self: &Arc<Self>, who: &Arc<str>, lock: &str) -> Result<LockCharge, Exceeded> {
        let name = self.hasher.hash_one(lock);
        let state = &mut *self.state();
        let usage = state.principals.get(who);
        let own = |resource: Resource| usage.map_or(0, |usage| usage.counts[resource as usize]);
        let names = usage.map_or(0, |usage| usage.names.len());
        let is_new = usage.is_none_or(|usage| !usage.names.contains_key(&name));
        let checked = self.check(state, who, Resource::Waits, own(Resource::Waits)).and_then(|()| {
            self.check(state, who, Resource::Holds, own(Resource::Holds))?;
            if is_new { self.check(state, who, Resource::Names, names) } else { Ok(()) }
        });
        checked.map_err(|exceeded| self.refuse(exceeded))?;
        Ok(self.charge_wait(state, who, lock))
    }

    fn charge_wait(self: &Arc<Self>, state: &mut State, who: &Arc<str>, lock: &str) -> LockCharge {
        let name = self.hasher.hash_one(lock);
        let usage = state.principals.entry(who.clone()).or_default();
        let uses = usage.names.entry(name);
        let is_new = matches!(uses, Entry::Vacant(_));
        *uses.or_default() += 1;
        usage.counts[Resource::Waits as usize] += 1;
        state.total[Resource::Names as usize] += usize::from(is_new);
        state.total[Resource::Waits as usize] += 1;
        LockCharge { quotas: self.clone(), who: who.clone(), name, held: false }
    }

    /// Follows the views of the member: a view change drops idle locks from its table. Call this before
    /// charging a wait and without holding a mutex, because it locks the member, whose callbacks change
    /// charges.
    pub fn follow_views(&self) {
        let Some((member, views)) = &self.member else { return };
        let changed = {
            let mut views = views.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = views.has_changed().unwrap_or(false);
            views.mark_unchanged();
            changed
        };
        if !changed && self.most_names.load(Ordering::Relaxed) != usize::MAX {
            return;
        }
        self.most_names.store(member.most_own_locks(), Ordering::Relaxed);
        let Some(view) = member.status().view else { return };
        let state = &mut *self.state();
        if std::mem::replace(&mut state.epoch, view.epoch) != view.epoch {
            for usage in state.principals.values_mut() {
                usage.names.retain(|_, uses| *uses > 0);
            }
            let names = state.principals.values().map(|usage| usage.names.len());
            state.total[Resource::Names as usize] = names.sum();
            state.principals.retain(|_, usage| !usage.is_empty());
        }
    }

    /// Whether names that are not in use must be counted. They need not if a single principal may use the
    /// whole table.
    fn counts_idle_names(&self, state: &State, who: &str) -> bool {
        self.limits.per_principal.names.is_some() || self.sharers(state, who) > 1
    }

    fn discharge(&self, state: &mut State, who: &Arc<str>, resource: Resource) {
        state.total[resource as usize] = state.total[resource as usize].saturating_sub(1);
        if let Some(usage) = state.principals.get_mut(who) {
            usage.counts[resource as usize] = usage.counts[resource as usize].saturating_sub(1);
            if usage.is_empty() {
                state.principals.remove(who);
            }
        }
    }
}

/// One unit of a resource in use by a principal.
pub(crate) struct Charge {
    quotas: Arc<Quotas>,
    who: Arc<str>,
    resource: Resource,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quotas.discharge(&mut self.quotas.state(), &self.who, self.resource);
    }
}

/// A wait of a principal for a lock, or a hold of it.
pub(crate) struct LockCharge {
    quotas: Arc<Quotas>,
    who: Arc<str>,
    name: u64,
    held: bool,
}

impl LockCharge {
    /// Turns the wait into a hold. This cannot fail: the limit of holds was checked when the wait began.
    pub fn grant(&mut self) {
        if std::mem::replace(&mut self.held, true) {
            return;
        }
        let state = &mut *self.quotas.state();
        let mut change = |resource: Resource, more: bool| {
            let change = |count: &mut usize| *count = if more { *count + 1 } else { count.saturating_sub(1) };
            change(&mut state.total[resource as usize]);
            if let Some(usage) = state.principals.get_mut(&self.who) {
                change(&mut usage.counts[resource as usize]);
            }
        };
        change(Resource::Waits, false);
        change(Resource::Holds, true);
    }
}

impl Drop for LockCharge {
    fn drop(&mut self) {
        let state = &mut *self.quotas.state();
        let keeps = self.quotas.counts_idle_names(state, &self.who);
        if let Some(usage) = state.principals.get_mut(&self.who)
            && let Some(uses) = usage.names.get_mut(&self.name)
        {
            *uses = uses.saturating_sub(1);
            if *uses == 0 && !keeps {
                usage.names.remove(&self.name);
                state.total[Resource::Names as usize] -= 1;
            }
        }
        let resource = if self.held { Resource::Holds } else { Resource::Waits };
        self.quotas.discharge(state, &self.who, resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PerPrincipal;

    fn quotas(limits: Limits, tokens: usize) -> (Arc<Quotas>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        let quotas = Quotas::new(limits, metrics.clone(), None);
        quotas.set_tokens(tokens);
        (quotas, metrics)
    }

    fn take(quotas: &Arc<Quotas>, who: &str, most: usize) -> (Vec<Charge>, Option<Exceeded>) {
        let mut taken = Vec::new();
        for _ in 0..most {
            match quotas.charge(&Arc::from(who), Resource::Sessions) {
                Ok(charge) => taken.push(charge),
                Err(exceeded) => return (taken, Some(exceeded)),
            }
        }
        (taken, None)
    }

    #[test]
    fn principal_above_its_fair_share_is_refused_first() {
        let (quotas, _) = quotas(Limits { sessions: 100, ..Limits::default() }, 4);
        let (greedy, why) = take(&quotas, "greedy", 1000);
        assert_eq!(greedy.len(), 50, "half of the limit; from there on its share of 25 applies");
        let why = why.unwrap().to_string();
        assert!(why.contains("`greedy`") && why.contains("limits.sessions") && why.contains("25"), "{why}");
        // Each of the others gets its whole share, including the last one.
        let others: Vec<_> = ["a", "b"].iter().map(|who| take(&quotas, who, 25)).collect();
        assert!(others.iter().all(|(taken, refused)| taken.len() == 25 && refused.is_none()));
        let (_, why) = take(&quotas, "c", 1);
        assert!(why.unwrap().to_string().contains("this daemon serves"), "all 100 are in use");
        drop(greedy);
        // The others use half of the limit, so the fair share applies.
        assert_eq!(take(&quotas, "c", 1000).0.len(), 25);
    }

    #[test]
    fn principal_alone_may_use_everything_up_to_its_own_limit() {
        let limits = Limits { sessions: 100, ..Limits::default() };
        assert_eq!(take(&quotas(limits.clone(), 1).0, "only", 1000).0.len(), 100);
        assert_eq!(take(&quotas(limits.clone(), 0).0, THIS_MACHINE, 1000).0.len(), 100);
        assert_eq!(take(&quotas(limits.clone(), 0).0, "192.0.2.1", 1000).0.len(), 50, "others may come");
        let own = PerPrincipal { sessions: Some(7), ..PerPrincipal::default() };
        let (taken, why) = take(&quotas(Limits { per_principal: own, ..limits }, 1).0, "only", 1000);
        assert_eq!(taken.len(), 7);
        assert!(why.unwrap().to_string().contains("at most 7 sessions (limits.per_principal.sessions)"));
    }

    #[test]
    fn names_waits_and_holds_are_counted_for_each_principal() {
        let own = PerPrincipal { names: Some(3), holds: Some(2), waits: Some(4), ..PerPrincipal::default() };
        let (quotas, metrics) = quotas(Limits { per_principal: own, ..Limits::default() }, 2);
        let (one, other) = (Arc::from("one"), Arc::from("other"));
        let wait = |who: &Arc<str>, lock: &str| quotas.wait(who, lock);
        let mut charges: Vec<_> = ["a", "b", "c"].map(|lock| wait(&one, lock).unwrap()).into();
        assert_eq!(wait(&one, "d").err().unwrap().resource, Resource::Names);
        charges.push(wait(&one, "a").unwrap());
        assert_eq!(wait(&one, "a").err().unwrap().resource, Resource::Waits);
        charges[0].grant();
        charges[1].grant();
        assert_eq!(wait(&one, "a").err().unwrap().resource, Resource::Holds);
        wait(&other, "d").unwrap();
        charges.clear();
        // Released names stay in the member's table until the next view.
        assert_eq!(wait(&one, "d").err().unwrap().resource, Resource::Names);
        wait(&one, "b").unwrap();
        assert_eq!(metrics.refused("names"), 2);
    }
}
