//! One module per command.
