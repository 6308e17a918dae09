//! Sentences for the errors of TLS.

use std::error::Error;
use std::io;
use tokio_rustls::rustls;
use tokio_rustls::rustls::{AlertDescription, CertificateError};

/// An error of TLS, with a sentence about what to change.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
struct Explained {
    sentence: String,
    #[source]
    source: io::Error,
}

/// What to change, if the error, or one of those that led to it, is an error of TLS.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let (mut next, mut found) = (Some(error), None);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(sentence(tls));
        }
        if let Some(explained) = error.downcast_ref::<Explained>() {
            return Some(explained.sentence.clone());
        }
        // The source of an I/O error is the source of the error that it contains, not that error.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        found = found.or_else(|| inner.and_then(|inner| explain(inner)));
        next = error.source();
    }
    found
}

/// Replaces the text of an error of TLS by a sentence; leaves others as they are.
pub(super) fn explained(source: io::Error) -> io::Error {
    match explain(&source) {
        Some(sentence) => io::Error::new(source.kind(), Explained { sentence, source }),
        None => source,
    }
}

/// [`explained`], for an error during the handshake: a server without TLS closes the connection or does not answer.
pub(super) fn in_handshake(source: io::Error) -> io::Error {
    match (explain(&source), source.kind()) {
        (Some(_), _) => explained(source),
        (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            let sentence = "it closed the connection during the TLS handshake; does it use TLS at this port?";
            io::Error::new(source.kind(), Explained { sentence: sentence.into(), source })
        }
        (None, _) => source,
    }
}

/// Whether a server that uses TLS caused this error of a handshake.
pub(super) fn is_from_tls_server(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)))
}

fn sentence(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, PeerIncompatible};
    match error {
        InvalidCertificate(certificate) => of_certificate(certificate),
        AlertReceived(alert) => of_alert(*alert),
        InvalidMessage(_) => "it does not answer in TLS; does it use TLS at this port?".into(),
        PeerIncompatible(_) => {
            format!("it has no version or cipher of TLS in common with this client: {error}")
        }
        _ => format!("TLS failed: {error}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::UnknownIssuer | E::BadSignature => {
            "its certificate is not from an authority that this client trusts; name its authority's certificate \
             (option ca; PostgreSQL: sslrootcert)"
                .into()
        }
        E::NotValidForName => "its certificate is for another host; use the name in the certificate".into(),
        E::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "its certificate is for another host: it names none".into()
        }
        E::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for another host: for {}, and not for {}",
            presented.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "),
            expected.to_str()
        ),
        E::Expired | E::ExpiredContext { .. } => {
            "its certificate has expired; renew it, and check this machine's clock".into()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "its certificate is not valid yet; check the clocks of both machines".into()
        }
        E::Revoked => "its certificate was revoked".into(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => "its certificate is not for a server".into(),
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// The name in rustls's text for a name of a certificate: `DnsName("a.example")`.
fn plain(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

fn of_alert(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            "the server requires a certificate of the client (options cert and key; PostgreSQL: sslcert and \
             sslkey)"
                .into()
        }
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        // The signature is by another authority of the same name.
        | A::DecryptError
        | A::AccessDenied => format!(
            "the server does not accept the certificate of this client, or requires one ({alert:?}): name one of its \
             authority (options cert and key; PostgreSQL: sslcert and sslkey)"
        ),
        A::HandshakeFailure => {
            "the server ended the TLS handshake; perhaps it requires a certificate of the client"
                .into()
        }
        A::UnrecognisedName => "the server has no certificate for this host".into(),
        A::ProtocolVersion => "the server has only versions of TLS before 1.2".into(),
        other => format!("the server ended the TLS connection: {other:?}"),
    }
}
