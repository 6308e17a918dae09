//! The servers of an engine: started on free loopback ports with data in a temporary folder, and ended when
//! their value is dropped.

mod daemons;
mod etcd;
mod net;
mod postgres;
mod redis;
mod zookeeper;

pub use net::{NetError, free_ports};

use crate::engine::{Client, Engine, Servers as Kind};
use crate::error::{BenchError, FileError, Missing};
use crate::process::{PdeathsigPrefix, Server, ServerError, Used, find, used};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time after which a server counts as failed to start.
const STARTS_WITHIN: Duration = Duration::from_secs(90);
/// Interval between two checks whether it serves.
const LOOK: Duration = Duration::from_millis(20);

/// The parameters for starting servers.
pub struct ServerEnvironment<'a> {
    /// A folder for their data.
    pub folder: &'a Path,
    /// The executable of this program: its daemons are processes of the same executable.
    pub program: &'a Path,
    /// The prefix of commands that must not outlive this process.
    pub pdeathsig_prefix: &'a PdeathsigPrefix,
}

impl ServerEnvironment<'_> {
    /// A command that ends with this process, even if this one is killed.
    fn command(&self, program: &Path) -> Command {
        let mut words = self.pdeathsig_prefix.0.iter();
        match words.next() {
            None => Command::new(program),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
        }
    }

    /// Creates a folder.
    fn folder(&self, name: &str) -> Result<PathBuf, ServerError> {
        let folder = self.folder.join(name);
        FileError::make_folder(&folder)?;
        Ok(folder)
    }
}

/// The running servers of an engine.
pub struct Running {
    processes: Vec<Server>,
    /// The addresses for clients, the best one for a single client first.
    pub addresses: Vec<String>,
    /// The addresses of their metrics.
    metrics: Vec<String>,
    counts: Counts,
    /// The version that they report.
    pub version: String,
}

/// The available counters of messages and syncs.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// None are available.
    Nothing,
    /// Both are always zero: by its configuration the server has no peers and syncs nothing.
    None,
    /// The counters of lockkeeper's daemons.
    Daemons,
    /// The counters of etcd.
    Etcd,
}

/// The counters of the servers since their start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Number of messages between servers.
    pub messages: Option<f64>,
    /// Number of syncs of disks.
    pub syncs: Option<f64>,
}

impl Running {
    /// Creates the value of an engine without servers, with these addresses.
    fn without_servers(addresses: Vec<String>) -> Running {
        let version = format!("lockkeeper {}", env!("CARGO_PKG_VERSION"));
        Running { processes: Vec::new(), addresses, metrics: Vec::new(), counts: Counts::Nothing, version }
    }

    /// Ends the server at this place of [`addresses`](Self::addresses) with SIGKILL.
    pub fn kill(&mut self, place: usize) {
        self.processes[place].kill();
    }

    /// Processor time and written bytes so far.
    pub fn used(&self) -> Used {
        let pids: Vec<u32> = self.processes.iter().map(Server::pid).collect();
        used(&pids)
    }

    /// The counters so far.
    pub async fn counted(&self) -> Result<Counted, NetError> {
        match self.counts {
            Counts::Nothing => return Ok(Counted::default()),
            Counts::None => return Ok(Counted { messages: Some(0.0), syncs: Some(0.0) }),
            Counts::Daemons | Counts::Etcd => {}
        }
        let mut counted = Counted::default();
        let mut add = |place: fn(&mut Counted) -> &mut Option<f64>, value: f64| {
            *place(&mut counted).get_or_insert(0.0) += value;
        };
        for address in &self.metrics {
            let text = net::get(address, "/metrics").await?;
            if let Counts::Daemons = self.counts {
                add(|counted| &mut counted.messages, crate::metrics::sum(&text, "lockkeeper_messages_total"));
            } else {
                let syncs = crate::metrics::sum(&text, "etcd_disk_wal_fsync_duration_seconds_count")
                    + crate::metrics::sum(&text, "etcd_disk_backend_commit_duration_seconds_count");
                add(|counted| &mut counted.syncs, syncs);
            }
        }
        Ok(counted)
    }

    /// Checks that all of them run.
    pub fn live(&mut self) -> Result<(), ServerError> {
        self.processes.iter_mut().try_for_each(Server::check_running)
    }
}

/// The programs that an engine lacks on this machine.
pub fn missing(engine: &Engine) -> Vec<Missing> {
    let needed: &[(&str, &[&str], &'static str)] = match engine.servers {
        Kind::None | Kind::Daemons(_) | Kind::DaemonsWithoutRecords(_) | Kind::Members(_) | Kind::Floor => {
            &[]
        }
        Kind::Etcd(_) => &etcd::NEEDS,
        Kind::Redis(_) => &redis::NEEDS,
        Kind::ZooKeeper(_) => &zookeeper::NEEDS,
        Kind::Postgres => &postgres::NEEDS,
    };
    let lacks = needed.iter().filter(|(program, folders, _)| find(program, folders).is_none());
    lacks
        .map(|(program, _, package)| Missing {
            engine: engine.name.into(),
            program: (*program).into(),
            package,
        })
        .collect()
}

/// Starts the servers of an engine; returns when they serve.
pub async fn start(engine: &Engine, environment: &ServerEnvironment<'_>) -> Result<Running, BenchError> {
    let lacks = missing(engine);
    if !lacks.is_empty() {
        return Err(BenchError::Missing(lacks));
    }
    let started = match engine.servers {
        Kind::None => environment
            .folder("locks")
            .map(|folder| Running::without_servers(vec![folder.display().to_string()])),
        Kind::Members(_) => Ok(Running::without_servers(Vec::new())),
        Kind::Daemons(count) => daemons::start(count, "", engine.client == Client::Etcd, environment).await,
        Kind::DaemonsWithoutRecords(count) => {
            let settings = "record_after = \"86400s\"\n";
            daemons::start(count, settings, engine.client == Client::Etcd, environment).await
        }
        Kind::Etcd(count) => etcd::start(count, environment).await,
        Kind::Redis(count) => redis::start(count, environment).await,
        Kind::ZooKeeper(count) => zookeeper::start(count, environment).await,
        Kind::Postgres => postgres::start(environment).await,
        Kind::Floor => floor(environment).await,
    };
    started.map_err(|source| BenchError::Start { engine: engine.name, source })
}

async fn floor(environment: &ServerEnvironment<'_>) -> Result<Running, ServerError> {
    let port = net::free_port()?;
    let mut command = environment.command(environment.program);
    command.args(["bench", "floor", &port.to_string()]);
    let server = Server::start(command, Signal::KILL, environment.folder("floor")?.join("log"))?;
    let address = format!("127.0.0.1:{port}");
    let mut running = Running::without_servers(vec![address.clone()]);
    running.processes.push(server);
    until(&mut running.processes, || net::accepts(&address)).await?;
    Ok(running)
}

/// Waits for a condition while the processes run.
async fn until<F: Future<Output = bool>>(
    processes: &mut [Server],
    mut condition: impl FnMut() -> F,
) -> Result<(), ServerError> {
    let began = Instant::now();
    while !condition().await {
        processes.iter_mut().try_for_each(Server::check_running)?;
        if began.elapsed() > STARTS_WITHIN {
            return Err(ServerError::NotServing { within: STARTS_WITHIN });
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The first line of a program's output for its version argument.
fn version_of(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}
