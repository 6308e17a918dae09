//! The wait of somebody for a lock by a lease that lives here.

use super::book::Book;
use super::lease::{Entry, Lease};
use super::words::{Fault, Hold, Outcome};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// Somebody waits for a lock by a lease that lives here.
pub(super) struct Wait {
    book: Weak<Book>,
    lease: Arc<Lease>,
    number: u64,
    news: watch::Receiver<Option<Outcome>>,
    open: bool,
}

impl Wait {
    pub fn new(
        book: Weak<Book>,
        lease: Arc<Lease>,
        number: u64,
        news: watch::Receiver<Option<Outcome>>,
    ) -> Self {
        Self { book, lease, number, news, open: true }
    }

    /// What has become of it, if that is known.
    pub fn now(&mut self) -> Option<Outcome> {
        let outcome = self.news.borrow_and_update().clone()?;
        Some(self.told(outcome))
    }

    /// What becomes of it.
    pub async fn outcome(mut self) -> Outcome {
        let outcome = match self.news.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The entry has gone without a word: so has the lease.
            Err(_) => None,
        };
        let outcome = outcome.unwrap_or(Err(Fault::NoSuchLease(self.lease.id)));
        self.told(outcome)
    }

    fn told(&mut self, outcome: Outcome) -> Outcome {
        self.open = false;
        let mut state = self.lease.state();
        if let Some(entry) = state.entries.get_mut(&self.number) {
            entry.interest = entry.interest.saturating_sub(1);
            if outcome.is_ok() {
                entry.claims += 1;
            }
        }
        outcome.and_then(|hold| {
            // What is left is told as it is now, not as it was at the grant.
            let now = state.entries.get(&self.number).and_then(|entry| self.lease.hold(self.number, entry));
            let left = self.lease.certainly_left(self.lease.left(&state));
            let now = now.map(|hold| Hold { valid_for: hold.valid_for.min(left), ..hold });
            let lost = || Fault::LeaseOver(hold.lease, String::from("the hold was lost at once"));
            now.ok_or_else(lost)
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.open
            && let Some(book) = self.book.upgrade()
        {
            let gone = |entry: &mut Entry| entry.interest = entry.interest.saturating_sub(1);
            book.let_go(&self.lease, self.number, gone);
        }
    }
}
