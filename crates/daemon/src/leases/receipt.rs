//! [`Receipt`]: a hold that was granted and whose client has not been told yet.
//!
//! Between a grant and the moment in which the answer is handed to the client's connection, the client may go away, and so may a daemon on the
//! way. Whoever has the receipt answers for the hold: it says that the answer was [delivered](Receipt::delivered), or drops the receipt, and
//! the hold is given up, unless another request has found the same hold.

use super::book::Book;
use super::lease::{Entry, Lease};
use super::waits::Place;
use super::words::Hold;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A hold, and the duty to tell the client of it.
pub struct Granted {
    pub hold: Hold,
    pub receipt: Receipt,
}

/// The duty to tell a client of its hold. Dropping it gives the hold up.
pub struct Receipt(Option<Kind>);

enum Kind {
    /// The lease lives here.
    Here { book: Weak<Book>, lease: Arc<Lease>, number: u64 },
    /// The lease lives at another daemon, which keeps the hold for as long as it hears of this one.
    There(Place),
}

impl Receipt {
    pub(super) fn here(book: Weak<Book>, lease: Arc<Lease>, number: u64) -> Self {
        Self(Some(Kind::Here { book, lease, number }))
    }

    pub(super) fn there(place: Place) -> Self {
        Self(Some(Kind::There(place)))
    }

    /// The answer was handed to the client's connection.
    pub fn delivered(mut self) {
        if let Some(Kind::There(place)) = self.0.take() {
            place.delivered();
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(Kind::Here { book, lease, number }) = self.0.take()
            && let Some(book) = book.upgrade()
        {
            book.let_go(&lease, number, Entry::disclaim);
        }
    }
}

/// A receipt on its way through the layers of an HTTP server, from the handler to the body of the response.
#[derive(Clone)]
pub struct Undelivered(Arc<Mutex<Option<Receipt>>>);

impl Undelivered {
    pub fn new(receipt: Receipt) -> Self {
        Self(Arc::new(Mutex::new(Some(receipt))))
    }

    pub fn take(&self) -> Option<Receipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
