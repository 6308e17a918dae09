//! [`EngineUrl`]: the URL of an engine, which may contain a password or a token.
//!
//! Every error and every log shows a URL through this type, also a malformed one. A part is shown only if it is where
//! a scheme, a host, a port, a path or a harmless option belongs, *and* looks like one.

use crate::{Error, Result};
use std::fmt;

/// Options whose values are shown. All others may be secrets.
const HARMLESS: [&str; 11] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "in-order",
    "insecure-no-tls",
    "keep",
    "shared",
    "ssl-mode",
    "sslmode",
    "target_session_attrs",
    "unfenced",
];

/// Options whose value is a file name. A value that does not look like a path may be the secret itself, put in the
/// wrong place.
const FILES: [&str; 12] = [
    "ca",
    "cert",
    "key",
    "passfile",
    "password-file",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "token-file",
];

/// The longest name of an unknown option that is shown: a longer one may be a secret.
const LONGEST_OPTION: usize = 24;

/// Tokens begin with this, followed by hexadecimal digits.
const TOKEN_PREFIX: &str = "lk_";

/// The replacement for a secret.
const HIDDEN: &str = "***";

/// The URL of an engine, such as `redis://user:password@host:6379/0`.
///
/// `Display` and `Debug` hide everything that may be a secret, also in a malformed URL. Only [`expose`](Self::expose)
/// returns the URL as it was given.
///
/// ```
/// let url = lockkeeper::EngineUrl::from("redis://u:se/cret@h/0?password=x");
/// assert_eq!(url.to_string(), "redis://***@h/0?password=***");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(String);

impl EngineUrl {
    /// The URL as it was given, with its secrets.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The scheme: the part before the first colon.
    pub fn scheme(&self) -> Option<&str> {
        self.0.split_once(':').map(|(scheme, _)| scheme)
    }

    /// Creates an error about this URL. The reason must not quote parts of it: the URL is shown beside it, without
    /// its secrets.
    pub(crate) fn bad(&self, reason: impl Into<String>) -> Error {
        Error::BadUrl { url: self.clone(), reason: reason.into() }
    }

    /// Rejects a URL with an `@` after the first `/`, `?` or `#` of its address: a parser would take a part of the
    /// password for a host, a path or an option, send it to a name server, and show it in errors.
    pub(crate) fn refuse_ambiguous(&self) -> Result<()> {
        if self.scheme() == Some("file") {
            return Ok(());
        }
        let (_, rest) = split_scheme(&self.0);
        let ambiguous = match rest.find(['/', '?', '#']) {
            None => false,
            // The path of a socket may contain `@`; one with a colon before it looks like `user:password@`.
            Some(0) if rest.starts_with('/') => {
                rest.split_once(':').is_some_and(|(_, after)| after.contains('@'))
            }
            Some(end) => rest[end..].contains('@'),
        };
        match ambiguous {
            false => Ok(()),
            true => Err(self.bad(
                "there is an `@` after the host; if the password has a `/`, `?`, `#` or `@`, write %2F, %3F, %23 or %40, \
                 and write %40 for an `@` in a path or an option",
            )),
        }
    }

    fn redacted(&self) -> String {
        let (scheme, rest) = split_scheme(&self.0);
        if scheme.is_empty() {
            // Without a scheme the text may be anything, for example a token in the wrong variable.
            return if rest.is_empty() { String::new() } else { HIDDEN.into() };
        }
        // Any `@` may be the one that ends the password, which may itself contain `/`, `?`, `#` and `@`. An encoded
        // `@` may be a mistake.
        let (hidden, shown) = match rest.rfind('@').max(rest.rfind("%40").map(|at| at + 2)) {
            Some(at) => ("***@", &rest[at + 1..]),
            None => ("", rest),
        };
        let (address, options) = match shown.split_once('?') {
            Some((address, options)) => (address, format!("?{}", redact_options(options))),
            None => (shown, String::new()),
        };
        // No engine uses a fragment.
        let (address, fragment) = match address.split_once('#') {
            Some((address, _)) => (address, "#***"),
            None => (address, ""),
        };
        if !has_plain_hosts(address) {
            return format!("{scheme}{HIDDEN}");
        }
        let shown = format!("{scheme}{hidden}{address}{fragment}{options}");
        escape_controls(&redact_tokens(&shown))
    }
}

impl From<&str> for EngineUrl {
    fn from(url: &str) -> Self {
        Self(url.into())
    }
}

impl From<String> for EngineUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&String> for EngineUrl {
    fn from(url: &String) -> Self {
        Self(url.clone())
    }
}

