//! Who may ask: pages that this server has served, in a browser on this machine.
//!
//! A page of another origin can make a browser send requests here. It must not be able to start work or read answers:
//! - the header `Host` must name this machine, so that a name whose address changes to 127.0.0.1 under a page is of no use;
//! - the header `Origin`, which browsers send with every request that is not a plain visit, must name this server;
//! - `Sec-Fetch-Site` must not say that another site asks.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Everything comes from this server; nothing is written into the page's own text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the guard knows of its server.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// The port it listens on.
    pub port: u16,
}

impl Door {
    fn is_this_machine(self, host: &str) -> bool {
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{}", self.port))
    }

    fn refuses(self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text(HOST).unwrap_or_default();
        if !self.is_this_machine(host) {
            return Some("this server answers to 127.0.0.1 and localhost only");
        }
        let origin = text(ORIGIN);
        if origin.is_some_and(|origin| origin != format!("http://{host}")) {
            return Some("this server answers to its own pages only");
        }
        let from = text(HeaderName::from_static("sec-fetch-site"));
        let plain_visit = text(HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
        match from {
            Some("same-origin" | "none") | None => None,
            _ if plain_visit => None,
            _ => Some("this server answers to its own pages only"),
        }
    }
}

/// Lets a request through, or not; tells the browser what the answer may do.
pub async fn check(State(door): State<Door>, request: Request, next: Next) -> Response {
    let mut response = match door.refuses(request.headers()) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", same_origin.clone());
    headers.insert("cross-origin-opener-policy", same_origin);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        Door { port: 7480 }.refuses(&headers).is_some()
    }

    #[test]
    fn other_origins_are_refused() {
        assert!(!refused(&[("host", "127.0.0.1:7480")]));
        assert!(!refused(&[("host", "localhost:7480"), ("origin", "http://localhost:7480")]));
        assert!(refused(&[]));
        assert!(refused(&[("host", "rebound.example:7480")]));
        assert!(refused(&[("host", "127.0.0.1:80")]));
        assert!(refused(&[("host", "127.0.0.1:7480"), ("origin", "http://evil.example")]));
        assert!(refused(&[("host", "127.0.0.1:7480"), ("origin", "http://localhost:7480")]));
        assert!(refused(&[("host", "127.0.0.1:7480"), ("origin", "null")]));
        assert!(refused(&[("host", "127.0.0.1:7480"), ("sec-fetch-site", "cross-site")]));
        let visit = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert!(!refused(&[("host", "127.0.0.1:7480"), visit[0], visit[1]]));
    }
}
