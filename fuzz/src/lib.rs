//! What the targets share: the files of the network that read bytes, and a small cluster to attack.

/// How the bytes of a connection become records.
#[path = "../../crates/cluster/src/net/records.rs"]
pub mod records;

/// How a connection begins.
#[path = "../../crates/cluster/src/net/hello.rs"]
pub mod hello;

pub mod cluster;
