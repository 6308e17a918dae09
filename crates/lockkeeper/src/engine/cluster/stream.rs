//! A connection to a daemon after the greeting, ready for frames.

use super::address::{Address, Daemons};
use crate::engine::tls::Stream;
use lockkeeper_session::protocol::{
    Frames, Greeting, Hello, LONGEST_FROM_DAEMON, LONGEST_GREETING, Malformed, Secret, Welcome,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// A connection after the greeting.
pub(super) struct Connected {
    pub stream: Box<dyn Stream>,
    pub frames: Frames,
    pub welcome: Welcome,
}

/// The reason why a connection to a daemon failed. All but [`Refused`](Self::Refused) are temporary: another daemon may
/// be reachable, or this one later.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{address} does not answer")]
    Timeout { address: String },
    #[error("{address}: {source}")]
    Broken { address: String, source: std::io::Error },
    #[error("{address} accepts the connection and does not answer within {} s", within.as_secs_f64())]
    NoGreeting { address: String, within: Duration },
    #[error("{address}: no daemon of lockkeeper, or none of a version that this client speaks")]
    Protocol { address: String },
    #[error("{address}: {source}")]
    Malformed { address: String, source: Malformed },
    #[error("{address}: it closed the connection")]
    Closed { address: String },
    /// The daemon does not serve clients at the moment, for this reason.
    #[error("{address}: {why}")]
    NotNow { address: String, why: String },
    /// A rejection that applies to all daemons of the cluster, for this reason.
    #[error("{address} refuses: {why}")]
    Refused { address: String, why: String },
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
) -> Result<Connected, ConnectError> {
    let mut stream = address.connect(within).await?;
    let mut frames = Frames::new(LONGEST_GREETING);
    let greeting = greet(address, &mut stream, &mut frames, identity.hello(daemons));
    let address = address.to_string();
    let Ok(greeting) = timeout(within, greeting).await else {
        return Err(ConnectError::NoGreeting { address, within });
    };
    match greeting? {
        Greeting::NotNow(why) => Err(ConnectError::NotNow { address, why }),
        Greeting::Refused(why) => Err(ConnectError::Refused { address, why }),
        Greeting::Welcome(welcome) => {
            frames.set_limit(LONGEST_FROM_DAEMON);
            Ok(Connected { stream, frames, welcome })
        }
    }
}

async fn greet(
    address: &Address,
    stream: &mut Box<dyn Stream>,
    frames: &mut Frames,
    hello: Hello,
) -> Result<Greeting, ConnectError> {
    let mut bytes = lockkeeper_session::protocol::opening().to_vec();
    lockkeeper_session::protocol::encode(&hello, &mut bytes);
    let gone = |source| ConnectError::Broken { address: address.to_string(), source };
    stream.write_all(&bytes).await.map_err(gone)?;
    stream.flush().await.map_err(gone)?;
    let mut reply = [0; 6];
    stream.read_exact(&mut reply).await.map_err(gone)?;
    if lockkeeper_session::protocol::version_in(reply).is_none() {
        return Err(ConnectError::Protocol { address: address.to_string() });
    }
    loop {
        let taken = frames.take();
        let taken =
            taken.map_err(|source| ConnectError::Malformed { address: address.to_string(), source })?;
        if let Some(greeting) = taken {
            return Ok(greeting);
        }
        if stream.read_buf(&mut frames.arrived).await.map_err(gone)? == 0 {
            return Err(ConnectError::Closed { address: address.to_string() });
        }
    }
}
