//! Records: the messages on a connection after the greeting, each preceded by its length.
//!
//! ```text
//! length: u32, little endian | kind: u8 | number: u64, only in queries and answers | payload
//! ```
//!
//! The reader allocates memory for bytes that have arrived, never for bytes that were only announced.

use std::fmt;

/// Size of the length field, in bytes.
const LENGTH: usize = 4;
/// Maximum size of kind and number, in bytes.
const HEAD: usize = 9;
/// Minimum free space in the buffer for a read from the network, in bytes.
const ROOM: usize = 16 * 1024;
/// A buffer larger than this is freed once it is empty.
const LARGEST_KEPT_BUFFER: usize = 1024 * 1024;

/// A message on a connection after the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Shows that the sender is alive.
    Ping,
    /// A frame between members. Its content belongs to the members' links.
    Frame(&'a [u8]),
    /// A query with its number.
    Query(u64, &'a [u8]),
    /// The answer to the query with this number.
    Reply(u64, &'a [u8]),
    /// The query with this number is not answered: too many are in progress.
    Declined(u64),
}

/// The reason why a stream of records cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The announced length exceeds the limit.
    TooLong { announced: usize, limit: usize },
    /// This version does not know the kind of the record.
    UnknownKind(u8),
    /// A record that is too short for its number, or has a payload where none is allowed.
    WrongLength { kind: u8, length: usize },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { announced, limit } => {
                write!(f, "a record of {announced} bytes was announced, and the limit is {limit}")
            }
            Self::UnknownKind(kind) => write!(f, "a record of the unknown kind {kind}"),
            Self::WrongLength { kind, length } => {
                write!(f, "a record of kind {kind} cannot have {length} bytes")
            }
        }
    }
}

/// Appends a record, whose payload `write` appends. Returns the length of the payload. If the payload exceeds the
/// limit, `out` is left unchanged.
pub fn append(
    out: &mut Vec<u8>,
    kind: RecordHeader,
    limit: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Option<usize> {
    let before = out.len();
    out.extend([0; LENGTH]);
    out.push(kind.code());
    if let Some(number) = kind.number() {
        out.extend(number.to_le_bytes());
    }
    let head = out.len();
    write(out);
    let length = out.len().checked_sub(head).filter(|&length| length <= limit);
    let announced = u32::try_from(out.len() - before - LENGTH).ok();
    // The length field covers kind, number and payload: a query of 3 bytes announces 1 + 8 + 3 = 12.
    match (length, announced) {
        (Some(length), Some(announced)) => {
            out[before..before + LENGTH].copy_from_slice(&announced.to_le_bytes());
            Some(length)
        }
        _ => {
            out.truncate(before);
            None
        }
    }
}

/// The kind and number of a record to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordHeader {
    Ping,
    Frame,
    Query(u64),
    Reply(u64),
    Declined(u64),
}

impl RecordHeader {
    fn code(self) -> u8 {
        match self {
            Self::Ping => 0,
            Self::Frame => 1,
            Self::Query(_) => 2,
            Self::Reply(_) => 3,
            Self::Declined(_) => 4,
        }
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Ping | Self::Frame => None,
            Self::Query(number) | Self::Reply(number) | Self::Declined(number) => Some(number),
        }
    }
}

/// Received bytes that have not been decoded.
#[derive(Debug)]
pub struct Incoming {
    bytes: Vec<u8>,
    used: usize,
    limit: usize,
}

impl Incoming {
    /// Creates a reader for records with a payload of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), used: 0, limit }
    }

    /// The buffer to which the next bytes from the network are appended. It grows with the received bytes: it doubles
    /// at most.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.used == self.bytes.len() {
            self.bytes.clear();
            self.used = 0;
            if self.bytes.capacity() > LARGEST_KEPT_BUFFER {
                self.bytes = Vec::new();
            }
        } else if self.used > 0 && self.bytes.capacity() - self.bytes.len() < ROOM {
            // Move the undecoded rest to the front, so that the buffer need not grow.
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        if self.bytes.capacity() - self.bytes.len() < ROOM {
            self.bytes.reserve(ROOM.max(self.bytes.len()));
        }
        &mut self.bytes
    }

    /// Decodes the next record. Returns `None` until all of it has arrived.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, Malformed> {
        let Some((length, rest)) = self.bytes[self.used..].split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit + HEAD {
            return Err(Malformed::TooLong { announced: length, limit: self.limit });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.used + LENGTH;
        self.used = from + length;
        read(&self.bytes[from..from + length]).map(Some)
    }

    /// Capacity of the buffer, in bytes.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

