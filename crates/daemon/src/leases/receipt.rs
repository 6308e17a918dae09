//! [`DeliveryReceipt`]: a granted hold whose client has not received the reply yet.
//!
//! Between a grant and the moment at which the reply is handed to the client's connection, the client may disappear,
//! and so may a daemon that relays the reply. The owner of the receipt is responsible for the hold. It either reports
//! that the reply was [delivered](DeliveryReceipt::delivered), or drops the receipt; then the hold is given up, unless
//! another request has found it.

use super::lease::{Lease, LeaseEntry};
use super::local_leases::LocalLeases;
use super::operations::Hold;
use super::outgoing_waits::OutgoingTicket;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A hold and its receipt.
pub struct Granted {
    pub hold: Hold,
    pub receipt: DeliveryReceipt,
}

/// The obligation to deliver a hold to its client. Dropping the receipt gives up the hold.
pub struct DeliveryReceipt(Option<ReceiptHome>);

enum ReceiptHome {
    /// The lease lives here.
    Local { local: Weak<LocalLeases>, lease: Arc<Lease>, number: u64 },
    /// The lease lives at another daemon, which keeps the hold as long as this daemon keeps polling.
    Remote(OutgoingTicket),
}

impl DeliveryReceipt {
    pub(super) fn local(local: Weak<LocalLeases>, lease: Arc<Lease>, number: u64) -> Self {
        Self(Some(ReceiptHome::Local { local, lease, number }))
    }

    pub(super) fn remote(ticket: OutgoingTicket) -> Self {
        Self(Some(ReceiptHome::Remote(ticket)))
    }

    /// Reports that the reply was handed to the client's connection.
    pub fn delivered(mut self) {
        if let Some(ReceiptHome::Remote(ticket)) = self.0.take() {
            ticket.delivered();
        }
    }
}

impl Drop for DeliveryReceipt {
    fn drop(&mut self) {
        if let Some(ReceiptHome::Local { local, lease, number }) = self.0.take()
            && let Some(local) = local.upgrade()
        {
            local.drop_interest(&lease, number, LeaseEntry::withdraw_claim);
        }
    }
}

/// A receipt on its way through the layers of an HTTP server, from the handler to the body of the response.
#[derive(Clone)]
pub struct PendingDelivery(Arc<Mutex<Option<DeliveryReceipt>>>);

impl PendingDelivery {
    pub fn new(receipt: DeliveryReceipt) -> Self {
        Self(Arc::new(Mutex::new(Some(receipt))))
    }

    pub fn take(&self) -> Option<DeliveryReceipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
