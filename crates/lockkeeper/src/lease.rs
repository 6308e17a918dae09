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
//!
//! A server that *revokes* a hold keeps to the lease that it has granted: the holder is notified at once, and has the
//! rest of its lease to stop ([`Lease::revoke`]).

use crate::{HoldState, Loss};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The allowance for clock drift, in parts per thousand: the holder does not count this part of a granted lease. (On
/// slewed clocks see the design of the cluster; the clocks of a lease server and its holder rarely differ by more.)
const DRIFT_PER_MILLE: u32 = 10;

/// A reading of the lease clock, which counts suspend and is never set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseTime(Duration);

#[allow(dead_code, reason = "for engines with detached holds")]
impl LeaseTime {
    pub fn from_ns(ns: u64) -> LeaseTime {
        LeaseTime(Duration::from_nanos(ns))
    }

    /// The reading of the clock after this time.
    pub fn plus(self, time: Duration) -> LeaseTime {
        LeaseTime(self.0.saturating_add(time))
    }

    /// The time until the clock shows this; `None` if it has.
    pub fn left(self) -> Option<Duration> {
        self.0.checked_sub(now().0).filter(|left| !left.is_zero())
    }
}

/// Resolves when the clock shows this time.
#[allow(dead_code, reason = "for engines with detached holds")]
pub(crate) async fn sleep_until(time: LeaseTime) {
    // Timers do not advance during suspend, so read the clock again at least every second.
    while let Some(left) = time.left() {
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}

/// Reads the lease clock. Engines read it BEFORE they send a renewal.
pub(crate) fn now() -> LeaseTime {
    LeaseTime(Duration::from_nanos(lockkeeper_system::lease_clock::now_ns()))
}

/// The margin, the time between `lost()` and the holder's end: a fifth of the lease, at most five seconds.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 5).min(Duration::from_secs(5))
}

/// The validity of a hold whose server is in this process: a function that returns the time for which the hold is valid at
/// its call, and zero once it is lost.
#[derive(Clone)]
struct Validity(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Validity {
    fn has_ended(&self) -> bool {
        (self.0)().is_zero()
    }
}

impl PartialEq for Validity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Validity {}

impl std::fmt::Debug for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Validity").field(&(self.0)()).finish()
    }
}

/// The state of a lease, without the clock and the notification.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// The hold ends only with the process or on release.
    Forever,
    /// The hold is valid for as long as its server, in this process, reports.
    #[cfg_attr(not(feature = "member"), allow(dead_code, reason = "for the engine `member`"))]
    ReadFrom(Validity),
    /// `lost()` fires at `warn`; the hold is unsafe from `end` on. `failure` is that of the last renewal.
    Until { warn: LeaseTime, end: LeaseTime, failure: Option<String> },
    /// The hold is lost. No other client can be granted the lock before `end`.
    Lost { loss: Loss, end: LeaseTime },
}

impl Term {
    fn lasting(sent: LeaseTime, ttl: Duration) -> Term {
        // Example: a lease of 10 s, sent at 100 s. The holder counts 9.9 s (1 % drift): the end is at 109.9 s, and
        // `lost()` fires the margin of 2 s earlier, at 107.9 s.
        let believed = ttl - ttl * DRIFT_PER_MILLE / 1000;
        let end = sent.0 + believed;
        let warn = LeaseTime(end.saturating_sub(margin(ttl)).max(sent.0));
        Term::Until { warn, end: LeaseTime(end), failure: None }
    }

    /// The state at `now`: a term is lost once its warning time has passed.
    fn at(&self, now: LeaseTime) -> Term {
        match self {
            Term::Until { warn, end, failure } if now >= *warn => {
                let loss = failure.clone().map_or(Loss::Expired, Loss::Unreachable);
                Term::Lost { loss, end: *end }
            }
            other => other.clone(),
        }
    }

