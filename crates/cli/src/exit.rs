//! The exit codes of `lockkeeper`, in one place.

use crate::optional::NotBuiltIn;
use lockkeeper_text::Printable;
use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

/// A property was violated.
pub const VIOLATED: u8 = 2;
/// A search ended before it was complete, without finding a violation.
pub const UNFINISHED: u8 = 3;
/// `lockkeeper doctor` found risks.
pub const RISKS: u8 = 4;
/// The command line or a file named on it is wrong (`EX_USAGE` of sysexits).
pub const USAGE: u8 = 64;
/// A file could not be written (`EX_IOERR` of sysexits).
pub const IO: u8 = 74;
/// The user interrupted the command.
pub const INTERRUPTED: u8 = 130;

/// Another client holds the lock, and the request was non-blocking or timed out (as in flock(1)).
pub const CONFLICT: u8 = 1;

/// The command cannot be run, or the engine cannot be used (`EX_UNAVAILABLE` of sysexits).
pub const CANNOT_RUN: u8 = 69;

/// The lock was lost while the command ran, and the command was stopped. No sysexit and no signal has this code.
pub const LOST: u8 = 79;

/// An error of any type, as the source of another.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error that ends a command. Its variant determines the exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(#[source] BoxError),
    /// The command cannot be run here, or a service that it needs does not work.
    #[error("{0}")]
    CannotRun(#[source] BoxError),
    /// The runtime of the command cannot be started.
    #[error("cannot start: {0}")]
    CannotStart(#[source] std::io::Error),
    /// A file could not be written.
    #[error("{0}")]
    Io(#[source] BoxError),
    /// A property was violated.
    #[error("{0}")]
    Violated(#[source] BoxError),
    /// The locks are not in the state that the command needs.
    #[error("{0}")]
    Conflict(#[source] BoxError),
    /// An operation on a lock failed.
    #[error(transparent)]
    Lock(#[from] lockkeeper::Error),
    /// A signal stopped the processes that the command had started.
    #[error("stopped; what was started has ended")]
    Stopped,
    /// The user interrupted the command.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// An error of the command line, or of a file that it names.
    pub fn usage(error: impl Into<BoxError>) -> Self {
        Self::Usage(error.into())
    }

    /// An error of the machine, or of a service that the command needs.
    pub fn cannot_run(error: impl Into<BoxError>) -> Self {
        Self::CannotRun(error.into())
    }

    /// An error of a file that cannot be written.
    pub fn io(error: impl Into<BoxError>) -> Self {
        Self::Io(error.into())
    }

    /// The exit code of the command.
    fn code(&self) -> u8 {
        use lockkeeper::Error::{Lost, SessionLost};
        match self {
            Self::Usage(_) => USAGE,
            Self::CannotRun(_) | Self::CannotStart(_) => CANNOT_RUN,
            Self::Io(_) => IO,
            Self::Violated(_) => VIOLATED,
            Self::Conflict(_) => CONFLICT,
            Self::Lock(Lost { .. } | SessionLost { .. }) => LOST,
            Self::Lock(error) if error.is_usage() => USAGE,
            Self::Lock(_) => CANNOT_RUN,
            Self::Stopped | Self::Interrupted => INTERRUPTED,
        }
    }

    /// Prints the error, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            // The message may quote a reply of a server: it stays on one line.
            Self::Lock(error) => eprintln!("lockkeeper: {}", Printable(&error.to_string())),
            Self::Interrupted => {}
            error => print(error),
        }
        ExitCode::from(self.code())
    }
}

/// The exit code of a command. An error is printed.
pub fn code(result: Result<ExitCode, CliError>) -> ExitCode {
    result.unwrap_or_else(|error| error.report())
}

/// Prints clap's message and maps its exit code 2 to [`USAGE`]; `--help` and `--version` are successes.
pub fn usage(error: &clap::Error) -> ExitCode {
    if let Some(absent) = NotBuiltIn::of(error) {
        return CliError::cannot_run(absent).report();
    }
    let text = error.to_string();
    match lockkeeper::redact(&text) {
        // clap quotes an unexpected argument, which may be a URL with a password.
        redacted if error.use_stderr() && redacted != text => eprint!("{redacted}"),
        // A closed pipe while printing help is not an error.
        _ => drop(error.print()),
    }
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Prints an error. Its lines are escaped one by one.
fn print(error: &dyn Display) {
    let error = error.to_string();
    let lines: Vec<String> = error.lines().map(|line| Printable(line).to_string()).collect();
    eprintln!("lockkeeper: {}", lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_from_the_variant_of_an_error() {
        let lost = lockkeeper::Error::Lost { name: "a".into(), reason: "expired".into() };
        let cases = [
            (CliError::usage("--sites"), 64),
            (CliError::cannot_run("etcd"), 69),
            (CliError::CannotStart(std::io::ErrorKind::OutOfMemory.into()), 69),
            (CliError::io("disk full"), 74),
            (CliError::Violated("two inside".into()), 2),
            (CliError::Conflict("held".into()), 1),
            (CliError::Lock(lost), 79),
            (CliError::Lock(lockkeeper::Error::BadName("empty".into())), 64),
            (CliError::Stopped, 130),
            (CliError::Interrupted, 130),
        ];
        for (error, code) in cases {
            assert_eq!(error.code(), code, "{error:?}");
        }
    }

    #[test]
    fn the_source_of_an_error_has_the_same_text() {
        let error = CliError::usage(std::io::Error::other("no such file"));
        assert_eq!(error.source().map(ToString::to_string), Some(error.to_string()));
    }
}
