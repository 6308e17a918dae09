//! `lockkeeper bench`: Lockkeeper and comparable systems side by side, and the speed of the lab.

mod failover;
mod lab;
mod locks;

use crate::exit::CliError;
use failover::Failover;
use lab::{Check, Growth, Sim, search_here};
use lockkeeper_bench::BenchError;
use lockkeeper_bench::locks::Program;
use lockkeeper_bench::process::PdeathsigPrefix;
use locks::Locks;
use std::process::ExitCode;

/// Measure Lockkeeper and the alternatives to it, side by side on this machine
#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    Locks(Locks),
    Failover(Failover),
    Growth(Growth),
    Sim(Sim),
    Check(Check),
    /// One search, started by `bench check`
    #[command(hide = true)]
    Search {
        /// The program that searches
        by: String,
        /// The bound of the model's clocks
        max_clock: u8,
    },
    /// A process of clients, started by `bench locks`
    #[command(hide = true)]
    Client,
    /// A process that echoes every request, started by `bench locks`
    #[command(hide = true)]
    Floor {
        /// The port to listen on, on loopback
        port: u16,
    },
}

impl Bench {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self.command {
            BenchCommand::Locks(command) => command.run(),
            BenchCommand::Failover(command) => command.run(),
            BenchCommand::Growth(command) => command.run(),
            BenchCommand::Sim(command) => command.run(),
            BenchCommand::Check(command) => command.run(),
            BenchCommand::Search { by, max_clock } => search_here(&by, max_clock),
            BenchCommand::Client => lockkeeper_bench::client::run(),
            BenchCommand::Floor { port } => match lockkeeper_bench::client::floor::serve(port) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => CliError::cannot_run(error).report(),
            },
        }
    }
}

/// A number on the command line that is out of range.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum NumberError {
    /// The text is not a number.
    #[error("this is not a number")]
    NotANumber,
    /// The number is too small or too large.
    #[error("from {least} to {most}")]
    OutOfRange {
        /// The smallest number.
        least: f64,
        /// The largest number.
        most: f64,
    },
    /// The text is not a number, which should be a duration in seconds.
    #[error("this is not a number of seconds")]
    NotSeconds,
    /// The duration is too short or too long.
    #[error("from {least} to {most} seconds")]
    SecondsOutOfRange {
        /// The shortest duration.
        least: f64,
        /// The longest duration.
        most: f64,
    },
}

/// Parses a duration of measurement.
pub(super) fn seconds(text: &str) -> Result<f64, NumberError> {
    let (least, most) = (0.05, 3600.0);
    let seconds: f64 = text.parse().map_err(|_| NumberError::NotSeconds)?;
    if (least..=most).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(NumberError::SecondsOutOfRange { least, most })
    }
}

/// The path of this program is unknown.
#[derive(Debug, thiserror::Error)]
#[error("cannot find this program: {0}")]
pub(super) struct NoProgram(#[source] std::io::Error);

/// The path of this program, and the prefix of command lines for processes that must not outlive it.
pub(super) fn program() -> Result<Program, NoProgram> {
    let path = std::env::current_exe().map_err(NoProgram)?;
    let words = [
        path.display().to_string(),
        crate::commands::supervise::DIE_WITH_PARENT.into(),
        std::process::id().to_string(),
    ];
    let pdeathsig_prefix = PdeathsigPrefix(words.into_iter().chain([String::from("--")]).collect());
    Ok(Program { path, pdeathsig_prefix })
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Violated { .. } => Self::Violated(error.into()),
            other => Self::cannot_run(other),
        }
    }
}

/// Runs work to its end, or until a signal ends the command; the processes that it has started then end too.
pub(super) fn until_interrupted<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CliError::CannotStart)?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::CannotStart)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(CliError::CannotStart)?;
        tokio::select! {
            done = work => Ok(done?),
            _ = interrupt.recv() => Err(CliError::Stopped),
            _ = terminate.recv() => Err(CliError::Stopped),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_measurements_have_limits() {
        assert_eq!(seconds("0.05"), Ok(0.05));
        assert_eq!(seconds("x"), Err(NumberError::NotSeconds));
        for text in ["0", "-1", "3601", "nan"] {
            assert_eq!(seconds(text), Err(NumberError::SecondsOutOfRange { least: 0.05, most: 3600.0 }));
        }
        assert_eq!(seconds("0").unwrap_err().to_string(), "from 0.05 to 3600 seconds");
    }
}
