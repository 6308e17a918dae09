//! The URL of an engine, as it is parsed and as it is shown.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper::fuzz::url(bytes));
