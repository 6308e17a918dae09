//! Clients of HTTP and of etcd's API. They have no session of their own: a lease at one daemon holds their locks by
//! means of a session in the daemon's process.
//!
//! A tenant renews its lease with one message that also contains its current request, so every message may be lost,
//! duplicated and reordered. It sends the message to any daemon, which forwards it to the one that has the lease. The
//! daemon counts the time to live from the arrival of the renewal, and replies for how long the hold is valid. The tenant
//! counts that time from when it *sent* the renewal, on its own clock. Because both clocks drift, the daemon reports less
//! than the remaining time: even on the slowest tenant's clock the hold ends before the lease ends on the fastest daemon's
//! clock.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::simulator::rng::Rng;
use lockkeeper_member::{Fence, LockName, LockRequest, SessionId};

/// The identity of a lease: the tenant, and the number of the lease among those of the tenant.
pub type LeaseId = (usize, u64);

/// The renewal that a tenant sends to a daemon.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The id of the lease.
    pub lease: LeaseId,
    /// Whether the daemon creates the lease if it does not exist: the tenant has received no reply about it yet.
    pub creates: bool,
    /// The time to live of the lease.
    pub ttl_ns: u64,
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
    /// The daemon to which the tenant sent it.
    pub via: usize,
    /// The daemon that receives it.
    pub daemon: usize,
    /// The number of boots of that daemon's machine when the renewal was sent. A later boot does not receive it.
    pub boot: u64,
    /// The renewal that was sent.
    pub renewal: Renewal,
}

/// The daemon's reply to a renewal.
#[derive(Clone, Debug)]
pub struct RenewalReply {
    /// The id of the lease.
    pub lease: LeaseId,
    /// The value of the renewal.
    pub sent_ns: u64,
    /// The request to which the reply refers.
    pub request: u64,
    /// Whether the daemon's member can grant locks.
    pub serves: bool,
    /// Whether the hold of this request was lost or revoked, or the member rejected the request because its table
    /// was full.
    pub lost: bool,
    /// Whether no daemon has the lease.
    pub gone: bool,
    /// The hold, if there is one.
    pub held: Option<ReportedValidity>,
}

/// A hold, as a daemon reports it to its tenant.
#[derive(Clone, Copy, Debug)]
pub struct ReportedValidity {
    /// The identity of the hold.
    pub id: HoldId,
    /// For how long it is valid.
    pub left_ns: u64,
    /// The fence of the hold; `None` for a permit.
    pub fence: Option<Fence>,
    /// Whether it is recorded and promised for its time to live.
    pub promised: bool,
}

/// The identity of a hold: the daemon's session and the number of the acquisition. It is never reused, and a daemon that
/// adopts the hold keeps it.
pub type HoldId = (SessionId, u64);

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

/// A hold at the tenant.
#[derive(Clone, Copy, Debug)]
pub struct TenantHold {
    /// The identity of the hold.
    pub id: HoldId,
    /// The time until which it is valid on the tenant's clock.
    pub until_ns: u64,
    /// The fence of the hold; `None` for a permit.
    pub fence: Option<Fence>,
    /// Whether it was ever promised for its time to live.
    pub promised: bool,
}

/// A client without a session of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The daemon that it sends to.
    pub daemon: usize,
    /// The state of the tenant.
    pub doing: TenantState,
    /// Its current request.
    pub lock_request: Option<LockRequest>,
    /// The hold of the tenant, if it has one.
    pub hold: Option<TenantHold>,
    /// Its lease, the time to live, and whether a daemon has replied about it.
    pub lease: LeaseId,
    ttl_ns: u64,
    is_created: bool,
    request: u64,
    next_renewal_ns: u64,
    /// When a daemon last replied that its member can grant locks.
    served_ns: u64,
    rng: Rng,
}

/// The result of one step of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantStep {
    /// It has nothing to do at present.
    Waits,
    /// It starts to use the lock.
    Enters,
    /// It stops using the lock.
    Leaves {
        /// Whether it lost a hold that was promised for its time to live.
        lost_promised: bool,
    },
}

impl Tenant {
    /// Creates an idle tenant.
    pub fn new(number: usize, spec: &ClusterSpec, mut rng: Rng) -> Self {
        let daemon = rng.below(spec.members);
        let doing = TenantState::Rests(500 * MS + rng.below(1_500 * MS as usize) as u64);
        let mut tenant = Self {
            daemon,
            doing,
            lock_request: None,
            hold: None,
            lease: (number, 0),
            ttl_ns: 0,
            is_created: false,
            request: 0,
            next_renewal_ns: 0,
            served_ns: 0,
            rng,
        };
        tenant.new_lease(spec);
        tenant
    }

    fn new_lease(&mut self, spec: &ClusterSpec) {
        self.lease.1 += 1;
        self.is_created = false;
        self.hold = None;
        let longest = spec.longest_ttl_ns;
        self.ttl_ns = match (spec.spares_recorded_holds(), self.rng.chance(0.5)) {
            (true, _) => longest,
            (false, true) => 900 * MS,
            (false, false) => 900 * MS + self.rng.below(longest as usize) as u64,
        };
    }

