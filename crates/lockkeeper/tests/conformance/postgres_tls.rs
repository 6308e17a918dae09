//! PostgreSQL over TLS: the suite with a verified server and a password, and the errors of each mode.

use crate::backend::{Backend, Server, open};
use crate::postgres::Postgres;
use crate::worker::Worker;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::certificates::{Certificates, Files};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

/// The authority of the servers of all tests.
pub static AUTHORITY: LazyLock<Certificates> = LazyLock::new(Certificates::new);

/// A server that admits clients only over TLS and with a password.
struct OverTls {
    postgres: Postgres,
    /// The options of the URL that verify the server.
    options: String,
}

const PASSWORDS: &str = "hostssl all postgres 127.0.0.1/32 scram-sha-256";

/// The settings of a server with the files of [`prepare`].
pub fn settings() -> Vec<String> {
    let settings = ["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key", "ssl_ca_file=ca.pem"];
    settings.map(String::from).to_vec()
}

/// The options of a URL that verify the server.
pub fn options() -> String {
    format!("sslmode=verify-full&sslrootcert={}", AUTHORITY.authority().display())
}

/// Writes a certificate and rules into the directory of a server, and sets the password `s3cret`.
pub fn prepare(data: &Path, certificate: &Files, rules: &str) {
    std::fs::copy(&certificate.certificate, data.join("server.pem")).unwrap();
    std::fs::copy(&certificate.key, data.join("server.key")).unwrap();
    std::fs::copy(AUTHORITY.authority(), data.join("ca.pem")).unwrap();
    std::fs::write(data.join("pg_hba.conf"), format!("local all all trust\n{rules}\n")).unwrap();
    // The server reads this password before it serves.
    let mut single = Postgres::tool("postgres");
    crate::postgres::give_to_postgres(data);
    single.args(["--single", "-D"]).arg(data).arg("postgres").stdin(std::process::Stdio::piped());
    single.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = single.spawn().unwrap();
    let set = b"ALTER ROLE postgres PASSWORD 's3cret'\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), set).unwrap();
    assert!(child.wait().unwrap().success());
}

impl OverTls {
    async fn start(certificate: &Files, rules: &str) -> Option<OverTls> {
        let postgres = Postgres::start_with(settings(), |data| prepare(data, certificate, rules))?;
        Some(OverTls { postgres: postgres.wait_until_it_serves(), options: options() })
    }

    fn url_with(&self, login: &str, options: &str) -> String {
        self.postgres.url_of(login, &format!("postgres?{options}"))
    }
}

impl Backend for OverTls {
    fn url(&self) -> String {
        self.url_with("postgres:s3cret", &self.options)
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.postgres)
    }
}

macro_rules! over_tls {
    ($certificate:expr, $rules:expr) => {
        match OverTls::start($certificate, $rules).await {
            Some(server) => server,
            None => return,
        }
    };
}

crate::conformance! { over_tls!(&AUTHORITY.server(), PASSWORDS) }

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
    let other = Certificates::new();
    let roots = |authority: &Certificates| format!("sslrootcert={}", authority.authority().display());
    let (right, wrong) = (roots(&AUTHORITY), roots(&other));
    let login = "postgres:s3cret";
    let elsewhere = over_tls!(&AUTHORITY.elsewhere(), PASSWORDS);
    for options in [
        "sslmode=require".into(),
        "sslmode=prefer".into(),
        String::new(),
        format!("sslmode=verify-ca&{right}"),
        format!("sslmode=require&{right}"),
        format!("sslmode=require&{right}&channel_binding=require"),
    ] {
        let opened = Lockkeeper::open(&elsewhere.url_with(login, &options)).await;
        assert!(opened.is_ok(), "{options}: {:?}", opened.err());
    }
    for options in [format!("sslmode=verify-full&{right}"), right.clone()] {
        let error = refused(&elsewhere.url_with(login, &options)).await;
        assert_says(
            &error,
            "its certificate is for another host: for elsewhere.example, and not for 127.0.0.1",
        );
    }
    for mode in ["verify-full", "verify-ca", "require"] {
        let error = refused(&elsewhere.url_with(login, &format!("sslmode={mode}&{wrong}"))).await;
        assert_says(&error, "its certificate is not from an authority that this client trusts");
        assert_says(&error, "sslrootcert");
    }
    let expired = over_tls!(&AUTHORITY.expired(), PASSWORDS);
    for mode in ["verify-full", "verify-ca"] {
        let error = refused(&expired.url_with(login, &format!("sslmode={mode}&{right}"))).await;
        assert_says(&error, "its certificate has expired");
    }
    assert!(Lockkeeper::open(&expired.url_with(login, "sslmode=require")).await.is_ok());
    for (options, part) in [
        ("sslmode=always", "sslmode is disable, prefer"),
        ("sslmode=disable&sslcert=/x", "leave one out"),
        ("sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "`sslrootcert`: No such file"),
        ("target_session_attrs=standby", "a standby cannot have locks"),
        ("sslmode=require&sslmode=require", "`sslmode` twice"),
    ] {
        assert_says(&refused(&expired.url_with(login, options)).await, part);
    }
}

