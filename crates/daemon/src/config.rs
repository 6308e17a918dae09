//! The daemon's configuration file. Every error names the line and a valid value.

use crate::limits::Limits;
use lockkeeper_cluster::settings::ValueError;
use lockkeeper_cluster::{Config as MemberConfig, JoinToken, JoinTokenError, MemberId, Pem, Times, Tls};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Default port on which members listen for each other.
pub const MEMBERS_PORT: u16 = 7420;
/// Default port for clients of the native protocol.
pub const CLIENTS_PORT: u16 = lockkeeper_session::protocol::PORT;
/// Default port for HTTP and gRPC.
pub const HTTP_PORT: u16 = 7422;

/// The reason why a daemon cannot start with its configuration. The text names the line of the file, where there is
/// one, and a valid value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text of the file is invalid.
    #[error("{path}: {source}")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the text.
        source: Box<ConfigError>,
    },
    /// The text is not TOML, or has an unknown key or a value of another type.
    #[error("{}", .0.to_string().trim_end())]
    Syntax(#[source] Box<toml::de::Error>),
    /// The daemon cannot listen on this address.
    #[error(
        "line {line}: `{address}` is no address to listen on; write one as \"0.0.0.0:{port}\", or \"none\""
    )]
    ListenAddress {
        /// The number of the line in the file.
        line: usize,
        /// The address as written in the file.
        address: String,
        /// The default port.
        port: u16,
    },
    /// The key of a member is not a number.
    #[error("line {line}: `{number}` is no member's number; write for example 1 = \"a:{MEMBERS_PORT}\"")]
    MemberNumber {
        /// The number of the line in the file.
        line: usize,
        /// The key as written in the file.
        number: String,
    },
    /// The address of a member has no port.
    #[error("line {line}: `{address}` has no port; write \"{address}:{MEMBERS_PORT}\"")]
    NoPort {
        /// The number of the line in the file.
        line: usize,
        /// The address as written in the file.
        address: String,
    },
    /// There is no profile of times with this name.
    #[error(
        "line {line}: `{name}` are no times; there are \"default\", \"tuned\" (machines side by side) and \"slow\" (slow \
         networks)"
    )]
    Times {
        /// The number of the line in the file.
        line: usize,
        /// The name that no profile has.
        name: String,
    },
    /// The value of a setting cannot be read.
    #[error("line {line}: {source}")]
    Value {
        /// The number of the line in the file.
        line: usize,
        /// The error of the value.
        source: ValueError,
    },
    /// There is no algorithm with this name.
    #[error("line {line}: there is no algorithm `{name}`; `lockkeeper algorithms` lists them")]
    Algorithm {
        /// The number of the line in the file.
        line: usize,
        /// The name that no algorithm has.
        name: String,
    },
    /// The initial members do not include this one.
    #[error(
        "line {line}: member {} is not in [members]; add it there, or give addresses to `join` instead",
        .member.0
    )]
    NotAMember {
        /// The number of the line in the file.
        line: usize,
        /// The number of this member.
        member: MemberId,
    },
    /// There are neither initial members nor addresses to join.
    #[error("give the initial members ([members] 1 = \"host:{MEMBERS_PORT}\", …) or addresses to `join`")]
    NoMembers,
    /// A member of several does not listen for the others.
    #[error("`listen.members` cannot be \"none\" in a cluster of several members")]
    MembersNotServed,
    /// A daemon that listens for other members has no join token.
    #[error(
        "members connect only with the cluster's secret: write join_token = \"join-token\", the file that `lockkeeper cluster \
         init` makes for every member; for a single daemon write members = \"none\" under [listen]"
    )]
    NoJoinToken,
    /// The join token cannot be read.
    #[error(transparent)]
    JoinToken(#[from] JoinTokenError),
    /// The configuration of the member is invalid.
    #[error(transparent)]
    Member(#[from] lockkeeper_cluster::Error),
    /// The daemon would serve other machines without TLS.
    #[error(
        "`{listener}` listens on {address}, beyond this machine, without TLS: give [client_tls] a certificate and key, or \
         listen on 127.0.0.1, or set insecure_no_tls = true (--insecure-no-tls) if the network is trusted"
    )]
    WithoutTls {
        /// The name of the listener: `clients` or `http`.
        listener: &'static str,
        /// The address on which the daemon would listen.
        address: SocketAddr,
    },
    /// The daemon would serve other machines without authentication.
    #[error(
        "`{listener}` listens on {address}, beyond this machine, without authentication: give `tokens`, or [client_tls] a \
         `client_authority`, or set insecure_no_auth = true (--insecure-no-auth)"
    )]
    WithoutAuthentication {
        /// The name of the listener: `clients` or `http`.
        listener: &'static str,
        /// The address on which the daemon would listen.
        address: SocketAddr,
    },
}

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration of its member.
    pub member: MemberConfig,
    /// The address for clients of the native protocol.
    pub clients: Option<SocketAddr>,
    /// The address for HTTP and gRPC.
    pub http: Option<SocketAddr>,
    /// The path of a Unix domain socket for clients of the native protocol on this machine.
    pub socket: Option<PathBuf>,
    /// The TLS configuration of the client ports; `None`: no TLS.
    pub client_tls: Option<ClientTls>,
    /// The path of the token file; `None`: no tokens are needed.
    pub tokens: Option<PathBuf>,
    /// The path of the audit log; `None`: no audit log.
    pub audit: Option<PathBuf>,
    /// The limits of the daemon.
    pub limits: Limits,
    /// Timeout for the holds that cannot be recorded, when the daemon leaves.
    pub leave_timeout: Duration,
    /// Serves clients beyond loopback without TLS.
    pub insecure_no_tls: bool,
    /// Serves clients beyond loopback without a token or client certificate.
    pub insecure_no_auth: bool,
}

