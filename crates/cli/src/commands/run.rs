//! `lockkeeper run`: runs a command under a lock.

use super::engine::{On, block_on};
use super::{describe, duration, supervise};
use crate::exit::{self, CliError};
use lockkeeper::{Acquire, EngineUrl, Error, Guard, LockInfo, Lockkeeper};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Run a command while holding a lock: concurrent commands take turns
#[derive(clap::Args)]
#[command(override_usage = "lockkeeper run [OPTIONS] NAME [--] CMD [ARG]...")]
#[command(after_help = "\
Examples:
  lockkeeper run nightly ./backup.sh --full            wait for the lock, run the command, release the lock
  lockkeeper run -n nightly ./backup.sh                exit with 1 at once if another process has the lock
  lockkeeper run -w 30s nightly -- ./backup.sh         give up after 30 s
  lockkeeper run --shared cache cat index              together with other shared holds, never with an exclusive one
  lockkeeper run --permits 3 build make                at most 3 at a time
  lockkeeper run -c nightly 'date >> log; ./backup.sh' a command line for the shell
  lockkeeper run --on lockkeeper://10.0.0.1:7421 nightly -- ./backup.sh

The command gets LOCKKEEPER_NAME, LOCKKEEPER_HOLDER, LOCKKEEPER_TTL_MS (the time to live in force, which can differ from
--ttl; 0: does not expire) and LOCKKEEPER_FENCE (unset with --permits, and on engines without fences).
LOCKKEEPER_URL and LOCKKEEPER_TOKEN are removed, unless --keep-credentials is given: a command that runs `lockkeeper`
itself needs --on, or --keep-credentials on the outer `lockkeeper run`.

Observers of the lock see the name of the program and --purpose, but no arguments, which may be secrets.

A job that cron starts on ten machines, and that one of them runs:

  lockkeeper run --at-least 10m --skip nightly --on URL -- ./job

--at-least has to be longer than the clocks of the machines differ, and shorter than the time between two starts.

When the lock is lost, the command and all processes that it has started get SIGTERM, and SIGKILL after --grace, but
before the lock can be granted again: for a lease that was not renewed, that is a fifth of the time to live, at most 5 s;
for a forced release, the rest of the lease. Processes that a service starts for the command, such as containers, are
not found. With --on-lost warn or ignore the command is not stopped, and another client can run at the same time.

Exit codes: the command's own, also if the lock was lost and --on-lost is warn or ignore; 128+N if signal N ended it;
1 if the lock was not granted in time (or -E; 0 with --skip); 64 wrong usage; 69 the command or the engine cannot be
used; 79 the lock was lost and the command stopped.")]
pub struct Args {
    /// Fail at once if the lock is not free
    #[arg(short, long, alias = "nb", conflicts_with = "timeout")]
    nonblock: bool,
    /// Give up after this time; a bare number is in seconds
    #[arg(short = 'w', long, alias = "wait", value_name = "SECS", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Request a shared hold, which other shared holders may have at the same time
    #[arg(short, long, conflicts_with_all = ["exclusive", "permits"])]
    shared: bool,
    /// Request an exclusive hold (the default)
    #[arg(short = 'x', long, short_alias = 'e', conflicts_with = "permits")]
    exclusive: bool,
    /// Request one of K permits
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// Request a time to live of the hold without renewal, on engines where holds expire; a cluster has limits for it
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,
    /// Keep the lock for at least this time after it was granted, even if CMD ends early, or this machine dies: the
    /// same job on several machines runs once in this time; a cluster limits it to its longest time to live
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    at_least: Option<Duration>,
    /// If another client holds the lock (after --timeout, if given), exit with code 0 and print nothing
    #[arg(long, conflicts_with_all = ["nonblock", "conflict_exit_code"])]
    skip: bool,
    /// Exit code when the lock is not granted in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::CONFLICT)]
    conflict_exit_code: u8,
    /// A purpose, which observers of the lock see beside the program's name
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    #[command(flatten)]
    on_lost: supervise::OnLost,
    #[command(flatten)]
    credentials: supervise::Credentials,
    /// Run CMD with `/bin/sh -c`; CMD is then one argument, a command line for the shell
    #[arg(short = 'c', long = "command")]
    shell: bool,
    /// Print the state of the queue while waiting, and whether the hold is in jeopardy
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Do not print why the lock was not granted; the exit code is the only result
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    on: On,
    /// The lock's name
    name: String,
    /// The command and its arguments. Everything after CMD belongs to it; `--` before CMD is optional
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// More than one argument for `sh -c`.
#[derive(Debug, thiserror::Error)]
#[error(
    "-c takes one argument, a command line for the shell, and {given} were given: quote the command line, as in \
     `lockkeeper run -c NAME -- 'echo one two'`, or leave -c out"
)]
struct SeveralArguments {
    given: usize,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    if args.shell && args.command.len() > 1 {
        // `sh -c` would use them as positional parameters: `-c a -- echo one two` would print an empty line.
        return CliError::usage(SeveralArguments { given: args.command.len() }).report();
    }
    if let Err(error) = args.on_lost.check() {
        return error.report();
    }
    match block_on(run_async(args)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => CliError::Lock(error).report(),
        Err(error) => CliError::CannotStart(error).report(),
    }
}

