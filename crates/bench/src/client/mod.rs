//! A process of clients: the same loop for all engines.

mod error;
pub mod floor;
mod library;
mod member;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use self::error::ClientError;
use crate::engine::Client as Kind;
use crate::exclusion::{ExclusionChecker, Violation};
use crate::job::{Figures, Job, StartSignal, WorkerMessage, now_ns};
use crate::workload::{Choice, Workload};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use hdrhistogram::errors::{AdditionError, CreationError};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Latencies are recorded with three digits up to a minute; longer ones count as a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Number of turns after which a client yields, for every engine: a client that never waits would prevent the
/// renewal of leases.
const TURNS_IN_A_ROW: u64 = 64;

/// The interface between the loop and a client of an engine.
pub(crate) trait Client {
    /// Waits for a lock; returns its fence, if it has one.
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError>;

    /// Releases the lock that was acquired last.
    async fn release(&mut self) -> Result<(), ClientError>;
}

/// A lock: its number and its name.
#[derive(Clone, Copy)]
pub(crate) struct Lock<'a> {
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "PostgreSQL's locks have numbers"))]
    pub number: usize,
    pub name: &'a str,
}

/// The reason why a process cannot continue.
#[derive(Debug, thiserror::Error)]
enum JobError {
    /// Mutual exclusion was violated, or a fence did not rise.
    #[error(transparent)]
    Violated(#[from] Violation),
    /// A client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The runtime cannot be started.
    #[error("cannot start: {0}")]
    CannotStart(#[source] std::io::Error),
    /// Standard input cannot be read.
    #[error("cannot read the job: {0}")]
    Read(#[source] std::io::Error),
    /// Standard input does not contain a job, or the start of one.
    #[error("this process must be started by `lockkeeper bench`: {0}")]
    NoJob(#[source] serde_json::Error),
    /// The task that reads standard input panicked.
    #[error("{0}")]
    Reader(#[source] tokio::task::JoinError),
    /// This build does not contain the client.
    #[error("this build has no client for {client:?}")]
    NotBuilt {
        /// The kind of client that is missing.
        client: Kind,
    },
    /// A grant of an engine with fences has none.
    #[error("a grant has no fence")]
    NoFence,
    /// Latencies cannot be recorded.
    #[error("{0}")]
    Histogram(#[from] CreationError),
    /// Latencies of several clients cannot be added.
    #[error("{0}")]
    Addition(#[from] AdditionError),
}

/// Performs the job that is given on standard input.
pub fn run() -> ExitCode {
    let done = read().and_then(|job: Job| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(JobError::CannotStart)?.block_on(serve(job))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let violation = matches!(error, JobError::Violated(_));
            send(&WorkerMessage::Failed { why: error.to_string(), violation });
            ExitCode::FAILURE
        }
    }
}

fn read<T: serde::de::DeserializeOwned>() -> Result<T, JobError> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(JobError::Read)?;
    serde_json::from_str(&line).map_err(JobError::NoJob)
}

fn send(message: &WorkerMessage) {
    let mut out = std::io::stdout().lock();
    // If the bench has ended, there is nothing left to do; the end of the input shows the same.
    let _ =
        writeln!(out, "{}", serde_json::to_string(message).expect("plain data")).and_then(|()| out.flush());
}

async fn serve(job: Job) -> Result<(), JobError> {
    let host = match &job.member {
        Some(member) => Some(member::Host::start(member).await?),
        None => None,
    };
    let host = host.as_ref();
    match job.client {
        Kind::Native => measure(&job, host, |_| library::Library::daemons(&job.servers, "yes", true)).await,
        Kind::NativeAck => measure(&job, host, |_| library::Library::daemons(&job.servers, "no", true)).await,
        Kind::NativeAsync => {
            measure(&job, host, |_| library::Library::daemons(&job.servers, "no", false)).await
        }
        Kind::Member => measure(&job, host, |_| member::InProcess::open(host)).await,
        Kind::File => measure(&job, host, |_| library::Library::file(&job.servers)).await,
        Kind::Floor => measure(&job, host, |_| floor::Floor::open(&job.servers)).await,
        #[cfg(feature = "etcd")]
        Kind::Etcd => measure(&job, host, |_| etcd::Etcd::open(&job.servers)).await,
        #[cfg(feature = "redis")]
        Kind::Redis => measure(&job, host, |_| redis::Redis::open(&job.servers[0], job.pause_ms)).await,
        #[cfg(feature = "redis")]
        Kind::Redlock => {
            measure(&job, host, |client| redlock::Redlock::open(&job.servers, client, job.pause_ms)).await
        }
        #[cfg(feature = "zookeeper")]
        Kind::ZooKeeper => measure(&job, host, |_| zookeeper::ZooKeeper::open(&job.servers[0])).await,
        #[cfg(feature = "postgres")]
        Kind::Postgres => measure(&job, host, |_| postgres::Postgres::open(&job.servers[0])).await,
        #[allow(unreachable_patterns, reason = "clients that this build does not contain")]
        client => Err(JobError::NotBuilt { client }),
    }
}

/// Connects all clients of this process, warms up, waits for the other processes, and measures.
async fn measure<C: Client, F: Future<Output = Result<C, ClientError>>>(
    job: &Job,
    host: Option<&member::Host>,
    open: impl Fn(usize) -> F,
) -> Result<(), JobError> {
    let checker = ExclusionChecker::new(job.exclusion_folder.as_deref(), job.workload.locks());
    let names: Vec<String> = (0..job.workload.locks()).map(|number| format!("bench/{number}")).collect();
    let mut clients = Vec::new();
    for &number in &job.clients {
        let (choice, client) = (Choice::new(job.workload, number), open(number).await?);
        clients.push(ClientLoop {
            client,
            choice,
            checker: &checker,
            names: &names,
            job,
            ledger: ClientFigures::new()?,
        });
    }
    let warm = now_ns() + (job.warm_up_s * 1e9) as u64;
    all(&mut clients, warm).await?;
    send(&WorkerMessage::Ready);

    let go: StartSignal = next_line().await?;
    let until = go.at_ns + (job.seconds * 1e9) as u64;
    let before = host.map(member::Host::messages);
    tokio::time::sleep(Duration::from_nanos(go.at_ns.saturating_sub(now_ns()))).await;
    clients.iter_mut().try_for_each(|client| ClientFigures::new().map(|new| client.ledger = new))?;
    let cpu = cpu_s();
    all(&mut clients, until).await?;
    // A process without clients, which is only a member, measures as long as the others.
    tokio::time::sleep(Duration::from_nanos(until.saturating_sub(now_ns()))).await;
    let messages = host.zip(before).map(|(host, before)| host.messages() - before);
    let cpu_s = cpu_s() - cpu;

    let mut figures = Figures { cpu_s, checked: checker.checked(), messages, ..Figures::default() };
    let mut sum = ClientFigures::new()?;
    for client in &clients {
        figures.turns.push(client.ledger.turns);
        sum.add(&client.ledger)?;
    }
    let all_of = |histogram: &Histogram<u64>| {
        histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    };
    (figures.acquire, figures.release) = (all_of(&sum.acquire), all_of(&sum.release));
    send(&WorkerMessage::Done(Box::new(figures)));
    // Other processes still measure, and the servers' counters are still read: stay connected until the end
    // of the input.
    let _ = next_line::<StartSignal>().await;
    Ok(())
}

/// The next line of standard input, read without blocking the runtime.
async fn next_line<T: serde::de::DeserializeOwned + Send + 'static>() -> Result<T, JobError> {
    let reading = tokio::task::spawn_blocking(read::<T>);
    reading.await.map_err(JobError::Reader)?
}

fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// Runs all clients until a time. A single client runs without the overhead of a task set.
async fn all<C: Client>(clients: &mut [ClientLoop<'_, C>], until_ns: u64) -> Result<(), JobError> {
    if let [one] = clients {
        return one.run(until_ns).await;
    }
    let mut running: FuturesUnordered<_> = clients.iter_mut().map(|client| client.run(until_ns)).collect();
    while let Some(ended) = running.next().await {
        ended?;
    }
    Ok(())
}

/// The measurements of one client.
struct ClientFigures {
    turns: u64,
    acquire: Histogram<u64>,
    release: Histogram<u64>,
}

impl ClientFigures {
    fn new() -> Result<ClientFigures, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Ok(ClientFigures { turns: 0, acquire: histogram()?, release: histogram()? })
    }

    fn turn(&mut self, acquire: Duration, release: Duration) {
        self.turns += 1;
        self.acquire.saturating_record(acquire.as_nanos() as u64);
        self.release.saturating_record(release.as_nanos() as u64);
    }

    fn add(&mut self, other: &ClientFigures) -> Result<(), AdditionError> {
        self.turns += other.turns;
        self.acquire.add(&other.acquire)?;
        self.release.add(&other.release)
    }
}

/// A client, and the state of its loop.
struct ClientLoop<'a, C> {
    client: C,
    choice: Choice,
    checker: &'a ExclusionChecker,
    names: &'a [String],
    job: &'a Job,
    ledger: ClientFigures,
}

impl<C: Client> ClientLoop<'_, C> {
    /// Performs turns until a time. The turn that is not complete by then does not count.
    async fn run(&mut self, until_ns: u64) -> Result<(), JobError> {
        let began = Instant::now();
        let end = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        for turn in 1_u64.. {
            let (acquire, release) = self.turn().await?;
            if began.elapsed() >= end {
                break;
            }
            self.ledger.turn(acquire, release);
            if turn % TURNS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<(Duration, Duration), JobError> {
        let number = self.choice.next_lock();
        let asked = Instant::now();
        let fence = self.client.acquire(Lock { number, name: &self.names[number] }).await?;
        let acquire = asked.elapsed();
        let is_lock = self.job.client != Kind::Floor;
        if is_lock {
            if self.job.fenced && fence.is_none() {
                return Err(JobError::NoFence);
            }
            self.checker.enter(number, fence)?;
        }
        if self.job.workload == Workload::W4 {
            tokio::time::sleep(self.job.workload.hold()).await;
        }
        if is_lock {
            self.checker.exit(number)?;
        }
        let leaving = Instant::now();
        self.client.release().await?;
        Ok((acquire, leaving.elapsed()))
    }
}
