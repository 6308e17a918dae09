//! Errors of the JSON API.

use crate::access::Denied;
use crate::leases::LeaseError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The reason why a request failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Problem {
    #[serde(skip)]
    pub status: StatusCode,
    /// An error code for programs.
    #[cfg_attr(test, schema(value_type = String, example = "busy"))]
    pub error: ErrorCode,
    /// A message for people.
    pub message: String,
}

/// The error code of a [`Problem`], for programs. Clients depend on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    /// The request is well-formed but invalid.
    Invalid,
    /// The session has ended or never existed.
    NoSuchSession,
    /// A valid token is needed.
    NoToken,
    /// The token does not allow the action.
    NotAllowed,
    /// The lock was not free in time.
    Busy,
    /// The wait was withdrawn.
    GivenUp,
    /// The request contradicts the present state.
    Conflict,
    /// A limit is reached.
    TooMany,
    /// The member has no lease in the cluster.
    NoLease,
    /// The member cannot serve at the moment.
    Unavailable,
    /// Nothing is served at this path.
    NoSuchPath,
    /// The path does not have this method.
    WrongMethod,
    /// A page of another origin sent the request.
    OtherOrigin,
    /// The request is addressed to another host.
    OtherHost,
    /// The body is not declared as JSON.
    NotJson,
    /// The request did not arrive in time.
    Slow,
    /// The body is too long.
    TooLong,
    /// The body is not JSON.
    BadJson,
    /// The query string is malformed.
    BadQuery,
    /// The path is malformed.
    BadPath,
    /// The member has stopped.
    Stopped,
    /// The member does not grant locks.
    NotReady,
}

impl Problem {
    pub fn new(status: StatusCode, error: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, error, message: message.into() }
    }

    /// An error for a request that is well-formed but invalid.
    pub fn unacceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid, message)
    }

    pub fn no_such_session(session: &str) -> Self {
        let message = format!(
            "there is no session {session}: it expired, was ended, or lived at a daemon that is gone; make another one"
        );
        Self::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchSession, message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let message = denied.to_string();
        match denied {
            Denied::NoToken => Self::new(StatusCode::UNAUTHORIZED, ErrorCode::NoToken, message),
            Denied::NotAllowed { .. } | Denied::HoldsNothing { .. } => {
                Self::new(StatusCode::FORBIDDEN, ErrorCode::NotAllowed, message)
            }
        }
    }
}

impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let message = error.to_string();
        match error {
            LeaseError::NoSuchLease(id) => Self::no_such_session(&id.to_string()),
            LeaseError::LeaseEnded(id, why) => {
                let message = format!("the session {id} ended: {why}");
                Self::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchSession, message)
            }
            LeaseError::WrongOwner(id) => {
                let message = format!("the session {id} belongs to another token");
                Self::new(StatusCode::FORBIDDEN, ErrorCode::NotAllowed, message)
            }
            LeaseError::Busy(_) => Self::new(StatusCode::CONFLICT, ErrorCode::Busy, message),
            LeaseError::Withdrawn(_) => Self::new(StatusCode::CONFLICT, ErrorCode::GivenUp, message),
            LeaseError::LeaseExists(_) | LeaseError::NotHeld(_) => {
                Self::new(StatusCode::CONFLICT, ErrorCode::Conflict, message)
            }
            LeaseError::LimitExceeded { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::TooMany, message)
            }
            LeaseError::TtlTooLong { .. } | LeaseError::Invalid(_) => Self::unacceptable(message),
            LeaseError::MemberHasNoLease(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::NoLease, message)
            }
            LeaseError::Unavailable(_) | LeaseError::Stopped(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Unavailable, message)
            }
        }
    }
}

impl From<lockkeeper_cluster::Error> for Problem {
    fn from(error: lockkeeper_cluster::Error) -> Self {
        LeaseError::from(error).into()
    }
}
