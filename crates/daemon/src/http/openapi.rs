//! The OpenAPI document.
//!
//! utoipa generates it from the types and handlers, in a test: the daemon serves the file `openapi.json`, and the test
//! fails if that is not what the code gives. So utoipa and what it generates are not compiled into the daemon.

use crate::client_service::ClientService;
use crate::limits::Limits;
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::Value;
use std::sync::Arc;

/// The generated document, without the version and the limits of a daemon.
const DOCUMENT: &str = include_str!("openapi.json");

/// The document, with the version and the limits of this daemon.
pub(super) fn document(limits: &Limits) -> Value {
    let mut document: Value = serde_json::from_str(DOCUMENT).expect("a test reads the same text");
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi_generator::generate;

    #[test]
    fn the_document_is_what_the_code_gives() {
        let generated = serde_json::to_string_pretty(&generate()).unwrap() + "\n";
        if std::env::var_os("LOCKKEEPER_BLESS").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/openapi.json");
            std::fs::write(file, &generated).unwrap();
        }
        assert!(
            generated == DOCUMENT || std::env::var_os("LOCKKEEPER_BLESS").is_some(),
            "src/http/openapi.json is not what the types and handlers give: write it with\n\
             LOCKKEEPER_BLESS=1 cargo test -p lockkeeper-daemon --lib openapi"
        );
    }

    #[test]
    fn document_has_every_path_and_every_referenced_schema() {
        let limits = Limits { longest_ttl_s: 7, ..Limits::default() };
        let json = document(&limits);
        assert_eq!(json["paths"].as_object().map(serde_json::Map::len), Some(18));
        assert_eq!(json["components"]["schemas"]["Acquire"]["properties"]["ttl_ms"]["maximum"], 7000);
        let text = json.to_string();
        let schemas = json["components"]["schemas"].as_object().unwrap();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}
