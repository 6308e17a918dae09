//! The validity of a hold: the arithmetic that all engines with expiring holds share.
//!
//! A server counts a lease from the moment when it *receives* a renewal. The holder counts it from the moment BEFORE
//! it *sends* the renewal, so that its lease always ends first, however long the network takes. Clocks may drift
//! against each other, so the holder counts only `1 − DRIFT` of the granted time. The holder is notified before the
//! end by the **margin**, so that it can stop while no other client can hold the lock:
//!
//! ```text
//!   sent          received at the server                lost() fires     holder's end     server's end
//!    │───────────────│────────────────────────────────────────│─────margin────│──drift+delay──│
//! ```
//!
//! A lost lease stays lost: a renewal that is confirmed after `lost()` fired has no effect.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The allowance for clock drift, in parts per thousand: the holder does not count this part of a granted lease. (On
/// slewed clocks see the design of the cluster; the clocks of a lease server and its holder rarely differ by more.)
const DRIFT_PER_MILLE: u32 = 10;

/// A reading of the lease clock, which counts suspend and is never set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseTime(Duration);

/// Reads the lease clock. Engines read it BEFORE they send a renewal.
pub(crate) fn now() -> LeaseTime {
    LeaseTime(Duration::from_nanos(lockkeeper_system::lease_clock::now_ns()))
}

/// The margin, the time between `lost()` and the holder's end: a fifth of the lease, at most five seconds.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(5))
}

/// The state of a lease, without the clock and the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// The hold ends only with the process or on release.
    Forever,
    /// `lost()` fires at `warn`; the hold is unsafe from `end` on.
    Until { warn: LeaseTime, end: LeaseTime },
    /// The hold is lost, for this reason.
    Lost(String),
}

impl Term {
    fn lasting(sent: LeaseTime, ttl: Duration) -> Term {
        // Example: a lease of 10 s, sent at 100 s. The holder counts 9.9 s (1 % drift): the end is at 109.9 s, and
        // `lost()` fires the margin of 2 s earlier, at 107.9 s.
        let believed = ttl - ttl * DRIFT_PER_MILLE / 1000;
        let end = sent.0 + believed;
        Term::Until { warn: LeaseTime(end.saturating_sub(margin(ttl)).max(sent.0)), end: LeaseTime(end) }
    }

    /// The state at `now`: a term whose warning time has come is lost.
    fn at(&self, now: LeaseTime) -> Term {
        match self {
            Term::Until { warn, .. } if now >= *warn => {
                Term::Lost("its lease expired without a renewal".into())
            }
            other => other.clone(),
        }
    }
}

/// A shared handle of one hold's lease. The engine renews or ends the lease; the guard watches it.
///
/// Changes go through the channel, which wakes the callers of [`Lease::lost`].
#[derive(Clone, Debug)]
pub(crate) struct Lease(Arc<watch::Sender<Term>>);

impl Lease {
    /// A lease that never expires, but can still be [`lose`](Lease::lose)d.
    pub fn forever() -> Lease {
        Lease(Arc::new(watch::Sender::new(Term::Forever)))
    }

    /// A lease of `ttl`, counted from `sent`.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn expiring(sent: LeaseTime, ttl: Duration) -> Lease {
        Lease(Arc::new(watch::Sender::new(Term::lasting(sent, ttl))))
    }

    /// Applies a renewal that was sent at `sent` and has just been confirmed. Returns false if it came too late: the
    /// lease stays lost.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn renewed(&self, sent: LeaseTime, ttl: Duration) -> bool {
        self.0.send_if_modified(|term| match term.at(now()) {
            Term::Lost(_) => false,
            _ => {
                *term = Term::lasting(sent, ttl);
                true
            }
        })
    }

    /// Ends the lease: the server reported its end, or the session is gone.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn lose(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.0.send_if_modified(|term| match term {
            Term::Lost(_) => false,
            _ => {
                *term = Term::Lost(reason);
                true
            }
        });
    }

    /// Whether the hold is safe now: it is not lost, and the warning time has not come.
    pub fn is_valid(&self) -> bool {
        !matches!(self.0.borrow().at(now()), Term::Lost(_))
    }

    /// The time for which no other client can be granted the lock; `Duration::MAX` if the hold does not expire.
    ///
    /// After [`Lease::lost`] fired because of the clock, this is the rest of the margin.
    pub fn valid_for(&self) -> Duration {
        match &*self.0.borrow() {
            Term::Forever => Duration::MAX,
            Term::Until { end, .. } => end.0.saturating_sub(now().0),
            Term::Lost(_) => Duration::ZERO,
        }
    }

    /// Resolves when the hold stops being safe, at least the margin before the server may grant the lock to another
    /// client. This does not depend on the renewal task: each caller watches the clock itself.
    pub async fn lost(&self) -> String {
        let mut changed = self.0.subscribe();
        loop {
            let warn = match changed.borrow_and_update().at(now()) {
                Term::Lost(reason) => return reason,
                Term::Until { warn, .. } => Some(warn),
                Term::Forever => None,
            };
            // Timers do not advance during suspend, so read the clock again at least every second.
            let nap = warn.map(|warn| warn.0.saturating_sub(now().0).min(Duration::from_secs(1)));
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_or_forever(nap) => {}
            }
        }
    }
}

