//! What the targets share: the files of the network that read bytes, and a small cluster to attack.

/// How the bytes of a connection become records.
#[path = "../../crates/cluster/src/net/records.rs"]
pub mod records;

/// How a connection begins.
#[path = "../../crates/cluster/src/net/hello.rs"]
pub mod hello;

pub mod cluster;

/// What members ask each other about consensus, and what an answer may be.
#[allow(dead_code, reason = "only what reads bytes is used here")]
pub mod consensus;
