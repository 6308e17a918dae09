//! The body of an HTTP request, read as every kind of request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_daemon::fuzz::http_body(bytes));
