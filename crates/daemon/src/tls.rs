//! TLS for clients: the daemon presents a certificate and may require one.

use crate::config::ClientTls;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// ALPN protocols on the port of the native protocol.
pub const NATIVE: &[&[u8]] = &[];
/// ALPN protocols on the port of HTTP and gRPC.
pub const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Creates a TLS acceptor from certificate files.
pub fn acceptor(files: &ClientTls, protocols: &[&[u8]]) -> Result<TlsAcceptor, String> {
    let chain = certificates(&files.certificate)?;
    let pem = lockkeeper_files::read_secret(&files.key)
        .map_err(|error| format!("cannot use the private key {}: {error}", files.key.display()))?;
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|error| format!("there is no private key in {}: {error}", files.key.display()))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", file.display()))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("{} and {} do not go together: {error}", files.certificate.display(), files.key.display())
    })?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bad =
        |error: &dyn std::fmt::Display| format!("cannot read certificates in {}: {error}", file.display());
    let all = CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))?;
    let all: Result<Vec<_>, _> = all.collect();
    match all {
        Ok(all) if all.is_empty() => Err(bad(&"there is none")),
        Ok(all) => Ok(all),
        Err(error) => Err(bad(&error)),
    }
}
