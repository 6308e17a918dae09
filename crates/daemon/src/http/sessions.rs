//! Sessions.

use super::problem::Problem;
use super::request::{Body, Caller, Name, session, whole};
use crate::front::Front;
use crate::leases::{Life, Lost, Op, Reply, Terms};
use crate::rights::Action;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_member::check_tag;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// What a session lives for unless it says otherwise.
const DEFAULT_TTL_MS: u64 = 30_000;
/// The shortest life that can be kept up over a network.
const LEAST_TTL_MS: u64 = 100;
/// The longest name of an owner or a purpose, in characters, each of at most four bytes.
pub(super) const LONGEST_TEXT: usize = 256;

/// A session to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// It ends so long after the last sign of life.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 100, maximum = 86_400_000_u64, default = 30_000)]
    ttl_ms: Option<u64>,
    /// Who others are told has it.
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F]*$")]
    owner: Option<String>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// Its number.
    session: String,
    /// It ends so long after the last sign of life.
    ttl_ms: u64,
}

/// A session that lives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Alive {
    /// Its number.
    session: String,
    /// It ends so long after this sign of life.
    ttl_ms: u64,
    /// For how long, from when this was asked, nobody else can have what the session holds, even if its daemon dies now. Nothing if it holds
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_for_ms: Option<u64>,
    /// Holds that were lost, the newest last; the last 64.
    lost: Vec<LostHold>,
}

/// A hold that was lost.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LostHold {
    /// Which hold.
    hold: String,
    /// Of which lock.
    name: String,
    /// Why.
    reason: String,
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a session is to be.
pub(super) fn terms(caller: &Caller, ttl_ms: Option<u64>, owner: Option<String>) -> Result<Terms, Problem> {
    let ttl_ms = ttl_ms.unwrap_or(DEFAULT_TTL_MS);
    if ttl_ms < LEAST_TTL_MS {
        return Err(Problem::unacceptable(format!(
            "`ttl_ms` is {ttl_ms}: at least {LEAST_TTL_MS} is needed"
        )));
    }
    let owner = text("owner", owner)?;
    let owner = if owner.is_empty() { caller.asker.who.clone() } else { owner };
    Ok(Terms { ttl: Duration::from_millis(ttl_ms), owner, one_hold: false, ends_with_loss: false })
}

/// A text that others are shown.
pub(super) fn text(what: &str, text: Option<String>) -> Result<String, Problem> {
    let text = text.unwrap_or_default();
    let length = text.chars().count();
    if length > LONGEST_TEXT {
        let message = format!("`{what}` has {length} characters: at most {LONGEST_TEXT} are allowed");
        return Err(Problem::unacceptable(message));
    }
    check_tag(&text).map_err(|why| Problem::unacceptable(format!("bad `{what}`: {why}")))?;
    Ok(text)
}

/// Makes a session. It lives at the daemon that is asked, and can be used by way of all of them.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, body = Session), super::openapi::Refusals, super::openapi::BodyRefusals))]
pub(super) async fn make(
    State(front): State<Arc<Front>>,
    caller: Caller,
    Body(new): Body<NewSession>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    caller.may(Action::NewSession, "")?;
    let terms = terms(&caller, new.ttl_ms, new.owner)?;
    let ttl_ms = milliseconds(terms.ttl);
    let id = front.leases.grant(caller.asker, None, terms).await?;
    Ok((StatusCode::CREATED, Json(Session { session: id.to_string(), ttl_ms })))
}

/// A sign of life.
#[utoipa::path(post, path = "/v1/sessions/{session}/keep-alive", tag = "sessions",
    params(("session" = String, Path, description = "The session's number")),
    responses((status = 200, body = Alive), super::openapi::Refusals, super::openapi::NoSession))]
pub(super) async fn keep_alive(
    State(front): State<Arc<Front>>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<Alive>, Problem> {
    let life = life(&front, &caller, &name, Op::KeepAlive).await?;
    let lost = life.lost.into_iter().map(|Lost { number, lock, why }| LostHold {
        hold: format!("{}-{number}", life.lease),
        name: lock,
        reason: why,
    });
    Ok(Json(Alive {
        session: name,
        ttl_ms: milliseconds(life.ttl),
        valid_for_ms: life.valid_for.map(milliseconds),
        lost: lost.collect(),
    }))
}

/// How a session stands.
pub(super) async fn life(front: &Front, caller: &Caller, name: &str, op: Op) -> Result<Life, Problem> {
    caller.may(Action::UseSession, "")?;
    match front.leases.perform(&caller.asker, session(name)?, op).await? {
        Reply::Life(life) => Ok(life),
        _ => Err(Problem::no_such_session(name)),
    }
}

/// Ends a session, and everything that it holds and waits for.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session's number")),
    responses((status = 204), super::openapi::Refusals, super::openapi::NoSession))]
pub(super) async fn end(
    State(front): State<Arc<Front>>,
    caller: Caller,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    caller.may(Action::UseSession, "")?;
    front.leases.perform(&caller.asker, session(&name)?, Op::Revoke).await?;
    Ok(StatusCode::NO_CONTENT)
}
