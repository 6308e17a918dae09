//! Waits of this daemon's clients for locks by leases that live at other daemons.
//!
//! This daemon sends one request to the other daemon, the lease's home, which replies at once if the lock is granted
//! immediately. After that, one long poll at a time to each home asks for the outcomes of all waits there. The cost
//! is thus one request at a time, independent of the number of waits.
//!
//! No hold is left without a client. Each wait has a ticket, and each ticket ends with a *fate*: the hold was
//! delivered to the client, or it is unwanted. The home keeps a granted hold under its ticket until it receives the
//! fate. It gives the hold up if the fate is "unwanted", or if this daemon does not poll for a while:
//!
//! | event | how the hold ends |
//! |---|---|
//! | the client closes its connection | the future of the wait is dropped: unwanted |
//! | the home does not reply in time | the same; a request that arrives at the home after its fate is rejected |
//! | the reply is lost | the request is repeated under the same ticket, and the home repeats the reply |
//! | an outcome arrives whose ticket is unknown here | unwanted |
//! | this daemon dies | the home receives no poll for [`SILENCE`] |
//! | the home dies | its leases end with it |

use super::id::LeaseId;
use super::peers::{Peers, makes_no_sense};
use super::receipt::{Granted, Receipt};
use super::words::{Answer, Asker, Asking, Fate, Fault, Outcome, Question, Wanted};
use lockkeeper_cluster::MemberId;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time after which the home replies to a poll if there are no outcomes.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// A daemon that has not polled for this time is considered dead.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits at other daemons.
pub(super) struct Waits {
    peers: Arc<Peers>,
    /// The incarnation of this daemon.
    life: u64,
    next: AtomicU64,
    there: Mutex<HashMap<MemberId, There>>,
}

/// The waits at one home.
#[derive(Default)]
struct There {
    tickets: HashMap<u64, Ticket>,
    /// Fates that the home has not acknowledged yet.
    fates: Vec<(u64, Fate)>,
    /// Whether a task polls for outcomes.
    polled: bool,
    /// Whether a task is sending fates.
    telling: bool,
}

/// A ticket without a fate.
enum Ticket {
    Waiting(oneshot::Sender<Outcome>),
    /// Its outcome is on the way to the client.
    Taken,
}

impl There {
    fn is_idle(&self) -> bool {
        self.tickets.is_empty() && self.fates.is_empty()
    }
}

impl Waits {
    pub fn new(peers: Arc<Peers>) -> Arc<Self> {
        // Incarnations are random: two with the same number would receive each other's outcomes.
        let life = getrandom::u64().unwrap_or_else(|_| std::process::id().into());
        Arc::new(Self { peers, life, next: AtomicU64::new(1), there: Mutex::default() })
    }

    fn there(&self) -> MutexGuard<'_, HashMap<MemberId, There>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a lock by a lease that lives at `to`.
    pub async fn acquire(
        self: &Arc<Self>,
        to: MemberId,
        asker: Asker,
        lease: LeaseId,
        wanted: Wanted,
    ) -> Result<Granted, Fault> {
        let asking = Asking { life: self.life, ticket: self.next.fetch_add(1, Ordering::Relaxed) };
        let mut place = Place { waits: self.clone(), to, ticket: asking.ticket, fate: Some(Fate::Unwanted) };
        match self.wait(to, asking, asker, lease, wanted).await {
            Ok(hold) => Ok(Granted { hold, receipt: Receipt::there(place) }),
            Err(Failed::There(fault)) => {
                // The home has reported that there is no hold, so the ticket needs no fate.
                place.forget();
                Err(match fault {
                    // At the home, the daemon stops; for the client of this daemon, the lease ends.
                    Fault::Stopped(_) => {
                        Fault::LeaseOver(lease, format!("the daemon {to}, where it lives, stops"))
                    }
                    fault => fault,
                })
            }
            Err(Failed::OnTheWay(fault)) => Err(fault),
        }
    }

