//! The exit codes of `lockkeeper`, in one place.

use lockkeeper_text::Printable;
use std::fmt::Display;
use std::process::ExitCode;

/// A property was violated.
pub const VIOLATED: u8 = 2;
/// A search ended before everything had been seen, and nothing was found.
pub const UNFINISHED: u8 = 3;
/// The command line or a file named on it is wrong (`EX_USAGE` of sysexits).
pub const USAGE: u8 = 64;
/// A file could not be written (`EX_IOERR` of sysexits).
pub const IO: u8 = 74;
/// Stopped by the user.
pub const INTERRUPTED: u8 = 130;

/// Somebody else has the lock, and waiting was not allowed or took too long (as flock(1) has it).
pub const CONFLICT: u8 = 1;

/// The command cannot be run, or the engine cannot be used (`EX_UNAVAILABLE` of sysexits).
pub const CANNOT_RUN: u8 = 69;

/// The lock was lost while the command ran, and the command was stopped. No sysexit and no signal has it.
pub const LOST: u8 = 79;

/// Says on one line what went wrong with a lock, and picks the exit code.
pub fn lock_error(error: &lockkeeper::Error) -> ExitCode {
    // It may quote what a server answered.
    eprintln!("lockkeeper: {}", Printable(&error.to_string()));
    match error {
        lockkeeper::Error::Lost { .. } | lockkeeper::Error::SessionLost { .. } => ExitCode::from(LOST),
        error if error.is_usage() => ExitCode::from(USAGE),
        _ => ExitCode::from(CANNOT_RUN),
    }
}

/// Prints clap's message and maps its exit code 2 to [`USAGE`]; `--help` and `--version` stay successes.
pub fn usage(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    match lockkeeper::redact(&text) {
        // clap quotes the argument that it does not expect, which may be a URL with a password.
        redacted if error.use_stderr() && redacted != text => eprint!("{redacted}"),
        // A closed pipe while printing help is nobody's fault.
        _ => drop(error.print()),
    }
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Prints what is wrong, and returns the code.
pub fn complain(code: u8, what: &dyn Display) -> ExitCode {
    let what = what.to_string();
    let lines: Vec<String> = what.lines().map(|line| Printable(line).to_string()).collect();
    eprintln!("lockkeeper: {}", lines.join("\n"));
    ExitCode::from(code)
}
