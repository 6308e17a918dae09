//! The clients in this process: one lease for all of them, and what becomes of their holds when it ends.

use super::{Driver, State};
use crate::clock::now_ns;
use crate::engine::LEAVING;
use crate::error::{Error, Result};
use crate::local::{Lease, Tally};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{Event, NotOpened, ToMember};

/// So many clients, and so many holds of each, are looked at between two turns of others. Each costs some microseconds.
const AT_ONCE: usize = 256;

/// Why holds are lost at a member that leaves, once its holders have had their time.
const LEAVES: &str = "this member is leaving its cluster";

impl<P: MutualExclusion> Driver<P> {
    /// With less than this left of the lease, holders are warned.
    fn margin_ns(state: &State<P>) -> u64 {
        state.member.settings().lease_ns / 5
    }

    /// The lease that clients in this process hold under, at this moment.
    pub(super) fn lease(&self, state: &State<P>, now: u64) -> Lease {
        // A leaving member promises nothing more from a certain time on, which may pass between two steps.
        let until_ns = state.lease_until_ns.min(state.member.resident_until_ns(now));
        Lease {
            now_ns: now,
            until_ns,
            number: state.lease_number,
            ended: state.lease_ended,
            margin_ns: Self::margin_ns(state),
        }
    }

    /// If the lease has run out by now, what was held under it is lost, whatever this step brings.
    pub(super) fn end_lease_if_over(&self, state: &mut State<P>, now: u64) {
        if state.lease_until_ns != 0 && now >= state.lease_until_ns.min(state.member.resident_until_ns(now)) {
            self.end_lease(state, now, if state.leaving { LEAVES } else { "the lease ran out" });
        }
    }

    /// Takes over what a step has made of the member's lease.
    pub(super) fn follow_lease(&self, state: &mut State<P>, now: u64) {
        let until_ns = state.member.resident_until_ns(now);
        if until_ns > now {
            if state.lease_until_ns == 0 {
                self.begin_lease(state, now);
            }
            state.warned &= until_ns <= state.lease_until_ns;
            state.lease_until_ns = until_ns;
        } else if state.lease_until_ns != 0 {
            self.end_lease(state, now, if state.leaving { LEAVES } else { "the lease ran out" });
        }
    }

    /// There is no lease any more. Every hold under it is lost from now on, since the next lease has another number; the holders are told one
    /// after the other.
    pub(super) fn end_lease(&self, state: &mut State<P>, now: u64, why: &'static str) {
        if state.lease_until_ns == 0 {
            return;
        }
        state.lease_until_ns = 0;
        state.lease_number += 1;
        state.lease_ended = why;
        self.note_lease_lost(state, now);
        self.look_at_all(state);
        self.expiring.send_modify(|changes| *changes += 1);
    }

    /// Every client in this process is to be looked at, a few at a time.
    pub(super) fn look_at_all(&self, state: &mut State<P>) {
        state.stale = state.locals.keys().map(|&client| (client, 0)).collect();
        state.armed_ns = 0;
        self.timer.notify_one();
    }

    /// Looks at some of those that may have lost something.
    pub(super) fn look_at_some(&self, state: &mut State<P>) {
        let mut left = AT_ONCE;
        while left > 0
            && let Some((client, from)) = state.stale.pop_front()
        {
            left = left.saturating_sub(1 + self.look_at_client(state, client, from));
        }
    }

    /// Gives back what a client has lost, from this acquisition on, and asks again in a new life for what it waits for. Says how many
    /// acquisitions that concerned.
    pub(super) fn look_at_client(&self, state: &mut State<P>, client: u64, from: u64) -> usize {
        let lease = self.lease(state, now_ns());
        let (life, leaving) = (state.life, state.leaving);
        let Some(local) = state.locals.get_mut(&client) else { return 0 };
        if local.is_of_earlier_life(life) {
            if local.begin_again(state.lease_ended) {
                self.metrics.lost_leases.inc();
            }
            let wishes = local.session.wishes();
            if wishes.is_empty() || self.open_session(state, client).is_err() {
                return 0;
            }
            let Some(local) = state.locals.get_mut(&client) else { return 0 };
            let (id, settled, count) = (local.session.id(), local.session.settle(), wishes.len());
            for (number, wish) in wishes {
                self.step(state, Event::Client(id, ToMember::Acquire { number, settled, wish }));
            }
            return count;
        }
        let (id, (lost, next)) = (local.session.id(), local.lose_earlier(lease, from, AT_ONCE));
        if let Some(next) = next {
            state.stale.push_back((client, next));
        }
        let count = lost.len();
        if count > 0 {
            self.metrics.lost_leases.inc();
        }
        // A member that leaves waits until everything that it promised has passed, and then ends the session.
        if leaving {
            return count;
        }
        for number in lost {
            if let Some(local) = state.locals.get_mut(&client) {
                local.session.release(number);
            }
            self.step(state, Event::Client(id, ToMember::Release { number }));
        }
        count
    }

    /// Opens a client's session at the member, if it is not open there.
    pub(super) fn open_session(&self, state: &mut State<P>, client: u64) -> Result<()> {
        let Some(local) = state.locals.get_mut(&client) else {
            return Err(Error::Stopped(String::from("its session was closed")));
        };
        if local.open_in != Some(state.life) {
            let id = local.session.id();
            state.member.open_resident(now_ns(), id).map_err(|why| match why {
                NotOpened::Leaving => Error::Stopped(String::from(LEAVING)),
                NotOpened::Exists | NotOpened::NotResident => {
                    Error::Unavailable(format!("the session {id} cannot be opened: {why:?}"))
                }
            })?;
            local.open_in = Some(state.life);
        }
        Ok(())
    }

    /// The member has ended a client's session: it is leaving.
    pub(super) fn end_local(&self, state: &mut State<P>, client: u64) {
        if let Some(local) = state.locals.get_mut(&client)
            && local.begin_again(LEAVES)
        {
            self.metrics.lost_leases.inc();
        }
    }

    /// Tells waiters of grants that came while the lease was too short, if it is longer now.
    pub(super) fn tell_untold(&self, state: &mut State<P>, lease: Lease, tally: &mut Tally) {
        if state.untold.is_empty() || !lease.is_worth_telling() {
            return;
        }
        for (client, number) in std::mem::take(&mut state.untold) {
            if let Some(local) = state.locals.get_mut(&client) {
                local.settle(lease, number, tally);
            }
        }
    }

    /// Warns all holders at once when the lease is about to end; gives when to look again.
    pub(super) fn warn_of_end(&self, state: &mut State<P>, now: u64) -> u64 {
        if state.lease_until_ns == 0 {
            return u64::MAX;
        }
        let warn_ns = state.lease_until_ns.saturating_sub(Self::margin_ns(state));
        if state.warned {
            return state.lease_until_ns;
        }
        if now < warn_ns {
            return warn_ns;
        }
        state.warned = true;
        self.expiring.send_modify(|changes| *changes += 1);
        state.lease_until_ns
    }
}
