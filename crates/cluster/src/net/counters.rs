//! What the network has done, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    pub(super) fn count(&self) {
        self.add(1);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why something from outside was refused, or something of our own could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No TLS where it is required, or TLS where it is not spoken.
    TlsMismatch,
    /// The TLS handshake failed: wrong authority, expired, no certificate.
    Handshake,
    /// The certificate is not that of the member that shows it.
    Identity,
    /// No greeting, one of another cluster, for another member, not from a member, or in no common version.
    Hello,
    /// The greeting took too long.
    Slow,
    /// More connections than the limit.
    Busy,
    /// A record longer than the limit.
    TooLong,
    /// A record that cannot be read.
    Malformed,
    /// A frame that the member could not make sense of.
    Frame,
    /// A question beyond the number that may be under way.
    Question,
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
        Self::Question,
        Self::Token,
    ];

    /// Its name in metrics.
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
            Self::Question => "question",
            Self::Token => "join_token",
        }
    }
}

/// What the network has done since it started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames handed to the member.
    pub frames_in: Counter,
    /// Frames taken from the member.
    pub frames_out: Counter,
    /// Bytes read.
    pub bytes_in: Counter,
    /// Bytes written.
    pub bytes_out: Counter,
    /// Writes: what is ready together leaves together.
    pub writes: Counter,
    /// Frames dropped: too much was under way already, or nobody to send them to.
    pub dropped: Counter,
    /// Connections to other members that were made.
    pub connects: Counter,
    /// Attempts to connect that failed.
    pub connects_failed: Counter,
    /// Connections that a newer one of the same member took the place of.
    pub replaced: Counter,
    /// Connections that ended because nothing was heard for too long.
    pub silent: Counter,
    refused: [Counter; Refusal::ALL.len()],
}

impl Counters {
    pub(super) fn refuse(&self, why: Refusal) {
        self.refused[why as usize].count();
    }

    /// How often something was refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize].get()
    }

    /// How often something was refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Refusal::ALL.iter().map(|&why| (why.label(), self.refused(why)))
    }
}
