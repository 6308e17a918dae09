//! The suite on three independent Redis servers, and tests of the guarantees of a majority.

use crate::backend::{Backend, Server, TIMEOUT, acquire, open, until};
use crate::redis::Redis;
use lockkeeper::Lockkeeper;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Redlock(pub Vec<Redis>);

impl Redlock {
    pub fn start() -> Option<Redlock> {
        (0..3).map(|_| Redis::start(&[])).collect::<Option<_>>().map(Redlock)
    }

    fn strict_url(&self) -> String {
        let addresses: Vec<String> = self.0.iter().map(Redis::address).collect();
        format!("redis://{}", addresses.join(","))
    }
}

impl Backend for Redlock {
    fn url(&self) -> String {
        format!("{}?unfenced", self.strict_url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    /// Fewer kills, as each kill of a holder costs a lease.
    fn kills(&self) -> usize {
        6
    }
}

/// Stops and starts all servers at once, although a majority would be enough.
impl Server for Redlock {
    fn stop(&self) {
        self.0.iter().for_each(Server::stop);
    }

    fn start(&self) {
        self.0.iter().for_each(Server::start);
    }
}

macro_rules! redlock {
    () => {
        match Redlock::start() {
            Some(redlock) => redlock,
            None => return,
        }
    };
}

crate::conformance! { redlock!() }

#[tokio::test]
async fn a_minority_of_servers_may_be_down() {
    let redlock = redlock!();
    let (locks, other) = (open(&redlock).await, open(&redlock).await);
    let before = locks.mutex("before").acquire().await.unwrap();
    let leases =
        || [0, 2].map(|i| redlock.0[i].cli(&["ZRANGE", "lockkeeper:lock:before", "0", "0", "WITHSCORES"]));
    // A server that was slow to grant follows with the next renewal.
    until(|| async { leases().iter().all(|lease| !lease.is_empty()) }).await;
    let first = leases();
    redlock.0[1].daemon.stop();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert!(other.mutex("a").try_acquire().await.unwrap().is_none());
    assert_eq!(locks.inspect("a").await.unwrap().holders[0].tag.holder, guard.holder());
    let waiter = acquire(other.mutex("a"));
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    let fresh = open(&redlock).await;
    fresh.mutex("b").acquire().await.unwrap().release().await.unwrap();
    until(|| async { leases().iter().zip(&first).all(|(now, first)| now != first) }).await;
    assert!(before.is_valid(), "renewed by the others");
    before.release().await.unwrap();
}

#[tokio::test]
async fn without_a_majority_no_lock_is_granted() {
    let redlock = redlock!();
    let locks = open(&redlock).await;
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    redlock.0[0].daemon.stop();
    redlock.0[2].daemon.stop();
    guard.lost().await;
    let error = locks.mutex("b").acquire().await.unwrap_err().to_string();
    assert!(
        error.contains("no majority of the 3 servers answers") && error.contains("refuses connections"),
        "{error}"
    );
    assert!(Lockkeeper::open(&redlock.url()).await.is_err());
}

#[tokio::test]
async fn a_hold_on_a_minority_neither_grants_nor_blocks_a_lock() {
    let redlock = redlock!();
    let locks = open(&redlock).await;
    // Another client holds the lock on one server: the two others are a majority.
    let single = open(&redlock.0[0]).await.mutex("a").acquire().await.unwrap();
    let guard = locks.mutex("a").acquire().await.unwrap();
    assert_ne!(locks.inspect("a").await.unwrap().holders[0].tag.holder, single.holder());
    guard.release().await.unwrap();
    // On two servers: no majority is left.
    let second = open(&redlock.0[1]).await.mutex("a").acquire().await.unwrap();
    assert!(locks.mutex("a").try_acquire().await.unwrap().is_none());
    assert!(open(&redlock.0[2]).await.mutex("a").try_acquire().await.unwrap().is_some(), "taken back");
    drop((single, second));
}

#[tokio::test]
async fn without_fences_it_must_be_accepted_as_such() {
    let redlock = redlock!();
    let locks = Lockkeeper::open(&redlock.strict_url()).await.unwrap();
    let refused = locks.mutex("a").acquire().await.unwrap_err().to_string();
    assert!(refused.starts_with("fences (") && refused.ends_with("not supported by redlock"), "{refused}");
    assert!(locks.list().await.unwrap().is_empty());
    locks.all(["a", "b"]).unfenced().acquire().await.unwrap().release().await.unwrap();
}

/// A proxy in front of a Redis server that delays the first release: it closes the connection instead of forwarding
/// the request, and passes the request to the test, which can deliver it later.
async fn delaying_the_first_release(target: String) -> (String, watch::Receiver<Option<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (delayed, first) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(forward(client, server, delayed.clone()));
        }
    });
    (address, first)
}

async fn forward(client: TcpStream, server: TcpStream, delayed: watch::Sender<Option<Vec<u8>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replies = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut request = vec![0; 65536];
    while let Ok(length @ 1..) = from_client.read(&mut request).await {
        let bytes = &request[..length];
        // Match the argument: the source of the script, which is loaded once, contains the same name. An attempt
        // without a majority releases its votes with `discard`.
        if delayed.borrow().is_none() && bytes.windows(13).any(|part| part == b"$7\r\ndiscard\r\n") {
            delayed.send_replace(Some(bytes.to_vec()));
            break;
        }
        to_server.write_all(bytes).await.unwrap();
    }
    replies.abort();
}

/// The network delays a release of attempt 1 at server 2 until attempt 2 has a vote there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_release_of_an_earlier_attempt_deletes_no_later_vote() {
    let redlock = redlock!();
    let test = async {
        let (proxy, mut delayed) = delaying_the_first_release(redlock.0[2].address()).await;
        let url = format!("redis://{},{},{proxy}?unfenced", redlock.0[0].address(), redlock.0[1].address());
        let locks = Lockkeeper::open(&url).await.unwrap();
        // Another client has the lock on two servers: attempt 1 gets only the vote of server 2, and releases it.
        let others = [
            open(&redlock.0[0]).await.mutex("a").acquire().await.unwrap(),
            open(&redlock.0[1]).await.mutex("a").acquire().await.unwrap(),
        ];
        let waiting = acquire(locks.mutex("a"));
        let release = delayed.wait_for(|delayed| delayed.is_some()).await.unwrap().clone().unwrap();
        for other in others {
            other.release().await.unwrap();
        }
        let guard = waiting.await.unwrap();
        let votes = || redlock.0[2].cli(&["ZRANGE", "lockkeeper:lock:a", "0", "-1"]);
        // A server that was slow to vote follows with the next renewal.
        until(|| async { !votes().is_empty() }).await;
        let before = votes();
        let mut late = TcpStream::connect(redlock.0[2].address()).await.unwrap();
        late.write_all(&release).await.unwrap();
        // The server replies when it has executed the request.
        assert!(late.read(&mut [0; 64]).await.unwrap() > 0);
        assert_eq!(votes(), before, "the delayed release deleted the vote of a later attempt");
        guard.release().await.unwrap();
    };
    tokio::time::timeout(TIMEOUT, test).await.expect("the test is stuck");
}
