//! Where clients connect: TCP with or without TLS, and a socket in the file system. Every connection counts against one limit.

use crate::room::{Place, Room};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

/// After so long without a word, the system asks whether the client's machine is there.
const PROBE: Duration = Duration::from_secs(5);
/// What a client's machine has not acknowledged after so long, it never will.
const UNHEARD: Duration = Duration::from_secs(20);

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Whoever waits for a lock says nothing: if its machine has died, only questions of the system tell.
fn notice_death(stream: &tokio::net::TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let ask = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(2);
    socket.set_tcp_keepalive(&ask)?;
    socket.set_tcp_user_timeout(Some(UNHEARD))
}

/// The TLS of a listener: the newest certificates count for new connections.
pub type Tls = Arc<RwLock<TlsAcceptor>>;

/// A place where clients connect.
pub struct Listener {
    socket: Socket,
    /// Somebody who has come, and for whom there is no room yet.
    waits: Option<Arrived>,
}

enum Socket {
    /// TCP, with TLS if there is any.
    Tcp(TcpListener, Option<Tls>),
    /// A socket in the file system.
    Unix(UnixListener),
}

/// A connection that is not spoken on yet.
pub enum Arrived {
    /// With TLS to come.
    Tls(tokio::net::TcpStream, TlsAcceptor, IpAddr),
    /// Ready; with the client's address, if it came over the network.
    Plain(Box<dyn Stream>, Option<IpAddr>),
}

impl Arrived {
    /// The client's address, if it came over the network.
    pub fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Tls(_, _, peer) => Some(*peer),
            Self::Plain(_, peer) => *peer,
        }
    }

    /// Shakes hands, if that is to be done.
    pub async fn ready(self, within: Duration) -> Result<Box<dyn Stream>, String> {
        match self {
            Self::Plain(stream, _) => Ok(stream),
            Self::Tls(stream, acceptor, _) => {
                match tokio::time::timeout(within, acceptor.accept(stream)).await {
                    Err(_) => Err(String::from("it did not finish the TLS handshake in time")),
                    Ok(Err(error)) => Err(format!("the TLS handshake failed: {error}")),
                    Ok(Ok(stream)) => Ok(Box::new(stream)),
                }
            }
        }
    }
}

impl Socket {
    async fn arrival(&self) -> io::Result<Arrived> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                notice_death(&stream)?;
                Ok(match tls {
                    None => Arrived::Plain(Box::new(stream), Some(peer.ip())),
                    Some(tls) => {
                        let acceptor = tls.read().unwrap_or_else(|e| e.into_inner()).clone();
                        Arrived::Tls(stream, acceptor, peer.ip())
                    }
                })
            }
            Self::Unix(listener) => Ok(Arrived::Plain(Box::new(listener.accept().await?.0), None)),
        }
    }
}

impl Listener {
    /// Listens on an address.
    pub async fn tcp(address: SocketAddr, tls: Option<Tls>) -> Result<Self, String> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| format!("cannot listen on {address}: {error}"))?;
        Ok(Self { socket: Socket::Tcp(listener, tls), waits: None })
    }

    /// Listens on a socket in the file system, for its owner alone. The socket of an ended daemon is removed; anything else is not.
    pub fn unix(path: &Path) -> Result<Self, String> {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        let bad = |error: io::Error| format!("cannot listen on {}: {error}", path.display());
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(format!("another daemon listens on {}", path.display()));
        }
        // Of the path itself: a symbolic link is no socket, wherever it leads.
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path).map_err(bad)?,
            Ok(_) => {
                return Err(format!(
                    "cannot listen on {}: there is something that is no socket, which is not removed; name another path \
                     for `socket`, or remove it",
                    path.display()
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(bad(error)),
        }
        let listener = UnixListener::bind(path).map_err(bad)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(bad)?;
        Ok(Self { socket: Socket::Unix(listener), waits: None })
    }

    /// The address, if it is one of the network.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener, _) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// The next connection, once there is room for one more. Others wait in the system's own queue. Dropping the future loses nobody.
    pub async fn accept(&mut self, room: &Room) -> (Arrived, Place) {
        while self.waits.is_none() {
            match self.socket.arrival().await {
                Ok(arrived) => self.waits = Some(arrived),
                Err(error) => {
                    // Too many open files, or a connection that went away at once: neither ends the daemon.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        // Only now: a listener that waits for somebody takes nobody's place.
        let place = room.place().await;
        (self.waits.take().expect("somebody has come, and nobody else takes it"), place)
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
            assert!(error.contains("no socket"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "precious");
        for _ in 0..2 {
            // The second time there is the socket of the first one, to which nobody listens any more.
            drop(Listener::unix(&socket).unwrap());
            assert!(socket.exists());
        }
        let _first = Listener::unix(&socket).unwrap();
        assert!(Listener::unix(&socket).err().unwrap().contains("another daemon listens"));
    }
}
