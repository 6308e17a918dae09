//! Ports for servers whose port is fixed in advance and that may be stopped and restarted.

use rustix::process::geteuid;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The first port of the range.
const FIRST: u16 = 10_240;

/// Reserves an unused port on loopback. While this process runs, no other call, in this or another process, returns
/// the same port, and the system assigns it to no outgoing connection. So a server on it can be stopped and finds the
/// port free again.
pub fn free() -> Result<u16> {
    // One file per port, locked by the process that has reserved the port.
    static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = std::env::temp_dir().join(format!("lockkeeper-ports-{}", geteuid().as_raw()));
    std::fs::create_dir_all(&folder)?;
    let ports = FIRST..first_of_the_system();
    let somewhere = RandomState::new().build_hasher().finish() % ports.len() as u64;
    for port in ports.clone().cycle().skip(somewhere as usize).take(ports.len()) {
        let file = File::create(folder.join(port.to_string()))?;
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            return Ok(port);
        }
    }
    Err(Error::new(ErrorKind::AddrInUse, format!("no free port: all from {FIRST} on are in use")))
}

/// The first port that the system assigns to outgoing connections.
fn first_of_the_system() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST + 1000).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_reserved_twice() {
        let mut ports: Vec<u16> = (0..100).map(|_| free().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| (FIRST..first_of_the_system()).contains(port)));
    }
}
