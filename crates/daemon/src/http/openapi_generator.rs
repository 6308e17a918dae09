//! Generates the OpenAPI document from the types and handlers, for the test in `openapi`.

use super::problem::Problem;
use super::{cluster, detached, locks, sessions, watch};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "Lockkeeper", description = "Distributed locks over HTTP."),
    paths(
        sessions::create, sessions::keep_alive, sessions::end,
        locks::acquire, locks::release, locks::force_release, locks::list, locks::one, locks::why,
        detached::hold_as, detached::release_as,
        cluster::members, cluster::status, cluster::whoami, cluster::healthz, cluster::readyz, cluster::metrics, watch::watch,
    ),
    components(schemas(Problem)),
    security((), ("token" = [])),
    modifiers(&Token)
)]
struct Api;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut Document) {
        let mut scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        scheme.description = Some(String::from("Required if the daemon has a token file"));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The document without the version, which each daemon adds.
pub(super) fn generate() -> Value {
    let mut document = serde_json::to_value(Api::openapi()).expect("a document is JSON");
    document["info"]["version"] = Value::Null;
    document
}

fn problems(all: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let problem = |&(status, description): &(&str, &str)| {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let response = ResponseBuilder::new().description(description).content("application/json", content);
        (String::from(status), RefOr::T(response.build()))
    };
    all.iter().map(problem).collect()
}

/// Error responses of every request about locks.
pub(super) struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            ("400", "The request is not well-formed"),
            ("401", "A valid token is needed"),
            ("403", "The token does not allow it"),
            ("429", "A limit is reached; the message names it"),
            ("503", "This member cannot serve at the moment, or another one cannot be reached"),
        ])
    }
}

/// Error responses of every request with a body.
pub(super) struct BodyRefusals;

impl IntoResponses for BodyRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            ("408", "The request did not arrive in time"),
            ("413", "The request is too long"),
            ("415", "The request is not JSON"),
            ("422", "A name, an option or a number is invalid or out of range"),
        ])
    }
}

/// Error responses of every request about a session.
pub(super) struct NoSession;

impl IntoResponses for NoSession {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[("404", "There is no such session")])
    }
}
