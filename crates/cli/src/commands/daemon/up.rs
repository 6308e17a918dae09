//! `lockkeeper up`: runs a daemon in the foreground. `lockkeeper join`: the same, as a further member of a cluster.

use super::log;
use crate::commands::engine::user_directory;
use crate::exit::{self, BoxError, CliError};
use futures_util::future::select_all;
use lockkeeper_cluster::{Config as MemberConfig, JoinToken, MemberId};
use lockkeeper_daemon::{Config, Daemon, Ending, HTTP_PORT, MEMBERS_PORT};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Run a daemon: a member of a lock cluster that serves clients of every language
///
/// By default it is a single member on loopback, with its data in the user's state directory. It does not listen for
/// other members; with --listen it does, and creates a join token that `lockkeeper join` needs. On SIGTERM or SIGINT
/// it stops granting locks, hands the holds of its clients over to other members, and leaves; a second signal ends it at
/// once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockkeeper up                                   one member on this machine
  lockkeeper run nightly --on lockkeeper: -- ./backup.sh      ... and a use of it
  lockkeeper up --dev 3                           three members on loopback, for trying things
  lockkeeper up --listen 127.0.0.1:7420           one member that others may join, with `lockkeeper join`
  lockkeeper cluster init --members a:7420,b:7420,c:7420      write configurations for three machines,
  lockkeeper up --config member-1/lockkeeper.toml             and start each with its own")]
pub struct Up {
    /// Read all settings from this file; `lockkeeper cluster init` writes one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dev", "data", "algorithm", "clients", "http", "listen", "join_token"])]
    config: Option<PathBuf>,
    /// Run this number of members on loopback in this process, with temporary data
    #[arg(long, value_name = "MEMBERS", value_parser = clap::value_parser!(u32).range(1..=9), conflicts_with_all = ["data", "clients", "http", "listen", "join_token"])]
    dev: Option<u32>,
    /// The address to listen on for other members, so that they can join; beyond loopback only with --insecure-no-tls
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// The address at which the other members reach it [default: that of --listen]
    #[arg(long, value_name = "HOST:PORT", requires = "listen")]
    advertise: Option<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Join an existing cluster as a further member
///
/// The daemon runs in the foreground like that of `lockkeeper up`. It needs the cluster's join token: a copy of the
/// file that `lockkeeper up --listen` has written, which is found automatically for the same user on the same
/// machine; or the token in the environment variable LOCKKEEPER_JOIN_TOKEN. Where members use TLS, write its
/// configuration with `lockkeeper cluster add`, and start it with `lockkeeper up --config`. To restart the member,
/// repeat the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lockkeeper up --listen 127.0.0.1:7420           one member on this machine, and a second one beside it:
  lockkeeper join 127.0.0.1:7420 --member 2 --listen 127.0.0.1:7430 --clients 127.0.0.1:7431 --http 127.0.0.1:7432
  lockkeeper join a:7420,b:7420 --member 4 --listen 0.0.0.0:7420 --advertise d:7420 --insecure-no-tls --join-token FILE")]
pub struct Join {
    /// Members of the cluster, as host:port; one of them must be reachable
    #[arg(value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    members: Vec<String>,
    /// The number of the new member, which must be unique
    #[arg(long, value_name = "NUMBER")]
    member: u32,
    /// The address to listen on for the other members; beyond loopback only with --insecure-no-tls
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// The address at which the other members reach it [default: that of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The default name of the file with the join token.
const JOIN_TOKEN_FILE: &str = "join-token";
/// The environment variable with the join token, for `join`.
const JOIN_TOKEN_VARIABLE: &str = "LOCKKEEPER_JOIN_TOKEN";

#[derive(clap::Args)]
struct DaemonArgs {
    /// The folder of the daemon's persistent state [default: below lockkeeper-daemon in the user's state directory]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// File with the cluster's join token, the secret that every member needs [default: join-token below --data, or below
    /// lockkeeper-daemon in the user's state directory]
    #[arg(long, value_name = "FILE", requires = "listen")]
    join_token: Option<PathBuf>,
    /// The algorithm of the cluster's locks; `lockkeeper algorithms` lists them
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// The address for clients [default: 127.0.0.1:7421]
    #[arg(long, value_name = "ADDRESS")]
    clients: Option<SocketAddr>,
    /// The address for HTTP and gRPC [default: 127.0.0.1:7422]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// The file of tokens; without it, every client that can connect has all permissions
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Write an audit log of grants, releases and rejections, one JSON object per line
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// After the loss of all disks: the highest epoch of any fence ever seen (fence >> 32), so that fences continue
    /// to rise
    #[arg(long, value_name = "EPOCH", default_value_t = 0)]
    epoch_above: u64,
    /// Serve clients and members beyond loopback without TLS: every host on the network can acquire and release every
    /// lock
    #[arg(long)]
    insecure_no_tls: bool,
    /// Serve clients beyond loopback that present neither a token nor a certificate
    #[arg(long)]
    insecure_no_auth: bool,
    /// The number of threads [default: half the number of cores]: serving costs little except waking threads, and
    /// more threads wake each other more often
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The log level: error, warn, info, debug, trace, or `crate=level,…`
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: String,
    /// Log as JSON, one object per line
    #[arg(long)]
    log_json: bool,
}

impl DaemonArgs {
    fn apply(self, config: &mut Config) {
        config.clients = self.clients.or(config.clients);
        config.http = self.http.or(config.http);
        config.tokens = self.tokens.or(config.tokens.take());
        config.audit = self.audit.or(config.audit.take());
        config.insecure_no_tls |= self.insecure_no_tls;
        config.insecure_no_auth |= self.insecure_no_auth;
        config.member.insecure_no_tls |= self.insecure_no_tls;
        config.member.epoch_above = config.member.epoch_above.max(self.epoch_above);
        if let Some(algorithm) = self.algorithm {
            config.member.algorithm = algorithm;
        }
    }