    /// The time from which on another client can be granted the lock; `None` if the hold does not expire.
    fn end(&self) -> Option<LeaseTime> {
        match self {
            Term::Forever => None,
            Term::ReadFrom(validity) => Some(now().plus((validity.0)())),
            Term::Until { end, .. } | Term::Lost { end, .. } => Some(*end),
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

    /// The lease of a hold whose server is in this process, from a function that returns the time for which the hold is
    /// valid at its call. The engine reports the loss, BEFORE that time is over.
    #[cfg(feature = "member")]
    pub fn read_from(valid_for: impl Fn() -> Duration + Send + Sync + 'static) -> Lease {
        Lease(Arc::new(watch::Sender::new(Term::ReadFrom(Validity(Arc::new(valid_for))))))
    }

    /// Applies a renewal that was sent at `sent` and has just been confirmed. Returns false if it came too late: the
    /// lease stays lost.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn renewed(&self, sent: LeaseTime, ttl: Duration) -> bool {
        self.0.send_if_modified(|term| match term.at(now()) {
            Term::Lost { .. } => false,
            _ => {
                *term = Term::lasting(sent, ttl);
                true
            }
        })
    }

    /// Records that a renewal failed: the hold is in jeopardy until one succeeds. It is the reason for the loss if the
    /// lease expires before that.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn renewal_failed(&self, reason: impl Into<String>) {
        self.0.send_if_modified(|term| {
            let Term::Until { failure, .. } = term else { return false };
            // Of a series of failures, only the first one changes the state.
            failure.replace(reason.into()).is_none()
        });
    }

    /// The state of the hold now.
    pub fn state(&self) -> HoldState {
        match self.0.borrow().at(now()) {
            Term::Forever | Term::ReadFrom(_) | Term::Until { failure: None, .. } => HoldState::Held,
            Term::Until { failure: Some(failure), .. } => HoldState::Jeopardy(failure),
            Term::Lost { loss, .. } => HoldState::Lost(loss),
        }
    }

    /// Resolves with the new state when it is of another kind than `known`.
    pub async fn state_changed(&self, known: &HoldState) -> HoldState {
        let mut changed = self.0.subscribe();
        loop {
            changed.borrow_and_update();
            let state = self.state();
            if std::mem::discriminant(&state) != std::mem::discriminant(known) {
                return state;
            }
            if let HoldState::Lost(_) = state {
                std::future::pending::<()>().await;
            }
            tokio::select! {
                loss = self.lost() => return HoldState::Lost(loss),
                _ = changed.changed() => {}
            }
        }
    }

    /// Ends the lease: the server reported its end, or the session is gone. Another client may hold the lock.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the engines with expiring holds"))]
    pub fn lose(&self, loss: impl Into<Loss>) {
        self.end(loss.into(), |_| now());
    }

