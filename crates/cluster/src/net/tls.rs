//! Mutual TLS: each side presents a certificate of the cluster's authority that names its member.

use lockkeeper_member::MemberId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
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

impl Pem {
    /// Reads a private key. Fails if other users may read the file.
    fn read_key(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => lockkeeper_files::read_secret(path)
                .map_err(|error| format!("cannot use the private key {}: {error}", path.display())),
            Self::Bytes(bytes) => Ok(bytes.clone()),
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
            }
            Self::Bytes(bytes) => Ok(bytes.clone()),
        }
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
    pub fn new(tls: &Tls, me: MemberId) -> Result<Self, String> {
        let (roots, chain) = (roots(&tls.authority)?, certificates(&tls.certificate)?);
        check_own(&chain, &roots, &ring::default_provider(), me)?;
        Self::unchecked(tls)
    }

    /// Like [`new`](Self::new), without the checks of the certificate.
    pub(super) fn unchecked(tls: &Tls) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let (roots, chain) = (Arc::new(roots(&tls.authority)?), certificates(&tls.certificate)?);
        let key = PrivateKeyDer::from_pem_slice(&tls.key.read_key()?)
            .map_err(|error| format!("there is no private key in {:?}: {error}", tls.key))?;
        let setup = |error: rustls::Error| format!("this certificate and key cannot be used: {error}");
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| format!("the authority's certificate cannot be used: {error}"))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(setup)?;
        // A resumed session presents no certificate, so an expired or replaced one would remain in use.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;

        let verifier = Arc::new(AnyMember::new(roots, provider.clone())?);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(setup)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = pem.read()?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| format!("cannot read the certificates in {pem:?}: {error}"))?;
    if all.is_empty() {
        return Err(format!("there is no certificate in {pem:?}"));
    }
    Ok(all)
}

fn roots(pem: &Pem) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots
            .add(certificate)
            .map_err(|error| format!("the authority's certificate in {pem:?} cannot be used: {error}"))?;
    }
    Ok(roots)
}

/// Checks the member's own certificate at the start, where the operator sees the error, and not only at every other
/// member later.
fn check_own(
    chain: &[CertificateDer<'_>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
    me: MemberId,
) -> Result<(), String> {
    let (own, between) = chain.split_first().ok_or("there is no certificate")?;
    verify(own, between, roots, UnixTime::now(), provider)
        .map_err(|error| format!("this member's own certificate is not valid for this cluster: {error}"))?;
    if member_of(own) != Some(me) {
        return Err(format!(
            "this member's certificate must name {} and no other member: issue one for {me}",
            name_of(me)
        ));
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
    fn new(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let standard = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| format!("the authority's certificate cannot be used: {error}"))?;
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
