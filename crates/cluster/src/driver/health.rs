//! The health of the member: whether it can serve, the reason if it cannot, and the log messages about it.

use super::{Driver, State};
use crate::not_serving::{NotServing, NotServingReason};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::MemberId;
use lockkeeper_system::lease_clock::now_ns;
use std::any::Any;
use std::collections::BTreeSet;
use std::time::Duration;

/// A change of the lease that is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseChange {
    /// The lease is lost.
    Lost,
    /// The member has a lease again, after this many nanoseconds without one.
    Regained(u64),
}

/// The message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl<P: MutualExclusion> Driver<P> {
    /// Stops the member for good after an internal error.
    pub(super) fn fail(&self, state: &mut State<P>, why: &str) {
        if state.stopped.is_none() {
            let why = format!("{why}; restart this process");
            tracing::error!(member = %self.me, why, "the member stops");
            state.failed = true;
            self.halt(state, &why);
        }
    }

    pub(super) fn begin_lease(&self, state: &mut State<P>, now: u64) {
        state.excluded = false;
        state.lease_changes.push(LeaseChange::Regained(now.saturating_sub(state.without_lease_since_ns)));
    }

    pub(super) fn note_lease_lost(&self, state: &mut State<P>, now: u64) {
        state.without_lease_since_ns = now;
        if !state.leaving {
            state.lease_changes.push(LeaseChange::Lost);
        }
    }

    /// Logs the changes of the lease. It is called outside of steps, since it queries consensus.
    pub(super) fn log_lease_changes(&self) {
        let lease_changes = std::mem::take(&mut self.lock().lease_changes);
        for lease_changes in lease_changes {
            match (lease_changes, self.find_not_serving()) {
                (LeaseChange::Regained(ns), _) => {
                    let after_ms = ns / 1_000_000;
                    tracing::info!(member = %self.me, after_ms, "has a lease, and can grant locks");
                }
                (LeaseChange::Lost, Some(not_serving)) => {
                    tracing::warn!(member = %self.me, trouble = %not_serving, "the lease is lost: no lock is granted here");
                }
                // A lease has been obtained again in the meantime.
                (LeaseChange::Lost, None) => {
                    tracing::warn!(member = %self.me, "the lease was lost for a moment: it was renewed too late");
                }
            }
        }
    }

    /// The reason why the member grants no locks. `None` if it does.
    pub(super) fn find_not_serving(&self) -> Option<NotServing> {
        let (now, state) = (now_ns(), self.lock());
        let has_lease = state.member.lease_left_ns(now) > 0;
        let (in_view, excluded) = (state.member.running().is_some(), state.excluded);
        let (stopped, left) = (state.stopped.clone(), state.left);
        let founds = state.member.founds();
        let lasts = Duration::from_nanos(now.saturating_sub(state.without_lease_since_ns));
        // Consensus calls this driver while it holds its own locks, so the state must be unlocked before consensus is
        // queried.
        drop(state);
        let not_serving = |reason, lasts, unreachable| {
            Some(NotServing { member: self.me, reason, has_lease, lasts, unreachable })
        };
        match stopped {
            _ if left => return not_serving(NotServingReason::Left, None, Vec::new()),
            Some(why) => return not_serving(NotServingReason::Stopped(why), None, Vec::new()),
            None if has_lease && in_view => return None,
            None => {}
        }
        let lasts = (!has_lease).then_some(lasts);
        let Some((net, consensus)) = self.environment.get() else {
            return not_serving(NotServingReason::Starts, lasts, Vec::new());
        };
        let status = consensus.status();
        let others = |of: &BTreeSet<MemberId>| -> Vec<MemberId> {
            of.iter().copied().filter(|id| *id != self.me && !net.is_connected(*id)).collect()
        };
        let unreachable = others(&status.members);
        let reason = if let Some(why) = status.failure.or(status.obstacle) {
            NotServingReason::Waits(why)
        } else if founds {
            NotServingReason::Founds
        } else if has_lease {
            NotServingReason::ViewChanges
        } else {
            let (voters, missing) = (status.voters.len(), others(&status.voters).len());
            match status.leader {
                None => NotServingReason::NoLeader { voters, missing },
                Some(leader) if leader == self.me => NotServingReason::NoQuorum { leader, voters, missing },
                Some(leader) if unreachable.contains(&leader) => NotServingReason::LeaderUnreachable(leader),
                Some(leader) if excluded || !in_view => NotServingReason::Joins { leader, excluded },
                Some(leader) => NotServingReason::NoQuorum { leader, voters, missing },
            }
        };
        not_serving(reason, lasts, unreachable)
    }
}
