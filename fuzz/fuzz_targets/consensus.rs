//! A query about consensus, or an answer to one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_cluster::fuzz::consensus::message(bytes));
