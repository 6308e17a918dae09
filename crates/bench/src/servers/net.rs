//! A minimal network client to query servers.

use lockkeeper_system::ports;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a reply that is read.
const LONGEST: u64 = 16 << 20;

/// The reason why a server has no port, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// No port is free.
    #[error("no port of loopback is free: {0}")]
    NoFreePort(#[source] std::io::Error),
    /// The connection failed.
    #[error("{address}: {source}")]
    Exchange {
        /// The address of the server.
        address: String,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The server does not answer in time.
    #[error("{address} does not answer")]
    NoAnswer {
        /// The address of the server.
        address: String,
    },
    /// The server does not return the page.
    #[error("{url}: {status}")]
    NoPage {
        /// The address of the server, and the path of the page.
        url: String,
        /// The first line of the answer.
        status: String,
    },
}

/// A number of free ports, reserved for the servers that are being started.
pub fn free_ports(count: usize) -> Result<Vec<u16>, NetError> {
    (0..count).map(|_| ports::free().map_err(NetError::NoFreePort)).collect()
}

/// One free port.
pub fn free_port() -> Result<u16, NetError> {
    Ok(free_ports(1)?.remove(0))
}

/// Whether a server accepts connections at an address.
pub async fn accepts(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Sends a text, and reads until the peer closes the connection or sends `until`.
pub async fn ask(address: &str, text: &str, until: &str) -> Result<String, NetError> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        let (mut answer, mut stream) = (Vec::new(), stream.take(LONGEST));
        while stream.read_buf(&mut answer).await? > 0 {
            if !until.is_empty() && String::from_utf8_lossy(&answer).contains(until) {
                break;
            }
        }
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(NetError::Exchange { address: address.into(), source }),
        Err(_) => Err(NetError::NoAnswer { address: address.into() }),
    }
}

/// Fetches a page by HTTP, with its head; an error if it does not exist.
pub async fn get(address: &str, path: &str) -> Result<String, NetError> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = ask(address, &request, "").await?;
    match answer.split_once(' ') {
        Some((_, rest)) if rest.starts_with("200") => Ok(answer),
        _ => Err(NetError::NoPage {
            url: format!("{address}{path}"),
            status: answer.lines().next().unwrap_or("no answer").into(),
        }),
    }
}
