//! Entry points for fuzzing the bodies of HTTP requests.

use super::detached::{HoldAs, ReleaseAs};
use super::locks::{Acquire, ForceRelease, Release, acquisition};
use super::problem::Problem;
use super::request::{parse, session};
use super::sessions::NewSession;
use axum::response::IntoResponse;

/// Parses a body as every kind of request, with its fields. Each error must become a response.
pub(crate) fn body(bytes: &[u8]) {
    let request =
        parse::<Acquire>(bytes).and_then(|mut acquire| acquire.hold_request("lock".into(), String::new()));
    if let Ok(request) = &request {
        assert!(request.timeout.is_some(), "a client of HTTP waits for a bounded time");
    }
    respond(request);
    respond(parse::<Release>(bytes));
    respond(parse::<ForceRelease>(bytes));
    respond(parse::<NewSession>(bytes));
    respond(parse::<HoldAs>(bytes));
    respond(parse::<ReleaseAs>(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        respond(session(text));
        respond(acquisition(text));
    }
}

fn respond<T>(read: Result<T, Problem>) {
    if let Err(problem) = read {
        assert!(problem.status.is_client_error(), "{problem:?}");
        drop(problem.into_response());
    }
}
