//! [`HoldGuard`]: a hold on a lock.

use crate::engine::RecordedHolds;
use crate::error::{Error, Result};
use crate::local::{FORCED_RELEASE, HoldState, LEASE_RAN_OUT};
use lockkeeper_member::{Acquisition, Fence, NoFence};
use lockkeeper_system::lease_clock::now_ns;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a hold that another member has adopted is lost here.
const MOVED: &str = "another member has adopted it";

/// The first part of the reason for the loss of a hold that an operator has revoked; the operator's name follows.
const FORCED_RELEASE_BY: &str = "forced release by ";

/// The reason for the warning that the member's lease is about to end.
const NOT_RENEWED: &str = "the lease is about to run out: it was not renewed in time";

/// Whether a hold was lost because its member could not renew its lease, according to the reason of its
/// [loss](HoldGuard::losing).
pub fn is_expiry(loss: &str) -> bool {
    [NOT_RENEWED, LEASE_RAN_OUT].contains(&loss)
}

/// Whether a hold was revoked, according to the reason of its [loss](HoldGuard::losing).
pub fn is_revocation(loss: &str) -> bool {
    loss == FORCED_RELEASE || revoker_in(loss).is_some()
}

/// The operator that has revoked a hold, according to the reason of its [loss](HoldGuard::losing).
pub fn revoker_in(loss: &str) -> Option<&str> {
    loss.strip_prefix(FORCED_RELEASE_BY)
}

/// A session of a client with the member in its own process. It is closed when its last handle is dropped.
pub(crate) struct LocalSession {
    pub engine: Arc<dyn RecordedHolds>,
    /// Keeps the member running for as long as a session exists.
    pub _member: Arc<dyn Any + Send + Sync>,
    pub client: u64,
    /// Holders are warned when this much of the lease is left.
    pub margin_ns: u64,
}

impl Drop for LocalSession {
    fn drop(&mut self) {
        self.engine.close(self.client);
    }
}

/// A hold on a lock, until it is released, dropped or lost.
///
/// Dropping it releases the lock, and is safe at any point, also when a task is cancelled.
#[must_use = "dropping a guard gives the lock up"]
pub struct HoldGuard {
    session: Arc<LocalSession>,
    number: u64,
    fence: Option<Fence>,
    name: Arc<str>,
    released: bool,
}

impl HoldGuard {
    pub(crate) fn new(session: Arc<LocalSession>, number: u64, fence: Option<Fence>, name: Arc<str>) -> Self {
        Self { session, number, fence, name, released: false }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fence. It is larger than the fences of all earlier holders that conflict with this one. Pass it with every
    /// write to the protected resource, and let the resource reject lower ones. It fits a signed 64-bit column. For a
    /// permit of a semaphore it is 0, since permits are not ordered.
    pub fn fence(&self) -> u64 {
        self.fence.map_or(0, Fence::number)
    }

    /// Time for which no conflicting request can be granted, even if the lease is not renewed.
    pub fn valid_for(&self) -> Duration {
        self.validity()()
    }

    /// A function that returns [`valid_for`](Self::valid_for) at the time of its call, and does not borrow the guard. Once
    /// the lock is released, it returns zero.
    pub fn validity(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let (session, number) = (self.session.clone(), self.number);
        move || match session.engine.hold_state(session.client, number) {
            HoldState::Until(until_ns) | HoldState::Recorded(until_ns) => {
                Duration::from_nanos(until_ns.saturating_sub(now_ns()))
            }
            HoldState::Moved | HoldState::Lost(_) => Duration::ZERO,
        }
    }

    /// The reason why the hold is lost. `None` while it is valid.
    pub fn loss(&self) -> Option<&'static str> {
        match self.hold_state() {
            HoldState::Until(_) | HoldState::Recorded(_) => None,
            HoldState::Moved => Some(MOVED),
            HoldState::Lost(why) => Some(why),
        }
    }

    /// Requests a record of the hold, so that it outlives this member: if the member crashes or leaves, another one
    /// adopts the hold, and its process takes it over with the payload ([`Member::take_adopted`](crate::Member)). The
    /// record is written after a moment, since short holds need none. A later call changes the payload. Returns `false`
    /// if the hold is lost, or the payload is empty or longer than [`LONGEST_PAYLOAD`](crate::LONGEST_PAYLOAD).
    pub fn record(&self, ttl: Duration, payload: Vec<u8>) -> bool {
        self.session.engine.record(self.session.client, self.number, ttl, payload)
    }

    /// Marks the hold as detached: it belongs to an owner without a process, and the caller ends it at this deadline
    /// (milliseconds of Unix time), which lists show. `None`: it is not detached any more. A hold with a
    /// [payload](Self::record) is recorded at once.
    pub fn detach(&self, until_ms: Option<u64>) {
        self.session.engine.detach_hold(self.session.client, self.number, until_ms);
    }

    /// Whether the table of recorded holds has no room for this one, or for its present payload. The member tries again
    /// after a while; until then the hold does not outlive it.
    pub fn is_record_unfit(&self) -> bool {
        self.session.engine.is_record_unfit(self.session.client, self.number)
    }

