//! The Rust client: one connection for all clients of a process, until one of them switches to another daemon.

use super::{Asks, Daemons, Sure, WAIT};
use lockkeeper::{Fence, Guard, Lockkeeper};
use lockkeeper_daemon::CLIENTS_PORT;
use lockkeeper_testbed::history::{HoldMode, now_ns};
use std::time::Duration;

#[derive(Clone)]
pub struct Native {
    url: String,
    locks: Lockkeeper,
}

impl Native {
    pub async fn open(daemons: &Daemons) -> Self {
        let hosts: Vec<String> =
            daemons.addresses.iter().map(|address| format!("{address}:{CLIENTS_PORT}")).collect();
        let (token, authority) = (&daemons.token, daemons.authority.display());
        let url = format!("lockkeeper://token:{token}@{}?ca={authority}", hosts.join(","));
        let locks = open(&url).await;
        Self { url, locks }
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

impl Asks for Native {
    type Held = Guard;

    fn can(&self, _how: HoldMode) -> bool {
        true
    }

    async fn acquire(&mut self, lock: &str, how: HoldMode) -> Result<Guard, String> {
        let request = match how {
            HoldMode::Alone => self.locks.mutex(lock),
            HoldMode::Shared => self.locks.shared(lock),
            HoldMode::Permit(permits) => self.locks.semaphore(lock, permits),
        };
        match request.acquire_within(WAIT).await {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(String::from("not in time")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn fence(held: &Guard) -> u64 {
        held.fence().map_or(0, Fence::get)
    }

    async fn sure(&mut self, held: &Guard) -> Sure {
        // Read the clock first, so that the claimed time is rather too short.
        let until_ns = now_ns() + u64::try_from(held.valid_for().as_nanos()).unwrap_or(0);
        if held.is_valid() { Sure::UntilNs(until_ns) } else { Sure::Lost }
    }

    async fn wander(&mut self) {
        self.locks = open(&self.url).await;
    }

    async fn release(&mut self, held: Guard) {
        let _ = held.release().await;
    }
}
