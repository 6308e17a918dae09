//! The JSON API over HTTP, for `curl` and every programming language.
//!
//! | module | contents |
//! |---|---|
//! | `sessions`, `locks`, `detached`, `list`, `cluster`, `watch` | handlers |
//! | `request`, `problem`, `show` | extractors for requests, errors, and the JSON of replies |
//! | `delivery` | detects whether a client has received its hold |
//! | `openapi` | the OpenAPI document |
//! | `page`, `origin` | the operator's page, and protection against requests of other sites' pages |
//! | `serve`, `activity` | connections, with their limits; also for gRPC |

mod activity;
mod cluster;
mod delivery;
mod detached;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod golden;
mod list;
mod locks;
mod openapi;
#[cfg(test)]
mod openapi_generator;
mod origin;
mod page;
mod problem;
mod request;
mod serve;
mod sessions;
mod show;
mod watch;

pub(crate) use serve::Connection;
pub use serve::serve;

use crate::client_service::ClientService;
use crate::etcd;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use problem::{ErrorCode, Problem};
use std::sync::Arc;
use tonic::Code;

/// The router for everything on the HTTP port: the JSON API and etcd's gRPC API.
pub fn router(service: &Arc<ClientService>) -> Router {
    let json = Router::new()
        .route("/v1/sessions", post(sessions::create))
        .route("/v1/sessions/{session}", delete(sessions::end))
        .route("/v1/sessions/{session}/keep-alive", post(sessions::keep_alive))
        .route("/v1/locks", get(locks::list))
        .route("/v1/locks/{name}", get(locks::one))
        .route("/v1/locks/{name}/acquire", post(locks::acquire))
        .route("/v1/locks/{name}/release", post(locks::release))
        .route("/v1/locks/{name}/hold-as", post(detached::hold_as))
        .route("/v1/locks/{name}/release-as", post(detached::release_as))
        .route("/v1/locks/{name}/force-release", post(locks::force_release))
        .route("/v1/locks/{name}/why", get(locks::why))
        .route("/v1/members", get(cluster::members))
        .route("/v1/status", get(cluster::status))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/whoami", get(cluster::whoami))
        .route("/", get(page::index))
        .route("/page/{file}", get(page::file))
        .route("/metrics", get(cluster::metrics))
        .route("/healthz", get(cluster::healthz))
        .route("/readyz", get(cluster::readyz))
        .route("/openapi.json", get(openapi::serve))
        .with_state(service.clone());
    json.merge(etcd::router(service))
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(service.clone(), check_and_count))
}

async fn no_such_path(uri: Uri) -> Problem {
    let message = format!("nothing is served at {}: see /openapi.json", uri.path());
    Problem::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchPath, message)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let message = format!("{method} is not allowed for {}: see /openapi.json", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::WrongMethod, message)
}

fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/grpc"))
}

/// Middleware for every request: origin check, limits, metrics and delivery of holds.
async fn check_and_count(
    State(service): State<Arc<ClientService>>,
    request: Request,
    next: Next,
) -> Response {
    let grpc = is_grpc(&request);
    let connection = request.extensions().get::<serve::Connection>();
    let alone =
        connection.is_some_and(|connection| connection.loopback) && !service.context.access.needs_token();
    if let Err(problem) = origin::check(&request, alone) {
        service.metrics.refuse("origin");
        service.metrics.request(if grpc { "etcd" } else { "http" }, "refused");
        let mut response = problem.into_response();
        origin::protect(&mut response);
        return response;
    }
    let too_fast = connection.is_some_and(|connection| connection.rate.check().is_err());
    let permit = if too_fast { Err(service.too_fast()) } else { service.request_permit() };
    let mut response = match (permit, grpc) {
        (Err(error), true) => etcd::status(error).into_http(),
        (Err(error), false) => Problem::from(error).into_response(),
        (Ok(_permit), true) => match etcd::admit(&service, request).await {
            Ok(request) => next.run(request).await,
            Err(status) => status.into_http(),
        },
        (Ok(_permit), false) => next.run(request).await,
    };
    if grpc {
        service.metrics.request("etcd", grpc_result(&response));
    } else {
        origin::protect(&mut response);
        service.metrics.request("http", http_result(response.status()));
    }
    delivery::watch(response)
}

fn http_result(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 | 429 => "refused",
        409 => "busy",
        400..500 => "invalid",
        500.. => "failed",
        _ => "ok",
    }
}

fn grpc_result(response: &Response) -> &'static str {
    let status = response.headers().get("grpc-status");
    match status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes())) {
        Code::Ok => "ok",
        Code::Unauthenticated | Code::PermissionDenied | Code::ResourceExhausted => "refused",
        Code::Unavailable | Code::Internal => "failed",
        _ => "invalid",
    }
}
