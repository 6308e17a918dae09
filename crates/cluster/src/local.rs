//! Clients in the member's own process.
//!
//! They are [resident](lockkeeper_member::Member::open_resident) clients: their holds are valid while the member's own
//! lease runs. No message is sent and no lease is renewed per session, so idle sessions cost nothing, however many
//! there are.
//!
//! A hold with a [payload](crate::HoldGuard::record) is recorded, and then it outlives the member: another one adopts it, and
//! its driver takes it over with the payload. Until then the hold does not end with the member's lease.

use lockkeeper_member::{Ended, Fence, LockName, SessionId, ToClient};
use lockkeeper_session::{ClientSession, Progress};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// Maximum number of ended acquisitions that a session remembers, if it has fewer open ones than that.
const MOST_ENDED: usize = 64;

/// The reason for the loss of a hold whose member had no lease for a time.
pub(crate) const LEASE_RAN_OUT: &str = "the lease ran out";
/// The reason for the loss of a hold that was revoked.
pub(crate) const FORCED_RELEASE: &str = "it was taken back by force, or held for too long";

/// Time before the end of a lease at which holders are warned: a fifth of the lease.
pub(crate) fn warning_margin_ns(lease_ns: u64) -> u64 {
    lease_ns / 5
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// Granted, with this fence.
    Granted(Option<Fence>),
    /// Ended without a grant.
    Ended(Ended),
    /// Granted in a session that ended before the waiter was notified. The request must be repeated.
    Repeat,
    /// The member has stopped, for this reason.
    Stopped(String),
}

/// A waiting request of a client in this process.
pub(crate) struct LocalWaiter {
    sender: oneshot::Sender<RequestOutcome>,
    pub lock: LockName,
    pub since_ns: u64,
    pub span: Span,
}

/// A hold whose holder has been notified.
struct LocalHold {
    since_ns: u64,
    /// The number of the lease under which the lock was granted.
    lease: u64,
    /// The reason for the loss, once the loss was detected.
    lost: Option<&'static str>,
    /// Whether the table contains a record of the hold.
    recorded: bool,
    /// Whether another member has adopted the hold, or will.
    moved: bool,
    /// The end of the last promise that outlives the member's lease; 0 if there was none.
    promised_until_ns: u64,
    /// The time until which a third party may rely on a promise of the member that had the hold before; 0 if this
    /// member has not adopted it.
    owed_until_ns: u64,
}

/// A hold that this member has adopted.
pub(crate) struct AdoptedHold {
    /// The client to which the hold belongs now.
    pub client: u64,
    pub number: u64,
    pub fence: Option<Fence>,
    pub lock: LockName,
    pub payload: Vec<u8>,
    /// When its session ends if no caller takes it over.
    pub until_ns: u64,
}

/// The state of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// Valid until this time on the lease clock, and as long as the member's lease is renewed. No conflicting request is
    /// granted before it.
    Until(u64),
    /// Recorded: the hold does not end with the member's lease. It was promised until this time.
    Recorded(u64),
    /// Another member has adopted it.
    Moved,
    /// Lost, for this reason.
    Lost(&'static str),
}

/// The member's lease as the clients in this process see it. One comparison with it decides whether a hold is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalLease {
    pub now_ns: u64,
    /// The end of the lease; 0 if there is none.
    pub until_ns: u64,
    /// Number of the lease in this process. A lease that is renewed in time keeps its number. After a gap the next
    /// lease gets a new number, and all holds of earlier leases are lost.
    pub number: u64,
    /// The reason why the previous lease was lost.
    pub ended: &'static str,
    /// With less than this left, a grant is not reported, since its holder would be warned at once.
    pub margin_ns: u64,
}

impl LocalLease {
    pub fn runs(&self) -> bool {
        self.now_ns < self.until_ns
    }

    /// Whether it runs for long enough to report a grant to a client.
    pub fn is_reportable(&self) -> bool {
        self.until_ns.saturating_sub(self.now_ns) > self.margin_ns
    }
}

/// One client: its session, its waiting requests and its holds.
pub(crate) struct LocalClient {
    pub session: ClientSession,
    /// The member's incarnation, as counted by the driver, in which the session is open. `None` if it is not open.
    pub open_in: Option<u64>,
    waiting: BTreeMap<u64, LocalWaiter>,
    held: BTreeMap<u64, LocalHold>,
    /// Released holds whose records have not ended yet.
    releasing: BTreeSet<u64>,
    /// Notifies tasks that watch a hold that something was lost.
    changes: watch::Sender<()>,
    /// The operators that have revoked holds.
    revoked_by: BTreeMap<u64, String>,
    /// Number of acquisitions that have ended since the session last discarded ended ones.
    ended: usize,
    lost: Option<&'static str>,
}

/// Events that the driver counts in its metrics.
#[derive(Default)]
pub(crate) struct Counts {
    pub waited_ns: Vec<u64>,
    pub ended: Vec<Ended>,
}

