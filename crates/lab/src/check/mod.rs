//! The checker: every reachable state of a small system.

pub mod intern;
pub mod liveness;
pub mod machine;
pub mod mutex;
pub mod net;
pub mod reduce;
pub mod search;
mod shift;
pub mod store;
