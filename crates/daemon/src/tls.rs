//! TLS for clients: the daemon presents a certificate and may require one.

use crate::config::ClientTls;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::VerifierBuilderError;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// The reason why the certificates for clients cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientTlsError {
    /// The file of the private key cannot be read, or other users can read it.
    #[error("cannot use the private key {path}: {source}")]
    KeyFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system, or the problem of the file's mode.
        source: std::io::Error,
    },
    /// The file contains no private key.
    #[error("there is no private key in {path}: {source}")]
    NoKey {
        /// The path of the file.
        path: PathBuf,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// A file of certificates cannot be read.
    #[error("cannot read certificates in {path}: {source}")]
    Certificates {
        /// The path of the file.
        path: PathBuf,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// A file contains no certificate.
    #[error("cannot read certificates in {path}: there is none")]
    NoCertificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// A certificate of the clients' authority cannot be used.
    #[error("{path}: {source}")]
    Authority {
        /// The path of the file.
        path: PathBuf,
        /// The defect of the certificate.
        source: rustls::Error,
    },
    /// The certificates of the clients' authority cannot verify those of clients.
    #[error("{path}: {source}")]
    Verifier {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: VerifierBuilderError,
    },
    /// The certificate and the key do not belong together, or TLS does not support them.
    #[error("{certificate} and {key} do not go together: {source}")]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The underlying error.
        source: rustls::Error,
    },
    /// TLS supports no version of the protocol.
    #[error(transparent)]
    Versions(rustls::Error),
}

/// ALPN protocols on the port of the native protocol.
pub const NATIVE: &[&[u8]] = &[];
/// ALPN protocols on the port of HTTP and gRPC.
pub const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Creates a TLS acceptor from certificate files.
pub fn acceptor(files: &ClientTls, protocols: &[&[u8]]) -> Result<TlsAcceptor, ClientTlsError> {
    let chain = certificates(&files.certificate)?;
    let pem = lockkeeper_files::read_secret(&files.key)
        .map_err(|source| ClientTlsError::KeyFile { path: files.key.clone(), source })?;
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|source| ClientTlsError::NoKey { path: files.key.clone(), source })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(ClientTlsError::Versions)?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|source| ClientTlsError::Authority { path: file.clone(), source })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let verifier =
                verifier.map_err(|source| ClientTlsError::Verifier { path: file.clone(), source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|source| ClientTlsError::Mismatch {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    })?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The time at which the first of the certificates in these files expires, in seconds since 1970. `None` if there is no
/// certificate, or one of them cannot be read.
pub fn first_expiry(files: &[PathBuf]) -> Option<i64> {
    let mut first = None;
    for file in files {
        for certificate in certificates(file).ok()? {
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
            let expiry = parsed.validity().not_after.timestamp();
            first = Some(first.map_or(expiry, |first: i64| first.min(expiry)));
        }
    }
    first
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let all = CertificateDer::pem_file_iter(file).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    match all {
        Ok(all) if all.is_empty() => Err(ClientTlsError::NoCertificate { path: file.to_path_buf() }),
        Ok(all) => Ok(all),
        Err(source) => Err(ClientTlsError::Certificates { path: file.to_path_buf(), source }),
    }
}
