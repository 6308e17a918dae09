//! [`Acquire`]: a request for a lock.

use crate::engine::{Asked, LEAVING};
use crate::error::{Error, Result};
use crate::guard::{Guard, Session};
use crate::local::Outcome;
use crate::trouble::{Reason, Trouble};
use lockkeeper_member::{Ended, LockMode, LockName, LockRequest, check_name};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of permits of a semaphore.
pub const MOST_PERMITS: u32 = LockMode::MOST_PERMITS;

/// A request for a lock that has not been sent yet.
///
/// All futures that acquire are cancel-safe: dropping one gives up its place in the queue.
#[derive(Clone)]
#[must_use = "a request does nothing until acquired"]
pub struct Acquire {
    session: Arc<Session>,
    /// Time that the acquisition of a free lock takes at most.
    pub(crate) moment: Duration,
    wish: LockRequest,
}

impl Acquire {
    pub(crate) fn new(session: Arc<Session>, moment: Duration, mode: LockMode, name: String) -> Self {
        let wish = LockRequest { mode, ..LockRequest::exclusive(LockName::new(name)) };
        Self { session, moment, wish }
    }

    /// Sets the owner that lists show to operators and other clients.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.wish.tag.owner = owner.into();
        self
    }

    /// Sets the purpose that lists show to operators and other clients.
    pub fn purpose(mut self, purpose: impl Into<String>) -> Self {
        self.wish.tag.purpose = purpose.into();
        self
    }

    /// Sets the maximum duration of the hold. The member revokes the hold after that time.
    pub fn longest_hold(mut self, longest: Duration) -> Self {
        self.wish.longest_hold_ns = Some(nanoseconds(longest));
        self
    }

    /// Makes the request reentrant: an [owner](crate::Member::new_owner) that holds the lock is granted it once more.
    /// The lock is free when all of these guards are gone.
    pub fn reentrant(mut self) -> Self {
        self.wish.reentrant = true;
        self
    }

    /// Waits for the lock without a timeout.
    pub async fn acquire(self) -> Result<Guard> {
        match self.ask(None).await? {
            Ok(guard) => Ok(guard),
            Err(how) => Err(Error::Unavailable(format!("the wait for the lock ended: {how:?}"))),
        }
    }

    /// Acquires the lock only if it is free. If a client of this member holds it or waits for it, the result is known
    /// at once; otherwise it takes one round trip to the other members.
    pub async fn try_acquire(self) -> Result<Option<Guard>> {
        match self.clone().ask(Some(Duration::ZERO)).await? {
            Ok(guard) => return Ok(Some(guard)),
            Err(Ended::Busy) => return Ok(None),
            Err(_) => {}
        }
        // The lock may be free at another member: ask with the time of a round trip.
        let moment = self.moment;
        Ok(self.ask(Some(moment)).await?.ok())
    }

    /// Waits for the lock until a deadline. Returns `None` if the deadline passes.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<Guard>> {
        self.acquire_within(deadline.saturating_duration_since(Instant::now())).await
    }

    /// Waits for the lock for at most this time. Returns `None` on a timeout.
    pub async fn acquire_within(self, patience: Duration) -> Result<Option<Guard>> {
        if patience.is_zero() {
            return self.try_acquire().await;
        }
        Ok(self.ask(Some(patience)).await?.ok())
    }

    async fn ask(mut self, patience: Option<Duration>) -> Result<Result<Guard, Ended>> {
        check(&self.wish)?;
        // A task that acquires in a loop without ever waiting must still yield to the other tasks of the runtime.
        tokio::task::coop::consume_budget().await;
        if patience.is_some_and(|patience| patience.is_zero()) {
            // Without a lease the member grants nothing, and a non-blocking request does not wait for one.
            self.check_lease(|trouble| !trouble.has_lease)?;
        }
        let began = Instant::now();
        let mut left = patience;
        loop {
            self.wish.timeout_ns = left.map(nanoseconds);
            match self.ask_once(left).await? {
                Asking::Done(Err(Ended::TimedOut)) => {
                    // Without a lease, the member does not know whether another client holds the lock: report that
                    // instead of a timeout.
                    self.check_lease(|_| true)?;
                    return Ok(Err(Ended::TimedOut));
                }
                Asking::Done(outcome) => return Ok(outcome),
                Asking::Again => left = patience.map(|patience| patience.saturating_sub(began.elapsed())),
            }
        }
    }

    async fn ask_once(&self, patience: Option<Duration>) -> Result<Asking> {
        let span = tracing::debug_span!("acquire", lock = %self.wish.lock, mode = %self.wish.mode);
        let name = self.wish.lock.name.clone();
        let (session, moment) = (self.session.clone(), self.moment);
        let (number, hears) = match session.engine.acquire(session.client, self.wish.clone(), span)? {
            Asked::Granted(number, fence) => {
                return Ok(Asking::Done(Ok(Guard::new(session, number, fence, name))));
            }
            Asked::Ended(how) => return refuse(how, &name),
            Asked::Later(number, hears) => (number, hears),
        };
        let outcome = Waiter { session: &session, number, hears: Some(hears) }.outcome();
        let outcome = match patience {
            None => outcome.await,
            // The member enforces the timeout. This one is a fallback for a member that loses its place in the cluster
            // meanwhile and requests again, with a new timeout.
            Some(patience) => tokio::time::timeout(patience.saturating_add(moment), outcome)
                .await
                .unwrap_or(Ok(Outcome::Ended(Ended::TimedOut))),
        };
        match outcome? {
            Outcome::Granted(fence) => Ok(Asking::Done(Ok(Guard::new(session, number, fence, name)))),
            Outcome::Ended(how) => refuse(how, &name),
            Outcome::AskAgain => Ok(Asking::Again),
            Outcome::Stopped(why) => Err(Error::Stopped(why)),
        }
    }

    /// Returns an error if the member grants no locks and `counts` accepts the reason.
    fn check_lease(&self, counts: impl FnOnce(&Trouble) -> bool) -> Result<()> {
        match self.session.engine.trouble() {
            Some(trouble) if counts(&trouble) => Err(match &trouble.reason {
                Reason::Stopped(why) => Error::Stopped(why.clone()),
                _ => Error::NoLease(trouble.to_string()),
            }),
            _ => Ok(()),
        }
    }
}

