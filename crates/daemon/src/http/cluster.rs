//! Handlers for the cluster and this member: members, status, rights of the caller, health and metrics.

use super::problem::{ErrorCode, Problem};
use super::request::Caller;
use super::sessions::milliseconds;
use crate::access::Permission;
use crate::client_service::ClientService;
use crate::listing;
use crate::rights::Action;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use serde::Serialize;
use std::sync::Arc;

/// A member of the cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Member {
    /// The member's number.
    pub(super) id: u32,
    /// The address at which other members reach it; `none` if it does not listen for members.
    pub(super) address: String,
    /// Whether it is in the current view.
    pub(super) in_view: bool,
    /// Whether it is a voter of the consensus on views.
    pub(super) votes: bool,
    /// Whether it is the leader of the voters.
    pub(super) leads: bool,
    /// Whether this member has a connection to it; always true for this member itself.
    pub(super) connected: bool,
}

/// The status of this member.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Status {
    /// The member's number.
    pub(super) member: u32,
    /// The cluster's name.
    pub(super) cluster: String,
    /// The version of this program.
    #[cfg_attr(test, schema(value_type = String))]
    pub(super) version: &'static str,
    /// Whether it grants locks.
    pub(super) serves: bool,
    /// The reason why it does not grant locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The epoch of the current view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
    /// The duration of its lease.
    pub(super) lease_ms: u64,
    /// The leader of the voters, as far as this member knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<u32>,
    /// The term of the leader.
    pub(super) term: u64,
    /// The mutual exclusion algorithm.
    pub(super) algorithm: String,
    /// Number of sessions that live at this daemon.
    pub(super) sessions: usize,
}

/// The caller: the name of its token, and the prefixes of the lock names for each permission. The empty prefix covers
/// every lock.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Whoami {
    /// The name of the token; `anybody` where none is needed.
    pub(super) who: String,
    /// Prefixes of the locks that it may acquire.
    pub(super) acquire: Vec<String>,
    /// Prefixes of the locks whose holders and waiters it may see.
    pub(super) observe: Vec<String>,
    /// Prefixes of the locks that it may release by force.
    pub(super) admin: Vec<String>,
}

/// The reason why this member grants no locks, if it does not.
fn not_serving_reason(service: &ClientService) -> Option<String> {
    service.context.member.not_serving().map(|trouble| trouble.to_string())
}

/// Lists all known members.
#[cfg_attr(test, utoipa::path(get, path = "/v1/members", tag = "cluster",
    responses((status = 200, body = [Member]), super::openapi_generator::Refusals)))]
pub(super) async fn members(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
) -> Result<Json<Vec<Member>>, Problem> {
    caller.may(Action::Cluster, "")?;
    let member = &service.context.member;
    let (view, voters) = (member.status().view, member.voters());
    let show = |(id, address)| Member {
        id: lockkeeper_cluster::MemberId::clone(&id).0,
        address,
        in_view: view.as_ref().is_some_and(|view| view.members.iter().any(|node| node.id == id)),
        votes: voters.voters.contains(&id),
        leads: voters.leader == Some(id),
        connected: id == member.id() || member.is_connected(id),
    };
    Ok(Json(listing::addresses(member).into_iter().map(show).collect()))
}

/// Returns the status of this member.
#[cfg_attr(test, utoipa::path(get, path = "/v1/status", tag = "cluster",
    responses((status = 200, body = Status), super::openapi_generator::Refusals)))]
pub(super) async fn status(
    State(service): State<Arc<ClientService>>,
    caller: Caller,
) -> Result<Json<Status>, Problem> {
    caller.may(Action::Cluster, "")?;
    let member = &service.context.member;
    let (standing, voters) = (member.status(), member.voters());
    Ok(Json(Status {
        member: member.id().0,
        cluster: member.config().cluster.clone(),
        version: env!("CARGO_PKG_VERSION"),
        serves: standing.serves(),
        reason: not_serving_reason(&service),
        epoch: standing.view.map(|view| view.epoch),
        lease_ms: milliseconds(standing.lease),
        leader: voters.leader.map(|leader| leader.0),
        term: voters.term,
        algorithm: member.settings().algorithm_text(),
        sessions: service.leases.count(),
    }))
}

/// Returns the caller's name and permissions.
#[cfg_attr(test, utoipa::path(get, path = "/v1/whoami", tag = "cluster",
    responses((status = 200, body = Whoami), super::openapi_generator::Refusals)))]
pub(super) async fn whoami(caller: Caller) -> Result<Json<Whoami>, Problem> {
    caller.may(Action::Cluster, "")?;
    let who = caller.who.name().to_string();
    let prefixes = |permission| caller.who.prefixes(permission).to_vec();
    Ok(Json(Whoami {
        who,
        acquire: prefixes(Permission::Acquire),
        observe: prefixes(Permission::Observe),
        admin: prefixes(Permission::Admin),
    }))
}

/// Liveness: fails once the member has stopped. A member without a lease is still alive.
#[cfg_attr(test, utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503, body = Problem, description = "The member has stopped, with the reason; restart the daemon"))))]
pub(super) async fn healthz(State(service): State<Arc<ClientService>>) -> Result<&'static str, Problem> {
    match service.context.member.status().stopped {
        None => Ok("ok\n"),
        Some(why) => {
            let message = format!("member {} has stopped: {why}", service.context.member.id().0);
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Stopped, message))
        }
    }
}

/// Readiness: whether this member grants locks.
#[cfg_attr(test, utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503, body = Problem, description = "It does not grant locks, with the reason"))))]
pub(super) async fn readyz(State(service): State<Arc<ClientService>>) -> Result<&'static str, Problem> {
    match not_serving_reason(&service) {
        None => Ok("ok\n"),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::NotReady, why)),
    }
}

/// Counters and histograms in the OpenMetrics format. The times of locks are included for tokens that may see these
/// locks.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", tag = "health", security((), ("token" = [])),
    responses((status = 200, body = String, content_type = "application/openmetrics-text"),
        (status = 401, body = Problem, description = "The token is not valid"),
        (status = 429, body = Problem, description = "A limit is reached; the message names it"))))]
pub(super) async fn metrics(
    State(service): State<Arc<ClientService>>,
    caller: Option<Caller>,
) -> Result<impl IntoResponse, Problem> {
    let mut text = String::new();
    let written = encode_registry(&mut text, &service.registry).and_then(|()| match &caller {
        Some(caller) => encode_registry(&mut text, &service.metrics.lock_times(&caller.who)),
        None => Ok(()),
    });
    written.and_then(|()| encode_eof(&mut text)).map_err(|error| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Unavailable, format!("no metrics: {error}"))
    })?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text))
}
