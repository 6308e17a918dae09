//! Frames: a length of four bytes (big-endian), followed by a value in postcard.

use bytes::{Buf, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use std::string::{String, ToString};
use std::vec::Vec;

/// Memory reserved ahead for a frame that has not arrived completely, in bytes. A length field costs the sender
/// nothing, so it must not make the receiver allocate the whole frame.
const AHEAD: usize = 4096;

/// Error: the received bytes are not a frame of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The length field exceeds the limit.
    #[error("a frame is longer than the limit of {0} bytes")]
    TooLong(usize),
    /// The value cannot be decoded.
    #[error("a frame cannot be read: {0}")]
    Unreadable(String),
}

/// Appends a frame with this value to the buffer.
pub fn encode(value: &impl Serialize, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    let encoded = postcard::to_extend(value, std::mem::take(buffer));
    *buffer = encoded.expect("a message of this protocol can be encoded into memory");
    let length = u32::try_from(buffer.len() - start - 4).expect("a frame is far shorter than 4 GiB");
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Decoder that splits a stream of bytes into frames.
#[derive(Debug)]
pub struct Frames {
    limit: usize,
    /// Received bytes that have not been decoded. The reader of the connection appends to it.
    pub arrived: BytesMut,
}

impl Frames {
    /// Creates a decoder that rejects frames of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, arrived: BytesMut::new() }
    }

    /// Changes the limit for all following frames.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Decodes the next frame. Returns `None` until all of it has arrived.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Malformed> {
        let Some(&head) = self.arrived.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(head) as usize;
        if length > self.limit {
            return Err(Malformed::TooLong(self.limit));
        }
        let missing = (head.len() + length).saturating_sub(self.arrived.len());
        // The sender announced `length` bytes. Reserve at most `AHEAD` of them now; the rest follows as bytes arrive.
        if missing > 0 {
            self.arrived.reserve(missing.min(AHEAD));
            return Ok(None);
        }
        self.arrived.advance(head.len());
        let frame = self.arrived.split_to(length);
        match postcard::take_from_bytes(&frame) {
            Ok((value, [])) => Ok(Some(value)),
            Ok(_) => Err(Malformed::Unreadable(String::from("there are bytes after its value"))),
            Err(error) => Err(Malformed::Unreadable(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_from_chunks_of_any_size() {
        let mut sent = Vec::new();
        for n in 0..100_u32 {
            encode(&(n, "x".repeat(n as usize)), &mut sent);
        }
        for piece in [1, 7, 1000, sent.len()] {
            let (mut frames, mut got) = (Frames::new(1000), Vec::new());
            for part in sent.chunks(piece) {
                frames.arrived.extend_from_slice(part);
                while let Some((n, text)) = frames.take::<(u32, String)>().unwrap() {
                    assert_eq!(text.len(), n as usize);
                    got.push(n);
                }
            }
            assert_eq!(got, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn frame_beyond_the_limit_is_rejected_without_allocating() {
        let mut frames = Frames::new(1000);
        frames.arrived.extend_from_slice(&(1_u32 << 30).to_be_bytes());
        assert_eq!(frames.take::<u32>(), Err(Malformed::TooLong(1000)));
        assert!(frames.arrived.capacity() < 10_000);
    }

    #[test]
    fn announced_frame_allocates_no_more_than_ahead_before_it_arrives() {
        let mut frames = Frames::new(1 << 20);
        frames.arrived.extend_from_slice(&(1_u32 << 20).to_be_bytes());
        assert_eq!(frames.take::<u32>(), Ok(None));
        assert!(frames.arrived.capacity() < 2 * AHEAD, "{}", frames.arrived.capacity());
    }

    #[test]
    fn frames_with_missing_or_surplus_bytes_are_rejected() {
        let mut frames = Frames::new(1000);
        frames.arrived.extend_from_slice(&[0, 0, 0, 2, 1, 1]);
        assert!(matches!(frames.take::<u8>(), Err(Malformed::Unreadable(_))), "too much");
        frames.arrived.extend_from_slice(&[0, 0, 0, 1, 200]);
        assert!(matches!(frames.take::<String>(), Err(Malformed::Unreadable(_))), "too little");
    }
}
