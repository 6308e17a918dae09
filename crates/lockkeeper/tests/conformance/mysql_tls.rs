//! MariaDB over TLS: the suite with a verified server and a password, and the errors of each mode.

use crate::backend::{Backend, Server};
use crate::mysql::MariaDb;
use crate::worker::Worker;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::{Certificates, Files};
use std::sync::LazyLock;

/// The authority of the servers of all tests.
static AUTHORITY: LazyLock<Certificates> = LazyLock::new(Certificates::new);

/// A server whose user `me` needs TLS and a password.
struct OverTls {
    mariadb: MariaDb,
    /// The server's certificate.
    _files: tempfile::TempDir,
    /// The options of the URL that verify the server.
    options: String,
}

impl OverTls {
    async fn start(certificate: &Files) -> Option<OverTls> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let settings =
            [("ssl-cert", file("server.pem")), ("ssl-key", file("server.key")), ("ssl-ca", file("ca.pem"))];
        std::fs::copy(&certificate.certificate, file("server.pem")).unwrap();
        std::fs::copy(&certificate.key, file("server.key")).unwrap();
        std::fs::copy(AUTHORITY.authority(), file("ca.pem")).unwrap();
        crate::mysql::give_to_mysql(directory.path());
        let settings =
            settings.iter().map(|(option, file)| format!("--{option}={}", file.display())).collect();
        let mariadb = MariaDb::start_with(settings, |_| {})?;
        let mut client = mariadb.client().await;
        for statement in [
            "CREATE USER me IDENTIFIED BY 's3cret' REQUIRE SSL",
            "GRANT ALL ON locks.* TO me",
            "CREATE USER certified REQUIRE SUBJECT '/CN=certified'",
            "GRANT ALL ON locks.* TO certified",
        ] {
            mysql_async::prelude::Queryable::query_drop(&mut client, statement).await.unwrap();
        }
        let options = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", AUTHORITY.authority().display());
        Some(OverTls { mariadb, _files: directory, options })
    }

    fn url_with(&self, login: &str, options: &str) -> String {
        self.mariadb.url_of(login, &format!("locks?{options}"))
    }
}

impl Backend for OverTls {
    fn url(&self) -> String {
        self.url_with("me:s3cret", &self.options)
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.mariadb.daemon)
    }
}

macro_rules! over_tls {
    ($certificate:expr) => {
        match OverTls::start($certificate).await {
            Some(server) => server,
            None => return,
        }
    };
}

crate::conformance! { over_tls!(&AUTHORITY.server()) }

async fn refused(url: &str) -> Error {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("s3c"), "{error}");
    error
}

fn assert_says(error: &Error, part: &str) {
    assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
}

#[tokio::test]
async fn each_mode_verifies_what_it_says() {
    let ca = |authority: &Certificates| format!("ssl-ca={}", authority.authority().display());
    let other = Certificates::new();
    let (right, wrong) = (ca(&AUTHORITY), ca(&other));
    let login = "me:s3cret";
    let elsewhere = over_tls!(&AUTHORITY.elsewhere());
    for options in ["", "ssl-mode=PREFERRED", "ssl-mode=required"] {
        let opened = Lockkeeper::open(&elsewhere.url_with(login, options)).await;
        assert!(opened.is_ok(), "{options}: {:?}", opened.err());
    }
    let error = refused(&elsewhere.url_with(login, &right)).await;
    assert_says(&error, "its certificate is for another host: for elsewhere.example, and not for 127.0.0.1");
    let error = refused(&elsewhere.url_with(login, &format!("ssl-mode=VERIFY_IDENTITY&{wrong}"))).await;
    assert_says(&error, "its certificate is not from an authority that this client trusts");
    let expired = over_tls!(&AUTHORITY.expired());
    assert_says(&refused(&expired.url_with(login, &right)).await, "its certificate has expired");
    for (options, part) in [
        ("ssl-mode=VERIFY_CA", "ssl-mode is DISABLED, PREFERRED, REQUIRED or VERIFY_IDENTITY"),
        ("ssl-mode=DISABLED&ssl-ca=/x", "leave one out"),
        ("ssl-ca=/nowhere/ca.pem", "`ssl-ca`: No such file"),
        ("sslmode=require", "the options are ssl-mode"),
    ] {
        assert_says(&refused(&expired.url_with(login, options)).await, part);
    }
}

#[tokio::test]
async fn users_need_what_the_server_requires_of_them() {
    let server = over_tls!(&AUTHORITY.server());
    for (login, options) in [("me:s3cret", "ssl-mode=DISABLED"), ("me:s3cret2", server.options.as_str())] {
        let error = refused(&server.url_with(login, options)).await;
        assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
        assert_says(&error, "does not accept this user and password, or requires TLS of this user");
    }
    let certified = AUTHORITY.client("certified");
    let options = format!(
        "{}&ssl-cert={}&ssl-key={}",
        server.options,
        certified.certificate.display(),
        certified.key.display()
    );
    let locks = Lockkeeper::open(&server.url_with("certified", &options)).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    assert_says(&refused(&server.url_with("certified", &server.options)).await, "does not accept this user");
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "s3cret\n").unwrap();
    let options = format!("{}&password-file={}", server.options, password.path().display());
    let locks = Lockkeeper::open(&server.url_with("me", &options)).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let url = server.url_with("me", &server.options);
    refused(&url).await;
    assert!(Worker::acquires(&url, &[("MYSQL_PWD", "s3cret")]).await);
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let Some(plain) = MariaDb::start_with(vec!["--skip-ssl".into()], |_| {}) else { return };
    drop(plain.client().await);
    let error = refused(&plain.url_of("root:", "locks?ssl-mode=REQUIRED")).await;
    assert_says(&error, "has no TLS; configure its certificate, or use ssl-mode=DISABLED");
    for options in ["", "ssl-mode=PREFERRED", "ssl-mode=DISABLED"] {
        assert!(Lockkeeper::open(&plain.url_of("root:", &format!("locks?{options}"))).await.is_ok());
    }
}