#[tokio::test]
async fn a_server_with_tls_only_and_a_server_without_tls_are_told_apart() {
    let server = over_tls!(&AUTHORITY.server(), PASSWORDS);
    let error = refused(&server.url_with("postgres:s3cret", "sslmode=disable")).await;
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    assert_says(&error, "use TLS: sslmode=verify-full");
    let Some(plain) = Postgres::start() else { return };
    let plain = plain.wait_until_it_serves();
    for options in ["sslmode=require", server.options.as_str()] {
        let error = refused(&plain.url_of("postgres", &format!("postgres?{options}"))).await;
        assert_says(&error, "has no TLS; set `ssl = on`");
    }
    for options in ["sslmode=prefer", "sslmode=disable", ""] {
        assert!(Lockkeeper::open(&plain.url_of("postgres", &format!("postgres?{options}"))).await.is_ok());
    }
    // A server that answers the request for TLS, and speaks something else after it.
    let odd = crate::impostor::start(b"SSH-2.0-OpenSSH_9\r\n").await;
    let error = refused(&format!("postgres://u@{odd}/d?sslmode=require")).await;
    assert_says(&error, "TLS");
}

#[tokio::test]
async fn passwords_come_from_files_too() {
    let server = over_tls!(&AUTHORITY.server(), PASSWORDS);
    let error = refused(&server.url_with("postgres:s3cret2", &server.options)).await;
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    assert_says(&error, "does not accept this user and password");
    let error =
        refused(&server.url_with("postgres", &format!("{}&passfile=/dev/null", server.options))).await;
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error:?}");
    assert_says(&error, "requires a password");
    let file = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    };
    let with_line = file("*:*:*:*:s3cret\n");
    let (plain, lines) =
        (file("s3cret\n"), file("127.0.0.1:*:other:*:wrong\n127.0.0.1:*:*:postgres:s3cret\n"));
    for (option, file) in [("password-file", &plain), ("passfile", &lines)] {
        let options = format!("{}&{option}={}", server.options, file.path().display());
        let locks = Lockkeeper::open(&server.url_with("postgres", &options)).await.unwrap();
        locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        assert_says(&refused(&server.url_with("postgres", &options)).await, "chmod 600");
    }
    for (name, value) in
        [("PGPASSWORD", "s3cret".into()), ("PGPASSFILE", with_line.path().display().to_string())]
    {
        let url = server.url_with("postgres", &server.options);
        assert!(Worker::acquires(&url, &[(name, value.as_str())]).await, "{name}");
    }
    std::fs::set_permissions(plain.path(), PermissionsExt::from_mode(0o600)).unwrap();
    let both = format!("{}&password-file={}", server.options, plain.path().display());
    assert_says(&refused(&server.url_with("postgres:s3cret", &both)).await, "leave one out");
}

#[tokio::test]
async fn a_client_may_need_a_certificate() {
    let server = over_tls!(&AUTHORITY.server(), "hostssl all postgres 127.0.0.1/32 cert");
    let client = AUTHORITY.client("postgres");
    let options = format!(
        "{}&sslcert={}&sslkey={}",
        server.options,
        client.certificate.display(),
        client.key.display()
    );
    let locks = Lockkeeper::open(&server.url_with("postgres", &options)).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    let error = refused(&server.url_with("postgres", &server.options)).await;
    assert_says(&error, "certificate");
    let other = AUTHORITY.client("ada");
    let options =
        format!("{}&sslcert={}&sslkey={}", server.options, other.certificate.display(), other.key.display());
    assert_says(&refused(&server.url_with("postgres", &options)).await, "does not accept this user");
    let alone = format!("{}&sslcert={}", server.options, client.certificate.display());
    assert_says(&refused(&server.url_with("postgres", &alone)).await, "sslcert and sslkey go together");
}

/// The connection of a hold, and further ones for waiters, are encrypted.
#[tokio::test]
async fn all_connections_are_encrypted() {
    let server =
        over_tls!(&AUTHORITY.server(), &format!("{PASSWORDS}\nhost all postgres 127.0.0.1/32 trust"));
    let locks = open(&server).await;
    let _guard = locks.mutex("a").acquire().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&format!("{}?sslmode=disable", server.postgres.url()), tokio_postgres::NoTls)
            .await
            .unwrap();
    tokio::spawn(connection);
    let sql =
        "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                WHERE application_name = 'lockkeeper'";
    let row = client.query_one(sql, &[]).await.unwrap();
    assert!(row.get::<_, i64>(0) > 0);
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1));
}
