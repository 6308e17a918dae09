//! The exit codes of `lockkeeper`, in one place.

use std::process::ExitCode;

/// The command line or a file named on it is wrong (`EX_USAGE` of sysexits).
pub const USAGE: u8 = 64;

/// Prints clap's message and maps its exit code 2 to [`USAGE`]; `--help` and `--version` stay successes.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe while printing help is nobody's fault.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
