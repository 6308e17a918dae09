//! [`LocalWait`]: a wait for a lock by a lease that lives here.

use super::lease::{Lease, LeaseEntry};
use super::local_leases::LocalLeases;
use super::messages::WaitOutcome;
use super::operations::LeaseError;
use super::receipt::{DeliveryReceipt, Granted};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// The wait of one request for a lock by a lease that lives here. Several requests may wait for one entry.
pub(super) struct LocalWait {
    local: Weak<LocalLeases>,
    lease: Arc<Lease>,
    number: u64,
    outcome_receiver: watch::Receiver<Option<WaitOutcome>>,
    open: bool,
}

impl LocalWait {
    pub fn new(
        local: Weak<LocalLeases>,
        lease: Arc<Lease>,
        number: u64,
        outcome_receiver: watch::Receiver<Option<WaitOutcome>>,
    ) -> Self {
        Self { local, lease, number, outcome_receiver, open: true }
    }

    /// The outcome, with the receipt that obliges the caller to deliver it.
    pub async fn granted(self) -> Result<Granted, LeaseError> {
        let (local, lease, number) = (self.local.clone(), self.lease.clone(), self.number);
        let hold = self.outcome().await?;
        Ok(Granted { hold, receipt: DeliveryReceipt::local(local, lease, number) })
    }

    /// The outcome, if it is already known.
    pub fn try_outcome(&mut self) -> Option<WaitOutcome> {
        let outcome = self.outcome_receiver.borrow_and_update().clone()?;
        Some(self.finish(outcome))
    }

    /// Waits for the outcome.
    pub async fn outcome(mut self) -> WaitOutcome {
        let outcome = match self.outcome_receiver.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The entry was dropped without an outcome: the lease has ended.
            Err(_) => None,
        };
        let outcome = outcome.unwrap_or(Err(LeaseError::NoSuchLease(self.lease.id)));
        self.finish(outcome)
    }

    fn finish(&mut self, outcome: WaitOutcome) -> WaitOutcome {
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
            let lost = || LeaseError::LeaseEnded(hold.lease, String::from("the hold was lost at once"));
            now.ok_or_else(lost)
        })
    }
}

impl Drop for LocalWait {
    fn drop(&mut self) {
        if self.open
            && let Some(local) = self.local.upgrade()
        {
            let gone = |entry: &mut LeaseEntry| entry.interest = entry.interest.saturating_sub(1);
            local.drop_interest(&self.lease, self.number, gone);
        }
    }
}
