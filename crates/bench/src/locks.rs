//! `bench locks`: compares engines.
//!
//! For each repeat, for each engine: starts its servers, runs all workloads, ends the servers. Other load on
//! the machine therefore affects all engines alike, and no engine runs beside the servers of another.

use crate::engine::{Engine, Servers};
use crate::error::{BenchError, FileError};
use crate::job::{Job, MemberJob, StartSignal, now_ns};
use crate::process::PdeathsigPrefix;
use crate::run::{Run, ServerReading, ServerUse};
use crate::servers::{self, NetError, Running, ServerEnvironment};
use crate::worker::Worker;
use crate::workload::Workload;
use futures_util::future::try_join_all;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time from the last client's readiness until all start: enough for the message to reach all of them.
const RUN_UP: Duration = Duration::from_millis(100);
/// The maximum duration of the warm-up.
const WARM_UP_S: f64 = 0.5;

/// The measurements to make.
pub struct Plan {
    /// The engines to measure.
    pub engines: Vec<&'static Engine>,
    /// The workloads to measure.
    pub workloads: Vec<Workload>,
    /// Duration of each run.
    pub seconds: f64,
    /// Number of repeats.
    pub repeat: usize,
    /// Pause of waiters of Redis, which has no queue, before they retry; 0: no pause.
    pub pause_ms: u64,
}

/// How to start the processes.
pub struct Program {
    /// The executable of the command.
    pub path: PathBuf,
    /// The prefix of commands that must not outlive this process.
    pub pdeathsig_prefix: PdeathsigPrefix,
}

impl Plan {
    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.engines.len() * self.workloads.len() * self.repeat
    }

    /// Rejects, before starting anything, engines that this build or this machine cannot measure.
    pub fn check(&self) -> Result<(), BenchError> {
        let not_built: Vec<_> = self.engines.iter().filter_map(|engine| engine.not_built()).collect();
        if !not_built.is_empty() {
            return Err(BenchError::NotBuilt(not_built));
        }
        let missing: Vec<_> = self.engines.iter().flat_map(|engine| servers::missing(engine)).collect();
        if missing.is_empty() { Ok(()) } else { Err(BenchError::Missing(missing)) }
    }
}

/// The results of a plan.
#[derive(Debug, Default)]
pub struct Measured {
    /// The figures of all runs.
    pub runs: Vec<Run>,
    /// The version that each engine's servers report.
    pub versions: Vec<(&'static str, String)>,
    /// The failed measurements, each with the reason.
    pub failures: Vec<String>,
}

/// Running servers, and the temporary folder of their data.
pub(crate) struct Stage {
    pub(crate) running: Running,
    folder: tempfile::TempDir,
}

impl Stage {
    pub(crate) async fn set(engine: &Engine, program: &Program) -> Result<Stage, BenchError> {
        let folder = tempfile::Builder::new().prefix("lockkeeper-bench-").tempdir();
        let folder = folder.map_err(BenchError::FolderOfServers)?;
        let environment = ServerEnvironment {
            folder: folder.path(),
            program: &program.path,
            pdeathsig_prefix: &program.pdeathsig_prefix,
        };
        Ok(Stage { running: servers::start(engine, &environment).await?, folder })
    }

    /// Ends the servers, and keeps their data.
    fn end(self) -> tempfile::TempDir {
        self.folder
    }
}

/// Performs all runs of a plan. A failed run is reported at the end, and the others continue; a violation of
/// mutual exclusion ends everything. `report` is called with a description of each run before it starts.
pub async fn run(plan: &Plan, program: &Program, report: &dyn Fn(&str)) -> Result<Measured, BenchError> {
    plan.check()?;
    let mut measured = Measured::default();
    // Nothing is deleted before the end: ext4 slows down the creation of files, and with it the engine `file`, for a
    // minute after others beside them were deleted.
    let mut folders = Vec::new();
    for repeat in 1..=plan.repeat {
        for &engine in &plan.engines {
            let mut stage = None;
            for &workload in &plan.workloads {
                report(&format!("{} {} ({repeat} of {})", engine.name, workload.name(), plan.repeat));
                let one = One { engine, workload, repeat, plan, program };
                match one.on(&mut stage).await.map_err(|trouble| one.of_this(trouble)) {
                    Ok(run) => measured.runs.push(run),
                    Err(failure @ BenchError::Run { .. }) => {
                        measured.failures.push(failure.to_string());
                        // The next run starts with new servers.
                        folders.extend(stage.take().map(Stage::end));
                    }
                    Err(trouble) => return Err(trouble),
                }
                if let Some(stage) = &stage
                    && !measured.versions.iter().any(|(name, _)| *name == engine.name)
                {
                    measured.versions.push((engine.name, stage.running.version.clone()));
                }
            }
            folders.extend(stage.map(Stage::end));
        }
    }
    Ok(measured)
}

/// One run: one engine, one workload.
struct One<'a> {
    engine: &'static Engine,
    workload: Workload,
    repeat: usize,
    plan: &'a Plan,
    program: &'a Program,
}

