//! The native protocol: one connection per client, for the sessions between client and member and for queries.

mod clients;
mod connection;
mod detached;
mod queries;

pub use clients::Clients;
pub(crate) use connection::serve;

/// The name of this protocol in logs.
pub(crate) const NATIVE: &str = "native";
