//! Records and their checksums.

use super::StoreError;

/// A record that exists once per store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Record {
    /// The identity of the store.
    Identity = 0,
    /// The number of commits. Its value carries no other information.
    Seal = 1,
    /// The cluster that this store is part of.
    Cluster = 2,
    /// The vote: the latest term and its candidate.
    Vote = 3,
    /// The last log entry known to be committed.
    Committed = 4,
    /// The last log entry that was purged because the snapshot contains it.
    Purged = 5,
    /// The replicated state at the last snapshot.
    Snapshot = 6,
}

/// The key of a record or entry. It is part of the checksum, so that a record at the wrong key is detected as damage.
pub(super) type Key = [u8; 9];

impl Record {
    pub(super) fn key(self) -> Key {
        record_key(self as u8)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity => "the identity",
            Self::Seal => "the seal",
            Self::Cluster => "the cluster's name",
            Self::Vote => "the vote",
            Self::Committed => "the end of what is decided",
            Self::Purged => "the beginning of the log",
            Self::Snapshot => "the snapshot",
        }
    }
}

pub(super) fn record_key(record: u8) -> Key {
    let mut key = [0; 9];
    key[1] = record;
    key
}

pub(super) fn entry_key(index: u64) -> Key {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&index.to_le_bytes());
    key
}

fn checksum(key: Key, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&key);
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

/// The bytes, preceded by their checksum.
pub(super) fn sealed(key: Key, bytes: &[u8]) -> Vec<u8> {
    [checksum(key, bytes).as_slice(), bytes].concat()
}

/// Verifies the checksum and returns the bytes after it.
pub(super) fn check(key: Key, stored: &[u8]) -> Result<&[u8], StoreError> {
    match stored.split_first_chunk::<4>() {
        Some((sum, bytes)) if *sum == checksum(key, bytes) => Ok(bytes),
        _ => Err(StoreError::Damaged { what: "a record does not match its checksum".to_string() }),
    }
}