    /// Revokes the hold: `lost()` fires, no renewal has an effect any more, and the holder has until the end of its
    /// present term to stop. Only for servers that keep the lock for that long.
    #[cfg_attr(
        not(any(test, feature = "cluster", feature = "member")),
        allow(dead_code, reason = "for the cluster")
    )]
    pub fn revoke(&self, loss: impl Into<Loss>) {
        self.end(loss.into(), |term| term.end().unwrap_or_else(now));
    }

    /// Records the first loss, and the earliest end.
    fn end(&self, new: Loss, at: impl FnOnce(&Term) -> LeaseTime) {
        self.0.send_if_modified(|term| {
            let at = at(term);
            // A lease that has expired keeps this reason.
            *term = term.at(now());
            match term {
                Term::Lost { end, .. } => {
                    *end = at.min(*end);
                    false
                }
                _ => {
                    *term = Term::Lost { loss: new, end: at };
                    true
                }
            }
        });
    }

    /// Whether the hold is safe now: it is not lost, and the warning time has not come.
    pub fn is_valid(&self) -> bool {
        match self.0.borrow().at(now()) {
            Term::Lost { .. } => false,
            // It may not have been reported yet.
            Term::ReadFrom(validity) => !validity.has_ended(),
            Term::Forever | Term::Until { .. } => true,
        }
    }

    /// The time for which no other client can be granted the lock; `Duration::MAX` if the hold does not expire.
    ///
    /// After [`Lease::lost`] fired, this is the time that is left to stop: the rest of the margin if the lease was not
    /// renewed, and the rest of the lease if the hold was revoked.
    pub fn valid_for(&self) -> Duration {
        self.0.borrow().end().map_or(Duration::MAX, |end| end.0.saturating_sub(now().0))
    }

    /// Resolves when the hold stops being safe, at least the margin before the server may grant the lock to another
    /// client. This does not depend on the renewal task: each caller watches the clock itself.
    pub async fn lost(&self) -> Loss {
        const SECOND: Duration = Duration::from_secs(1);
        let mut changed = self.0.subscribe();
        let mut has_napped = false;
        loop {
            // Timers do not advance during suspend, so read the clock again at least every second.
            let nap = match changed.borrow_and_update().at(now()) {
                Term::Lost { loss, .. } => return loss,
                Term::Until { warn, .. } => Some(warn.0.saturating_sub(now().0).min(SECOND)),
                // The engine's task, which knows the reason, has ended with its runtime.
                Term::ReadFrom(validity) if has_napped && validity.has_ended() => return Loss::Expired,
                Term::ReadFrom(_) => Some(SECOND),
                Term::Forever => None,
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_or_forever(nap) => has_napped = true,
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
    /// A temporary failure, such as a timeout: try again. The text is the reason.
    TryAgain(String),
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
            let failure = match tokio::time::timeout(period, renew()).await {
                Ok(Ok(())) if lease.renewed(sent, ttl) => None,
                Ok(Ok(())) => return,
                Ok(Err(NotRenewed::Gone(reason))) => return lease.lose(reason),
                Ok(Err(NotRenewed::TryAgain(reason))) => Some(reason),
                Err(_) => Some(format!("no answer within {period:?}")),
            };
            pause = if failure.is_some() { period / 8 } else { period };
            if let Some(failure) = failure {
                lease.renewal_failed(failure);
            }
        }
    });
    Renewal(task.abort_handle())
}

/// Stops the renewal when dropped.
pub(crate) struct Renewal(tokio::task::AbortHandle);

