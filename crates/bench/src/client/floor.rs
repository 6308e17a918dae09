//! The baseline: a request and its reply, with as many bytes as an acquire and a release of lockkeeper.

use super::{Client, ClientError, Lock};
use lockkeeper_session::protocol::ToDaemon;
use lockkeeper_session::{LockName, LockRequest, ToMember};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A client whose requests are echoed.
pub(super) struct Floor {
    stream: tokio::net::TcpStream,
    acquire: Vec<u8>,
    release: Vec<u8>,
    reply: Vec<u8>,
}

impl Floor {
    /// Connects to the echo process.
    pub async fn open(servers: &[String]) -> Result<Floor, ClientError> {
        let stream =
            tokio::net::TcpStream::connect(&servers[0]).await.map_err(ClientError::FloorUnreachable)?;
        stream.set_nodelay(true).map_err(ClientError::FloorUnreachable)?;
        let session = 1;
        // Sequence numbers as they are after some ten thousand turns.
        let mut request = LockRequest::exclusive(LockName::new("bench/0"));
        (request.tag.owner, request.tag.purpose) = tag();
        let acquire = bytes(session, ToMember::Acquire { number: 20_000, settled: 20_000, request });
        let release = bytes(session, ToMember::Release { number: 20_000 });
        Ok(Floor { stream, acquire, release, reply: Vec::new() })
    }
}

/// The information that the library sends about a requester: a name of the acquisition, and details as JSON.
fn tag() -> (String, String) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (pid, since_ms) = (std::process::id(), 1_800_000_000_000_u64);
    let holder = format!("{host}/{pid}/{:x}.20000", since_ms * 1_000_000);
    let details = serde_json::json!({ "holder": holder, "host": host, "pid": pid, "since_ms": since_ms, "metadata": {} });
    (holder, details.to_string())
}

fn bytes(session: u64, message: ToMember) -> Vec<u8> {
    let mut bytes = Vec::new();
    lockkeeper_session::protocol::encode(&ToDaemon::Session(session, message), &mut bytes);
    bytes
}

async fn ask(
    stream: &mut tokio::net::TcpStream,
    request: &[u8],
    reply: &mut Vec<u8>,
) -> Result<(), ClientError> {
    reply.resize(request.len(), 0);
    let exchange = async {
        stream.write_all(request).await?;
        stream.read_exact(reply).await.map(drop)
    };
    exchange.await.map_err(ClientError::FloorEnded)
}

impl Client for Floor {
    async fn acquire(&mut self, _lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        ask(&mut self.stream, &self.acquire, &mut self.reply).await.map(|()| None)
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        ask(&mut self.stream, &self.release, &mut self.reply).await
    }
}

/// The echo process: one blocking thread for each connection.
pub fn serve(port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || echo(stream));
    }
    Ok(())
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}
