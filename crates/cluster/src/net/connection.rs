//! An established connection: reading, writing and detection of silence.

use super::Limits;
use super::counters::{Counters, Refusal};
use super::outbox::{Outbox, Writer};
use super::records::{Incoming, Malformed, RecordHeader};
use super::tls::member_of;
use lockkeeper_member::MemberId;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Both halves of a connection, with or without TLS.
pub(super) struct Connection {
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    pub writer: Writer,
    /// The certificate of the other side. `None` without TLS.
    certificate: Option<CertificateDer<'static>>,
}

impl Connection {
    pub fn plain(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: Box::new(reader), writer: Box::new(writer), certificate: None }
    }

    pub fn tls(stream: TlsStream<TcpStream>) -> Self {
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.cloned().map(CertificateDer::into_owned);
        let (reader, writer) = tokio::io::split(stream);
        Self { reader: Box::new(reader), writer: Box::new(writer), certificate }
    }

    /// Whether the other side may claim to be this member. Without TLS every claim is accepted here; the join token is
    /// checked separately.
    pub fn can_be(&self, member: MemberId) -> bool {
        self.certificate.as_ref().is_none_or(|shown| member_of(shown) == Some(member))
    }

    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }
}

/// The reason why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    Closed,
    Broken(std::io::Error),
    Malformed(Malformed),
    /// A record that this kind of connection does not carry.
    Misplaced(&'static str),
    Silent(Duration),
    Replaced,
    Moved,
}

impl End {
    /// Counts a fault of the other side.
    pub fn count(&self, counters: &Counters) {
        match self {
            Self::Malformed(Malformed::TooLong { .. }) => counters.refuse(Refusal::TooLong),
            Self::Malformed(_) | Self::Misplaced(_) => counters.refuse(Refusal::Malformed),
            Self::Silent(_) => counters.silent.count(),
            Self::Replaced => counters.replaced.count(),
            Self::Closed | Self::Broken(_) | Self::Moved => {}
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it was closed by the other side"),
            Self::Broken(error) => error.fmt(f),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Misplaced(what) => write!(f, "{what} does not belong on this connection"),
            Self::Silent(silence) => write!(f, "nothing was received for {silence:?}"),
            Self::Replaced => f.write_str("it was replaced by a newer connection"),
            Self::Moved => f.write_str("the member has another address"),
        }
    }
}

/// Reads until the connection ends, and passes every batch of bytes to the consumer.
pub(super) async fn read(
    mut reader: impl AsyncRead + Unpin,
    incoming: &mut Incoming,
    received: &AtomicBool,
    counters: &Counters,
    mut batch: impl FnMut(&mut Incoming) -> Result<(), End>,
) -> End {
    loop {
        match reader.read_buf(incoming.room()).await {
            Ok(0) => return End::Closed,
            Ok(bytes) => counters.bytes_in.add(bytes),
            Err(error) => return End::Broken(error),
        }
        received.store(true, Relaxed);
        if let Err(end) = batch(incoming) {
            return end;
        }
    }
}

/// Writes until the connection ends: all pending bytes at once, unless the sender has written them inline.
pub(super) async fn write(outbox: &Outbox, counters: &Counters) -> End {
    loop {
        let mut taken = match outbox.taken().await {
            Ok(taken) => taken,
            Err(error) => return End::Broken(error),
        };
        let written = async {
            taken.writer.write_all(&taken.bytes).await?;
            taken.writer.flush().await
        };
        if let Err(error) = written.await {
            return End::Broken(error);
        }
        counters.writes.count();
        counters.bytes_out.add(taken.bytes.len());
        taken.bytes.clear();
        outbox.give_back(taken, true);
    }
}

/// Sends a ping where no other data were sent, so that the other side knows that this one is alive. Returns when
/// nothing was received for too long.
///
/// Silence is counted in iterations of this loop and not by the clock, so that a process that was suspended does not
/// close connections for its own pause.
pub(super) async fn keep_alive(outbox: &Outbox, received: &AtomicBool, limits: &Limits) -> End {
    let turn = limits.ping_every / 2;
    let mut silence = Duration::ZERO;
    loop {
        tokio::time::sleep(turn).await;
        if !outbox.has_written() {
            // If there is no room for a ping, other data are pending.
            let _ = outbox.append(RecordHeader::Ping, 0, |_| ());
        }
        if received.swap(false, Relaxed) {
            silence = Duration::ZERO;
            continue;
        }
        silence += turn;
        if silence >= limits.silence {
            return End::Silent(limits.silence);
        }
    }
}
