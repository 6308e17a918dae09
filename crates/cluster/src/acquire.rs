//! [`Acquire`]: a request for a lock.

use crate::engine::{Immediate, LEAVING};
use crate::error::{Error, OptionError, Result};
use crate::hold_guard::{HoldGuard, LocalSession};
use crate::local::RequestOutcome;
use crate::not_serving::{NotServing, NotServingReason};
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
    session: Arc<LocalSession>,
    /// Time that the acquisition of a free lock takes at most.
    pub(crate) round_trip: Duration,
    request: LockRequest,
}

impl Acquire {
    pub(crate) fn new(
        session: Arc<LocalSession>,
        round_trip: Duration,
        mode: LockMode,
        name: String,
    ) -> Self {
        let request = LockRequest { mode, ..LockRequest::exclusive(LockName::new(name)) };
        Self { session, round_trip, request }
    }

    /// Sets the owner that lists show to operators and other clients.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.request.tag.owner = owner.into();
        self
    }

    /// Sets the purpose that lists show to operators and other clients.
    pub fn purpose(mut self, purpose: impl Into<String>) -> Self {
        self.request.tag.purpose = purpose.into();
        self
    }

    /// Sets the maximum duration of the hold. The member revokes the hold after that time.
    pub fn longest_hold(mut self, longest: Duration) -> Self {
        self.request.longest_hold_ns = Some(nanoseconds(longest));
        self
    }

    /// Makes the request reentrant: an [owner](crate::Member::new_owner) that holds the lock is granted it once more.
    /// The lock is free when all of these guards are gone.
    pub fn reentrant(mut self) -> Self {
        self.request.reentrant = true;
        self
    }

    /// Waits for the lock without a timeout.
    pub async fn acquire(self) -> Result<HoldGuard> {
        match self.request(None).await? {
            Ok(guard) => Ok(guard),
            Err(how) => Err(Error::Unavailable(format!("the wait for the lock ended: {how:?}"))),
        }
    }

    /// Acquires the lock only if it is free. If a client of this member holds it or waits for it, the result is known
    /// at once; otherwise it takes one round trip to the other members.
    pub async fn try_acquire(self) -> Result<Option<HoldGuard>> {
        match self.clone().request(Some(Duration::ZERO)).await? {
            Ok(guard) => return Ok(Some(guard)),
            Err(Ended::Busy) => return Ok(None),
            Err(_) => {}
        }
        // The lock may be free at another member: wait for one round trip.
        let round_trip = self.round_trip;
        Ok(self.request(Some(round_trip)).await?.ok())
    }

    /// Waits for the lock until a deadline. Returns `None` if the deadline passes.
    pub async fn acquire_by(self, deadline: Instant) -> Result<Option<HoldGuard>> {
        self.acquire_within(deadline.saturating_duration_since(Instant::now())).await
    }

    /// Waits for the lock for at most this time. Returns `None` on a timeout.
    pub async fn acquire_within(self, timeout: Duration) -> Result<Option<HoldGuard>> {
        if timeout.is_zero() {
            return self.try_acquire().await;
        }
        Ok(self.request(Some(timeout)).await?.ok())
    }

    async fn request(mut self, timeout: Option<Duration>) -> Result<Result<HoldGuard, Ended>> {
        check(&self.request)?;
        // A task that acquires in a loop without ever waiting must still yield to the other tasks of the runtime.
        tokio::task::coop::consume_budget().await;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            // Without a lease the member grants nothing, and a non-blocking request does not wait for one.
            self.check_lease(|not_serving| !not_serving.has_lease)?;
        }
        let began = Instant::now();
        let mut left = timeout;
        loop {
            self.request.timeout_ns = left.map(nanoseconds);
            match self.request_once(left).await? {
                Attempt::Done(Err(Ended::TimedOut)) => {
                    // Without a lease, the member does not know whether another client holds the lock: report that
                    // instead of a timeout.
                    self.check_lease(|_| true)?;
                    return Ok(Err(Ended::TimedOut));
                }
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::Again => left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed())),
            }
        }
    }

    async fn request_once(&self, timeout: Option<Duration>) -> Result<Attempt> {
        let span = tracing::debug_span!("acquire", lock = %self.request.lock, mode = %self.request.mode);
        let name = self.request.lock.name.clone();
        let (session, round_trip) = (self.session.clone(), self.round_trip);
        let (number, receiver) = match session.engine.acquire(session.client, self.request.clone(), span)? {
            Immediate::Granted(number, fence) => {
                return Ok(Attempt::Done(Ok(HoldGuard::new(session, number, fence, name))));
            }
            Immediate::Ended(how) => return refuse(how, &name),
            Immediate::Later(number, receiver) => (number, receiver),
        };
        let outcome = PendingRequest { session: &session, number, receiver: Some(receiver) }.outcome();
        let outcome = match timeout {
            None => outcome.await,
            // The member enforces the timeout. This one is a fallback for a member that loses its place in the cluster
            // meanwhile and requests again, with a new timeout.
            Some(timeout) => tokio::time::timeout(timeout.saturating_add(round_trip), outcome)
                .await
                .unwrap_or(Ok(RequestOutcome::Ended(Ended::TimedOut))),
        };
        match outcome? {
            RequestOutcome::Granted(fence) => {
                Ok(Attempt::Done(Ok(HoldGuard::new(session, number, fence, name))))
            }
            RequestOutcome::Ended(how) => refuse(how, &name),
            RequestOutcome::Repeat => Ok(Attempt::Again),
            RequestOutcome::Stopped(why) => Err(Error::Stopped(why)),
        }
    }

    /// Returns an error if the member grants no locks and `accepted` accepts the reason.
    fn check_lease(&self, accepted: impl FnOnce(&NotServing) -> bool) -> Result<()> {
        match self.session.engine.not_serving() {
            Some(not_serving) if accepted(&not_serving) => Err(match &not_serving.reason {
                NotServingReason::Stopped(why) => Error::Stopped(why.clone()),
                _ => Error::NoLease(not_serving.to_string()),
            }),
            _ => Ok(()),
        }
    }
}

