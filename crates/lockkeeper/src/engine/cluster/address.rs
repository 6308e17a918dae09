//! The URL `lockkeeper://token:SECRET@a,b:7421,c?ca=FILE`: addresses of the daemons, and credentials.

use super::stream::ConnectError;
use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::UrlOptions;
use crate::engine::servers::Servers;
use crate::engine::tls::{ServerTls, Stream, Tls, dial, host_name};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The options of a URL. Secrets are in files, so that they do not show up in a list of processes.
const OPTIONS: [&str; 7] = ["ca", "cert", "key", "token-file", "in-order", "keep", "insecure-no-tls"];

/// The daemons of a cluster, and the options of the connection.
pub(super) struct Daemons {
    /// The addresses; never empty.
    pub addresses: Vec<Address>,
    pub token: Option<String>,
    /// Whether the first daemon is preferred. Otherwise clients spread over all daemons.
    pub in_order: bool,
    /// Whether the client accepts delegations: an uncontended lock may stay with it for a short time after its
    /// release.
    pub delegation: bool,
}

/// The address of one daemon.
#[derive(Clone)]
pub(super) enum Address {
    Tcp { host: String, tls: Option<ServerTls> },
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, .. } => f.write_str(host),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    pub async fn connect(&self, within: Duration) -> Result<Box<dyn Stream>, ConnectError> {
        match timeout(within, self.dial()).await {
            Err(_) => Err(ConnectError::Timeout { address: self.to_string() }),
            Ok(dialled) => {
                dialled.map_err(|source| ConnectError::Broken { address: self.to_string(), source })
            }
        }
    }

    /// Whether others can read the traffic: it leaves this machine without TLS.
    fn is_exposed(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Tcp { tls: Some(_), .. } => false,
            Self::Tcp { host, tls: None } => {
                let name = host_name(host);
                match name.parse::<IpAddr>() {
                    Ok(address) => !address.to_canonical().is_loopback(),
                    Err(_) => !name.eq_ignore_ascii_case("localhost"),
                }
            }
        }
    }

    async fn dial(&self) -> std::io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Tcp { host, tls } => dial(host, tls.as_ref()).await,
        }
    }
}

impl Daemons {
    pub fn parse(url: &EngineUrl) -> Result<Daemons> {
        // `Operator::open` accepts any URL, so the scheme is checked here: `redis://localhost` must not mean the
        // daemon on localhost.
        if url.scheme() != Some(super::NAME) {
            return Err(url.bad(
                "it does not name a lockkeeper daemon; write lockkeeper: for the daemon on this machine, \
                 or lockkeeper://HOST:PORT",
            ));
        }
        url.refuse_ambiguous()?;
        let text = url.expose();
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let options = UrlOptions::parse(url, query, &OPTIONS)?;
        let tls = tls_of(url, &options)?;
        let delegation = match options.get("keep") {
            None | Some("yes") => true,
            Some("no") => false,
            Some(_) => return Err(url.bad("keep is yes or no")),
        };
        let in_order = options.flag(url, "in-order")?;
        let rest = address.split_once(':').map_or("", |(_, rest)| rest);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        if rest.starts_with('/') {
            let addresses = vec![Address::Unix(rest.into())];
            let token = token(url, &options, None)?;
            return Ok(Daemons { addresses, token, in_order: true, delegation });
        }
        let host = if rest.is_empty() { "lockkeeper://127.0.0.1" } else { address };
        let host = EngineUrl::from(host);
        let servers = Servers::parse(&host, lockkeeper_session::protocol::PORT, &[])?;
        if !servers.path.is_empty() {
            return Err(url
                .bad("a path has no meaning after a host; a socket is lockkeeper:///run/lockkeeper/socket"));
        }
        let secret = servers.user(&host, None)?.map(|(_, secret)| secret);
        let address = |host: String| {
            let to = |tls: &Tls| {
                tls.to(&host).ok_or_else(|| url.bad("a host is no name that a certificate can have"))
            };
            let tls = tls.as_ref().map(to).transpose()?;
            Ok(Address::Tcp { host, tls })
        };
        let addresses: Vec<Address> = servers.hosts.into_iter().map(address).collect::<Result<_>>()?;
        let token = token(url, &options, secret)?;
        let insecure = options.flag(url, "insecure-no-tls")?;
        if token.is_some() && !insecure && addresses.iter().any(Address::is_exposed) {
            return Err(url.bad(
                "the token would go over the network unencrypted: add ?ca=FILE with the authority's certificate, or \
                 ?insecure-no-tls if the network is trusted",
            ));
        }
        Ok(Daemons { addresses, token, in_order, delegation })
    }
}

