//! Fuzzing of the bytes of a connection between members.

use super::hello::{self, Hello, HelloReply, Purpose};
use super::records::{self, Incoming, RecordHeader};
use lockkeeper_member::MemberId;

/// Decodes a greeting, and then records that arrive in pieces of the length in the first byte. A greeting that can be
/// decoded survives another encoding. The memory is bounded by the bytes that have arrived.
pub fn connection(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    if let Some((head, body)) = bytes.split_first_chunk::<10>()
        && let Ok(length) = hello::body_length(head)
    {
        let body = &body[..length.min(body.len())];
        if let Ok(hello) = hello::decode::<Hello>(body) {
            let _ = hello::common_version(hello.oldest, hello.newest);
            let written = hello::encode(&hello);
            assert_eq!(hello::decode::<Hello>(&written[10..]).expect("it was encoded just before"), hello);
        }
        let _ = hello::decode::<HelloReply>(body).map(|reply| format!("{reply:?}"));
    }
    let mut incoming = Incoming::new(1 << 16);
    let mut arrived = 0;
    for piece in bytes.chunks(usize::from(cut) + 1) {
        incoming.room().extend_from_slice(piece);
        arrived += piece.len();
        loop {
            match incoming.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(malformed) => {
                    assert!(!malformed.to_string().is_empty());
                    return;
                }
            }
        }
        assert!(incoming.capacity() <= 4 * arrived + (64 << 10));
    }
}

/// A greeting, its reply, and one record of each kind, encoded.
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = Hello {
        oldest: 1,
        newest: 1,
        cluster: "canal".into(),
        from: Some(MemberId(1)),
        to: None,
        purpose: Purpose::Link,
    };
    let reply = HelloReply::Welcome { version: 1, member: MemberId(2) };
    let mut stream = Vec::new();
    for kind in [RecordHeader::Ping, RecordHeader::Declined(1)] {
        records::append(&mut stream, kind, 0, |_| ());
    }
    for kind in [RecordHeader::Frame, RecordHeader::Query(1), RecordHeader::Reply(1)] {
        records::append(&mut stream, kind, 100, |out| out.extend(b"payload"));
    }
    let cut = |bytes: Vec<u8>| [vec![7], bytes].concat();
    vec![cut(hello::encode(&hello)), cut(hello::encode(&reply)), cut(stream)]
}