async fn run_async(mut args: Args) -> Result<ExitCode, Error> {
    let url = std::mem::take(&mut args.on).resolve()?;
    args.nonblock |= args.skip && args.timeout.is_none();
    if args.nonblock && url.scheme() == Some("lockkeeper") {
        refuse_without_majority(&url).await?;
    }
    let locks = Lockkeeper::open(&url).await?;
    refuse_to_wait_for_ourselves(&locks, &args).await?;
    match acquire(&locks, &args).await? {
        Some(guard) => {
            if args.verbose {
                eprintln!("lockkeeper: holding `{}`{}", args.name, describe::fence_and_ttl(&guard));
            }
            let command_line = supervise::command_line(&args.command, args.shell);
            Ok(supervise::run(guard, &command_line, args.credentials, args.on_lost, args.verbose).await)
        }
        None if args.skip => Ok(ExitCode::SUCCESS),
        None => {
            if !args.quiet {
                let holder = describe::holders(&locks.inspect(args.name.as_str()).await?);
                eprintln!("lockkeeper: `{}` is held by {holder}", args.name);
            }
            Ok(ExitCode::from(args.conflict_exit_code))
        }
    }
}

/// Fails if no daemon grants locks now. A client normally waits for a serving daemon for as long as the recovery from
/// a member's crash takes; a non-blocking request must fail at once.
async fn refuse_without_majority(url: &EngineUrl) -> Result<(), Error> {
    match lockkeeper::cluster::probe(url).await? {
        Ok(()) => Ok(()),
        Err(reasons) => {
            let reason = format!("no daemon grants locks now: {}", reasons.join("; "));
            Err(Error::Unavailable { engine: "lockkeeper", reason, source: None })
        }
    }
}

async fn acquire(locks: &Lockkeeper, args: &Args) -> Result<Option<Guard>, Error> {
    let request = request(locks, args);
    let waiting = async {
        match (args.nonblock, args.timeout) {
            (true, _) => request.try_acquire().await,
            (false, Some(timeout)) => request.acquire_within(timeout).await,
            (false, None) => request.acquire().await.map(Some),
        }
    };
    if args.verbose {
        return tokio::select! {
            biased;
            guard = waiting => guard,
            error = report_wait(locks, &args.name) => Err(error),
        };
    }
    if args.quiet || args.nonblock || !std::io::stderr().is_terminal() {
        return waiting.await;
    }
    let mut status = WaitStatus::default();
    let guard = tokio::select! {
        biased;
        guard = waiting => guard,
        never = show_wait(locks, &args.name, &mut status) => match never {},
    };
    status.clear();
    guard
}

