//! Leases that outlive their daemon.
//!
//! Each hold of a lease is recorded in the cluster's log together with a [`HoldPayload`]: everything that another daemon
//! needs to go on with the lease. When the member of a daemon is excluded from the view, another member adopts its
//! recorded holds, and the daemon of that member creates the lease again, with the same id, the same numbers and the same
//! fences. The client's next request finds it there. A lease without recorded holds ends with its daemon.

use super::detached::{DetachedPayload, DetachedState};
use super::id::LeaseId;
use super::lease::{EntryPhase, Lease, LeaseEntry};
use super::local_leases::{LocalLeases, Registration, expire, watch_for_loss};
use super::operations::{CallerIdentity, LeaseError, LeaseTerms, Slot};
use lockkeeper_cluster::{AdoptedSession, HoldGuard};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, Weak};

/// The version of the payload: its first byte. A daemon ends holds whose payload has another version when their time to
/// live has passed. Version 2 has detached holds.
pub(super) const PAYLOAD_VERSION: u8 = 2;

/// The payload of a recorded hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HoldPayload {
    pub lease: LeaseId,
    pub terms: LeaseTerms,
    pub creator: CallerIdentity,
    /// The number of the hold within the lease.
    pub number: u64,
    pub slot: Slot,
    pub value: Vec<u8>,
    pub version: u64,
    pub revision: u64,
    /// The deadline of a detached hold.
    pub detached: Option<DetachedPayload>,
}

impl HoldPayload {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![PAYLOAD_VERSION]).expect("serializing to memory cannot fail")
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, payload) = bytes.split_first()?;
        if *version != PAYLOAD_VERSION {
            return None;
        }
        postcard::from_bytes(payload).ok()
    }
}

impl Lease {
    /// Requests a record of a hold, or updates it after a change of the value.
    pub fn record(&self, detached: Option<&DetachedState>, entry: &LeaseEntry) {
        let Some(guard) = entry.guard() else { return };
        let payload = HoldPayload {
            lease: self.id,
            terms: self.terms.clone(),
            creator: self.creator.clone(),
            number: entry.number,
            slot: entry.slot.clone(),
            value: entry.value.clone(),
            version: entry.version,
            revision: entry.revision,
            detached: detached.map(DetachedState::payload),
        };
        if !guard.record(self.kept(), payload.encode()) {
            tracing::debug!(lease = %self.id, lock = %entry.lock, "the hold is not recorded: it ends with this daemon");
        }
        if let Some(detached) = detached {
            guard.detach(Some(detached.until_ms));
        }
    }
}

impl LocalLeases {
    /// Takes over the leases whose holds this daemon's member has adopted. It is called before every search for a lease,
    /// so that a daemon that has installed a view knows the leases that it got with it.
    pub fn adopt_pending(&self) {
        // Locked until all of them are known: a concurrent search must not miss one.
        let mut notices = self.adoptions.lock().unwrap_or_else(PoisonError::into_inner);
        if !notices.has_changed().is_ok_and(|changed| changed) {
            return;
        }
        notices.mark_unchanged();
        for session in self.context.member.take_adopted() {
            self.adopt(session);
        }
    }

    fn adopt(&self, session: AdoptedSession) {
        let AdoptedSession { owner, holds } = session;
        let decode = |(guard, payload): (HoldGuard, Vec<u8>)| match HoldPayload::decode(&payload) {
            Some(payload) => Some((guard, payload)),
            None => {
                tracing::error!(
                    lock = guard.name(),
                    "the record of an adopted hold cannot be decoded: the hold ends"
                );
                None
            }
        };
        let holds: Vec<(HoldGuard, HoldPayload)> = holds.into_iter().filter_map(decode).collect();
        let Some((_, first)) = holds.first() else { return };
        let (id, terms, creator) = (first.lease, first.terms.clone(), first.creator.clone());
        let charge = self.quotas.adopt_session(&Arc::from(creator.account.as_str()));
        let lease = Arc::new(Lease::adopted(id, terms, creator, owner, (self.metrics.session(), charge)));
        for (guard, payload) in holds {
            let mut charge = self.quotas.adopt_wait(&lease.account, guard.name());
            charge.grant();
            let (number, lock) = (payload.number, String::from(guard.name()));
            tracing::info!(lease = %id, %lock, fence = guard.fence(), "adopted");
            tokio::spawn(watch_for_loss(self.me.clone(), lease.clone(), number, guard.losing()));
            lease.restore(payload, guard, charge);
            self.held().entry(lock.clone()).or_default().insert((id, number));
            self.notify_change(&lock);
        }
        self.leases().insert(id, Registration::Created(lease.clone()));
        tokio::spawn(expire(self.me.clone(), lease));
    }

    /// Drops a lease whose holds another member has adopted. Requests that wait are answered with an error: their clients
    /// repeat them.
    pub fn forget_moved(&self, lease: &Arc<Lease>) {
        let entries = {
            let mut state = lease.state();
            if std::mem::replace(&mut state.over, true) {
                return;
            }
            std::mem::take(&mut state.entries)
        };
        tracing::info!(lease = %lease.id, "moved to another daemon");
        self.leases().remove(&lease.id);
        lease.deadline_changed.notify_one();
        for entry in entries.into_values() {
            if let EntryPhase::Waiting(task) = &entry.phase {
                task.abort();
            }
            entry.outcome.send_replace(Some(Err(LeaseError::Unavailable(format!(
                "the lease {} has moved to another daemon: repeat the request",
                lease.id
            )))));
            let lock = self.remove_from_index(lease, &entry);
            self.notify_change(&lock);
        }
    }
}

/// Takes over adopted leases when the member notifies of them, for as long as the leases are in use.
pub(super) async fn follow_adoptions(local: Weak<LocalLeases>) {
    let Some(mut adoptions) = local.upgrade().map(|local| local.context.member.adoptions()) else { return };
    loop {
        let Some(leases) = local.upgrade() else { return };
        leases.adopt_pending();
        drop(leases);
        if adoptions.changed().await.is_err() {
            return;
        }
    }
}
