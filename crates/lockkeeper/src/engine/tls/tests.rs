//! Handshakes with a server of rustls: the error for each mistake is a sentence of its own.

use super::*;
use lockkeeper_testbed::certificates::{Certificates, Files};
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

/// A server that sends one byte to each client.
async fn server(certificates: &Certificates, own: &Files, client_certificate: bool) -> SocketAddr {
    let pem = |file: &Path| certificates_in(file);
    let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(pem(certificates.authority()));
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let builder = match client_certificate {
        true => builder.with_client_cert_verifier(verifier),
        false => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(pem(&own.certificate), key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                stream.write_all(b"!").await?;
                stream.shutdown().await
            });
        }
    });
    address
}

fn certificates_in(file: &Path) -> Vec<CertificateDer<'static>> {
    super::certificates(&std::fs::read(file).unwrap()).unwrap()
}

/// Connects with the options of a URL, and reads the server's byte.
async fn reads(address: SocketAddr, query: &str) -> Result<(), String> {
    let url = EngineUrl::from(format!("rediss://{address}?{query}"));
    let options = UrlOptions::parse(&url, query, &super::super::options::TLS).unwrap();
    let tls = Tls::of(&url, &options).map_err(|error| error.to_string())?;
    let read = async {
        let mut stream = dial(&address.to_string(), tls.to(&address.to_string()).as_ref()).await?;
        stream.read_u8().await
    };
    read.await.map(drop).map_err(|error| {
        assert!(explain(&error).is_none_or(|sentence| sentence == error.to_string()), "{error}");
        error.to_string()
    })
}

fn query(ca: &Certificates, client: Option<&Files>) -> String {
    let ca = format!("ca={}", ca.authority().display());
    match client {
        None => ca,
        Some(Files { certificate, key }) => {
            format!("{ca}&cert={}&key={}", certificate.display(), key.display())
        }
    }
}

#[tokio::test]
async fn each_mistake_with_certificates_is_explained() {
    let (trusted, other) = (Certificates::new(), Certificates::new());
    let good = server(&trusted, &trusted.server(), false).await;
    assert_eq!(reads(good, &query(&trusted, None)).await, Ok(()));
    let expired = server(&trusted, &trusted.expired(), false).await;
    let elsewhere = server(&trusted, &trusted.elsewhere(), false).await;
    for (address, query, part) in [
        (good, query(&other, None), "not from an authority that this client trusts"),
        // The system's authorities do not include that of the test.
        (good, String::new(), "authority"),
        (expired, query(&trusted, None), "has expired"),
        (elsewhere, query(&trusted, None), "for elsewhere.example, and not for 127.0.0.1"),
    ] {
        let error = reads(address, &query).await.unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_missing_or_wrong_client_certificate_is_explained() {
    let (trusted, other) = (Certificates::new(), Certificates::new());
    let strict = server(&trusted, &trusted.server(), true).await;
    assert_eq!(reads(strict, &query(&trusted, Some(&trusted.client("me")))).await, Ok(()));
    let error = reads(strict, &query(&trusted, None)).await.unwrap_err();
    assert!(error.contains("requires a certificate of the client"), "{error}");
    // The same, for a client library that does not report it.
    let (url, query_text) = (EngineUrl::from("etcds://h"), query(&trusted, None));
    let options = UrlOptions::parse(&url, &query_text, &super::super::options::TLS).unwrap();
    let complaint = Tls::of(&url, &options).unwrap().complaint(&strict.to_string()).await;
    assert!(complaint.is_some_and(|it| it.contains("requires a certificate of the client")));
    let error = reads(strict, &query(&trusted, Some(&other.client("me")))).await.unwrap_err();
    assert!(error.contains("does not accept the certificate of this client"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_recognized() {
    let trusted = Certificates::new();
    let strict = server(&trusted, &trusted.server(), true).await;
    assert!(speaks_tls(&strict.to_string()).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in [&b"-ERR unknown command\r\n"[..], b"", b"-ERR"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let error = reads(plain, &query(&trusted, None)).await.unwrap_err();
    assert!(error.contains("does not answer in TLS"), "{error}");
    let error = reads(plain, &query(&trusted, None)).await.unwrap_err();
    assert!(error.contains("closed the connection during the TLS handshake"), "{error}");
    assert!(!speaks_tls(&plain.to_string()).await);
}

#[tokio::test]
async fn each_unusable_file_is_reported_without_its_content() {
    let certificates = Certificates::new();
    let (server, client) = (certificates.server(), certificates.client("me"));
    let (ca, cert, key) =
        (certificates.authority().display(), client.certificate.display(), client.key.display());
    let other_key = server.key.display();
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(text.path(), "s3cr3t").unwrap();
    let text = text.path().display();
    for (query, part) in [
        ("ca=/nowhere/ca.pem".into(), "option `ca`: No such file"),
        (format!("ca={text}"), "no certificate in PEM"),
        (format!("ca={ca}&cert={cert}"), "cert and key go together"),
        (format!("ca={ca}&cert={cert}&key={text}"), "option `key`"),
        (format!("ca={ca}&cert={key}&key={key}"), "option `cert`"),
        (format!("ca={ca}&cert={cert}&key={other_key}"), "option `cert`"),
    ] {
        let error = reads(SocketAddr::from(([127, 0, 0, 1], 1)), &query).await.unwrap_err();
        assert!(error.contains(part) && !error.contains("s3cr3t"), "{query}: {error}");
    }
    std::fs::set_permissions(&client.key, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let query = format!("ca={ca}&cert={cert}&key={key}");
    let error = reads(SocketAddr::from(([127, 0, 0, 1], 1)), &query).await.unwrap_err();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn the_name_of_a_host_is_separated_from_its_port() {
    for (host, name) in
        [("a:1", "a"), ("a", "a"), ("[::1]:2", "::1"), ("[::1]", "::1"), ("1.2.3.4:5", "1.2.3.4")]
    {
        assert_eq!(host_name(host), name);
    }
}
