//! Protection against cross-site requests. The daemon's own page may send requests from a browser; pages of other
//! origins may not, not even after DNS rebinding.

use super::problem::{ErrorCode, Problem};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header, uri::Authority};
use axum::response::Response;
use std::net::IpAddr;

/// The relation between the page that caused a request and the daemon. Browsers set this header, and pages cannot
/// change it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The host to which a request is addressed: from the URI in HTTP/2, from a header in HTTP/1. `None` if it is
/// missing, given twice, or malformed.
fn host(request: &Request) -> Option<Authority> {
    if let Some(of_uri) = request.uri().authority() {
        return Some(of_uri.clone());
    }
    let mut all = request.headers().get_all(header::HOST).iter();
    match (all.next(), all.next()) {
        (Some(host), None) => host.to_str().ok()?.parse().ok(),
        _ => None,
    }
}

/// Rejects requests that a page of another origin caused, according to the browser's own header, which old browsers
/// do not send. The daemon's page itself may be opened by a link on any page.
fn check_fetch_site(request: &Request) -> Result<(), Problem> {
    let Some(site) = request.headers().get(SEC_FETCH_SITE) else { return Ok(()) };
    let own = site == "same-origin" || site == "none";
    if own || request.uri().path() == "/" {
        return Ok(());
    }
    let message = "a page of another origin cannot send requests to this daemon: open the daemon's own page";
    Err(Problem::new(StatusCode::FORBIDDEN, ErrorCode::OtherOrigin, message))
}

/// Adds headers that keep other pages from using a response, unless it has them: browsers must not guess its type,
/// and other origins must not include it.
pub(super) fn protect(response: &mut Response) {
    let headers = response.headers_mut();
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(CROSS_ORIGIN_RESOURCE_POLICY).or_insert(HeaderValue::from_static("same-origin"));
}

/// Whether a host is an IP address or a name that always means this machine.
fn is_plain(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
}

/// Rejects requests that a page of another origin caused. `alone`: only users of this machine can connect, and they
/// need no token. Then a page could rebind its own DNS name to this machine and have all their rights, so only plain
/// hosts are accepted.
pub(super) fn check(request: &Request, alone: bool) -> Result<(), Problem> {
    check_fetch_site(request)?;
    let host = host(request);
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        if authority.is_none() || authority != host.as_ref().map(Authority::as_str) {
            let message = format!(
                "a page of `{origin}` cannot send requests to this daemon: open the daemon's own page"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, ErrorCode::OtherOrigin, message));
        }
    }
    match host.as_ref().map(Authority::host) {
        Some(host) if alone && !is_plain(host) => {
            let message = format!(
                "this daemon serves its own machine, without tokens, so it rejects `{host}`, which may be a rebound DNS name: \
                 use 127.0.0.1 or localhost"
            );
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, ErrorCode::OtherHost, message))
        }
        // A more lenient parser, such as a browser's, might accept it as some name.
        None if alone => {
            let message = "the request has no valid `Host` header: use 127.0.0.1 or localhost";
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, ErrorCode::OtherHost, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn status_of(host: &str, origin: Option<&str>, alone: bool) -> u16 {
        let mut request = Request::builder().uri("/v1/locks").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Body::empty()).unwrap();
        check(&request, alone).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn requests_of_other_origins_are_rejected() {
        let page = Some("http://127.0.0.1:7422");
        assert_eq!(status_of("127.0.0.1:7422", None, true), 200);
        assert_eq!(status_of("127.0.0.1:7422", page, true), 200);
        assert_eq!(status_of("a:7422", Some("https://a:7422"), false), 200);
        for other in
            ["http://evil.example", "http://127.0.0.1:80", "http://127.0.0.1", "null", "", "127.0.0.1:7422"]
        {
            assert_eq!(status_of("127.0.0.1:7422", Some(other), true), 403, "{other}");
        }
    }

    fn status_with_headers(path: &str, headers: &[(&str, &str)], alone: bool) -> u16 {
        let request = Request::builder().uri(path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::empty()).unwrap();
        check(&request, alone).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn malformed_host_is_rejected_without_tokens() {
        for host in ["", "evil example", "evil.example:port", "[::1", "a@b@c", "evil.example/"] {
            assert_eq!(status_with_headers("/v1/locks", &[("host", host)], true), 421, "{host:?}");
        }
        assert_eq!(status_with_headers("/v1/locks", &[], true), 421, "no host at all");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status_with_headers("/v1/locks", &two, true), 421);
        assert_eq!(
            status_with_headers("/v1/locks", &[], false),
            200,
            "with tokens, the name does not matter"
        );
    }

    #[test]
    fn browsers_that_name_another_site_are_refused() {
        for (site, status) in
            [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("", 403)]
        {
            for alone in [true, false] {
                let headers = [("host", "localhost"), ("sec-fetch-site", site)];
                assert_eq!(status_with_headers("/v1/locks", &headers, alone), status, "{site}");
                assert_eq!(status_with_headers("/metrics", &headers, alone), status, "{site}");
                assert_eq!(status_with_headers("/", &headers, alone), 200, "a link to the page, {site}");
            }
        }
    }

    #[test]
    fn rebound_dns_name_is_rejected_on_loopback() {
        for (host, status) in [
            ("localhost:7422", 200),
            ("lk.localhost", 200),
            ("[::1]:7422", 200),
            ("10.0.0.1", 200),
            ("evil.example:7422", 421),
            ("localhost.evil.example", 421),
        ] {
            assert_eq!(status_of(host, None, true), status, "{host}");
            assert_eq!(
                status_of(host, None, false),
                200,
                "{host}: beyond this machine, names are as good as addresses"
            );
        }
    }
}
