//! What a client of the native protocol sends, cut anywhere: its opening, who it is, and words for a member that serves; and what a client
//! makes of such bytes if a daemon says them. Memory stays within what has come, and whatever is read is written and read again as the same.
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

/// Reads frames as they arrive, until one makes no sense.
fn read<T: Serialize + DeserializeOwned + Debug>(
    frames: &mut Frames,
    pieces: &[&[u8]],
    mut hear: impl FnMut(T),
) {
    let mut fed = frames.arrived.len();
    for piece in pieces {
        frames.arrived.extend_from_slice(piece);
        fed += piece.len();
        loop {
            match frames.take::<T>() {
                Ok(Some(said)) => {
                    let mut written = Vec::new();
                    lockkeeper_session::protocol::encode(&said, &mut written);
                    let mut again = Frames::new(usize::MAX >> 1);
                    again.arrived.extend_from_slice(&written);
                    let again = again.take::<T>().unwrap().unwrap();
                    assert_eq!(format!("{again:?}"), format!("{said:?}"));
                    hear(said);
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
            read::<ToDaemon>(&mut Frames::new(LONGEST_TO_DAEMON), &pieces, |said| {
                if let ToDaemon::Session(session, said) = said {
                    now += 1_000_000;
                    let session = SessionId { client: 7, number: session };
                    member.handle(now, Event::Client(session, said), &mut out);
                    member.handle(now, Event::Tick, &mut out);
                }
            });
        }),
    }
});
