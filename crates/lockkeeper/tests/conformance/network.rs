//! Faulty peers and networks: servers with another protocol, and proxies that lose replies.

use crate::backend::{Backend, open, until, until_waiting};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::servers::LocalServer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections, replies to each with these bytes, and stays silent after that.
pub async fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.write_all(answer).await;
            open.push(connection);
        }
    });
    address
}

/// A proxy that, while `lossy`, closes each connection after a few requests: the last one reaches the server, and its
/// reply is lost.
pub struct Proxy {
    pub address: String,
    pub lossy: Arc<AtomicBool>,
    pub cuts: Arc<AtomicU64>,
}

impl Proxy {
    pub async fn start(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (lossy, cuts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (lossy_too, cuts_too) = (lossy.clone(), cuts.clone());
        tokio::spawn(async move {
            for connection in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                // Connecting takes some requests, and waiting for a lock a few more: vary around that number.
                let requests = 6 + connection * 7 % 23;
                tokio::spawn(forward(client, server, requests, lossy_too.clone(), cuts_too.clone()));
            }
        });
        Proxy { address, lossy, cuts }
    }
}

async fn forward(
    client: TcpStream,
    server: TcpStream,
    requests: u64,
    lossy: Arc<AtomicBool>,
    cuts: Arc<AtomicU64>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 64 * 1024];
    let mut left = requests;
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        if lossy.load(Ordering::SeqCst) {
            left = left.saturating_sub(1);
            if left == 0 {
                // The request arrives, but the reply is lost.
                answers.abort();
                let _ = answers.await;
                let _ = to_server.write_all(&buffer[..length]).await;
                let _ = to_server.shutdown().await;
                cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        if to_server.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    answers.abort();
}

/// Acquires and releases through a network that keeps losing replies: each operation succeeds, exactly once.
pub async fn lost_replies_do_nothing_twice(url: impl Fn(&str) -> String, server: String) {
    let proxy = Proxy::start(server.clone()).await;
    let locks = Lockkeeper::open(&url(&proxy.address)).await.unwrap();
    proxy.lossy.store(true, Ordering::SeqCst);
    let (inside, highest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (locks, inside, highest) = (locks.clone(), inside.clone(), highest.clone());
            tokio::spawn(async move {
                for round in 0..15 {
                    // Long enough that no broken connection costs the lease.
                    let request = locks.mutex("a").ttl(Duration::from_secs(3600));
                    let guard = match (task + round) % 4 {
                        0 => request.try_acquire().await.unwrap(),
                        _ => Some(request.acquire().await.unwrap()),
                    };
                    let Some(guard) = guard else { continue };
                    assert_eq!(
                        inside.fetch_add(1, Ordering::SeqCst),
                        0,
                        "mutual exclusion violated on entry"
                    );
                    let fence = guard.fence().expect("it has fences").get();
                    assert!(highest.swap(fence, Ordering::SeqCst) < fence);
                    tokio::task::yield_now().await;
                    assert_eq!(
                        inside.fetch_sub(1, Ordering::SeqCst),
                        1,
                        "mutual exclusion violated before the exit"
                    );
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(proxy.cuts.load(Ordering::SeqCst) > 3, "the proxy did its work");
    proxy.lossy.store(false, Ordering::SeqCst);
    let direct = Lockkeeper::open(&url(&server)).await.unwrap();
    until(|| async { direct.list().await.unwrap().is_empty() }).await;
}

/// A holder whose server stops replying is notified while no other client can hold the lock; a waiter does not wait
/// forever.
pub async fn a_server_that_hangs_is_noticed(backend: &dyn Backend, daemon: &LocalServer) {
    let (locks, other) = (open(backend).await, open(backend).await);
    // Long enough for the margin to be observed.
    let ttl = 4 * backend.short_ttl();
    let guard = locks.mutex("a").ttl(ttl).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("a").ttl(ttl).acquire());
    until_waiting(&locks, "a", 1).await;
    daemon.signal("STOP");
    guard.lost().await;
    assert!(!guard.is_valid());
    let error = waiter.await.unwrap().unwrap_err();
    match error {
        Error::SessionLost { .. } => {}
        // Here a request is in the queue, and listed, before the reply to it: the client may not have had it.
        Error::Unavailable { engine: "mysql", .. } => {}
        error => panic!("{error}"),
    }
    daemon.signal("CONT");
    // Even though the lost guard still exists.
    let next = open(backend).await.mutex("a").acquire().await.unwrap();
    assert_eq!(
        guard.valid_for(),
        Duration::ZERO,
        "the lock was granted before the old holder's lease was over"
    );
    assert!(next.fence() > guard.fence());
    assert!(matches!(guard.release().await.unwrap_err(), Error::Lost { .. }));
    assert!(next.is_valid(), "a late release must not free the next hold");
}
