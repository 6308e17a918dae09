//! `lockkeeper run`: a command under a lock.

use super::engine::{On, block_on};
use super::{duration, supervise, words};
use crate::exit;
use lockkeeper::{Acquire, EngineUrl, Error, Guard, Lockkeeper};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Run a command while holding a lock: two at once take turns
#[derive(clap::Args)]
#[command(after_help = "\
The command sees LOCKKEEPER_NAME, LOCKKEEPER_HOLDER, LOCKKEEPER_TTL_MS (the time to live in force, which can differ from
--ttl; 0: does not expire) and LOCKKEEPER_FENCE (unset with --permits, and on engines without fences).
It does not see LOCKKEEPER_URL and LOCKKEEPER_TOKEN, unless --keep-credentials is given: a command that runs `lockkeeper`
itself needs --on, or --keep-credentials on the outer `lockkeeper run`.

Observers of the lock see the name of the program and --purpose, but no arguments, which may be secrets.

When the lock is lost, the command and all processes that it has started get SIGTERM, and SIGKILL before another client can
enter. Processes that a service starts for the command, such as containers, are not found.

Exit codes: the command's own; 128+N if signal N ended it; 1 if the lock was not to be had in time (or -E);
64 wrong usage; 69 the command or the engine cannot be used; 79 the lock was lost and the command stopped.")]
pub struct Args {
    /// Fail at once if the lock is not free
    #[arg(short, long, alias = "nb", conflicts_with = "timeout")]
    nonblock: bool,
    /// Fail if the lock is not to be had in this time; a bare number is in seconds
    #[arg(short = 'w', long, alias = "wait", value_name = "SECS", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Hold together with other shared holders
    #[arg(short, long, conflicts_with_all = ["exclusive", "permits"])]
    shared: bool,
    /// Hold alone (the default)
    #[arg(short = 'x', long, short_alias = 'e', conflicts_with = "permits")]
    exclusive: bool,
    /// At most K at a time
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// Request how long the hold survives without renewal, on engines where holds expire; a cluster's own lease wins
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,
    /// Exit code when the lock is not to be had in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::CONFLICT)]
    conflict_exit_code: u8,
    /// What observers of the lock see beside the program's name
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    #[command(flatten)]
    credentials: supervise::Credentials,
    /// Run CMD with `/bin/sh -c`; CMD is then one argument, a command line for the shell
    #[arg(short = 'c', long = "command")]
    shell: bool,
    /// Tell what happens while waiting
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Do not say why the lock was not to be had; the exit code does
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    on: On,
    /// The lock's name
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    if args.shell && args.command.len() > 1 {
        // `sh -c` would take them as positional parameters: `-c a -- echo one two` would print an empty line.
        let error = format!(
            "-c takes one argument, a command line for the shell, and {} were given: quote the command line, as in \
             `lockkeeper run -c NAME -- 'echo one two'`, or leave -c out",
            args.command.len()
        );
        return exit::complain(exit::USAGE, &error);
    }
    match block_on(run_async(args)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => exit::lock_error(&error),
        Err(error) => {
            eprintln!("lockkeeper: cannot start: {error}");
            ExitCode::from(exit::CANNOT_RUN)
        }
    }
}

async fn run_async(mut args: Args) -> Result<ExitCode, Error> {
    let url = std::mem::take(&mut args.on).resolve()?;
    if args.nonblock && url.scheme() == Some("lockkeeper") {
        refuse_without_majority(&url).await?;
    }
    let locks = Lockkeeper::open(&url).await?;
    refuse_to_wait_for_ourselves(&locks, &args).await?;
    match acquire(&locks, &args).await? {
        Some(guard) => {
            if args.verbose {
                eprintln!("lockkeeper: holding `{}`{}", args.name, words::fence_and_ttl(&guard));
            }
            Ok(supervise::run(guard, &supervise::words(&args.command, args.shell), args.credentials).await)
        }
        None => {
            if !args.quiet {
                let holder = words::held_by(&locks.inspect(args.name.as_str()).await?);
                eprintln!("lockkeeper: `{}` is held by {holder}", args.name);
            }
            Ok(ExitCode::from(args.conflict_exit_code))
        }
    }
}

/// A client waits for a daemon that serves, as long as a crash of a member takes. Who wants no waiting is told at once that none does.
async fn refuse_without_majority(url: &EngineUrl) -> Result<(), Error> {
    match lockkeeper::cluster::probe(url).await? {
        Ok(()) => Ok(()),
        Err(reasons) => {
            let reason = format!("no daemon grants locks now: {}", reasons.join("; "));
            Err(Error::Unavailable { engine: "lockkeeper", reason })
        }
    }
}

async fn acquire(locks: &Lockkeeper, args: &Args) -> Result<Option<Guard>, Error> {
    let request = request(locks, args);
    let waiting = async {
        match (args.nonblock, args.timeout) {
            (true, _) => request.try_acquire().await,
            (false, Some(patience)) => request.acquire_within(patience).await,
            (false, None) => request.acquire().await.map(Some),
        }
    };
    if !args.verbose {
        return waiting.await;
    }
    tokio::select! {
        biased;
        guard = waiting => guard,
        error = narrate(locks, &args.name) => Err(error),
    }
}

fn request(locks: &Lockkeeper, args: &Args) -> Acquire {
    let name = args.name.as_str();
    let request = match (args.shared, args.permits) {
        (true, _) => locks.shared(name),
        (false, Some(permits)) => locks.semaphore(name, permits),
        (false, None) => locks.mutex(name),
    };
    let request = request.metadata("command", words::program(&args.command, args.shell));
    let request = match &args.purpose {
        Some(purpose) => request.metadata("purpose", words::one_line(purpose)),
        None => request,
    };
    // Where whoever starts this is traced, the daemon's logs say of which trace the wait was.
    let request = match std::env::var("TRACEPARENT") {
        Ok(trace) => request.metadata("traceparent", trace),
        Err(_) => request,
    };
    match args.ttl {
        Some(ttl) => request.ttl(ttl),
        None => request,
    }
}

/// `lockkeeper run a -- lockkeeper run a -- …` would wait for ever.
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

/// Says who is ahead whenever that changes; ends only with an error.
async fn narrate(locks: &Lockkeeper, name: &str) -> Error {
    let result: Result<(), Error> = async {
        let mut changes = locks.watch().await?;
        let mut said = String::new();
        loop {
            let info = locks.inspect(name).await?;
            let ahead = info.waiters.iter().position(|w| w.tag.pid == std::process::id()).unwrap_or(0);
            let holders: Vec<&str> = info.holders.iter().map(|h| h.tag.holder.as_str()).collect();
            let situation = format!("{ahead} {holders:?}");
            if situation != said && !info.holders.is_empty() {
                eprintln!(
                    "lockkeeper: waiting for `{name}`, number {} in the queue; held by {}",
                    ahead + 1,
                    words::held_by(&info)
                );
                said = situation;
            }
            changes.changed().await?;
        }
    }
    .await;
    result.err().unwrap_or(Error::BadOption("the watch ended".into()))
}
