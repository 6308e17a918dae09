//! A file of tokens.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_daemon::fuzz::tokens(bytes));
