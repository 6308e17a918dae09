//! Holds of a named owner, which the daemons keep without a session: `hold_as`, and `at_least` with a process.
//!
//! They belong to leases of the daemons. A hold of `at_least` has the holder's id as its owner, and a time to live: this
//! process keeps it alive, and the hold ends when both the time to live and the requested time have passed.
//!
//! ```text
//! process   hold-as(owner = id, ttl) ─ granted ─ keep-alive … keep-alive ─ leave           or it dies
//! daemons   recorded ───────────────────────────────────────────────────────┴── deadline: free
//! ```

use super::client::Client;
use super::link::QueryReply;
use super::{ClusterEngine, no_connection, rejection, unavailable, unexpected};
use crate::engine::{Acquired, BoxFuture, Detach, DetachedState, Hold, Request, WhenBusy};
use crate::lease::{self, Lease};
use crate::{Error, Fence, LockName, Loss, Result};
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, DetachedCommand, DetachedLine, DetachedRequest,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The longest time between two keep-alives, so that a forced release is noticed soon.
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// Timeout of the messages with which a hold ends that its holder has dropped.
const END_TIMEOUT: Duration = Duration::from_secs(10);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The answer to a command about a detached hold.
struct Answer {
    hold: Option<DetachedLine>,
    /// Whether the command has released the hold. A command that was repeated, and finds no hold, may have released it
    /// before.
    released: bool,
    loss: Loss,
}

fn answer(reply: DaemonReply, repeated: bool) -> Result<Answer> {
    match reply {
        DaemonReply::Detached { hold, released, lost, revoked_by } => {
            let loss = match (revoked_by, lost) {
                (Some(by), _) => Loss::Revoked { by: Some(by) },
                (None, Some(why)) => Loss::Ended(why),
                (None, None) => Loss::from("the daemons do not know the hold any more"),
            };
            let released = released || repeated && hold.is_none();
            Ok(Answer { hold, released, loss })
        }
        other => Err(unexpected(&other)),
    }
}

/// A detached hold on the side of its owner.
#[derive(Clone)]
struct OwnedHold {
    client: Arc<Client>,
    name: LockName,
    owner: String,
}

impl OwnedHold {
    fn query(&self, command: DetachedCommand) -> DaemonQuery {
        let (lock, owner) = (self.name.as_str().into(), self.owner.clone());
        DaemonQuery::Detached { lock, owner, command }
    }

    async fn command(&self, command: DetachedCommand) -> Result<Answer> {
        let answered = self.client.query_once(self.query(command)).await;
        let QueryReply { reply, repeated } = answered.map_err(no_connection)?;
        match reply {
            DaemonReply::Refused(why) => Err(rejection(why)),
            DaemonReply::Invalid(why) => Err(Error::BadOption(why)),
            reply => answer(reply, repeated),
        }
    }

    /// Sends a command in the background, if the runtime still runs.
    fn command_later(self, runtime: &Handle, command: DetachedCommand) {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(END_TIMEOUT, self.command(command)).await;
        });
    }
}

/// A grant to this process; given up when dropped.
struct OwnedGuard {
    hold: OwnedHold,
    lease: Lease,
    /// Whether a process works under the hold.
    has_process: bool,
    /// Whether the hold outlives this guard: it is detached.
    detached: bool,
    ended: bool,
    renewal: Option<tokio::task::AbortHandle>,
    runtime: Handle,
}

impl OwnedGuard {
    /// Begins to keep the hold alive.
    async fn begin(&mut self, ttl: Duration) -> Result<()> {
        let sent = lease::now();
        let Answer { hold, loss, .. } = self.hold.command(DetachedCommand::KeepAlive).await?;
        let Some(line) = hold else {
            return Err(Error::Lost { name: self.hold.name.to_string(), reason: loss });
        };
        self.lease = Lease::expiring(sent, Duration::from_nanos(line.valid_for_ns));
        let task = tokio::spawn(keep_alive(self.hold.clone(), self.lease.clone(), ttl));
        self.renewal = Some(task.abort_handle());
        Ok(())
    }

    fn stop_renewal(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }

    async fn end(mut self, command: DetachedCommand) -> Result<()> {
        self.stop_renewal();
        let name = self.hold.name.to_string();
        if !self.lease.is_valid() {
            let loss = self.lease.lost().await;
            if let Loss::Revoked { .. } = loss {
                // The next client is granted the lock as soon as the daemon knows that this one has stopped: a process
                // that ends now would not send it.
                let _ = tokio::time::timeout(self.lease.valid_for(), self.hold.command(command)).await;
                self.ended = true;
            }
            return Err(Error::Lost { name, reason: loss });
        }
        // If this future is dropped meanwhile, the command is sent by `Drop`.
        let Answer { released, loss, .. } = self.hold.command(command).await?;
        self.ended = true;
        if released { Ok(()) } else { Err(Error::Lost { name, reason: loss }) }
    }
}

impl Drop for OwnedGuard {
    fn drop(&mut self) {
        self.stop_renewal();
        let command = match (self.has_process, self.detached) {
            _ if self.ended => return,
            // The hold of an owner stays.
            (false, true) => return,
            // Another process of the owner may have found the hold meanwhile.
            (false, false) => DetachedCommand::Withdraw,
            (true, true) => DetachedCommand::Leave,
            (true, false) => DetachedCommand::Discard,
        };
        self.hold.clone().command_later(&self.runtime, command);
    }
}

