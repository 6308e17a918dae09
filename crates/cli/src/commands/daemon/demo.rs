//! `lockkeeper demo`: two cash machines, one account, and a real cluster on loopback.

use crate::exit::{self, BoxError, CliError};
use crate::file_error::FileError;
use lockkeeper::{Guard, Lockkeeper};
use lockkeeper_cluster::JoinToken;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_core::{Load, PaperFigures};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

/// Show how money is lost without a lock, and none with it, on a real cluster of three members
///
/// Starts three daemons on loopback, lets two cash machines use one account, kills a member in between, and explains
/// what happens. The demo ends by itself, and leaves no files behind.
#[derive(clap::Args)]
pub struct Demo {
    /// The number of deposits that each cash machine makes under the lock
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    deposits: u32,
}

const OPENING: u64 = 1_000;
const DEPOSIT: u64 = 10_000;
const LOCK: &str = "account/42";
/// A timeout that only a stuck cluster reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The bank: it stores a balance, and rejects a write with a fence lower than the highest it has seen.
struct Bank {
    balance: u64,
    fence: u64,
    refused: u32,
}

impl Bank {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { balance: OPENING, fence: 0, refused: 0 })
    }

    fn write(&mut self, balance: u64, fence: u64) -> bool {
        if fence < self.fence {
            self.refused += 1;
            return false;
        }
        (self.balance, self.fence) = (balance, fence);
        true
    }
}

/// A daemon in a separate process; killed when the demo ends.
struct Daemon {
    child: Child,
    clients: SocketAddr,
    http: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Demo {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.show())
    }

    fn show(self) -> Result<ExitCode, CliError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let shown = async {
            match tokio::time::timeout(TIMEOUT, run_demo(self.deposits)).await {
                Ok(shown) => shown,
                Err(_) => Err(DemoError::Stuck),
            }
        };
        match runtime.map_err(CliError::CannotStart)?.block_on(shown) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error @ DemoError::MoneyLost) => Err(CliError::Violated(error.into())),
            Err(error) => Err(CliError::cannot_run(error)),
        }
    }
}

