//! [`Receipt`]: a granted hold whose client has not received the reply yet.
//!
//! Between a grant and the moment at which the reply is handed to the client's connection, the client may disappear,
//! and so may a daemon that relays the reply. The owner of the receipt is responsible for the hold. It either reports
//! that the reply was [delivered](Receipt::delivered), or drops the receipt; then the hold is given up, unless
//! another request has found it.

use super::book::Book;
use super::lease::{Entry, Lease};
use super::waits::Place;
use super::words::Hold;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A hold and its receipt.
pub struct Granted {
    pub hold: Hold,
    pub receipt: Receipt,
}

/// The obligation to deliver a hold to its client. Dropping the receipt gives up the hold.
pub struct Receipt(Option<Kind>);

enum Kind {
    /// The lease lives here.
    Here { book: Weak<Book>, lease: Arc<Lease>, number: u64 },
    /// The lease lives at another daemon, which keeps the hold as long as this daemon keeps polling.
    There(Place),
}

impl Receipt {
    pub(super) fn here(book: Weak<Book>, lease: Arc<Lease>, number: u64) -> Self {
        Self(Some(Kind::Here { book, lease, number }))
    }

    pub(super) fn there(place: Place) -> Self {
        Self(Some(Kind::There(place)))
    }

    /// Reports that the reply was handed to the client's connection.
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