/// The result of one request to the member.
enum Asking {
    Done(Result<Guard, Ended>),
    /// The session ended before the answer. The request must be repeated.
    Again,
}

fn refuse(how: Ended, name: &str) -> Result<Asking> {
    match how {
        Ended::Refused => Err(Error::BadOption(format!("`{name}` cannot be requested in this mode"))),
        Ended::Full { limit } => Err(Error::Unavailable(format!(
            "`{name}` is refused: the clients of this member use {limit} different locks, as many as it serves at a time; \
             release some, or ask another member"
        ))),
        Ended::Leaving => Err(Error::Stopped(String::from(LEAVING))),
        how => Ok(Asking::Done(Err(how))),
    }
}

/// A waiting request. Dropping it cancels the request.
struct Waiter<'a> {
    session: &'a Session,
    number: u64,
    hears: Option<oneshot::Receiver<Outcome>>,
}

impl Waiter<'_> {
    async fn outcome(mut self) -> Result<Outcome> {
        let Some(hears) = &mut self.hears else { return Ok(Outcome::Ended(Ended::Cancelled)) };
        let outcome = hears.await;
        self.hears = None;
        outcome.map_err(|_| Error::Stopped(String::from("its session was closed")))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // The grant may already be on its way; no caller will receive it, so it is released as well.
        if self.hears.is_some() {
            self.session.engine.leave(self.session.client, self.number);
        }
    }
}

fn check(wish: &LockRequest) -> Result<()> {
    check_name(&wish.lock.name).map_err(|why| Error::BadName(why.to_string()))?;
    wish.tag.check().map_err(|why| Error::BadOption(format!("bad owner or purpose: {why}")))?;
    match wish.mode {
        LockMode::Permit { of: permits } if !wish.mode.is_possible() => {
            Err(Error::BadOption(format!("a semaphore has 1 to {MOST_PERMITS} permits, not {permits}")))
        }
        _ => Ok(()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
