//! One lease: its deadline, holds and waits.

use super::id::LeaseId;
use super::words::{Asker, Fault, Hold, Life, Listed, Lost, Op, Outcome, Slot, Terms, Wanted, Which};
use crate::drift;
use crate::metrics::Counted;
use crate::quotas::{Charge, LockCharge};
use crate::rights::owns_session;
use lockkeeper_cluster::{Acquire, Guard, LockMode, Member, now_ns};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The deadline of a lease whose client was promised a time to live of `ttl` from now.
pub(super) fn ends_at(ttl: Duration) -> u64 {
    let ttl_ns = u64::try_from(drift::kept(ttl).as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(ttl_ns)
}

/// Number of lost holds that are remembered for the client's next request.
const MOST_LOST: usize = 64;

/// A lease that lives at this daemon.
pub(super) struct Lease {
    pub id: LeaseId,
    pub terms: Terms,
    /// The principal that created it.
    pub asker: Asker,
    /// The lease's own session with the member.
    pub member: Member,
    state: Mutex<State>,
    /// Notified when the lease has ended or has got a deadline.
    pub kicked: Notify,
    /// The name under which quotas count its usage.
    pub account: Arc<str>,
    _counted: (Counted, Charge),
}

pub(super) struct State {
    /// The deadline on the lease clock, which no time service adjusts; `None` while a lease for one hold still waits
    /// for it.
    pub deadline_ns: Option<u64>,
    next: u64,
    pub entries: BTreeMap<u64, Entry>,
    slots: HashMap<(String, Slot), u64>,
    lost: VecDeque<Lost>,
    pub over: bool,
}

/// A hold, or a wait for one.
pub(super) struct Entry {
    pub number: u64,
    pub lock: String,
    pub charge: LockCharge,
    slot: Slot,
    pub since: Instant,
    pub phase: Phase,
    /// Number of requests that wait for the outcome.
    pub interest: usize,
    /// Number of requests to which the hold was reported, including those whose client has not received it yet.
    pub claims: usize,
    pub value: Vec<u8>,
    pub version: u64,
    /// The last fence drawn for a change of the value; 0 if there was none since the grant.
    pub revision: u64,
    /// The outcome of the wait.
    pub news: watch::Sender<Option<Outcome>>,
}

pub(super) enum Phase {
    Waiting(AbortHandle),
    Held(Guard),
}

impl Lease {
    pub fn new(id: LeaseId, terms: Terms, asker: Asker, member: Member, counted: (Counted, Charge)) -> Self {
        let account = Arc::from(asker.account.as_str());
        let deadline_ns = (!terms.one_hold).then(|| ends_at(terms.ttl));
        let state = State {
            deadline_ns,
            next: 1,
            entries: BTreeMap::new(),
            slots: HashMap::new(),
            lost: VecDeque::new(),
            over: false,
        };
        let (state, kicked) = (Mutex::new(state), Notify::new());
        Self { id, terms, asker, member, state, kicked, account, _counted: counted }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a caller may use the lease: its creator, or a principal with `admin` on every lock.
    pub fn check(&self, asker: &Asker) -> Result<(), Fault> {
        if owns_session(&self.asker.who, &asker.who, asker.admin) {
            return Ok(());
        }
        Err(Fault::NotYours(self.id))
    }

    /// A request to the member.
    pub fn request(&self, wanted: &Wanted) -> Acquire {
        let (member, lock) = (&self.member, wanted.lock.clone());
        let request = match wanted.mode {
            LockMode::Exclusive => member.mutex(lock),
            LockMode::Shared => member.shared(lock),
            LockMode::Permit { of: permits } => member.semaphore(lock, permits),
        };
        request.owner(self.terms.owner.clone()).purpose(wanted.purpose.clone())
    }

    /// Extends the deadline. A lease that waits for its single hold has none.
    pub fn keep_alive(&self, state: &mut State) {
        if state.deadline_ns.is_some() {
            state.deadline_ns = Some(ends_at(self.terms.ttl));
        }
    }

    pub fn life(&self, state: &State, op: &Op) -> Life {
        let mut life = Life {
            lease: self.id,
            left: self.left(state),
            ttl: self.terms.ttl,
            valid_for: None,
            holds: Vec::new(),
            locks: Vec::new(),
            lost: state.lost.iter().cloned().collect(),
            session: None,
        };
        let guards = state.entries.values().filter_map(Entry::guard);
        // All holds of a session are valid as long as the session is, except those that were taken away. All of them
        // end with the lease.
        let valid_for = guards.map(Guard::valid_for).find(|valid_for| !valid_for.is_zero());
        life.valid_for = valid_for.map(|valid_for| drift::told(valid_for).min(life.left));
        if let Op::TimeToLive = op {
            life.holds = self.holds(state);
            life.locks = state.entries.values().map(|entry| entry.lock.clone()).collect();
            life.session = self.member.session();
        }
        life
    }

    /// The time until the lease ends, as the client may measure it on its own clock.
    pub fn left(&self, state: &State) -> Duration {
        let left = |at: u64| drift::told(Duration::from_nanos(at.saturating_sub(now_ns())));
        state.deadline_ns.map_or(self.terms.ttl, left).min(self.terms.ttl)
    }

    pub fn holds(&self, state: &State) -> Vec<Hold> {
        state.entries.iter().filter_map(|(&number, entry)| self.hold(number, entry)).collect()
    }

    pub fn hold(&self, number: u64, entry: &Entry) -> Option<Hold> {
        let guard = entry.guard()?;
        Some(Hold {
            lease: self.id,
            number,
            lock: entry.lock.clone(),
            fence: guard.fence(),
            valid_for: drift::told(guard.valid_for()),
            ttl: self.terms.ttl,
            value: entry.value.clone(),
            version: entry.version,
            revision: entry.revision.max(guard.fence()),
        })
    }

    /// The same, with a promise that does not exceed the lease.
    pub fn hold_now(&self, state: &State, number: u64) -> Option<Hold> {
        let hold = self.hold(number, state.entries.get(&number)?)?;
        Some(Hold { valid_for: hold.valid_for.min(self.left(state)), ..hold })
    }

    pub fn listed(&self) -> Listed {
        let locks = self.state().entries.values().map(|entry| entry.lock.clone()).collect();
        Listed { lease: self.id, who: self.asker.who.clone(), locks }
    }
}

impl State {
    /// The entry of an earlier request with the same lock and slot, if there is one.
    pub fn find(&self, wanted: &Wanted) -> Option<u64> {
        self.slots.get(&(wanted.lock.clone(), wanted.slot.clone())).copied()
    }

    /// Inserts a new entry, which no request waits for yet.
    pub fn insert(
        &mut self,
        wanted: &Wanted,
        charge: LockCharge,
        wait: impl FnOnce(u64) -> AbortHandle,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.slots.insert((wanted.lock.clone(), wanted.slot.clone()), number);
        let entry = Entry {
            number,
            charge,
            lock: wanted.lock.clone(),
            slot: wanted.slot.clone(),
            since: Instant::now(),
            phase: Phase::Waiting(wait(number)),
            interest: 0,
            claims: 0,
            value: wanted.value.clone(),
            version: 1,
            revision: 0,
            news: watch::Sender::new(None),
        };
        self.entries.insert(number, entry);
        number
    }

    pub fn number_of(&self, which: &Which) -> Option<u64> {
        match which {
            Which::Number(number) => Some(*number),
            Which::OnlyOn(lock) => self.slots.get(&(lock.clone(), Slot::Only)).copied(),
        }
    }

    pub fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.slots.remove(&(entry.lock.clone(), entry.slot.clone()));
        Some(entry)
    }

    /// Holds that are lost by now, with the reason, including those whose loss has not been processed yet.
    pub fn lost_by_now(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let loss = |(&number, entry): (&u64, &Entry)| Some((number, entry.guard()?.loss()?));
        self.entries.iter().filter_map(loss)
    }

    pub fn remember_lost(&mut self, lost: Lost) {
        if self.lost.len() == MOST_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(lost);
    }
}

impl Entry {
    pub fn guard(&self) -> Option<&Guard> {
        match &self.phase {
            Phase::Held(guard) => Some(guard),
            Phase::Waiting(_) => None,
        }
    }

    /// Records that a request to which the hold was reported does not want it.
    pub fn disclaim(&mut self) {
        self.claims = self.claims.saturating_sub(1);
    }

    /// Whether no request wants the entry any more.
    pub fn is_forgotten(&self) -> bool {
        self.interest == 0 && self.claims == 0
    }
}
