//! Waits of this daemon's clients for locks by leases that live at other daemons.
//!
//! This daemon sends one request to the other daemon, the lease's home, which replies at once if the lock is granted
//! immediately. After that, one long poll at a time to each home requests the outcomes of all waits there. The cost is
//! thus one request at a time, independent of the number of waits.
//!
//! No hold is left without a client. Each wait has a ticket, and each ticket ends with a *disposition*: the hold was
//! delivered to the client, or it is unwanted. The home keeps a granted hold under its ticket until it receives the
//! disposition. It gives the hold up if the disposition is "unwanted", or if this daemon does not poll for a while:
//!
//! | event | how the hold ends |
//! |---|---|
//! | the client closes its connection | the future of the wait is dropped: unwanted |
//! | the home does not reply in time | the same; a request that arrives at the home after its disposition is rejected |
//! | the reply is lost | the request is repeated under the same ticket, and the home repeats the reply |
//! | an outcome arrives whose ticket is unknown here | unwanted |
//! | this daemon dies | the home receives no poll for [`POLL_TIMEOUT`] |
//! | the home dies | its leases end with it |

use super::id::LeaseId;
use super::messages::{DaemonReply, DaemonRequest, Disposition, WaitId, WaitOutcome};
use super::operations::{CallerIdentity, HoldRequest, LeaseError};
use super::peers::{Peers, cannot_decode};
use super::receipt::{DeliveryReceipt, Granted};
use lockkeeper_cluster::MemberId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time after which the home replies to a poll if there are no outcomes.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A daemon that has not polled for this time is considered dead.
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits at other daemons.
pub(super) struct OutgoingWaits {
    peers: Arc<Peers>,
    /// The incarnation of this daemon.
    incarnation: u64,
    next: AtomicU64,
    homes: Mutex<HashMap<MemberId, HomeWaits>>,
}

/// The waits at one home.
#[derive(Default)]
struct HomeWaits {
    tickets: HashMap<u64, Ticket>,
    /// Dispositions that the home has not acknowledged yet.
    dispositions: Vec<(u64, Disposition)>,
    /// Whether a task polls for outcomes.
    polled: bool,
    /// Whether a task is sending dispositions.
    sending: bool,
}

/// A ticket without a disposition.
enum Ticket {
    Waiting(oneshot::Sender<WaitOutcome>),
    /// Its outcome is on the way to the client.
    Delivering,
}

impl HomeWaits {
    fn is_idle(&self) -> bool {
        self.tickets.is_empty() && self.dispositions.is_empty()
    }
}

impl OutgoingWaits {
    pub fn new(peers: Arc<Peers>) -> Arc<Self> {
        // Incarnations are random: two with the same number would receive each other's outcomes.
        let incarnation = getrandom::u64().unwrap_or_else(|_| std::process::id().into());
        Arc::new(Self { peers, incarnation, next: AtomicU64::new(1), homes: Mutex::default() })
    }

    fn homes(&self) -> MutexGuard<'_, HashMap<MemberId, HomeWaits>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a lock by a lease that lives at `to`.
    pub async fn acquire(
        self: &Arc<Self>,
        to: MemberId,
        identity: CallerIdentity,
        lease: LeaseId,
        mut request: HoldRequest,
    ) -> Result<Granted, LeaseError> {
        self.refuse_without_lease(to, &request)?;
        let deadline = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let message = |wait| {
            // A repeated request has the remaining time.
            request.timeout =
                deadline.map(|at| at.saturating_duration_since(Instant::now())).or(request.timeout);
            DaemonRequest::Acquire { wait, identity: identity.clone(), lease, request: request.clone() }
        };
        self.open(to, lease, message).await
    }

    /// Waits for the outcome of an entry that stays in the queue, by a lease that lives at `to`.
    pub async fn join(
        self: &Arc<Self>,
        to: MemberId,
        identity: CallerIdentity,
        lease: LeaseId,
        lock: String,
    ) -> Result<Granted, LeaseError> {
        let message = |wait| {
            let (identity, lock) = (identity.clone(), lock.clone());
            DaemonRequest::Join { wait, identity, lease, lock }
        };
        self.open(to, lease, message).await
    }

