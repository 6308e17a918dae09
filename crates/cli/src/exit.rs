//! The exit codes of `lockkeeper`, in one place.

use lockkeeper_text::Printable;
use std::fmt::Display;
use std::process::ExitCode;

/// A property was violated.
pub const VIOLATED: u8 = 2;
/// A search ended before it was complete, without finding a violation.
pub const UNFINISHED: u8 = 3;
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

/// Prints an error of a lock on one line, and returns the exit code.
pub fn lock_error(error: &lockkeeper::Error) -> ExitCode {
    // The message may quote a reply of a server.
    eprintln!("lockkeeper: {}", Printable(&error.to_string()));
    match error {
        lockkeeper::Error::Lost { .. } | lockkeeper::Error::SessionLost { .. } => ExitCode::from(LOST),
        error if error.is_usage() => ExitCode::from(USAGE),
        _ => ExitCode::from(CANNOT_RUN),
    }
}

/// Prints clap's message and maps its exit code 2 to [`USAGE`]; `--help` and `--version` are successes.
pub fn usage(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    match lockkeeper::redact(&text) {
        // clap quotes an unexpected argument, which may be a URL with a password.
        redacted if error.use_stderr() && redacted != text => eprint!("{redacted}"),
        // A closed pipe while printing help is not an error.
        _ => drop(error.print()),
    }
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Prints an error, and returns the exit code.
pub fn fail(code: u8, error: &dyn Display) -> ExitCode {
    let error = error.to_string();
    let lines: Vec<String> = error.lines().map(|line| Printable(line).to_string()).collect();
    eprintln!("lockkeeper: {}", lines.join("\n"));
    ExitCode::from(code)
}