impl Renewal {
    /// The handle of a task of the engine.
    #[cfg(feature = "member")]
    pub fn of(task: tokio::task::JoinHandle<()>) -> Renewal {
        Renewal(task.abort_handle())
    }
}

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
        let Term::Until { warn, end, .. } = term.clone() else { panic!("{term:?}") };
        assert_eq!(end.0, Duration::from_millis(109_900), "1 % of drift");
        assert_eq!(warn.0, Duration::from_millis(107_900), "a fifth of the lease ahead");
        assert_eq!(term.at(at(107)), term);
        assert_eq!(term.at(at(108)), Term::Lost { loss: Loss::Expired, end }, "lost while still alone");
    }

    #[tokio::test]
    async fn a_late_renewal_does_not_revive_a_lost_lease() {
        let long_ago = LeaseTime(now().0.saturating_sub(SECOND));
        let lease = Lease::expiring(long_ago, SECOND);
        assert!(!lease.is_valid());
        assert!(!lease.renewed(now(), SECOND * 100));
        assert_eq!(lease.lost().await, Loss::Expired);
    }

    #[tokio::test]
    async fn a_renewal_extends_the_lease_and_the_server_can_end_it() {
        let lease = Lease::expiring(now(), SECOND * 100);
        assert!(lease.renewed(now(), SECOND * 1000));
        assert!(lease.valid_for() > SECOND * 900);
        lease.lose("the server ended it");
        lease.lose("again");
        assert_eq!(lease.lost().await, "the server ended it".into());
        assert!(!lease.is_valid());
        assert_eq!(lease.valid_for(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_revoked_hold_is_lost_at_once_and_protected_until_the_end_of_its_lease() {
        let lease = Lease::expiring(now(), SECOND * 1000);
        let revoked = Loss::Revoked { by: Some("ada".into()) };
        lease.revoke(revoked.clone());
        assert_eq!(lease.lost().await, revoked);
        assert!(!lease.is_valid(), "its holder has to stop");
        assert!(lease.valid_for() > SECOND * 900, "no other client is granted the lock before");
        assert!(!lease.renewed(now(), SECOND * 5000), "the server counts from the revocation");
        assert!(lease.valid_for() < SECOND * 1000);
        lease.lose("the server ended it earlier");
        assert_eq!(lease.lost().await, revoked, "the first reason");
        assert_eq!(lease.valid_for(), Duration::ZERO);
    }

    #[cfg(feature = "member")]
    #[tokio::test]
    async fn a_lease_that_is_read_from_its_server_ends_with_it_and_keeps_the_reported_reason() {
        let left = Arc::new(std::sync::Mutex::new(SECOND * 1000));
        let read = left.clone();
        let lease = Lease::read_from(move || *read.lock().unwrap());
        assert!(lease.is_valid() && lease.valid_for() > SECOND * 900);
        assert_eq!(lease.state(), HoldState::Held);
        // A warning: the holder has the rest of the time to stop.
        lease.revoke(Loss::Unreachable("no majority".into()));
        assert_eq!(lease.lost().await, Loss::Unreachable("no majority".into()));
        assert!(!lease.is_valid() && lease.valid_for() > SECOND * 900);

        // The server ends the hold, and a task that would report it is gone with its runtime.
        let read = left.clone();
        let lease = Lease::read_from(move || *read.lock().unwrap());
        *left.lock().unwrap() = Duration::ZERO;
        assert!(!lease.is_valid() && lease.valid_for().is_zero(), "it is not reported yet");
        assert_eq!(lease.lost().await, Loss::Expired);
    }

    #[tokio::test]
    async fn a_loss_names_the_failure_of_the_last_renewal() {
        let ttl = Duration::from_millis(100);
        let lease = Lease::expiring(now(), ttl);
        let _renewal = keep_renewed(lease.clone(), ttl, || async {
            Err(NotRenewed::TryAgain("127.0.0.1:1 refuses connections".into()))
        });
        // On a machine too slow for one renewal, the process itself was the reason.
        match lease.lost().await {
            Loss::Unreachable(failure) => assert_eq!(failure, "127.0.0.1:1 refuses connections"),
            other => assert_eq!(other, Loss::Expired),
        }
        let renewed = Lease::expiring(now(), SECOND * 100);
        assert_eq!(renewed.state(), HoldState::Held);
        renewed.renewal_failed("no answer");
        assert!(renewed.renewed(now(), SECOND * 100));
        let Term::Until { failure, .. } = renewed.0.borrow().clone() else { panic!() };
        assert_eq!(failure, None, "a renewal has succeeded since");
    }

    #[tokio::test]
    async fn a_hold_is_in_jeopardy_from_a_failed_renewal_until_one_succeeds_or_it_is_lost() {
        let lease = Lease::expiring(now(), SECOND * 100);
        let (failing, jeopardy) = (lease.clone(), HoldState::Jeopardy("no answer".into()));
        let (state, ()) = tokio::join!(lease.state_changed(&HoldState::Held), async {
            tokio::task::yield_now().await;
            failing.renewal_failed("no answer");
        });
        assert_eq!(state, jeopardy);
        assert!(lease.is_valid(), "the hold is still protected");
        let (state, ()) = tokio::join!(lease.state_changed(&jeopardy), async {
            tokio::task::yield_now().await;
            assert!(failing.renewed(now(), SECOND * 100));
        });
        assert_eq!(state, HoldState::Held);
        failing.renewal_failed("no answer");
        let (state, ()) = tokio::join!(lease.state_changed(&jeopardy), async {
            tokio::task::yield_now().await;
            failing.lose("it was deleted");
        });
        assert_eq!(state, HoldState::Lost(Loss::Ended("it was deleted".into())));
        assert_eq!(lease.state(), state);
    }

    #[tokio::test]
    async fn a_blocked_renewal_does_not_keep_lost_from_firing() {
        let ttl = Duration::from_millis(50);
        let lease = Lease::expiring(now(), ttl);
        let _renewal = keep_renewed(lease.clone(), ttl, std::future::pending);
        assert!(matches!(lease.lost().await, Loss::Expired | Loss::Unreachable(_)));
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
            loss = lease.lost() => assert_eq!(loss, Loss::Expired),
        }
    }
}
