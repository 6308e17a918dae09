//! A member of a lock cluster on a real machine.
//!
//! [`lockkeeper_member`] is the member itself, a pure state machine. This crate gives it what it asks for: a network, consensus on
//! a disk, and a clock.
//!
//! | module | what it holds |
//! |---|---|
//! | `clock` | the lease clock |
//! | `net` | connections between members: frames, TLS, limits |
//! | `consensus`, `store` | Raft, which decides the views, and what it keeps on disk |

mod clock;
mod consensus;
#[allow(dead_code, reason = "the driver, which uses it, comes next")]
mod net;
mod store;
