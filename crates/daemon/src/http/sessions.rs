//! Handlers for sessions.

use super::problem::Problem;
use super::request::{Body, Caller, Name, session, whole};
use crate::client_service::ClientService;
use crate::leases::{HoldLoss, LeaseOperation, LeaseState, LeaseTerms, OperationReply};
use crate::rights::Action;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_member::check_tag;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Default time to live of a session.
const DEFAULT_TTL_MS: u64 = 30_000;
/// Minimum time to live: shorter ones cannot be kept alive over a network.
const SHORTEST_TTL_MS: u64 = 100;
/// Maximum length of an owner or a purpose, in characters of at most four bytes each.
pub(super) const MOST_TEXT_CHARS: usize = 256;

/// A request to create a session.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// The session ends this long after the last keep-alive.
    #[serde(default, deserialize_with = "whole")]
    #[cfg_attr(test, schema(minimum = 100, maximum = 86_400_000_u64, default = 30_000))]
    pub(super) ttl_ms: Option<u64>,
    /// The owner, as shown to other clients.
    #[cfg_attr(test, schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$"))]
    pub(super) owner: Option<String>,
}

/// A session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Session {
    /// The id of the session.
    pub(super) session: String,
    /// The session ends this long after the last keep-alive.
    pub(super) ttl_ms: u64,
}

/// The state of a session after a keep-alive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Alive {
    /// The id of the session.
    pub(super) session: String,
    /// The session ends this long after this keep-alive.
    pub(super) ttl_ms: u64,
    /// The time, from the request on, in which no other client can be granted the locks that the session holds, even
    /// if its daemon dies now. Absent if it holds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) valid_for_ms: Option<u64>,
    /// Holds that were lost, the newest last; at most 64.
    pub(super) lost: Vec<LostHold>,
}

/// A hold that was lost.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct LostHold {
    /// The id of the hold.
    pub(super) hold: String,
    /// The lock's name.
    pub(super) name: String,
    /// The reason.
    pub(super) reason: String,
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The properties of a new session.
pub(super) fn terms(
    caller: &Caller,
    ttl_ms: Option<u64>,
    owner: Option<String>,
) -> Result<LeaseTerms, Problem> {
    let ttl_ms = ttl_ms.unwrap_or(DEFAULT_TTL_MS);
    if ttl_ms < SHORTEST_TTL_MS {
        return Err(Problem::unacceptable(format!(
            "`ttl_ms` is {ttl_ms}: at least {SHORTEST_TTL_MS} is needed"
        )));
    }
    let owner = text("owner", owner)?;
    let owner = if owner.is_empty() { caller.identity.token_name.clone() } else { owner };
    let ttl = Duration::from_millis(ttl_ms);
    Ok(LeaseTerms { ttl, owner, one_hold: false, ends_with_loss: false, detached: false })
}

/// Checks a text that is shown to other clients.
pub(super) fn text(what: &str, text: Option<String>) -> Result<String, Problem> {
    let text = text.unwrap_or_default();
    let length = text.chars().count();
    if length > MOST_TEXT_CHARS {
        let message = format!("`{what}` has {length} characters: at most {MOST_TEXT_CHARS} are allowed");
        return Err(Problem::unacceptable(message));
    }
    check_tag(&text).map_err(|why| Problem::unacceptable(format!("bad `{what}`: {why}")))?;
    Ok(text)
}

/// Creates a session.
///
/// It lives at the daemon that receives the request, and can be used through all daemons.
#[cfg_attr(test, utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, body = Session), super::openapi_generator::Refusals, super::openapi_generator::BodyRefusals)))]
pub(super) async fn create(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Body(new): Body<NewSession>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    caller.may(Action::NewSession, "")?;
    let terms = terms(&caller, new.ttl_ms, new.owner)?;
    let ttl_ms = milliseconds(terms.ttl);
    let id = service.leases.grant(caller.identity, None, terms).await?;
    Ok((StatusCode::CREATED, Json(Session { session: id.to_string(), ttl_ms })))
}

/// Keeps a session alive.
#[cfg_attr(test, utoipa::path(post, path = "/v1/sessions/{session}/keep-alive", tag = "sessions",
    params(("session" = String, Path, description = "The id of the session")),
    responses((status = 200, body = Alive), super::openapi_generator::Refusals, super::openapi_generator::NoSession)))]
pub(super) async fn keep_alive(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<Alive>, Problem> {
    let state = session_state(&service, &caller, &name, LeaseOperation::KeepAlive).await?;
    let lost = state.lost.into_iter().map(|HoldLoss { number, lock, why }| LostHold {
        hold: format!("{}-{number}", state.lease),
        name: lock,
        reason: why,
    });
    Ok(Json(Alive {
        session: name,
        ttl_ms: milliseconds(state.ttl),
        valid_for_ms: state.valid_for.map(milliseconds),
        lost: lost.collect(),
    }))
}

/// The state of a session.
pub(super) async fn session_state(
    service: &ClientService,
    caller: &Caller,
    name: &str,
    op: LeaseOperation,
) -> Result<LeaseState, Problem> {
    caller.may(Action::UseSession, "")?;
    match service.leases.perform(&caller.identity, session(name)?, op).await? {
        OperationReply::Status(state) => Ok(state),
        _ => Err(Problem::no_such_session(name)),
    }
}

/// Ends a session with all its holds and waits.
#[cfg_attr(test, utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The id of the session")),
    responses((status = 204), super::openapi_generator::Refusals, super::openapi_generator::NoSession)))]
pub(super) async fn end(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    caller.may(Action::UseSession, "")?;
    service.leases.perform(&caller.identity, session(&name)?, LeaseOperation::Revoke).await?;
    Ok(StatusCode::NO_CONTENT)
}
