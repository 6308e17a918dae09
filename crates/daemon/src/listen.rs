//! Listeners for clients: TCP with or without TLS, and Unix domain sockets. Every connection counts against one
//! limit.

use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

/// Idle time before the first TCP keepalive probe, and interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout for sent data that the client's machine does not acknowledge.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(20);

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The reason why a daemon cannot listen for clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The TCP address is not available.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// The address that is not available.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {path}: {source}")]
    Unix {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process accepts connections on the socket.
    #[error("another daemon listens on {path}")]
    InUse {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The path is that of a file, which is not removed.
    #[error(
        "cannot listen on {path}: there is something that is no socket, which is not removed; name another path for \
         `socket`, or remove it"
    )]
    NotASocket {
        /// The path as configured.
        path: PathBuf,
    },
}

/// The reason why an accepted connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The client was too slow.
    #[error("it did not finish the TLS handshake in time")]
    Slow,
    /// The connection broke, or the two sides did not agree.
    #[error("the TLS handshake failed: {0}")]
    Failed(#[source] io::Error),
}

/// Enables TCP keepalive. A client that waits for a lock sends nothing, so only probes detect that its machine has
/// died.
fn enable_keepalive(stream: &tokio::net::TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL).with_retries(2);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT))
}

/// The TLS acceptor of a listener. New connections use the newest certificates.
pub type Tls = Arc<RwLock<TlsAcceptor>>;

/// A listener for clients.
pub struct Listener {
    socket: Socket,
    /// An accepted connection that waits for a permit.
    pending: Option<Accepted>,
}

enum Socket {
    /// TCP, optionally with TLS.
    Tcp(TcpListener, Option<Tls>),
    /// A Unix domain socket.
    Unix(UnixListener),
}

/// An accepted connection before its TLS handshake.
pub enum Accepted {
    /// The TLS handshake is still to be done.
    Tls(tokio::net::TcpStream, TlsAcceptor, IpAddr),
    /// Without TLS; with the client's address, if it came over the network.
    Plain(Box<dyn Stream>, Option<IpAddr>),
}

impl Accepted {
    /// The client's address, if it came over the network.
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Tls(_, _, peer) => Some(*peer),
            Self::Plain(_, peer) => *peer,
        }
    }

    /// Performs the TLS handshake, if there is one.
    pub async fn ready(self, within: Duration) -> Result<Box<dyn Stream>, HandshakeError> {
        match self {
            Self::Plain(stream, _) => Ok(stream),
            Self::Tls(stream, acceptor, _) => {
                match tokio::time::timeout(within, acceptor.accept(stream)).await {
                    Err(_) => Err(HandshakeError::Slow),
                    Ok(Err(error)) => Err(HandshakeError::Failed(error)),
                    Ok(Ok(stream)) => Ok(Box::new(stream)),
                }
            }
        }
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                enable_keepalive(&stream)?;
                Ok(match tls {
                    None => Accepted::Plain(Box::new(stream), Some(peer.ip())),
                    Some(tls) => {
                        let acceptor = tls.read().unwrap_or_else(|e| e.into_inner()).clone();
                        Accepted::Tls(stream, acceptor, peer.ip())
                    }
                })
            }
            Self::Unix(listener) => Ok(Accepted::Plain(Box::new(listener.accept().await?.0), None)),
        }
    }
}

impl Listener {
    /// Listens on a TCP address.
    pub async fn tcp(address: SocketAddr, tls: Option<Tls>) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ListenError::Tcp { address, source })?;
        Ok(Self { socket: Socket::Tcp(listener, tls), pending: None })
    }

    /// Listens on a Unix domain socket that only its owner may use. A stale socket of an earlier daemon is removed;
    /// any other file is not.
    pub fn unix(path: &Path) -> Result<Self, ListenError> {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        let bad = |source| ListenError::Unix { path: path.to_path_buf(), source };
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse { path: path.to_path_buf() });
        }
        // Metadata of the path itself: a symbolic link is not a socket, even if it points to one.
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path).map_err(bad)?,
            Ok(_) => return Err(ListenError::NotASocket { path: path.to_path_buf() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(bad(error)),
        }
        let listener = UnixListener::bind(path).map_err(bad)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(bad)?;
        Ok(Self { socket: Socket::Unix(listener), pending: None })
    }

    /// The TCP address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener, _) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Accepts the next connection, once there is a permit for it. Further ones wait in the backlog of the system.
    /// Cancel safe.
    pub async fn accept(&mut self, limit: &ConnectionLimit) -> (Accepted, ConnectionPermit) {
        while self.pending.is_none() {
            match self.socket.accept().await {
                Ok(accepted) => self.pending = Some(accepted),
                Err(error) => {
                    // Too many open files, or a connection that was closed at once: neither is a reason to stop.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        // The permit is taken after the connection is accepted, so that an idle listener does not occupy one.
        let permit = limit.acquire().await;
        (self.pending.take().expect("set by the loop above"), permit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_socket_of_an_ended_daemon_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, socket) =
            (folder.path().join("file"), folder.path().join("link"), folder.path().join("socket"));
        std::fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &folder.path().to_path_buf()] {
            let error = Listener::unix(path).err().expect("it is no socket");
            assert!(matches!(error, ListenError::NotASocket { .. }), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "precious");
        for _ in 0..2 {
            // The second time, the path has the stale socket of the first listener.
            drop(Listener::unix(&socket).unwrap());
            assert!(socket.exists());
        }
        let _first = Listener::unix(&socket).unwrap();
        assert!(matches!(Listener::unix(&socket), Err(ListenError::InUse { .. })));
    }
}
