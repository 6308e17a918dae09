//! Handlers for locks: acquire, release, force-release, list and why.

use super::problem::Problem;
use super::request::{Body, Caller, Lock, QueryParameters, session, whole};
use super::sessions::{milliseconds, session_state, terms, text};
use super::show::{LockState, Why};
use crate::client_service::ClientService;
use crate::leases::{
    Granted, Hold, HoldRef, HoldRequest, LeaseError, LeaseId, LeaseOperation, OperationReply,
    PendingDelivery, Slot,
};
use crate::listing;
use crate::rights::Action;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::{Extension, Json};
use lockkeeper_cluster::{Acquisition, LockMode, MOST_PERMITS, SessionId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The maximum wait: one day.
pub(super) const LONGEST_WAIT_MS: u64 = 24 * 60 * 60 * 1000;

/// The mode of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Exclusive: no other holder at the same time.
    #[default]
    Exclusive,
    /// Shared with other holders in shared mode.
    Shared,
    /// One of a number of permits.
    Permit,
}

/// A request for a lock.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Acquire {
    /// The session that will hold the lock. Without one, a session is created that ends with the hold.
    pub(super) session: Option<String>,
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
    /// Without a session: the hold ends this long after the last keep-alive.
    #[serde(default, deserialize_with = "whole")]
    #[cfg_attr(test, schema(minimum = 100, maximum = 86_400_000_u64, default = 30_000))]
    pub(super) ttl_ms: Option<u64>,
    /// Without a session: the owner, as shown to other clients.
    #[cfg_attr(test, schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"))]
    pub(super) owner: Option<String>,
    /// The purpose, as shown to other clients.
    #[cfg_attr(test, schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"))]
    pub(super) purpose: Option<String>,
    /// The client's own id of this request. A repeated request with the same id returns the same hold.
    #[cfg_attr(
        test,
        schema(min_length = 1, max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")
    )]
    pub(super) request: Option<String>,
}

/// A hold of a lock.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Held {
    /// The lock's name.
    name: String,
    /// The id of the hold, for its release.
    hold: String,
    /// The session of the hold, which the client must keep alive.
    session: String,
    /// The fencing token, above those of all earlier holders. Send it with every write to the protected resource. 0
    /// for a permit.
    fence: u64,
    /// The time, from the reply on, in which no other client can be granted the lock, even if the daemon dies now. A
    /// client cannot know when the reply was made: it sends a keep-alive and counts from that request.
    valid_for_ms: u64,
    /// The session ends this long after the last keep-alive.
    ttl_ms: u64,
}

impl From<Hold> for Held {
    fn from(hold: Hold) -> Self {
        Self {
            hold: format!("{}-{}", hold.lease, hold.number),
            session: hold.lease.to_string(),
            name: hold.lock,
            fence: hold.fence,
            valid_for_ms: milliseconds(hold.valid_for),
            ttl_ms: milliseconds(hold.ttl),
        }
    }
}

/// A request to release a hold.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// The id of the hold.
    #[cfg_attr(test, schema(pattern = "^([1-7][0-9a-f]{15}|[1-9a-f][0-9a-f]{0,14})-[0-9]{1,19}$"))]
    pub(super) hold: String,
}

/// The result of a release.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Released {
    /// Whether the lock was held until now. If not, it was released before, or lost.
    pub(super) released: bool,
}

/// A request to release a lock by force.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ForceRelease {
    /// The acquisition to release, as in the list of locks. Default: all holders.
    #[cfg_attr(test, schema(pattern = "^C[0-9]{1,20}#[0-9]{1,20}/[0-9]{1,20}$"))]
    pub(super) acquisition: Option<String>,
}

/// The result of a forced release.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct ForceReleased {
    /// The acquisitions that were released.
    pub(super) released: Vec<String>,
}

/// Selects locks by prefix.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[cfg_attr(test, into_params(parameter_in = Query))]
pub(crate) struct Prefix {
    /// The prefix of their names.
    #[serde(default)]
    pub prefix: String,
}