impl From<&EngineUrl> for EngineUrl {
    fn from(url: &EngineUrl) -> Self {
        url.clone()
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineUrl({:?})", self.redacted())
    }
}

/// Hides the secrets of URLs and tokens in a text: for messages of libraries that quote their input.
///
/// ```
/// assert_eq!(lockkeeper::redact("unexpected 'redis://u:secret@h' found"), "unexpected 'redis://***@h' found");
/// ```
pub fn redact(text: &str) -> String {
    const QUOTES: [char; 5] = ['\'', '"', '`', '<', '>'];
    // A password may contain white space, so everything up to the last `@` is hidden.
    let hidden = text.split_once("://").and_then(|(before, after)| {
        let at = after.rfind('@').max(after.rfind("%40").map(|at| at + 2))?;
        Some(format!("{before}://{HIDDEN}@{}", &after[at + 1..]))
    });
    let text = hidden.as_deref().unwrap_or(text);
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let (open, rest) = word.split_at(word.len() - word.trim_start_matches(QUOTES).len());
        let url = rest.trim_end_matches(QUOTES);
        // `redis:u:secret@h` is a malformed URL.
        let is_url = url.contains("://")
            || !split_scheme(url).0.is_empty()
            || url.split_once(':').is_some_and(|(_, after)| after.contains('@'));
        shown += open;
        match is_url {
            true => shown += &EngineUrl::from(url).to_string(),
            false => shown += &redact_tokens(url),
        }
        shown += &rest[url.len()..];
        shown += &piece[word.len()..];
    }
    shown
}

/// Splits a URL into the scheme with its separator, and the rest. The scheme is empty if that part may be something
/// else.
fn split_scheme(url: &str) -> (&str, &str) {
    let Some(colon) = url.find(':') else { return ("", url) };
    let (scheme, after) = (&url[..colon], &url[colon + 1..]);
    let slashes = after.starts_with("//");
    let plain = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // The scheme of an engine is shown even without `//`: `redis:u:secret@h` is a malformed URL of Redis.
    let known = super::SCHEMES.iter().any(|(known, _)| *known == scheme);
    match known || plain && slashes {
        false => ("", url),
        true => url.split_at(colon + 1 + if slashes { 2 } else { 0 }),
    }
}

/// Whether an address, `host:port,host:port/path`, has only hosts and ports before its path. Otherwise these, and the
/// path, may be parts of a password: `redis://u:se/cret` has no host.
fn has_plain_hosts(address: &str) -> bool {
    let authority = address.split('/').next().unwrap_or_default();
    authority.is_empty() || authority.split(',').all(|host| split_host(host).is_some())
}

/// The name and the port of `host:port` or `[address]:port`; `None` if it is not of this form, or looks like a token.
pub(super) fn split_host(host: &str) -> Option<(&str, Option<u16>)> {
    // A colon inside brackets belongs to an IPv6 address.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let port = match port {
        Some(port) if !port.bytes().all(|byte| byte.is_ascii_digit()) => return None,
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None => None,
    };
    let plain = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => {
            inner.contains(':') && inner.chars().all(|c| c.is_ascii_alphanumeric() || ":.%-".contains(c))
        }
        None => name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    (plain && !name.starts_with(TOKEN_PREFIX)).then_some((name, port))
}

fn redact_options(options: &str) -> String {
    let shown = options.split('&').map(|option| {
        let Some((name, value)) = option.split_once('=') else {
            return if HARMLESS.contains(&option) { option.into() } else { HIDDEN.into() };
        };
        let file = FILES.contains(&name) && value.contains(['/', '.']);
        if (file || HARMLESS.contains(&name)) && !value.contains([';', '#', '?']) {
            return option.into();
        }
        // `?c2VjcmV0=` is a secret that ends with `=`.
        let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b'_');
        match plain && name.len() <= LONGEST_OPTION && !value.is_empty() {
            true => format!("{name}={HIDDEN}"),
            false => HIDDEN.into(),
        }
    });
    shown.collect::<Vec<String>>().join("&")
}

/// Hides tokens created by `lockkeeper token`: `lk_` and hexadecimal digits, anywhere in the text.
fn redact_tokens(text: &str) -> String {
    let mut parts = text.split(TOKEN_PREFIX);
    let mut shown = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        shown += TOKEN_PREFIX;
        shown += if digits >= 8 { HIDDEN } else { &part[..digits] };
        shown += &part[digits..];
    }
    shown
}

fn escape_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() }).collect()
}

#[cfg(test)]
mod tests;
