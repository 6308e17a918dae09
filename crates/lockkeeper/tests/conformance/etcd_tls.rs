//! The suite on an etcd server with TLS, client certificates and users, and the errors of wrong credentials.

use crate::backend::{Backend, Server, open};
use crate::worker::Worker;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::{Certificates, Files};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A server that accepts clients with a certificate, and the user `root`.
pub struct EtcdTls {
    pub daemon: LocalServer,
    certificates: Certificates,
    /// Its common name is no user: etcd would take it for one, and `etcdctl` would need no password.
    client: Files,
    password: tempfile::NamedTempFile,
    _data: Arc<tempfile::TempDir>,
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// The options of a server of etcd for TLS with clients.
pub fn tls_options(authority: &Path, own: &Files) -> [String; 7] {
    let [ca, cert, key] = [authority, &own.certificate, &own.key].map(|file| text(file).to_owned());
    let [trusted, own, secret] = ["--trusted-ca-file", "--cert-file", "--key-file"].map(String::from);
    [trusted, ca, own, cert, secret, key, "--client-cert-auth".into()]
}

/// Runs one command of etcdctl over TLS.
pub fn ctl(endpoints: &str, authority: &Path, client: &Files, args: &[&str]) -> Result<String, String> {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", endpoints, "--cacert", text(authority)])
        .args(["--cert", text(&client.certificate), "--key", text(&client.key)])
        .args(args)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Adds the user `root`, and makes the server ask for users.
pub fn enable_users(ctl: impl Fn(&[&str]) -> Result<String, String>) {
    // The server may not have a leader yet.
    while let Err(error) = ctl(&["user", "add", "root:s3cr3t"]) {
        eprintln!("not yet: {error}");
    }
    ctl(&["user", "grant-role", "root", "root"]).unwrap();
    ctl(&["auth", "enable"]).unwrap();
}

impl EtcdTls {
    /// Returns `None` if there is no etcd and the user is not root.
    fn start(server: fn(&Certificates) -> Files) -> Option<EtcdTls> {
        let program: PathBuf = servers::program("etcd", &[], "etcd-server")?;
        servers::program("etcdctl", &[], "etcd-client")?;
        let certificates = Certificates::new();
        let (own, client) = (server(&certificates), certificates.client("transport"));
        let options = tls_options(certificates.authority(), &own);
        let data = Arc::new(tempfile::tempdir().unwrap());
        let directory = data.clone();
        let daemon = LocalServer::start(move |port| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&program).env_clear();
            let clients = format!("https://127.0.0.1:{port}");
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error"]);
            command.args(&options).arg("--data-dir").arg(directory.path());
            command
        });
        let password = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(password.path(), "s3cr3t\n").unwrap();
        Some(EtcdTls { daemon, certificates, client, password, _data: data })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    fn client(&self) -> String {
        format!("cert={}&key={}", text(&self.client.certificate), text(&self.client.key))
    }

    fn with_users(self) -> EtcdTls {
        let endpoint = format!("https://{}", self.address());
        enable_users(|args| ctl(&endpoint, self.certificates.authority(), &self.client, args));
        self
    }
}

impl Backend for EtcdTls {
    fn url(&self) -> String {
        let (ca, client, address) = (text(self.certificates.authority()), self.client(), self.address());
        format!("etcds://root@{address}?ca={ca}&{client}&password-file={}", text(self.password.path()))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.daemon)
    }

    fn kills(&self) -> usize {
        6
    }
}

macro_rules! etcd_tls {
    ($server:expr) => {
        match EtcdTls::start($server) {
            Some(etcd) => etcd,
            None => return,
        }
    };
    () => {
        etcd_tls!(Certificates::server).with_users()
    };
}

crate::conformance! { etcd_tls!() }

async fn refused(url: &str) -> Error {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("s3cr3t") && !format!("{error:?}").contains("s3cr3t"), "{error:?}");
    error
}

#[tokio::test]
async fn each_mistake_with_tls_or_credentials_is_explained() {
    let etcd = etcd_tls!();
    let other = Certificates::new();
    let (address, ca, client) = (etcd.address(), text(etcd.certificates.authority()), etcd.client());
    let (stranger, other_ca) = (other.client("x"), text(other.authority()));
    let stranger = format!("cert={}&key={}", text(&stranger.certificate), text(&stranger.key));
    for (url, part) in [
        (format!("etcd://root:s3cr3t@{address}"), "uses TLS; write etcds://"),
        (format!("etcds://root:s3cr3t@{address}?ca={other_ca}&{client}"), "not from an authority"),
        (format!("etcds://root:s3cr3t@{address}?ca={ca}"), "certificate of this client, or requires one"),
        (format!("etcd+tls://root:s3cr3t@{address}?ca={ca}&{stranger}"), "certificate of this client"),
        (format!("etcd://root:s3cr3t@{address}?ca={ca}"), "write etcds://"),
    ] {
        let error = refused(&url).await.to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    for login in ["root:s3cr3t2@", "other:s3cr3t@"] {
        let error = refused(&format!("etcds://{login}{address}?ca={ca}&{client}")).await;
        assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    }
    // Without a user, etcd takes the common name of the certificate for one, which has no rights.
    let error = refused(&format!("etcds://{address}?ca={ca}&{client}")).await;
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    let locks = open(&etcd).await;
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn user_and_password_may_be_in_the_environment() {
    let etcd = etcd_tls!();
    let ca = text(etcd.certificates.authority());
    let url = |login: &str| format!("etcds://{login}{}?ca={ca}&{}", etcd.address(), etcd.client());
    refused(&url("")).await;
    for environment in
        [&[("ETCDCTL_USER", "root:s3cr3t")][..], &[("ETCDCTL_USER", "root"), ("ETCDCTL_PASSWORD", "s3cr3t")]]
    {
        assert!(Worker::acquires(&url(""), environment).await, "{environment:?}");
    }
    // What the URL names counts.
    let wrong = [("ETCDCTL_USER", "other"), ("ETCDCTL_PASSWORD", "wrong")];
    assert!(Worker::acquires(&url("root:s3cr3t@"), &wrong).await);
}

#[tokio::test]
async fn certificates_of_another_host_or_time_are_explained() {
    for (server, part) in [
        (Certificates::expired as fn(&Certificates) -> Files, "has expired"),
        (Certificates::elsewhere, "for elsewhere.example, and not for 127.0.0.1"),
    ] {
        let etcd = etcd_tls!(server);
        let error = refused(&etcd.url()).await.to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_recognized() {
    let Some(etcd) = crate::etcd::Etcd::start() else { return };
    let certificates = Certificates::new();
    let ca = text(certificates.authority());
    let error = refused(&format!("etcds://{}?ca={ca}", etcd.address())).await.to_string();
    assert!(error.contains("does it use TLS at this port?"), "{error}");
}
