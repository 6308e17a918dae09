//! `scheme://user:password@host:port,host:port/path`: the URLs of engines that have several servers.

use super::url::{EngineUrl, split_host};
use crate::Result;

/// The limit on hosts in a URL; no sensible ensemble has more.
const HOSTS_MAX: usize = 64;

/// The addresses of the servers and the credentials of the client.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Servers {
    /// Each `host:port`.
    pub hosts: Vec<String>,
    pub user: Option<(String, String)>,
    /// Empty or starting with a slash, never ending with one.
    pub path: String,
}

impl Servers {
    /// Parses a URL; `port` is the default port. No error quotes a part of the URL, as it may be a part of a
    /// password.
    pub fn parse(url: &EngineUrl, port: u16) -> Result<Servers> {
        let rest = url.expose().split_once("://").map(|(_, rest)| rest);
        let rest = rest.ok_or_else(|| url.bad("it lacks `//` and a host after the scheme"))?;
        if rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(url.bad("it contains white space or a control character"));
        }
        if let Some(odd) = rest.find(['?', '#']) {
            let odd = &rest[odd..=odd];
            return Err(url.bad(format!("`{odd}…` has no meaning here (%XX in a password)")));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(url, user)?), hosts),
            None => (None, authority),
        };
        let hosts: Vec<String> =
            hosts.split(',').map(|host| parse_host(url, host, port)).collect::<Result<_>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(url.bad(format!("it names more than {HOSTS_MAX} hosts")));
        }
        Ok(Servers { hosts, user, path: path.trim_end_matches('/').into() })
    }
}

fn parse_user(url: &EngineUrl, user: &str) -> Result<(String, String)> {
    let (name, password) = user
        .split_once(':')
        .ok_or_else(|| url.bad("it names a user without a password; write user:password@host"))?;
    let decode = |part: &str| {
        decoded(part).ok_or_else(|| url.bad("user or password is not valid percent-encoded UTF-8"))
    };
    match name.is_empty() {
        true => Err(url.bad("the user's name is empty")),
        false => Ok((decode(name)?, decode(password)?)),
    }
}

fn parse_host(url: &EngineUrl, host: &str, default_port: u16) -> Result<String> {
    match split_host(host) {
        Some(("", _)) => Err(url.bad("a host is empty; write host:port,host:port")),
        Some((name, port)) => Ok(format!("{name}:{}", port.unwrap_or(default_port))),
        None => Err(url.bad(
            "a part of it is no host:port: the port is a number from 1 to 65535, a host has letters, digits, `.`, `-` and `_`, \
             an IPv6 address stands in [brackets], and a password or token stands before the host, as in user:password@host",
        )),
    }
}

/// Decodes percent-encoding: `%40` is `@`.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let parsed = Servers::parse(&"etcd://me:p%40s@s@a,b:1,[::1]:2,[::2]/x/y/".into(), 9).unwrap();
        assert_eq!(parsed.hosts, ["a:9", "b:1", "[::1]:2", "[::2]:9"]);
        assert_eq!(parsed.user, Some(("me".into(), "p@s@s".into())));
        assert_eq!(parsed.path, "/x/y");
    }

    #[test]
    fn each_invalid_url_is_rejected_with_its_own_message() {
        for (url, part) in [
            ("etcd:a", "lacks `//`"),
            ("etcd://", "host is empty"),
            ("etcd://a,,b", "host is empty"),
            ("etcd://a:0", "number from 1"),
            ("etcd://a:99999", "number from 1"),
            ("etcd://a:b:1", "IPv6"),
            ("etcd://me@a", "without a password"),
            ("etcd://:p@a", "name is empty"),
            ("etcd://a:%zz@b", "percent-encoded"),
            ("etcd://a b", "white space"),
            ("etcd://a?x=1", "`?…` has no meaning"),
        ] {
            let error = Servers::parse(&url.into(), 1).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
        let error = Servers::parse(&"etcd://me:secret@a:x".into(), 1).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