    async fn wait(
        self: &Arc<Self>,
        to: MemberId,
        asking: Asking,
        asker: Asker,
        lease: LeaseId,
        mut wanted: Wanted,
    ) -> Result<super::words::Hold, Failed> {
        self.refuse_hopeless_try(to, &wanted)?;
        let deadline = wanted.wait.and_then(|wait| Instant::now().checked_add(wait));
        loop {
            // Register before sending: the poll may deliver the outcome before the reply arrives.
            let hears = self.register(to, asking.ticket);
            let question = Question::Acquire { asking, asker: asker.clone(), lease, wanted: wanted.clone() };
            let answer = self.peers.ask(to, &question).await.map_err(Failed::OnTheWay)?;
            match answer {
                Answer::Acquire(Ok(Some(hold))) => {
                    self.take(to, asking.ticket);
                    self.start_polling(to);
                    return Ok(hold);
                }
                Answer::Acquire(Err(fault)) => return Err(Failed::There(fault)),
                Answer::Acquire(Ok(None)) => {}
                _ => return Err(Failed::OnTheWay(makes_no_sense(to))),
            }
            self.start_polling(to);
            match hears.await {
                Ok(outcome) => return outcome.map_err(Failed::There),
                // The home no longer knows the wait: repeat the request with the remaining time.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            wanted.wait = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        }
    }

    /// Rejects a non-blocking request at once if this member has no lease and no connection to the lease's home.
    fn refuse_hopeless_try(&self, to: MemberId, wanted: &Wanted) -> Result<(), Failed> {
        let tries = wanted.wait.is_some_and(|wait| wait.is_zero());
        if tries
            && !self.peers.member.is_connected(to)
            && let Some(trouble) = self.peers.member.not_serving()
        {
            return Err(Failed::There(Fault::NoLease(trouble.to_string())));
        }
        Ok(())
    }

    fn register(&self, to: MemberId, ticket: u64) -> oneshot::Receiver<Outcome> {
        let (told, hears) = oneshot::channel();
        self.there().entry(to).or_default().tickets.insert(ticket, Ticket::Waiting(told));
        hears
    }

    /// Marks the outcome of a wait as on its way to the client. Returns the waiter, if it has not received an outcome
    /// yet.
    fn take(&self, to: MemberId, ticket: u64) -> Option<oneshot::Sender<Outcome>> {
        match self.there().get_mut(&to)?.tickets.insert(ticket, Ticket::Taken)? {
            Ticket::Waiting(told) => Some(told),
            Ticket::Taken => None,
        }
    }

    fn start_polling(self: &Arc<Self>, to: MemberId) {
        if !std::mem::replace(&mut self.there().entry(to).or_default().polled, true) {
            tokio::spawn(self.clone().poll(to));
        }
    }

    /// Polls for outcomes while any ticket there has no acknowledged fate.
    async fn poll(self: Arc<Self>, to: MemberId) {
        let (mut heard, mut failing_since) = (0, None);
        while !self.is_idle(to) {
            self.tell_fates(to).await;
            let question = Question::Outcomes { life: self.life, heard };
            match self.peers.ask_once(to, &question, POLL * 3).await {
                Ok(Answer::Outcomes(Some(outcomes))) => {
                    failing_since = None;
                    for (number, ticket, outcome) in outcomes {
                        heard = heard.max(number);
                        self.tell(to, ticket, outcome);
                    }
                }
                answer => {
                    let forgotten = matches!(answer, Ok(Answer::Outcomes(None)));
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if forgotten || self.peers.is_gone(to) || since.elapsed() > SILENCE {
                        // The home has given up all holds without a fate. Dropping the senders makes the waiters
                        // repeat their requests.
                        self.there().remove(&to);
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether no ticket or fate is left there. In that case the entry is removed, so that the polling task ends and
    /// the next wait starts another.
    fn is_idle(&self, to: MemberId) -> bool {
        let mut there = self.there();
        let idle = there.get(&to).is_none_or(There::is_idle);
        if idle {
            there.remove(&to);
        }
        idle
    }

    /// Handles an outcome. It may arrive again until the home knows its fate.
    fn tell(self: &Arc<Self>, to: MemberId, ticket: u64, outcome: Outcome) {
        let mut all = self.there();
        let there = all.entry(to).or_default();
        if there.fates.iter().any(|(of, _)| *of == ticket) {
            return;
        }
        // (state of the ticket here, whether the lock was granted)
        match (there.tickets.remove(&ticket), outcome.is_ok()) {
            (Some(Ticket::Waiting(told)), true) => {
                there.tickets.insert(ticket, Ticket::Taken);
                // If the receiver is gone, the waiter is being dropped and decides the ticket's fate.
                let _ = told.send(outcome);
            }
            (Some(Ticket::Waiting(told)), false) => drop(told.send(outcome)),
            (Some(Ticket::Taken), _) => drop(there.tickets.insert(ticket, Ticket::Taken)),
            // The wait was given up before the home received the request.
            (None, true) => there.fates.push((ticket, Fate::Unwanted)),
            (None, false) => {}
        }
    }

    /// Records a ticket's fate and sends it to the home, again and again until it is acknowledged.
    fn decide(self: &Arc<Self>, to: MemberId, ticket: u64, fate: Fate) {
        let mut all = self.there();
        let there = all.entry(to).or_default();
        there.tickets.remove(&ticket);
        there.fates.push((ticket, fate));
        drop(all);
        // At the end of the process there may be no runtime any more. The home then notices the missing polls.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let waits = self.clone();
            runtime.spawn(async move {
                waits.tell_fates(to).await;
                if !waits.is_idle(to) {
                    waits.start_polling(to);
                }
            });
        }
    }

    /// Sends fates to the home until all are acknowledged or it does not reply.
    async fn tell_fates(&self, to: MemberId) {
        loop {
            let fates = {
                let mut all = self.there();
                let Some(there) = all.get_mut(&to).filter(|there| !there.telling) else { return };
                there.telling = !there.fates.is_empty();
                there.fates.clone()
            };
            if fates.is_empty() {
                return;
            }
            let told: HashSet<u64> = fates.iter().map(|(ticket, _)| *ticket).collect();
            let question = Question::Settle { life: self.life, fates };
            let settled = self.peers.ask_once(to, &question, POLL * 3).await;
            let mut all = self.there();
            let Some(there) = all.get_mut(&to) else { return };
            there.telling = false;
            if !matches!(settled, Ok(Answer::Settled)) {
                return;
            }
            there.fates.retain(|(ticket, _)| !told.contains(ticket));
        }
    }
}

/// The reason why a wait at another daemon failed.
enum Failed {
    /// The home has reported a failure: there is no hold.
    There(Fault),
    /// No reply: the home may have granted the lock or may grant it later.
    OnTheWay(Fault),
}

/// A wait at another daemon, or its outcome. Dropping it sends the fate.
pub(super) struct Place {
    waits: Arc<Waits>,
    to: MemberId,
    ticket: u64,
    fate: Option<Fate>,
}

impl Place {
    /// Records that the hold was delivered to the client.
    pub fn delivered(mut self) {
        self.fate = Some(Fate::Delivered);
    }

    /// Drops the ticket without a fate.
    fn forget(&mut self) {
        self.fate = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.fate.take() {
            Some(fate) => self.waits.decide(self.to, self.ticket, fate),
            None => {
                if let Some(there) = self.waits.there().get_mut(&self.to) {
                    there.tickets.remove(&self.ticket);
                }
            }
        }
    }
}