    /// Restarts the tenant's process, which forgets its lease. The request numbers continue.
    pub fn restart(&mut self, now: u64, spec: &ClusterSpec) {
        (self.lock_request, self.doing) = (None, TenantState::Rests(now));
        self.request += 1;
        self.new_lease(spec);
    }

    /// Whether this hold is valid at this reading of the tenant's clock.
    pub fn may_use(&self, clock: u64, session: SessionId, number: u64) -> bool {
        self.hold.is_some_and(|hold| hold.id == (session, number) && clock < hold.until_ns)
    }

    /// Handles a reply. It can extend only the hold that the tenant has. Returns whether the tenant has lost a hold that
    /// was promised and is still valid on its clock.
    pub fn receive(&mut self, now: u64, clock: u64, reply: &RenewalReply, spec: &ClusterSpec) -> bool {
        if reply.lease != self.lease {
            return false;
        }
        if reply.gone {
            // A lease that was never created may still be on its way.
            let valid = |hold: &TenantHold| hold.promised && clock < hold.until_ns;
            let lost = self.hold.as_ref().is_some_and(valid);
            if self.is_created {
                self.new_lease(spec);
                self.request += 1;
                self.next_renewal_ns = now;
            }
            return lost;
        }
        if !std::mem::replace(&mut self.is_created, true) {
            self.next_renewal_ns = now;
        }
        if reply.serves {
            self.served_ns = now;
        }
        if reply.request != self.request {
            return false;
        }
        // Example: the tenant sends a renewal at 1,000 ms on its clock; the reply arrives at 1,080 ms with 700 ms.
        // The hold is valid until 1,700 ms, not until 1,780 ms.
        let granted = reply.held.map(|ReportedValidity { id, left_ns, fence, promised }| TenantHold {
            id,
            until_ns: reply.sent_ns.saturating_add(left_ns),
            fence,
            promised,
        });
        match (&mut self.hold, granted) {
            (Some(hold), Some(granted)) if hold.id == granted.id => {
                // A daemon that extends the hold suffices, even if its member can grant no further locks.
                if granted.until_ns > hold.until_ns {
                    self.served_ns = now;
                }
                hold.until_ns = hold.until_ns.max(granted.until_ns);
                hold.promised |= granted.promised;
            }
            (None, Some(granted)) if matches!(self.doing, TenantState::Waits(_)) => self.hold = Some(granted),
            // The request was rejected, or the hold was lost before the tenant received the grant. The tenant
            // requests the lock again.
            (None, None) if reply.lost && matches!(self.doing, TenantState::Waits(_)) => self.again(),
            _ => {}
        }
        false
    }

    /// Advances the tenant at this true time and this reading of its clock.
    pub fn step(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> TenantStep {
        let relies = self.hold.is_some_and(|hold| clock < hold.until_ns);
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
                let (mean, most) = match (long, spec.spares_recorded_holds()) {
                    (true, true) => (5_000.0, 12_000),
                    (true, false) => (1_500.0, 3_000),
                    (false, _) => (120.0, 3_000),
                };
                let stay = (self.rng.exponential(mean * MS as f64) as u64).min(most * MS);
                let stay = if long { spec.long_stay_ns(now, stay, &mut self.rng) } else { stay };
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
                self.try_next_daemon(now, spec);
                TenantStep::Waits
            }
            TenantState::Inside(until) if now >= until || !relies => {
                let lost_promised = now < until && self.hold.is_some_and(|hold| hold.promised);
                self.hold = None;
                self.lock_request = None;
                self.request += 1;
                let pause = self.rng.exponential(300.0 * MS as f64) as u64;
                (self.doing, self.next_renewal_ns) = (TenantState::Rests(now + pause), now);
                TenantStep::Leaves { lost_promised }
            }
            // It has a hold and tries another daemon, which forwards its renewals.
            TenantState::Inside(_) if now > self.served_ns + 400 * MS => {
                self.try_next_daemon(now, spec);
                TenantStep::Waits
            }
            _ => TenantStep::Waits,
        }
    }

    fn try_next_daemon(&mut self, now: u64, spec: &ClusterSpec) {
        self.daemon = (self.daemon + 1) % spec.members;
        self.served_ns = now;
        self.next_renewal_ns = now;
        // A lease belongs to the daemon that creates it.
        if !self.is_created {
            self.new_lease(spec);
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
        Some(Renewal {
            lease: self.lease,
            creates: !self.is_created,
            ttl_ns: self.ttl_ns,
            sent_ns: clock,
            request: self.request,
            // The first renewal only creates the lease: a duplicate that arrives late requests nothing.
            lock_request: self.lock_request.clone().filter(|_| self.is_created),
        })
    }

    /// The true time of the next step. `when` converts a reading of the tenant's clock to true time.
    pub fn next_wake(&self, now: u64, when: impl Fn(u64) -> u64) -> u64 {
        let own = match self.doing {
            TenantState::Rests(until) | TenantState::Inside(until) => until,
            TenantState::Waits(_) => u64::MAX,
        };
        let ends = self.hold.map_or(u64::MAX, |hold| when(hold.until_ns));
        own.min(ends).min(self.next_renewal_ns.max(now + MS))
    }
}
