//! Counters of the network, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A monotonic counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    pub(super) fn count(&self) {
        self.add(1);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The reason why something incoming was rejected, or something outgoing could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// TLS is missing where it is required, or used where it is not configured.
    TlsMismatch,
    /// The TLS handshake failed: wrong authority, expired or missing certificate.
    Handshake,
    /// The certificate does not name the member that presents it.
    Identity,
    /// The greeting is missing, or is for another cluster or member, not from a member, or in no common version.
    Hello,
    /// The greeting took too long.
    Slow,
    /// There are more connections than the limit.
    Busy,
    /// A record is longer than the limit.
    TooLong,
    /// A record cannot be decoded.
    Malformed,
    /// The member rejected a frame.
    Frame,
    /// There are more queries in progress than the limit.
    Query,
    /// The other side did not prove that it has the cluster's join token.
    Token,
}

impl Refusal {
    const ALL: [Self; 11] = [
        Self::TlsMismatch,
        Self::Handshake,
        Self::Identity,
        Self::Hello,
        Self::Slow,
        Self::Busy,
        Self::TooLong,
        Self::Malformed,
        Self::Frame,
        Self::Query,
        Self::Token,
    ];

    /// The value of its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::TlsMismatch => "tls_mismatch",
            Self::Handshake => "handshake",
            Self::Identity => "identity",
            Self::Hello => "hello",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Frame => "frame",
            Self::Query => "question",
            Self::Token => "join_token",
        }
    }
}

/// The counters of the network since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames passed to the member.
    pub frames_in: Counter,
    /// Frames accepted from the member.
    pub frames_out: Counter,
    /// Number of bytes read.
    pub bytes_in: Counter,
    /// Number of bytes written.
    pub bytes_out: Counter,
    /// Write calls. Frames that are pending together leave in one write.
    pub writes: Counter,
    /// Frames dropped because the buffer was full or the member has no address.
    pub dropped: Counter,
    /// Successful outgoing connections.
    pub connects: Counter,
    /// Failed attempts to connect.
    pub connects_failed: Counter,
    /// Connections that were replaced by a newer one of the same member.
    pub replaced: Counter,
    /// Connections closed because nothing was received for too long.
    pub silent: Counter,
    refused: [Counter; Refusal::ALL.len()],
}

impl Counters {
    pub(super) fn refuse(&self, why: Refusal) {
        self.refused[why as usize].count();
    }

    /// Number of rejections for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize].get()
    }

    /// Number of rejections for each reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Refusal::ALL.iter().map(|&why| (why.label(), self.refused(why)))
    }
}
