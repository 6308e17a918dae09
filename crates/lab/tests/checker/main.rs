//! The checker: against published counts, against another checker, and on every algorithm and variant.

mod lamport_mutex;
mod tlc;
