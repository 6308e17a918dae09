//! The Rust client: one connection for all clients of a process, until one of them switches to another daemon.

use super::{Daemons, LockClient, Validity, WAIT};
use lockkeeper::{Fence, Guard, Lockkeeper};
use lockkeeper_daemon::CLIENTS_PORT;
use lockkeeper_testbed::history::{LockMode, now_ns};
use std::time::Duration;

#[derive(Clone)]
pub struct Native {
    url: String,
    locks: Lockkeeper,
    ttl: Duration,
}

impl Native {
    pub async fn open(daemons: &Daemons) -> Self {
        let hosts: Vec<String> =
            daemons.addresses.iter().map(|address| format!("{address}:{CLIENTS_PORT}")).collect();
        let (token, authority) = (&daemons.token, daemons.authority.display());
        let url = format!("lockkeeper://token:{token}@{}?ca={authority}", hosts.join(","));
        let locks = open(&url).await;
        Self { url, locks, ttl: super::TTL }
    }

    /// The same connection, with requests for another time to live.
    pub fn with_ttl(&self, ttl: Duration) -> Self {
        Self { ttl, ..self.clone() }
    }
}

/// Connects to any of the daemons, once one can be reached.
async fn open(url: &str) -> Lockkeeper {
    loop {
        match Lockkeeper::open(url).await {
            Ok(locks) => return locks,
            Err(error) if error.is_usage() => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

impl LockClient for Native {
    type Held = Guard;

    fn can(&self, _how: LockMode) -> bool {
        true
    }

    async fn acquire(&mut self, lock: &str, how: LockMode) -> Result<Guard, String> {
        let request = match how {
            LockMode::Exclusive => self.locks.mutex(lock),
            LockMode::Shared => self.locks.shared(lock),
            LockMode::Permit { of: permits } => self.locks.semaphore(lock, permits),
        };
        match request.ttl(self.ttl).acquire_within(WAIT).await {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(String::from("not in time")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn fence(held: &Guard) -> u64 {
        held.fence().map_or(0, Fence::get)
    }

    async fn validity(&mut self, held: &Guard) -> Validity {
        // Read the clock first, so that the claimed time is rather too short.
        let until_ns = now_ns() + u64::try_from(held.valid_for().as_nanos()).unwrap_or(0);
        if held.is_valid() { Validity::UntilNs(until_ns) } else { Validity::Lost }
    }

    async fn switch_daemon(&mut self) {
        self.locks = open(&self.url).await;
    }

    async fn release(&mut self, held: Guard) {
        let _ = held.release().await;
    }
}
