//! Panics in the log, beside everything else that the daemon says.

use std::panic::{PanicHookInfo, set_hook, take_hook};

/// From now on, every panic in this process is logged as an error, with its message and its place, and then handled as before. For the binary:
/// where the log goes to a file or to a collector, what the standard handler writes to standard error is not there.
pub fn log_panics() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        log(panic);
        before(panic);
    }));
}

fn log(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("no message");
    tracing::error!(place, message, "panicked: this is a bug in lockkeeper");
}
