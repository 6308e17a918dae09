//! A connection to a daemon after the greeting, ready for frames.

use super::address::{Address, Daemons};
use lockkeeper_session::protocol::{
    Frames, Greeting, Hello, LONGEST_FROM_DAEMON, LONGEST_GREETING, Secret, Welcome,
};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A bidirectional byte stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection after the greeting.
pub(super) struct Connected {
    pub stream: Box<dyn Stream>,
    pub frames: Frames,
    pub welcome: Welcome,
}

/// The reason why a connection failed.
pub(super) enum NotConnected {
    /// A temporary failure: another daemon may be reachable, or this one later.
    Unreachable(String),
    /// A rejection that applies to all daemons of the cluster.
    Refused(String),
}

/// The identity of the client, and the purpose of the connection.
#[derive(Clone, Copy)]
pub(super) struct ClientIdentity {
    /// The client's secret, the same over all its connections.
    pub secret: Secret,
    /// Whether the connection is for lock requests; otherwise only for queries.
    pub for_locks: bool,
}

impl ClientIdentity {
    fn hello(self, daemons: &Daemons) -> Hello {
        Hello { secret: self.secret, token: daemons.token.clone(), for_locks: self.for_locks }
    }
}

/// Connects to one daemon and exchanges greetings.
pub(super) async fn connect(
    daemons: &Daemons,
    address: &Address,
    identity: ClientIdentity,
    within: Duration,
) -> Result<Connected, NotConnected> {
    let unreachable = NotConnected::Unreachable;
    let mut stream = address.connect(within).await.map_err(unreachable)?;
    let mut frames = Frames::new(LONGEST_GREETING);
    let greeting = greet(&mut stream, &mut frames, identity.hello(daemons));
    let greeting = match timeout(within, greeting).await {
        Err(_) => {
            return Err(unreachable(format!(
                "{address} accepts the connection and does not answer within {} s",
                within.as_secs_f64()
            )));
        }
        Ok(Err(why)) => return Err(unreachable(format!("{address}: {why}"))),
        Ok(Ok(greeting)) => greeting,
    };
    match greeting {
        Greeting::NotNow(why) => Err(unreachable(format!("{address}: {why}"))),
        Greeting::Refused(why) => Err(NotConnected::Refused(format!("{address} refuses: {why}"))),
        Greeting::Welcome(welcome) => {
            frames.set_limit(LONGEST_FROM_DAEMON);
            Ok(Connected { stream, frames, welcome })
        }
    }
}

async fn greet(stream: &mut Box<dyn Stream>, frames: &mut Frames, hello: Hello) -> Result<Greeting, String> {
    let mut bytes = lockkeeper_session::protocol::opening().to_vec();
    lockkeeper_session::protocol::encode(&hello, &mut bytes);
    let gone = |error: std::io::Error| error.to_string();
    stream.write_all(&bytes).await.map_err(gone)?;
    stream.flush().await.map_err(gone)?;
    let mut reply = [0; 6];
    stream.read_exact(&mut reply).await.map_err(gone)?;
    if lockkeeper_session::protocol::version_in(reply).is_none() {
        return Err(String::from("no daemon of lockkeeper, or none of a version that this client speaks"));
    }
    loop {
        if let Some(greeting) = frames.take().map_err(|error| error.to_string())? {
            return Ok(greeting);
        }
        if stream.read_buf(&mut frames.arrived).await.map_err(gone)? == 0 {
            return Err(String::from("it closed the connection"));
        }
    }
}
