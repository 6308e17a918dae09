//! Printing that takes a closed pipe for what it is: nobody reads on.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to standard output; ends the process quietly when nobody reads it any more.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}

/// Prints a line; see [`say!`].
pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("lockkeeper: cannot write to standard output: {error}");
        }
        std::process::exit(crate::exit::IO.into());
    }
}