/// The token, from a file, the URL, or the environment.
fn token(url: &EngineUrl, options: &UrlOptions, given: Option<String>) -> Result<Option<String>> {
    let file = options.secret(url, "token-file")?;
    Ok(file.or(given).or_else(|| std::env::var("LOCKKEEPER_TOKEN").ok()))
}

/// TLS is in use if the authority of the daemons is given.
fn tls_of(url: &EngineUrl, options: &UrlOptions) -> Result<Option<Tls>> {
    let given = |name: &str| options.get(name).is_some();
    match (given("ca"), given("cert"), given("key")) {
        (false, false, false) => Ok(None),
        (true, ..) => Tls::of(url, options).map(Some),
        (false, ..) => {
            Err(url.bad("cert and key go together, and with the ca that the daemon's certificate is of"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_into_daemon_addresses() {
        for (url, expected) in [
            ("lockkeeper:", "127.0.0.1:7421"),
            ("lockkeeper://", "127.0.0.1:7421"),
            ("lockkeeper://a,b:7,[::1]", "a:7421 b:7 [::1]:7421"),
            ("lockkeeper:///run/lk/socket", "/run/lk/socket"),
        ] {
            let daemons = Daemons::parse(&url.into()).unwrap();
            let all: Vec<String> = daemons.addresses.iter().map(Address::to_string).collect();
            assert_eq!(all.join(" "), expected, "{url}");
        }
        let daemons = Daemons::parse(&"lockkeeper://token:s%40@127.0.0.1".into()).unwrap();
        assert_eq!(daemons.token.as_deref(), Some("s@"));
    }

    #[test]
    fn invalid_urls_are_rejected_with_a_reason() {
        for (url, part) in [
            ("lockkeeper://a/b", "a path has no meaning"),
            ("redis://localhost", "does not name a lockkeeper daemon"),
            ("redis:", "does not name a lockkeeper daemon"),
            ("localhost", "does not name a lockkeeper daemon"),
            ("lockkeepers://a", "does not name a lockkeeper daemon"),
            ("lockkeeper://a?x=1", "an unknown option"),
            ("lockkeeper://a?keep=maybe", "keep is yes or no"),
            ("lockkeeper://a?cert=c", "cert and key go together"),
            ("lockkeeper://a?ca=/nowhere", "/nowhere"),
            ("lockkeeper://a?token-file=/nowhere", "/nowhere"),
        ] {
            let error = Daemons::parse(&url.into()).err().unwrap().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn tokens_leave_this_machine_only_with_tls_or_on_request() {
        for url in [
            "lockkeeper://token:s@127.0.0.1",
            "lockkeeper://token:s@127.0.0.2:1,[::1]:2,[::ffff:127.0.0.1],localhost",
            "lockkeeper://token:s@10.0.0.1,a?insecure-no-tls",
            "lockkeeper://10.0.0.1,a",
        ] {
            assert!(Daemons::parse(&url.into()).is_ok(), "{url}");
        }
        for url in [
            "lockkeeper://token:s@10.0.0.1",
            "lockkeeper://token:s@127.0.0.1,a",
            "lockkeeper://token:s@localhost.example",
            "lockkeeper://token:s@[::]",
        ] {
            let error = Daemons::parse(&url.into()).err().expect(url).to_string();
            assert!(error.contains("unencrypted") && error.contains("insecure-no-tls"), "{url}: {error}");
        }
    }

    #[test]
    fn token_files_that_other_users_can_read_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s\n").unwrap();
        let url = format!("lockkeeper:?token-file={}", file.path().display()).into();
        assert_eq!(Daemons::parse(&url).unwrap().token.as_deref(), Some("s"));
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let error = Daemons::parse(&url).err().unwrap().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}