/// The TLS files of the client ports.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The daemon's certificate chain.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authority that must have issued clients' certificates; `None`: clients need none.
    pub client_authority: Option<PathBuf>,
}

impl Config {
    /// A cluster of one member, with its data in this folder and clients served on loopback. It does not listen for
    /// other members.
    pub fn alone(data: impl Into<PathBuf>) -> Self {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut member = MemberConfig::alone(data);
        member.listen = at(MEMBERS_PORT);
        Self::of(member, at(lockkeeper_session::protocol::PORT), at(HTTP_PORT))
    }

    /// A daemon with this member that serves clients at these addresses.
    pub fn of(member: MemberConfig, clients: SocketAddr, http: SocketAddr) -> Self {
        Self {
            member,
            clients: Some(clients),
            http: Some(http),
            socket: None,
            client_tls: None,
            tokens: None,
            audit: None,
            limits: Limits::default(),
            leave_timeout: Duration::from_secs(10),
            insecure_no_tls: false,
            insecure_no_auth: false,
        }
    }

    /// Reads a configuration file. Relative paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_path_buf(), source })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder)
            .map_err(|error| ConfigError::InFile { path: path.to_path_buf(), source: Box::new(error) })
    }

    /// Parses the text of a configuration file.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| ConfigError::Syntax(Box::new(error)))?;
        let config = file.config(text, folder)?;
        config.check()?;
        Ok(config)
    }

    /// Rejects configurations that cannot work or that would be open to every client by mistake.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.member.check()?;
        for (listener, address) in [("clients", self.clients), ("http", self.http)] {
            let Some(address) = address.filter(|address| !address.ip().is_loopback()) else { continue };
            if self.client_tls.is_none() && !self.insecure_no_tls {
                return Err(ConfigError::WithoutTls { listener, address });
            }
            let authority = self.client_tls.as_ref().and_then(|tls| tls.client_authority.as_ref());
            if self.tokens.is_none() && authority.is_none() && !self.insecure_no_auth && !self.insecure_no_tls
            {
                return Err(ConfigError::WithoutAuthentication { listener, address });
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    cluster: Option<String>,
    join_token: Option<PathBuf>,
    member: Spanned<u32>,
    data: PathBuf,
    #[serde(default)]
    members: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    join: Vec<String>,
    advertise: Option<String>,
    algorithm: Option<Spanned<String>>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    most_voters: Option<usize>,
    #[serde(default)]
    epoch_above: u64,
    times: Option<Spanned<String>>,
    longest_lease: Option<Spanned<String>>,
    record_after: Option<Spanned<String>>,
    #[serde(alias = "leave_patience_s")]
    leave_timeout_s: Option<u64>,
    #[serde(default)]
    listen: Listen,
    tls: Option<MemberTlsFile>,
    client_tls: Option<ClientTlsFile>,
    tokens: Option<PathBuf>,
    audit: Option<PathBuf>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    insecure_no_tls: bool,
    #[serde(default)]
    insecure_no_auth: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listen {
    members: Option<Spanned<String>>,
    clients: Option<Spanned<String>>,
    http: Option<Spanned<String>>,
    socket: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberTlsFile {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTlsFile {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
}

/// The text of a configuration file, for errors that name the line, and the folder of relative paths.
struct ConfigSource<'a> {
    text: &'a str,
    folder: &'a Path,
}

impl ConfigSource<'_> {
    fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.text[..value.span().start].lines().count().max(1)
    }

    fn resolve(&self, path: PathBuf) -> PathBuf {
        self.folder.join(path)
    }

    /// An address to listen on: loopback by default, none if it is `"none"`.
    fn listen(&self, given: Option<Spanned<String>>, port: u16) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(given) = given else { return Ok(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))) };
        let address = given.get_ref();
        if address == "none" {
            return Ok(None);
        }
        address.parse().map(Some).map_err(|_| ConfigError::ListenAddress {
            line: self.line(&given),
            address: address.clone(),
            port,
        })
    }

    fn member(&self, number: &str, address: &Spanned<String>) -> Result<(MemberId, String), ConfigError> {
        let line = self.line(address);
        let number =
            number.parse().map_err(|_| ConfigError::MemberNumber { line, number: number.to_owned() })?;
        let address = address.get_ref();
        match address.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(_)) => Ok((MemberId(number), address.clone())),
            _ => Err(ConfigError::NoPort { line, address: address.clone() }),
        }
    }

    fn times(&self, given: Option<&Spanned<String>>) -> Result<Times, ConfigError> {
        let Some(given) = given else { return Ok(Times::default()) };
        let name = given.get_ref();
        lockkeeper_cluster::settings::profile(name)
            .ok_or_else(|| ConfigError::Times { line: self.line(given), name: name.clone() })
    }

    fn time(&self, name: &str, given: &Spanned<String>) -> Result<Duration, ConfigError> {
        let time = lockkeeper_cluster::settings::read_time(name, given.get_ref());
        time.map_err(|error| ConfigError::Value { line: self.line(given), source: error })
    }

    fn algorithm(&self, given: &Spanned<String>) -> Result<String, ConfigError> {
        let name = given.get_ref();
        match lockkeeper_core::registry::find(name) {
            Some(_) => Ok(name.clone()),
            None => Err(ConfigError::Algorithm { line: self.line(given), name: name.clone() }),
        }
    }
}