    /// Opens a ticket for a request, and waits for its outcome.
    async fn open(
        self: &Arc<Self>,
        to: MemberId,
        lease: LeaseId,
        message: impl FnMut(WaitId) -> DaemonRequest,
    ) -> Result<Granted, LeaseError> {
        let wait =
            WaitId { incarnation: self.incarnation, ticket: self.next.fetch_add(1, Ordering::Relaxed) };
        let mut open_ticket = OutgoingTicket {
            waits: self.clone(),
            to,
            ticket: wait.ticket,
            disposition: Some(Disposition::Unwanted),
        };
        match self.wait(to, wait, message).await {
            Ok(hold) => Ok(Granted { hold, receipt: DeliveryReceipt::remote(open_ticket) }),
            Err(Failed::AtHome(error)) => {
                // The home has reported that there is no hold, so the ticket needs no disposition.
                open_ticket.forget();
                Err(match error {
                    // At the home, the daemon stops; for the client of this daemon, the lease ends.
                    LeaseError::Stopped(_) => {
                        LeaseError::LeaseEnded(lease, format!("the daemon {to}, where it lives, stops"))
                    }
                    error => error,
                })
            }
            Err(Failed::NoReply(error)) => Err(error),
        }
    }

    async fn wait(
        self: &Arc<Self>,
        to: MemberId,
        wait: WaitId,
        mut message: impl FnMut(WaitId) -> DaemonRequest,
    ) -> Result<super::operations::Hold, Failed> {
        loop {
            // Register before sending: the poll may deliver the outcome before the reply arrives.
            let receiver = self.register(to, wait.ticket);
            let reply = self.peers.send(to, &message(wait)).await.map_err(Failed::NoReply)?;
            match reply {
                DaemonReply::Acquire(Ok(Some(hold))) => {
                    self.take(to, wait.ticket);
                    self.start_polling(to);
                    return Ok(hold);
                }
                DaemonReply::Acquire(Err(error)) => return Err(Failed::AtHome(error)),
                DaemonReply::Acquire(Ok(None)) => {}
                _ => return Err(Failed::NoReply(cannot_decode(to))),
            }
            self.start_polling(to);
            match receiver.await {
                Ok(outcome) => return outcome.map_err(Failed::AtHome),
                // The home no longer knows the wait: repeat the request.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Rejects a non-blocking request at once if this member has no lease and no connection to the lease's home.
    fn refuse_without_lease(&self, to: MemberId, request: &HoldRequest) -> Result<(), LeaseError> {
        let non_blocking = request.timeout.is_some_and(|timeout| timeout.is_zero());
        if non_blocking
            && !self.peers.member.is_connected(to)
            && let Some(trouble) = self.peers.member.not_serving()
        {
            return Err(LeaseError::MemberHasNoLease(trouble.to_string()));
        }
        Ok(())
    }

    fn register(&self, to: MemberId, ticket: u64) -> oneshot::Receiver<WaitOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.homes().entry(to).or_default().tickets.insert(ticket, Ticket::Waiting(sender));
        receiver
    }

    /// Marks the outcome of a wait as on its way to the client. Returns the waiter, if it has not received an outcome
    /// yet.
    fn take(&self, to: MemberId, ticket: u64) -> Option<oneshot::Sender<WaitOutcome>> {
        match self.homes().get_mut(&to)?.tickets.insert(ticket, Ticket::Delivering)? {
            Ticket::Waiting(sender) => Some(sender),
            Ticket::Delivering => None,
        }
    }

    fn start_polling(self: &Arc<Self>, to: MemberId) {
        if !std::mem::replace(&mut self.homes().entry(to).or_default().polled, true) {
            tokio::spawn(self.clone().poll(to));
        }
    }

    /// Polls for outcomes while any ticket there has no acknowledged disposition.
    async fn poll(self: Arc<Self>, to: MemberId) {
        let (mut received, mut failing_since) = (0, None);
        while !self.is_idle(to) {
            self.send_dispositions(to).await;
            let message = DaemonRequest::Outcomes { incarnation: self.incarnation, received };
            match self.peers.send_once(to, &message, POLL_INTERVAL * 3).await {
                Ok(DaemonReply::Outcomes(Some(outcomes))) => {
                    failing_since = None;
                    for (number, ticket, outcome) in outcomes {
                        received = received.max(number);
                        self.receive_outcome(to, ticket, outcome);
                    }
                }
                reply => {
                    let forgotten = matches!(reply, Ok(DaemonReply::Outcomes(None)));
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if forgotten || self.peers.is_gone(to) || since.elapsed() > POLL_TIMEOUT {
                        // The home has given up all holds without a disposition. Dropping the senders makes the waiters
                        // repeat their requests.
                        self.homes().remove(&to);
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether no ticket or disposition is left there. In that case the entry is removed, so that the polling task ends and
    /// the next wait starts another.
    fn is_idle(&self, to: MemberId) -> bool {
        let mut homes = self.homes();
        let idle = homes.get(&to).is_none_or(HomeWaits::is_idle);
        if idle {
            homes.remove(&to);
        }
        idle
    }

    /// Handles an outcome. It may arrive again until the home knows its disposition.
    fn receive_outcome(self: &Arc<Self>, to: MemberId, ticket: u64, outcome: WaitOutcome) {
        let mut all = self.homes();
        let home = all.entry(to).or_default();
        if home.dispositions.iter().any(|(of, _)| *of == ticket) {
            return;
        }
        // (state of the ticket here, whether the lock was granted)
        match (home.tickets.remove(&ticket), outcome.is_ok()) {
            (Some(Ticket::Waiting(sender)), true) => {
                home.tickets.insert(ticket, Ticket::Delivering);
                // If the receiver is gone, the waiter is being dropped and decides the ticket's disposition.
                let _ = sender.send(outcome);
            }
            (Some(Ticket::Waiting(sender)), false) => drop(sender.send(outcome)),
            (Some(Ticket::Delivering), _) => drop(home.tickets.insert(ticket, Ticket::Delivering)),
            // The wait was given up before the home received the request.
            (None, true) => home.dispositions.push((ticket, Disposition::Unwanted)),
            (None, false) => {}
        }
    }

    /// Records a ticket's disposition and sends it to the home, again and again until it is acknowledged.
    fn decide(self: &Arc<Self>, to: MemberId, ticket: u64, disposition: Disposition) {
        let mut all = self.homes();
        let home = all.entry(to).or_default();
        home.tickets.remove(&ticket);
        home.dispositions.push((ticket, disposition));
        drop(all);
        // At the end of the process there may be no runtime any more. The home then detects the missing polls.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let waits = self.clone();
            runtime.spawn(async move {
                waits.send_dispositions(to).await;
                if !waits.is_idle(to) {
                    waits.start_polling(to);
                }
            });
        }
    }

    /// Sends dispositions to the home until all are acknowledged or it does not reply.
    async fn send_dispositions(&self, to: MemberId) {
        loop {
            let dispositions = {
                let mut all = self.homes();
                let Some(home) = all.get_mut(&to).filter(|home| !home.sending) else { return };
                home.sending = !home.dispositions.is_empty();
                home.dispositions.clone()
            };
            if dispositions.is_empty() {
                return;
            }
            let sent: HashSet<u64> = dispositions.iter().map(|(ticket, _)| *ticket).collect();
            let message = DaemonRequest::Dispose { incarnation: self.incarnation, dispositions };
            let settled = self.peers.send_once(to, &message, POLL_INTERVAL * 3).await;
            let mut all = self.homes();
            let Some(home) = all.get_mut(&to) else { return };
            home.sending = false;
            if !matches!(settled, Ok(DaemonReply::Disposed)) {
                return;
            }
            home.dispositions.retain(|(ticket, _)| !sent.contains(ticket));
        }
    }
}

/// The reason why a wait at another daemon failed.
enum Failed {
    /// The home has reported a failure: there is no hold.
    AtHome(LeaseError),
    /// No reply: the home may have granted the lock or may grant it later.
    NoReply(LeaseError),
}

/// A wait at another daemon, or its outcome. Dropping it sends the disposition.
pub(super) struct OutgoingTicket {
    waits: Arc<OutgoingWaits>,
    to: MemberId,
    ticket: u64,
    disposition: Option<Disposition>,
}

impl OutgoingTicket {
    /// Records that the hold was delivered to the client.
    pub fn delivered(mut self) {
        self.disposition = Some(Disposition::Delivered);
    }

    /// Drops the ticket without a disposition.
    fn forget(&mut self) {
        self.disposition = None;
    }
}

impl Drop for OutgoingTicket {
    fn drop(&mut self) {
        match self.disposition.take() {
            Some(disposition) => self.waits.decide(self.to, self.ticket, disposition),
            None => {
                if let Some(home) = self.waits.homes().get_mut(&self.to) {
                    home.tickets.remove(&self.ticket);
                }
            }
        }
    }
}
