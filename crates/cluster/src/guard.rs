//! [`Guard`]: a hold on a lock.

use crate::clock::now_ns;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::local::Look;
use lockkeeper_member::{Acquisition, Fence, NoFence};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A client's session with the member in its own process; it is closed when nobody uses it any more.
pub(crate) struct Session {
    pub engine: Arc<dyn Engine>,
    /// The member itself goes on for as long as somebody has a session.
    pub _member: Arc<dyn Any + Send + Sync>,
    pub client: u64,
    /// How much of a lease is left when holders are warned.
    pub margin_ns: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.close(self.client);
    }
}

/// A hold on a lock, until it is released, dropped or lost.
///
/// Dropping it is safe anywhere, also when a task is cancelled.
#[must_use = "dropping a guard gives the lock up"]
pub struct Guard {
    session: Arc<Session>,
    number: u64,
    fence: Option<Fence>,
    name: Arc<str>,
    released: bool,
}

impl Guard {
    pub(crate) fn new(session: Arc<Session>, number: u64, fence: Option<Fence>, name: Arc<str>) -> Self {
        Self { session, number, fence, name, released: false }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fence: above those of all earlier holders that conflict with this one. Pass it with every write to what the lock
    /// protects, and let the resource reject lower ones. It fits a signed 64-bit column; 0 for one of several permits, which says nothing about
    /// the others.
    pub fn fence(&self) -> u64 {
        self.fence.map_or(0, Fence::number)
    }

    /// For how much longer nobody else can enter, if nothing is renewed.
    pub fn valid_for(&self) -> Duration {
        match self.look() {
            Look::Until(until_ns) => Duration::from_nanos(until_ns.saturating_sub(now_ns())),
            Look::Lost(_) => Duration::ZERO,
        }
    }

    /// Why it is lost, if it is.
    pub fn loss(&self) -> Option<&'static str> {
        match self.look() {
            Look::Until(_) => None,
            Look::Lost(why) => Some(why),
        }
    }

    /// For how much longer somebody who was told of [`valid_for`](Self::valid_for) before, and of nothing since, may rely on it: also once the hold was
    /// taken back by force. Whoever tells others keeps the guard for so long.
    pub fn promised_for(&self) -> Duration {
        let until_ns = self.session.engine.promised_until_ns();
        Duration::from_nanos(until_ns.saturating_sub(now_ns()))
    }

    /// Draws a further fence for this hold: above all fences that were drawn for the lock before, and below those of all later holders. For
    /// holders that pass a new number with each of several writes. Only an exclusive hold has further fences.
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

    /// Whether the hold is safe now. A look, not a promise: only the fence protects the next step.
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves with the reason when the hold is being lost, **before** another can enter: a margin
    /// ahead of the end of the lease, in which to stop.
    pub async fn lost(&self) -> String {
        self.losing().await
    }

    /// The same, for somebody who watches while others have the guard. It resolves too once the lock was given up.
    pub fn losing(&self) -> impl Future<Output = String> + Send + use<> {
        let (session, number) = (self.session.clone(), self.number);
        async move {
            // Woken when something happens to the session, and once for all holds when the member's lease is about to end.
            let mut changes = session.engine.changes(session.client);
            let mut expiring = session.engine.expiring();
            loop {
                changes.mark_unchanged();
                expiring.mark_unchanged();
                let left_ns = match session.engine.look(session.client, number) {
                    Look::Lost(why) => return String::from(why),
                    Look::Until(until_ns) => {
                        until_ns.saturating_sub(now_ns()).saturating_sub(session.margin_ns)
                    }
                };
                if left_ns == 0 {
                    return String::from("the lease is about to run out: it was not renewed in time");
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = expiring.changed() => {}
                }
            }
        }
    }

    /// By which acquisition it is held, as a [survey](crate::Member::survey) names it; `None` once its session has ended.
    pub fn acquisition(&self) -> Option<Acquisition> {
        let session = self.session.engine.session(self.session.client)?;
        Some(Acquisition { session, number: self.number })
    }

    /// Gives the lock up; tells if it was lost before.
    pub async fn release(mut self) -> Result<()> {
        match self.leave() {
            Some(Look::Lost(why)) => {
                Err(Error::Lost { name: self.name.to_string(), reason: String::from(why) })
            }
            Some(Look::Until(_)) | None => Ok(()),
        }
    }

    fn look(&self) -> Look {
        self.session.engine.look(self.session.client, self.number)
    }

    fn leave(&mut self) -> Option<Look> {
        self.released = true;
        self.session.engine.leave(self.session.client, self.number)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.leave();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("name", &self.name).field("fence", &self.fence).finish()
    }
}
