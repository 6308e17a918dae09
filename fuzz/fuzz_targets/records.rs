//! The bytes of a connection between members: a greeting, then records, in pieces of any length.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_cluster::fuzz::net::connection(bytes));
