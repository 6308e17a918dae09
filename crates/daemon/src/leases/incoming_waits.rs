//! Waits of other daemons' clients for locks by leases that live here. See [`outgoing_waits`](super::outgoing_waits).

use super::local_leases::LocalLeases;
use super::local_wait::LocalWait;
use super::messages::{Disposition, WaitId, WaitOutcome};
use super::operations::{CallerIdentity, Hold, LeaseError, LeaseOperation};
use super::outgoing_waits::{POLL_INTERVAL, POLL_TIMEOUT};
use lockkeeper_cluster::MemberId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Number of tickets remembered for each daemon whose waits were given up before their requests arrived.
const MOST_WITHDRAWN: usize = 4096;

/// Waits of other daemons' clients, by the incarnation of the daemon.
#[derive(Clone, Default)]
pub(super) struct IncomingWaits(Arc<Mutex<HashMap<u64, RemoteDaemon>>>);

/// One incarnation of another daemon.
struct RemoteDaemon {
    waits: HashMap<u64, AbortHandle>,
    /// Outcomes that it has not received yet, and holds whose disposition is not yet known here.
    outcomes: VecDeque<OpenOutcome>,
    /// Tickets that were given up and are unknown here: their requests may still be in flight.
    withdrawn: VecDeque<u64>,
    next: u64,
    changed: Arc<Notify>,
    polled_at: Instant,
}

/// The outcome of a wait.
struct OpenOutcome {
    number: u64,
    ticket: u64,
    outcome: WaitOutcome,
    identity: CallerIdentity,
    /// Whether the outcome was sent, so that the client may know of it.
    sent: bool,
}

impl RemoteDaemon {
    fn new() -> Self {
        let (waits, outcomes, withdrawn, changed) =
            (HashMap::new(), VecDeque::new(), VecDeque::new(), Arc::default());
        Self { waits, outcomes, withdrawn, next: 1, changed, polled_at: Instant::now() }
    }

    fn push(&mut self, ticket: u64, outcome: WaitOutcome, identity: CallerIdentity, sent: bool) {
        let number = self.next;
        self.next += 1;
        self.outcomes.push_back(OpenOutcome { number, ticket, outcome, identity, sent });
    }

    fn remove(&mut self, ticket: u64) -> Option<OpenOutcome> {
        let index = self.outcomes.iter().position(|open| open.ticket == ticket)?;
        self.outcomes.remove(index)
    }
}

impl IncomingWaits {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, RemoteDaemon>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a request of another daemon's client for a lock. The same request may arrive again.
    pub fn acquire(
        &self,
        local: &Arc<LocalLeases>,
        from: MemberId,
        id: WaitId,
        identity: &CallerIdentity,
        wait: impl FnOnce() -> Result<LocalWait, LeaseError>,
    ) -> Result<Option<Hold>, LeaseError> {
        let mut all = self.all();
        let remote = all.entry(id.incarnation).or_insert_with(|| {
            tracing::debug!(%from, incarnation = id.incarnation, "first wait for a client of that daemon");
            tokio::spawn(forget_when_silent(Arc::downgrade(&self.0), Arc::downgrade(local), id.incarnation));
            RemoteDaemon::new()
        });
        remote.polled_at = Instant::now();
        if remote.withdrawn.contains(&id.ticket) {
            return Err(LeaseError::Withdrawn(String::from("the lock")));
        }
        if remote.waits.contains_key(&id.ticket) {
            return Ok(None);
        }
        if let Some(open) = remote.outcomes.iter_mut().find(|open| open.ticket == id.ticket) {
            open.sent = true;
            return open.outcome.clone().and_then(|hold| local.current_hold(hold)).map(Some);
        }
        let mut wait = wait()?;
        if let Some(outcome) = wait.try_outcome() {
            let hold = outcome?;
            remote.push(id.ticket, Ok(hold.clone()), identity.clone(), true);
            return Ok(Some(hold));
        }
        let (waits, identity, local) = (self.clone(), identity.clone(), Arc::downgrade(local));
        let task = tokio::spawn(async move {
            let outcome = wait.outcome().await;
            if let Some(unwanted) = waits.settle(id, outcome, identity)
                && let Some(local) = local.upgrade()
            {
                give_up(&local, unwanted);
            }
        });
        remote.waits.insert(id.ticket, task.abort_handle());
        Ok(None)
    }