    /// Whether the hold outlives this member: its record is committed, with its present payload.
    pub fn is_recorded(&self) -> bool {
        self.session.engine.is_recorded(self.session.client, self.number)
    }

    /// Resolves when the hold [is recorded](Self::is_recorded), or is lost. The future does not borrow the guard.
    pub fn recorded(&self) -> impl Future<Output = ()> + Send + use<> {
        let (session, number) = (self.session.clone(), self.number);
        async move {
            let mut changes = session.engine.losses(session.client);
            loop {
                changes.mark_unchanged();
                let held = matches!(
                    session.engine.hold_state(session.client, number),
                    HoldState::Until(_) | HoldState::Recorded(_)
                );
                if !held || session.engine.is_recorded(session.client, number) {
                    return;
                }
                if changes.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Promises a third party that the hold stays valid for this time. Returns `false` if it is not recorded, or the member
    /// has no lease at the moment. The time to live of the record must not be shorter.
    pub fn promise(&self, ttl: Duration) -> bool {
        self.session.engine.promise(self.session.client, self.number, ttl)
    }

    /// Whether another member has adopted the hold.
    pub fn has_moved(&self) -> bool {
        self.hold_state() == HoldState::Moved
    }

    /// Time for which a third party may still rely on the last [`valid_for`](Self::valid_for) that it was sent, even if
    /// the hold has been revoked since. A caller that passes `valid_for` on must keep the guard for this long.
    pub fn promised_for(&self) -> Duration {
        let until_ns = self.session.engine.promised_until_ns(self.session.client, self.number);
        Duration::from_nanos(until_ns.saturating_sub(now_ns()))
    }

    /// Draws a further fence for this hold. It is larger than all fences drawn for the lock before, and smaller than
    /// those of all later holders. It is meant for holders that pass a new number with each of several writes. Only an
    /// exclusive hold has further fences.
    pub fn draw_fence(&self) -> Result<u64> {
        self.session.engine.draw_fence(self.session.client, self.number).map_err(|why| match why {
            NoFence::NotHeld => {
                let reason = self.loss().unwrap_or("it is not held exclusively");
                Error::Lost { name: self.name.to_string(), reason: String::from(reason) }
            }
            NoFence::NotNow => Error::Unavailable(format!(
                "no further fence can be drawn for `{}` while the view changes: try again",
                self.name
            )),
        })
    }

    /// Whether the hold is valid at this moment. It may be lost right after the call; only the fence protects the next
    /// write.
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves with the reason when the hold is being lost, BEFORE a conflicting request can be granted. It resolves a
    /// margin ahead of the end of the lease, so that the holder has time to stop.
    pub async fn lost(&self) -> String {
        self.losing().await
    }

    /// Like [`lost`](Self::lost), as a future that does not borrow the guard. It also resolves once the lock is
    /// released.
    pub fn losing(&self) -> impl Future<Output = String> + Send + use<> {
        let (session, number) = (self.session.clone(), self.number);
        async move {
            // Woken by a change of the session, and once for all holds when the member's lease is about to end. No
            // timer per hold is needed.
            let mut changes = session.engine.losses(session.client);
            let mut expiring = session.engine.expiring();
            loop {
                changes.mark_unchanged();
                expiring.mark_unchanged();
                let left_ns = match session.engine.hold_state(session.client, number) {
                    HoldState::Lost(why) => {
                        let revoker = session.engine.revoker(session.client, number);
                        return revoker
                            .map_or_else(|| String::from(why), |by| format!("{FORCED_RELEASE_BY}{by}"));
                    }
                    HoldState::Moved => return String::from(MOVED),
                    // A recorded hold does not end with the member's lease.
                    HoldState::Recorded(_) => u64::MAX,
                    HoldState::Until(until_ns) => {
                        until_ns.saturating_sub(now_ns()).saturating_sub(session.margin_ns)
                    }
                };
                if left_ns == 0 {
                    return String::from(NOT_RENEWED);
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = expiring.changed() => {}
                }
            }
        }
    }

    /// The acquisition behind this hold, as a [query](crate::Member::query_all) names it. `None` once its session has
    /// ended.
    pub fn acquisition(&self) -> Option<Acquisition> {
        let session = self.session.engine.session(self.session.client)?;
        Some(Acquisition { session, number: self.number })
    }

    /// Releases the lock. Returns an error if it was lost before.
    pub async fn release(mut self) -> Result<()> {
        match self.release_hold() {
            Some(HoldState::Lost(why)) => {
                Err(Error::Lost { name: self.name.to_string(), reason: String::from(why) })
            }
            Some(HoldState::Moved) => {
                Err(Error::Lost { name: self.name.to_string(), reason: String::from(MOVED) })
            }
            Some(HoldState::Until(_) | HoldState::Recorded(_)) | None => Ok(()),
        }
    }

    fn hold_state(&self) -> HoldState {
        self.session.engine.hold_state(self.session.client, self.number)
    }

    fn release_hold(&mut self) -> Option<HoldState> {
        self.released = true;
        self.session.engine.release(self.session.client, self.number)
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if !self.released {
            self.release_hold();
        }
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldGuard").field("name", &self.name).field("fence", &self.fence).finish()
    }
}
