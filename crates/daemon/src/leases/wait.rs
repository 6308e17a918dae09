//! [`Wait`]: a wait for a lock by a lease that lives here.

use super::book::Book;
use super::lease::{Entry, Lease};
use super::receipt::{Granted, Receipt};
use super::words::{Fault, Outcome};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// The wait of one request for a lock by a lease that lives here. Several requests may wait for one entry.
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

    /// The outcome, with the receipt that obliges the caller to deliver it.
    pub async fn granted(self) -> Result<Granted, Fault> {
        let (book, lease, number) = (self.book.clone(), self.lease.clone(), self.number);
        let hold = self.outcome().await?;
        Ok(Granted { hold, receipt: Receipt::here(book, lease, number) })
    }

    /// The outcome, if it is already known.
    pub fn now(&mut self) -> Option<Outcome> {
        let outcome = self.news.borrow_and_update().clone()?;
        Some(self.told(outcome))
    }

    /// The outcome.
    pub async fn outcome(mut self) -> Outcome {
        let outcome = match self.news.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The entry was dropped without an outcome: the lease has ended.
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
            // Report the remaining time as of now, not as of the grant.
            let now = self.lease.hold_now(&state, self.number);
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
