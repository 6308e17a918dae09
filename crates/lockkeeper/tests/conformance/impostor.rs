//! A server that speaks another protocol than the URL implies.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Accepts connections and replies to each with these bytes, once; with none it stays silent. Returns its address.
pub async fn start(answer: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer).await;
                // Keep the connection open until the client has read it.
                let _ = stream.read(&mut [0; 1024]).await;
                if answer.is_empty() {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address.to_string()
}
