//! Access control: only pages that this server has served may send requests, from a browser on this machine.
//!
//! A page of another origin can make a browser send requests here. It must not be able to start jobs or read
//! answers:
//! - the header `Host` must name this machine, against DNS rebinding: a host name of another page whose
//!   address changes to 127.0.0.1;
//! - the header `Origin`, which browsers send with every request that is not a plain navigation, must name
//!   this server;
//! - `Sec-Fetch-Site` must not be that of another site.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The content security policy: scripts, styles and connections only from this server; images also from `blob:` and
/// `data:`; nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The configuration of the access control.
#[derive(Clone, Copy, Debug)]
pub struct OriginCheck {
    /// The port that the server listens on.
    pub port: u16,
}

impl OriginCheck {
    fn is_this_machine(self, host: &str) -> bool {
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{}", self.port))
    }

    fn rejection(self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text(HOST).unwrap_or_default();
        if !self.is_this_machine(host) {
            return Some("this server only accepts requests to 127.0.0.1 and localhost");
        }
        let origin = text(ORIGIN);
        if origin.is_some_and(|origin| origin != format!("http://{host}")) {
            return Some("this server only accepts requests of its own pages");
        }
        let from = text(HeaderName::from_static("sec-fetch-site"));
        let plain_visit = text(HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
        match from {
            Some("same-origin" | "none") | None => None,
            _ if plain_visit => None,
            _ => Some("this server only accepts requests of its own pages"),
        }
    }
}

/// Rejects requests that are not allowed, and adds the security headers to every response.
pub async fn check(State(origin_check): State<OriginCheck>, request: Request, next: Next) -> Response {
    let mut response = match origin_check.rejection(request.headers()) {
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
        OriginCheck { port: 7480 }.rejection(&headers).is_some()
    }

    #[test]
    fn requests_of_other_origins_are_rejected() {
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
