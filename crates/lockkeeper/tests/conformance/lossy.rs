//! A network that loses replies.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy that ends each connection after a few requests: the last one reaches the server, its reply is lost.
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
                    // The server has done it when it replies.
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