    /// Stores the outcome of a wait. Returns it if the wait has been given up.
    fn settle(&self, id: WaitId, outcome: WaitOutcome, identity: CallerIdentity) -> Option<OpenOutcome> {
        let mut all = self.all();
        let remote = all.get_mut(&id.incarnation).filter(|remote| remote.waits.contains_key(&id.ticket));
        let Some(remote) = remote else {
            return Some(OpenOutcome { number: 0, ticket: id.ticket, outcome, identity, sent: false });
        };
        remote.waits.remove(&id.ticket);
        remote.push(id.ticket, outcome, identity, false);
        remote.changed.notify_one();
        None
    }

    /// Handles the dispositions of tickets, as reported by the other daemon.
    pub fn dispose(&self, local: &Arc<LocalLeases>, incarnation: u64, dispositions: &[(u64, Disposition)]) {
        for &(ticket, disposition) in dispositions {
            let open = {
                let mut all = self.all();
                // If the daemon is unknown, all its waits and holds have been given up already.
                let Some(remote) = all.get_mut(&incarnation) else { return };
                remote.polled_at = Instant::now();
                let waits = remote.waits.remove(&ticket);
                if let Some(task) = &waits {
                    task.abort();
                }
                let open = remote.remove(ticket);
                if waits.is_none() && open.is_none() && disposition == Disposition::Unwanted {
                    remote.withdrawn.truncate(MOST_WITHDRAWN - 1);
                    remote.withdrawn.push_front(ticket);
                }
                open
            };
            if let (Some(open), Disposition::Unwanted) = (open, disposition) {
                give_up(local, OpenOutcome { sent: false, ..open });
            }
        }
    }

    /// Waits for outcomes with a number above `received`, and returns an empty list after [`POLL_INTERVAL`]. `None` if the daemon
    /// is unknown.
    pub async fn outcomes(
        &self,
        local: &Arc<LocalLeases>,
        incarnation: u64,
        received: u64,
    ) -> Option<Vec<(u64, u64, WaitOutcome)>> {
        let until = Instant::now() + POLL_INTERVAL;
        loop {
            let changed = {
                let mut all = self.all();
                let remote = all.get_mut(&incarnation)?;
                remote.polled_at = Instant::now();
                // A hold stays until its disposition is known; a failure needs no disposition and is dropped once it was received.
                remote.outcomes.retain(|open| open.number > received || open.outcome.is_ok());
                let unsent = remote.outcomes.iter_mut().filter(|open| open.number > received);
                let send = |open: &mut OpenOutcome| {
                    open.sent = true;
                    let outcome = open.outcome.clone().and_then(|hold| local.current_hold(hold));
                    (open.number, open.ticket, outcome)
                };
                let sent: Vec<_> = unsent.map(send).collect();
                if !sent.is_empty() {
                    return Some(sent);
                }
                remote.changed.clone()
            };
            if tokio::time::timeout_at(until, changed.notified()).await.is_err() {
                return Some(Vec::new());
            }
        }
    }
}

/// Gives up a hold for which no client of the other daemon waits any more, or whose disposition will never be known.
fn give_up(local: &Arc<LocalLeases>, open: OpenOutcome) {
    let Ok(hold) = open.outcome else { return };
    if open.sent {
        let why = "the daemon that relayed the request stopped responding before it confirmed the delivery";
        local.lose_unconfirmed(hold.lease, hold.number, why);
    } else {
        let _ = local.perform(&open.identity, hold.lease, LeaseOperation::Abandon(hold.number));
    }
}

/// Drops the state of a daemon that has stopped polling: its waits end, and holds without a disposition are given up.
async fn forget_when_silent(
    waits: Weak<Mutex<HashMap<u64, RemoteDaemon>>>,
    local: Weak<LocalLeases>,
    incarnation: u64,
) {
    loop {
        let Some(waits) = waits.upgrade().map(IncomingWaits) else { return };
        let until = match waits.all().get(&incarnation) {
            Some(remote) => remote.polled_at + POLL_TIMEOUT,
            None => return,
        };
        if until > Instant::now() {
            drop(waits);
            tokio::time::sleep_until(until).await;
            continue;
        }
        let Some(remote) = waits.all().remove(&incarnation) else { return };
        remote.waits.values().for_each(AbortHandle::abort);
        let Some(local) = local.upgrade() else { return };
        for open in remote.outcomes {
            give_up(&local, open);
        }
        return;
    }
}