/// Selects a page of the list of locks.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[cfg_attr(test, into_params(parameter_in = Query))]
pub(crate) struct Page {
    /// The prefix of their names.
    #[serde(default)]
    pub prefix: String,
    /// Only locks whose names follow this one.
    pub after: Option<String>,
    /// The maximum number of locks.
    #[serde(default, deserialize_with = "whole_text")]
    #[cfg_attr(test, param(minimum = 1, maximum = 1_000_000_000))]
    pub limit: Option<usize>,
}

/// The maximum number of locks in a page.
const LONGEST_PAGE: usize = 1_000_000_000;

/// Parses a number of locks in a query string.
fn whole_text<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Option<usize>, D::Error> {
    let text = String::deserialize(text)?;
    let number = text.parse().ok().filter(|number| (1..=LONGEST_PAGE).contains(number));
    let bad = || serde::de::Error::custom(format!("`{text}` is no number from 1 to {LONGEST_PAGE}"));
    number.map(Some).ok_or_else(bad)
}

/// Selects a waiter.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[cfg_attr(test, into_params(parameter_in = Query))]
pub(crate) struct Waiter {
    /// The waiter's session.
    pub(super) session: Option<String>,
    /// The waiter's acquisition, as in the list of locks. Default: the client that has waited longest for the lock.
    #[cfg_attr(test, param(pattern = "^C[0-9]{1,20}#[0-9]{1,20}/[0-9]{1,20}$"))]
    pub(super) acquisition: Option<String>,
}

/// The mode of a request with this mode and number of permits.
pub(super) fn lock_mode(mode: Mode, permits: Option<u32>) -> Result<LockMode, Problem> {
    match (mode, permits) {
        (Mode::Exclusive, None) => Ok(LockMode::Exclusive),
        (Mode::Shared, None) => Ok(LockMode::Shared),
        (Mode::Permit, Some(permits)) if (1..=MOST_PERMITS).contains(&permits) => {
            Ok(LockMode::Permit { of: permits })
        }
        (Mode::Permit, _) => Err(Problem::unacceptable(format!(
            "with the mode `permit`, `permits` must be the total number of permits, 1 to {MOST_PERMITS}"
        ))),
        (_, Some(_)) => Err(Problem::unacceptable("`permits` goes with the mode `permit`")),
    }
}

impl Acquire {
    pub(super) fn hold_request(&mut self, name: String, trace: String) -> Result<HoldRequest, Problem> {
        let wait_ms = self.wait_ms.unwrap_or(0);
        if wait_ms > LONGEST_WAIT_MS {
            return Err(Problem::unacceptable(format!("`wait_ms` is {wait_ms}: at most {LONGEST_WAIT_MS}")));
        }
        let request = match self.request.take() {
            Some(request) if request.is_empty() => {
                return Err(Problem::unacceptable("`request` is empty: omit it or give an id"));
            }
            Some(request) => text("request", Some(request))?,
            // No repetition can refer to this request.
            None => getrandom::u64().unwrap_or_default().to_string(),
        };
        Ok(HoldRequest {
            mode: lock_mode(self.mode, self.permits)?,
            lock: name,
            slot: Slot::Request(request),
            timeout: Some(Duration::from_millis(wait_ms)),
            purpose: text("purpose", self.purpose.take())?,
            value: Vec::new(),
            trace,
            lasts: None,
        })
    }
}

/// Acquires a lock.
///
/// Waits until the lock is granted or `wait_ms` have passed. Closing the connection gives up the position in the queue.
#[cfg_attr(test, utoipa::path(post, path = "/v1/locks/{name}/acquire", tag = "locks", request_body = Acquire,
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = Held), (status = 409, body = Problem, description = "The lock was not free in time"),
        super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals, super::openapi_generator::NoSession)))]
