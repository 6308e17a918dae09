//! Support for tests with real processes: hosts on one machine with links that can be cut, and records that their
//! clients write, which are merged into one history and checked for mutual exclusion.
//!
//! | module | contents |
//! |---|---|
//! | [`certificates`] | an authority, and certificates of servers and clients, as PEM files |
//! | [`clock`] | servers whose clock is wrong |
//! | [`golden`] | golden files: the bytes of stored and sent values |
//! | [`hosts`] | network namespaces on one bridge, cuts between them, a proxy that delays, disks that can be filled |
//! | [`history`] | the records of clients, and the check for mutual exclusion |
//! | [`follow`] | reading a file of lines while another process appends to it |
//! | [`mutation`] | random mutations of inputs, for tests that run a fuzz target without a fuzzer |
//! | [`ports`] | ports that no other process gets; a re-export |
//! | [`servers`] | servers of other projects, such as etcd, as processes on free loopback ports |
//! | [`options`] | the command line: every fault once, or random faults for a number of minutes |
//!
//! Programs that use it are tests without a harness. The same program, started with other arguments, runs the processes
//! on the hosts.

pub mod certificates;
pub mod clock;
pub mod follow;
pub mod golden;
pub mod history;
pub mod hosts;
pub mod mutation;
pub mod options;
pub mod servers;

pub use lockkeeper_system::ports;