impl One<'_> {
    /// Performs the run; starts the servers if there are none.
    async fn on(&self, stage: &mut Option<Stage>) -> Result<Run, BenchError> {
        let stage = match stage {
            Some(stage) => stage,
            None => stage.insert(Stage::set(self.engine, self.program).await?),
        };
        self.run(&mut stage.running, stage.folder.path()).await
    }

    /// Adds the engine and workload to an error.
    fn of_this(&self, error: BenchError) -> BenchError {
        let (engine, workload) = (self.engine.name, self.workload.name());
        match error {
            BenchError::Violated { what, .. } => {
                BenchError::Violated { engine: engine.into(), workload: workload.into(), what }
            }
            missing @ BenchError::Missing(_) => missing,
            other => BenchError::Run { engine, workload, source: Box::new(other) },
        }
    }

    async fn run(&self, servers: &mut Running, folder: &Path) -> Result<Run, BenchError> {
        let jobs = self.jobs(&servers.addresses, folder)?;
        let mut workers = Vec::new();
        for job in &jobs {
            workers.push(Worker::start(&self.program.path, &self.program.pdeathsig_prefix, job).await?);
        }
        try_join_all(workers.iter_mut().map(Worker::ready)).await?;
        let counted = servers.counted().await?;
        let go = StartSignal { at_ns: now_ns() + RUN_UP.as_nanos() as u64 };
        for worker in &mut workers {
            worker.go(&go).await?;
        }
        until(go.at_ns).await;
        let used = servers.used();
        until(go.at_ns + (self.plan.seconds * 1e9) as u64).await;
        let used_after = servers.used();
        let counted_after = servers.counted().await?;
        let figures = try_join_all(workers.iter_mut().map(|worker| worker.done(self.plan.seconds))).await?;
        servers.live()?;
        for worker in workers {
            worker.end().await;
        }
        let before = ServerReading { used, counted };
        let after = ServerReading { used: used_after, counted: counted_after };
        let servers = ServerUse { before, after };
        Ok(Run::new(self.engine, self.workload, self.repeat, self.plan.seconds, &figures, &servers))
    }

    /// The job of each client process.
    fn jobs(&self, addresses: &[String], folder: &Path) -> Result<Vec<Job>, BenchError> {
        let (members, processes) = match self.engine.servers {
            Servers::Members(count) => (members(count)?, count),
            _ => (Vec::new(), self.workload.processes()),
        };
        let several = processes.min(self.workload.clients()) > 1;
        let exclusion_folder =
            several.then(|| made(folder.join(format!("exclusion-{}", self.workload.name())))).transpose()?;
        let join_token = folder.join("join-token");
        lockkeeper_cluster::JoinToken::read_or_create(&join_token)
            .map_err(|error| BenchError::JoinToken(error.into()))?;
        let job = |process: usize| {
            let mut servers = addresses.to_vec();
            if !servers.is_empty() {
                servers.rotate_left(process % addresses.len());
            }
            let data = folder.join(format!("{}-member-{}", self.workload.name(), process + 1));
            let (id, join_token) = (process as u32 + 1, join_token.clone());
            let member = MemberJob { id, members: members.clone(), data, join_token };
            Job {
                client: self.engine.client,
                servers,
                workload: self.workload,
                clients: (0..self.workload.clients())
                    .filter(|client| client % processes == process)
                    .collect(),
                warm_up_s: WARM_UP_S.min(self.plan.seconds / 4.0),
                seconds: self.plan.seconds,
                pause_ms: self.plan.pause_ms,
                exclusion_folder: exclusion_folder.clone(),
                fenced: self.engine.fenced,
                member: (!members.is_empty()).then_some(member),
            }
        };
        Ok((0..processes).map(job).collect())
    }
}

/// Addresses for a number of members.
fn members(count: usize) -> Result<Vec<SocketAddr>, NetError> {
    let ports = servers::free_ports(count)?;
    Ok(ports.into_iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect())
}

fn made(folder: PathBuf) -> Result<PathBuf, FileError> {
    FileError::make_folder(&folder)?;
    Ok(folder)
}

async fn until(at_ns: u64) {
    tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await;
}