    fn data(&self) -> Result<PathBuf, UpError> {
        match &self.data {
            Some(data) => Ok(data.clone()),
            None => Ok(state_directory()?.join("member-1")),
        }
    }

    /// The path of the join token. Default: the file in the data directory if it exists, otherwise the user's file,
    /// which all daemons of this user share.
    fn join_token(&self) -> Result<PathBuf, UpError> {
        match (&self.join_token, &self.data) {
            (Some(file), _) => Ok(file.clone()),
            (None, Some(data)) if data.join(JOIN_TOKEN_FILE).exists() => Ok(data.join(JOIN_TOKEN_FILE)),
            (None, _) => Ok(state_directory()?.join(JOIN_TOKEN_FILE)),
        }
    }

    /// The join token of an existing cluster.
    fn existing_join_token(&self) -> Result<JoinToken, UpError> {
        if let (None, Some(text)) = (&self.join_token, std::env::var_os(JOIN_TOKEN_VARIABLE)) {
            return JoinToken::parse(&text.to_string_lossy())
                .map_err(|error| UpError::JoinTokenVariable(error.into()));
        }
        let file = self.join_token()?;
        JoinToken::read(&file).map_err(|error| UpError::NoJoinToken(error.into()))
    }
}

/// The reason why a daemon cannot be started, or has ended.
#[derive(Debug, thiserror::Error)]
enum UpError {
    /// The default folder of the data is unknown.
    #[error("there is no home directory: give the folder for the daemon's data with --data")]
    NoHome,
    /// The configuration file cannot be used.
    #[error("{0}")]
    Config(#[source] BoxError),
    /// The join token cannot be created or read.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// The environment variable does not contain a join token.
    #[error("{JOIN_TOKEN_VARIABLE}: {0}")]
    JoinTokenVariable(#[source] BoxError),
    /// The file of the cluster's join token cannot be read.
    #[error(
        "{0}\nA member joins with the cluster's join token: give --join-token a copy of the file that `lockkeeper up \
         --listen` names at its start, or set {JOIN_TOKEN_VARIABLE}"
    )]
    NoJoinToken(#[source] BoxError),
    /// The folder of temporary data cannot be made.
    #[error("cannot make a folder for the data: {0}")]
    TemporaryFolder(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// The daemon does not start.
    #[error("{0}")]
    Start(#[source] BoxError),
    /// The member has stopped.
    #[error("the daemon ends: {why}")]
    Stopped {
        /// The reason that the member reports.
        why: String,
    },
    /// A second signal ended the daemon before it had left its cluster.
    #[error("ended at once: the other members wait for its lease to expire")]
    EndedAtOnce,
}

/// The directory of daemons: `$XDG_STATE_HOME/lockkeeper-daemon`, or below `~/.local/state`.
fn state_directory() -> Result<PathBuf, UpError> {
    let state = user_directory("XDG_STATE_HOME", ".local/state").ok_or(UpError::NoHome)?;
    Ok(state.join("lockkeeper-daemon"))
}

impl Up {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.serve())
    }

    fn serve(self) -> Result<ExitCode, CliError> {
        start_log(&self.daemon.log, self.daemon.log_json);
        let threads = self.daemon.threads;
        let config = match (&self.config, self.dev) {
            (Some(file), _) => Config::read(file)
                .map(|mut config| {
                    self.daemon.apply(&mut config);
                    config
                })
                .map_err(|error| UpError::Config(error.into())),
            (None, Some(members)) => return dev(members, self.daemon),
            (None, None) => self.alone(),
        };
        serve(vec![config.map_err(CliError::usage)?], threads)
    }
}

impl Up {
    /// The configuration of a single member, which others can join if it listens.
    fn alone(self) -> Result<Config, UpError> {
        let mut config = Config::alone(self.daemon.data()?);
        if let Some(listen) = self.listen {
            let file = match (&self.daemon.join_token, &self.daemon.data) {
                (None, Some(data)) => data.join(JOIN_TOKEN_FILE),
                _ => self.daemon.join_token()?,
            };
            let join_token = JoinToken::read_or_create(&file);
            config.member.join_token = Some(join_token.map_err(|error| UpError::JoinToken(error.into()))?);
            (config.member.listen, config.member.advertise) = (listen, self.advertise);
            crate::print_line!(
                "join token in    {}   (for `lockkeeper join`; keep it secret)",
                absolute(&file).display()
            );
        }
        self.daemon.apply(&mut config);
        Ok(config)
    }
}

impl Join {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.serve())
    }

