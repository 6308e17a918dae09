//! The unit tests of the command's modules. They run from here, so that the whole command is not compiled a second time for
//! them: what it is linked with makes that long.

#![allow(dead_code, missing_docs, reason = "only the tests of these modules are used here")]

#[path = "../src/commands/cluster_address.rs"]
mod cluster_address;
#[path = "../src/commands/duration.rs"]
mod duration;
#[path = "../src/exit.rs"]
mod exit;
#[path = "../src/png.rs"]
mod png;
#[path = "../src/commands/quorums.rs"]
mod quorums;
#[path = "../src/say.rs"]
mod say;
#[path = "../src/commands/supervise.rs"]
mod supervise;
#[path = "../src/table.rs"]
mod table;
