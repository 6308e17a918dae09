//! The exit codes of `lockkeeper`, in one place.

use std::process::ExitCode;

/// The command line or a file named on it is wrong (`EX_USAGE` of sysexits).
pub const USAGE: u8 = 64;

/// Somebody else has the lock, and waiting was not allowed or took too long (as flock(1) has it).
pub const CONFLICT: u8 = 1;

/// The command cannot be run, or the engine cannot be used (`EX_UNAVAILABLE` of sysexits).
pub const CANNOT_RUN: u8 = 69;

/// The lock was lost while the command ran, and the command was stopped. No sysexit and no signal has it.
pub const LOST: u8 = 79;

/// Says on one line what went wrong with a lock, and picks the exit code.
pub fn lock_error(error: &lockkeeper::Error) -> ExitCode {
    eprintln!("lockkeeper: {error}");
    match error {
        lockkeeper::Error::Lost { .. } | lockkeeper::Error::SessionLost { .. } => ExitCode::from(LOST),
        error if error.is_usage() => ExitCode::from(USAGE),
        _ => ExitCode::from(CANNOT_RUN),
    }
}

/// Prints clap's message and maps its exit code 2 to [`USAGE`]; `--help` and `--version` stay successes.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe while printing help is nobody's fault.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
