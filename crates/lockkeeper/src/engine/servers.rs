//! `scheme://user:password@host:port,host:port/path?option=value`: the URLs of engines that have several servers.

use super::options::{UrlOptions, decoded};
use super::url::{EngineUrl, split_host};
use crate::Result;

/// The limit on hosts in a URL; no sensible ensemble has more.
const HOSTS_MAX: usize = 64;

/// The addresses of the servers and the credentials of the client.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    /// Each `host:port`.
    pub hosts: Vec<String>,
    pub login: Option<Login>,
    /// Empty or starting with a slash, never ending with one.
    pub path: String,
    pub options: UrlOptions,
}

/// The part of a URL before the `@`, decoded.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// The user; empty for the user by default: `redis://:password@host`.
    pub user: String,
    pub password: Option<String>,
}

impl Servers {
    /// Parses a URL; `port` is the default port, and `options` are those that the engine knows. No error quotes a part
    /// of the URL, as it may be a part of a password.
    pub fn parse(url: &EngineUrl, port: u16, options: &[&'static str]) -> Result<Servers> {
        let rest = url.expose().split_once("://").map(|(_, rest)| rest);
        let rest = rest.ok_or_else(|| url.bad("it lacks `//` and a host after the scheme"))?;
        if rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(url.bad("it contains white space or a control character"));
        }
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('#') {
            return Err(url.bad("`#…` has no meaning here (a `#` in a password is %23)"));
        }
        let options = UrlOptions::parse(url, query, options)?;
        let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(parse_login(url, login)?), hosts),
            None => (None, authority),
        };
        let hosts: Vec<String> =
            hosts.split(',').map(|host| parse_host(url, host, port)).collect::<Result<_>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(url.bad(format!("it names more than {HOSTS_MAX} hosts")));
        }
        Ok(Servers { hosts, login, path: path.trim_end_matches('/').into(), options })
    }

    /// The user and the password, for an engine whose users have names. The password may be in the file that the
    /// option `password-file` names, and both may be in the environment.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "zookeeper")),
        allow(dead_code, reason = "for the engines whose users have names")
    )]
    pub fn user(&self, url: &EngineUrl, environment: Option<Login>) -> Result<Option<(String, String)>> {
        let (named, from_environment) = match (&self.login, environment) {
            // The password of another user is not sent to this server.
            (Some(login), Some(environment)) => {
                let is_theirs = environment.user.is_empty() || environment.user == login.user;
                (login.clone(), environment.password.filter(|_| is_theirs))
            }
            (Some(login), None) => (login.clone(), None),
            (None, Some(environment)) => {
                (Login { password: None, ..environment.clone() }, environment.password)
            }
            (None, None) => match self.options.get(super::options::PASSWORD_FILE) {
                Some(_) => return Err(url.bad("it has a password-file and no user; write user@host")),
                None => return Ok(None),
            },
        };
        if named.user.is_empty() {
            return Err(url.bad("the user's name is empty"));
        }
        match self.options.password(url, named.password, from_environment)? {
            Some(password) => Ok(Some((named.user, password))),
            None => Err(url.bad(
                "it names a user without a password; write user:password@host, or user@host and ?password-file=FILE",
            )),
        }
    }
}

fn parse_login(url: &EngineUrl, login: &str) -> Result<Login> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let decode = |part: &str| {
        decoded(part).ok_or_else(|| url.bad("user or password is not valid percent-encoded UTF-8"))
    };
    Ok(Login { user: decode(user)?, password: password.map(decode).transpose()? })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, password: Option<&str>) -> Option<Login> {
        Some(Login { user: user.into(), password: password.map(String::from) })
    }

    #[test]
    fn urls_are_parsed() {
        let parsed = Servers::parse(&"etcd://me:p%40s@s@a,b:1,[::1]:2,[::2]/x/y/?ca=f".into(), 9, &["ca"]);
        let parsed = parsed.unwrap();
        assert_eq!(parsed.hosts, ["a:9", "b:1", "[::1]:2", "[::2]:9"]);
        assert!(parsed.login == login("me", Some("p@s@s")));
        assert_eq!(parsed.path, "/x/y");
        assert_eq!(parsed.options.get("ca"), Some("f"));
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
            ("etcd://a?x=1", "the options are ca"),
            ("etcd://a#x", "`#…` has no meaning"),
        ] {
            let url = EngineUrl::from(url);
            let parsed = Servers::parse(&url, 1, &["ca"]).and_then(|servers| servers.user(&url, None));
            let error = parsed.unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
        let error = Servers::parse(&"etcd://me:secret@a:x".into(), 1, &[]).err().unwrap().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn user_and_password_are_from_the_url_or_from_the_environment() {
        let user = |url: &str, environment: Option<Login>| {
            let url = EngineUrl::from(url);
            Servers::parse(&url, 1, &["password-file"]).unwrap().user(&url, environment)
        };
        let some = |name: &str, password: &str| Some((String::from(name), String::from(password)));
        let environment = || login("env", Some("e"));
        assert_eq!(user("etcd://a", None).unwrap(), None);
        assert_eq!(user("etcd://a", environment()).unwrap(), some("env", "e"));
        assert_eq!(user("etcd://me:p@a", environment()).unwrap(), some("me", "p"));
        assert_eq!(user("etcd://env@a", environment()).unwrap(), some("env", "e"));
        assert_eq!(user("etcd://me@a", login("", Some("e"))).unwrap(), some("me", "e"));
        let of_another_user = user("etcd://me@a", environment()).unwrap_err();
        assert!(of_another_user.to_string().contains("without a password"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "f\n").unwrap();
        let query = format!("?password-file={}", file.path().display());
        assert_eq!(user(&format!("etcd://me@a{query}"), environment()).unwrap(), some("me", "f"));
        assert!(user(&format!("etcd://a{query}"), None).unwrap_err().to_string().contains("no user"));
        assert!(user(&format!("etcd://me:p@a{query}"), None).unwrap_err().to_string().contains("leave one"));
    }
}
