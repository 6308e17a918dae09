//! The content of a frame, for algorithms with simple messages and with lists in them. A frame that can be decoded
//! survives another encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::{MutualExclusion, Validate};
use lockkeeper_core::algorithms::{
    centralized_failover::CentralizedFailover, gate::Gate, lodha_kshemkalyani::LodhaKshemkalyani,
    naimi_trehel::NaimiTrehel, suzuki_kasami::SuzukiKasami, token_ring_parked::TokenRingParked,
};
use lockkeeper_fuzz::cluster::Message;
use lockkeeper_member::{Body, Frame, LockContent, Packet};

fn read<P: MutualExclusion>(bytes: &[u8]) {
    let Ok((frame, _)) = postcard::take_from_bytes::<Frame<Message<P>>>(bytes) else { return };
    if let Body::Link { packet: Packet { payload: Some((_, message)), .. }, .. } = &frame.body
        && let LockContent::Algorithm(message) = &message.content
    {
        let _ = Gate::<P>::is_well_formed(message, 3);
    }
    let written = postcard::to_stdvec(&frame).unwrap();
    assert_eq!(postcard::from_bytes::<Frame<Message<P>>>(&written).unwrap(), frame);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    match which % 5 {
        0 => read::<NaimiTrehel>(bytes),
        1 => read::<SuzukiKasami>(bytes),
        2 => read::<TokenRingParked>(bytes),
        3 => read::<LodhaKshemkalyani>(bytes),
        _ => read::<CentralizedFailover>(bytes),
    }
});
