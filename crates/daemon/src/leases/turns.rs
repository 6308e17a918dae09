//! Places in queues and holders in the whole cluster, for etcd's client-side recipes.

use super::Leases;
use super::id::LeaseId;
use super::messages::{DaemonReply, DaemonRequest};
use super::operations::{CallerIdentity, Enqueued, Hold, HoldRequest, LeaseError, Turn};
use super::peers::cannot_decode;
use super::receipt::Granted;
use lockkeeper_cluster::{MemberId, Node};
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two searches for the holder of a lock while the daemons change their view.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

impl Leases {
    /// Requests a lock with an entry that stays in the queue, at the daemon where the lease lives.
    pub async fn enqueue(
        &self,
        identity: &CallerIdentity,
        lease: LeaseId,
        request: HoldRequest,
    ) -> Result<Enqueued, LeaseError> {
        let there = |to: MemberId| {
            let (identity, request) = (identity.clone(), request.clone());
            async move {
                match self.peers.send(to, &DaemonRequest::Enqueue { identity, lease, request }).await? {
                    DaemonReply::Enqueued(enqueued) => enqueued,
                    _ => Err(cannot_decode(to)),
                }
            }
        };
        self.at_home_of(lease, || self.local.enqueue(identity, lease, &request), there).await
    }

    /// The place of a lease in the queue of a lock.
    pub async fn turn(&self, lease: LeaseId, lock: &str) -> Result<Turn, LeaseError> {
        let there = |to: MemberId| {
            let lock = String::from(lock);
            async move {
                match self.peers.send(to, &DaemonRequest::Turn { lease, lock }).await? {
                    DaemonReply::Turn(turn) => turn,
                    _ => Err(cannot_decode(to)),
                }
            }
        };
        self.at_home_of(lease, || async { self.local.turn(lease, lock) }, there).await
    }

    /// Waits until an entry that stays in the queue is granted the lock. Fails with
    /// [`NotHeld`](LeaseError::NotHeld) if there is none that waits.
    pub async fn wait_for_turn(
        &self,
        identity: &CallerIdentity,
        lease: LeaseId,
        lock: &str,
    ) -> Result<(), LeaseError> {
        let here = || async { self.local.join(identity, lease, lock)?.granted().await };
        let there = |to: MemberId| self.outgoing.join(to, identity.clone(), lease, String::from(lock));
        let granted = self.at_home_of(lease, here, there).await?;
        // The entry keeps the hold: dropping the receipt only ends the claim of this wait to it.
        let Granted { receipt, .. } = granted;
        drop(receipt);
        Ok(())
    }

    /// The newest hold of a lock by a lease. An error if a daemon that may have one does not reply.
    ///
    /// A daemon that adopts leases knows them once a view has started at its member. So there is no hold if no daemon has
    /// one while all members of the view are in the same one.
    pub async fn holder(&self, lock: &str) -> Result<Option<Hold>, LeaseError> {
        let until = Instant::now() + self.peers.adoption_timeout();
        loop {
            let view = self.peers.member.status().view;
            let others = self.peers.broadcast(|| DaemonRequest::Holders(String::from(lock))).await;
            self.local.adopt_pending();
            let mut holds = self.local.holds_on(lock);
            let mut replied = Vec::new();
            for (from, reply) in others {
                if let DaemonReply::Holders(others, epoch) = reply {
                    holds.extend(others);
                    replied.push((from, epoch));
                }
            }
            // A permit has no fence and is no leadership. A hold that has moved or ended is no longer valid.
            holds.retain(|hold| hold.fence > 0 && !hold.valid_for.is_zero());
            if let Some(newest) = holds.into_iter().max_by_key(|hold| hold.fence) {
                return Ok(Some(newest));
            }
            let has_none = |node: &Node, epoch: u64| {
                node.id == self.peers.me() || replied.contains(&(node.id, Some(epoch)))
            };
            if view.is_some_and(|view| view.members.iter().all(|node| has_none(node, view.epoch))) {
                return Ok(None);
            }
            if Instant::now() + SEARCH_PAUSE >= until {
                if let Some(not_serving) = self.peers.member.not_serving() {
                    return Err(LeaseError::MemberHasNoLease(not_serving.to_string()));
                }
                let why = format!(
                    "the daemons change their view, and the holder of `{lock}` is not known yet: repeat the request"
                );
                return Err(LeaseError::Unavailable(why));
            }
            tokio::time::sleep(SEARCH_PAUSE).await;
        }
    }
}
