//! What a client and a daemon say to each other.
//!
//! ```text
//!   client                                                  daemon
//!     │ ── "LOCK" oldest newest ── Hello { secret, token } ─▶ │
//!     │ ◀─ "LOCK" version ─────── Greeting ─────────────────── │
//!     │ ── ToDaemon … ─────────────────────────────────────▶  │   frames: a length of four bytes, and a value in postcard
//!     │ ◀─────────────────────────────────── FromDaemon … ──  │
//! ```
//!
//! # Who a client is
//! A client proves who it is by a [`Secret`] of 128 random bits, which it sends over each of its connections and shows to nobody else. A
//! daemon knows a client by its principal (the token) and its secret together. The daemon chooses the number under which the member
//! knows the client, and which lists show; it has no meaning for the protocol. On its connection a client names its sessions by
//! their numbers alone, so that it cannot name the session of another client.
//!
//! One connection carries all locks of a client. Grants are pushed. Whatever is said to a session ([`lockkeeper_member::ToMember`]) names the session and the
//! acquisition, and may be said again: so a lost answer costs a repetition and nothing else. The client and the member keep the
//! session by the rules of [`lockkeeper_member`], the same that the lab searches; the connection only carries their words.

mod frames;
mod words;

pub use frames::{Frames, Malformed, encode};
pub use words::*;

/// What the client's first bytes are, and the daemon's.
pub const MAGIC: [u8; 4] = *b"LOCK";
/// The oldest version of this protocol that is spoken.
pub const OLDEST: u16 = 2;
/// The newest.
pub const NEWEST: u16 = 2;
/// The port on which daemons listen for clients.
pub const PORT: u16 = 7421;
/// How much a greeting may take.
pub const LONGEST_GREETING: usize = 4096;
/// How much a frame to the daemon may take.
pub const LONGEST_TO_DAEMON: usize = 64 << 10;
/// How much a frame from the daemon may take: a list of many locks.
pub const LONGEST_FROM_DAEMON: usize = 16 << 20;

/// The client's first bytes.
pub fn opening() -> [u8; 8] {
    let ([a, b], [c, d]) = (OLDEST.to_be_bytes(), NEWEST.to_be_bytes());
    let [l, o, k, e] = MAGIC;
    [l, o, k, e, a, b, c, d]
}

/// The version to speak with a client whose first bytes are these; `None` if it speaks another protocol, or none of the versions
/// known here.
pub fn version_for(opening: [u8; 8]) -> Option<u16> {
    let [magic @ .., a, b, c, d] = opening;
    let (oldest, newest) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let common = newest.min(NEWEST);
    (magic == MAGIC && oldest <= newest && common >= oldest.max(OLDEST)).then_some(common)
}

/// The daemon's first bytes: the version to speak, 0 if there is none.
pub fn reply(version: Option<u16>) -> [u8; 6] {
    let [a, b] = version.unwrap_or(0).to_be_bytes();
    let [l, o, k, e] = MAGIC;
    [l, o, k, e, a, b]
}

/// The version that the daemon has chosen.
pub fn version_in(reply: [u8; 6]) -> Option<u16> {
    let [magic @ .., a, b] = reply;
    let version = u16::from_be_bytes([a, b]);
    (magic == MAGIC && (OLDEST..=NEWEST).contains(&version)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_and_a_daemon_of_one_version_understand_each_other() {
        assert_eq!(version_for(opening()), Some(NEWEST));
        assert_eq!(version_in(reply(version_for(opening()))), Some(NEWEST));
    }

    #[test]
    fn others_are_told_apart() {
        assert_eq!(version_for(*b"GET / HT"), None);
        assert_eq!(version_for(*b"LOCK\0\x09\0\x0a"), None, "only newer versions");
        assert_eq!(version_for(*b"LOCK\0\x01\0\x0a"), Some(2), "also newer versions");
        assert_eq!(
            version_for(*b"LOCK\0\x01\0\x01"),
            None,
            "only the first version, in which clients chose their numbers"
        );
        assert_eq!(version_for(*b"LOCK\0\x03\0\x02"), None, "nonsense");
        assert_eq!(version_in(reply(None)), None);
        assert_eq!(version_in(*b"HTTP/1"), None);
    }
}
