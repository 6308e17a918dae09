//! Whole clusters in one process and in virtual time, with real stores. No test here depends on the machine's speed.

mod disks;
mod harness;
mod histories;
mod leaders;
mod library;
mod members;
