//! Detached holds over the native protocol.

use super::NATIVE;
use super::clients::Client;
use crate::client_service::ClientService;
use crate::leases::{
    CallerIdentity, DetachedHold, DetachedOperation, DetachedReply, HoldRequest, LeaseError, LeaseTerms,
    Protocol, Slot,
};
use crate::rights::Action;
use crate::trace::Trace;
use lockkeeper_member::{Tag, check_name};
use lockkeeper_session::protocol::{DaemonReply, DetachedCommand, DetachedLine, DetachedRequest, FromDaemon};
use std::sync::Arc;
use std::time::Duration;

/// The right that a command needs.
pub(super) fn action(command: &DetachedCommand) -> Action {
    match command {
        DetachedCommand::Find { .. } => Action::Acquire,
        _ => Action::Release,
    }
}

fn identity(service: &ClientService, client: &Client) -> CallerIdentity {
    service.identity(Protocol::Native, &client.principal(), client.account())
}

/// Acquires a detached hold and replies. Dropping the future before the reply gives up a hold that it has acquired.
pub(super) async fn hold_as(
    service: Arc<ClientService>,
    client: Arc<Client>,
    number: u64,
    request: DetachedRequest,
) {
    let mut credential = service.credential(&client.principal());
    let lock = request.lock.clone();
    let held = tokio::select! {
        held = acquire(&service, &client, request) => held,
        // The token may be removed during the wait.
        denied = credential.denied(Action::Acquire, &lock) => Err(Refused::Other(denied.to_string())),
    };
    let reply = match held {
        Ok((hold, granted)) => {
            granted.receipt.delivered();
            let reply = DetachedReply { hold: Some(hold), ..DetachedReply::default() };
            line(reply)
        }
        Err(Refused::Busy) => line(DetachedReply::default()),
        Err(Refused::Invalid(why)) => DaemonReply::Invalid(why),
        Err(Refused::Other(why)) => DaemonReply::Refused(why),
    };
    client.send(FromDaemon::Reply(number, reply));
}

/// The reason why a request is not granted.
enum Refused {
    Busy,
    Invalid(String),
    Other(String),
}

impl From<LeaseError> for Refused {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Busy(_) => Self::Busy,
            LeaseError::Invalid(why) => Self::Invalid(why),
            error => Self::Other(error.to_string()),
        }
    }
}

async fn acquire(
    service: &ClientService,
    client: &Client,
    request: DetachedRequest,
) -> Result<(DetachedHold, crate::leases::Granted), Refused> {
    let DetachedRequest { lock, mode, owner, purpose, lasts_ns, ttl_ns, timeout_ns } = request;
    check_name(&lock).map_err(|why| Refused::Invalid(format!("bad lock name: {why}")))?;
    check_name(&owner).map_err(|why| Refused::Invalid(format!("bad owner: {why}")))?;
    let tag = Tag { owner: owner.clone(), purpose };
    tag.check().map_err(|why| Refused::Invalid(format!("bad owner or purpose: {why}")))?;
    let checked = service.context.check(NATIVE, &client.principal(), Action::Acquire, &lock);
    checked.map_err(|denied| Refused::Other(denied.to_string()))?;
    service.check_rate(client.account())?;
    let trace = Trace::of_tag(&tag.owner, &tag.purpose).id();
    let ttl = Duration::from_nanos(ttl_ns);
    let terms = LeaseTerms { ttl, owner, one_hold: true, ends_with_loss: false, detached: true };
    let request = HoldRequest {
        lock,
        slot: Slot::Only,
        mode,
        timeout: timeout_ns.map(Duration::from_nanos),
        purpose: tag.purpose,
        value: Vec::new(),
        trace,
        lasts: Some(Duration::from_nanos(lasts_ns)),
    };
    Ok(service.leases.hold_as(&identity(service, client), terms, request).await?)
}

/// Performs a command on the detached hold of an owner.
pub(super) async fn command(
    service: &ClientService,
    client: &Client,
    lock: &str,
    owner: &str,
    command: DetachedCommand,
) -> Result<DaemonReply, LeaseError> {
    let op = match command {
        DetachedCommand::Find { lasts_ns } => {
            DetachedOperation::Find { lasts: lasts_ns.map(Duration::from_nanos) }
        }
        DetachedCommand::Release => DetachedOperation::Release,
        DetachedCommand::KeepAlive => DetachedOperation::KeepAlive,
        DetachedCommand::Leave => DetachedOperation::Leave,
        DetachedCommand::Discard => DetachedOperation::Discard,
        DetachedCommand::Withdraw => DetachedOperation::Withdraw,
    };
    let reply = service.leases.detached(&identity(service, client), lock, owner, op).await?;
    Ok(line(reply))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn line(reply: DetachedReply) -> DaemonReply {
    let DetachedReply { hold, released, lost } = reply;
    let hold = hold.map(|found| DetachedLine {
        mode: found.mode,
        fence: Some(found.hold.fence).filter(|fence| *fence > 0),
        left_ns: nanoseconds(found.left),
        valid_for_ns: nanoseconds(found.hold.valid_for),
    });
    let revoked_by = lost.as_deref().and_then(lockkeeper_cluster::revoker_in).map(String::from);
    DaemonReply::Detached { hold, released, lost, revoked_by }
}
