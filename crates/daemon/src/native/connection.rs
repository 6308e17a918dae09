//! One connection of one client.

use super::NATIVE;
use super::clients::{Client, Clients, ConnectError, NewConnection, QueuedMessage};
use super::queries::Queries;
use crate::access::Denied;
use crate::credential::Credential;
use crate::listen::{HandshakeError, Stream};
use lockkeeper_session::protocol::{Frames, Greeting, Hello, LONGEST_GREETING, Malformed, ToDaemon, Welcome};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The reason why the daemon ends a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("it did not send its hello in time")]
    NoHello,
    #[error("it closed the connection before its hello")]
    ClosedBeforeHello,
    #[error("it uses another protocol or an unsupported version")]
    Protocol,
    #[error("the connection failed: {0}")]
    Broken(#[from] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it does not read its messages")]
    NotRead,
    #[error("the client reads too slowly")]
    Overflow,
    #[error("the client has a newer connection")]
    Superseded,
    /// The client's token does not allow the connection, or not any more.
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Serves a connection until it ends; an error gives the reason, unless the client closed it.
pub(crate) async fn serve(
    clients: Arc<Clients>,
    mut stream: Box<dyn Stream>,
    peer: Option<IpAddr>,
) -> Result<(), ConnectionError> {
    let context = clients.context().clone();
    let limit = context.limits.request_timeout();
    let mut frames = Frames::new(LONGEST_GREETING);
    let hello = timeout(limit, read_hello(&mut stream, &mut frames)).await;
    let hello = hello.map_err(|_| ConnectionError::NoHello)??;
    // A view change is short, so wait for its end. If it takes longer, the client tries other daemons meanwhile.
    let moment = context.member.config().times.round_trip * 2;
    if hello.for_locks && !matches!(timeout(moment, context.member.ready()).await, Ok(Ok(()))) {
        let trouble = context.member.not_serving().map(|trouble| trouble.to_string());
        let why =
            trouble.unwrap_or_else(|| format!("member {} did not serve a moment ago", context.member.id().0));
        let mut bytes = Vec::new();
        lockkeeper_session::protocol::encode(&Greeting::NotNow(why), &mut bytes);
        return write(&mut stream, &bytes, limit).await;
    }
    let admitted = context.authenticate(NATIVE, hello.token.as_deref()).map_err(ConnectionError::from);
    let mut credential = None;
    let admitted = admitted.and_then(|principal| {
        credential = Some(Credential::new(context.clone(), principal.clone()));
        Ok(clients.connect(hello.secret, principal, peer)?)
    });
    let greeting = match &admitted {
        Ok(_) => {
            let times = context.member.config().times;
            let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Greeting::Welcome(Welcome {
                member: context.member.id().0,
                lease_ns: ns(context.member.lease()),
                moment_ns: ns(times.round_trip * 2),
                members: context.member.addresses().len() as u32,
                shortest_ttl_ns: context.member.settings().least_ttl_ns(),
                longest_ttl_ns: context.member.settings().longest_ttl_ns,
            })
        }
        Err(why) => Greeting::Refused(why.to_string()),
    };
    let mut bytes = Vec::new();
    lockkeeper_session::protocol::encode(&greeting, &mut bytes);
    let greeted = write(&mut stream, &bytes, limit).await;
    let NewConnection { client, connection, wake } = admitted?;
    frames.set_limit(context.limits.request_bytes);
    let mut served = Connection {
        clients: clients.clone(),
        client: client.clone(),
        connection,
        wake,
        queries: Queries::new(),
        bytes,
    };
    let result = match (greeted, credential) {
        (Ok(()), Some(credential)) => tokio::select! {
            result = served.run(stream, frames, limit) => result,
            denied = follow_token(&client, credential) => Err(denied.into()),
        },
        (Ok(()), None) => Ok(()),
        // The client is gone already, but was connected and must be disconnected.
        (Err(why), _) => Err(why),
    };
    clients.disconnect(&client, connection);
    result
}

/// Applies the current rights of the client's token until the token is no longer valid; returns the reason.
async fn follow_token(client: &Client, mut credential: Credential) -> Denied {
    loop {
        if let Err(denied) = credential.changed().await {
            tracing::info!(who = %credential.who().name(), "a client's token was removed or has expired");
            return denied;
        }
        client.apply_rights(credential.who());
    }
}

async fn read_hello(stream: &mut Box<dyn Stream>, frames: &mut Frames) -> Result<Hello, ConnectionError> {
    let mut opening = [0; 8];
    stream.read_exact(&mut opening).await?;
    let version = lockkeeper_session::protocol::version_for(opening);
    if opening[..4] == lockkeeper_session::protocol::MAGIC {
        stream.write_all(&lockkeeper_session::protocol::reply(version)).await?;
    }
    if version.is_none() {
        return Err(ConnectionError::Protocol);
    }
    loop {
        if let Some(hello) = frames.take()? {
            return Ok(hello);
        }
        if stream.read_buf(&mut frames.arrived).await? == 0 {
            return Err(ConnectionError::ClosedBeforeHello);
        }
    }
}

/// Writes bytes. A client that does not read them within the timeout is disconnected.
async fn write(stream: &mut Box<dyn Stream>, bytes: &[u8], limit: Duration) -> Result<(), ConnectionError> {
    let all = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    match timeout(limit, all).await {
        Err(_) => Err(ConnectionError::NotRead),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(())) => Ok(()),
    }
}

struct Connection {
    clients: Arc<Clients>,
    client: Arc<Client>,
    connection: u64,
    wake: Arc<Notify>,
    queries: Queries,
    bytes: Vec<u8>,
}

impl Connection {
    async fn run(
        &mut self,
        mut stream: Box<dyn Stream>,
        mut frames: Frames,
        limit: Duration,
    ) -> Result<(), ConnectionError> {
        loop {
            let queued = self.client.take_queued(self.connection)?;
            if !queued.is_empty() {
                self.send(&mut stream, &queued, limit).await?;
            }
            // Returns the permit of a list that has just been sent.
            drop(queued);
            tokio::select! {
                () = self.wake.notified() => {}
                read = stream.read_buf(&mut frames.arrived) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let received = self.receive_all(&mut frames);
                    self.clients.service().context.member.flush();
                    received?;
                }
            }
        }
    }

    async fn send(
        &mut self,
        stream: &mut Box<dyn Stream>,
        messages: &[QueuedMessage],
        limit: Duration,
    ) -> Result<(), ConnectionError> {
        self.bytes.clear();
        for message in messages {
            match message {
                QueuedMessage::Message(message) => {
                    lockkeeper_session::protocol::encode(message, &mut self.bytes)
                }
                QueuedMessage::Encoded { frame, .. } => self.bytes.extend_from_slice(frame),
            }
        }
        write(stream, &self.bytes, limit).await?;
        // Do not keep a large buffer after a long reply.
        self.bytes.shrink_to(16 << 10);
        Ok(())
    }

    fn receive_all(&mut self, frames: &mut Frames) -> Result<(), ConnectionError> {
        while let Some(message) = frames.take()? {
            self.receive(message);
        }
        Ok(())
    }

    fn receive(&mut self, message: ToDaemon) {
        match message {
            ToDaemon::Session(session, message) => self.client.forward(session, message),
            ToDaemon::Query(number, ask) => {
                self.queries.begin(self.clients.service().clone(), self.client.clone(), number, ask);
            }
            ToDaemon::Cancel(number) => self.queries.cancel(&self.client, number),
        }
    }
}
