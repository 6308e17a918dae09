//! One Redis server, with the recipe of its documentation.

use super::{Client, ClientError, Lock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value, cmd};
use std::time::Duration;

/// Deletes a lock that has our value.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// The expiry of a lock that is not released: far longer than any turn, so that no renewal is necessary.
const TTL_MS: u64 = 10_000;

/// A connection to one server, and the hash of the loaded script.
pub(super) struct Server {
    connection: MultiplexedConnection,
    release: String,
}

impl Server {
    /// Connects and loads the script.
    pub async fn open(address: &str) -> Result<Server, ClientError> {
        let client = redis::Client::open(format!("redis://{address}"))?;
        // A timer for each request would be a cost that other engines do not have.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        let release = cmd("SCRIPT").arg("LOAD").arg(RELEASE).query_async(&mut connection).await?;
        Ok(Server { connection, release })
    }

    /// Acquires the lock if it is free.
    pub async fn take(&mut self, lock: &str, value: u64) -> Result<bool, ClientError> {
        let mut set = Cmd::new();
        set.arg("SET").arg(lock).arg(value).arg("NX").arg("PX").arg(TTL_MS);
        match self.connection.send_packed_command(&set).await? {
            Value::Okay => Ok(true),
            Value::Nil => Ok(false),
            reply => Err(ClientError::RedisReply { reply }),
        }
    }

    /// Releases the lock if it is ours; returns whether it was.
    pub async fn free(&mut self, lock: &str, value: u64) -> Result<bool, ClientError> {
        let mut run = Cmd::new();
        run.arg("EVALSHA").arg(&self.release).arg(1).arg(lock).arg(value);
        match self.connection.send_packed_command(&run).await? {
            Value::Int(deleted) => Ok(deleted == 1),
            reply => Err(ClientError::RedisReply { reply }),
        }
    }
}

/// A value that no other acquisition has.
pub(super) fn random() -> Result<u64, ClientError> {
    Ok(getrandom::u64()?)
}

/// A client of one server.
pub(super) struct Redis {
    server: Server,
    held: Option<(String, u64)>,
    pause: Duration,
}

impl Redis {
    /// Connects; waiters pause for `pause_ms` before they retry.
    pub async fn open(address: &str, pause_ms: u64) -> Result<Redis, ClientError> {
        let pause = Duration::from_millis(pause_ms);
        Ok(Redis { server: Server::open(address).await?, held: None, pause })
    }
}

impl Client for Redis {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        let value = random()?;
        while !self.server.take(lock.name, value).await? {
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        self.held = Some((lock.name.to_owned(), value));
        Ok(None)
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        let Some((lock, value)) = self.held.take() else { return Ok(()) };
        match self.server.free(&lock, value).await? {
            true => Ok(()),
            false => Err(ClientError::Expired { lock }),
        }
    }
}
