//! `lockkeeper`: distributed mutual exclusion on the command line.
//!
//! This file only dispatches to the commands; each command is a module under `commands`. The library exists so that the
//! modules have unit tests beside them; its only user is the binary.

mod commands;
#[cfg_attr(not(feature = "full"), allow(dead_code, reason = "a build with fewer commands has fewer errors"))]
mod exit;
#[cfg_attr(not(feature = "full"), allow(dead_code, reason = "a build with fewer commands has fewer errors"))]
mod file_error;
mod help;
mod optional;
mod output;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Distributed mutual exclusion: run commands one at a time, and study the algorithms behind it.
#[derive(Parser)]
#[command(name = "lockkeeper", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    #[command(name = commands::supervise::DIE_WITH_PARENT, hide = true)]
    DieWithParent(commands::supervise::DieWithParent),
    Elect(commands::elect::Args),
    Hold(commands::hold::Hold),
    Locks(commands::locks::Args),
    Engines(commands::engines::Engines),
    Doctor(commands::engines::Doctor),
    #[cfg(feature = "daemon")]
    #[command(flatten)]
    Daemon(commands::daemon::DaemonCommand),
    Members(commands::operator::Members),
    Status(commands::operator::Status),
    Release(commands::operator::Release),
    Leave(commands::operator::Leave),
    #[cfg(any(feature = "daemon", feature = "lab"))]
    Algorithms(commands::algorithms::Algorithms),
    #[cfg(feature = "bench")]
    Bench(commands::bench::Bench),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(commands::lab::LabCommand),
    #[cfg(feature = "tool")]
    Completions(commands::generate::Completions),
    #[cfg(feature = "tool")]
    Man(commands::generate::Man),
}

/// `lockkeeper run` and nothing else.
#[derive(Parser)]
#[command(name = "lockkeeper")]
struct OnlyRun {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Subcommand)]
enum RunCommand {
    Run(commands::run::Args),
}

/// Parses the command line.
///
/// To define all commands takes longer than to run a short one. So a correct `lockkeeper run` is parsed without the
/// others. Everything else, help and errors included, comes from the complete definition.
fn parse(words: &[OsString]) -> Result<Command, clap::Error> {
    if words.get(1).is_some_and(|word| word == "run")
        && let Ok(OnlyRun { command: RunCommand::Run(args) }) = OnlyRun::try_parse_from(words)
    {
        return Ok(Command::Run(args));
    }
    let found = help::grouped(Cli::command()).try_get_matches_from(words)?;
    Cli::from_arg_matches(&found).map(|cli| cli.command)
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = match parse(&words) {
        Ok(command) => command,
        Err(error) => return exit::usage(&error),
    };
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::DieWithParent(args) => commands::supervise::die_with_parent(args),
        Command::Elect(args) => commands::elect::run(args),
        Command::Hold(command) => command.run(),
        Command::Locks(args) => commands::locks::run(args),
        Command::Engines(command) => command.run(),
        Command::Doctor(command) => command.run(),
        #[cfg(feature = "daemon")]
        Command::Daemon(command) => command.run(),
        Command::Members(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Release(command) => command.run(),
        Command::Leave(command) => command.run(),
        #[cfg(any(feature = "daemon", feature = "lab"))]
        Command::Algorithms(command) => command.run(),
        #[cfg(feature = "bench")]
        Command::Bench(command) => command.run(),
        #[cfg(feature = "lab")]
        Command::Lab(command) => command.run(),
        #[cfg(feature = "tool")]
        Command::Completions(args) => commands::generate::completions(&args, Cli::command()),
        #[cfg(feature = "tool")]
        Command::Man(args) => commands::generate::man(&args, Cli::command()),
    }
}
