//! Printing to standard output that exits when the pipe is closed.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to standard output; ends the process quietly if the pipe is closed.
#[macro_export]
macro_rules! print_line {
    ($($arg:tt)*) => { $crate::output::line(format_args!($($arg)*)) };
}

/// Prints a line; see [`print_line!`].
pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("lockkeeper: cannot write to standard output: {error}");
        }
        std::process::exit(crate::exit::IO.into());
    }
}