impl LocalClient {
    pub fn new(id: SessionId) -> Self {
        Self {
            session: ClientSession::new(id),
            open_in: None,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            releasing: BTreeSet::new(),
            changes: watch::Sender::new(()),
            revoked_by: BTreeMap::new(),
            ended: 0,
            lost: None,
        }
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Handles the member's answer about an acquisition. Returns `true` if it was granted but the lease is too short to
    /// notify the waiter now.
    pub fn receive(&mut self, lease: LocalLease, message: ToClient, counts: &mut Counts) -> bool {
        if let ToClient::Recorded { number, .. } = message {
            if let Some(hold) = self.held.get_mut(&number) {
                hold.recorded = true;
            }
            self.changes.send_replace(());
            return false;
        }
        if let ToClient::RevokedBy { number, by } = message {
            if self.held.contains_key(&number) {
                self.revoked_by.insert(number, by);
            }
            return false;
        }
        let (ToClient::Granted { number, .. } | ToClient::Ended { number, .. }) = message else {
            return false;
        };
        if self.releasing.remove(&number) {
            self.changes.send_replace(());
        }
        // Resident sessions have no delegations, so there is nothing to send back.
        let _ = self.session.receive(lease.now_ns, message);
        self.settle(lease, number, counts)
    }

    /// Notifies the waiter of the outcome of its request, if that is decided. Returns `true` if it was granted but must
    /// wait for a longer lease.
    pub fn settle(&mut self, lease: LocalLease, number: u64, counts: &mut Counts) -> bool {
        let outcome = match self.session.progress(number) {
            Some(Progress::Held(fence)) => {
                if !lease.is_reportable() {
                    return self.waiting.contains_key(&number);
                }
                RequestOutcome::Granted(*fence)
            }
            Some(Progress::Ended(how)) => RequestOutcome::Ended(*how),
            _ => {
                if self.held.contains_key(&number) {
                    self.changes.send_replace(());
                }
                return false;
            }
        };
        if let RequestOutcome::Ended(_) = outcome {
            self.forget_ended(lease.now_ns);
        }
        let Some(waiting) = self.waiting.remove(&number) else { return false };
        match &outcome {
            RequestOutcome::Granted(_) => {
                self.hold(lease, number);
                counts.waited_ns.push(lease.now_ns.saturating_sub(waiting.since_ns));
            }
            RequestOutcome::Ended(how) => counts.ended.push(*how),
            RequestOutcome::Repeat | RequestOutcome::Stopped(_) => {}
        }
        waiting.span.in_scope(|| tracing::debug!(?outcome, "answered"));
        // A waiter whose receiver is gone has given up, and its `Drop` releases the acquisition.
        let _ = waiting.sender.send(outcome);
        false
    }

    /// Bounds the number of ended acquisitions that the session remembers, at an amortised constant cost for each.
    fn forget_ended(&mut self, now: u64) {
        self.ended += 1;
        if self.ended > MOST_ENDED.max(self.waiting.len() + self.held.len()) {
            self.ended = 0;
            // The message itself is not needed: building it discards the ended acquisitions.
            let _ = self.session.keep_alive(now);
        }
    }

    /// Registers a request that was not answered at once. Returns the receiver of its outcome.
    pub fn wait(
        &mut self,
        now: u64,
        number: u64,
        lock: LockName,
        span: Span,
    ) -> oneshot::Receiver<RequestOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(number, LocalWaiter { sender, lock, since_ns: now, span });
        receiver
    }

    /// Registers a hold whose holder has been notified.
    pub fn hold(&mut self, lease: LocalLease, number: u64) {
        let hold = LocalHold {
            since_ns: lease.now_ns,
            lease: lease.number,
            lost: None,
            recorded: false,
            moved: false,
            promised_until_ns: 0,
            owed_until_ns: 0,
        };
        self.held.insert(number, hold);
    }

    /// Adds a hold of this session that the member has adopted. The member that had it before may have promised it for
    /// its time to live, `ttl_ns`. On this member's clock, that promise may last until `owed_until_ns`, because the two
    /// clocks drift. This member reports no more than the time to live: one that adopts the hold after it adds only the
    /// drift between two clocks.
    pub fn adopt(
        &mut self,
        lease: LocalLease,
        number: u64,
        fence: Option<Fence>,
        (ttl_ns, owed_until_ns): (u64, u64),
    ) {
        self.session.restore(number, fence);
        self.hold(lease, number);
        if let Some(hold) = self.held.get_mut(&number) {
            hold.recorded = true;
            hold.promised_until_ns = lease.now_ns.saturating_add(ttl_ns);
            hold.owed_until_ns = owed_until_ns;
        }
    }

    /// Notes a promise of a recorded hold. Returns `false` if the hold is not recorded.
    pub fn promise(&mut self, number: u64, until_ns: u64) -> bool {
        let Some(hold) = self.held.get_mut(&number).filter(|hold| hold.recorded) else { return false };
        hold.promised_until_ns = hold.promised_until_ns.max(until_ns);
        true
    }

    /// The operator that has revoked a hold.
    pub fn revoker(&self, number: u64) -> Option<String> {
        self.revoked_by.get(&number).cloned()
    }

