//! A planned leave: nobody waits for the lease of a member that has said farewell.
//!
//! A farewell is the member's word that nobody here uses anything, and that nobody ever will in this life: it has no hold, has
//! given up its lease, and takes no other. The word cannot become untrue, so it may be late, repeated and told to any leader. It says
//! nothing about other lives of the member. Its tokens need no care: the view without it starts every lock anew.

use crate::member::{Member, Message, Standing};
use crate::{Ended, Flaw, Node, Note, Out, PortRequest, SessionId};
use core::ops::Bound;
use lockkeeper_core::MutualExclusion;

/// A member that is leaving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    since_ns: u64,
    /// Until then its clients may keep what they hold; then they are promised nothing more.
    patience_until_ns: u64,
    /// When it said that nobody here uses anything, and never will.
    pub farewell_ns: Option<u64>,
    /// Waiters of the locks before this place, among those in use, are yet to be sent elsewhere.
    waiters: usize,
    /// Whether all sessions are being looked at, and the last one that was.
    looks: bool,
    after: Option<SessionId>,
}

impl Leave {
    /// The latest end of a lease that a resident client may have read before the timeout of the leave.
    pub fn promises_until_ns(self, lease_ns: u64) -> u64 {
        self.patience_until_ns.saturating_add(lease_ns)
    }
}

impl<P: MutualExclusion> Member<P> {
    /// The driver wants this life to end in order. Nobody is let in any more; whoever waits is told to ask elsewhere.
    pub(crate) fn leave(&mut self, now: u64, patience_ns: u64, out: &mut Out<Message<P>>) {
        let until = now.saturating_add(patience_ns);
        if let Some(leave) = &mut self.leave {
            leave.patience_until_ns = leave.patience_until_ns.min(until);
        } else {
            let waiters = self.locks.active_count();
            self.leave = Some(Leave {
                since_ns: now,
                patience_until_ns: until,
                farewell_ns: None,
                waiters,
                looks: false,
                after: None,
            });
        }
        self.go_on_leaving(now, out);
    }

    /// Whether clients may still be promised something.
    pub(crate) fn promises(&self, now: u64) -> bool {
        self.leave.is_none_or(|leave| now < leave.patience_until_ns)
    }

    /// Whether this member has said that nobody here uses anything, and never will.
    pub(crate) fn said_farewell(&self) -> bool {
        self.leave.is_some_and(|leave| leave.farewell_ns.is_some())
    }

    /// Whether waiters are yet to be sent elsewhere, or sessions yet to be looked at.
    pub(crate) fn is_sweeping_out(&self) -> bool {
        self.leave.is_some_and(|leave| leave.waiters > 0 || leave.looks)
    }

    /// Ends sessions that have nothing or were waited for, says farewell once nobody is left, and goes once nobody expects it.
    pub(crate) fn go_on_leaving(&mut self, now: u64, out: &mut Out<Message<P>>) {
        if let Some(leave) = self.leave.as_mut().filter(|leave| leave.farewell_ns.is_none()) {
            leave.looks = true;
            self.sweep_out(now, out);
        }
    }

    /// Sends more waiters elsewhere, and looks at more sessions. Nobody begins to wait at a member that leaves.
    pub(crate) fn sweep_out(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while let Some(leave) = self.leave.filter(|leave| leave.waiters > 0) {
            if !self.may_go_on() {
                return;
            }
            self.spend(1);
            // From the last one on: a lock that is put aside leaves its place to one that was looked at before.
            let last = leave.waiters.min(self.locks.active_count());
            let waiting = self.locks.active_at(last.wrapping_sub(1));
            match waiting.and_then(|(_, _, active)| active.queue.front()).map(|waiter| waiter.acquisition) {
                Some(acquisition) => self.cancel(now, acquisition, Ended::Leaving, out),
                None => self.leave = Some(Leave { waiters: last.saturating_sub(1), ..leave }),
            }
        }
        while let Some(Leave { patience_until_ns, looks: true, after, .. }) = self.leave {
            if !self.may_go_on() {
                return;
            }
            self.spend(1);
            let rest = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let Some((&id, session)) = self.sessions.range(rest).next() else {
                if let Some(leave) = &mut self.leave {
                    (leave.looks, leave.after) = (false, None);
                }
                break;
            };
            // A session without a hold ends whatever it was promised: a promise is worth nothing without a hold.
            let over = now >= patience_until_ns && now >= self.promised_until_ns(session);
            let ends = session.is_done() || over;
            if let Some(leave) = &mut self.leave {
                leave.after = Some(id);
            }
            if ends {
                self.end_session(now, id, out);
            }
        }
        self.say_farewell(now, out);
    }

    fn say_farewell(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(leave) = self.leave.filter(|leave| leave.farewell_ns.is_none()) else { return };
        if matches!(self.standing, Standing::Outside) {
            // Somebody may still remember its wish to join: a view that has it in would wait for its report.
            if now >= leave.since_ns + 4 * self.config.cluster.renewal_ns {
                self.exclude(out);
            }
            return;
        }
        let used = !self.sessions.is_empty() || self.held > 0;
        if used && !self.config.has(Flaw::LeavesInUse) {
            return;
        }
        self.lease_until_ns = 0;
        self.leave = Some(Leave { farewell_ns: Some(now), ..leave });
        self.ask_for_lease(now, out);
    }

    /// A leader that leaves lets somebody else lead, and goes as others do. Whether it must do that by itself, because nobody else
    /// is there or nobody takes over, is told.
    pub(crate) fn hands_on(&self, now: u64, out: &mut Out<Message<P>>) -> bool {
        let Some(since) = self.leave.and_then(|leave| leave.farewell_ns) else { return false };
        let Some(leader) = &self.leader else { return false };
        let stays = |node: &Node| *node != self.me && !leader.has_departed(*node);
        if !self.applied.members.iter().any(stays) || now >= since + 8 * self.config.election_ns {
            return true;
        }
        // Whoever leads next would have to decide another view in place of one that has not started.
        if leader.gather.as_ref().is_none_or(|gather| gather.started()) {
            out.port.push(PortRequest::StepDown { term: leader.term });
        }
        false
    }

    pub(crate) fn exclude(&mut self, out: &mut Out<Message<P>>) {
        self.standing = Standing::Excluded;
        self.retire();
        out.notes.push(if self.leave.is_some() { Note::Left } else { Note::Excluded });
    }
}