async fn sleep_or_forever(nap: Option<Duration>) {
    match nap {
        Some(nap) => tokio::time::sleep(nap).await,
        None => std::future::pending().await,
    }
}

/// The reason why a renewal failed.
#[allow(dead_code, reason = "for the engines with expiring holds")]
pub(crate) enum NotRenewed {
    /// A temporary failure, such as a timeout: try again.
    TryAgain,
    /// A permanent failure: the server no longer knows this hold.
    Gone(String),
}

/// Renews a lease until it is lost or the returned handle is dropped.
///
/// `renew` is called every third of `ttl`, and again soon after a failure. A call that takes longer than a third of
/// `ttl` is dropped and repeated, so that one stuck connection cannot use up the whole lease.
#[allow(dead_code, reason = "for the engines with expiring holds")]
pub(crate) fn keep_renewed<F, R>(lease: Lease, ttl: Duration, mut renew: R) -> Renewal
where
    R: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<(), NotRenewed>> + Send,
{
    let period = ttl / 3;
    let task = tokio::spawn(async move {
        let mut pause = period;
        loop {
            tokio::select! {
                _ = lease.lost() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let sent = now();
            pause = match tokio::time::timeout(period, renew()).await {
                Ok(Ok(())) if lease.renewed(sent, ttl) => period,
                Ok(Ok(())) => return,
                Ok(Err(NotRenewed::Gone(reason))) => return lease.lose(reason),
                Ok(Err(NotRenewed::TryAgain)) | Err(_) => period / 8,
            };
        }
    });
    Renewal(task.abort_handle())
}

/// Stops the renewal when dropped.
pub(crate) struct Renewal(tokio::task::AbortHandle);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> LeaseTime {
        LeaseTime(SECOND * seconds as u32)
    }

    #[test]
    fn a_term_is_counted_from_sending_less_drift_and_margin() {
        let term = Term::lasting(at(100), SECOND * 10);
        let Term::Until { warn, end } = term.clone() else { panic!("{term:?}") };
        assert_eq!(end.0, Duration::from_millis(109_900), "1 % of drift");
        assert_eq!(warn.0, Duration::from_millis(107_900), "a fifth of the lease ahead");
        assert_eq!(term.at(at(107)), term);
        assert!(matches!(term.at(at(108)), Term::Lost(_)), "lost while still alone");
    }

    #[tokio::test]
    async fn a_late_renewal_does_not_revive_a_lost_lease() {
        let long_ago = LeaseTime(now().0.saturating_sub(SECOND));
        let lease = Lease::expiring(long_ago, SECOND);
        assert!(!lease.is_valid());
        assert!(!lease.renewed(now(), SECOND * 100));
        assert_eq!(lease.lost().await, "its lease expired without a renewal");
    }

    #[tokio::test]
    async fn a_renewal_extends_the_lease_and_the_server_can_end_it() {
        let lease = Lease::expiring(now(), SECOND * 100);
        assert!(lease.renewed(now(), SECOND * 1000));
        assert!(lease.valid_for() > SECOND * 900);
        lease.lose("the server ended it");
        lease.lose("again");
        assert_eq!(lease.lost().await, "the server ended it");
        assert!(!lease.is_valid());
    }

    #[tokio::test]
    async fn a_blocked_renewal_does_not_keep_lost_from_firing() {
        let ttl = Duration::from_millis(50);
        let lease = Lease::expiring(now(), ttl);
        let _renewal = keep_renewed(lease.clone(), ttl, std::future::pending);
        assert_eq!(lease.lost().await, "its lease expired without a renewal");
    }

    #[tokio::test]
    async fn renewals_keep_a_lease_beyond_its_first_term() {
        let ttl = Duration::from_millis(400);
        let (count, mut counted) = watch::channel(0);
        let lease = Lease::expiring(now(), ttl);
        let _renewal = keep_renewed(lease.clone(), ttl, move || {
            count.send_modify(|n| *n += 1);
            async { Ok(()) }
        });
        // Nine renewals, each a third of the lease apart, take as long as three leases. On a machine too slow to
        // renew in time the lease is lost, which is correct too.
        tokio::select! {
            result = counted.wait_for(|n| *n >= 9) => assert!(result.is_ok()),
            reason = lease.lost() => assert_eq!(reason, "its lease expired without a renewal"),
        }
    }
}
