//! A client with two daemons, of which the first accepts the connection and never replies.
#![cfg(feature = "cluster")]

use lockkeeper::Lockkeeper;
use lockkeeper_session::protocol::{
    Frames, FromDaemon, Greeting, Hello, LONGEST_TO_DAEMON, ToDaemon, Welcome,
};
use lockkeeper_session::{Fence, Generation, ToClient, ToMember};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A timeout that only a client that waits forever reaches.
const LONGEST: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_millis(400);

/// The messages that a fake daemon leaves unanswered.
#[derive(Clone, Copy)]
enum Unanswered {
    Everything,
    /// The first request, but no keep-alive.
    FirstRequest,
}

/// Starts a fake daemon; returns its address and the number of connections that it has accepted.
async fn daemon(unanswered: Unanswered) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counts = accepted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counts.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, unanswered));
        }
    });
    (address, accepted)
}

async fn serve(mut stream: TcpStream, unanswered: Unanswered) -> Option<()> {
    let mut opening = [0; 8];
    stream.read_exact(&mut opening).await.ok()?;
    let mut frames = Frames::new(LONGEST_TO_DAEMON);
    let _: Hello = read(&mut stream, &mut frames).await?;
    let mut bytes =
        lockkeeper_session::protocol::reply(lockkeeper_session::protocol::version_for(opening)).to_vec();
    let lease_ns = LEASE.as_nanos() as u64;
    let (shortest_ttl_ns, longest_ttl_ns) = (lease_ns, lease_ns);
    let welcome =
        Welcome { member: 1, lease_ns, moment_ns: lease_ns, members: 2, shortest_ttl_ns, longest_ttl_ns };
    lockkeeper_session::protocol::encode(&Greeting::Welcome(welcome), &mut bytes);
    let mut requests = 0;
    loop {
        stream.write_all(&bytes).await.ok()?;
        bytes.clear();
        let ToDaemon::Session(session, message) = read(&mut stream, &mut frames).await? else { continue };
        if let ToMember::Acquire { .. } = message {
            requests += 1;
        }
        let is_unanswered = match unanswered {
            Unanswered::Everything => true,
            Unanswered::FirstRequest => matches!(message, ToMember::Acquire { .. }) && requests == 1,
        };
        if let Some(answer) = answer(session, message).filter(|_| !is_unanswered) {
            lockkeeper_session::protocol::encode(&answer, &mut bytes);
        }
    }
}

fn answer(session: u64, message: ToMember) -> Option<FromDaemon> {
    let generation = Generation { epoch: 0, incarnation: 1, number: 1 };
    let answer = match message {
        ToMember::KeepAlive { sent_ns, .. } => {
            let duration_ns = LEASE.as_nanos() as u64;
            ToClient::Alive { generation, sent_ns, duration_ns, revoked: Vec::new(), recorded: None }
        }
        ToMember::Acquire { number, .. } => ToClient::Granted {
            generation,
            number,
            fence: Fence::new(1, 7),
            delegated_entries: 0,
            contended: false,
        },
        ToMember::Release { number } => {
            ToClient::Ended { number, outcome: lockkeeper_session::Ended::Released }
        }
        ToMember::InUse { .. } | ToMember::Close => return None,
    };
    Some(FromDaemon::Session(session, answer))
}

async fn read<T: serde::de::DeserializeOwned>(stream: &mut TcpStream, frames: &mut Frames) -> Option<T> {
    loop {
        if let Some(value) = frames.take().ok()? {
            return Some(value);
        }
        if stream.read_buf(&mut frames.arrived).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_leaves_a_daemon_that_answers_no_keep_alive() {
    let (silent, requests) = daemon(Unanswered::Everything).await;
    let (serving, _) = daemon(Unanswered::FirstRequest).await;
    let url = format!("lockkeeper://{silent},{serving}?in-order");
    let locks = Lockkeeper::open(&url).await.unwrap();
    let acquired = tokio::time::timeout(LONGEST, locks.mutex("nightly").acquire()).await;
    let guard = acquired.expect("the client goes to the second daemon").unwrap();
    guard.release().await.unwrap();
    assert!(requests.load(Ordering::SeqCst) >= 1, "the first daemon was tried first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_repeats_a_request_that_its_daemon_did_not_answer() {
    let (serving, accepted) = daemon(Unanswered::FirstRequest).await;
    let locks = Lockkeeper::open(&format!("lockkeeper://{serving}")).await.unwrap();
    let acquired = tokio::time::timeout(LONGEST, locks.mutex("nightly").acquire()).await;
    let guard = acquired.expect("the request is repeated over the same connection").unwrap();
    guard.release().await.unwrap();
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}
