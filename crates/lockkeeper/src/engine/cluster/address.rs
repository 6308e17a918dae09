//! The URL `lockkeeper://token:SECRET@a,b:7421,c?ca=FILE`: addresses of the daemons, and credentials.

use super::stream::{ConnectError, Stream};
use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::servers::{Servers, decoded};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The daemons of a cluster, and the options of the connection.
pub(super) struct Daemons {
    /// The addresses; never empty.
    pub addresses: Vec<Address>,
    pub token: Option<String>,
    /// Whether the first daemon is preferred. Otherwise clients spread over all daemons.
    pub in_order: bool,
    /// Whether the client accepts delegations: an uncontended lock may stay with it for a short time after its
    /// release.
    pub keep: bool,
}

/// The address of one daemon.
#[derive(Clone)]
pub(super) enum Address {
    Tcp { host: String, tls: Option<(TlsConnector, ServerName<'static>)> },
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
                let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                let name = name.trim_matches(['[', ']']);
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
            Self::Tcp { host, tls } => {
                let stream = TcpStream::connect(host).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Ok(Box::new(stream)),
                    Some((tls, name)) => Ok(Box::new(tls.connect(name.clone(), stream).await?)),
                }
            }
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
        let options = Options::parse(url, query)?;
        let rest = address.split_once(':').map_or("", |(_, rest)| rest);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        if rest.starts_with('/') {
            let addresses = vec![Address::Unix(rest.into())];
            let token = options.token(url, None)?;
            return Ok(Daemons { addresses, token, in_order: true, keep: !options.keeps_nothing });
        }
        let host = if rest.is_empty() { "lockkeeper://127.0.0.1" } else { address };
        let servers = Servers::parse(&host.into(), lockkeeper_session::protocol::PORT)?;
        if !servers.path.is_empty() {
            return Err(url
                .bad("a path has no meaning after a host; a socket is lockkeeper:///run/lockkeeper/socket"));
        }
        let tls = options.tls(url)?;
        let address = |host: String| {
            let tls = match &tls {
                None => None,
                Some(tls) => {
                    let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                    let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
                    let name = name.map_err(|_| url.bad("a host is no name that a certificate can have"))?;
                    Some((tls.clone(), name))
                }
            };
            Ok(Address::Tcp { host, tls })
        };
        let addresses: Vec<Address> = servers.hosts.into_iter().map(address).collect::<Result<_>>()?;
        let token = options.token(url, servers.user.map(|(_, secret)| secret))?;
        if token.is_some() && !options.insecure_no_tls && addresses.iter().any(Address::is_exposed) {
            return Err(url.bad(
                "the token would go over the network unencrypted: add ?ca=FILE with the authority's certificate, or \
                 ?insecure-no-tls if the network is trusted",
            ));
        }
        Ok(Daemons { addresses, token, in_order: options.in_order, keep: !options.keeps_nothing })
    }
}

/// The options after the question mark. Secrets are in files, so that they do not show up in a list of processes.
#[derive(Default)]
struct Options {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    in_order: bool,
    keeps_nothing: bool,
    insecure_no_tls: bool,
}

impl Options {
    fn parse(url: &EngineUrl, query: &str) -> Result<Options> {
        let mut options = Options::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let location = match name {
                "ca" => &mut options.ca,
                "cert" => &mut options.cert,
                "key" => &mut options.key,
                "token-file" => &mut options.token_file,
                "in-order" => {
                    options.in_order = true;
                    continue;
                }
                "insecure-no-tls" => {
                    options.insecure_no_tls = true;
                    continue;
                }
                "keep" => {
                    options.keeps_nothing = match value {
                        "no" => true,
                        "yes" => false,
                        _ => return Err(url.bad("keep is yes or no")),
                    };
                    continue;
                }
                _ => {
                    return Err(url.bad(
                        "it has an unknown option; the options are ca, cert, key, token-file, in-order, keep and insecure-no-tls",
                    ));
                }
            };
            let value = decoded(value)
                .ok_or_else(|| url.bad(format!("`{name}` is not valid percent-encoded UTF-8")))?;
            *location = Some(value.into());
        }
        if options.cert.is_some() != options.key.is_some() || options.cert.is_some() && options.ca.is_none() {
            return Err(
                url.bad("cert and key go together, and with the ca that the daemon's certificate is of")
            );
        }
        Ok(options)
    }

    /// The token, from the URL, a file, or the environment.
    fn token(&self, url: &EngineUrl, given: Option<String>) -> Result<Option<String>> {
        if let Some(file) = &self.token_file {
            let token = lockkeeper_files::read_secret_text(file);
            return token.map(Some).map_err(|error| url.bad(format!("cannot read its token-file: {error}")));
        }
        Ok(given.or_else(|| std::env::var("LOCKKEEPER_TOKEN").ok()))
    }

    fn tls(&self, url: &EngineUrl) -> Result<Option<TlsConnector>> {
        let Some(ca) = &self.ca else { return Ok(None) };
        // The message leaves out the path, which the URL shows: a value that is not a path may be a misplaced secret.
        let bad = |option: &str, error: &dyn std::fmt::Display| {
            url.bad(format!("cannot use the file of its option `{option}`: {error}"))
        };
        let read = |option: &str, file: &Path| {
            let all = CertificateDer::pem_file_iter(file).map_err(|error| bad(option, &error))?;
            all.collect::<Result<Vec<_>, _>>().map_err(|error| bad(option, &error))
        };
        let mut roots = RootCertStore::empty();
        for certificate in read("ca", ca)? {
            roots.add(certificate).map_err(|error| bad("ca", &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("ca", &error))?
            .with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let pem = lockkeeper_files::read_secret(key).map_err(|error| bad("key", &error))?;
                let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad("key", &error))?;
                let chain = read("cert", cert)?;
                builder.with_client_auth_cert(chain, secret).map_err(|error| bad("cert", &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
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
