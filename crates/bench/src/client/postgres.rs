//! PostgreSQL's advisory locks.

use super::{Client, Lock};
use tokio_postgres::{NoTls, Statement};

/// A client with a connection of its own.
pub(super) struct Postgres {
    client: tokio_postgres::Client,
    lock: Statement,
    unlock: Statement,
    held: Option<i64>,
}

impl Postgres {
    /// Connects and prepares the statements.
    pub async fn open(url: &str) -> Result<Postgres, String> {
        let connected = tokio_postgres::connect(url, NoTls).await;
        let (client, connection) = connected.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await.map_err(|error| error.to_string())?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await;
        Ok(Postgres { client, lock, unlock: unlock.map_err(|error| error.to_string())?, held: None })
    }
}

impl Client for Postgres {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, String> {
        let key = lock.number as i64;
        self.client.query_one(&self.lock, &[&key]).await.map_err(|error| error.to_string())?;
        self.held = Some(key);
        Ok(None)
    }

    async fn release(&mut self) -> Result<(), String> {
        let Some(key) = self.held.take() else { return Ok(()) };
        let row = self.client.query_one(&self.unlock, &[&key]).await.map_err(|error| error.to_string())?;
        match row.try_get(0) {
            Ok(true) => Ok(()),
            Ok(false) => Err(String::from("PostgreSQL reports that the lock was not held")),
            Err(error) => Err(error.to_string()),
        }
    }
}
