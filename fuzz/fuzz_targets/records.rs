//! The bytes of a connection: a greeting, then records, cut anywhere. Memory stays within what has come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_fuzz::hello::{self, Hello, HelloReply};
use lockkeeper_fuzz::records::Incoming;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    if let Some((head, body)) = bytes.split_first_chunk::<10>()
        && let Ok(length) = hello::body_length(head)
    {
        let body = &body[..length.min(body.len())];
        if let Ok(hello) = hello::decode::<Hello>(body) {
            let _ = hello::common_version(hello.oldest, hello.newest);
            let written = hello::encode(&hello);
            assert_eq!(hello::decode::<Hello>(&written[10..]).unwrap(), hello);
        }
        let _ = hello::decode::<HelloReply>(body).map(|reply| format!("{reply:?}"));
    }
    let mut incoming = Incoming::new(1 << 16);
    let mut fed = 0;
    for piece in bytes.chunks(usize::from(cut) + 1) {
        incoming.room().extend_from_slice(piece);
        fed += piece.len();
        loop {
            match incoming.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(malformed) => {
                    let _ = malformed.to_string();
                    return;
                }
            }
        }
        assert!(incoming.capacity() <= 4 * fed + (64 << 10));
    }
});
