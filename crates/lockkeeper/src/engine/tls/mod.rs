//! TLS for all engines with servers: rustls with ring, from the URL's options `ca`, `cert` and `key`.
//!
//! The server's certificate is always verified: against the certificates in the file of `ca`, or against the system's
//! authorities, and against the host's name or address in the URL. Errors of a handshake are sentences about what to
//! change: see [`explain`].

mod explain;
#[cfg(test)]
mod tests;

pub(crate) use self::explain::explain;
use super::options::UrlOptions;
use super::url::EngineUrl;
use crate::Result;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// The time limit of [`speaks_tls`] and of [`Tls::complaint`].
const PROBE: Duration = Duration::from_secs(1);

/// The longest file of certificates or of a key.
const LONGEST_FILE: u64 = 4 << 20;

/// The client's side of TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// The authorities that may have signed the server's certificate.
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub roots: Arc<RootCertStore>,
    /// The client's certificate.
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub identity: Option<Arc<Identity>>,
}

/// The client's certificate with its chain, and its private key, in PEM.
pub(crate) struct Identity {
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub certificate: Vec<u8>,
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub key: Vec<u8>,
}

impl Tls {
    /// Reads the files of the options `ca`, `cert` and `key`. Without `ca`, the system's authorities are trusted.
    pub fn of(url: &EngineUrl, options: &UrlOptions) -> Result<Tls> {
        let [ca, cert, key] = super::options::TLS;
        Tls::from_files(
            url,
            (ca, options.file(url, ca)?),
            (cert, options.file(url, cert)?),
            (key, options.file(url, key)?),
        )
    }

    /// The same, with the names of the options for messages.
    pub fn from_files(
        url: &EngineUrl,
        ca: (&str, Option<&Path>),
        cert: (&str, Option<&Path>),
        key: (&str, Option<&Path>),
    ) -> Result<Tls> {
        // The message leaves out the path, which the URL shows: a value that is not a path may be a misplaced secret.
        let bad = |option: &str, error: &dyn std::fmt::Display| {
            url.bad(format!("cannot use the file of its option `{option}`: {error}"))
        };
        let mut roots = RootCertStore::empty();
        match ca.1 {
            Some(file) => {
                let pem = read(file).map_err(|error| bad(ca.0, &error))?;
                for certificate in certificates(&pem).map_err(|error| bad(ca.0, &error))? {
                    roots.add(certificate).map_err(|error| bad(ca.0, &error))?;
                }
            }
            None => {
                // An unreadable file among many is no error: the certificates of the others may be enough.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(url.bad(format!(
                        "this machine trusts no certificate authority: install the package ca-certificates, or name \
                         the authority of the server with ?{}=FILE",
                        ca.0
                    )));
                }
            }
        }
        let roots = Arc::new(roots);
        let builder = builder().map_err(|error| bad(ca.0, &error))?.with_root_certificates(roots.clone());
        let (config, identity) = match (cert.1, key.1) {
            (None, None) => (builder.with_no_client_auth(), None),
            (Some(chain_file), Some(key_file)) => {
                let secret = lockkeeper_files::read_secret(key_file).map_err(|error| bad(key.0, &error))?;
                let der = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| bad(key.0, &error))?;
                let certificate = read(chain_file).map_err(|error| bad(cert.0, &error))?;
                let chain = certificates(&certificate).map_err(|error| bad(cert.0, &error))?;
                let config =
                    builder.with_client_auth_cert(chain, der).map_err(|error| bad(cert.0, &error))?;
                (config, Some(Arc::new(Identity { certificate, key: secret })))
            }
            _ => {
                return Err(url.bad(format!(
                    "{} and {} go together: the client's certificate and its private key",
                    cert.0, key.0
                )));
            }
        };
        Ok(Tls { config: Arc::new(config), roots, identity })
    }

    /// The settings for a client library that makes the connections itself. They may be cloned and completed, for
    /// example with protocols of ALPN.
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The reason for which TLS to `host:port` fails, if a new connection shows one: for client libraries that report only
    /// a broken connection.
    #[allow(dead_code, reason = "for the engines whose client libraries have TLS themselves")]
    pub async fn complaint(&self, host: &str) -> Option<String> {
        let server = self.to(host)?;
        let probe = async {
            let mut stream = dial(host, Some(&server)).await?;
            // With TLS 1.3, the server rejects the client's certificate after the handshake.
            stream.read_u8().await
        };
        match timeout(PROBE, probe).await {
            Ok(Err(error)) => explain(&error),
            Ok(Ok(_)) | Err(_) => None,
        }
    }

    /// The TLS of connections to one server, `host:port`. `None` if the host is no name that a certificate can have.
    pub fn to(&self, host: &str) -> Option<ServerTls> {
        let name = ServerName::try_from(host_name(host).to_owned()).ok()?;
        Some(ServerTls { connector: TlsConnector::from(self.config.clone()), name })
    }
}

/// The name or address in `host:port`, without brackets.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    name.trim_matches(['[', ']'])
}

/// The TLS of connections to one server.
#[derive(Clone)]
pub(crate) struct ServerTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

fn builder() -> std::result::Result<ConfigBuilder<ClientConfig, WantsVerifier>, tokio_rustls::rustls::Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(file)?, LONGEST_FILE), &mut bytes)?;
    Ok(bytes)
}

fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    match all.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate in PEM format")),
        false => Ok(all),
    }
}

/// A bidirectional byte stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to `host:port`, with TLS if it is given. The message of an error of TLS is a sentence.
pub(crate) async fn dial(host: &str, tls: Option<&ServerTls>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    match tls.connector.connect(tls.name.clone(), stream).await {
        Ok(stream) => Ok(Box::new(Explained(stream))),
        Err(error) => Err(explain::in_handshake(error)),
    }
}

/// A stream over TLS whose errors are sentences: with TLS 1.3, a client learns of the rejection of its certificate from
/// its first read.
struct Explained<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer).map_err(explain::explained)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explained<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map_err(explain::explained)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices).map_err(explain::explained)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context).map_err(explain::explained)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Whether the server at `host:port` answers a TLS handshake, with any certificate: for the error about a server that
/// did not understand a client without TLS.
#[allow(dead_code, reason = "for the engines that can be reached without TLS")]
pub(crate) async fn speaks_tls(host: &str) -> bool {
    let Ok(builder) = builder() else { return false };
    // With no authority, the handshake ends when the server has sent its certificate.
    let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let Ok(name) = ServerName::try_from(host_name(host).to_owned()) else { return false };
    let probe = async {
        let stream = TcpStream::connect(host).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(drop)
    };
    match timeout(PROBE, probe).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => explain::is_from_tls_server(&error),
        Err(_) => false,
    }
}
