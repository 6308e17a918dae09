//! Resident clients: clients in the driver's own process.
//!
//! A resident client reads the same clock as the member and sees the same memory, so the member does not have to promise it anything by
//! message: until [`Member::resident_until_ns`], which is the end of the member's own lease, it may use what it holds. There are no
//! keep-alives, so a hundred thousand resident sessions cost nothing while time passes. A resident session ends when its driver
//! closes it, or with the member. Resident clients have [numbers of their own](SessionId::RESIDENT).

use crate::member::Member;
use crate::session::{Session, Stage};
use crate::{Acquisition, Birth, Claim, Fence, SessionId};
use lockkeeper_core::MutualExclusion;

/// Why no further fence can be drawn for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFence {
    /// The acquisition is not an exclusive hold of this member, or it was revoked.
    NotHeld,
    /// The member changes its view, has no lease, or waits for a new epoch because the lock's clock is used up: ask again later.
    NotNow,
}

/// Why a session is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The member is leaving, and opens no sessions.
    Leaving,
    /// A session of this id exists. It has an owner already, and two owners would share their holds.
    Exists,
    /// The id is one of a client that connects: see [`SessionId::RESIDENT`].
    NotResident,
}

impl<P: MutualExclusion> Member<P> {
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
        let birth = Birth { incarnation: self.me.incarnation, number: self.births };
        self.births += 1;
        self.sessions.insert(id, Session { birth, heard_ns: now, resident: true, ..Session::default() });
        Ok(())
    }

    /// Until then, on the member's clock, resident clients may use what they hold. It is 0 once a leaving member promises nothing more.
    pub fn resident_until_ns(&self, now: u64) -> u64 {
        if self.promises(now) { self.lease_until_ns } else { 0 }
    }

    /// Until then, on this clock, the client of a session may be using what it holds.
    ///
    /// A resident client reads [`resident_until_ns`](Self::resident_until_ns) and may rely on what it read. While the member leaves, the
    /// last reading was before the leave's timeout, and no lease that was granted by then runs for longer after it than the longest lease in force.
    pub(crate) fn promised_until_ns(&self, session: &Session) -> u64 {
        if !session.resident {
            return session.promised_until_ns;
        }
        let longest = self.applied.inherited.lease_ns.max(self.config.cluster.lease_ns);
        let last = self.leave.map_or(u64::MAX, |leave| leave.promises_until_ns(longest));
        self.lease_until_ns.min(last)
    }

    /// Draws a further fence for an exclusive hold: above every fence drawn for this lock before, this hold's own among them, and below
    /// the fence of every later holder.
    ///
    /// Within a view, the fence takes a tick of the lock's clock at this member, which is inside. The next holder enters after this one has
    /// left, so the messages that let it in were sent after the tick and carry a clock at least as high. Over views, the epoch decides.
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
        // A delegated hold has fences set aside that its client uses by itself: a drawn one would be above them.
        let alone = hold.is_some_and(|hold| {
            hold.claim == Claim::Alone && !hold.was_kept && hold.revoked_until_ns.is_none()
        });
        if !alone {
            return Err(NoFence::NotHeld);
        }
        let clock = lock.instance.as_mut().map(|instance| instance.stamp()).ok_or(NoFence::NotNow)?;
        let fence = (clock <= largest).then(|| Fence::new(epoch, clock)).flatten();
        // Ask for a new epoch, as a grant that finds no fence does.
        self.clock_full |= fence.is_none();
        fence.ok_or(NoFence::NotNow)
    }
}
