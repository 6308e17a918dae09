//! Waits of other daemons' clients for locks by leases that live here. See [`waits`](super::waits).

use super::book::Book;
use super::wait::Wait;
use super::waits::{POLL, SILENCE};
use super::words::{Asker, Asking, Fate, Fault, Hold, Op, Outcome};
use lockkeeper_cluster::MemberId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Number of tickets remembered for each daemon whose waits were given up before their requests arrived.
const MOST_GONE: usize = 4096;

/// Waits of other daemons' clients, by the incarnation of the daemon.
#[derive(Clone, Default)]
pub(super) struct Guests(Arc<Mutex<HashMap<u64, Guest>>>);

/// One incarnation of another daemon.
struct Guest {
    waits: HashMap<u64, AbortHandle>,
    /// Outcomes that it has not received yet, and holds whose fate is not yet known here.
    outcomes: VecDeque<Open>,
    /// Tickets that were given up and are unknown here: their requests may still be in flight.
    gone: VecDeque<u64>,
    next: u64,
    news: Arc<Notify>,
    heard_at: Instant,
}

/// The outcome of a wait.
struct Open {
    number: u64,
    ticket: u64,
    outcome: Outcome,
    asker: Asker,
    /// Whether the outcome was sent, so that the client may know of it.
    told: bool,
}

impl Guest {
    fn new() -> Self {
        let (waits, outcomes, gone, news) =
            (HashMap::new(), VecDeque::new(), VecDeque::new(), Arc::default());
        Self { waits, outcomes, gone, next: 1, news, heard_at: Instant::now() }
    }

    fn push(&mut self, ticket: u64, outcome: Outcome, asker: Asker, told: bool) {
        let number = self.next;
        self.next += 1;
        self.outcomes.push_back(Open { number, ticket, outcome, asker, told });
    }

    fn remove(&mut self, ticket: u64) -> Option<Open> {
        let place = self.outcomes.iter().position(|open| open.ticket == ticket)?;
        self.outcomes.remove(place)
    }
}

impl Guests {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Guest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a request of another daemon's client for a lock. The same request may arrive again.
    pub fn acquire(
        &self,
        book: &Arc<Book>,
        from: MemberId,
        asking: Asking,
        asker: &Asker,
        wait: impl FnOnce() -> Result<Wait, Fault>,
    ) -> Result<Option<Hold>, Fault> {
        let mut all = self.all();
        let guest = all.entry(asking.life).or_insert_with(|| {
            tracing::debug!(%from, life = asking.life, "first wait for a client of that daemon");
            tokio::spawn(watch_over(Arc::downgrade(&self.0), Arc::downgrade(book), asking.life));
            Guest::new()
        });
        guest.heard_at = Instant::now();
        if guest.gone.contains(&asking.ticket) {
            return Err(Fault::GivenUp(String::from("the lock")));
        }
        if guest.waits.contains_key(&asking.ticket) {
            return Ok(None);
        }
        if let Some(open) = guest.outcomes.iter_mut().find(|open| open.ticket == asking.ticket) {
            open.told = true;
            return open.outcome.clone().and_then(|hold| book.as_of_now(hold)).map(Some);
        }
        let mut wait = wait()?;
        if let Some(outcome) = wait.now() {
            let hold = outcome?;
            guest.push(asking.ticket, Ok(hold.clone()), asker.clone(), true);
            return Ok(Some(hold));
        }
        let (guests, asker, book) = (self.clone(), asker.clone(), Arc::downgrade(book));
        let task = tokio::spawn(async move {
            let outcome = wait.outcome().await;
            if let Some(unwanted) = guests.settle(asking, outcome, asker)
                && let Some(book) = book.upgrade()
            {
                give_up(&book, unwanted);
            }
        });
        guest.waits.insert(asking.ticket, task.abort_handle());
        Ok(None)
    }

