//! The protocol between a client and a daemon.
//!
//! ```text
//!   client                                                  daemon
//!     │ ── "LOCK" oldest newest ── Hello { secret, token } ─▶ │
//!     │ ◀─ "LOCK" version ─────── Greeting ─────────────────── │
//!     │ ── ToDaemon … ─────────────────────────────────────▶  │   frames: four bytes of length,
//!     │ ◀─────────────────────────────────── FromDaemon … ──  │   then a value in postcard
//! ```
//!
//! # Identity of a client
//! A client authenticates its sessions with a [`Secret`] of 128 random bits, which it sends over each of its
//! connections and to no other party. A daemon identifies a client by its principal (from the token) and its secret
//! together. It derives the number under which the members know the client, and which lists show, from both: the number
//! is the same at every daemon, so that any of them can carry the client's sessions, and reveals nothing about the
//! secret. On its connection a client names its sessions by their numbers alone, so it cannot name a session of another
//! client.
//!
//! # Sessions over connections
//! One connection carries all locks of a client. Grants are pushed. Every message of a session
//! ([`ToMember`](crate::ToMember)) names the session and the acquisition, and is idempotent: after a lost reply, the
//! client repeats the message. Client and member keep the session by the rules of [`ClientSession`](crate::ClientSession), which the lab
//! simulates; the connection only transports their messages.

mod frames;
mod messages;

pub use frames::{Frames, Malformed, encode};
pub use messages::*;

/// The first four bytes of each side.
pub const MAGIC: [u8; 4] = *b"LOCK";
/// The oldest supported version of the protocol.
pub const OLDEST: u16 = 5;
/// The newest supported version of the protocol. Version 5 has detached holds and the name of the operator that revokes a
/// hold.
pub const NEWEST: u16 = 5;
/// The default port on which daemons listen for clients.
pub const PORT: u16 = 7421;
/// Maximum size of a [`Hello`] or [`Greeting`], in bytes.
pub const LONGEST_GREETING: usize = 4096;
/// Maximum size of a frame to the daemon, in bytes.
pub const LONGEST_TO_DAEMON: usize = 64 << 10;
/// Maximum size of a frame from the daemon, in bytes. The longest ones are lists of many locks.
pub const LONGEST_FROM_DAEMON: usize = 16 << 20;

/// The client's first bytes: the magic and the range of versions that it supports.
pub fn opening() -> [u8; 8] {
    let ([a, b], [c, d]) = (OLDEST.to_be_bytes(), NEWEST.to_be_bytes());
    let [l, o, k, e] = MAGIC;
    [l, o, k, e, a, b, c, d]
}

/// Chooses the version for a client with these first bytes. Returns `None` if they are not from this protocol, or if no
/// version is supported by both sides.
pub fn version_for(opening: [u8; 8]) -> Option<u16> {
    let [magic @ .., a, b, c, d] = opening;
    let (oldest, newest) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    // Example: the client supports 1 to 10 and this side 2 to 3. The newest common version is 3.
    let common = newest.min(NEWEST);
    (magic == MAGIC && oldest <= newest && common >= oldest.max(OLDEST)).then_some(common)
}

/// The daemon's first bytes: the magic and the chosen version; 0 if there is none.
pub fn reply(version: Option<u16>) -> [u8; 6] {
    let [a, b] = version.unwrap_or(0).to_be_bytes();
    let [l, o, k, e] = MAGIC;
    [l, o, k, e, a, b]
}

/// The version that the daemon has chosen. `None` if it chose none, or if this is not a reply of a daemon.
pub fn version_in(reply: [u8; 6]) -> Option<u16> {
    let [magic @ .., a, b] = reply;
    let version = u16::from_be_bytes([a, b]);
    (magic == MAGIC && (OLDEST..=NEWEST).contains(&version)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_daemon_of_the_same_version_agree_on_it() {
        assert_eq!(version_for(opening()), Some(NEWEST));
        assert_eq!(version_in(reply(version_for(opening()))), Some(NEWEST));
    }

    #[test]
    fn other_protocols_and_unsupported_versions_are_rejected() {
        assert_eq!(version_for(*b"GET / HT"), None);
        assert_eq!(version_for(*b"LOCK\0\x09\0\x0a"), None, "only newer versions");
        assert_eq!(version_for(*b"LOCK\0\x01\0\x0a"), Some(5), "also newer versions");
        assert_eq!(version_for(*b"LOCK\0\x01\0\x04"), None, "only older versions");
        assert_eq!(version_for(*b"LOCK\0\x06\0\x05"), None, "nonsense");
        assert_eq!(version_in(reply(None)), None);
        assert_eq!(version_in(*b"HTTP/1"), None);
    }
}