pub(super) async fn acquire(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    Body(body): Body<Acquire>,
) -> impl IntoResponse {
    let trace = AppendHeaders([("traceparent", caller.trace.parent())]);
    let held = acquire_while_allowed(&service, &caller, name, body).await;
    (
        trace,
        held.map(|Granted { hold, receipt }| {
            (Extension(PendingDelivery::new(receipt)), Json(Held::from(hold)))
        }),
    )
}

async fn acquire_while_allowed(
    service: &ClientService,
    caller: &Caller,
    name: String,
    mut body: Acquire,
) -> Result<Granted, Problem> {
    caller.may(Action::Acquire, &name)?;
    let mut credential = caller.credential();
    let request = body.hold_request(name.clone(), caller.trace.id())?;
    tokio::select! {
        granted = acquire_by_lease(service, caller, request, body) => granted,
        // The token may be removed during the wait.
        denied = credential.denied(Action::Acquire, &name) => Err(denied.into()),
    }
}

async fn acquire_by_lease(
    service: &ClientService,
    caller: &Caller,
    request: HoldRequest,
    body: Acquire,
) -> Result<Granted, Problem> {
    match body.session {
        Some(_) if body.ttl_ms.is_some() || body.owner.is_some() => {
            let message = "a session has a `ttl_ms` and an `owner` already: leave them out";
            Err(Problem::unacceptable(message))
        }
        Some(id) => Ok(service.leases.acquire(&caller.identity, session(&id)?, request).await?),
        None => {
            let terms = terms(caller, body.ttl_ms, body.owner)?;
            Ok(service.leases.acquire_alone(&caller.identity, terms, request).await?)
        }
    }
}

fn parse_hold(text: &str) -> Result<(LeaseId, u64), Problem> {
    let bad = || Problem::unacceptable(format!("`{text}` is not a hold: the response to an acquire has one"));
    let (lease, number) = text.split_once('-').ok_or_else(bad)?;
    Ok((lease.parse().map_err(|()| bad())?, number.parse().map_err(|_| bad())?))
}

/// Releases a lock.
///
/// The request may be repeated: it never releases a hold of another client.
#[cfg_attr(test, utoipa::path(post, path = "/v1/locks/{name}/release", tag = "locks", request_body = Release,
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = Released), super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals)))]
pub(super) async fn release(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    Body(release): Body<Release>,
) -> Result<Json<Released>, Problem> {
    caller.may(Action::Release, &name)?;
    let (lease, number) = parse_hold(&release.hold)?;
    let op = LeaseOperation::Release(HoldRef::Number(number), None);
    let released = match service.leases.perform(&caller.identity, lease, op).await {
        Ok(OperationReply::Released(fence)) => fence.is_some(),
        Ok(_) | Err(LeaseError::NoSuchLease(_)) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(Released { released }))
}

/// Releases a lock by force.
///
/// Its holders are notified of the loss.
#[cfg_attr(test, utoipa::path(post, path = "/v1/locks/{name}/force-release", tag = "locks", request_body = ForceRelease,
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = ForceReleased), super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals)))]
pub(super) async fn force_release(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    Body(which): Body<ForceRelease>,
) -> Result<Json<ForceReleased>, Problem> {
    caller.may(Action::ForceRelease, &name)?;
    let only = which.acquisition.as_deref().map(acquisition).transpose()?;
    let released = service.context.release_by_force("http", &caller.who, &name, only).await?;
    let released = released.iter().map(ToString::to_string).collect();
    Ok(Json(ForceReleased { released }))
}

/// Lists the locks that clients hold or wait for, sorted by name.
///
/// Without `limit`, the reply contains all locks. If more locks follow, the `Link` header has the address of the next
/// page, with the relation `next`.
#[cfg_attr(test, utoipa::path(get, path = "/v1/locks", tag = "locks", params(Page),
    responses((status = 200, body = [LockState], headers(
        ("link" = String, description = "The address of the next page, as `</v1/locks?after=…>; rel=\"next\"`; absent on the last page"),
        ("lockkeeper-left-out" = u64, description = "The approximate number of locks that follow; absent on the last page"),
        ("lockkeeper-silent-members" = String, description = "Members that did not reply in time: their clients' locks are missing"))),
        super::openapi_generator::Refusals)))]
