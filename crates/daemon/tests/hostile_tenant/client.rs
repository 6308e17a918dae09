//! Connections of the attacker. It implements the protocols by hand, since no client library sends such messages.

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockkeeper_session::protocol::{Frames, FromDaemon, Greeting, Hello, Secret, ToDaemon};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout for replies to the attacker.
pub const ANSWER: Duration = Duration::from_secs(5);

pub async fn connect(port: u16) -> Result<TcpStream, String> {
    let stream = timeout(ANSWER, TcpStream::connect(("127.0.0.1", port))).await;
    let stream =
        stream.map_err(|_| String::from("no connection in time"))?.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

pub fn get(path: &str, token: &str) -> Request<Full<Bytes>> {
    request("GET", path, token, None)
}

pub fn post(path: &str, token: &str, body: &Value) -> Request<Full<Bytes>> {
    request("POST", path, token, Some(body))
}

fn request(method: &str, path: &str, token: &str, body: Option<&Value>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("http://127.0.0.1{path}"));
    let request = request.header("authorization", format!("Bearer {token}"));
    let request = request.header("content-type", "application/json");
    let body = body.map(ToString::to_string).unwrap_or_default();
    request.body(Full::from(body)).expect("a request")
}

/// The same request as bytes of HTTP/1.1, to be written many times at once.
pub fn bytes(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    );
    format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Writes bytes and reads until nothing arrives for a moment. Returns at most `most` bytes of what was read.
pub async fn pour(port: u16, bytes: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let mut stream = connect(port).await?;
    let (mut reads, mut writes) = stream.split();
    let write = async {
        let _ = writes.write_all(bytes).await;
    };
    let read = async {
        let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(Ok(length @ 1..)) = timeout(Duration::from_millis(500), reads.read(&mut piece)).await {
            if all.len() < most {
                all.extend_from_slice(&piece[..length]);
            }
        }
        all
    };
    let ((), all) = tokio::join!(write, read);
    Ok(all)
}

/// An HTTP/2 connection whose streams have this window.
pub async fn http2(port: u16, window: u32) -> Result<http2::SendRequest<Full<Bytes>>, String> {
    let stream = TokioIo::new(connect(port).await?);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(stream).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The text of a response.
pub async fn text(answer: hyper::Response<Incoming>) -> Result<String, String> {
    let body = timeout(ANSWER, answer.into_body().collect()).await;
    let body = body.map_err(|_| String::from("no answer in time"))?.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Sends one request on a connection of its own and returns the text of the response.
pub async fn ask(port: u16, request: Request<Full<Bytes>>) -> Result<String, String> {
    let mut sender = http2(port, 1 << 20).await?;
    let answer = timeout(ANSWER, sender.send_request(request)).await;
    text(answer.map_err(|_| String::from("no answer in time"))?.map_err(|error| error.to_string())?).await
}

/// A connection of the native protocol.
pub struct Native {
    pub stream: TcpStream,
    frames: Frames,
}

impl Native {
    /// Connects with this secret.
    pub async fn open(port: u16, secret: u128, token: &str) -> Result<Self, String> {
        let mut stream = connect(port).await?;
        let mut bytes = lockkeeper_session::protocol::opening().to_vec();
        let secret = Secret::new(secret.to_be_bytes());
        let hello = Hello { secret, token: Some(token.into()), for_locks: true };
        lockkeeper_session::protocol::encode(&hello, &mut bytes);
        stream.write_all(&bytes).await.map_err(|error| error.to_string())?;
        let mut reply = [0; 6];
        let read = timeout(ANSWER, stream.read_exact(&mut reply)).await;
        read.map_err(|_| String::from("no answer in time"))?.map_err(|error| error.to_string())?;
        let mut native = Self { stream, frames: Frames::new(64 << 20) };
        match native.next::<Greeting>(ANSWER).await {
            Some(Greeting::Welcome(_)) => Ok(native),
            Some(Greeting::NotNow(why) | Greeting::Refused(why)) => Err(why),
            None => Err(String::from("no greeting")),
        }
    }

    /// The next value, unless none comes in time or the daemon closes the connection.
    async fn next<T: serde::de::DeserializeOwned>(&mut self, within: Duration) -> Option<T> {
        let next = async {
            loop {
                if let Some(value) = self.frames.take().ok()? {
                    return Some(value);
                }
                if self.stream.read_buf(&mut self.frames.arrived).await.ok()? == 0 {
                    return None;
                }
            }
        };
        timeout(within, next).await.ok()?
    }

    /// The daemon's next message.
    pub async fn receive(&mut self, within: Duration) -> Option<FromDaemon> {
        self.next(within).await
    }

    /// Sends messages in one write.
    pub async fn send(&mut self, messages: &[ToDaemon]) -> Result<(), String> {
        let mut bytes = Vec::new();
        for message in messages {
            lockkeeper_session::protocol::encode(message, &mut bytes);
        }
        self.stream.write_all(&bytes).await.map_err(|error| error.to_string())
    }
}
