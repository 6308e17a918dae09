//! A minimal network client to query servers.

use lockkeeper_system::ports;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The timeout of a query.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum size of a reply that is read.
const LONGEST: u64 = 16 << 20;

/// A number of free ports, reserved for the servers that are being started.
pub fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let free = || ports::free().map_err(|error| format!("no port of loopback is free: {error}"));
    (0..count).map(|_| free()).collect()
}

/// One free port.
pub fn free_port() -> Result<u16, String> {
    Ok(free_ports(1)?.remove(0))
}

/// Whether a server accepts connections at an address.
pub async fn accepts(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Sends a text, and reads until the peer closes the connection or sends `until`.
pub async fn ask(address: &str, words: &str, until: &str) -> Result<String, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(words.as_bytes()).await?;
        let (mut answer, mut stream) = (Vec::new(), stream.take(LONGEST));
        while stream.read_buf(&mut answer).await? > 0 {
            if !until.is_empty() && String::from_utf8_lossy(&answer).contains(until) {
                break;
            }
        }
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    match tokio::time::timeout(PATIENCE, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => Err(format!("{address} does not answer")),
    }
}

/// Fetches a page by HTTP, with its head; an error if it does not exist.
pub async fn get(address: &str, path: &str) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, &request, "").await?;
    match answer.split_once(' ') {
        Some((_, rest)) if rest.starts_with("200") => Ok(answer),
        _ => Err(format!("{address}{path}: {}", answer.lines().next().unwrap_or("no answer"))),
    }
}
