//! Networks that lose replies, or stop delivering silently.

use lockkeeper::Lockkeeper;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy that forwards everything until the switch is `true`, and then nothing, while all connections stay open.
async fn severable(target: String) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (mut server, mut is_cut) = (TcpStream::connect(&target).await.unwrap(), is_cut.clone());
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    // The connections stay open until the end of the test.
                    () = async { drop(is_cut.wait_for(|cut| *cut).await) } => std::future::pending().await,
                }
            });
        }
    });
    (address, cut)
}

/// A holder that is cut off is notified of the loss before the lock is granted to the next client.
pub async fn a_holder_that_is_cut_off_stops_before_the_next_enters(
    direct: Lockkeeper,
    target: String,
    url: impl Fn(&str) -> String,
) {
    let (address, cut) = severable(target).await;
    let locks = Lockkeeper::open(&url(&address)).await.unwrap();
    let guard = locks.mutex("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    cut.send(true).unwrap();
    let next = direct.mutex("a").acquire().await.unwrap();
    assert_eq!(
        guard.valid_for(),
        Duration::ZERO,
        "the lock was granted before the old holder's lease was over"
    );
    assert!(!guard.is_valid() && next.fence() > guard.fence());
}

/// A proxy that closes each connection after a few requests: the last one reaches the server, and its reply is lost.
pub struct LossyProxy {
    pub address: String,
    pub lost: watch::Receiver<usize>,
}

impl LossyProxy {
    pub async fn start(target: String) -> LossyProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (count, lost) = watch::channel(0);
        tokio::spawn(async move {
            for connection in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&target).await.unwrap();
                // Connecting takes up to three requests.
                tokio::spawn(forward(client, server, 4 + connection % 3, count.clone()));
            }
        });
        LossyProxy { address, lost }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, requests: usize, count: watch::Sender<usize>) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut request, mut reply) = ([0; 65536], [0; 65536]);
    let mut passed = 0;
    loop {
        tokio::select! {
            length = from_client.read(&mut request) => {
                let Ok(length @ 1..) = length else { return };
                to_server.write_all(&request[..length]).await.unwrap();
                passed += 1;
                if passed == requests {
                    // The server has executed the request when it replies.
                    let _ = from_server.read(&mut reply).await;
                    count.send_modify(|lost| *lost += 1);
                    return;
                }
            }
            length = from_server.read(&mut reply) => {
                let Ok(length @ 1..) = length else { return };
                to_client.write_all(&reply[..length]).await.unwrap();
            }
        }
    }
}
