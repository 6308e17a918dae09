//! What browsers are let do: the daemon's own page may ask, and pages of others may not, wherever they make the browser believe that they are from.

use super::problem::Problem;
use axum::extract::Request;
use axum::http::{StatusCode, header, uri::Authority};
use std::net::IpAddr;

/// To whom a request is addressed: a URI has it in HTTP/2, a header in HTTP/1.
fn host(request: &Request) -> Option<Authority> {
    let of_uri = request.uri().authority().cloned();
    of_uri.or_else(|| request.headers().get(header::HOST)?.to_str().ok()?.parse().ok())
}

/// Whether a name can mean nothing but this machine, or an address.
fn is_plain(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
}

/// Refuses what the page of another origin makes a browser ask. `alone`: nobody but this machine's users can connect, and none of them needs a token, so that
/// a page whose name has been made to mean this machine would be as good as they are.
pub(super) fn check(request: &Request, alone: bool) -> Result<(), Problem> {
    let host = host(request);
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        if authority.is_none() || authority != host.as_ref().map(Authority::as_str) {
            let message = format!("a page of `{origin}` cannot ask this daemon: open the daemon's own page");
            return Err(Problem::new(StatusCode::FORBIDDEN, "other_origin", message));
        }
    }
    match host.as_ref().map(Authority::host) {
        Some(host) if alone && !is_plain(host) => {
            let message = format!(
                "this daemon serves its own machine, without tokens, and `{host}` may be somebody's name for it: \
                 ask for 127.0.0.1 or localhost"
            );
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "other_host", message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn ask(host: &str, origin: Option<&str>, alone: bool) -> u16 {
        let mut request = Request::builder().uri("/v1/locks").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Body::empty()).unwrap();
        check(&request, alone).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn other_origins_cannot_ask() {
        let page = Some("http://127.0.0.1:7422");
        assert_eq!(ask("127.0.0.1:7422", None, true), 200);
        assert_eq!(ask("127.0.0.1:7422", page, true), 200);
        assert_eq!(ask("a:7422", Some("https://a:7422"), false), 200);
        for other in
            ["http://evil.example", "http://127.0.0.1:80", "http://127.0.0.1", "null", "", "127.0.0.1:7422"]
        {
            assert_eq!(ask("127.0.0.1:7422", Some(other), true), 403, "{other}");
        }
    }

    #[test]
    fn a_name_that_was_made_to_mean_this_machine_is_refused() {
        for (host, status) in [
            ("localhost:7422", 200),
            ("lk.localhost", 200),
            ("[::1]:7422", 200),
            ("10.0.0.1", 200),
            ("evil.example:7422", 421),
            ("localhost.evil.example", 421),
        ] {
            assert_eq!(ask(host, None, true), status, "{host}");
            assert_eq!(
                ask(host, None, false),
                200,
                "{host}: beyond this machine, names are as good as addresses"
            );
        }
    }
}
