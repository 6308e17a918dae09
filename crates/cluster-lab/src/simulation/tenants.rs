//! Clients of HTTP and of etcd's API: they keep no session themselves. A lease lives at one daemon, which holds locks for it with a
//! local session.
//!
//! A tenant renews its lease with one message that also names what it wants, so every message may be lost, repeated and reordered.
//! The daemon counts the time to live from the arrival of the renewal, and replies for how long the hold can be relied on. The
//! tenant counts that time from when it *sent* the renewal, on its own clock. Both clocks drift: the daemon reports less than it
//! has, so that the slowest clock ends before the fastest.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::rng::Rng;
use lockkeeper_member::{ClientSession, Fence, LockName, Progress, SessionId, Wish};

/// What a tenant sends to its daemon.
#[derive(Clone, Debug)]
pub struct Renew {
    /// When it was sent, on the tenant's clock; comes back in the reply.
    pub sent_ns: u64,
    /// Number of the tenant's request; a later one replaces an earlier one.
    pub request: u64,
    /// The lock that it wants to hold; `None` if it holds nothing and wants nothing.
    pub wish: Option<Wish>,
}

/// What a daemon replies.
#[derive(Clone, Debug)]
pub struct Life {
    /// What the renewal said.
    pub sent_ns: u64,
    /// The request that the reply is about.
    pub request: u64,
    /// Whether the daemon's member can grant anything.
    pub serves: bool,
    /// The hold of this request was lost or revoked, or the member refused the request: its table was full.
    pub lost: bool,
    /// For how long the hold can be relied on, and which hold that is.
    pub held: Option<(HoldId, u64, Option<Fence>)>,
}

/// A hold of one session of a daemon: never the same again.
pub type HoldId = (SessionId, u64);

/// A lease that lives at a daemon.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The daemon's local session for it.
    pub session: ClientSession,
    /// When it ends, on the daemon's clock.
    pub deadline_ns: u64,
    /// The hold was revoked. It is given back once the tenant cannot rely on it any more.
    pub revoked: bool,
    /// Until when the tenant may rely on its hold, on the daemon's clock.
    relied_until_ns: u64,
    request: u64,
    number: Option<u64>,
}

impl Lease {
    /// A lease with a new session.
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

    /// A renewal arrives: it puts off the end, and says what the tenant wants by now.
    pub fn renew(&mut self, clock: u64, ttl_ns: u64, renew: &Renew) {
        self.deadline_ns = self.deadline_ns.max(clock + ttl_ns);
        if renew.request > self.request {
            self.request = renew.request;
            if let Some(number) = self.number.take() {
                self.session.release(number);
            }
            self.revoked = false;
            self.number = renew.wish.clone().map(|wish| self.session.acquire(wish));
        }
    }

    /// The reply to a renewal, at this reading of the daemon's clock. `allows` takes the drift of both clocks off a time.
    pub fn life(&mut self, clock: u64, renew: &Renew, allows: impl Fn(u64) -> u64) -> Life {
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
        let over = |number| matches!(self.session.progress(number), Some(Progress::Over(_)) | None);
        let lost = renew.request == self.request && renew.wish.is_some() && self.number.is_none_or(over);
        Life { sent_ns: renew.sent_ns, request: renew.request, serves, lost, held }
    }

    /// Gives back a revoked hold that the tenant cannot rely on any more.
    pub fn give_back_revoked(&mut self, clock: u64) {
        if self.revoked && clock >= self.relied_until_ns {
            self.revoked = false;
            if let Some(number) = self.number.take() {
                self.session.release(number);
            }
        }
    }

    /// The local session is lost, and another one follows: what waited waits on.
    pub fn begin_again(&mut self, session: SessionId) {
        self.session = self.session.again(session);
        self.revoked = false;
        let waits = |number: &u64| matches!(self.session.progress(*number), Some(Progress::Waiting(_)));
        self.number = self.number.filter(waits);
    }
}

/// What a tenant is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing, until then.
    Rests(u64),
    /// It waits since then.
    Waits(u64),
    /// It is inside until then, if it can rely on its hold for so long.
    Inside(u64),
}

/// A client without a session of its own.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The daemon at which its lease lives.
    pub daemon: usize,
    /// What it is doing.
    pub doing: Doing,
    /// What it wants.
    pub wish: Option<Wish>,
    /// The hold that it has, until when it can rely on it, on its own clock, and the fence.
    pub hold: Option<(HoldId, u64, Option<Fence>)>,
    request: u64,
    next_renewal_ns: u64,
    /// When its daemon last replied that it serves.
    served_ns: u64,
    rng: Rng,
}

