//! A daemon's configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_daemon::fuzz::configuration(bytes));
