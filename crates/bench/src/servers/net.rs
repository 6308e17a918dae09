//! Just enough of a network client to look at servers.

use lockkeeper_testbed::ports;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a server may take to answer a look.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// So many ports that nobody uses, and nobody else gets while their servers start.
pub fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    let free = || ports::free().map_err(|error| format!("no port of loopback is free: {error}"));
    (0..count).map(|_| free()).collect()
}

/// One of them.
pub fn free_port() -> Result<u16, String> {
    Ok(free_ports(1)?.remove(0))
}

/// Whether somebody listens there.
pub async fn accepts(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Says something, and reads until the other end closes or says this.
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

/// A page by HTTP, with its head; an error if it is not there.
pub async fn get(address: &str, path: &str) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, &request, "").await?;
    match answer.split_once(' ') {
        Some((_, rest)) if rest.starts_with("200") => Ok(answer),
        _ => Err(format!("{address}{path}: {}", answer.lines().next().unwrap_or("no answer"))),
    }
}