pub(super) async fn list(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    QueryParameters(page): QueryParameters<Page>,
) -> Result<Response, Problem> {
    super::list::respond(&service, &caller, page).await
}

/// Returns the holders and waiters of a lock.
#[cfg_attr(test, utoipa::path(get, path = "/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F")),
    responses((status = 200, body = LockState), super::openapi_generator::Refusals,
        (status = 422, body = Problem, description = "Not the name of a lock"))))]
pub(super) async fn one(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
) -> Result<Json<LockState>, Problem> {
    caller.may(Action::See, &name)?;
    Ok(Json(LockState::of(&listing::read_lock(&service.context.member, &name).await?)))
}

/// Explains why a client waits.
///
/// The chain leads from the waiter to the holder of the lock, to the lock that this holder waits for, and so on. A
/// deadlock is reported.
#[cfg_attr(test, utoipa::path(get, path = "/v1/locks/{name}/why", tag = "locks",
    params(("name" = String, Path, min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$",
        description = "The lock's name, without control characters; a slash in it is written %2F"), Waiter),
    responses((status = 200, body = Why), super::openapi_generator::Refusals, super::openapi_generator::NoSession,
        (status = 422, body = Problem, description = "Not the name of a lock, or of an acquisition"))))]
pub(super) async fn why(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Lock(name): Lock,
    QueryParameters(waiter): QueryParameters<Waiter>,
) -> Result<Json<Why>, Problem> {
    caller.may(Action::See, &name)?;
    let session = match (waiter.session, waiter.acquisition) {
        (Some(id), _) => session_state(&service, &caller, &id, LeaseOperation::TimeToLive).await?.session,
        (None, asked) => {
            let asked = asked.as_deref().map(acquisition).transpose()?;
            let lock = listing::read_lock(&service.context.member, &name).await?;
            let mut waiters = lock.waiters.iter().map(|party| party.who.acquisition);
            // Only waiters of this lock are considered: the caller may have no right to see others.
            let waiter = waiters.find(|waiter| asked.is_none_or(|asked| asked == *waiter));
            waiter.map(|waiter| waiter.session)
        }
    };
    let why = match session {
        Some(session) => {
            let _permit = service.list_permit(&caller.account).await?;
            Some(service.snapshots.read(move |snapshot| snapshot.why(session)).await?)
        }
        None => None,
    };
    Ok(Json(Why::new(why, |lock| caller.who.sees(lock))))
}

/// Parses an acquisition, in the format of the list of locks.
pub(super) fn acquisition(text: &str) -> Result<Acquisition, Problem> {
    // Numbers that do not fit are syntactically valid, and match no acquisition.
    let number = |text: &str| {
        let digits = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let parse = || {
        let (session, acquisition) = text.strip_prefix('C')?.split_once('/')?;
        let (client, session) = session.split_once('#')?;
        let session = SessionId { client: number(client)?, number: number(session)? };
        Some(Acquisition { session, number: number(acquisition)? })
    };
    let bad = || {
        Problem::unacceptable(format!(
            "`{text}` is not an acquisition, such as C17#0/3: see the list of locks"
        ))
    };
    parse().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquisitions_read_as_they_are_shown() {
        let session = SessionId { client: u64::MAX, number: 2 };
        let shown = Acquisition { session, number: 3 };
        assert_eq!(acquisition(&shown.to_string()).unwrap(), shown);
        for text in ["", "C", "C1", "C1#2", "C1/2", "1#2/3", "Cx#2/3", "C+1#2/3", "C1#2/3 "] {
            assert!(acquisition(text).is_err(), "{text}");
        }
    }
}
