//! [`Acquire`]: a request for a lock.

use crate::engine::{Asked, LEAVING};
use crate::error::{Error, Result};
use crate::guard::{Guard, Session};
use crate::local::Outcome;
use crate::trouble::{Reason, Trouble};
use lockkeeper_member::{Claim, Ended, LockName, Wish, check_name};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The most permits of a semaphore.
pub const MOST_PERMITS: u32 = Claim::MOST_PERMITS;

/// A request for a lock, not yet made.
///
/// Every acquiring future may be dropped at any time: the place in the queue goes with it.
#[derive(Clone)]
#[must_use = "a request does nothing until acquired"]
pub struct Acquire {
    session: Arc<Session>,
    /// For how long a free lock may take to be had.
    pub(crate) moment: Duration,
    wish: Wish,
}

impl Acquire {
    pub(crate) fn new(session: Arc<Session>, moment: Duration, claim: Claim, name: String) -> Self {
        let wish = Wish { claim, ..Wish::of(LockName::new(name)) };
        Self { session, moment, wish }
    }

    /// Tells others who asks.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.wish.tag.owner = owner.into();
        self
    }

    /// Tells others what for.
    pub fn purpose(mut self, purpose: impl Into<String>) -> Self {
        self.wish.tag.purpose = purpose.into();
        self
    }

    /// Takes the lock back by force after so long.
    pub fn longest_hold(mut self, longest: Duration) -> Self {
        self.wish.longest_hold_ns = Some(nanoseconds(longest));
        self
    }

    /// Lets an [owner](crate::Member::new_owner) that holds the lock have it once more; it is free when all of its guards
    /// are gone.
    pub fn reentrant(mut self) -> Self {
        self.wish.reentrant = true;
        self
    }

    /// Waits for the lock.
    pub async fn acquire(self) -> Result<Guard> {
        match self.ask(None).await? {
            Ok(guard) => Ok(guard),
            Err(how) => Err(Error::Unavailable(format!("the wait for the lock ended: {how:?}"))),
        }
    }

    /// Takes the lock if it is free. If somebody at this member is in the way, that is known at once; otherwise it takes as long as a question
    /// to the other members and their answer.
    pub async fn try_acquire(self) -> Result<Option<Guard>> {
        match self.clone().ask(Some(Duration::ZERO)).await? {
            Ok(guard) => return Ok(Some(guard)),
            Err(Ended::Busy) => return Ok(None),
            Err(_) => {}
        }
        let moment = self.moment;
        Ok(self.ask(Some(moment)).await?.ok())
    }

    /// Waits for the lock until a deadline; `None` if it passed.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<Guard>> {
        self.acquire_within(deadline.saturating_duration_since(Instant::now())).await
    }

    /// Waits for the lock for at most so long; `None` if that was not enough.
    pub async fn acquire_within(self, patience: Duration) -> Result<Option<Guard>> {
        if patience.is_zero() {
            return self.try_acquire().await;
        }
        Ok(self.ask(Some(patience)).await?.ok())
    }

    async fn ask(mut self, patience: Option<Duration>) -> Result<Result<Guard, Ended>> {
        check(&self.wish)?;
        // Whoever enters again and again without ever waiting lets the runtime's other tasks have their turns.
        tokio::task::coop::consume_budget().await;
        if patience.is_some_and(|patience| patience.is_zero()) {
            // Without a lease nothing is granted, and nothing that a try could wait for is near.
            self.check_lease(|trouble| !trouble.has_lease)?;
        }
        let began = Instant::now();
        let mut left = patience;
        loop {
            self.wish.patience_ns = left.map(nanoseconds);
            match self.ask_once(left).await? {
                Asking::Done(Err(Ended::TimedOut)) => {
                    // Others may hold the lock or not: this member does not know.
                    self.check_lease(|_| true)?;
                    return Ok(Err(Ended::TimedOut));
                }
                Asking::Done(outcome) => return Ok(outcome),
                Asking::Again => left = patience.map(|patience| patience.saturating_sub(began.elapsed())),
            }
        }
    }

    async fn ask_once(&self, patience: Option<Duration>) -> Result<Asking> {
        let span = tracing::debug_span!("acquire", lock = %self.wish.lock, claim = %self.wish.claim);
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
            // The member keeps the time; but if it loses its place in the cluster meanwhile, it asks anew.
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

    /// Refuses if the member grants no locks, for such a reason.
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

/// What came of one request to the member.
enum Asking {
    Done(Result<Guard, Ended>),
    /// Its session ended before the answer: it is to be made again.
    Again,
}

fn refuse(how: Ended, name: &str) -> Result<Asking> {
    match how {
        Ended::Refused => Err(Error::BadOption(format!("`{name}` cannot be asked for in this way"))),
        Ended::Full { limit } => Err(Error::Unavailable(format!(
            "`{name}` is refused: the clients of this member use {limit} different locks, as many as it serves at a time; \
             release some, or ask another member"
        ))),
        Ended::Leaving => Err(Error::Stopped(String::from(LEAVING))),
        how => Ok(Asking::Done(Err(how))),
    }
}

/// Waits, and gives the place up if it is dropped first.
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
        // Also if the grant is on its way to us: nobody will look at it.
        if self.hears.is_some() {
            self.session.engine.leave(self.session.client, self.number);
        }
    }
}

fn check(wish: &Wish) -> Result<()> {
    check_name(&wish.lock.name).map_err(|why| Error::BadName(why.to_string()))?;
    wish.tag.check().map_err(|why| Error::BadOption(format!("bad owner or purpose: {why}")))?;
    match wish.claim {
        Claim::Permit(permits) if !wish.claim.is_possible() => {
            Err(Error::BadOption(format!("a semaphore has 1 to {MOST_PERMITS} permits, not {permits}")))
        }
        _ => Ok(()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