fn request(locks: &Lockkeeper, args: &Args) -> Acquire {
    let name = args.name.as_str();
    let request = match (args.shared, args.permits) {
        (true, _) => locks.shared(name),
        (false, Some(permits)) => locks.semaphore(name, permits),
        (false, None) => locks.mutex(name),
    };
    let request = request.metadata("command", describe::program(&args.command, args.shell));
    let request = match &args.purpose {
        Some(purpose) => request.metadata("purpose", describe::one_line(purpose)),
        None => request,
    };
    // If the caller is traced, the daemon's logs show the trace to which the wait belongs.
    let request = match std::env::var("TRACEPARENT") {
        Ok(trace) => request.metadata("traceparent", trace),
        Err(_) => request,
    };
    let request = match args.ttl {
        Some(ttl) => request.ttl(ttl),
        None => request,
    };
    match args.at_least {
        Some(at_least) => request.at_least(at_least),
        None => request,
    }
}

/// Rejects `lockkeeper run a -- lockkeeper run a -- …`, which would wait forever.
async fn refuse_to_wait_for_ourselves(locks: &Lockkeeper, args: &Args) -> Result<(), Error> {
    let (Ok(name), Ok(holder)) = (std::env::var("LOCKKEEPER_NAME"), std::env::var("LOCKKEEPER_HOLDER"))
    else {
        return Ok(());
    };
    if name != args.name || args.nonblock || args.timeout.is_some() || args.permits.is_some() {
        return Ok(());
    }
    let info = locks.inspect(name.as_str()).await?;
    match info.holders.iter().any(|other| other.tag.holder == holder) {
        true => Err(Error::BadOption(format!("this already runs under `{name}` and would wait for itself"))),
        false => Ok(()),
    }
}

/// The time after which a wait is shown on a terminal.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// A line on the terminal that is overwritten in place.
#[derive(Default)]
struct WaitStatus {
    is_shown: bool,
}

impl WaitStatus {
    fn show(&mut self, line: &str) {
        // A line that wraps could not be overwritten.
        let columns =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns };
        let line: String = line.chars().take(columns - 1).collect();
        eprint!("\r\x1b[K{line}");
        self.is_shown = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[K");
        }
    }
}

/// Shows the holder and the position in the queue on one line of the terminal, once the wait has lasted for
/// [`SHOWN_AFTER`]. An engine that cannot be asked at present does not end the wait.
async fn show_wait(locks: &Lockkeeper, name: &str, status: &mut WaitStatus) -> Infallible {
    let mut pause = SHOWN_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        pause = Duration::from_secs(1);
        if let Ok(info) = locks.inspect(name).await
            && !info.holders.is_empty()
        {
            status.show(&situation(&info, name));
        }
    }
}

/// The position in the queue and the holder: `waiting for NAME, number 2 in the queue; held by …`.
fn situation(info: &LockInfo, name: &str) -> String {
    let ahead = info.waiters.iter().position(|w| w.tag.pid == std::process::id()).unwrap_or(0);
    let holders = describe::holders(info);
    format!("lockkeeper: waiting for `{name}`, number {} in the queue; held by {holders}", ahead + 1)
}

/// Prints the holder and the position in the queue whenever they change; ends only with an error.
async fn report_wait(locks: &Lockkeeper, name: &str) -> Error {
    let result: Result<(), Error> = async {
        let mut changes = locks.watch().await?;
        let mut printed = String::new();
        loop {
            let info = locks.inspect(name).await?;
            let ahead = info.waiters.iter().position(|w| w.tag.pid == std::process::id()).unwrap_or(0);
            let holders: Vec<&str> = info.holders.iter().map(|h| h.tag.holder.as_str()).collect();
            let situation = format!("{ahead} {holders:?}");
            // With --at-least, the lock is granted before it is certain that it is kept.
            let is_ours = info.holders.iter().any(|h| h.tag.pid == std::process::id());
            if situation != printed && !info.holders.is_empty() && !is_ours {
                eprintln!("{}", self::situation(&info, name));
                printed = situation;
            }
            changes.changed().await?;
        }
    }
    .await;
    result.err().unwrap_or(Error::BadOption("the watch ended".into()))
}
