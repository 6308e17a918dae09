//! Waits of this daemon's clients for locks by leases that live at other daemons.
//!
//! The other daemon, the lease's home, is asked once, and says at once if the lock is had. After that, one question at a time to each daemon asks for
//! the outcomes of all waits there, and is answered when there are any. So it costs one question at a time however many wait.
//!
//! No hold is left without a client. Each wait has a ticket, and each ticket ends with a *fate*: the client was told of the hold, or the hold is
//! not wanted. Home keeps a granted hold under its ticket until it hears the fate, and gives it up if the fate is "not wanted", or if it hears
//! nothing of this daemon for a while:
//!
//! | what happens | how the hold ends |
//! |---|---|
//! | the client closes its connection | the future of the wait is dropped: not wanted |
//! | home does not answer in time | the same; a request that arrives at home after its fate is refused |
//! | the answer is lost | asked again under the same ticket, home repeats it |
//! | an outcome is told whose ticket is unknown here | not wanted |
//! | this daemon dies | home hears nothing for [`SILENCE`] |
//! | home dies | its leases end with it |

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

/// For how long a question for outcomes is left unanswered if there are none.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// After so long without such a question, whoever asked is taken for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits at other daemons.
pub(super) struct Waits {
    peers: Arc<Peers>,
    /// This life of this daemon.
    life: u64,
    next: AtomicU64,
    there: Mutex<HashMap<MemberId, There>>,
}

/// The waits at one daemon.
#[derive(Default)]
struct There {
    tickets: HashMap<u64, Ticket>,
    /// Fates that the other daemon has not acknowledged yet.
    fates: Vec<(u64, Fate)>,
    /// Whether a task asks for outcomes.
    polled: bool,
    /// Whether a task tells fates.
    telling: bool,
}

/// A wait that has no fate yet.
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
        // Two lives with the same number would take each other's outcomes.
        let life = getrandom::u64().unwrap_or_else(|_| std::process::id().into());
        Arc::new(Self { peers, life, next: AtomicU64::new(1), there: Mutex::default() })
    }

    fn there(&self) -> MutexGuard<'_, HashMap<MemberId, There>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a lock by a lease that lives there.
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
                // Home has said that there is no hold.
                place.forget();
                Err(match fault {
                    // There, it is the daemon that ends; here, it is the lease.
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
            // Before it is asked: the outcome may be heard before the answer.
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
                // It knows nothing of the wait any more: it is asked again, for what is left of the time.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            wanted.wait = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        }
    }

    /// A request that does not wait is answered at once if this member has no lease, and no connection to the lease's home either.
    fn refuse_hopeless_try(&self, to: MemberId, wanted: &Wanted) -> Result<(), Failed> {
        let tries = wanted.wait.is_some_and(|wait| wait.is_zero());
        if tries
            && !self.peers.member.is_connected(to)
            && let Some(trouble) = self.peers.member.trouble()
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

    /// The outcome of a wait is on its way to the client. Gives the waiter, if it was not told yet.
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

    /// Asks for outcomes for as long as any ticket has no acknowledged fate.
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
                        // Home has given up all holds without a fate. Whoever waits asks again, and hears how things stand.
                        self.there().remove(&to);
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether nothing is open there. Then the task that asks ends, and whoever comes next starts another.
    fn is_idle(&self, to: MemberId) -> bool {
        let mut there = self.there();
        let idle = there.get(&to).is_none_or(There::is_idle);
        if idle {
            there.remove(&to);
        }
        idle
    }

    /// An outcome is told. It may be told again until its fate is known there.
    fn tell(self: &Arc<Self>, to: MemberId, ticket: u64, outcome: Outcome) {
        let mut all = self.there();
        let there = all.entry(to).or_default();
        if there.fates.iter().any(|(of, _)| *of == ticket) {
            return;
        }
        match (there.tickets.remove(&ticket), outcome.is_ok()) {
            (Some(Ticket::Waiting(told)), true) => {
                there.tickets.insert(ticket, Ticket::Taken);
                // If nobody listens, the waiter is going, and decides the ticket's fate as it goes.
                let _ = told.send(outcome);
            }
            (Some(Ticket::Waiting(told)), false) => drop(told.send(outcome)),
            (Some(Ticket::Taken), _) => drop(there.tickets.insert(ticket, Ticket::Taken)),
            // The wait was given up before home heard of it.
            (None, true) => there.fates.push((ticket, Fate::Unwanted)),
            (None, false) => {}
        }
    }

    /// A ticket's fate is known. Home is told now, and again until it acknowledges that.
    fn decide(self: &Arc<Self>, to: MemberId, ticket: u64, fate: Fate) {
        let mut all = self.there();
        let there = all.entry(to).or_default();
        there.tickets.remove(&ticket);
        there.fates.push((ticket, fate));
        drop(all);
        // At the end of the process there may be no runtime any more: home notices the silence.
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

    /// Tells the other daemon what became of tickets, until it has acknowledged everything or does not answer.
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

/// Why a wait elsewhere came to nothing.
enum Failed {
    /// Home says so: there is no hold.
    There(Fault),
    /// Home may have granted the lock, or may grant it later.
    OnTheWay(Fault),
}

/// A wait elsewhere, or what came of it. Its fate is told when it goes.
pub(super) struct Place {
    waits: Arc<Waits>,
    to: MemberId,
    ticket: u64,
    fate: Option<Fate>,
}

impl Place {
    /// The client was told of the hold.
    pub fn delivered(mut self) {
        self.fate = Some(Fate::Delivered);
    }

    /// There is nothing to be decided.
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
