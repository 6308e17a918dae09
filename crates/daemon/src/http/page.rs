//! The operator's page: the locks of the cluster, in a browser. Its files are embedded in the binary, and it sends
//! requests to this daemon only.

use super::problem::{ErrorCode, Problem};
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Content security policy: scripts, styles, images and requests from this origin only, and no framing by other
/// pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page except for `index.html`.
const FILES: [(&str, &str, &str); 7] = [
    ("page.css", "text/css; charset=utf-8", include_str!("../../page/page.css")),
    ("page.js", SCRIPT, include_str!("../../page/page.js")),
    ("api.js", SCRIPT, include_str!("../../page/api.js")),
    ("locks.js", SCRIPT, include_str!("../../page/locks.js")),
    ("numbers.js", SCRIPT, include_str!("../../page/numbers.js")),
    ("dom.js", SCRIPT, include_str!("../../page/dom.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../page/icon.svg")),
];

/// Serves the page.
pub(super) async fn index() -> Response {
    static_file("text/html; charset=utf-8", include_str!("../../page/index.html"))
}

/// Serves a file of the page.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, text)) => static_file(kind, text),
        None => {
            let message = format!("the page has no file {name}");
            Problem::new(StatusCode::NOT_FOUND, ErrorCode::NoSuchPath, message).into_response()
        }
    }
}

fn static_file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // Another version of the daemon has another page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    let mut response = (headers, text).into_response();
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        response.headers_mut().insert(name, HeaderValue::from_static("same-origin"));
    }
    response
}
