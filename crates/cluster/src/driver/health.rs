//! The health of the member: whether it can serve, the reason if it cannot, and the log messages about it.

use super::{Driver, State};
use crate::clock::now_ns;
use crate::not_serving::{NotServing, NotServingReason};
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::MemberId;
use std::any::Any;
use std::collections::BTreeSet;
use std::time::Duration;

/// A change of the lease that is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The lease is lost.
    Lost,
    /// The member has a lease again, after this many nanoseconds without one.
    Back(u64),
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
        state.news.push(News::Back(now.saturating_sub(state.without_lease_since_ns)));
    }

    pub(super) fn note_lease_lost(&self, state: &mut State<P>, now: u64) {
        state.without_lease_since_ns = now;
        if !state.leaving {
            state.news.push(News::Lost);
        }
    }

    /// Logs the changes of the lease. It is called outside of steps, since it queries consensus.
    pub(super) fn log_news(&self) {
        let news = std::mem::take(&mut self.lock().news);
        for news in news {
            match (news, self.find_trouble()) {
                (News::Back(ns), _) => {
                    let after_ms = ns / 1_000_000;
                    tracing::info!(member = %self.me, after_ms, "has a lease, and can grant locks");
                }
                (News::Lost, Some(trouble)) => {
                    tracing::warn!(member = %self.me, %trouble, "the lease is lost: no lock is granted here");
                }
                // A lease has been obtained again in the meantime.
                (News::Lost, None) => {
                    tracing::warn!(member = %self.me, "the lease was lost for a moment: it was renewed too late");
                }
            }
        }
    }

    /// The reason why the member grants no locks. `None` if it does.
    pub(super) fn find_trouble(&self) -> Option<NotServing> {
        let (now, state) = (now_ns(), self.lock());
        let has_lease = state.member.lease_left_ns(now) > 0;
        let (in_view, excluded) = (state.member.running().is_some(), state.excluded);
        let (stopped, left) = (state.stopped.clone(), state.left);
        let founds = state.member.founds();
        let lasts = Duration::from_nanos(now.saturating_sub(state.without_lease_since_ns));
        // Consensus calls this driver while it holds its own locks, so the state must be unlocked before consensus is
        // queried.
        drop(state);
        let trouble = |reason, lasts, unreachable| {
            Some(NotServing { member: self.me, reason, has_lease, lasts, unreachable })
        };
        match stopped {
            _ if left => return trouble(NotServingReason::Left, None, Vec::new()),
            Some(why) => return trouble(NotServingReason::Stopped(why), None, Vec::new()),
            None if has_lease && in_view => return None,
            None => {}
        }
        let lasts = (!has_lease).then_some(lasts);
        let Some((net, consensus)) = self.around.get() else {
            return trouble(NotServingReason::Starts, lasts, Vec::new());
        };
        let status = consensus.status();
        let others = |of: &BTreeSet<MemberId>| -> Vec<MemberId> {
            of.iter().copied().filter(|id| *id != self.me && !net.is_connected(*id)).collect()
        };
        let unreachable = others(&status.members);
        let reason = if let Some(why) = status.failure.or(status.trouble) {
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
        trouble(reason, lasts, unreachable)
    }
}