impl ConfigFile {
    /// The initial members of the cluster.
    fn first_members(&self, source: &ConfigSource<'_>) -> Result<BTreeMap<MemberId, String>, ConfigError> {
        let members = self.members.iter().map(|(number, address)| source.member(number, address));
        let members: BTreeMap<_, _> = members.collect::<Result<_, _>>()?;
        let me = MemberId(*self.member.get_ref());
        if !members.is_empty() && !members.contains_key(&me) {
            return Err(ConfigError::NotAMember { line: source.line(&self.member), member: me });
        }
        if members.is_empty() && self.join.is_empty() {
            return Err(ConfigError::NoMembers);
        }
        Ok(members)
    }

    /// The address on which the member listens for other members, and the join token; `None` for a single member
    /// without an address.
    fn peers(
        &mut self,
        source: &ConfigSource<'_>,
        alone: bool,
    ) -> Result<Option<(SocketAddr, JoinToken)>, ConfigError> {
        let none = self.listen.members.as_ref().map_or(alone, |listen| listen.get_ref() == "none");
        if none && alone {
            return Ok(None);
        }
        let listen = source.listen(self.listen.members.take(), MEMBERS_PORT)?;
        let listen = listen.ok_or(ConfigError::MembersNotServed)?;
        let Some(file) = self.join_token.take() else {
            return Err(ConfigError::NoJoinToken);
        };
        Ok(Some((listen, JoinToken::read(&source.resolve(file))?)))
    }

