//! Logging of panics.

use std::panic::{PanicHookInfo, set_hook, take_hook};

/// Installs a panic hook that logs every panic as an error, with its message and location, and then calls the
/// previous hook. For the binary: where the log goes to a file or a collector, the default hook's output to standard
/// error would be missing.
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
