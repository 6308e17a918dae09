//! Resident clients: clients in the driver's own process.
//!
//! A resident client reads the same clock and the same memory as the member, so the member sends it no leases: until
//! [`Member::resident_until_ns`], the end of the member's own lease, it may use its holds. There are no keep-alives,
//! so that a hundred thousand resident sessions cost nothing while time passes. A resident session ends when its
//! driver closes it, or with the member. Resident clients have [numbers of their own](SessionId::RESIDENT).

use crate::member::Member;
use crate::session::{Session, Stage};
use crate::{Acquisition, BugSwitch, Bugs, Fence, LockMode, SessionId};
use lockkeeper_core::MutualExclusion;

/// The reason why no further fence can be drawn for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFence {
    /// The acquisition is not an exclusive hold of this member, or it was revoked.
    NotHeld,
    /// The member changes its view, has no lease, or waits for a new epoch because the lock's fence clock is
    /// exhausted: try again later.
    NotNow,
}

/// The reason why a session was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The member is leaving, and opens no sessions.
    Leaving,
    /// A session with this id exists. It has an owner already, and two owners would share their holds.
    Exists,
    /// The id is in the range of connecting clients: see [`SessionId::RESIDENT`].
    NotResident,
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Opens the session of a resident client.
    pub fn open_resident(&mut self, now: u64, id: SessionId) -> Result<(), NotOpened> {
        if !id.is_resident() {
            return Err(NotOpened::NotResident);
        }
        if self.sessions.contains_key(&id) {
            return Err(NotOpened::Exists);
        }
        if self.leave.is_some() {
            return Err(NotOpened::Leaving);
        }
        let generation = self.new_generation();
        self.sessions
            .insert(id, Session { generation, last_message_ns: now, resident: true, ..Session::default() });
        Ok(())
    }

    /// How long resident clients may use their holds, as a time on the member's clock; 0 once the timeout of a leave
    /// has passed.
    pub fn resident_until_ns(&self, now: u64) -> u64 {
        if self.promises(now) { self.lease_until_ns } else { 0 }
    }

    /// The latest end of a lease that a resident client may have read, as a time on the member's clock. A member that has
    /// sent its departure notice has no lease, but a hold that it ends in its last view, because an operator revokes
    /// it, must outlast the lease that it has given up.
    pub fn resident_promised_until_ns(&self) -> u64 {
        if self.config.has(BugSwitch::GivenUpLeaseForgotten) {
            return self.lease_until_ns;
        }
        self.lease_until_ns.max(self.leave.map_or(0, |leave| leave.given_up_until_ns))
    }

    /// The time, on the member's clock, until which its driver keeps the lock of a hold of a resident client that it
    /// adopts now. The previous driver may have promised the hold for its time to live just before, and may report the
    /// rest of that time until its own clock reaches the end of it. That clock may be slower than this one.
    pub fn adopted_until_ns(&self, now: u64, ttl_ns: u64) -> u64 {
        let without_drift = self.config.has(BugSwitch::AdoptedWithoutDrift);
        now.saturating_add(if without_drift { ttl_ns } else { self.config.outwait(ttl_ns) })
    }

    /// The time, on this clock, until which the client of a session may use its holds.
    ///
    /// A resident client reads [`resident_until_ns`](Self::resident_until_ns) and may rely on that value. While the
    /// member leaves, the last valid reading was before the leave's timeout, and no lease granted by then lasts
    /// longer after it than the longest lease in force.
    pub(crate) fn promised_until_ns(&self, session: &Session) -> u64 {
        if !session.resident {
            return session.promised_until_ns;
        }
        let longest = self.applied.inherited.lease_ns.max(self.config.cluster.lease_ns);
        let last = self.leave.map_or(u64::MAX, |leave| leave.promises_until_ns(longest));
        self.resident_promised_until_ns().min(last)
    }

    /// Draws a further fence for an exclusive hold: above every fence drawn for this lock before, the hold's own
    /// included, and below the fence of every later holder.
    ///
    /// Within a view, the fence takes a tick of the lock's clock at this member, which is inside. The next holder
    /// enters after this one has left, so the messages that let it enter were sent after the tick and carry a clock
    /// at least as high. Across views, the epoch decides.
    pub fn draw_fence(&mut self, now: u64, acquisition: Acquisition) -> Result<Fence, NoFence> {
        let session = self.sessions.get(&acquisition.session).ok_or(NoFence::NotHeld)?;
        let Some(&Stage::Held(id)) = session.acquisitions.get(&acquisition.number) else {
            return Err(NoFence::NotHeld);
        };
        let epoch = self.running().map(|view| view.epoch).ok_or(NoFence::NotNow)?;
        if now >= self.lease_until_ns {
            return Err(NoFence::NotNow);
        }
        let largest = self.config.largest_clock;
        let lock = self.locks.get_mut(id);
        let hold = lock.active.as_mut().and_then(|active| active.hold_mut(acquisition));
        // The client of a delegated hold uses reserved fences by itself: a drawn fence would be above those.
        let alone = hold.is_some_and(|hold| {
            hold.mode == LockMode::Exclusive && !hold.was_delegated && hold.revoked_until_ns.is_none()
        });
        if !alone {
            return Err(NoFence::NotHeld);
        }
        let clock = lock.instance.as_mut().map(|instance| instance.stamp()).ok_or(NoFence::NotNow)?;
        let fence = (clock <= largest).then(|| Fence::new(epoch, clock)).flatten();
        // Request a new epoch, as a grant does that finds no fence.
        self.clock_full |= fence.is_none();
        fence.ok_or(NoFence::NotNow)
    }
}
