//! `lockkeeper cluster`: configurations and certificates for the members of a cluster.

use super::cluster_address::{Address, AddressError, refuse_clashes};
use super::token::{self, TokenError};
use crate::commands::algorithms::{UnknownAlgorithm, refuse_unknown};
use crate::commands::engine::OnDaemon;
use crate::exit::{self, BoxError, CliError};
use crate::file_error::FileError;
use lockkeeper_cluster::{Authority, JoinToken, MemberId, authority};
use lockkeeper_daemon::Config;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The file with the join token, in the cluster's folder and in that of each member.
const JOIN_TOKEN_FILE: &str = "join-token";

/// Write configurations and certificates for the members of a cluster
#[derive(clap::Args)]
pub struct Cluster {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(clap::Subcommand)]
enum ClusterCommand {
    /// Create a cluster: its authority, its join token, and a folder for each member with a ready configuration
    Init {
        /// The addresses of the members for each other, as host:port; the next two ports serve clients and HTTP
        #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
        members: Vec<String>,
        /// The folder to write to
        #[arg(long, value_name = "FOLDER", default_value = "lockkeeper-cluster")]
        out: PathBuf,
        /// The cluster's name; members of a cluster with another name are rejected
        #[arg(long, default_value = "lockkeeper")]
        name: String,
        /// The algorithm of its locks; `lockkeeper algorithms` lists them
        #[arg(long, default_value = "naimi-trehel")]
        algorithm: String,
        /// The validity of the members' certificates, in days
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Add a member to a cluster that `init` has created: its folder, with a configuration that joins
    Add {
        /// The new member, as NUMBER=host:port
        #[arg(value_name = "NUMBER=HOST:PORT")]
        member: String,
        /// The folder that `init` has written
        #[arg(long, value_name = "FOLDER", default_value = "lockkeeper-cluster")]
        out: PathBuf,
        /// The validity of its certificate, in days
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Change settings of a running cluster, for all members at once; without arguments, show them
    ///
    /// NAME is lease, longest_lease (no lease may be longer; a new cluster waits for it), renewal, silence, settle
    /// (times such as 1500ms or 2s), drift (in ppm), times (default, tuned or slow: all of the times at once),
    /// algorithm, or an option of the algorithm such as tree. The voters decide the change, and every member applies
    /// it with the next view; holds survive it. A member's configuration file counts only when the cluster is
    /// created.
    Set {
        /// The settings to change
        #[arg(value_name = "NAME=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        on: OnDaemon,
    },
    /// Renew the certificates of a member that `init` or `add` has created, before they expire
    Renew {
        /// The member's number
        member: u32,
        /// The folder that `init` has written
        #[arg(long, value_name = "FOLDER", default_value = "lockkeeper-cluster")]
        out: PathBuf,
        /// The validity of its certificate, in days
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
}

impl Cluster {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            ClusterCommand::Set { changes, on } => {
                return exit::code(super::cluster_settings::set(&changes, on));
            }
            ClusterCommand::Init { members, out, name, algorithm, days } => {
                init(&members, &out, &name, &algorithm, days)
            }
            ClusterCommand::Add { member, out, days } => add(&member, &out, days),
            ClusterCommand::Renew { member, out, days } => renew(member, &out, days),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => CliError::usage(error).report(),
        }
    }
}

/// The reason why the files of a cluster or of a member cannot be written.
#[derive(Debug, thiserror::Error)]
enum ClusterError {
    /// The algorithm does not exist.
    #[error(transparent)]
    Algorithm(#[from] UnknownAlgorithm),
    /// An address is wrong, or clashes with another one of the same cluster.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The new member is not given by number and address.
    #[error("`{text}` is not NUMBER=host:port; write for example 4=d:7420")]
    NotAMember {
        /// The member as given.
        text: String,
    },
    /// The number of the new member is not a number.
    #[error("`{text}` is no member's number")]
    NotANumber {
        /// The number as given.
        text: String,
    },
    /// The folder has a cluster already.
    #[error(
        "{folder} holds a cluster already ({key} exists): add a member with `lockkeeper cluster add`, or write the new \
         cluster to another folder with --out"
    )]
    SecondCluster {
        /// The path of the folder.
        folder: PathBuf,
        /// The key of the existing cluster's authority.
        key: PathBuf,
    },
    /// It is unknown whether the folder has a cluster.
    #[error("cannot look for {key}: {source}")]
    LookForKey {
        /// The key of a cluster's authority.
        key: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The number belongs to an existing member.
    #[error(
        "member {number} exists already, at {address}; give the new member another number (`lockkeeper cluster renew \
         {number}` makes new certificates for the existing one)"
    )]
    MemberExists {
        /// The number of the existing member.
        number: u32,
        /// The address of the existing member.
        address: String,
    },
    /// The address clashes with that of an existing member.
    #[error(
        "{clash}; if member {number} was given up with `lockkeeper leave --dead {number}`, delete {folder} first"
    )]
    ClashesWithMember {
        /// The clash of the two addresses.
        #[source]
        clash: AddressError,
        /// The number of the existing member.
        number: u32,
        /// The folder of the existing member.
        folder: PathBuf,
    },
    /// The configuration of the first member is not TOML.
    #[error("{path}: {source}")]
    Toml {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: toml::de::Error,
    },
    /// The file of tokens cannot be copied from the first member to the new one.
    #[error("cannot copy the tokens: {0}")]
    CopyTokens(#[source] std::io::Error),
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The token of the operator cannot be created.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The authority cannot be created, read or written, or cannot issue a certificate.
    #[error("{0}")]
    Authority(#[source] BoxError),
    /// The join token cannot be created or read.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// The configuration of a member cannot be used by a daemon.
    #[error("{0}")]
    Config(#[source] BoxError),
}

impl ClusterError {
    fn authority(error: impl Into<BoxError>) -> Self {
        Self::Authority(error.into())
    }

    fn join_token(error: impl Into<BoxError>) -> Self {
        Self::JoinToken(error.into())
    }

    fn config(error: impl Into<BoxError>) -> Self {
        Self::Config(error.into())
    }
}

fn init(members: &[String], out: &Path, name: &str, algorithm: &str, days: u32) -> Result<(), ClusterError> {
    refuse_unknown(algorithm)?;
    let members: Vec<Address> = members.iter().map(|text| Address::parse(text)).collect::<Result<_, _>>()?;
    refuse_clashes(&(1..).zip(members.iter().cloned()).collect::<Vec<_>>())?;
    refuse_second_cluster(out)?;
    make_folder(out)?;
    let authority = Authority::create(10 * 365).map_err(ClusterError::authority)?;
    authority.save(out).map_err(ClusterError::authority)?;
    let join_token =
        JoinToken::read_or_create(&out.join(JOIN_TOKEN_FILE)).map_err(ClusterError::join_token)?;
    let (secret, line) = token::make("admin", &[String::new()], &[String::new()], &[String::new()], None)?;
    let mut table = String::from("[members]\n");
    for (n, member) in members.iter().enumerate() {
        let _ = writeln!(table, "{} = \"{member}\"", n + 1);
    }
    for (n, member) in members.iter().enumerate() {
        let id = MemberId(n as u32 + 1);
        let head = format!("cluster = {}\nalgorithm = \"{algorithm}\"\n", quoted(name));
        let new = NewMember { id, address: member, days, head: &head, tail: &table };
        write_member(out, &authority, &join_token, &new)?;
        write(&folder_of(out, id).join("tokens.toml"), &line, 0o600)?;
    }
    let folder = out.display();
    let urls: Vec<String> =
        members.iter().map(|member| format!("{}:{}", member.host, member.port + 1)).collect();
    crate::print_line!("The cluster `{name}` with {} members is in {folder}.", members.len());
    crate::print_line!(
        "Keep {folder}/{} away from the members: its owner decides who is one.",
        authority::KEY_FILE
    );
    crate::print_line!(
        "Each member has a copy of {folder}/{JOIN_TOKEN_FILE}; keep it secret: no process joins without it."
    );
    crate::print_line!("");
    for (n, member) in members.iter().enumerate() {
        crate::print_line!("on {}: copy {folder}/member-{}, and", member.host, n + 1);
        crate::print_line!("    lockkeeper up --config member-{}/lockkeeper.toml", n + 1);
    }
    crate::print_line!("");
    crate::print_line!(
        "For clients: the file {folder}/{}, this token, which is not stored anywhere,",
        authority::CERTIFICATE_FILE
    );
    crate::print_line!("    export LOCKKEEPER_TOKEN={secret}");
    crate::print_line!("and this address:");
    crate::print_line!("    lockkeeper://{}?ca={folder}/{}", urls.join(","), authority::CERTIFICATE_FILE);
    Ok(())
}

fn add(member: &str, out: &Path, days: u32) -> Result<(), ClusterError> {
    let (number, address) =
        member.split_once('=').ok_or_else(|| ClusterError::NotAMember { text: member.into() })?;
    let id = MemberId(number.parse().map_err(|_| ClusterError::NotANumber { text: number.into() })?);
    let address = Address::parse(address)?;
    refuse_known_member(out, id, &address)?;
    let authority = Authority::load(out).map_err(ClusterError::authority)?;
    let first = out.join("member-1/lockkeeper.toml");
    let text = std::fs::read_to_string(&first).map_err(FileError::read(&first))?;
    let known: toml::Table =
        toml::from_str(&text).map_err(|source| ClusterError::Toml { path: first, source })?;
    let members: Vec<String> = known
        .get("members")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flatten()
        .filter_map(|(_, address)| address.as_str())
        // A member that replaces a dead one at its address must not use its own address to join.
        .filter(|known| *known != address.to_string())
        .map(quoted)
        .collect();
    let word = |key: &str| known.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let head =
        format!("cluster = {}\nalgorithm = {}\n", quoted(&word("cluster")), quoted(&word("algorithm")));
    let join = format!("join = [{}]\n", members.join(", "));
    let join_token = JoinToken::read(&out.join(JOIN_TOKEN_FILE)).map_err(ClusterError::join_token)?;
    let new = NewMember { id, address: &address, days, head: &(head + &join), tail: "" };
    write_member(out, &authority, &join_token, &new)?;
    let folder = folder_of(out, id);
    std::fs::copy(out.join("member-1/tokens.toml"), folder.join("tokens.toml"))
        .map_err(ClusterError::CopyTokens)?;
    crate::print_line!("on {}: copy {}, and", address.host, folder.display());
    crate::print_line!("    lockkeeper up --config member-{}/lockkeeper.toml", id.0);
    Ok(())
}

/// Rejects a folder that has a cluster: overwriting its authority would invalidate the certificates of all members.
fn refuse_second_cluster(out: &Path) -> Result<(), ClusterError> {
    let key = out.join(authority::KEY_FILE);
    match key.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(ClusterError::SecondCluster { folder: out.into(), key }),
        Err(source) => Err(ClusterError::LookForKey { key, source }),
    }
}

/// Rejects the number of an existing member, and an address that clashes with that of an existing member.
fn refuse_known_member(out: &Path, id: MemberId, address: &Address) -> Result<(), ClusterError> {
    let mut known = known_members(out)?;
    if let Some(address) = known.remove(&id.0) {
        return Err(ClusterError::MemberExists { number: id.0, address });
    }
    for (number, existing) in known {
        // An address is in use while its member's folder exists: the operator deletes the folder of a removed member.
        let folder = folder_of(out, MemberId(number));
        if folder.exists() {
            refuse_clashes(&[(number, Address::parse(&existing)?), (id.0, address.clone())])
                .map_err(|clash| ClusterError::ClashesWithMember { clash, number, folder })?;
        }
    }
    Ok(())
}

/// The numbers and addresses of the members that `init` and `add` have created.
fn known_members(out: &Path) -> Result<BTreeMap<u32, String>, ClusterError> {
    let entries = std::fs::read_dir(out).map_err(FileError::read_folder(out))?;
    let mut known = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(FileError::read_folder(out))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("member-")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        let config = Config::read(&entry.path().join("lockkeeper.toml")).map_err(ClusterError::config)?;
        known.extend(config.member.first_members.iter().map(|(id, address)| (id.0, address.clone())));
        known.extend(config.member.advertise.map(|address| (number, address)));
    }
    Ok(known)
}

