//! How much one client, and all of them together, may ask for.

use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// The limits of a daemon. Whoever reaches one is told which.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections of clients at a time, over all ports; HTTP and the native protocol each leave a quarter of them for the other.
    pub connections: usize,
    /// Sessions at a time.
    pub sessions: usize,
    /// Locks that one session holds or waits for at a time.
    pub locks_per_session: usize,
    /// Requests per second of one connection, or of one token.
    pub requests_per_second: NonZeroU32,
    /// The longest request, in bytes.
    pub request_bytes: usize,
    /// What waits to be read by one client, in bytes; who reads too slowly is cut off.
    pub unread_bytes: usize,
    /// For how long a connection may take to say who it is, a request to arrive, or a client to read the next piece of a reply.
    pub patience_ms: u64,
    /// For how long an HTTP connection may be open without a request.
    pub idle_ms: u64,
    /// The longest time to live of a session that a client asks for.
    pub longest_ttl_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            sessions: 50_000,
            locks_per_session: 20_000,
            requests_per_second: const { NonZeroU32::new(200_000).unwrap() },
            request_bytes: 64 << 10,
            unread_bytes: 4 << 20,
            patience_ms: 10_000,
            idle_ms: 60_000,
            longest_ttl_s: 24 * 60 * 60,
        }
    }
}

impl Limits {
    /// For how long a connection may take to say who it is, a request to arrive, or a client to read the next piece of a reply.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms)
    }

    /// For how long an HTTP connection may be open without a request.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}
