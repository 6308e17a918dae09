//! Mutual TLS: each side presents a certificate of the cluster's authority that names its member.

use lockkeeper_member::MemberId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    Resumption, VerifierBuilderError, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A source of PEM data.
#[derive(Clone)]
pub enum Pem {
    /// A file, which is read when TLS is set up and again when it is reloaded.
    File(PathBuf),
    /// The data themselves.
    Bytes(Vec<u8>),
}

/// The reason why certificates or a private key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of the private key cannot be read, or other users can read it.
    #[error("cannot use the private key {path}: {source}")]
    KeyFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system, or the problem of the file's mode.
        source: std::io::Error,
    },
    /// A file of certificates cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The data contain no private key.
    #[error("there is no private key in {pem}: {source}")]
    NoKey {
        /// The file, or the number of bytes.
        pem: String,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// The data are not PEM.
    #[error("cannot read the certificates in {pem}: {source}")]
    Malformed {
        /// The file, or the number of bytes.
        pem: String,
        /// The error of the PEM parser.
        source: pem::Error,
    },
    /// The data contain no certificate.
    #[error("there is no certificate in {pem}")]
    NoCertificate {
        /// The file, or the number of bytes.
        pem: String,
    },
    /// A certificate of the authority cannot be used.
    #[error("the authority's certificate in {pem} cannot be used: {source}")]
    Authority {
        /// The file, or the number of bytes.
        pem: String,
        /// The defect of the certificate.
        source: rustls::Error,
    },
    /// The authority's certificates cannot verify those of members.
    #[error("the authority's certificate cannot be used: {0}")]
    Verifier(#[source] VerifierBuilderError),
    /// The certificate and the key do not belong together, or TLS does not support them.
    #[error("this certificate and key cannot be used: {0}")]
    Unusable(#[source] rustls::Error),
    /// The member's certificate is not signed by the authority, or is not valid now.
    #[error("this member's own certificate is not valid for this cluster: {0}")]
    NotOfCluster(#[source] rustls::Error),
    /// The member's certificate does not name this member alone.
    #[error(
        "this member's certificate must name {} and no other member: issue one for {me}",
        name_of(*me)
    )]
    OtherMember {
        /// The number of this member.
        me: MemberId,
    },
    /// The member was started without TLS, so its certificates cannot be reloaded.
    #[error("this member was started without TLS, and cannot begin with it later: restart it")]
    StartedWithout,
}

impl Pem {
    /// Reads a private key. Fails if other users may read the file.
    fn read_key(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::File(path) => lockkeeper_files::read_secret(path)
                .map_err(|source| TlsError::KeyFile { path: path.clone(), source }),
            Self::Bytes(bytes) => Ok(bytes.clone()),
        }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::File(path) => {
                std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
            }
            Self::Bytes(bytes) => Ok(bytes.clone()),
        }
    }

    /// The file or the number of bytes, for an error.
    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

impl fmt::Debug for Pem {
    /// Hides the bytes: they may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// The certificates and the key of a member.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates of the cluster's authority; several during a rotation.
    pub authority: Pem,
    /// This member's certificate, followed by the intermediate certificates.
    pub certificate: Pem,
    /// The private key of the certificate.
    pub key: Pem,
}

/// The name of a member in its certificate.
pub fn name_of(member: MemberId) -> String {
    format!("member-{}.lockkeeper", member.0)
}

/// The member that a certificate names. `None` unless it names exactly one member.
pub fn member_of(certificate: &CertificateDer<'_>) -> Option<MemberId> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let member = |name: &str| {
        let number = name.strip_prefix("member-")?.strip_suffix(".lockkeeper")?.parse().ok()?;
        Some(MemberId(number)).filter(|&id| name == name_of(id))
    };
    let mut members = certificate.valid_dns_names().filter_map(member);
    let first = members.next()?;
    members.all(|other| other == first).then_some(first)
}

/// TLS configurations for incoming and outgoing connections.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

impl Ready {
    /// Reads the files, and checks that the certificate names `me`, is signed by the authority, and is valid now.
    pub fn new(tls: &Tls, me: MemberId) -> Result<Self, TlsError> {
        let (roots, chain) = (roots(&tls.authority)?, certificates(&tls.certificate)?);
        let Some((own, between)) = chain.split_first() else {
            return Err(TlsError::NoCertificate { pem: tls.certificate.describe() });
        };
        check_own(own, between, &roots, &ring::default_provider(), me)?;
        Self::unchecked(tls)
    }

    /// Like [`new`](Self::new), without the checks of the certificate.
    pub(super) fn unchecked(tls: &Tls) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (roots, chain) = (Arc::new(roots(&tls.authority)?), certificates(&tls.certificate)?);
        let key = PrivateKeyDer::from_pem_slice(&tls.key.read_key()?)
            .map_err(|source| TlsError::NoKey { pem: tls.key.describe(), source })?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(TlsError::Verifier)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(TlsError::Unusable)?;
        // A resumed session presents no certificate, so an expired or replaced one would remain in use.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let verifier = Arc::new(AnyMember::new(roots, provider.clone())?);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(TlsError::Unusable)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = pem.read()?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|source| TlsError::Malformed { pem: pem.describe(), source })?;
    if all.is_empty() {
        return Err(TlsError::NoCertificate { pem: pem.describe() });
    }
    Ok(all)
}

fn roots(pem: &Pem) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|source| TlsError::Authority { pem: pem.describe(), source })?;
    }
    Ok(roots)
}

/// Checks the member's own certificate at the start, where the operator sees the error, and not only at every other
/// member later.
fn check_own(
    own: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
    me: MemberId,
) -> Result<(), TlsError> {
    verify(own, between, roots, UnixTime::now(), provider).map_err(TlsError::NotOfCluster)?;
    if member_of(own) != Some(me) {
        return Err(TlsError::OtherMember { me });
    }
    Ok(())
}

fn verify(
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<(), rustls::Error> {
    let algorithms = provider.signature_verification_algorithms.all;
    let certificate = ParsedCertificate::try_from(certificate)?;
    verify_server_cert_signed_by_trust_anchor(&certificate, roots, between, now, algorithms)
}

/// Accepts every certificate of the cluster's authority. The member that it names is
/// checked after the greeting, in the same way on both sides.
#[derive(Debug)]
struct AnyMember {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    standard: Arc<WebPkiServerVerifier>,
}

impl AnyMember {
    fn new(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let standard = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(TlsError::Verifier)?;
        Ok(Self { roots, provider, standard })
    }
}

impl ServerCertVerifier for AnyMember {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify(end_entity, intermediates, &self.roots, now, &self.provider)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("members speak TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.standard.supported_verify_schemes()
    }
}
