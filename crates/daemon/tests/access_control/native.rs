//! A client that implements the native protocol by hand.

use crate::support::soon;
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, Frames, FromDaemon, Greeting, Hello, Secret, ToDaemon,
};
use lockkeeper_session::{LockName, LockRequest, ToClient, ToMember};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Client {
    stream: TcpStream,
    frames: Frames,
    session: u64,
}

impl Client {
    /// Connects under this identity.
    pub async fn connect(to: SocketAddr, identity: u64, token: &str) -> Result<Self, String> {
        Self::connect_for(to, identity, 1, token).await
    }

    /// Connects, to use the session of this number.
    pub async fn connect_for(
        to: SocketAddr,
        identity: u64,
        session: u64,
        token: &str,
    ) -> Result<Self, String> {
        let mut stream = TcpStream::connect(to).await.expect("the daemon listens");
        let mut bytes = lockkeeper_session::protocol::opening().to_vec();
        let secret = Secret::new(u128::from(identity).to_le_bytes());
        let hello = Hello { secret, token: Some(token.into()), for_locks: true };
        lockkeeper_session::protocol::encode(&hello, &mut bytes);
        stream.write_all(&bytes).await.expect("written");
        let mut reply = [0; 6];
        stream.read_exact(&mut reply).await.expect("a reply");
        let mut client = Self { stream, frames: Frames::new(1 << 20), session };
        match client.next().await {
            Some(Greeting::Welcome(_)) => Ok(client),
            Some(Greeting::NotNow(why) | Greeting::Refused(why)) => Err(why),
            None => Err("the daemon closed the connection".into()),
        }
    }

    /// The next frame; `None` once the daemon has closed the connection.
    pub async fn next<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let frame = async {
            loop {
                if let Some(message) = self.frames.take().expect("a frame") {
                    return Some(message);
                }
                if !matches!(self.stream.read_buf(&mut self.frames.arrived).await, Ok(1..)) {
                    return None;
                }
            }
        };
        soon("a frame", frame).await
    }

    pub async fn send(&mut self, message: ToDaemon) {
        let mut bytes = Vec::new();
        lockkeeper_session::protocol::encode(&message, &mut bytes);
        let _ = self.stream.write_all(&bytes).await;
    }

    pub async fn send_to_member(&mut self, message: ToMember) {
        self.send(ToDaemon::Session(self.session, message)).await;
    }

    /// Opens the session.
    pub async fn open(&mut self) {
        self.keep_alive(true).await;
        while !matches!(self.next().await, Some(FromDaemon::Session(_, ToClient::Alive { .. }))) {}
    }

    pub async fn keep_alive(&mut self, first: bool) {
        self.send_to_member(ToMember::KeepAlive { sent_ns: 1, first, settled: 1, generation: None }).await;
    }

    pub async fn request(&mut self, number: u64, name: &str) {
        let request = LockRequest::exclusive(LockName::new(name));
        self.send_to_member(ToMember::Acquire { number, settled: 1, request }).await;
    }

    /// Acquires a lock that is free.
    pub async fn acquire(&mut self, number: u64, name: &str) {
        self.request(number, name).await;
        loop {
            match self.next().await {
                Some(FromDaemon::Session(_, ToClient::Granted { number: of, .. })) if of == number => return,
                Some(FromDaemon::Session(_, ToClient::Alive { .. })) => {}
                other => panic!("`{name}` is not granted: {other:?}"),
            }
        }
    }

    pub async fn ask(&mut self, ask: DaemonQuery) -> DaemonReply {
        self.send(ToDaemon::Query(1, ask)).await;
        loop {
            match self.next().await {
                Some(FromDaemon::Reply(1, answer)) => return answer,
                Some(_) => {}
                None => panic!("the daemon closed the connection"),
            }
        }
    }

    /// All messages that the daemon sends until it closes the connection.
    pub async fn rest(&mut self) -> Vec<FromDaemon> {
        let mut all = Vec::new();
        while let Some(frame) = self.next().await {
            all.push(frame);
        }
        all
    }
}