fn renew(member: u32, out: &Path, days: u32) -> Result<(), ClusterError> {
    let (id, authority) = (MemberId(member), Authority::load(out).map_err(ClusterError::authority)?);
    let folder = folder_of(out, id);
    let config = Config::read(&folder.join("lockkeeper.toml")).map_err(ClusterError::config)?;
    let address = Address::parse(config.member.advertise.as_deref().unwrap_or_default())?;
    certify(&folder, &authority, id, &address, days)?;
    crate::print_line!(
        "copy {} to its machine: a running daemon reads new certificates by itself",
        folder.display()
    );
    Ok(())
}

fn certify(
    folder: &Path,
    authority: &Authority,
    id: MemberId,
    address: &Address,
    days: u32,
) -> Result<(), ClusterError> {
    let names = [address.host.trim_matches(['[', ']']).to_owned()];
    let issued = authority.issue(id, &names, days).map_err(ClusterError::authority)?;
    issued.save(folder, id).map_err(ClusterError::authority)?;
    Ok(write(&folder.join(authority::CERTIFICATE_FILE), authority.certificate(), 0o644)?)
}

/// A member whose folder is written.
struct NewMember<'a> {
    id: MemberId,
    address: &'a Address,
    /// The number of days for which its certificate is valid.
    days: u32,
    /// The first lines of its configuration.
    head: &'a str,
    /// The last lines of its configuration: the table of the first members. Empty for a member that joins later.
    tail: &'a str,
}