    /// Stores the outcome of a wait. Returns it if the wait has been given up.
    fn settle(&self, asking: Asking, outcome: Outcome, asker: Asker) -> Option<Open> {
        let mut all = self.all();
        let guest = all.get_mut(&asking.life).filter(|guest| guest.waits.contains_key(&asking.ticket));
        let Some(guest) = guest else {
            return Some(Open { number: 0, ticket: asking.ticket, outcome, asker, told: false });
        };
        guest.waits.remove(&asking.ticket);
        guest.push(asking.ticket, outcome, asker, false);
        guest.news.notify_one();
        None
    }

    /// Handles the fates of tickets, as reported by the other daemon.
    pub fn fates(&self, book: &Arc<Book>, life: u64, fates: &[(u64, Fate)]) {
        for &(ticket, fate) in fates {
            let open = {
                let mut all = self.all();
                // Without a guest, all its waits and holds have been given up already.
                let Some(guest) = all.get_mut(&life) else { return };
                guest.heard_at = Instant::now();
                let waits = guest.waits.remove(&ticket);
                if let Some(task) = &waits {
                    task.abort();
                }
                let open = guest.remove(ticket);
                if waits.is_none() && open.is_none() && fate == Fate::Unwanted {
                    guest.gone.truncate(MOST_GONE - 1);
                    guest.gone.push_front(ticket);
                }
                open
            };
            if let (Some(open), Fate::Unwanted) = (open, fate) {
                give_up(book, Open { told: false, ..open });
            }
        }
    }

    /// Waits for outcomes with a number above `heard`, and returns an empty list after [`POLL`]. `None` if the daemon
    /// is unknown.
    pub async fn outcomes(
        &self,
        book: &Arc<Book>,
        life: u64,
        heard: u64,
    ) -> Option<Vec<(u64, u64, Outcome)>> {
        let until = Instant::now() + POLL;
        loop {
            let news = {
                let mut all = self.all();
                let guest = all.get_mut(&life)?;
                guest.heard_at = Instant::now();
                // A hold stays until its fate is known; a failure needs no fate and is dropped once it was received.
                guest.outcomes.retain(|open| open.number > heard || open.outcome.is_ok());
                let unheard = guest.outcomes.iter_mut().filter(|open| open.number > heard);
                let tell = |open: &mut Open| {
                    open.told = true;
                    let outcome = open.outcome.clone().and_then(|hold| book.as_of_now(hold));
                    (open.number, open.ticket, outcome)
                };
                let told: Vec<_> = unheard.map(tell).collect();
                if !told.is_empty() {
                    return Some(told);
                }
                guest.news.clone()
            };
            if tokio::time::timeout_at(until, news.notified()).await.is_err() {
                return Some(Vec::new());
            }
        }
    }
}

/// Gives up a hold that no client of the other daemon wants, or whose fate will never be known.
fn give_up(book: &Arc<Book>, open: Open) {
    let Ok(hold) = open.outcome else { return };
    if open.told {
        let why = "the daemon that relayed the request stopped responding before it confirmed the delivery";
        book.disown(hold.lease, hold.number, why);
    } else {
        let _ = book.perform(&open.asker, hold.lease, Op::Abandon(hold.number));
    }
}

/// Forgets a daemon that has stopped polling: its waits end, and holds without a fate are given up.
async fn watch_over(guests: Weak<Mutex<HashMap<u64, Guest>>>, book: Weak<Book>, life: u64) {
    loop {
        let Some(guests) = guests.upgrade().map(Guests) else { return };
        let until = match guests.all().get(&life) {
            Some(guest) => guest.heard_at + SILENCE,
            None => return,
        };
        if until > Instant::now() {
            drop(guests);
            tokio::time::sleep_until(until).await;
            continue;
        }
        let Some(guest) = guests.all().remove(&life) else { return };
        guest.waits.values().for_each(AbortHandle::abort);
        let Some(book) = book.upgrade() else { return };
        for open in guest.outcomes {
            give_up(&book, open);
        }
        return;
    }
}
