//! The native protocol: one connection for all locks of a client, over which member and client keep their sessions.

mod answers;
mod clients;
mod connection;

pub use clients::Clients;
pub(crate) use connection::serve;

/// How this way of asking is called in logs.
pub(crate) const NATIVE: &str = "native";