fn write_member(
    out: &Path,
    authority: &Authority,
    join_token: &JoinToken,
    &NewMember { id, address, days, head, tail }: &NewMember<'_>,
) -> Result<(), ClusterError> {
    let folder = folder_of(out, id);
    make_folder(&folder)?;
    write(&folder.join(JOIN_TOKEN_FILE), &format!("{}\n", join_token.reveal()), 0o600)?;
    certify(&folder, authority, id, address, days)?;
    let number = id.0;
    let (members, clients, http) =
        (address.listen(address.port), address.listen(address.port + 1), address.listen(address.port + 2));
    let advertise = if tail.is_empty() { format!("advertise = \"{address}\"\n") } else { String::new() };
    let certificate = authority::CERTIFICATE_FILE;
    let note = if address.loopback() {
        ""
    } else {
        "  # reached from other machines: with TLS, and only with a token"
    };
    let text = format!(
        "# Member {number}. Paths are relative to this file.\n{head}member = {number}\n{advertise}data = \"data\"\n\
         join_token = \"{JOIN_TOKEN_FILE}\"\ntokens = \"tokens.toml\"\naudit = \"audit.jsonl\"\n\n{tail}\n\
         [listen]\nmembers = \"{members}\"\nclients = \"{clients}\"{note}\nhttp = \"{http}\"\n\n\
         [tls]  # between members\nauthority = \"{certificate}\"\ncertificate = \"member-{number}.pem\"\nkey = \"member-{number}.key\"\n\n\
         [client_tls]\ncertificate = \"member-{number}.pem\"\nkey = \"member-{number}.key\"\n"
    );
    let path = folder.join("lockkeeper.toml");
    write(&path, &text, 0o644)?;
    // Check that the daemon can read the file.
    Config::read(&path).map(drop).map_err(ClusterError::config)
}

fn folder_of(out: &Path, id: MemberId) -> PathBuf {
    out.join(format!("member-{}", id.0))
}

fn make_folder(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(FileError::make_folder(path))
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let written = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(FileError::write(path))
}

/// A string in TOML's syntax.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
