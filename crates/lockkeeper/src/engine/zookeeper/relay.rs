//! TLS for the ZooKeeper client, whose own TLS needs a second library of cryptography.
//!
//! For each server of the URL, a relay listens on a port of the loopback interface. The client connects to the relays, and
//! a relay carries each connection over TLS to its server. The server regards every request over this connection as
//! one of the owner of the client's certificate, so a relay accepts only sockets of this user: another user of this
//! machine could connect to its port, too.

use super::ensemble;
use crate::Result;
use crate::engine::EngineUrl;
use crate::engine::tls::{ServerTls, Stream, Tls, dial};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The time limit for a connection to a server, with its handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// The pause after a failed `accept`, for example because this process has too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The relays to the servers of a URL. Dropping them ends the listening; connections continue until their end.
pub(super) struct Relays {
    /// The addresses of the relays, as the client expects those of servers.
    pub addresses: String,
    tasks: Vec<tokio::task::AbortHandle>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Relays {
    /// Starts the relays, and checks that TLS works with one of the servers. Otherwise the error names the cause for
    /// each server; the client would only know that its connections end.
    pub async fn start(url: &EngineUrl, hosts: &[String], tls: &Tls) -> Result<Relays> {
        let mut servers = Vec::new();
        for host in hosts {
            let tls = tls.to(host).ok_or_else(|| url.bad("a host is no name that a certificate can have"))?;
            servers.push(Relay { host: host.clone(), tls, failure: Arc::default() });
        }
        check(&servers).await?;
        let mut relays = Relays { addresses: String::new(), tasks: Vec::new(), failure: Arc::default() };
        for server in servers {
            let relay = Relay { failure: relays.failure.clone(), ..server };
            let (listener, address) = listen()
                .await
                .map_err(|error| ensemble::unavailable(format!("cannot listen on 127.0.0.1: {error}")))?;
            if !relays.addresses.is_empty() {
                relays.addresses.push(',');
            }
            relays.addresses.push_str(&address.to_string());
            relays.tasks.push(tokio::spawn(relay.accept(listener, address)).abort_handle());
        }
        Ok(relays)
    }

    /// The last failure of a connection. With TLS 1.3, the rejection of the client's certificate arrives after the
    /// handshake.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The relay to one server.
#[derive(Clone)]
struct Relay {
    host: String,
    tls: ServerTls,
    failure: Arc<Mutex<Option<String>>>,
}

impl Relay {
    async fn accept(self, listener: TcpListener, address: SocketAddr) {
        loop {
            match listener.accept().await {
                Ok((client, peer)) if is_own(peer, address) => drop(tokio::spawn(self.clone().carry(client))),
                Ok(_) => {}
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn carry(self, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        // The client notices the end of its connection, and tries the next server.
        let failure = match connect(&self.host, &self.tls).await {
            Ok(mut server) => match tokio::io::copy_bidirectional(&mut client, &mut server).await {
                Ok(_) => return,
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let failure = format!("{}: {failure}", self.host);
        *self.failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(failure);
    }
}

/// Returns when TLS works with one of the servers. A server that starts may end connections for some moments.
async fn check(servers: &[Relay]) -> Result<()> {
    let deadline = Instant::now() + CONNECT;
    loop {
        let mut failures = Vec::new();
        let mut is_final = true;
        // All at once: a server that does not answer delays no other one.
        let mut attempts = JoinSet::new();
        for server in servers.iter().cloned() {
            attempts.spawn(async move { (connect(&server.host, &server.tls).await.map(drop), server.host) });
        }
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok((Ok(()), _)) => return Ok(()),
                Ok((Err(error), host)) => {
                    // The kind of an error of TLS, such as a certificate that is not valid.
                    is_final &= error.kind() == ErrorKind::InvalidData;
                    failures.push(format!("{host}: {error}"));
                }
                Err(panicked) => failures.push(panicked.to_string()),
            }
        }
        failures.sort();
        if is_final || Instant::now() >= deadline {
            return Err(ensemble::unavailable(failures.join("; ")));
        }
        sleep(PAUSE).await;
    }
}

async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn connect(host: &str, tls: &ServerTls) -> io::Result<Box<dyn Stream>> {
    timeout(CONNECT, dial(host, Some(tls))).await.unwrap_or_else(|_| {
        let text =
            format!("no answer to the TLS handshake within {CONNECT:?}; does it use TLS at this port?");
        Err(io::Error::new(ErrorKind::TimedOut, text))
    })
}

/// Whether the socket of the other side of a loopback connection belongs to this user, according to the kernel.
fn is_own(peer: SocketAddr, address: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    owner(&table, peer, address) == Some(own)
}

/// The user of the established socket with these addresses, in the kernel's table of TCP sockets. A socket that its owner
/// has closed is listed as one of root, without an inode.
fn owner(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (in_hexadecimal(local)?, in_hexadecimal(remote)?);
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let fits = fields.next()? == local && fields.next()? == remote;
        let established = fields.next()? == "01";
        // Queues, timer and retransmissions come before the user, and its timeout before the inode.
        let user = fields.nth(3)?.parse().ok();
        let has_inode = fields.nth(1)? != "0";
        user.filter(|_| fits && established && has_inode)
    })
}

/// An address as the kernel's table has it: 127.0.0.1:80 is `0100007F:0050`.
fn in_hexadecimal(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    let number = u32::from_ne_bytes(address.ip().octets());
    Some(format!("{number:08X}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_socket_is_read_from_the_table_of_the_kernel() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n\
            1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1\n\
            2: 0100007F:D433 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n\
            3: 0100007F:D434 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1\n";
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(owner(table, address(0xd431), address(0x1f90)), Some(1000));
        assert_eq!(owner(table, address(0x1f90), address(0xd431)), Some(0));
        assert_eq!(owner(table, address(0xd432), address(0x1f90)), None);
        for closed in [0xd433, 0xd434] {
            assert_eq!(owner(table, address(closed), address(0x1f90)), None);
        }
        assert_eq!(owner("0: 0100007F:1F90", address(0x1f90), address(1)), None);
    }

    #[tokio::test]
    async fn a_socket_of_this_process_is_accepted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (_server, peer) = listener.accept().await.unwrap();
        assert!(is_own(peer, address));
        assert!(!is_own(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), address));
    }
}
