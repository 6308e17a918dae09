//! A planned leave: no view change waits for the lease of a member that has sent its departure notice.
//!
//! The notice is the flag `drained` of the member's renewals. With it, the member guarantees that every lock that a
//! client of it uses, now or later in this incarnation, is recorded: the view without the member gives these holds to
//! another one. The member has given up its lease, and accepts no other one. The guarantee never becomes untrue, so the
//! message may be late, duplicated, and sent to any leader. It
//! does not extend to other incarnations of the member. Tokens at the member need no care: the view without it starts
//! every lock again.

use crate::lock::Hold;
use crate::member::{Member, Message, ViewState};
use crate::session::{Session, Stage};
use crate::{Acquisition, BugSwitch, Bugs, Ended, Node, Note, Out, PortRequest, SessionId};
use alloc::vec::Vec;
use core::ops::Bound;
use lockkeeper_core::MutualExclusion;

/// The state of a member that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    since_ns: u64,
    /// The timeout: clients may keep their holds until then. After it, their leases are not renewed.
    timeout_at_ns: u64,
    /// When the member first sent its departure notice.
    pub departed_ns: Option<u64>,
    /// The end of the lease that the member gave up with that notice; 0 before it.
    pub given_up_until_ns: u64,
    /// Number of active locks, from the first one on, whose waiters are still to be cancelled.
    waiters: usize,
    /// Whether all sessions are being checked, the last one that was, and whether one of them has a hold that is not
    /// recorded.
    looks: bool,
    after: Option<SessionId>,
    blocked: bool,
}

