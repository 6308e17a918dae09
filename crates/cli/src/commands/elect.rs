//! `lockkeeper elect`: runs a command while elected.

use super::engine::{On, block_on};
use super::{describe, duration, supervise};
use crate::exit::CliError;
use lockkeeper::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Run a command while elected leader; another candidate takes over when this one ends
#[derive(clap::Args)]
#[command(override_usage = "lockkeeper elect [OPTIONS] NAME [--] CMD [ARG]...")]
#[command(after_help = "Environment and exit codes are those of `lockkeeper run`.")]
pub struct Args {
    /// The value of this candidate that observers see [default: HOST:PID]
    #[arg(long)]
    value: Option<String>,
    /// Request a time to live for leadership without renewal, on engines where holds expire; a cluster's lease
    /// overrides it
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,
    /// Print a message when elected, and whether the leadership is in jeopardy
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    on_lost: supervise::OnLost,
    #[command(flatten)]
    credentials: supervise::Credentials,
    #[command(flatten)]
    on: On,
    /// The election's name
    name: String,
    /// The command and its arguments. Everything after CMD belongs to it; `--` before CMD is optional
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    if let Err(error) = args.on_lost.check() {
        return error.report();
    }
    match block_on(run_async(args)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => CliError::Lock(error).report(),
        Err(error) => CliError::CannotStart(error).report(),
    }
}

async fn run_async(args: Args) -> Result<ExitCode, Error> {
    let locks = args.on.open().await?;
    let value = args.value.unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}:{}", std::process::id())
    });
    let mut election = locks.election(args.name.as_str());
    if let Some(ttl) = args.ttl {
        election = election.ttl(ttl);
    }
    let leadership = election.campaign(value).elected().await?;
    if args.verbose {
        eprintln!("lockkeeper: elected in `{}`{}", args.name, describe::fence_and_ttl(&leadership));
    }
    let (guard, on_lost) = (leadership.into_guard(), args.on_lost);
    Ok(supervise::run(guard, &args.command, args.credentials, on_lost, args.verbose).await)
}
