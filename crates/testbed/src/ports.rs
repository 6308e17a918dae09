//! Ports for servers that are told theirs, and that may be stopped and started again.

use rustix::process::geteuid;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Where they begin.
const FIRST: u16 = 10_240;

/// A port on loopback that nobody uses. Nobody else who asks here is given it while this process lives, in whatever process, and no
/// connection gets it by chance: such a server can be stopped, and finds its port free again.
pub fn free() -> Result<u16> {
    // A file for each port, locked by whoever was given it.
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
    Err(Error::new(ErrorKind::AddrInUse, format!("all from {FIRST} on are in use")))
}

/// From here on the system gives ports to connections.
fn first_of_the_system() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST + 1000).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_given_a_port_twice() {
        let mut ports: Vec<u16> = (0..100).map(|_| free().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| (FIRST..first_of_the_system()).contains(port)));
    }
}