/// The result of one request to the member.
enum Attempt {
    Done(Result<HoldGuard, Ended>),
    /// The session ended before the answer. The request must be repeated.
    Again,
}

fn refuse(how: Ended, name: &str) -> Result<Attempt> {
    match how {
        Ended::Refused => Err(OptionError::Mode { name: name.to_string() }.into()),
        Ended::Full { limit } => Err(Error::LimitExceeded(format!(
            "`{name}` is refused: the clients of this member use {limit} different locks, as many as it serves at a time; \
             release some, or ask another member"
        ))),
        Ended::Leaving => Err(Error::Stopped(String::from(LEAVING))),
        how => Ok(Attempt::Done(Err(how))),
    }
}

/// A waiting request. Dropping it cancels the request.
struct PendingRequest<'a> {
    session: &'a LocalSession,
    number: u64,
    receiver: Option<oneshot::Receiver<RequestOutcome>>,
}

impl PendingRequest<'_> {
    async fn outcome(mut self) -> Result<RequestOutcome> {
        let Some(receiver) = &mut self.receiver else { return Ok(RequestOutcome::Ended(Ended::Cancelled)) };
        let outcome = receiver.await;
        self.receiver = None;
        outcome.map_err(|_| Error::Stopped(String::from("its session was closed")))
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // The grant may already be on its way; no caller will receive it, so it is released as well.
        if self.receiver.is_some() {
            self.session.engine.release(self.session.client, self.number);
        }
    }
}

fn check(request: &LockRequest) -> Result<()> {
    check_name(&request.lock.name).map_err(Error::BadName)?;
    request.tag.check().map_err(OptionError::Tag)?;
    match request.mode {
        LockMode::Permit { of: permits } if !request.mode.is_possible() => {
            Err(OptionError::Permits { permits }.into())
        }
        _ => Ok(()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
