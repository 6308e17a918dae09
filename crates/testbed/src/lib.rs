//! For tests with real processes: hosts on one machine that can be cut off from each other, and what their clients did, told
//! line by line and judged as one story.
//!
//! | module | what it holds |
//! |---|---|
//! | [`golden`] | golden files: the bytes of stored and sent values |
//! | [`hosts`] | network namespaces on one bridge, cuts between them, a proxy that delays, disks that can be filled |
//! | [`story`] | the lines of clients, and whether they are a story of mutual exclusion |
//! | [`tail`] | files of lines that others write on |
//! | [`ports`] | ports that nobody else gets |
//! | [`options`] | the command line: every fault once, or faults for so many minutes |
//!
//! Programs that use it are tests without a harness: the judge, and, started with other arguments, whatever runs on its hosts.

pub mod golden;
pub mod hosts;
pub mod options;
pub mod ports;
pub mod story;
pub mod tail;
