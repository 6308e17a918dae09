//! Entries that stay in the queue without a request that waits for them.
//!
//! etcd's client-side lock recipe writes a key, and the key is a place in the queue from then on: until the client
//! deletes it, or its lease ends. Such an entry is *kept*. It is created by a request that is answered after an attempt to
//! get the lock at once; it waits on its own after that.

use super::id::LeaseId;
use super::lease::Lease;
use super::local_leases::LocalLeases;
use super::local_wait::LocalWait;
use super::operations::{CallerIdentity, Enqueued, HoldRequest, LeaseError, Slot, Turn};
use lockkeeper_cluster::{Error, HoldGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::Instrument;

/// Maximum duration of the attempt to get the lock at once.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(1);
/// Pause before a failed wait is repeated.
const PAUSE: Duration = Duration::from_millis(100);

impl LocalLeases {
    /// Requests a lock with an entry that stays in the queue. Returns once the lock is granted or is known not to be free.
    pub async fn enqueue(
        &self,
        identity: &CallerIdentity,
        id: LeaseId,
        request: &HoldRequest,
    ) -> Result<Enqueued, LeaseError> {
        let lease = self.lease(identity, id)?;
        let (attempt, attempted) = oneshot::channel();
        let wait = |number| self.wait_as_long_as_it_takes(&lease, number, request, attempt);
        let mut entry = self.open_entry(&lease, request, wait, |entry| entry.kept = true)?;
        let decided = async {
            tokio::select! {
                _ = entry.outcome.wait_for(Option::is_some) => {}
                // For an entry that existed before there is no attempt, and the sender has been dropped.
                _ = attempted => {}
            }
        };
        let _ = tokio::time::timeout(LONGEST_ATTEMPT, decided).await;
        if let Some(Err(error)) = &*entry.outcome.borrow() {
            return Err(error.clone());
        }
        Ok(Enqueued { new: entry.new, turn: turn(&lease, &request.lock) })
    }

    /// The place of a lease in the queue of a lock.
    pub fn turn(&self, id: LeaseId, lock: &str) -> Result<Turn, LeaseError> {
        let lease = self.find(id).ok_or(LeaseError::NoSuchLease(id))?;
        Ok(turn(&lease, lock))
    }

    /// Waits for the outcome of a kept entry. Fails if there is none that waits.
    pub fn join(&self, identity: &CallerIdentity, id: LeaseId, lock: &str) -> Result<LocalWait, LeaseError> {
        let lease = self.lease(identity, id)?;
        let mut state = lease.state();
        let not_waiting = || LeaseError::NotHeld(String::from(lock));
        let number = state.only_on(lock).ok_or_else(not_waiting)?;
        let entry = state.entries.get_mut(&number).ok_or_else(not_waiting)?;
        if !entry.kept || entry.guard().is_some() {
            return Err(not_waiting());
        }
        entry.interest += 1;
        let outcome = entry.outcome.subscribe();
        drop(state);
        Ok(LocalWait::new(self.me.clone(), lease, number, outcome))
    }

    /// Waits for a lock until it is granted, over failures of the member. Reports through `attempt` that the lock is not
    /// free at present.
    fn wait_as_long_as_it_takes(
        &self,
        lease: &Arc<Lease>,
        number: u64,
        request: &HoldRequest,
        attempt: oneshot::Sender<()>,
    ) -> AbortHandle {
        let acquire = lease.member_request(request);
        let (local, lease) = (self.me.clone(), lease.clone());
        let span = tracing::info_span!(
            "acquire", trace = %request.trace, lock = %request.lock, lease = %lease.id, by = lease.creator.protocol.name()
        );
        let waiting = async move {
            let mut outcome = acquire.clone().try_acquire().await;
            let mut attempt = Some(attempt);
            while !is_final(&outcome) {
                let _ = attempt.take().map(|attempt| attempt.send(()));
                if let Err(error) = &outcome {
                    tracing::debug!(%error, "the wait failed and is repeated");
                    tokio::time::sleep(PAUSE).await;
                }
                outcome = acquire.clone().acquire().await.map(Some);
            }
            if let Some(local) = local.upgrade() {
                local.finish_wait(&lease, number, outcome);
            }
        };
        tokio::spawn(waiting.instrument(span)).abort_handle()
    }
}

/// Whether a wait with this outcome is over. Other failures are temporary: the member has no lease at present, or has
/// too many locks.
fn is_final(outcome: &Result<Option<HoldGuard>, Error>) -> bool {
    match outcome {
        Ok(granted) => granted.is_some(),
        Err(error) => matches!(error, Error::BadName(_) | Error::BadOption(_) | Error::Stopped(_)),
    }
}

fn turn(lease: &Lease, lock: &str) -> Turn {
    let state = lease.state();
    // A session of HTTP may have several shared holds; holds of bare keys have keys of their own.
    let held = state.entries.iter().filter(|(_, entry)| entry.lock == lock);
    let held = held.filter(|(_, entry)| {
        let valid = entry.guard().is_some_and(|guard| guard.loss().is_none());
        valid && !matches!(entry.slot, Slot::Key(_))
    });
    let newest = held.filter_map(|(&number, entry)| lease.hold(number, entry)).max_by_key(|hold| hold.fence);
    if let Some(hold) = newest {
        return Turn::Held(hold);
    }
    let entry = state.only_on(lock).and_then(|number| state.entries.get(&number));
    if entry.is_some_and(|entry| entry.kept && entry.guard().is_none()) {
        Turn::Waiting
    } else {
        Turn::Absent
    }
}