    /// Whether a hold is recorded.
    pub fn is_recorded(&self, number: u64) -> bool {
        self.held.get(&number).is_some_and(|hold| hold.recorded)
    }

    /// The end of the last promise of a hold that outlives the member's lease, by this member or the one that had it
    /// before.
    pub fn promised_until_ns(&self, number: u64) -> u64 {
        self.held.get(&number).map_or(0, |hold| hold.promised_until_ns.max(hold.owed_until_ns))
    }

    /// Whether a release is not acknowledged: the end of the record is not committed.
    pub fn is_releasing(&self) -> bool {
        !self.releasing.is_empty()
    }

    /// The waiting requests for a lock.
    pub fn waiting_for(&self, lock: &LockName) -> impl Iterator<Item = &LocalWaiter> {
        self.waiting.values().filter(move |waiting| waiting.lock == *lock)
    }

    /// Releases a hold or cancels a waiting request. Returns the duration of the hold and its state at the end; `None`
    /// if the request was still waiting.
    pub fn release(&mut self, lease: LocalLease, number: u64) -> Option<(u64, HoldState)> {
        self.waiting.remove(&number);
        let state = self.hold_state(lease, number);
        let hold = self.held.remove(&number);
        self.revoked_by.remove(&number);
        self.session.release(number);
        if hold.as_ref().is_some_and(|hold| hold.recorded && !hold.moved) {
            self.releasing.insert(number);
        }
        hold.map(|hold| (lease.now_ns.saturating_sub(hold.since_ns), state))
    }

    /// The state of a hold at this moment.
    pub fn hold_state(&self, lease: LocalLease, number: u64) -> HoldState {
        let hold = self.held.get(&number);
        if let Some(why) = hold.and_then(|hold| hold.lost) {
            return HoldState::Lost(why);
        }
        if hold.is_some_and(|hold| hold.moved) {
            return HoldState::Moved;
        }
        match self.session.progress(number) {
            Some(Progress::Held(_)) => match hold {
                Some(hold) if hold.recorded => {
                    let lease_until_ns = if lease.runs() { lease.until_ns } else { 0 };
                    HoldState::Recorded(hold.promised_until_ns.max(lease_until_ns))
                }
                Some(hold) if hold.lease == lease.number && lease.runs() => HoldState::Until(lease.until_ns),
                Some(hold) if hold.lease != lease.number => HoldState::Lost(lease.ended),
                _ => HoldState::Lost(LEASE_RAN_OUT),
            },
            Some(_) => HoldState::Lost(FORCED_RELEASE),
            None => HoldState::Lost(self.lost.unwrap_or(LEASE_RAN_OUT)),
        }
    }

    /// Whether its session was opened in an earlier incarnation of the member.
    pub fn is_of_earlier_incarnation(&self, incarnation: u64) -> bool {
        self.open_in.is_some_and(|open_in| open_in != incarnation)
    }

    /// Marks holds of earlier leases as lost and notifies their holders. Examines at most `most` holds, from number
    /// `from` on. Returns the numbers of the lost ones, and the number to continue at if there may be more.
    pub fn lose_earlier(&mut self, lease: LocalLease, from: u64, most: usize) -> (Vec<u64>, Option<u64>) {
        let (mut lost, mut next) = (Vec::new(), None);
        for (examined, (&number, hold)) in self.held.range_mut(from..).enumerate() {
            if examined == most {
                next = Some(number);
                break;
            }
            if hold.lost.is_none() && !hold.recorded && hold.lease != lease.number {
                hold.lost = Some(lease.ended);
                lost.push(number);
            }
        }
        if !lost.is_empty() {
            self.changes.send_replace(());
        }
        (lost, next)
    }

    /// Replaces the session, which has ended, by the next one, in which waiting requests are repeated in the same
    /// order. Returns whether holds were lost.
    pub fn begin_again(&mut self, why: &'static str) -> bool {
        let id = self.session.id();
        // The next session does not know a grant that the waiter was not notified of: the waiter repeats its request.
        let granted = |number: &u64, _: &mut LocalWaiter| {
            matches!(self.session.progress(*number), Some(Progress::Held(_)))
        };
        for (_, waiting) in self.waiting.extract_if(.., granted) {
            let _ = waiting.sender.send(RequestOutcome::Repeat);
        }
        self.session = self.session.reopen(SessionId { number: id.number + 1, ..id });
        self.open_in = None;
        self.lost = Some(why);
        self.releasing.clear();
        let mut any_lost = false;
        for hold in self.held.values_mut() {
            if hold.recorded && hold.lost.is_none() {
                hold.moved = true;
            } else {
                hold.lost.get_or_insert(why);
                any_lost = true;
            }
        }
        self.changes.send_replace(());
        any_lost
    }

    /// Ends the session and all waiting requests: the member has stopped.
    pub fn stop(&mut self, why: &str) {
        self.begin_again("the member stopped");
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.sender.send(RequestOutcome::Stopped(String::from(why)));
        }
    }
}
