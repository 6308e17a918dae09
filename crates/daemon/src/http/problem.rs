//! Errors of the JSON API.

use crate::access::Denied;
use crate::leases::LeaseError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// The reason why a request failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub status: StatusCode,
    /// An error code for programs.
    #[schema(value_type = String, example = "busy")]
    pub error: &'static str,
    /// A message for people.
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        Self { status, error, message: message.into() }
    }

    /// An error for a request that is well-formed but invalid.
    pub fn unacceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
    }

    pub fn no_such_session(session: &str) -> Self {
        let message = format!(
            "there is no session {session}: it expired, was ended, or lived at a daemon that is gone; make another one"
        );
        Self::new(StatusCode::NOT_FOUND, "no_such_session", message)
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
            Denied::NoToken => Self::new(StatusCode::UNAUTHORIZED, "no_token", message),
            Denied::NotAllowed { .. } | Denied::HoldsNothing { .. } => {
                Self::new(StatusCode::FORBIDDEN, "not_allowed", message)
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
                Self::new(StatusCode::NOT_FOUND, "no_such_session", message)
            }
            LeaseError::WrongOwner(id) => {
                let message = format!("the session {id} belongs to another token");
                Self::new(StatusCode::FORBIDDEN, "not_allowed", message)
            }
            LeaseError::Busy(_) => Self::new(StatusCode::CONFLICT, "busy", message),
            LeaseError::Withdrawn(_) => Self::new(StatusCode::CONFLICT, "given_up", message),
            LeaseError::LeaseExists(_) | LeaseError::NotHeld(_) => {
                Self::new(StatusCode::CONFLICT, "conflict", message)
            }
            LeaseError::LimitExceeded { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message),
            LeaseError::TtlTooLong { .. } | LeaseError::Invalid(_) => Self::unacceptable(message),
            LeaseError::MemberHasNoLease(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_lease", message)
            }
            LeaseError::Unavailable(_) | LeaseError::Stopped(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
        }
    }
}

impl From<lockkeeper_cluster::Error> for Problem {
    fn from(error: lockkeeper_cluster::Error) -> Self {
        LeaseError::from(error).into()
    }
}
