//! A member in a running view that receives any sequence of frames, messages of clients, and ticks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::MutualExclusion;
use lockkeeper_core::algorithms::{
    lamport::Lamport, maekawa::Maekawa, naimi_trehel::NaimiTrehel, raymond::Raymond,
    suzuki_kasami::SuzukiKasami,
};
use lockkeeper_fuzz::cluster::{Cluster, Message};
use lockkeeper_member::{Event, Frame, Member, MemberId, Out, SessionId, ToMember};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    /// Members in their first view, by algorithm: they are made once and copied for every input.
    static STARTED: RefCell<BTreeMap<&'static str, Box<dyn Any>>> = RefCell::default();
}

fn started<P: MutualExclusion>(which: usize) -> (u64, Member<P>) {
    STARTED.with_borrow_mut(|started| {
        let cluster = started.entry(P::ABOUT.slug).or_insert_with(|| Box::new(Cluster::<P>::start()));
        let cluster = cluster.downcast_ref::<Cluster<P>>().expect("each algorithm has its own name");
        (cluster.now, cluster.members[which].clone())
    })
}

/// The next part of the input: its length in one byte, then as many of its bytes as there are.
fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = bytes.split_first()?;
    let (part, rest) = rest.split_at(rest.len().min(length.into()));
    *bytes = rest;
    Some(part)
}

fn attack<P: MutualExclusion>(which: usize, mut bytes: &[u8]) {
    let (mut now, mut member) = started::<P>(which);
    let mut out = Out::<Message<P>>::default();
    while let Some((&what, rest)) = bytes.split_first() {
        bytes = rest;
        let Some(part) = part(&mut bytes) else { return };
        let event = match what % 4 {
            0 => {
                now += 1_000_000 * u64::from(part.first().copied().unwrap_or(1));
                Event::Tick
            }
            1 => {
                let Ok((message, _)) = postcard::take_from_bytes::<ToMember>(part) else { continue };
                Event::Client(SessionId { client: which as u64, number: 0 }, message)
            }
            other => {
                let Ok((mut frame, _)) = postcard::take_from_bytes::<Frame<Message<P>>>(part) else {
                    continue;
                };
                // The network knows the sender of a frame.
                let peer = (which + other as usize - 1) % 3;
                frame.from.id = MemberId(peer as u32 + 1);
                Event::Frame(frame)
            }
        };
        member.handle(now, event, &mut out);
        assert!(out.frames.len() < 10_000);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [algorithm, which, bytes @ ..] = bytes else { return };
    let which = usize::from(which % 3);
    match algorithm % 5 {
        0 => attack::<NaimiTrehel>(which, bytes),
        1 => attack::<SuzukiKasami>(which, bytes),
        2 => attack::<Lamport>(which, bytes),
        3 => attack::<Maekawa>(which, bytes),
        _ => attack::<Raymond>(which, bytes),
    }
});