    fn serve(self) -> Result<ExitCode, CliError> {
        start_log(&self.daemon.log, self.daemon.log_json);
        let data = match &self.daemon.data {
            Some(data) => data.clone(),
            None => state_directory().map_err(CliError::usage)?.join(format!("member-{}", self.member)),
        };
        let join_token = self.daemon.existing_join_token().map_err(CliError::usage)?;
        let mut member = MemberConfig::new(MemberId(self.member), self.listen, data);
        member.join_token = Some(join_token);
        (member.join, member.advertise) = (self.members, self.advertise);
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut config = Config::of(member, at(lockkeeper_daemon::CLIENTS_PORT), at(HTTP_PORT));
        let threads = self.daemon.threads;
        self.daemon.apply(&mut config);
        serve(vec![config], threads)
    }
}

/// Runs several members on loopback in this process.
fn dev(members: u32, daemon: DaemonArgs) -> Result<ExitCode, CliError> {
    let folder =
        tempfile::tempdir().map_err(|error| CliError::cannot_run(UpError::TemporaryFolder(error)))?;
    let token = folder.path().join(JOIN_TOKEN_FILE);
    let join_token = JoinToken::read_or_create(&token)
        .map_err(|error| CliError::cannot_run(UpError::JoinToken(error.into())))?;
    let mut configs = dev_configs(members, folder.path(), MEMBERS_PORT);
    if members > 1 {
        crate::print_line!("join token in    {}   (for `lockkeeper join`)", token.display());
    }
    for config in &mut configs {
        // A single member does not listen for others.
        config.member.join_token = (members > 1).then(|| join_token.clone());
        config.member.algorithm = daemon.algorithm.clone().unwrap_or_else(|| config.member.algorithm.clone());
        (config.tokens, config.audit) = (daemon.tokens.clone(), daemon.audit.clone());
    }
    serve(configs, daemon.threads)
}

/// The configurations of members on loopback. Member n uses the ports from `first_port` + 10(n−1).
pub(super) fn dev_configs(members: u32, folder: &Path, first_port: u16) -> Vec<Config> {
    let at = |n: u32, port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, first_port + 10 * n as u16 + port));
    let all: BTreeMap<MemberId, String> =
        (0..members).map(|n| (MemberId(n + 1), at(n, 0).to_string())).collect();
    let config = |n: u32| {
        let data = folder.join(format!("member-{}", n + 1));
        let mut member = MemberConfig::new(MemberId(n + 1), at(n, 0), data);
        member.first_members.clone_from(&all);
        Config::of(member, at(n, 1), at(n, 2))
    };
    (0..members).map(config).collect()
}

