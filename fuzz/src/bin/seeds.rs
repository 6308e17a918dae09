//! Writes the first inputs of every target into `corpus`: the messages of a real cluster, as the targets read them.

use lockkeeper_cluster::fuzz;
use lockkeeper_core::MutualExclusion;
use lockkeeper_core::algorithms::{
    lamport::Lamport, lodha_kshemkalyani::LodhaKshemkalyani, maekawa::Maekawa, naimi_trehel::NaimiTrehel,
    raymond::Raymond, suzuki_kasami::SuzukiKasami, token_ring_parked::TokenRingParked,
};
use lockkeeper_fuzz::cluster::Cluster;
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, FromDaemon, Greeting, Hello, Secret, ToDaemon, Welcome,
};
use lockkeeper_session::{LockName, LockRequest, ToClient, ToMember};
use std::fs;

/// The maximum number of frames of one cluster that become seeds.
const MOST: usize = 40;

fn frames<P: MutualExclusion>() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = Cluster::<P>::start()
        .frames
        .iter()
        .map(|frame| postcard::to_stdvec(frame).expect("a frame is plain data"))
        .filter(|bytes| bytes.len() < 256)
        .collect();
    frames.sort();
    frames.dedup();
    let apart = frames.len().div_ceil(MOST).max(1);
    frames.into_iter().step_by(apart).collect()
}

fn save(target: &str, seeds: impl IntoIterator<Item = Vec<u8>>) -> std::io::Result<()> {
    let folder = format!("corpus/{target}");
    fs::create_dir_all(&folder)?;
    for (number, seed) in seeds.into_iter().enumerate() {
        fs::write(format!("{folder}/seed-{number}"), seed)?;
    }
    Ok(())
}

/// The messages of a client and of a daemon of the native protocol, each after the length of its pieces and the number
/// of its reader.
fn native() -> Vec<Vec<u8>> {
    let session = 1;
    let messages = [
        ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1 },
        ToMember::Acquire { number: 1, settled: 1, request: LockRequest::exclusive(LockName::new("a")) },
        ToMember::Release { number: 1 },
        ToMember::Close,
    ];
    let mut client = Vec::new();
    for message in messages {
        lockkeeper_session::protocol::encode(&ToDaemon::Session(session, message), &mut client);
    }
    for query in [
        DaemonQuery::Locks(None),
        DaemonQuery::Watch,
        DaemonQuery::Cluster,
        DaemonQuery::ForceRelease("a".into()),
        DaemonQuery::Remove(3),
        DaemonQuery::Leave,
    ] {
        lockkeeper_session::protocol::encode(&ToDaemon::Query(1, query), &mut client);
    }
    let mut hello = lockkeeper_session::protocol::opening().to_vec();
    let secret = Secret::new([7; 16]);
    lockkeeper_session::protocol::encode(
        &Hello { secret, token: Some("secret".into()), for_locks: true },
        &mut hello,
    );
    let mut greeting = Vec::new();
    let welcome = Welcome { member: 1, lease_ns: 1_200_000_000, moment_ns: 1_000_000, members: 3 };
    lockkeeper_session::protocol::encode(&Greeting::Welcome(welcome), &mut greeting);
    let mut daemon = Vec::new();
    lockkeeper_session::protocol::encode(&FromDaemon::Session(session, ToClient::NoSession), &mut daemon);
    lockkeeper_session::protocol::encode(&FromDaemon::Reply(1, DaemonReply::Released(1)), &mut daemon);
    lockkeeper_session::protocol::encode(&FromDaemon::Changed, &mut daemon);
    let all = [hello, greeting, daemon, client];
    (0..).zip(all).map(|(reader, bytes)| [vec![30, reader], bytes].concat()).collect()
}

/// Copies the seeds that are stored as files: texts, and messages of gRPC.
fn copy() -> std::io::Result<()> {
    for target in ["http_body", "grpc_message", "configuration", "tokens", "url"] {
        let files = fs::read_dir(format!("seeds/{target}"))?;
        let seeds = files.map(|file| fs::read(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
        save(target, seeds)?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    copy()?;
    save("records", fuzz::net::seeds())?;
    save("consensus", fuzz::consensus::seeds())?;
    save("native", native())?;
    let (simple, token, ring, pairs) = (
        frames::<NaimiTrehel>(),
        frames::<SuzukiKasami>(),
        frames::<TokenRingParked>(),
        frames::<LodhaKshemkalyani>(),
    );
    let tagged = |which: u8, frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
        frames.iter().map(|frame| [&[which][..], frame].concat()).collect()
    };
    save("frame", [tagged(0, &simple), tagged(1, &token), tagged(2, &ring), tagged(3, &pairs)].concat())?;

    let acquire =
        ToMember::Acquire { number: 9, settled: 0, request: LockRequest::exclusive(LockName::new("9")) };
    let client =
        [ToMember::KeepAlive { sent_ns: 0, first: true, settled: 0 }, acquire, ToMember::Release { number: 9 }]
            .map(|message| postcard::to_stdvec(&message).expect("a message is plain data"));
    let mut seeds = Vec::new();
    let all = [simple, token, frames::<Lamport>(), frames::<Maekawa>(), frames::<Raymond>()];
    for (algorithm, frames) in all.iter().enumerate() {
        for which in 0..3 {
            for some in frames.chunks(8) {
                let mut seed = vec![algorithm as u8, which];
                let parts =
                    client.iter().map(|part| (1, part)).chain(some.iter().map(|part| (2 + which % 2, part)));
                for (what, part) in parts {
                    seed.extend([what, part.len() as u8]);
                    seed.extend(part);
                    seed.extend([0, 1, 30]);
                }
                seeds.push(seed);
            }
        }
    }
    save("member", seeds)
}
