//! Limits on the resources of one client, and of all clients together.

use crate::audit::Rotation;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// The limits of a daemon. A request that exceeds one is refused with an error that names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Client connections at a time, over all ports. HTTP and the native protocol each leave a quarter of
    /// them to the other.
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
    /// Lists of locks built and sent at a time. Further requests for lists wait for their turn.
    pub lists: usize,
    /// Requests per second of one connection, or of one principal.
    pub requests_per_second: NonZeroU32,
    /// The maximum size of a request, in bytes.
    pub request_bytes: usize,
    /// The maximum number of bytes queued for one client. A client that reads too slowly is disconnected.
    pub unread_bytes: usize,
    /// The approximate maximum size of a list of all locks in memory, in bytes. A longer list is read in
    /// several chunks.
    pub list_bytes: usize,
    /// Timeout for a connection to authenticate, for a request to arrive, and for a client to read the next
    /// part of a reply.
    #[serde(alias = "patience_ms")]
    pub request_timeout_ms: u64,
    /// Timeout of an HTTP connection without a request.
    #[serde(alias = "idle_ms")]
    pub idle_timeout_ms: u64,
    /// The maximum time to live of a session.
    pub longest_ttl_s: u64,
    /// The maximum size of the audit log before it is rotated, in bytes.
    pub audit_bytes: u64,
    /// Number of rotated files of the audit log to keep.
    pub audit_files: u32,
    /// Limits of one principal: a token or, where no tokens are needed, an address.
    pub per_principal: PerPrincipal,
}

/// The limits of each principal. Without a limit of its own, a principal may use the whole limit of the
/// daemon, except under pressure: once half of the daemon's limit is in use, a principal gets no more than
/// its fair share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PerPrincipal {
    /// Sessions at a time.
    pub sessions: Option<usize>,
    /// Holds at a time.
    pub holds: Option<usize>,
    /// Waits for locks at a time.
    pub waits: Option<usize>,
    /// Distinct lock names in one view of the cluster: those in use, and those used since the view began.
    pub names: Option<usize>,
    /// Watch streams at a time.
    pub watches: Option<usize>,
    /// Lists of locks built and sent at a time.
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
            request_timeout_ms: 10_000,
            idle_timeout_ms: 60_000,
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

    /// Timeout for a connection to authenticate, for a request to arrive, and for a client to read the next
    /// part of a reply.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// Timeout of an HTTP connection without a request.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }
}