fn read(record: &[u8]) -> Result<Record<'_>, Malformed> {
    let Some((&kind, rest)) = record.split_first() else {
        return Err(Malformed::WrongLength { kind: 0, length: 0 });
    };
    let wrong = Malformed::WrongLength { kind, length: record.len() };
    let numbered = || {
        let (number, rest) = rest.split_first_chunk::<8>().ok_or(wrong)?;
        Ok((u64::from_le_bytes(*number), rest))
    };
    match kind {
        0 if rest.is_empty() => Ok(Record::Ping),
        1 => Ok(Record::Frame(rest)),
        2 => numbered().map(|(number, bytes)| Record::Query(number, bytes)),
        3 => numbered().map(|(number, bytes)| Record::Reply(number, bytes)),
        4 => match numbered()? {
            (number, []) => Ok(Record::Declined(number)),
            _ => Err(wrong),
        },
        0 => Err(wrong),
        _ => Err(Malformed::UnknownKind(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_from_chunks_of_any_size() {
        let mut bytes = Vec::new();
        append(&mut bytes, RecordHeader::Frame, 100, |out| out.extend(b"one")).unwrap();
        append(&mut bytes, RecordHeader::Ping, 100, |_| ()).unwrap();
        append(&mut bytes, RecordHeader::Query(7), 100, |out| out.extend(b"two")).unwrap();
        append(&mut bytes, RecordHeader::Reply(u64::MAX), 100, |_| ()).unwrap();
        append(&mut bytes, RecordHeader::Declined(3), 100, |_| ()).unwrap();
        for piece in 1..=bytes.len() {
            let mut incoming = Incoming::new(100);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(piece) {
                incoming.room().extend(chunk);
                while let Some(record) = incoming.next().unwrap() {
                    seen.push(format!("{record:?}"));
                }
            }
            let expected = [
                Record::Frame(b"one"),
                Record::Ping,
                Record::Query(7, b"two"),
                Record::Reply(u64::MAX, b""),
                Record::Declined(3),
            ];
            assert_eq!(seen, expected.map(|record| format!("{record:?}")), "in pieces of {piece}");
        }
    }

    #[test]
    fn announced_gigabyte_allocates_nothing() {
        let mut incoming = Incoming::new(16 << 20);
        incoming.room().extend((1_u32 << 30).to_le_bytes());
        assert_eq!(incoming.next(), Err(Malformed::TooLong { announced: 1 << 30, limit: 16 << 20 }));
        assert!(incoming.capacity() < 64 * 1024);

        let mut incoming = Incoming::new(16 << 20);
        incoming.room().extend((15_u32 << 20).to_le_bytes());
        assert_eq!(incoming.next(), Ok(None));
        incoming.room().extend([1; 100]);
        assert_eq!(incoming.next(), Ok(None));
        assert!(incoming.capacity() < 64 * 1024, "memory is for what has come");
    }

    #[test]
    fn record_beyond_the_limit_leaves_the_buffer_unchanged() {
        let mut bytes = vec![1, 2, 3];
        assert_eq!(append(&mut bytes, RecordHeader::Frame, 4, |out| out.extend([0; 5])), None);
        assert_eq!(bytes, [1, 2, 3]);
        assert_eq!(append(&mut bytes, RecordHeader::Frame, 5, |out| out.extend([0; 5])), Some(5));
    }

    #[test]
    fn malformed_records_are_rejected() {
        let refused = |bytes: &[u8]| {
            let mut incoming = Incoming::new(100);
            incoming.room().extend(bytes);
            incoming.next().unwrap_err()
        };
        assert_eq!(refused(&[0, 0, 0, 0]), Malformed::WrongLength { kind: 0, length: 0 });
        assert_eq!(refused(&[1, 0, 0, 0, 9]), Malformed::UnknownKind(9));
        assert_eq!(refused(&[2, 0, 0, 0, 2, 0]), Malformed::WrongLength { kind: 2, length: 2 });
        assert_eq!(refused(&[2, 0, 0, 0, 0, 0]), Malformed::WrongLength { kind: 0, length: 2 });
    }
}
