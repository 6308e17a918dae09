//! `mysql://user:password@host:port/database?ssl-mode=…`: the settings of a connection.

use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::{PASSWORD_FILE, UrlOptions, decoded};
use crate::engine::servers::Servers;
use crate::engine::tls::Tls;
use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use tokio_rustls::rustls::crypto::ring;

/// The settings of all connections of an engine.
pub(super) struct Settings {
    pub opts: Opts,
    /// The settings without TLS, for servers without it, if the URL does not require TLS.
    pub without_tls: Option<Opts>,
    /// The address, `host:port`, for messages.
    pub address: String,
    pub database: String,
}

/// The settings that the locks rely on, independent of the defaults of the server: each statement sees what was
/// committed before it, values are not cut to fit, a client that waits for a row of a stalled one gets an error in
/// time, and no transaction follows a finished one by itself.
const SETTINGS: [&str; 3] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1, completion_type = 0",
];

/// The options of MySQL's own clients for certificates.
const FILES: [&str; 3] = ["ssl-ca", "ssl-cert", "ssl-key"];

impl Settings {
    pub fn parse(url: &EngineUrl) -> Result<Settings> {
        let [ca, cert, key] = FILES;
        let servers = Servers::parse(url, 3306, &["ssl-mode", ca, cert, key, PASSWORD_FILE])?;
        let [address] = servers.hosts.as_slice() else {
            return Err(url.bad("it names more than one server; name the one that accepts writes"));
        };
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "3306"));
        let database = servers.path.strip_prefix('/').and_then(decoded).unwrap_or_default();
        let (user, given) = servers.login.map_or((None, None), |login| (Some(login.user), login.password));
        let environment = std::env::var("MYSQL_PWD").ok().filter(|password| !password.is_empty());
        let password = servers.options.password(url, given, environment)?;
        let write = "write mysql://user:password@host:port/database";
        if user.as_ref().is_none_or(String::is_empty) {
            return Err(url.bad(format!("it names no user; {write}")));
        }
        if database.is_empty() || database.contains('/') {
            return Err(url.bad(format!("it names no database; {write}")));
        }
        let plain = OptsBuilder::default()
            .ip_or_hostname(host.trim_matches(['[', ']']))
            .tcp_port(port.parse().unwrap_or(3306))
            .user(user)
            .pass(password)
            .db_name(Some(&database))
            // Otherwise a connection to this machine is replaced by one to the socket that the server names.
            .prefer_socket(false)
            // Renewals are counted also if they change nothing.
            .client_found_rows(true)
            .setup(SETTINGS.to_vec());
        let (opts, without_tls) = match tls(url, &servers.options)? {
            None => (plain, None),
            Some((tls, true)) => (plain.ssl_opts(tls), None),
            Some((tls, false)) => (plain.clone().ssl_opts(tls), Some(plain.into())),
        };
        Ok(Settings { opts: opts.into(), without_tls, address: address.clone(), database })
    }
}

/// The settings of TLS, and whether it is required; `None` without TLS. The modes are those of MySQL's own clients.
/// Files without a mode mean that TLS is required, and the server verified.
fn tls(url: &EngineUrl, options: &UrlOptions) -> Result<Option<(SslOpts, bool)>> {
    let [ca, cert, key] = FILES;
    let files = FILES.iter().any(|name| options.get(name).is_some());
    let (required, verified) = match options.get("ssl-mode").map(str::to_ascii_uppercase).as_deref() {
        Some("DISABLED") if !files => return Ok(None),
        Some("DISABLED") => return Err(url.bad("it has ssl-mode=DISABLED and files of TLS; leave one out")),
        None if !files => (false, false),
        None | Some("VERIFY_IDENTITY") => (true, true),
        Some("PREFERRED") => (false, false),
        Some("REQUIRED") => (true, false),
        Some(_) => {
            return Err(url.bad("ssl-mode is DISABLED, PREFERRED, REQUIRED or VERIFY_IDENTITY (recommended)"));
        }
    };
    // The library takes the provider of the process, and panics if there are several and none is chosen. An application
    // that chooses one does so first.
    let _ = ring::default_provider().install_default();
    // Without any authority the library gives up, also if it verifies nothing.
    let mut tls = SslOpts::default().with_disable_built_in_roots(verified);
    if verified || files {
        // Checks all files, with an error for each.
        let file = |name| Ok((name, options.file(url, name)?));
        let checked = Tls::from_files(url, file(ca)?, file(cert)?, file(key)?)?;
        let identity = checked.identity.map(|identity| {
            ClientIdentity::new(identity.certificate.clone().into(), identity.key.clone().into())
        });
        let roots = match options.file(url, ca)? {
            Some(file) => vec![file.to_owned().into()],
            None => {
                let system = rustls_native_certs::load_native_certs().certs;
                system.iter().map(|certificate| certificate.to_vec().into()).collect()
            }
        };
        tls = tls.with_client_identity(identity).with_root_certs(roots);
    }
    Ok(Some((tls.with_danger_accept_invalid_certs(!verified), required)))
}
