//! Connections: which server, over TLS or not.

use super::tls::{PostgresTls, Verify};
use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::options::UrlOptions;
use std::collections::BTreeSet;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Error, Socket};

/// The options of the URL that libpq has and the client library has not, or has with another meaning.
const OPTIONS: [&str; 7] =
    ["sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "password-file", "target_session_attrs"];

/// The servers of a URL, each with its settings.
#[derive(Clone)]
pub(super) struct Servers {
    /// One configuration for each host, in the order of the URL.
    pub hosts: Vec<Config>,
    tls: PostgresTls,
}

/// A connection, over TLS or not.
pub(super) type PostgresConnection = Connection<Socket, super::tls::Encrypted>;

impl Servers {
    pub fn parse(url: &EngineUrl) -> Result<Servers> {
        let (options, rest) = split(url)?;
        let write = "write postgres://user:password@host:port/database";
        let mut config: Config = rest.parse().map_err(|_| url.bad(write))?;
        if config.get_hosts().is_empty() {
            return Err(url.bad("it names no host"));
        }
        // The parser ends the password at the first `@`, and would resolve the rest of it as a host name.
        if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(host) if host.contains('@'))) {
            return Err(
                url.bad("there is more than one `@`; write %40 for an `@` in the user or the password")
            );
        }
        if !config.get_hostaddrs().is_empty() && config.get_hostaddrs().len() != config.get_hosts().len()
            || config.get_ports().len() > 1 && config.get_ports().len() != config.get_hosts().len()
        {
            return Err(url.bad("it has another number of hosts than of ports or of host addresses"));
        }
        match options.get("target_session_attrs") {
            // The engine looks for the primary itself: see `Session::open`.
            None | Some("any" | "read-write" | "primary") => {}
            Some(_) => {
                return Err(
                    url.bad("target_session_attrs is read-write or primary: a standby cannot have locks")
                );
            }
        }
        config.target_session_attrs(TargetSessionAttrs::Any).application_name("lockkeeper");
        let (mode, verify) = mode(url, &options)?;
        config.ssl_mode(mode);
        let tls = PostgresTls::new(url, &options, verify)?;
        let mut hosts = Vec::new();
        for index in 0..config.get_hosts().len() {
            let mut host = of_host(&config, index);
            super::password::complete(url, &options, &mut host)?;
            hosts.push(host);
        }
        Ok(Servers { hosts, tls })
    }

    /// Connects to one of the hosts.
    pub async fn connect(&self, host: &Config) -> Result<(Client, PostgresConnection), Error> {
        host.connect(self.tls.clone()).await
    }
}

/// Separates the options of [`OPTIONS`] from the URL.
fn split(url: &EngineUrl) -> Result<(UrlOptions, String)> {
    let (address, query) = url.expose().split_once('?').unwrap_or((url.expose(), ""));
    let name = |option: &&str| OPTIONS.contains(&option.split('=').next().unwrap_or_default());
    let (own, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(name);
    let options = UrlOptions::parse(url, &own.join("&"), &OPTIONS)?;
    let separator = if query.is_empty() { "" } else { "?" };
    Ok((options, format!("{address}{separator}{}", others.join("&"))))
}

/// The meaning of `sslmode`, which is that of libpq, with the certificates of the system where libpq has a file in the
/// home directory. Files of TLS without a mode mean that it is used, and verified.
fn mode(url: &EngineUrl, options: &UrlOptions) -> Result<(SslMode, Verify)> {
    let named: BTreeSet<&str> =
        ["sslrootcert", "sslcert", "sslkey"].into_iter().filter(|name| options.get(name).is_some()).collect();
    match options.get("sslmode") {
        None if named.is_empty() => Ok((SslMode::Prefer, Verify::Nothing)),
        None | Some("verify-full") => Ok((SslMode::Require, Verify::Full)),
        Some("verify-ca") => Ok((SslMode::Require, Verify::Authority)),
        Some("require") if named.contains("sslrootcert") => Ok((SslMode::Require, Verify::Authority)),
        Some("require") => Ok((SslMode::Require, Verify::Nothing)),
        Some("prefer") => Ok((SslMode::Prefer, Verify::Nothing)),
        Some("disable") if named.is_empty() => Ok((SslMode::Disable, Verify::Nothing)),
        Some("disable") => Err(url.bad("it has sslmode=disable and files of TLS; leave one out")),
        Some(_) => {
            Err(url.bad("sslmode is disable, prefer, require, verify-ca or verify-full (recommended)"))
        }
    }
}

/// The configuration of one of several hosts.
fn of_host(all: &Config, index: usize) -> Config {
    let mut one = Config::new();
    match all.get_hosts().get(index) {
        Some(Host::Tcp(host)) => one.host(host),
        Some(Host::Unix(path)) => one.host_path(path),
        None => &mut one,
    };
    if let Some(address) = all.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(index).or(all.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(limit) = all.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.application_name("lockkeeper")
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .target_session_attrs(all.get_target_session_attrs());
    one
}
