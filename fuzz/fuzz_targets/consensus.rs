//! The bytes of a question about consensus, or of an answer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| lockkeeper_fuzz::consensus::attack(bytes));
