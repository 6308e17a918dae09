//! Waits of other daemons' clients for locks by leases that live here. See [`waits`](super::waits).

use super::book::Book;
use super::wait::Wait;
use super::waits::{POLL, SILENCE};
use super::words::{Asker, Asking, Fault, Hold, Op, Outcome};
use lockkeeper_cluster::MemberId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Waits of other daemons' clients, by the life of the daemon.
#[derive(Clone, Default)]
pub(super) struct Guests(Arc<Mutex<HashMap<u64, Guest>>>);

/// One life of another daemon.
struct Guest {
    waits: HashMap<u64, AbortHandle>,
    /// What it has not said it has heard.
    outcomes: VecDeque<Unheard>,
    next: u64,
    news: Arc<Notify>,
    heard_at: Instant,
}

/// What became of a wait.
struct Unheard {
    number: u64,
    ticket: u64,
    outcome: Outcome,
    asker: Asker,
    /// It was told, and may have been heard.
    told: bool,
}

impl Guests {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Guest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of another daemon wants a lock. The same wait may be asked for again.
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
            tracing::debug!(%from, life = asking.life, "waits for clients there begin");
            tokio::spawn(watch_over(Arc::downgrade(&self.0), Arc::downgrade(book), asking.life));
            let (waits, outcomes, news) = (HashMap::new(), VecDeque::new(), Arc::default());
            Guest { waits, outcomes, next: 1, news, heard_at: Instant::now() }
        });
        guest.heard_at = Instant::now();
        let known = guest.waits.contains_key(&asking.ticket)
            || guest.outcomes.iter().any(|unheard| unheard.ticket == asking.ticket);
        if known {
            return Ok(None);
        }
        let mut wait = wait()?;
        if let Some(outcome) = wait.now() {
            return outcome.map(Some);
        }
        let (guests, asker) = (self.clone(), asker.clone());
        let task = tokio::spawn(async move {
            let outcome = wait.outcome().await;
            guests.settle(asking, outcome, asker);
        });
        guest.waits.insert(asking.ticket, task.abort_handle());
        Ok(None)
    }

    fn settle(&self, asking: Asking, outcome: Outcome, asker: Asker) {
        let mut all = self.all();
        let Some(guest) = all.get_mut(&asking.life) else { return };
        guest.waits.remove(&asking.ticket);
        let (number, ticket) = (guest.next, asking.ticket);
        guest.outcomes.push_back(Unheard { number, ticket, outcome, asker, told: false });
        guest.next += 1;
        guest.news.notify_one();
    }

    /// A client of another daemon is gone.
    pub fn give_up(&self, book: &Arc<Book>, asking: Asking) {
        let unheard = {
            let mut all = self.all();
            let Some(guest) = all.get_mut(&asking.life) else { return };
            if let Some(task) = guest.waits.remove(&asking.ticket) {
                task.abort();
            }
            let of_it = |unheard: &Unheard| unheard.ticket == asking.ticket;
            guest.outcomes.iter().position(of_it).and_then(|place| guest.outcomes.remove(place))
        };
        if let Some(Unheard { outcome: Ok(hold), asker, .. }) = unheard {
            let _ = book.perform(&asker, hold.lease, Op::Abandon(hold.number));
        }
    }

    /// What became of the waits, once there is something to tell. `None` if there are none.
    pub async fn outcomes(&self, life: u64, heard: u64) -> Option<Vec<(u64, u64, Outcome)>> {
        let until = Instant::now() + POLL;
        loop {
            let news = {
                let mut all = self.all();
                let guest = all.get_mut(&life)?;
                guest.heard_at = Instant::now();
                guest.outcomes.retain(|unheard| unheard.number > heard);
                if !guest.outcomes.is_empty() {
                    let tell = |unheard: &mut Unheard| {
                        unheard.told = true;
                        (unheard.number, unheard.ticket, unheard.outcome.clone())
                    };
                    return Some(guest.outcomes.iter_mut().map(tell).collect());
                }
                guest.news.clone()
            };
            if tokio::time::timeout_at(until, news.notified()).await.is_err() {
                return Some(Vec::new());
            }
        }
    }
}

/// Forgets a daemon that does not ask any more: its clients wait no more, and nobody has heard of what was not heard.
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
        // What was told may have been heard: if not, the lease ends some day.
        for Unheard { outcome, asker, told, .. } in guest.outcomes {
            if let (Ok(hold), false) = (outcome, told) {
                let _ = book.perform(&asker, hold.lease, Op::Abandon(hold.number));
            }
        }
        return;
    }
}
