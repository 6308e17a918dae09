//! Clients of HTTP and of etcd's API. They have no session of their own: a lease at one daemon holds their locks by
//! means of a local session.
//!
//! A tenant renews its lease with one message that also contains its current request, so every message may be lost,
//! duplicated and reordered. The daemon counts the time to live from the arrival of the renewal, and replies for
//! how long the hold is valid. The tenant counts that time from when it *sent* the renewal, on its own clock.
//! Because both clocks drift, the daemon reports less than the remaining time: even on the slowest tenant's clock
//! the hold ends before the lease ends on the fastest daemon's clock.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::simulator::rng::Rng;
use lockkeeper_member::{Fence, LockName, LockRequest, SessionId};
use lockkeeper_session::{ClientSession, Progress};

/// The renewal that a tenant sends to its daemon.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// When it was sent, on the tenant's clock. The reply repeats this value.
    pub sent_ns: u64,
    /// The number of the tenant's request. A higher one replaces a lower one.
    pub request: u64,
    /// The request; `None` if the tenant neither holds nor requests a lock.
    pub lock_request: Option<LockRequest>,
}

/// A renewal on its way to a daemon.
#[derive(Clone, Debug)]
pub struct SentRenewal {
    /// The tenant that sent it.
    pub tenant: usize,
    /// The daemon.
    pub daemon: usize,
    /// The number of boots of the daemon's machine when the renewal was sent. A later boot does not receive it.
    pub boot: u64,
    /// The renewal.
    pub renewal: Renewal,
}

/// The daemon's reply to a renewal.
#[derive(Clone, Debug)]
pub struct RenewalReply {
    /// The value of the renewal.
    pub sent_ns: u64,
    /// The request to which the reply refers.
    pub request: u64,
    /// Whether the daemon's member can grant locks.
    pub serves: bool,
    /// Whether the hold of this request was lost or revoked, or the member rejected the request because its table
    /// was full.
    pub lost: bool,
    /// The hold, the time for which it is valid, and its fence.
    pub held: Option<(HoldId, u64, Option<Fence>)>,
}

/// The identity of a hold: the daemon's session and the number of the acquisition. It is never reused.
pub type HoldId = (SessionId, u64);

/// A lease at a daemon.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The daemon's local session for the lease.
    pub session: ClientSession,
    /// The end of the lease on the daemon's clock.
    pub deadline_ns: u64,
    /// Whether the hold was revoked. It is released once the tenant no longer relies on it.
    pub revoked: bool,
    /// The time until which the tenant may rely on its hold, on the daemon's clock.
    relied_until_ns: u64,
    request: u64,
    number: Option<u64>,
}

impl Lease {
    /// Creates a lease with a new session.
    pub fn new(session: SessionId) -> Self {
        Self {
            session: ClientSession::new(session),
            deadline_ns: 0,
            revoked: false,
            relied_until_ns: 0,
            request: 0,
            number: None,
        }
    }

    /// Handles a renewal: extends the lease and adopts the tenant's request if it is newer.
    pub fn renew(&mut self, clock: u64, ttl_ns: u64, renew: &Renewal) {
        self.deadline_ns = self.deadline_ns.max(clock + ttl_ns);
        if renew.request > self.request {
            self.request = renew.request;
            if let Some(number) = self.number.take() {
                self.session.release(number);
            }
            self.revoked = false;
            self.number = renew.lock_request.clone().map(|lock_request| self.session.acquire(lock_request));
        }
    }

    /// The reply to a renewal at this reading of the daemon's clock. `allows` shortens a duration by the drift of
    /// both clocks.
    pub fn reply(&mut self, clock: u64, renew: &Renewal, allows: impl Fn(u64) -> u64) -> RenewalReply {
        let current = renew.request == self.request && !self.revoked;
        let usable = |number: &u64| current && self.session.may_use(clock, *number);
        let until = self.session.lease_until_ns().min(self.deadline_ns);
        let held = self.number.filter(usable).and_then(|number| {
            let Some(Progress::Held(fence)) = self.session.progress(number) else { return None };
            Some(((self.session.id(), number), allows(until.saturating_sub(clock)), *fence))
        });
        if held.is_some() {
            self.relied_until_ns = self.relied_until_ns.max(until);
        }
        let serves = self.session.is_alive() && clock < self.session.lease_until_ns();
        let over = |number| matches!(self.session.progress(number), Some(Progress::Ended(_)) | None);
        let lost =
            renew.request == self.request && renew.lock_request.is_some() && self.number.is_none_or(over);
        RenewalReply { sent_ns: renew.sent_ns, request: renew.request, serves, lost, held }
    }

    /// Whether this is the acquisition of the tenant's current request.
    pub fn is_current(&self, number: u64) -> bool {
        self.number == Some(number)
    }

    /// Releases a revoked hold once the tenant no longer relies on it.
    pub fn give_back_revoked(&mut self, clock: u64) {
        if self.revoked && clock >= self.relied_until_ns {
            self.revoked = false;
            if let Some(number) = self.number.take() {
                self.session.release(number);
            }
        }
    }

    /// Replaces a lost local session. A waiting request continues in the new one.
    pub fn begin_again(&mut self, session: SessionId) {
        self.session = self.session.reopen(session);
        self.revoked = false;
        let waits = |number: &u64| matches!(self.session.progress(*number), Some(Progress::Waiting(_)));
        self.number = self.number.filter(waits);
    }
}

/// The state of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// It is idle until then.
    Rests(u64),
    /// It has been waiting since then.
    Waits(u64),
    /// It uses the lock until then, if its hold is valid for that long.
    Inside(u64),
}