impl Hold for OwnedGuard {
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            match (self.has_process, self.detached) {
                (true, true) => self.end(DetachedCommand::Leave).await,
                (true, false) => self.end(DetachedCommand::Discard).await,
                (false, true) => Ok(()),
                (false, false) => self.end(DetachedCommand::Withdraw).await,
            }
        })
    }

    /// The hold is stored already, with the request.
    fn detach(&mut self, _detach: Detach) -> BoxFuture<'_, Result<bool>> {
        self.detached = true;
        Box::pin(async { Ok(true) })
    }

    fn discard(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.detached = false;
        self.release()
    }
}

/// Keeps the hold of a process alive until it is lost.
async fn keep_alive(hold: OwnedHold, lease: Lease, ttl: Duration) {
    let period = (ttl / 3).min(LONGEST_PERIOD);
    let mut pause = period;
    loop {
        tokio::select! {
            _ = lease.lost() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let sent = lease::now();
        let failure = match tokio::time::timeout(ttl / 3, hold.command(DetachedCommand::KeepAlive)).await {
            Ok(Ok(Answer { hold: Some(line), .. })) => {
                if !lease.renewed(sent, Duration::from_nanos(line.valid_for_ns)) {
                    return;
                }
                None
            }
            // The daemons keep a revoked lock for as long as they have promised it.
            Ok(Ok(Answer { loss: loss @ Loss::Revoked { .. }, .. })) => return lease.revoke(loss),
            Ok(Ok(Answer { loss, .. })) => return lease.lose(loss),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {:?}", ttl / 3)),
        };
        pause = if failure.is_some() { period / 8 } else { period };
        if let Some(failure) = failure {
            lease.renewal_failed(failure);
        }
    }
}

/// The owner and the time of a request for a detached hold, and the time to live of the process that works under it.
pub(super) fn detached_request(request: &Request) -> Option<(Detach, Duration)> {
    match (&request.hold_as, request.at_least) {
        (Some(detach), _) => Some((detach.clone(), Duration::ZERO)),
        (None, Some(lasts)) => Some((Detach { owner: request.tag.holder.clone(), lasts }, request.ttl)),
        (None, None) => None,
    }
}

impl ClusterEngine {
    /// Acquires a detached hold. It is recorded in the cluster when this returns.
    pub(super) async fn acquire_detached(
        &self,
        request: Request,
        detach: Detach,
        ttl: Duration,
        when_busy: WhenBusy,
    ) -> Result<Option<Acquired>> {
        let ttl = if ttl.is_zero() { ttl } else { self.client.ttl_in_force(ttl) };
        let tag = super::lock_request(&request)?.tag;
        let query = DaemonQuery::HoldAs(DetachedRequest {
            lock: request.name.as_str().into(),
            mode: request.mode,
            owner: detach.owner.clone(),
            purpose: tag.purpose,
            lasts_ns: nanoseconds(detach.lasts),
            ttl_ns: nanoseconds(ttl),
            timeout_ns: (when_busy == WhenBusy::Try).then_some(0),
        });
        let reply = self.client.query_cancellable(query).await;
        let line = match reply.map_err(no_connection)? {
            DaemonReply::Refused(why) => return Err(rejection(why)),
            DaemonReply::Invalid(why) => return Err(Error::BadOption(why)),
            reply => answer(reply, false)?.hold,
        };
        let Some(line) = line else {
            return match when_busy {
                WhenBusy::Try => Ok(None),
                WhenBusy::Wait => Err(unavailable("the daemon ended the wait for the lock")),
            };
        };
        let hold = OwnedHold { client: self.client.clone(), name: request.name, owner: detach.owner };
        let (lease, has_process) = (Lease::forever(), !ttl.is_zero());
        // From here on, dropping `guard` gives the hold up.
        let mut guard = OwnedGuard {
            hold,
            lease,
            has_process,
            detached: false,
            ended: false,
            renewal: None,
            runtime: Handle::current(),
        };
        if has_process {
            guard.begin(ttl).await?;
        }
        let fence = line.fence.and_then(Fence::new);
        let (lease, ttl) = (guard.lease.clone(), has_process.then_some(ttl));
        Ok(Some(Acquired { fence, lease, ttl, hold: Box::new(guard) }))
    }

    pub(super) async fn find_detached(
        &self,
        name: &LockName,
        owner: &str,
        lasts: Option<Duration>,
    ) -> Result<Option<DetachedState>> {
        let find = DetachedCommand::Find { lasts_ns: lasts.map(nanoseconds) };
        let found = self.owned(name, owner).command(find).await?.hold;
        Ok(found.map(|line| DetachedState {
            mode: line.mode,
            fence: line.fence.and_then(Fence::new),
            left: Duration::from_nanos(line.left_ns),
        }))
    }

    /// Releases the hold of an owner. Returns whether there was one. If the reply was lost and the command repeated, a
    /// hold that is gone counts as released.
    pub(super) async fn release_owned(&self, name: &LockName, owner: &str) -> Result<bool> {
        Ok(self.owned(name, owner).command(DetachedCommand::Release).await?.released)
    }

    fn owned(&self, name: &LockName, owner: &str) -> OwnedHold {
        OwnedHold { client: self.client.clone(), name: name.clone(), owner: owner.into() }
    }
}