fn start_log(level: &str, json: bool) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    // openraft logs every lost message, and the network layer reports each loss once anyway: off by default.
    let plain = !level.contains([',', '=']);
    let filter = if plain { format!("{level},openraft=off") } else { level.to_owned() };
    let filter = filter.parse().unwrap_or_else(|error| {
        eprintln!("lockkeeper: --log {level}: {error}; logging warnings");
        Targets::new().with_default(LevelFilter::WARN)
    });
    let colours = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(colours)
        .with_writer(std::io::stderr);
    // If a subscriber is already installed, its log is used.
    let _ = match json {
        true => subscriber.json().finish().with(filter).try_init(),
        false => subscriber.fmt_fields(log::fields()).finish().with(filter).try_init(),
    };
    lockkeeper_daemon::log_panics();
}

fn serve(configs: Vec<Config>, threads: Option<u16>) -> Result<ExitCode, CliError> {
    let half = || std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    let threads = threads.map_or_else(half, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(CliError::CannotStart)?;
    runtime.block_on(serve_all(configs)).map_err(CliError::cannot_run)?;
    Ok(ExitCode::SUCCESS)
}

async fn serve_all(configs: Vec<Config>) -> Result<(), UpError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(UpError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(UpError::Signals)?;
    let mut daemons = Vec::new();
    for config in configs {
        let given = config.clone();
        let daemon = Daemon::start(config).await.map_err(|error| UpError::Start(error.into()))?;
        introduce(&daemon, &given);
        daemons.push(daemon);
    }
    let ends: Vec<_> = daemons.iter().map(|daemon| Box::pin(daemon.ends())).collect();
    let ready = async {
        for daemon in &daemons {
            if tokio::time::timeout(Duration::from_millis(600), daemon.member().ready()).await.is_err() {
                if let Some(trouble) = daemon.member().not_serving() {
                    eprintln!(
                        "lockkeeper: {trouble}. After a crash it waits until all that it may have promised before has run out"
                    );
                }
                if daemon.member().ready().await.is_err() {
                    return;
                }
            }
            crate::print_line!("member {} serves", daemon.member().id().0);
        }
        std::future::pending().await
    };
    tokio::select! {
        () = ready => {}
        (ending, _, _) = select_all(ends) => {
            if let Ending::Stopped(why) = ending {
                return Err(UpError::Stopped { why });
            }
        }
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("lockkeeper: leaving; signal again to end at once");
    let leave = async {
        let all: tokio::task::JoinSet<()> = daemons.into_iter().map(Daemon::leave).collect();
        all.join_all().await;
    };
    tokio::select! {
        () = leave => Ok(()),
        _ = terminate.recv() => Err(UpError::EndedAtOnce),
        _ = interrupt.recv() => Err(UpError::EndedAtOnce),
    }
}

fn introduce(daemon: &Daemon, config: &Config) {
    let at = daemon.addresses();
    let (member, tls) = (&config.member, config.client_tls.is_some());
    crate::print_line!("member {} of the cluster `{}`", member.id.0, member.cluster);
    if let Some(clients) = at.clients {
        crate::print_line!(
            "  for clients   lockkeeper://{clients}{}",
            if tls { "?ca=…   (TLS)" } else { "" }
        );
    }
    if let Some(socket) = &config.socket {
        crate::print_line!("                lockkeeper://{}", absolute(socket).display());
    }
    if let Some(http) = at.http {
        let scheme = if tls { "https" } else { "http" };
        crate::print_line!(
            "  for HTTP      {scheme}://{http}   (a page for people, JSON, and etcd's lock API by gRPC)"
        );
    }
    match at.members {
        Some(members) => crate::print_line!("  for members   {members}"),
        None => crate::print_line!("  for members   closed: nothing listens for them"),
    }
    crate::print_line!("  data in       {}", member.data.display());
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
