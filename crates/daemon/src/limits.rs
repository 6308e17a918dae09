//! How much one client, and all of them together, may ask for.

use crate::audit::Rotation;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// The limits of a daemon. A request that exceeds one is refused with an error that names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections of clients at a time, over all ports; HTTP and the native protocol each leave a quarter of them for the other.
    pub connections: usize,
    /// Sessions at a time.
    pub sessions: usize,
    /// Locks that one session holds or waits for at a time.
    pub locks_per_session: usize,
    /// Holds at a time.
    pub holds: usize,
    /// Waits for locks at a time.
    pub waits: usize,
    /// Watch streams at a time.
    pub watches: usize,
    /// Watch streams of one connection at a time.
    pub watches_per_connection: usize,
    /// Lists of locks that are made and sent at a time. Further ones wait for their turn.
    pub lists: usize,
    /// Requests per second of one connection, or of one principal.
    pub requests_per_second: NonZeroU32,
    /// The longest request, in bytes.
    pub request_bytes: usize,
    /// What waits to be read by one client, in bytes; who reads too slowly is cut off.
    pub unread_bytes: usize,
    /// The most bytes that a list of all locks takes in memory, about. A longer list is read in several parts.
    pub list_bytes: usize,
    /// For how long a connection may take to say who it is, a request to arrive, or a client to read the next piece of a reply.
    pub patience_ms: u64,
    /// For how long an HTTP connection may be open without a request.
    pub idle_ms: u64,
    /// The longest time to live of a session that a client asks for.
    pub longest_ttl_s: u64,
    /// The largest size of the audit log, in bytes: then another file is begun.
    pub audit_bytes: u64,
    /// How many earlier files of the audit log are kept.
    pub audit_files: u32,
    /// What one principal may use: a token or, where no tokens are needed, an address.
    pub per_principal: PerPrincipal,
}

/// The limits of each principal. Where one is not set, a principal may use as much as all of them together, except under
/// pressure: once half of the daemon's limit is in use, a principal gets no more than its fair share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PerPrincipal {
    /// Sessions at a time.
    pub sessions: Option<usize>,
    /// Holds at a time.
    pub holds: Option<usize>,
    /// Waits for locks at a time.
    pub waits: Option<usize>,
    /// Different locks in one view of the cluster: those in use, and those used since the view began.
    pub names: Option<usize>,
    /// Watch streams at a time.
    pub watches: Option<usize>,
    /// Lists of locks that are made and sent at a time.
    pub lists: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            sessions: 50_000,
            locks_per_session: 20_000,
            holds: 1_000_000,
            waits: 1_000_000,
            watches: 1_000,
            watches_per_connection: 100,
            lists: 8,
            requests_per_second: const { NonZeroU32::new(200_000).unwrap() },
            request_bytes: 64 << 10,
            unread_bytes: 4 << 20,
            list_bytes: 64 << 20,
            patience_ms: 10_000,
            idle_ms: 60_000,
            longest_ttl_s: 24 * 60 * 60,
            audit_bytes: 256 << 20,
            audit_files: 4,
            per_principal: PerPrincipal::default(),
        }
    }
}

impl Limits {
    /// The sizes at which the audit log rotates.
    pub fn rotation(&self) -> Rotation {
        Rotation { bytes: self.audit_bytes, files: self.audit_files }
    }

    /// For how long a connection may take to say who it is, a request to arrive, or a client to read the next piece of a reply.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms)
    }

    /// For how long an HTTP connection may be open without a request.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}
