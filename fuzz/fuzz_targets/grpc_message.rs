//! A gRPC message, decoded as every kind of request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lockkeeper_daemon::fuzz::grpc_message(bytes));
