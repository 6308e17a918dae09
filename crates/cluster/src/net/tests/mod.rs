//! Networks of members over real sockets on this machine.

mod frames;
mod hostile;
mod outbox;
mod tls;
mod unauthenticated;

use super::authority::Authority;
use super::hello::{self, Confirm, Hello, HelloReply};
use super::proof::{self, Side};
use super::tls::{Pem, Tls};
use super::{BoxFuture, Handler, Limits, Net, Refused, Settings};
use crate::join_token::JoinToken;
use lockkeeper_member::MemberId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Timeout that is long enough for any machine. Only a failing test waits for it.
const TIMEOUT: Duration = Duration::from_secs(60);

const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);

/// Records all events. Answers queries with their own bytes, and rejects frames that begin with "!".
#[derive(Default)]
struct Recorder {
    frames: Mutex<Vec<(MemberId, Vec<u8>)>>,
    batches: AtomicUsize,
    queries: AtomicUsize,
    connected: Mutex<Vec<MemberId>>,
}

impl Recorder {
    fn frames(&self) -> MutexGuard<'_, Vec<(MemberId, Vec<u8>)>> {
        self.frames.lock().unwrap()
    }

    fn texts(&self) -> Vec<String> {
        self.frames().iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

impl Handler for Recorder {
    fn frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), Refused> {
        if bytes.starts_with(b"!") {
            return Err(Refused("frames here do not begin with an exclamation mark".into()));
        }
        self.frames().push((from, bytes.to_vec()));
        Ok(())
    }

    fn batch_done(&self) {
        self.batches.fetch_add(1, SeqCst);
    }

    fn handle_query(&self, from: MemberId, bytes: Vec<u8>) -> BoxFuture<Vec<u8>> {
        self.queries.fetch_add(1, SeqCst);
        Box::pin(async move {
            if bytes == b"never" {
                std::future::pending::<()>().await;
            }
            format!("{from} asks {}", String::from_utf8_lossy(&bytes)).into_bytes()
        })
    }

    fn connected(&self, peer: MemberId) {
        self.connected.lock().unwrap().push(peer);
    }
}

/// A member under test.
struct Node {
    net: Arc<Net>,
    seen: Arc<Recorder>,
}

impl Node {
    fn address(&self) -> String {
        self.listens().to_string()
    }

    fn listens(&self) -> SocketAddr {
        self.net.address().expect("it listens")
    }

    fn send(&self, to: MemberId, text: &str) {
        self.net.send(to, |out| out.extend(text.as_bytes()));
        self.net.flush();
    }

    fn dial(&self, to: MemberId, address: impl ToString) {
        self.net.set_addresses(BTreeMap::from([(to, address.to_string())]));
    }

    async fn connected_to(&self, to: MemberId) {
        until("connected", || self.net.is_connected(to)).await;
    }
}

fn settings(me: MemberId) -> Settings {
    let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    // Limits that a test does not check must not end it on a slow machine.
    let limits = Limits {
        silence: TIMEOUT,
        hello_within: TIMEOUT,
        connect_within: TIMEOUT,
        backoff_most: Duration::from_millis(50),
        ..Limits::default()
    };
    Settings {
        me,
        cluster: "canal".into(),
        listen,
        token: token(),
        tls: None,
        insecure_no_tls: false,
        limits,
    }
}

/// The join token of the cluster under test.
fn token() -> JoinToken {
    JoinToken::parse(&format!("lkjoin_{}", "5a".repeat(32))).unwrap()
}

/// Performs the dialler's part of the greeting with the cluster's join token.
async fn greet_by_hand(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), hello: &Hello) -> HelloReply {
    let sent = proof::hello_body(hello).unwrap();
    // The other side may have closed already; its reply shows that.
    let _ = stream.write_all(&hello::frame(&sent)).await;
    let body = hello::read_body(stream).await.unwrap();
    let (reply, proved) = proof::read_reply(sent, &body).unwrap();
    if let Some((transcript, _)) = proved {
        let proof = Confirm::Proof(transcript.prove(&token(), Side::Dialler));
        let _ = stream.write_all(&hello::encode(&proof)).await;
    }
    reply
}

/// Answers a greeting as the member `me` with this join token. Returns the dialler's last message.
async fn welcome_by_hand(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    me: MemberId,
    token: &JoinToken,
) -> Option<Confirm> {
    let body = hello::read_body(stream).await.ok()?;
    let reply = HelloReply::Welcome { version: *hello::VERSIONS.end(), member: me };
    let (welcome, _) = proof::welcome_body(token, body, &reply).unwrap();
    stream.write_all(&hello::frame(&welcome)).await.ok()?;
    stream.flush().await.ok()?;
    hello::read(stream).await.ok()
}

async fn start(settings: Settings) -> Node {
    let seen = Arc::new(Recorder::default());
    let net = Net::start(settings, seen.clone()).await.unwrap();
    Node { net, seen }
}

/// Starts two members that dial each other, with their settings changed in the same way.
async fn pair(change: impl Fn(&mut Settings)) -> (Node, Node) {
    let of = async |me| {
        let mut settings = settings(me);
        change(&mut settings);
        start(settings).await
    };
    let (a, b) = (of(A).await, of(B).await);
    a.dial(B, b.address());
    b.dial(A, a.address());
    a.connected_to(B).await;
    b.connected_to(A).await;
    (a, b)
}

/// Waits for a condition that must become true.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waited).await.unwrap_or_else(|_| panic!("timeout: {what}"));
}

fn issued(authority: &Authority, member: MemberId) -> Tls {
    let issued = authority.issue(member, &[], 10).unwrap();
    with(authority, &issued)
}

fn with(authority: &Authority, issued: &super::authority::Issued) -> Tls {
    let pem = |text: &str| Pem::Bytes(text.as_bytes().to_vec());
    Tls {
        authority: pem(authority.certificate()),
        certificate: pem(&issued.certificate),
        key: pem(&issued.key),
    }
}
