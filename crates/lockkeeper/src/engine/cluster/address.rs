//! `lockkeeper://token:SECRET@a,b:7421,c?ca=FILE`: where the daemons are, and what to show them.

use super::stream::Stream;
use crate::Result;
use crate::engine::{bad_url, servers::Servers};
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

/// The daemons of a cluster.
pub(super) struct Daemons {
    /// Never empty.
    pub addresses: Vec<Address>,
    pub token: Option<String>,
    /// Whether the first is preferred; otherwise clients spread over all.
    pub in_order: bool,
    /// Whether a lock that nobody else wants may be kept for a moment after its release.
    pub keep: bool,
}

/// One daemon.
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
    pub async fn connect(&self, within: Duration) -> Result<Box<dyn Stream>, String> {
        match timeout(within, self.dial()).await {
            Err(_) => Err(format!("{self} does not answer")),
            Ok(Err(error)) => Err(format!("{self}: {error}")),
            Ok(Ok(stream)) => Ok(stream),
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
    pub fn parse(url: &str) -> Result<Daemons> {
        // `Operator::open` passes any URL on: `redis://localhost` must not become the daemon on localhost.
        if url.split_once(':').is_none_or(|(scheme, _)| scheme != super::NAME) {
            return Err(bad_url(
                url,
                "it does not name a lockkeeper daemon; write lockkeeper: for the daemon on this machine, \
                 or lockkeeper://HOST:PORT",
            ));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let options = Options::parse(url, query)?;
        let rest = address.split_once(':').map_or("", |(_, rest)| rest);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        if rest.starts_with('/') {
            let addresses = vec![Address::Unix(rest.into())];
            let token = options.token(None)?;
            return Ok(Daemons { addresses, token, in_order: true, keep: !options.keeps_nothing });
        }
        let host = if rest.is_empty() { "lockkeeper://127.0.0.1" } else { address };
        let servers = Servers::parse(host, lockkeeper_wire::PORT)?;
        if !servers.path.is_empty() {
            return Err(bad_url(
                url,
                "a path has no meaning after a host; a socket is lockkeeper:///run/lockkeeper/socket",
            ));
        }
        let tls = options.tls(url)?;
        let address = |host: String| {
            let tls = match &tls {
                None => None,
                Some(tls) => {
                    let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                    let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
                    let name = name.map_err(|_| {
                        bad_url(url, &format!("`{host}` is no name that a certificate can have"))
                    })?;
                    Some((tls.clone(), name))
                }
            };
            Ok(Address::Tcp { host, tls })
        };
        let addresses = servers.hosts.into_iter().map(address).collect::<Result<_>>()?;
        let token = options.token(servers.user.map(|(_, secret)| secret))?;
        Ok(Daemons { addresses, token, in_order: options.in_order, keep: !options.keeps_nothing })
    }
}

/// What follows the question mark: files, since none of it should be seen in a list of processes.
#[derive(Default)]
struct Options {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    in_order: bool,
    keeps_nothing: bool,
}

impl Options {
    fn parse(url: &str, query: &str) -> Result<Options> {
        let mut options = Options::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "ca" => &mut options.ca,
                "cert" => &mut options.cert,
                "key" => &mut options.key,
                "token-file" => &mut options.token_file,
                "in-order" => {
                    options.in_order = true;
                    continue;
                }
                "keep" => {
                    options.keeps_nothing = match value {
                        "no" => true,
                        "yes" => false,
                        _ => return Err(bad_url(url, "keep is yes or no")),
                    };
                    continue;
                }
                _ => {
                    let known = "ca, cert, key, token-file, in-order and keep";
                    return Err(bad_url(url, &format!("there is no option `{name}`; there are {known}")));
                }
            };
            *place = Some(value.into());
        }
        if options.cert.is_some() != options.key.is_some() || options.cert.is_some() && options.ca.is_none() {
            return Err(bad_url(
                url,
                "cert and key go together, and with the ca that the daemon's certificate is of",
            ));
        }
        Ok(options)
    }

    /// From the URL, a file, or the environment.
    fn token(&self, given: Option<String>) -> Result<Option<String>> {
        if let Some(file) = &self.token_file {
            let text =
                std::fs::read_to_string(file).map_err(|error| crate::Error::io("read", file, error))?;
            return Ok(Some(text.trim().to_owned()));
        }
        Ok(given.or_else(|| std::env::var("LOCKKEEPER_TOKEN").ok()))
    }

    fn tls(&self, url: &str) -> Result<Option<TlsConnector>> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let bad = |file: &Path, error: &dyn std::fmt::Display| {
            bad_url(url, &format!("{}: {error}", file.display()))
        };
        let read = |file: &Path| {
            let all = CertificateDer::pem_file_iter(file).map_err(|error| bad(file, &error))?;
            all.collect::<Result<Vec<_>, _>>().map_err(|error| bad(file, &error))
        };
        let mut roots = RootCertStore::empty();
        for certificate in read(ca)? {
            roots.add(certificate).map_err(|error| bad(ca, &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(ca, &error))?
            .with_root_certificates(roots);
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
                builder.with_client_auth_cert(read(cert)?, secret).map_err(|error| bad(cert, &error))?
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
    fn urls_name_daemons() {
        for (url, expected) in [
            ("lockkeeper:", "127.0.0.1:7421"),
            ("lockkeeper://", "127.0.0.1:7421"),
            ("lockkeeper://a,b:7,[::1]", "a:7421 b:7 [::1]:7421"),
            ("lockkeeper:///run/lk/socket", "/run/lk/socket"),
        ] {
            let daemons = Daemons::parse(url).unwrap();
            let all: Vec<String> = daemons.addresses.iter().map(Address::to_string).collect();
            assert_eq!(all.join(" "), expected, "{url}");
        }
        assert_eq!(Daemons::parse("lockkeeper://token:s%40@a").unwrap().token.as_deref(), Some("s@"));
    }

    #[test]
    fn mistakes_are_told() {
        for (url, part) in [
            ("lockkeeper://a/b", "a path has no meaning"),
            ("redis://localhost", "does not name a lockkeeper daemon"),
            ("redis:", "does not name a lockkeeper daemon"),
            ("localhost", "does not name a lockkeeper daemon"),
            ("lockkeepers://a", "does not name a lockkeeper daemon"),
            ("lockkeeper://a?x=1", "there is no option `x`"),
            ("lockkeeper://a?keep=maybe", "keep is yes or no"),
            ("lockkeeper://a?cert=c", "cert and key go together"),
            ("lockkeeper://a?ca=/nowhere", "/nowhere"),
            ("lockkeeper://a?token-file=/nowhere", "/nowhere"),
        ] {
            let error = Daemons::parse(url).err().unwrap().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
