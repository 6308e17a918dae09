//! ZooKeeper over TLS: the suite with a verified server, a certificate of the client and a password, and the errors.

use crate::backend::{Backend, Server, open, open_url};
use crate::zookeeper::ZooKeeper;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::{Certificates, Files};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

/// The authority of the servers of all tests.
static AUTHORITY: LazyLock<Certificates> = LazyLock::new(Certificates::new);

/// The settings of a server with this certificate, which requires (`need`) or does not require (`none`) one of its
/// clients. Its files are written into a directory.
pub fn tls_settings(
    stores: &Path,
    authority: &Certificates,
    certificate: &Files,
    client_certificates: &str,
) -> String {
    let (store, trusted) = (stores.join("server.pem"), stores.join("ca.pem"));
    let read = |path| std::fs::read_to_string(path).unwrap();
    std::fs::write(&store, read(&certificate.key) + &read(&certificate.certificate)).unwrap();
    std::fs::copy(authority.authority(), &trusted).unwrap();
    format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\n\
         ssl.trustStore.type=PEM\nssl.clientAuth={client_certificates}\n",
        store.display(),
        trusted.display()
    )
}

/// The options of a URL: the authority, and a certificate of the client.
pub fn options_of(authority: &Certificates) -> String {
    let client = authority.client("me");
    let files = [authority.authority(), &client.certificate, &client.key];
    let [ca, cert, key] = files.map(|file| file.display().to_string());
    format!("ca={ca}&cert={cert}&key={key}")
}

struct OverTls {
    zookeeper: ZooKeeper,
    /// The options of the URL.
    options: String,
}

impl OverTls {
    /// Starts a server with this certificate, which requires (`need`) or does not require (`none`) one of its clients.
    fn start(certificate: &Files, client_certificates: &'static str) -> Option<OverTls> {
        let stores = tempfile::tempdir().unwrap();
        let tls = tls_settings(stores.path(), &AUTHORITY, certificate, client_certificates);
        let zookeeper = ZooKeeper::start_with(move |port| {
            // The files exist as long as the server.
            let _stores = &stores;
            format!("secureClientPortAddress=127.0.0.1\nsecureClientPort={port}\n{tls}")
        })?;
        Some(OverTls { zookeeper, options: options_of(&AUTHORITY) })
    }

    fn url_with(&self, options: &str) -> String {
        format!("zookeeper+tls://me:s3cret@{}?{options}", self.zookeeper.address())
    }
}

impl Backend for OverTls {
    fn url(&self) -> String {
        self.url_with(&self.options)
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.zookeeper.daemon)
    }

    /// On a busy machine, a new connection over TLS takes the server seconds.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(6)
    }

    /// Fewer kills, as each kill costs a session timeout.
    fn kills(&self) -> usize {
        4
    }
}

macro_rules! over_tls {
    ($certificate:expr, $client_certificates:expr) => {
        match OverTls::start($certificate, $client_certificates) {
            Some(server) => server,
            None => return,
        }
    };
}

/// A server that has served: its first handshake takes the longest.
async fn ready() -> Option<OverTls> {
    let server = OverTls::start(&AUTHORITY.server(), "need")?;
    open(&server).await;
    Some(server)
}

/// Starts a server that requires certificates of its clients, or returns from the test.
macro_rules! ready {
    () => {
        match ready().await {
            Some(server) => server,
            None => return,
        }
    };
}

crate::conformance! { ready!() }

async fn refused(url: &str) -> Error {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("s3c"), "{error}");
    error
}

/// Waits until the server serves, and returns the error of an opening that fails.
async fn refused_after_start(server: &OverTls, options: &str, part: &str) {
    loop {
        let error = refused(&server.url_with(options)).await.to_string();
        if error.contains(part) {
            return;
        }
        // The port is open before the server answers.
        eprintln!("not yet: {error}");
        assert!(error.contains("closed the connection") || error.contains("no answer"), "{error}");
    }
}

#[tokio::test]
async fn errors_of_certificates_name_the_cause() {
    let ca = |authority: &Certificates| format!("ca={}", authority.authority().display());
    let server = over_tls!(&AUTHORITY.server(), "need");
    open(&server).await.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let other = Certificates::new();
    refused_after_start(
        &server,
        &ca(&other),
        "its certificate is not from an authority that this client trusts",
    )
    .await;
    refused_after_start(&server, &ca(&AUTHORITY), "certificate").await;
    let plain = refused(&format!("zookeeper://{}", server.zookeeper.address())).await;
    assert!(plain.to_string().contains("answers in TLS; write zookeeper+tls://"), "{plain}");
    // Without certificates of clients, the password is what identifies them.
    let passwords = over_tls!(&AUTHORITY.server(), "none");
    let url = passwords.url_with(&ca(&AUTHORITY));
    open_url(&url).await.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let error = refused(&url.replace("s3cret", "s3cret2")).await;
    assert!(error.to_string().contains("the user \"me\" may not"), "{error}");
    let elsewhere = over_tls!(&AUTHORITY.elsewhere(), "none");
    refused_after_start(&elsewhere, &ca(&AUTHORITY), "its certificate is for another host").await;
    let expired = over_tls!(&AUTHORITY.expired(), "none");
    refused_after_start(&expired, &ca(&AUTHORITY), "its certificate has expired").await;
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let Some(plain) = ZooKeeper::start() else { return };
    let locks = open(&plain).await;
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let ca = AUTHORITY.authority().display();
    let error = refused(&format!("zookeeper+tls://{}?ca={ca}", plain.address())).await;
    assert!(error.to_string().contains("TLS at this port?"), "{error}");
    for (url, part) in [
        ("zookeeper+tls://h?ca=/nowhere/ca.pem", "`ca`: No such file"),
        ("zookeeper+tls://h?sslmode=require", "the options are ca, cert, key and password-file"),
        ("zookeeper://h?ca=/x", "the options are password-file"),
    ] {
        let error = refused(url).await;
        assert!(error.is_usage() && error.to_string().contains(part), "{error}");
    }
}
