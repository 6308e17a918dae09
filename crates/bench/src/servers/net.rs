//! Just enough of a network client to look at servers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a server may take to answer a look.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// A port that nobody uses, and that was not given before: its server may not listen yet.
pub fn free_port() -> Result<u16, String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
        let port = bound.map_err(|error| format!("no port of loopback is free: {error}"))?.port();
        if GIVEN.lock().unwrap_or_else(|error| error.into_inner()).insert(port) {
            return Ok(port);
        }
    }
}

/// So many of them.
pub fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    (0..count).map(|_| free_port()).collect()
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
