//! The bytes of a connection of the native protocol, in pieces of any length: the opening and greeting of a client, its
//! messages to a member that serves, and the messages of a daemon. Memory is bounded by the bytes that have arrived, and
//! a message that can be decoded survives another encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_fuzz::cluster::{Cluster, Message};
use lockkeeper_member::{Event, Member, Out, SessionId};
use lockkeeper_session::protocol::{
    Frames, FromDaemon, Greeting, Hello, LONGEST_GREETING, LONGEST_TO_DAEMON, ToDaemon,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

thread_local! {
    static STARTED: (u64, Member<NaimiTrehel>) = {
        let cluster = Cluster::<NaimiTrehel>::start();
        (cluster.now, cluster.members[0].clone())
    };
}

/// Decodes frames as they arrive, until one is malformed.
fn read<T: Serialize + DeserializeOwned + Debug>(
    frames: &mut Frames,
    pieces: &[&[u8]],
    mut handle: impl FnMut(T),
) {
    let mut fed = frames.arrived.len();
    for piece in pieces {
        frames.arrived.extend_from_slice(piece);
        fed += piece.len();
        loop {
            match frames.take::<T>() {
                Ok(Some(message)) => {
                    let mut written = Vec::new();
                    lockkeeper_session::protocol::encode(&message, &mut written);
                    let mut again = Frames::new(usize::MAX >> 1);
                    again.arrived.extend_from_slice(&written);
                    let again = again.take::<T>().unwrap().unwrap();
                    assert_eq!(format!("{again:?}"), format!("{message:?}"));
                    handle(message);
                }
                Ok(None) => break,
                Err(malformed) => {
                    let _ = malformed.to_string();
                    return;
                }
            }
        }
        assert!(frames.arrived.capacity() <= 4 * fed + (16 << 10));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [cut, what, bytes @ ..] = bytes else { return };
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*cut) + 1).collect();
    match what % 4 {
        0 => {
            if let Some((opening, rest)) = bytes.split_first_chunk::<8>() {
                let version = lockkeeper_session::protocol::version_for(*opening);
                assert_eq!(
                    lockkeeper_session::protocol::version_in(lockkeeper_session::protocol::reply(version)),
                    version
                );
                read::<Hello>(&mut Frames::new(LONGEST_GREETING), &[rest], drop);
            }
        }
        1 => read::<Greeting>(&mut Frames::new(LONGEST_GREETING), &pieces, drop),
        2 => read::<FromDaemon>(&mut Frames::new(1 << 20), &pieces, drop),
        _ => STARTED.with(|(now, member)| {
            let (mut now, mut member) = (*now, member.clone());
            let mut out = Out::<Message<NaimiTrehel>>::default();
            read::<ToDaemon>(&mut Frames::new(LONGEST_TO_DAEMON), &pieces, |message| {
                if let ToDaemon::Session(session, message) = message {
                    now += 1_000_000;
                    let session = SessionId { client: 7, number: session };
                    member.handle(now, Event::Client(session, message), &mut out);
                    member.handle(now, Event::Tick, &mut out);
                }
            });
        }),
    }
});
