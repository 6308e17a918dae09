//! PostgreSQL's advisory locks.

use super::{Client, ClientError, Lock};
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
    pub async fn open(url: &str) -> Result<Postgres, ClientError> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Postgres { client, lock, unlock, held: None })
    }
}

impl Client for Postgres {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        let key = lock.number as i64;
        self.client.query_one(&self.lock, &[&key]).await?;
        self.held = Some(key);
        Ok(None)
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        let Some(key) = self.held.take() else { return Ok(()) };
        let row = self.client.query_one(&self.unlock, &[&key]).await?;
        if row.try_get(0)? { Ok(()) } else { Err(ClientError::NotHeld) }
    }
}
