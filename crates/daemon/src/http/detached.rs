//! Handlers for detached holds: hold-as and release-as.

use super::locks::{LONGEST_WAIT_MS, Mode, Released, lock_mode};
use super::problem::{ErrorCode, Problem};
use super::request::{Body, Caller, Lock, whole};
use super::sessions::{milliseconds, text};
use crate::client_service::ClientService;
use crate::leases::{
    DetachedHold, DetachedOperation, DetachedReply, Granted, HoldRequest, LeaseTerms, PendingDelivery, Slot,
};
use crate::rights::Action;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::{Extension, Json};
use lockkeeper_cluster::LockMode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A request for a detached hold.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldAs {
    /// The owner. It has at most one detached hold of a lock. The same owner under another token is another owner.
    #[cfg_attr(
        test,
        schema(min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")
    )]
    pub(super) owner: String,
    /// How long the hold lasts unless it is released. Without it, the owner must hold the lock already.
    #[serde(default, deserialize_with = "whole")]
    #[cfg_attr(test, schema(minimum = 1, maximum = 31_622_400_000_u64))]
    pub(super) for_ms: Option<u64>,
    /// The mode.
    #[serde(default)]
    #[cfg_attr(test, schema(inline))]
    pub(super) mode: Mode,
    /// The total number of permits; required for the mode `permit`.
    #[serde(default, deserialize_with = "whole")]
    #[cfg_attr(test, schema(minimum = 1, maximum = 1_048_576))]
    pub(super) permits: Option<u32>,
    /// The timeout of the request. Default: 0.
    #[serde(default, deserialize_with = "whole")]
    #[cfg_attr(test, schema(minimum = 0, maximum = 86_400_000_u64))]
    pub(super) wait_ms: Option<u64>,
    /// The purpose, as shown to other clients.
    #[cfg_attr(test, schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"))]
    pub(super) purpose: Option<String>,
}

/// A detached hold of a lock.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct HeldAs {
    /// The lock's name.
    pub(super) name: String,
    /// The owner.
    pub(super) owner: String,
    /// `exclusive`, `shared` or `permit`.
    #[cfg_attr(test, schema(value_type = String, example = "exclusive"))]
    pub(super) mode: &'static str,
    /// The fencing token, above those of all earlier holders. The same for each request of the owner until the hold ends.
    /// 0 for a permit.
    pub(super) fence: u64,
    /// The time until the deadline.
    pub(super) left_ms: u64,
    /// The deadline in milliseconds of Unix time, by the daemon's clock.
    pub(super) until_ms: u64,
}

impl From<DetachedHold> for HeldAs {
    fn from(found: DetachedHold) -> Self {
        let (left_ms, until_ms, owner) = (milliseconds(found.left), found.until_ms, found.owner);
        let mode = match found.mode {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
            LockMode::Permit { .. } => "permit",
        };
        Self { name: found.hold.lock, owner, mode, fence: found.hold.fence, left_ms, until_ms }
    }
}

/// A request to release a detached hold.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseAs {
    /// The owner.
    #[cfg_attr(
        test,
        schema(min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")
    )]
    pub(super) owner: String,
}

fn owner(owner: String) -> Result<String, Problem> {
    match text("owner", Some(owner))? {
        owner if owner.is_empty() => Err(Problem::unacceptable("`owner` is empty")),
        owner => Ok(owner),
    }
}

/// Holds a lock for a named owner, without a session.
///
/// The hold lasts until it is released or its deadline passes, also if clients and daemons end meanwhile. If the owner has
/// the hold already, the request succeeds at once, with the same fence, and moves the deadline. Closing the connection
/// before the reply gives up a hold that the request has acquired.
#[cfg_attr(test, utoipa::path(post, path = "/v1/locks/{name}/hold-as", tag = "locks", request_body = HoldAs,
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = HeldAs),
        (status = 409, body = Problem, description = "The lock was not free in time, or without `for_ms`: the owner does not hold it"),
        super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals)))]
pub(super) async fn hold_as(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    Body(body): Body<HoldAs>,
) -> impl IntoResponse {
    let trace = AppendHeaders([("traceparent", caller.trace.parent())]);
    (trace, hold_while_allowed(&service, &caller, name, body).await)
}

async fn hold_while_allowed(
    service: &ClientService,
    caller: &Caller,
    name: String,
    body: HoldAs,
) -> Result<Response, Problem> {
    caller.may(Action::Acquire, &name)?;
    let mut credential = caller.credential();
    let Some((terms, request)) = requested(caller, &name, &body)? else {
        return find(service, caller, &name, owner(body.owner)?).await;
    };
    let (found, Granted { receipt, .. }) = tokio::select! {
        held = service.leases.hold_as(&caller.identity, terms, request) => held?,
        // The token may be removed during the wait.
        denied = credential.denied(Action::Acquire, &name) => return Err(denied.into()),
    };
    Ok((Extension(PendingDelivery::new(receipt)), Json(HeldAs::from(found))).into_response())
}

/// The lease and the request; `None` if the hold is to be found only.
fn requested(
    caller: &Caller,
    name: &str,
    body: &HoldAs,
) -> Result<Option<(LeaseTerms, HoldRequest)>, Problem> {
    let mode = lock_mode(body.mode, body.permits)?;
    let wait_ms = body.wait_ms.unwrap_or(0);
    if wait_ms > LONGEST_WAIT_MS {
        return Err(Problem::unacceptable(format!("`wait_ms` is {wait_ms}: at most {LONGEST_WAIT_MS}")));
    }
    let Some(for_ms) = body.for_ms else { return Ok(None) };
    let (owner, ttl) = (owner(body.owner.clone())?, Duration::ZERO);
    let terms = LeaseTerms { ttl, owner, one_hold: true, ends_with_loss: false, detached: true };
    let request = HoldRequest {
        lock: String::from(name),
        slot: Slot::Only,
        mode,
        timeout: Some(Duration::from_millis(wait_ms)),
        purpose: text("purpose", body.purpose.clone())?,
        value: Vec::new(),
        trace: caller.trace.id(),
        lasts: Some(Duration::from_millis(for_ms)),
    };
    Ok(Some((terms, request)))
}

async fn find(
    service: &ClientService,
    caller: &Caller,
    name: &str,
    owner: String,
) -> Result<Response, Problem> {
    let find = DetachedOperation::Find { lasts: None };
    match service.leases.detached(&caller.identity, name, &owner, find).await? {
        DetachedReply { hold: Some(found), .. } => Ok(Json(HeldAs::from(found)).into_response()),
        _ => {
            let message = format!("`{owner}` does not hold `{name}`: to acquire it, send `for_ms`");
            Err(Problem::new(StatusCode::CONFLICT, ErrorCode::Conflict, message))
        }
    }
}

/// Releases the hold of a named owner.
///
/// The request may be repeated: it never releases a hold of another owner.
#[cfg_attr(test, utoipa::path(post, path = "/v1/locks/{name}/release-as", tag = "locks", request_body = ReleaseAs,
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = Released), super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals)))]
pub(super) async fn release_as(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    Body(release): Body<ReleaseAs>,
) -> Result<Json<Released>, Problem> {
    caller.may(Action::Release, &name)?;
    let owner = owner(release.owner)?;
    let reply = service.leases.detached(&caller.identity, &name, &owner, DetachedOperation::Release).await?;
    Ok(Json(Released { released: reply.released }))
}
