//! Extractors: the authenticated caller, and JSON bodies within limits of size and time.

use super::problem::{ErrorCode, Problem};
use super::serve::Connection;

use crate::access::Principal;
use crate::client_service::ClientService;
use crate::credential::Credential;
use crate::leases::{CallerIdentity, LeaseId, Protocol};
use crate::rights::Action;
use crate::trace::Trace;
use axum::body::to_bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use lockkeeper_member::check_name;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::sync::Arc;

/// The authenticated caller of a request.
pub(crate) struct Caller {
    service: Arc<ClientService>,
    pub who: Principal,
    /// The name under which quotas count its usage.
    pub account: Arc<str>,
    pub identity: CallerIdentity,
    pub trace: Trace,
}

impl Caller {
    /// Checks that the caller may perform an action on a lock.
    pub fn may(&self, action: Action, lock: &str) -> Result<(), Problem> {
        Ok(self.service.check(Protocol::Http, &self.who, action, lock)?)
    }

    /// Tracks the caller's rights while the request lasts.
    pub fn credential(&self) -> Credential {
        self.service.credential(&self.who)
    }
}

impl FromRequestParts<Arc<ClientService>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<ClientService>) -> Result<Self, Problem> {
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let who = service.authenticate(Protocol::Http, bearer)?;
        let peer = parts.extensions.get::<Connection>().and_then(|connection| connection.peer);
        let account = service.account(&who, peer);
        service.check_rate(&account)?;
        let identity = service.identity(Protocol::Http, &who, &account);
        let trace = Trace::of(parts.headers.get("traceparent").and_then(|value| value.to_str().ok()));
        Ok(Self { service: service.clone(), who, account, identity, trace })
    }
}

/// The caller of a handler that needs no token; `None` if tokens are needed and the request has none.
impl OptionalFromRequestParts<Arc<ClientService>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<ClientService>,
    ) -> Result<Option<Self>, Problem> {
        if service.context.access.needs_token() && !parts.headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<_>>::from_request_parts(parts, service).await.map(Some)
    }
}

/// A JSON body.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<ClientService>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Arc<ClientService>) -> Result<Self, Problem> {
        let limits = &service.context.limits;
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        // This also protects against cross-site requests: a page cannot send this type to another origin without a
        // preflight request.
        if !kind.is_some_and(is_json) {
            let message = "send JSON, with `content-type: application/json`; `curl --json` does both";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::NotJson, message));
        }
        let body = to_bytes(request.into_body(), limits.request_bytes);
        let Ok(body) = tokio::time::timeout(limits.request_timeout(), body).await else {
            service.metrics.refuse("slow");
            let message = format!("the request did not arrive within {} ms", limits.request_timeout_ms);
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::Slow, message));
        };
        let body = body.map_err(|_| {
            let message = format!("a request has at most {} bytes", limits.request_bytes);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLong, message)
        })?;
        parse(&body).map(Self)
    }
}

/// Parses the JSON of a body.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Serde would also accept an array of the fields, which is not part of the API.
    if body.trim_ascii_start().first().is_some_and(|first| matches!(first, b'[')) {
        return Err(Problem::unacceptable("the JSON of the request: an object is expected, not a list"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the JSON of the request: {error}");
        if error.is_data() {
            return Problem::unacceptable(message);
        }
        Problem::new(StatusCode::BAD_REQUEST, ErrorCode::BadJson, message)
    })
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// A whole number in any JSON notation: 3.0 is one, too.
pub(crate) fn whole<'de, D, N>(deserializer: D) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64>,
{
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    // All accepted numbers are far below 2^53, from where on floats cannot represent every whole number.
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float));
    let whole = number.as_u64().or_else(|| float().map(|float| float as u64));
    let fits = whole.and_then(|whole| N::try_from(whole).ok());
    fits.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number in range")))
}

/// The parameters of the query string.
pub(crate) struct QueryParameters<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<ClientService>> for QueryParameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<ClientService>) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, service).await;
        query
            .map(|Query(query)| Self(query))
            .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, ErrorCode::BadQuery, error.body_text()))
    }
}

/// The name in a path.
pub(crate) struct Name(pub String);

impl FromRequestParts<Arc<ClientService>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<ClientService>) -> Result<Self, Problem> {
        let path: Result<Path<String>, PathRejection> =
            <Path<String> as FromRequestParts<_>>::from_request_parts(parts, service).await;
        let name = path.map_err(|error| {
            let utf8 = matches!(&error, PathRejection::FailedToDeserializePathParams(error)
                if matches!(error.kind(), ErrorKind::InvalidUtf8InPathParam { .. }));
            let message = if utf8 { String::from("the path must be UTF-8") } else { error.body_text() };
            Problem::new(StatusCode::BAD_REQUEST, ErrorCode::BadPath, message)
        })?;
        Ok(Self(name.0))
    }
}

/// The lock's name in a path.
pub(crate) struct Lock(pub String);

impl FromRequestParts<Arc<ClientService>> for Lock {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<ClientService>) -> Result<Self, Problem> {
        let Name(name) = Name::from_request_parts(parts, service).await?;
        check_name(&name).map_err(|why| Problem::unacceptable(format!("bad lock name: {why}")))?;
        Ok(Self(name))
    }
}

/// Parses the id of a session.
pub(crate) fn session(text: &str) -> Result<LeaseId, Problem> {
    text.parse().map_err(|()| Problem::no_such_session(text))
}
