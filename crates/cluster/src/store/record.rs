//! Records and their checksums.

use super::StoreError;

/// What there is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Record {
    /// Whose store this is.
    Identity = 0,
    /// Counts commits; says nothing.
    Seal = 1,
    /// The cluster that this store is part of.
    Cluster = 2,
    /// The vote: the latest term, and for whom.
    Vote = 3,
    /// Up to where the log is known to be decided.
    Committed = 4,
    /// Up to where the log is gone, since the snapshot has it.
    Purged = 5,
    /// The state that the log led to.
    Snapshot = 6,
}

/// Where something stands. Part of its checksum: a record in the wrong place is damage too.
pub(super) type Place = [u8; 9];

impl Record {
    pub(super) fn place(self) -> Place {
        record_place(self as u8)
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

pub(super) fn record_place(key: u8) -> Place {
    let mut place = [0; 9];
    place[1] = key;
    place
}

pub(super) fn entry_place(index: u64) -> Place {
    let mut place = [1; 9];
    place[1..].copy_from_slice(&index.to_le_bytes());
    place
}

fn checksum(place: Place, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

/// The bytes with their checksum in front.
pub(super) fn sealed(place: Place, bytes: &[u8]) -> Vec<u8> {
    [checksum(place, bytes).as_slice(), bytes].concat()
}

/// The bytes behind the checksum, if that is theirs.
pub(super) fn check(place: Place, stored: &[u8]) -> Result<&[u8], StoreError> {
    match stored.split_first_chunk::<4>() {
        Some((sum, bytes)) if *sum == checksum(place, bytes) => Ok(bytes),
        _ => Err(StoreError::Damaged { what: "a record does not match its checksum".to_string() }),
    }
}
