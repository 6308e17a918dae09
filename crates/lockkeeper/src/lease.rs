//! For how long a hold is safe: the arithmetic that every engine with expiring holds shares.
//!
//! A server counts a lease from the moment when it *receives* a renewal; the holder counts it from the moment
//! BEFORE it *sends* the renewal, so the holder's end always comes first, whatever the network did in between.
//! Clocks may drift against each other: the holder counts only `1 − DRIFT` of what was promised. And the
//! holder is told some time ahead, the **margin**, so that it can stop while it is still alone:
//!
//! ```text
//!   sent          received at the server                lost() fires     holder's end     server's end
//!    │───────────────│────────────────────────────────────────│─────margin────│──drift+delay──│
//! ```
//!
//! A lost lease stays lost: a renewal that arrives after `lost()` fired changes nothing.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How much of a promised lease the holder does not believe, in parts per thousand (slewed clocks: see the
/// design of the cluster; a lease server and its holder rarely differ by more).
const DRIFT_PER_MILLE: u32 = 10;

/// A reading of the lease clock: time since boot, counting suspend, never set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseTime(Duration);

/// Reads the lease clock. Engines read it BEFORE they send a renewal.
pub(crate) fn now() -> LeaseTime {
    // CLOCK_BOOTTIME: a laptop that slept through its lease must know it.
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    LeaseTime(Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32))
}

/// How long before the holder's end `lost()` fires: a fifth of the lease, at most five seconds.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(5))
}

/// The state of a lease; the pure part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// Ends only with the process or on release.
    Forever,
    /// `lost()` fires at `warn`; the hold is unsafe from `end` on.
    Until { warn: LeaseTime, end: LeaseTime },
    /// Over, and why.
    Lost(String),
}

impl Term {
    fn lasting(sent: LeaseTime, ttl: Duration) -> Term {
        let believed = ttl - ttl * DRIFT_PER_MILLE / 1000;
        let end = sent.0 + believed;
        Term::Until { warn: LeaseTime(end.saturating_sub(margin(ttl)).max(sent.0)), end: LeaseTime(end) }
    }

    /// What the state is at `now`: a term whose warning time has come is lost.
    fn at(&self, now: LeaseTime) -> Term {
        match self {
            Term::Until { warn, .. } if now >= *warn => Term::Lost("its lease ran out unrenewed".into()),
            other => other.clone(),
        }
    }
}

/// A shared view of one hold's lease: the engine renews or ends it, the guard watches it.
///
/// Changes are announced through the channel, which wakes those in [`Lease::lost`].
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

    /// Counts a renewal sent at `sent` and answered now. False if it came too late: the lease stays lost.
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

    /// Ends the lease: the server said so, or the session is gone.
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

    /// Whether the hold is safe now: not lost, and the warning time not reached.
    pub fn is_valid(&self) -> bool {
        !matches!(self.0.borrow().at(now()), Term::Lost(_))
    }

    /// For how much longer nobody else can enter; `Duration::MAX` if the hold does not expire.
    ///
    /// After [`Lease::lost`] fired by the clock this is what is left of the margin.
    pub fn valid_for(&self) -> Duration {
        match &*self.0.borrow() {
            Term::Forever => Duration::MAX,
            Term::Until { end, .. } => end.0.saturating_sub(now().0),
            Term::Lost(_) => Duration::ZERO,
        }
    }

    /// Resolves when the hold stops being safe, at least the margin before the server may let another in.
    /// Needs no renewal task to be alive: each waiter watches the clock itself.
    pub async fn lost(&self) -> String {
        let mut changed = self.0.subscribe();
        loop {
            let warn = match changed.borrow_and_update().at(now()) {
                Term::Lost(reason) => return reason,
                Term::Until { warn, .. } => Some(warn),
                Term::Forever => None,
            };
            // Timers do not count suspend, so look again at least every second.
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

/// Why a renewal did not happen.
#[allow(dead_code, reason = "for the engines with expiring holds")]
pub(crate) enum NotRenewed {
    /// Perhaps next time: the network, a timeout.
    TryAgain,
    /// Never again: the server does not know this hold any more.
    Gone(String),
}

/// Keeps a lease alive until it is lost or the returned handle is dropped.
///
/// `renew` is called every third of `ttl`, and again soon after a failure; a call that takes longer than a third of `ttl`
/// is dropped and tried again, so one stuck connection cannot eat the whole lease.
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

/// Stops a renewal when dropped.
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
        assert_eq!(lease.lost().await, "its lease ran out unrenewed");
    }

    #[tokio::test]
    async fn a_renewal_prolongs_and_the_servers_word_ends() {
        let lease = Lease::expiring(now(), SECOND * 100);
        assert!(lease.renewed(now(), SECOND * 1000));
        assert!(lease.valid_for() > SECOND * 900);
        lease.lose("the server said so");
        lease.lose("again");
        assert_eq!(lease.lost().await, "the server said so");
        assert!(!lease.is_valid());
    }

    #[tokio::test]
    async fn a_blocked_renewal_does_not_keep_lost_from_firing() {
        let ttl = Duration::from_millis(50);
        let lease = Lease::expiring(now(), ttl);
        let _renewal = keep_renewed(lease.clone(), ttl, std::future::pending);
        assert_eq!(lease.lost().await, "its lease ran out unrenewed");
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
        // Nine renewals a third of the lease apart: three leases' time. On a machine too slow to renew
        // in time the lease is lost, which is right too.
        tokio::select! {
            result = counted.wait_for(|n| *n >= 9) => assert!(result.is_ok()),
            reason = lease.lost() => assert_eq!(reason, "its lease ran out unrenewed"),
        }
    }
}
