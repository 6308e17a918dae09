//! `lockkeeper bench`: Lockkeeper and comparable systems side by side, and the speed of the lab.

use super::bench_lab::{Check, Growth, Sim, search_here};
use super::bench_locks::Locks;
use crate::exit;
use lockkeeper_bench::BenchError;
use lockkeeper_bench::locks::Program;
use lockkeeper_bench::process::Tether;
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
            BenchCommand::Growth(command) => command.run(),
            BenchCommand::Sim(command) => command.run(),
            BenchCommand::Check(command) => command.run(),
            BenchCommand::Search { by, max_clock } => search_here(&by, max_clock),
            BenchCommand::Client => lockkeeper_bench::client::run(),
            BenchCommand::Floor { port } => match lockkeeper_bench::client::floor::serve(port) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => exit::fail(exit::CANNOT_RUN, &error),
            },
        }
    }
}

/// Parses a duration of measurement.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| String::from("this is not a number of seconds"))?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(String::from("from 0.05 to 3600 seconds"))
    }
}

/// The path of this program, and the prefix of command lines for processes that must not outlive it.
pub(super) fn program() -> Result<Program, String> {
    let path = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let words = [
        path.display().to_string(),
        super::supervise::DIE_WITH_PARENT.into(),
        std::process::id().to_string(),
    ];
    let tether = Tether(words.into_iter().chain([String::from("--")]).collect());
    Ok(Program { path, tether })
}

/// Prints an error, and returns the exit code for it.
pub(super) fn failed(trouble: &BenchError) -> ExitCode {
    let code = match trouble {
        BenchError::Violated { .. } => exit::VIOLATED,
        BenchError::Missing(_) | BenchError::Failed(_) => exit::CANNOT_RUN,
    };
    exit::fail(code, trouble)
}

/// Runs work to its end, or until a signal ends the command; the processes that it has started then end too.
pub(super) fn until_interrupted<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, ExitCode> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |error: std::io::Error| exit::fail(exit::CANNOT_RUN, &format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        tokio::select! {
            done = work => done.map_err(|trouble| failed(&trouble)),
            _ = interrupt.recv() => Err(exit::fail(exit::INTERRUPTED, &"stopped; what was started has ended")),
            _ = terminate.recv() => Err(exit::fail(exit::INTERRUPTED, &"stopped; what was started has ended")),
        }
    })
}
