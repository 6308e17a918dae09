//! The OpenAPI document, generated from the types and handlers.

use super::problem::Problem;
use super::{cluster, locks, sessions, watch};
use crate::client_service::ClientService;
use crate::limits::Limits;
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "Lockkeeper", description = "Distributed locks over HTTP."),
    paths(
        sessions::create, sessions::keep_alive, sessions::end,
        locks::acquire, locks::release, locks::force_release, locks::list, locks::one, locks::why,
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

/// The document, with the limits of this daemon.
pub(super) fn document(limits: &Limits) -> Value {
    let mut document = serde_json::to_value(Api::openapi()).expect("a document is JSON");
    for schema in ["NewSession", "Acquire"] {
        let maximum = &mut document["components"]["schemas"][schema]["properties"]["ttl_ms"]["maximum"];
        *maximum = limits.longest_ttl_s.saturating_mul(1000).into();
    }
    document
}

/// Serves the OpenAPI document.
pub(super) async fn serve(State(service): State<Arc<ClientService>>) -> impl IntoResponse {
    Json(document(&service.context.limits))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_every_path_and_every_referenced_schema() {
        let limits = Limits { longest_ttl_s: 7, ..Limits::default() };
        let json = document(&limits);
        assert_eq!(json["paths"].as_object().map(serde_json::Map::len), Some(16));
        assert_eq!(json["components"]["schemas"]["Acquire"]["properties"]["ttl_ms"]["maximum"], 7000);
        let text = json.to_string();
        let schemas = json["components"]["schemas"].as_object().unwrap();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}
