//! Redlock: the same lock at several Redis servers at once, held with a majority of them.

use super::redis::{Server, random};
use super::{Client, ClientError, Lock};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;

/// A client of several servers.
pub(super) struct Redlock {
    servers: Vec<Server>,
    held: Option<(String, u64)>,
    random: u64,
    pause_ms: u64,
}

impl Redlock {
    /// Connects to all servers.
    pub async fn open(addresses: &[String], client: usize, pause_ms: u64) -> Result<Redlock, ClientError> {
        let opened = join_all(addresses.iter().map(|address| Server::open(address))).await;
        let servers = opened.into_iter().collect::<Result<_, _>>()?;
        Ok(Redlock { servers, held: None, random: client as u64, pause_ms })
    }

    fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Requests the lock from all servers at once; returns as soon as a majority agrees, or cannot agree any
    /// more. The other requests are under way, and arrive before the release on the same connection.
    async fn take(&mut self, lock: &str, value: u64) -> Result<bool, ClientError> {
        let (majority, count) = (self.majority(), self.servers.len());
        let mut asked: FuturesUnordered<_> =
            self.servers.iter_mut().map(|server| server.take(lock, value)).collect();
        let (mut granted, mut refused) = (0, 0);
        while let Some(answer) = asked.next().await {
            *(if answer? { &mut granted } else { &mut refused }) += 1;
            if granted >= majority || refused > count - majority {
                break;
            }
        }
        Ok(granted >= majority)
    }

    /// Releases at all servers; waits for the replies of a majority.
    async fn give_back(&mut self, lock: &str, value: u64) -> Result<usize, ClientError> {
        let majority = self.majority();
        let mut asked: FuturesUnordered<_> =
            self.servers.iter_mut().map(|server| server.free(lock, value)).collect();
        let mut freed = 0;
        while let Some(answer) = asked.next().await {
            freed += usize::from(answer?);
            if freed >= majority {
                break;
            }
        }
        Ok(freed)
    }

    /// Pauses for a random time up to twice the pause, so that colliding clients do not collide again.
    async fn pause(&mut self) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (self.random >> 33) % (2 * self.pause_ms + 1) {
            0 => tokio::task::yield_now().await,
            pause_ms => tokio::time::sleep(Duration::from_millis(pause_ms)).await,
        }
    }
}

impl Client for Redlock {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        loop {
            let value = random()?;
            if self.take(lock.name, value).await? {
                self.held = Some((lock.name.to_owned(), value));
                return Ok(None);
            }
            self.give_back(lock.name, value).await?;
            self.pause().await;
        }
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        let Some((lock, value)) = self.held.take() else { return Ok(()) };
        match self.give_back(&lock, value).await? >= self.majority() {
            true => Ok(()),
            false => Err(ClientError::ExpiredAtMajority { lock }),
        }
    }
}
