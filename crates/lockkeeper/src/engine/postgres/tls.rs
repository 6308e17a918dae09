//! TLS of a connection to PostgreSQL: what is verified, and channel binding.

use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::UrlOptions;
use crate::engine::tls::Tls;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::{cipher_suite, default_provider};
use tokio_rustls::rustls::crypto::{CryptoProvider, hash, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    SupportedCipherSuite,
};

/// The part of the server's certificate that is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: the connection is encrypted, and may end at an impostor.
    Nothing,
    /// The authority that has signed it, and its dates.
    Authority,
    /// Also the host's name.
    Full,
}

/// The TLS of all connections of an engine.
#[derive(Clone)]
pub(super) struct PostgresTls(Arc<ClientConfig>);

impl PostgresTls {
    pub fn new(url: &EngineUrl, options: &UrlOptions, verify: Verify) -> Result<PostgresTls> {
        let [ca, cert, key] = ["sslrootcert", "sslcert", "sslkey"];
        // `system` is libpq's name for the authorities of the system.
        let root = match options.get(ca) {
            Some("system") => None,
            _ => options.file(url, ca)?,
        };
        let files = || {
            Tls::from_files(url, (ca, root), (cert, options.file(url, cert)?), (key, options.file(url, key)?))
        };
        let provider = Arc::new(default_provider());
        let trusting = |config: &mut ClientConfig| {
            config.dangerous().set_certificate_verifier(Arc::new(Unverified(provider.clone())));
        };
        let config = match verify {
            Verify::Full => return Ok(PostgresTls(files()?.config())),
            Verify::Authority => {
                let tls = files()?;
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(tls.roots.clone(), provider.clone());
                let verifier = verifier.build().map_err(|error| url.bad(format!("sslrootcert: {error}")))?;
                let mut config = ClientConfig::clone(&tls.config());
                config.dangerous().set_certificate_verifier(Arc::new(AnyName(verifier)));
                config
            }
            Verify::Nothing if options.get(cert).is_some() || options.get(key).is_some() => {
                let mut config = ClientConfig::clone(&files()?.config());
                trusting(&mut config);
                config
            }
            // Needs no file, also where the system has no authorities.
            Verify::Nothing => {
                let builder = ClientConfig::builder_with_provider(provider.clone());
                let builder = builder.with_safe_default_protocol_versions();
                let builder = builder.map_err(|error| url.bad(format!("TLS: {error}")))?;
                let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
                trusting(&mut config);
                config
            }
        };
        Ok(PostgresTls(Arc::new(config)))
    }
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(host.to_owned()).ok();
        Ok(Handshake { connector: TlsConnector::from(self.0.clone()), name })
    }
}

/// The handshake of one connection.
pub(super) struct Handshake {
    connector: TlsConnector,
    /// `None` if the host is no name that a certificate can have, such as the path of a socket.
    name: Option<ServerName<'static>>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let no_name = || io::Error::other("a certificate cannot be for such a host");
            let stream = self.connector.connect(self.name.ok_or_else(no_name)?, socket).await?;
            Ok(Encrypted(stream))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted(RustlsStream<Socket>);

impl TlsStream for Encrypted {
    /// The hash of the server's certificate, which SCRAM binds to the password: an impostor with another certificate
    /// cannot pass the password on, even where the certificate is not verified.
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|certificate| certificate_hash(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Accepts every certificate; the server must have its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

/// Accepts the certificate of another host.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // The name is verified last.
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The hash of a certificate by the hash function of its signature, as RFC 5929 defines `tls-server-end-point`. `None`
/// for signatures of other kinds, whose connections have no channel binding.
fn certificate_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    // The signature algorithms, as the contents of their object identifiers.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let (outer, _) = element(certificate, 0x30)?;
    let (_, after_contents) = element(outer, 0x30)?;
    let (algorithm, _) = element(after_contents, 0x30)?;
    let (identifier, _) = element(algorithm, 0x06)?;
    let (family, last) = identifier.split_at_checked(identifier.len().checked_sub(1)?)?;
    let suite = match (family, last) {
        // RSA with MD5, SHA-1 (both are replaced by SHA-256) or SHA-256; ECDSA with SHA-256.
        (RSA, [4 | 5 | 11]) | (ECDSA_SHA2, [2]) => cipher_suite::TLS13_AES_128_GCM_SHA256,
        (RSA, [12]) | (ECDSA_SHA2, [3]) => cipher_suite::TLS13_AES_256_GCM_SHA384,
        _ => return None,
    };
    let SupportedCipherSuite::Tls13(suite) = suite else { return None };
    let provider: &dyn hash::Hash = suite.common.hash_provider;
    Some(provider.hash(certificate).as_ref().to_vec())
}

/// The contents of the DER element with this tag at the beginning, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_certificate_have_no_hash() {
        for bytes in [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x83\xff\xff\xff", &[0x30; 64]] {
            assert_eq!(certificate_hash(bytes), None, "{bytes:?}");
        }
        // Contents, the algorithm sha256WithRSAEncryption, and no signature.
        let mut certificate = vec![0x30, 15, 0x30, 0, 0x30, 11, 0x06, 9];
        certificate.extend([0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 11]);
        assert_eq!(certificate_hash(&certificate).map(|hash| hash.len()), Some(32));
        *certificate.last_mut().unwrap() = 12;
        assert_eq!(certificate_hash(&certificate).map(|hash| hash.len()), Some(48));
    }
}