/// A client without a session of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The daemon that has its lease.
    pub daemon: usize,
    /// Its state.
    pub doing: TenantState,
    /// Its current request.
    pub lock_request: Option<LockRequest>,
    /// The hold, the time until which it is valid on the tenant's clock, and its fence.
    pub hold: Option<(HoldId, u64, Option<Fence>)>,
    request: u64,
    next_renewal_ns: u64,
    /// When a daemon last replied that its member can grant locks.
    served_ns: u64,
    rng: Rng,
}

/// The result of one step of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantStep {
    /// Nothing happened.
    Waits,
    /// It starts to use the lock.
    Enters,
    /// It stops using the lock.
    Leaves,
}

impl Tenant {
    /// Creates an idle tenant.
    pub fn new(spec: &ClusterSpec, mut rng: Rng) -> Self {
        let daemon = rng.below(spec.members);
        let doing = TenantState::Rests(500 * MS + rng.below(1_500 * MS as usize) as u64);
        Self {
            daemon,
            doing,
            lock_request: None,
            hold: None,
            request: 0,
            next_renewal_ns: 0,
            served_ns: 0,
            rng,
        }
    }

    /// Restarts the tenant's process. The request numbers continue, so that requests of the old process are
    /// replaced.
    pub fn restart(&mut self, now: u64) {
        (self.lock_request, self.hold, self.doing) = (None, None, TenantState::Rests(now));
        self.request += 1;
    }

    /// Whether this hold is valid at this reading of the tenant's clock.
    pub fn may_use(&self, clock: u64, session: SessionId, number: u64) -> bool {
        self.hold.is_some_and(|(id, until, _)| id == (session, number) && clock < until)
    }

    /// Handles a reply. It can extend only the hold that the tenant has.
    pub fn receive(&mut self, now: u64, reply: &RenewalReply) {
        if reply.serves {
            self.served_ns = now;
        }
        if reply.request != self.request {
            return;
        }
        // Example: the tenant sends a renewal at 1,000 ms on its clock; the reply arrives at 1,080 ms with 700 ms.
        // The hold is valid until 1,700 ms, not until 1,780 ms.
        let granted = reply.held.map(|(id, left, fence)| (id, reply.sent_ns.saturating_add(left), fence));
        match (&mut self.hold, granted) {
            (Some(hold), Some(granted)) if hold.0 == granted.0 => hold.1 = hold.1.max(granted.1),
            (None, Some(granted)) if matches!(self.doing, TenantState::Waits(_)) => self.hold = Some(granted),
            // The request was rejected, or the hold was lost before the tenant received the grant. The tenant
            // requests the lock again.
            (None, None) if reply.lost && matches!(self.doing, TenantState::Waits(_)) => self.again(),
            _ => {}
        }
    }

    /// Advances the tenant at this true time and this reading of its clock.
    pub fn step(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> TenantStep {
        let relies = self.hold.is_some_and(|(_, until, _)| clock < until);
        match self.doing {
            TenantState::Rests(until) if now >= until => {
                let name = format!("mutex-{}", self.rng.below(spec.mutexes));
                self.request += 1;
                self.lock_request = Some(LockRequest::exclusive(LockName::new(name)));
                (self.served_ns, self.next_renewal_ns) = (now, now);
                self.doing = TenantState::Waits(now);
                TenantStep::Waits
            }
            TenantState::Waits(_) if relies => {
                let long = self.rng.chance(0.2) && now < spec.chaos_ns;
                let mean = if long { 1_500.0 } else { 120.0 };
                let stay = (self.rng.exponential(mean * MS as f64) as u64).min(3_000 * MS);
                self.doing = TenantState::Inside(now + stay);
                TenantStep::Enters
            }
            TenantState::Waits(_) if self.hold.is_some() => {
                // The hold had expired when the reply arrived.
                self.again();
                TenantStep::Waits
            }
            // The daemon does not reply, or its member cannot grant locks: the tenant tries the next one.
            TenantState::Waits(_) if now > self.served_ns + 1_500 * MS => {
                self.daemon = (self.daemon + 1) % spec.members;
                self.served_ns = now;
                self.again();
                TenantStep::Waits
            }
            TenantState::Inside(until) if now >= until || !relies => {
                self.hold = None;
                self.lock_request = None;
                self.request += 1;
                let pause = self.rng.exponential(300.0 * MS as f64) as u64;
                (self.doing, self.next_renewal_ns) = (TenantState::Rests(now + pause), now);
                TenantStep::Leaves
            }
            _ => TenantStep::Waits,
        }
    }

    fn again(&mut self) {
        self.hold = None;
        self.request += 1;
    }

    /// The renewal to send now, if one is due.
    pub fn renewal(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Option<Renewal> {
        if now < self.next_renewal_ns {
            return None;
        }
        // Some tenants are silent for longer than their lease. After the faults have ended, waiting tenants are
        // not.
        let waits = matches!(self.doing, TenantState::Waits(_)) && now >= spec.chaos_ns;
        let pause = if self.rng.chance(0.03) && !waits { 1_500 * MS } else { 120 * MS };
        self.next_renewal_ns = now + pause;
        Some(Renewal { sent_ns: clock, request: self.request, lock_request: self.lock_request.clone() })
    }

    /// The true time of the next step. `when` converts a reading of the tenant's clock to true time.
    pub fn next_wake(&self, now: u64, when: impl Fn(u64) -> u64) -> u64 {
        let own = match self.doing {
            TenantState::Rests(until) | TenantState::Inside(until) => until,
            TenantState::Waits(_) => u64::MAX,
        };
        let ends = self.hold.map_or(u64::MAX, |(_, until, _)| when(until));
        own.min(ends).min(self.next_renewal_ns.max(now + MS))
    }
}
