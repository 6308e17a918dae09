//! Waits of this daemon's clients for locks by leases that live at other daemons.
//!
//! The other daemon is asked once, and says at once if the lock is had. After that, one question at a time to each daemon asks for the outcomes of all waits there,
//! and is answered when there are any. So it costs one question at a time however many wait, and a daemon that does not ask any more is taken for dead.

use super::id::LeaseId;
use super::peers::{Peers, makes_no_sense};
use super::words::{Answer, Asker, Asking, Fault, Hold, Op, Outcome, Question, Wanted};
use lockkeeper_cluster::MemberId;
use std::collections::HashMap;
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
    waiting: HashMap<u64, Waiting>,
    /// Whether a task asks for outcomes.
    polled: bool,
}

struct Waiting {
    asker: Asker,
    told: oneshot::Sender<Outcome>,
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
    ) -> Outcome {
        let asking = Asking { life: self.life, ticket: self.next.fetch_add(1, Ordering::Relaxed) };
        let mut place = Place { waits: self, to, asking, open: true };
        let outcome = self.wait(to, asking, asker, lease, wanted).await;
        place.open = false;
        outcome.map_err(|fault| match fault {
            // There, it is the daemon that ends; here, it is the lease.
            Fault::Stopped(_) => Fault::LeaseOver(lease, format!("the daemon {to}, where it lives, stops")),
            fault => fault,
        })
    }

    async fn wait(
        self: &Arc<Self>,
        to: MemberId,
        asking: Asking,
        asker: Asker,
        lease: LeaseId,
        mut wanted: Wanted,
    ) -> Outcome {
        let deadline = wanted.wait.and_then(|wait| Instant::now().checked_add(wait));
        loop {
            // Before it is asked: the outcome may be heard before the answer.
            let hears = self.register(to, asking, asker.clone());
            let question = Question::Acquire { asking, asker: asker.clone(), lease, wanted: wanted.clone() };
            match self.peers.ask(to, &question).await? {
                Answer::Acquire(Ok(Some(hold))) => return Ok(hold),
                Answer::Acquire(Err(fault)) => return Err(fault),
                Answer::Acquire(Ok(None)) => {}
                _ => return Err(makes_no_sense(to)),
            }
            self.start_polling(to);
            match hears.await {
                Ok(outcome) => return outcome,
                // It knows nothing of the wait any more: it is asked again, for what is left of the time.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            wanted.wait = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        }
    }

    fn register(&self, to: MemberId, asking: Asking, asker: Asker) -> oneshot::Receiver<Outcome> {
        let (told, hears) = oneshot::channel();
        self.there().entry(to).or_default().waiting.insert(asking.ticket, Waiting { asker, told });
        hears
    }

    fn start_polling(self: &Arc<Self>, to: MemberId) {
        if !std::mem::replace(&mut self.there().entry(to).or_default().polled, true) {
            tokio::spawn(self.clone().poll(to));
        }
    }

    /// Asks for outcomes for as long as anybody waits for some.
    async fn poll(self: Arc<Self>, to: MemberId) {
        let (mut heard, mut failing_since) = (0, None);
        while !self.is_idle(to) {
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
                        // Whoever waits asks again, and hears how things stand.
                        self.there().remove(&to);
                        return;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether nobody waits there. Then the task that asks ends, and whoever comes next starts another.
    fn is_idle(&self, to: MemberId) -> bool {
        let mut there = self.there();
        let idle = there.get(&to).is_none_or(|there| there.waiting.is_empty());
        if idle {
            there.remove(&to);
        }
        idle
    }

    fn tell(self: &Arc<Self>, to: MemberId, ticket: u64, outcome: Outcome) {
        // If nobody waits for it, the wait was given up, and the other daemon was told so.
        let waiting = self.there().get_mut(&to).and_then(|there| there.waiting.remove(&ticket));
        let Some(Waiting { asker, told }) = waiting else { return };
        if let Err(Ok(hold)) = told.send(outcome) {
            tokio::spawn(self.clone().give_back(to, asker, hold));
        }
    }

    /// A hold that came too late for whoever waited for it.
    async fn give_back(self: Arc<Self>, to: MemberId, asker: Asker, hold: Hold) {
        let question = Question::Do(asker, hold.lease, Op::Abandon(hold.number));
        let _ = self.peers.ask(to, &question).await;
    }

    /// Somebody waits no more.
    async fn give_up(self: Arc<Self>, to: MemberId, asking: Asking) {
        let _: Result<Answer, Fault> = self.peers.ask(to, &Question::GiveUp(asking)).await;
    }
}

/// A place in a queue elsewhere, which is given up when nobody waits any more.
struct Place<'a> {
    waits: &'a Arc<Waits>,
    to: MemberId,
    asking: Asking,
    open: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(there) = self.waits.there().get_mut(&self.to) {
            there.waiting.remove(&self.asking.ticket);
        }
        if self.open {
            tokio::spawn(self.waits.clone().give_up(self.to, self.asking));
        }
    }
}