    /// Takes the settings of the member out of the file; the others remain.
    fn member(&mut self, source: &ConfigSource<'_>) -> Result<MemberConfig, ConfigError> {
        let id = MemberId(*self.member.get_ref());
        let first_members = self.first_members(source)?;
        let alone = self.join.is_empty() && first_members.len() == 1;
        let (listen, join_token) = self.peers(source, alone)?.unzip();
        let listen = listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, MEMBERS_PORT)));
        let mut member = MemberConfig::new(id, listen, source.resolve(std::mem::take(&mut self.data)));
        (member.first_members, member.join_token) = (first_members, join_token);
        member.join = std::mem::take(&mut self.join);
        member.times = source.times(self.times.as_ref())?;
        if let Some(longest) = &self.longest_lease {
            member.times.longest_lease = source.time("longest_lease", longest)?;
        }
        if let Some(record_after) = &self.record_after {
            member.record_after = source.time("record_after", record_after)?;
        }
        if let Some(algorithm) = &self.algorithm {
            member.algorithm = source.algorithm(algorithm)?;
        }
        let pem = |path| Pem::File(source.resolve(path));
        member.tls = self.tls.take().map(|tls| Tls {
            authority: pem(tls.authority),
            certificate: pem(tls.certificate),
            key: pem(tls.key),
        });
        member.cluster = self.cluster.take().unwrap_or(member.cluster);
        member.advertise = self.advertise.take().or_else(|| member.first_members.get(&id).cloned());
        member.settings = std::mem::take(&mut self.settings).into_iter().collect();
        member.most_voters = self.most_voters.unwrap_or(member.most_voters);
        (member.epoch_above, member.insecure_no_tls) = (self.epoch_above, self.insecure_no_tls);
        Ok(member)
    }

    fn config(mut self, text: &str, folder: &Path) -> Result<Config, ConfigError> {
        let source = ConfigSource { text, folder };
        let resolve = |path| source.resolve(path);
        Ok(Config {
            member: self.member(&source)?,
            clients: source.listen(self.listen.clients, lockkeeper_session::protocol::PORT)?,
            http: source.listen(self.listen.http, HTTP_PORT)?,
            socket: self.listen.socket.map(resolve),
            client_tls: self.client_tls.map(|tls| ClientTls {
                certificate: resolve(tls.certificate),
                key: resolve(tls.key),
                client_authority: tls.client_authority.map(resolve),
            }),
            tokens: self.tokens.map(resolve),
            audit: self.audit.map(resolve),
            limits: self.limits,
            leave_timeout: Duration::from_secs(self.leave_timeout_s.unwrap_or(10)),
            insecure_no_tls: self.insecure_no_tls,
            insecure_no_auth: self.insecure_no_auth,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = r#"
member = 2
data = "data"
join_token = "join-token"
tokens = "tokens.toml"

[members]
1 = "a:7420"
2 = "b:7420"
3 = "c:7420"

[listen]
members = "0.0.0.0:7420"
clients = "0.0.0.0:7421"

[tls]
authority = "ca.pem"
certificate = "member-2.pem"
key = "member-2.key"

[client_tls]
certificate = "member-2.pem"
key = "member-2.key"
"#;

    /// A folder with a join token, for configurations that name it.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        JoinToken::read_or_create(&folder.path().join("join-token")).unwrap();
        folder
    }

    #[test]
    fn configuration_file_is_parsed() {
        let folder = folder();
        let config = Config::parse(THREE, folder.path()).unwrap();
        assert_eq!((config.member.id, config.member.first_members.len()), (MemberId(2), 3));
        assert_eq!(config.member.advertise.as_deref(), Some("b:7420"));
        assert_eq!(config.member.data, folder.path().join("data"));
        assert!(config.member.join_token.is_some());
        assert_eq!(config.http, Some(SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT))));
    }

    #[test]
    fn a_daemon_alone_does_not_listen_for_members_unless_it_has_a_join_token() {
        let folder = folder();
        let alone = "member = 1\ndata = \"data\"\n[members]\n1 = \"127.0.0.1:7420\"\n[listen]\n";
        for listen in ["", "members = \"none\""] {
            let config = Config::parse(&format!("{alone}{listen}"), folder.path()).unwrap();
            assert_eq!(config.member.join_token, None, "{listen}");
        }
        let listens = format!("{alone}members = \"127.0.0.1:7420\"");
        let error = Config::parse(&listens, folder.path()).unwrap_err();
        assert!(matches!(error, ConfigError::NoJoinToken), "{error}");
        let error = error.to_string();
        assert!(error.contains("join_token = ") && error.contains("\"none\""), "{error}");
        let config =
            Config::parse(&format!("join_token = \"join-token\"\n{listens}"), folder.path()).unwrap();
        assert!(config.member.join_token.is_some());
    }

    #[test]
    fn former_names_of_keys_are_accepted() {
        let folder = folder();
        let limits = |names: [&str; 3]| {
            let [leave, request, idle] = names;
            let text = format!(
                "member = 1\ndata = \"data\"\n{leave} = 7\n[members]\n1 = \"127.0.0.1:7420\"\n[limits]\n{request} = 8\n{idle} = 9\n"
            );
            let config = Config::parse(&text, folder.path()).unwrap();
            let limits = config.limits;
            (config.leave_timeout.as_secs(), limits.request_timeout_ms, limits.idle_timeout_ms)
        };
        assert_eq!(limits(["leave_timeout_s", "request_timeout_ms", "idle_timeout_ms"]), (7, 8, 9));
        assert_eq!(limits(["leave_patience_s", "patience_ms", "idle_ms"]), (7, 8, 9));
    }

    #[test]
    fn members_of_a_cluster_need_the_join_token_and_an_address() {
        let folder = folder();
        let error =
            Config::parse(&THREE.replace("join_token = \"join-token\"", ""), folder.path()).unwrap_err();
        assert!(matches!(error, ConfigError::NoJoinToken), "{error}");
        let error = Config::parse(&THREE.replace("0.0.0.0:7420", "none"), folder.path()).unwrap_err();
        assert!(matches!(error, ConfigError::MembersNotServed), "{error}");
        let token = folder.path().join("join-token");
        std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = Config::parse(THREE, folder.path()).unwrap_err();
        assert!(
            matches!(error, ConfigError::JoinToken(JoinTokenError::NotSecret { mode: 0o644, .. })),
            "{error}"
        );
    }

    #[test]
    fn configuration_errors_name_the_line_and_a_valid_value() {
        let folder = folder();
        let with = |from: &str, to: &str| THREE.replace(from, to);
        for (text, parts) in [
            (with("0.0.0.0:7421", "here"), ["line 14", "0.0.0.0:7421"]),
            (with("\"c:7420\"", "\"c\""), ["line 10", "write \"c:7420\""]),
            (with("member = 2", "member = 4"), ["line 2", "join"]),
            (with("member = 2", "member = \"b\""), ["line 2", "invalid type"]),
            (with("data =", "date ="), ["line 3", "unknown field `date`"]),
            (with("data =", "times = \"fast\"\ndata ="), ["line 3", "tuned"]),
            (with("data =", "longest_lease = \"2\"\ndata ="), ["line 3", "1500ms"]),
            (with("data =", "record_after = \"soon\"\ndata ="), ["line 3", "record_after"]),
            (with("data =", "algorithm = \"lampert\"\ndata ="), ["line 3", "lockkeeper algorithms"]),
            (
                with("[client_tls]\ncertificate = \"member-2.pem\"\nkey = \"member-2.key\"\n", ""),
                ["without TLS", "insecure_no_tls"],
            ),
            (with("tokens = \"tokens.toml\"", ""), ["without authentication", "client_authority"]),
        ] {
            let error = Config::parse(&text, folder.path()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}\nlacks one of {parts:?}");
        }
    }
}