/// The reason why the demo failed.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    /// The folder of temporary data cannot be made.
    #[error("cannot make a folder: {0}")]
    TemporaryFolder(#[source] std::io::Error),
    /// The path of this program is unknown.
    #[error("cannot find this program: {0}")]
    Program(#[source] std::io::Error),
    /// There are not enough free ports.
    #[error("no port of loopback is free: {0}")]
    Ports(#[source] std::io::Error),
    /// The join token cannot be created.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// The configuration of a daemon cannot be written.
    #[error(transparent)]
    Config(#[from] FileError),
    /// A daemon cannot be started.
    #[error("cannot start a daemon: {0}")]
    Daemon(#[source] std::io::Error),
    /// An operation on the lock failed.
    #[error(transparent)]
    Lock(#[from] lockkeeper::Error),
    /// A task panicked.
    #[error("{0}")]
    Task(#[from] tokio::task::JoinError),
    /// The counters of a daemon cannot be read.
    #[error("cannot read the metrics: {0}")]
    Metrics(#[source] std::io::Error),
    /// The cluster makes no progress.
    #[error("the cluster is stuck: nothing for {TIMEOUT:?}")]
    Stuck,
    /// Mutual exclusion was violated.
    #[error("money was lost under the lock: this must never happen")]
    MoneyLost,
}

async fn run_demo(deposits: u32) -> Result<(), DemoError> {
    let began = Instant::now();
    crate::print_line!(
        "An account holds {OPENING}. Two cash machines deposit {DEPOSIT} each, at the same time."
    );
    crate::print_line!("");
    crate::print_line!("Without a lock");
    without_lock().await;
    crate::print_line!("");
    crate::print_line!("With a lock, on a cluster of three members on this machine");
    let folder = tempfile::tempdir().map_err(DemoError::TemporaryFolder)?;
    let mut daemons = start(folder.path())?;
    let first = open(&[&daemons[0]]).await?;
    let second = open(&[&daemons[1], &daemons[0]]).await?;
    crate::print_line!("  Three daemons serve. Machine A uses member 1, machine B uses member 2.");
    let before = counts(&daemons)?;
    let (bank, entered) = (Arc::new(Bank::new()), Instant::now());
    deposit_both(&bank, &first, &second, deposits).await?;
    let after = counts(&daemons)?;
    let took = entered.elapsed();
    let good = balance(&bank, 2 * deposits);
    let (entries, messages) = (after.0 - before.0, after.1 - before.1);
    let formula = NaimiTrehel::expected(Load::High, 3, &()).messages_per_entry.unwrap_or_default();
    crate::print_line!(
        "  {entries} entries in {:.1} s cost {messages} messages between members: {:.2} for each.",
        took.as_secs_f64(),
        messages as f64 / entries.max(1) as f64
    );
    crate::print_line!(
        "  Naimi and Tréhel's algorithm needs (4N−2)/(N+1) = {formula:.2} on average if all N = 3 ask all the time, and with one idle, less."
    );
    crate::print_line!("");
    crate::print_line!("With the same lock, and member 2 killed on the way");
    let bank = Arc::new(Bank::new());
    let (kill, watched) = (daemons.remove(1), bank.clone());
    let killer = tokio::spawn(async move {
        // Kill the member when a quarter of the deposits has been made.
        while watched.lock().map_or(0, |bank| bank.balance) < OPENING + u64::from(deposits / 2) * DEPOSIT {
            tokio::task::yield_now().await;
        }
        drop(kill);
        Instant::now()
    });
    deposit_both(&bank, &first, &second, deposits).await?;
    let killed = killer.await?;
    crate::print_line!(
        "  Machine B went on by another member. All was done {:.1} s after the kill.",
        killed.elapsed().as_secs_f64()
    );
    let still_good = balance(&bank, 2 * deposits);
    crate::print_line!("");
    crate::print_line!(
        "That took {:.1} s. `lockkeeper up --dev 3` starts such a cluster for you.",
        began.elapsed().as_secs_f64()
    );
    if good && still_good { Ok(()) } else { Err(DemoError::MoneyLost) }
}

/// Prints the balance, and returns whether it is the expected one.
fn balance(bank: &Mutex<Bank>, deposits: u32) -> bool {
    let bank = bank.lock().unwrap_or_else(|e| e.into_inner());
    let expected = OPENING + u64::from(deposits) * DEPOSIT;
    let verdict = if bank.balance == expected { "nothing is lost" } else { "MONEY IS LOST" };
    crate::print_line!(
        "  {deposits} deposits: {expected} should be there, and {} are: {verdict}.",
        bank.balance
    );
    if bank.refused > 0 {
        crate::print_line!("  The bank refused {} late writes by their fences.", bank.refused);
    }
    bank.balance == expected
}

/// Both machines read before either writes: a schedule that is possible without a lock.
async fn without_lock() {
    let (bank, both_have_read) = (Arc::new(Bank::new()), Arc::new(Barrier::new(2)));
    let machine = |name: &'static str| {
        let (bank, both_have_read) = (bank.clone(), both_have_read.clone());
        async move {
            let read = bank.lock().map_or(0, |bank| bank.balance);
            crate::print_line!("  machine {name} reads {read}");
            both_have_read.wait().await;
            if let Ok(mut bank) = bank.lock() {
                bank.balance = read + DEPOSIT;
                crate::print_line!("  machine {name} writes {}", bank.balance);
            }
        }
    };
    tokio::join!(machine("A"), machine("B"));
    balance(&bank, 2);
}

async fn deposit_both(
    bank: &Arc<Mutex<Bank>>,
    first: &Lockkeeper,
    second: &Lockkeeper,
    deposits: u32,
) -> Result<(), DemoError> {
    let machine = |locks: &Lockkeeper| {
        let (locks, bank) = (locks.clone(), bank.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while done < deposits {
                let guard = locks.mutex(LOCK).acquire().await?;
                done += u32::from(deposit(&bank, &guard));
                // The release of a lost lock fails, which needs no action here.
                let _ = guard.release().await;
            }
            Ok::<_, DemoError>(())
        })
    };
    let (one, other) = tokio::join!(machine(first), machine(second));
    one??;
    other?
}

/// Reads, adds and writes like the machines without a lock; the bank checks the fence.
fn deposit(bank: &Mutex<Bank>, guard: &Guard) -> bool {
    let read = bank.lock().map_or(0, |bank| bank.balance);
    if !guard.is_valid() {
        return false;
    }
    let Some(fence) = guard.fence() else { return false };
    let written = bank.lock().map(|mut bank| bank.write(read + DEPOSIT, fence.get()));
    written.unwrap_or(false)
}

/// Starts three daemons.
fn start(folder: &Path) -> Result<Vec<Daemon>, DemoError> {
    let program = std::env::current_exe().map_err(DemoError::Program)?;
    let ports: Vec<u16> = (0..9)
        .map(|_| lockkeeper_system::ports::free())
        .collect::<Result<_, _>>()
        .map_err(DemoError::Ports)?;
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let members: Vec<String> = (0..3).map(|n| format!("{} = \"{}\"", n + 1, at(ports[3 * n]))).collect();
    JoinToken::read_or_create(&folder.join("join-token"))
        .map_err(|error| DemoError::JoinToken(error.into()))?;
    let mut daemons = Vec::new();
    for n in 0..3 {
        let (clients, http) = (at(ports[3 * n + 1]), at(ports[3 * n + 2]));
        let number = n + 1;
        let text = format!(
            "member = {number}\ndata = \"data-{number}\"\njoin_token = \"join-token\"\n[members]\n{}\n[listen]\nmembers = \"{}\"\nclients = \"{clients}\"\nhttp = \"{http}\"\n",
            members.join("\n"),
            at(ports[3 * n])
        );
        let config = folder.join(format!("member-{number}.toml"));
        std::fs::write(&config, text).map_err(FileError::write(&config))?;
        let mut command = Command::new(&program);
        command
            .arg("up")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(DemoError::Daemon)?;
        daemons.push(Daemon { child, clients, http });
    }
    Ok(daemons)
}

async fn open(daemons: &[&Daemon]) -> Result<Lockkeeper, lockkeeper::Error> {
    let hosts: Vec<String> = daemons.iter().map(|daemon| daemon.clients.to_string()).collect();
    let url = format!("lockkeeper://{}", hosts.join(","));
    loop {
        // The daemons have just been started: retry until the first one replies.
        match Lockkeeper::open(&url).await {
            Ok(locks) => return Ok(locks),
            Err(lockkeeper::Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => return Err(error),
        }
    }
}

/// The number of entries and of messages between members, from the daemons' own counters.
fn counts(daemons: &[Daemon]) -> Result<(u64, u64), DemoError> {
    let mut sum = (0, 0);
    for daemon in daemons {
        let text = get(daemon.http, "/metrics").map_err(DemoError::Metrics)?;
        let total = |name: &str| -> u64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        sum.0 += total("lockkeeper_entries_total");
        sum.1 += total("lockkeeper_messages_total");
    }
    Ok(sum)
}

fn get(from: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(from)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