impl Leave {
    /// The latest end of a lease that a resident client may have read before the timeout of the leave.
    pub fn promises_until_ns(self, lease_ns: u64) -> u64 {
        self.timeout_at_ns.saturating_add(lease_ns)
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Begins a planned leave. The member grants nothing any more, its waiters are cancelled so that they request
    /// elsewhere, and the holds of its clients are recorded.
    pub(crate) fn leave(&mut self, now: u64, timeout_ns: u64, out: &mut Out<Message<P>>) {
        let until = now.saturating_add(timeout_ns);
        if let Some(leave) = &mut self.leave {
            leave.timeout_at_ns = leave.timeout_at_ns.min(until);
        } else {
            let waiters = self.locks.active_count();
            self.leave = Some(Leave {
                since_ns: now,
                timeout_at_ns: until,
                departed_ns: None,
                given_up_until_ns: 0,
                waiters,
                looks: false,
                after: None,
                blocked: false,
            });
        }
        self.continue_leaving(now, out);
    }

    /// Whether the leases of clients may still be renewed.
    pub(crate) fn promises(&self, now: u64) -> bool {
        self.leave.is_none_or(|leave| now < leave.timeout_at_ns)
    }

    /// Whether this member has sent its departure notice.
    pub(crate) fn has_departed(&self) -> bool {
        self.leave.is_some_and(|leave| leave.departed_ns.is_some())
    }

    /// Whether waiters are still to be cancelled, or sessions still to be checked.
    pub(crate) fn is_sweeping_out(&self) -> bool {
        self.leave.is_some_and(|leave| leave.waiters > 0 || leave.looks)
    }

    /// Advances the leave: ends sessions without holds or whose leases have expired, and sends the departure notice
    /// once none is left.
    pub(crate) fn continue_leaving(&mut self, now: u64, out: &mut Out<Message<P>>) {
        if let Some(leave) = self.leave.as_mut().filter(|leave| leave.departed_ns.is_none()) {
            leave.looks = true;
            self.sweep_out(now, out);
        }
    }

    /// Cancels more waiters and checks more sessions, as far as this step may. A member that leaves accepts no new
    /// requests.
    pub(crate) fn sweep_out(&mut self, now: u64, out: &mut Out<Message<P>>) {
        while let Some(leave) = self.leave.filter(|leave| leave.waiters > 0) {
            if !self.has_budget() {
                return;
            }
            self.spend(1);
            // Downwards from the last one: a lock that becomes idle is replaced in the list by the last one, which
            // was handled before.
            let last = leave.waiters.min(self.locks.active_count());
            let waiting = self.locks.active_at(last.wrapping_sub(1));
            match waiting.and_then(|(_, _, active)| active.queue.front()).map(|waiter| waiter.acquisition) {
                Some(acquisition) => self.cancel(now, acquisition, Ended::Leaving, out),
                None => {
                    self.leave = Some(Leave { waiters: last.saturating_sub(1), ..leave });
                    self.record_holds_at(last.wrapping_sub(1));
                }
            }
        }
        while let Some(Leave { timeout_at_ns, looks: true, after, .. }) = self.leave {
            if !self.has_budget() {
                return;
            }
            self.spend(1);
            let rest = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let Some((&id, session)) = self.sessions.range(rest).next() else {
                let in_use = self.config.has(BugSwitch::LeavesInUse);
                if let Some(leave) = &mut self.leave {
                    (leave.looks, leave.after) = (false, None);
                    if !core::mem::replace(&mut leave.blocked, false) || in_use {
                        self.send_departure_notice(now, out);
                    }
                }
                return;
            };
            // A session without a hold ends although its lease runs: a lease without a hold protects nothing.
            let over = now >= timeout_at_ns && now >= self.promised_until_ns(session);
            let moves = self.is_recorded(id, session);
            let ends = session.is_done() || over && !moves;
            if let Some(leave) = &mut self.leave {
                leave.after = Some(id);
                leave.blocked |= !ends && !moves;
            }
            if ends {
                self.end_session(now, id, out);
            }
        }
    }

    /// Records the holds of an active lock.
    fn record_holds_at(&mut self, place: usize) {
        let Some((_, _, active)) = self.locks.active_at(place) else { return };
        let held: Vec<Acquisition> = active.holds.iter().flat_map(Hold::acquisitions).collect();
        self.spend(held.len());
        held.into_iter().for_each(|acquisition| self.schedule_record(acquisition));
    }

    /// Whether every hold of a session is recorded, so that another member can adopt the session.
    fn is_recorded(&self, id: SessionId, session: &Session) -> bool {
        let mut open = session.acquisitions.iter().filter(|(_, stage)| !matches!(stage, Stage::Over(_)));
        open.all(|(&number, _)| self.recording.is_committed(Acquisition { session: id, number }))
            || self.config.has(BugSwitch::DepartsUnrecorded)
    }

    /// Sends the departure notice once every session has ended or can be adopted by another member.
    fn send_departure_notice(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(leave) = self.leave.filter(|leave| leave.departed_ns.is_none()) else { return };
        if matches!(self.view_state, ViewState::Outside) {
            // Another member may still remember its request to join, and a view that includes it would wait for its
            // report.
            if now >= leave.since_ns + 4 * self.config.cluster.renewal_ns {
                self.exclude(out);
            }
            return;
        }
        let writes = !self.recording.is_done() && !self.config.has(BugSwitch::DepartsUnrecorded);
        let used = !self.ending.is_empty() || writes || self.running().is_none();
        if used && !self.config.has(BugSwitch::LeavesInUse) {
            return;
        }
        let given_up_until_ns = core::mem::take(&mut self.lease_until_ns);
        self.leave = Some(Leave { departed_ns: Some(now), given_up_until_ns, ..leave });
        self.send_renewal(now, out);
    }

    /// Lets a leaving leader transfer its leadership, after which it leaves as other members do. Returns `true` if it
    /// has to propose the view without it by itself, because no other member stays or no voter takes over.
    pub(crate) fn hands_on(&self, now: u64, out: &mut Out<Message<P>>) -> bool {
        let Some(since) = self.leave.and_then(|leave| leave.departed_ns) else { return false };
        let Some(leader) = &self.leader else { return false };
        let stays = |node: &Node| *node != self.me && !leader.has_departed(*node);
        if !self.applied.members.iter().any(stays) || now >= since + 8 * self.config.election_ns {
            return true;
        }
        // Not before the present view has started: the next leader would have to decide another view in its place.
        if leader.gather.as_ref().is_none_or(|gather| gather.started()) {
            out.port.push(PortRequest::StepDown { term: leader.term });
        }
        false
    }

    /// Ends this incarnation.
    pub(crate) fn exclude(&mut self, out: &mut Out<Message<P>>) {
        self.view_state = ViewState::Excluded;
        self.retire();
        out.notes.push(if self.leave.is_some() { Note::Left } else { Note::Excluded });
    }
}
