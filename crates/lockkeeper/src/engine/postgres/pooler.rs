//! Detects poolers that share sessions among clients, as PgBouncer does in its modes `transaction` and `statement`.
//!
//! There, each transaction of a client may run in another session of the server. The advisory lock that proves a
//! session alive, `LISTEN` and the settings of the session then belong to another client, and locks are not exclusive.
//!
//! # The test
//!
//! A session of PostgreSQL is one process, the backend, until its connection ends. Two facts prove sharing, and none of
//! them can be observed in an unshared session:
//!
//! - two open connections are served by one backend;
//! - one connection is served by another backend than before.
//!
//! [`is_shared`] provokes them with a second connection. While the first one is idle, its backend returns to the pool:
//! then the second connection is given that backend, or takes another one out of the pool in a transaction, so that the
//! first connection is given a third one.
//!
//! # Its limits
//!
//! A pool that other clients use at the same time can pass a round: they take the backend after the first connection
//! and return it before the next query. Rounds are repeated, and each request and renewal compares the backend with
//! that of the beginning. So a pool under load is found later, by an error of a request or by the loss of a hold. Where
//! no second connection is possible, only these comparisons remain.

use super::connection::Servers;
use super::session::AbortOnDrop;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};

/// The number of attempts to provoke a change of the backend.
const ROUNDS: usize = 3;

/// What to do about a shared session.
pub(super) const ADVICE: &str = "the sessions of the server are shared among clients there, as by PgBouncer with \
    pool_mode=transaction or statement, and locks need a session of their own: use a pool with pool_mode=session, or \
    connect to the server directly";

/// The process that serves a connection. A simple query, as poolers may not support prepared statements.
pub(super) async fn backend(client: &Client) -> Result<i32, Error> {
    let messages = client.simple_query("SELECT pg_backend_pid()").await?;
    let pid = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    Ok(pid.unwrap_or_default())
}

/// Whether the session of `client`, which `mine` serves, is shared with other connections.
pub(super) async fn is_shared(
    client: &Client,
    mine: i32,
    servers: &Servers,
    host: &Config,
) -> Result<bool, Error> {
    let Ok((other, connection)) = servers.connect(host).await else { return Ok(false) };
    let _connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    for _ in 0..ROUNDS {
        // Before the transaction, which PgBouncer refuses in its mode `statement`.
        if backend(&other).await? == mine {
            return Ok(true);
        }
        other.batch_execute("BEGIN").await?;
        if backend(&other).await? == mine || backend(client).await? != mine {
            return Ok(true);
        }
        other.batch_execute("COMMIT").await?;
    }
    Ok(false)
}