/// What became of a tenant's look at its own affairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing new.
    Waits,
    /// It is inside from now on.
    Enters,
    /// It is not inside any more.
    Leaves,
}

impl Tenant {
    /// A tenant that rests.
    pub fn new(spec: &ClusterSpec, mut rng: Rng) -> Self {
        let daemon = rng.below(spec.members);
        let doing = Doing::Rests(500 * MS + rng.below(1_500 * MS as usize) as u64);
        Self { daemon, doing, wish: None, hold: None, request: 0, next_renewal_ns: 0, served_ns: 0, rng }
    }

    /// Its process begins again. Its number of requests goes on, as a new lease would.
    pub fn restart(&mut self, now: u64) {
        (self.wish, self.hold, self.doing) = (None, None, Doing::Rests(now));
        self.request += 1;
    }

    /// Whether it relies on this hold at this reading of its clock.
    pub fn may_use(&self, clock: u64, session: SessionId, number: u64) -> bool {
        self.hold.is_some_and(|(id, until, _)| id == (session, number) && clock < until)
    }

    /// A reply arrives. It extends the hold that the tenant has, and no other.
    pub fn hears(&mut self, now: u64, life: &Life) {
        if life.serves {
            self.served_ns = now;
        }
        if life.request != self.request {
            return;
        }
        let granted = life.held.map(|(id, left, fence)| (id, life.sent_ns.saturating_add(left), fence));
        match (&mut self.hold, granted) {
            (Some(hold), Some(granted)) if hold.0 == granted.0 => hold.1 = hold.1.max(granted.1),
            (None, Some(granted)) if matches!(self.doing, Doing::Waits(_)) => self.hold = Some(granted),
            // It was refused, or granted and lost before the tenant learned of it: the tenant requests the lock again.
            (None, None) if life.lost && matches!(self.doing, Doing::Waits(_)) => self.again(),
            _ => {}
        }
    }

    /// Looks after its own affairs.
    pub fn step(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Turn {
        let relies = self.hold.is_some_and(|(_, until, _)| clock < until);
        match self.doing {
            Doing::Rests(until) if now >= until => {
                let name = format!("mutex-{}", self.rng.below(spec.mutexes));
                self.request += 1;
                self.wish = Some(Wish::of(LockName::new(name)));
                (self.served_ns, self.next_renewal_ns) = (now, now);
                self.doing = Doing::Waits(now);
                Turn::Waits
            }
            Doing::Waits(_) if relies => {
                let long = self.rng.chance(0.2) && now < spec.chaos_ns;
                let mean = if long { 1_500.0 } else { 120.0 };
                let stay = (self.rng.exponential(mean * MS as f64) as u64).min(3_000 * MS);
                self.doing = Doing::Inside(now + stay);
                Turn::Enters
            }
            Doing::Waits(_) if self.hold.is_some() => {
                // The reply came too late: the hold is worth nothing.
                self.again();
                Turn::Waits
            }
            // The daemon is silent, or it serves nobody: another one may.
            Doing::Waits(_) if now > self.served_ns + 1_500 * MS => {
                self.daemon = (self.daemon + 1) % spec.members;
                self.served_ns = now;
                self.again();
                Turn::Waits
            }
            Doing::Inside(until) if now >= until || !relies => {
                self.hold = None;
                self.wish = None;
                self.request += 1;
                let pause = self.rng.exponential(300.0 * MS as f64) as u64;
                (self.doing, self.next_renewal_ns) = (Doing::Rests(now + pause), now);
                Turn::Leaves
            }
            _ => Turn::Waits,
        }
    }

    fn again(&mut self) {
        self.hold = None;
        self.request += 1;
    }

    /// The renewal to send now, if one is due.
    pub fn renewal(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Option<Renew> {
        if now < self.next_renewal_ns {
            return None;
        }
        // Some fall silent for longer than their lease lives; after the faults, none that waits.
        let waits = matches!(self.doing, Doing::Waits(_)) && now >= spec.chaos_ns;
        let pause = if self.rng.chance(0.03) && !waits { 1_500 * MS } else { 120 * MS };
        self.next_renewal_ns = now + pause;
        Some(Renew { sent_ns: clock, request: self.request, wish: self.wish.clone() })
    }

    /// When to look again.
    pub fn next_look(&self, now: u64, when: impl Fn(u64) -> u64) -> u64 {
        let own = match self.doing {
            Doing::Rests(until) | Doing::Inside(until) => until,
            Doing::Waits(_) => u64::MAX,
        };
        let ends = self.hold.map_or(u64::MAX, |(_, until, _)| when(until));
        own.min(ends).min(self.next_renewal_ns.max(now + MS))
    }
}
