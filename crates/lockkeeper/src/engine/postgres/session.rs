//! A session: one connection with its advisory lock and its notifications, and the texts of its errors.

use super::connection::{PostgresConnection, Servers};
use super::pooler;
use crate::engine::tls;
use crate::error::RejectionKind;
use crate::lease::Lease;
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage};

/// The time limit for a connection or a reply.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for setting up a session: other clients may be creating the schema.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The version of the schema, which its comment has: `lockkeeper 3`.
const VERSION: u32 = 3;
const SCHEMA: &str = include_str!("schema.sql");

/// The settings that the locks rely on, independent of the defaults of the database or user: each statement sees what
/// was committed before it; a fence is durable before it is used; an idle session is not closed.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
    SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0;
    SET search_path = pg_catalog; SET client_min_messages = warning;";

/// The arguments of a call with their types, which saves a round trip to the server.
pub(super) type Args<'a> = [(&'a (dyn ToSql + Sync), Type)];

pub(super) struct Session {
    client: Client,
    pub number: i64,
    /// The process of the server that serves this session: see [`pooler`].
    pub backend: i32,
    address: String,
    /// The settings of this session's server, for further connections to it.
    host: Config,
    servers: Arc<Servers>,
    shared: Arc<Shared>,
    /// The longest lease that the server's TCP timeouts allow for: see [`Session::allow_for`].
    allowed: tokio::sync::Mutex<Duration>,
    connection: tokio::task::AbortHandle,
}

/// The state that the connection's task shares with the session.
struct Shared {
    /// The waiters to wake, by holder.
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
    /// The leases that end with the connection, by holder.
    leases: Mutex<HashMap<String, Lease>>,
    changed: watch::Sender<()>,
    /// The reason for the end of the connection.
    ended: watch::Sender<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Session {
    /// Opens a session with the first of the servers that is a primary.
    pub async fn open(servers: &Arc<Servers>) -> Result<Session> {
        let mut failures = Vec::new();
        for host in &servers.hosts {
            match Session::open_at(servers, host).await {
                Ok(session) => return Ok(session),
                Err(failure) => failures.push(failure),
            }
        }
        Err(in_one(failures))
    }

    /// Connects, checks that the server is a primary and the session is not shared, creates the schema if needed, and
    /// takes the session's advisory lock.
    async fn open_at(servers: &Arc<Servers>, host: &Config) -> Result<Session> {
        let address = address_of(host);
        let connecting = timeout(CALL_TIMEOUT, servers.connect(host)).await;
        let (client, connection) = match connecting {
            Ok(Ok(connected)) => connected,
            Ok(Err(e)) => return Err(explain(&address, host, e)),
            Err(_) => {
                let reason = format!("{address} did not answer as PostgreSQL does within {CALL_TIMEOUT:?}");
                return Err(unavailable(reason));
            }
        };
        let setting_up = async {
            let shared = Arc::new(Shared {
                waiting: Mutex::default(),
                leases: Mutex::default(),
                changed: watch::Sender::new(()),
                ended: watch::Sender::new(None),
            });
            let connection = tokio::spawn(run(connection, shared.clone())).abort_handle();
            let backend = pooler::backend(&client).await?;
            if is_standby(&client).await? {
                return Ok(Err(format!("{address} is a read-only standby; name the primary")));
            }
            if pooler::is_shared(&client, backend, servers, host).await? {
                return Ok(Err(format!("{address}: {}", pooler::ADVICE)));
            }
            client.batch_execute(SETTINGS).await?;
            install(&client).await?;
            let row = client.query_one("SELECT nextval('lockkeeper.session')", &[]).await?;
            let number: i64 = row.try_get(0)?;
            let live = "SELECT pg_advisory_lock(lockkeeper.life($1))";
            client.query_typed(live, &[(&number, Type::INT8)]).await?;
            client.batch_execute(&format!("LISTEN lockkeeper_{number}; LISTEN lockkeeper_changed")).await?;
            Ok(Ok(Session {
                client,
                number,
                backend,
                address: address.clone(),
                host: host.clone(),
                servers: servers.clone(),
                shared,
                allowed: tokio::sync::Mutex::new(Duration::ZERO),
                connection,
            }))
        };
        match timeout(SETUP_TIMEOUT, setting_up).await {
            Ok(Ok(session)) => session.map_err(unavailable),
            Ok(Err(e)) => Err(explain(&address, host, e)),
            Err(_) => {
                Err(unavailable(format!("{address} did not set up a session within {SETUP_TIMEOUT:?}")))
            }
        }
    }

    pub fn is_alive(&self) -> bool {
        !self.client.is_closed() && self.shared.ended.borrow().is_none()
    }

    /// Calls one function of the schema. A session that does not reply in time is closed, with all its holds.
    pub async fn call(&self, sql: &str, args: &Args<'_>) -> Result<Vec<Row>> {
        match timeout(CALL_TIMEOUT, self.client.query_typed(sql, args)).await {
            Ok(answer) => answer.map_err(|e| match e.as_db_error() {
                Some(_) => explain(&self.address, &Config::new(), e),
                None => unavailable(self.shared.ended.borrow().clone().unwrap_or_else(|| e.to_string())),
            }),
            Err(_) => Err(self.close_as_silent()),
        }
    }

    /// Ends the session, since the server has not answered in time.
    fn close_as_silent(&self) -> Error {
        let reason = format!("{} did not answer within {CALL_TIMEOUT:?}", self.address);
        self.shared.end(&reason);
        self.connection.abort();
        unavailable(reason)
    }

    /// Makes the server keep this connection for longer than a lease of `ttl`, even if the client's machine is
    /// unreachable: the holder relies on its lease while it is cut off, so the server must not consider it dead
    /// before.
    pub async fn allow_for(&self, ttl: Duration) -> Result<()> {
        let mut allowed = self.allowed.lock().await;
        if ttl > *allowed {
            let wanted = (ttl * 2).max(Duration::from_secs(20));
            // Linux has no keepalive above 32767 s; nine probes at a third of that interval make up for it.
            let seconds = wanted.as_secs().min(32_767);
            let settings = format!(
                "SET tcp_user_timeout = {}; SET tcp_keepalives_idle = {seconds};
                 SET tcp_keepalives_interval = {}; SET tcp_keepalives_count = 9",
                wanted.as_millis(),
                (seconds / 3).max(1),
            );
            let Ok(set) = timeout(CALL_TIMEOUT, self.client.batch_execute(&settings)).await else {
                return Err(self.close_as_silent());
            };
            set.map_err(|e| explain(&self.address, &Config::new(), e))?;
            *allowed = wanted / 2;
        }
        Ok(())
    }

    /// Registers a waiter, which is woken when its request is granted, until it is dropped.
    pub fn waiter(self: &Arc<Self>, holder: &str) -> Waiter {
        let woken = Arc::new(Notify::new());
        locked(&self.shared.waiting).insert(holder.into(), woken.clone());
        Waiter { session: self.clone(), holder: holder.into(), woken }
    }

    /// Ends this lease when the connection ends.
    pub fn bind(&self, holder: &str, lease: &Lease) {
        locked(&self.shared.leases).insert(holder.into(), lease.clone());
        if let Some(reason) = &*self.shared.ended.borrow() {
            lease.lose(reason.as_str());
        }
    }

    pub fn unbind(&self, holder: &str) {
        locked(&self.shared.leases).remove(holder);
    }

    /// Resolves with the reason when the connection has ended.
    pub async fn ended(&self) -> String {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the connection ended".into(),
        }
    }

    /// Subscribes to changes of locks.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.end("the session was closed");
    }
}

impl Shared {
    fn end(&self, reason: &str) {
        self.ended.send_if_modified(|ended| ended.is_none() && ended.replace(reason.into()).is_none());
        for lease in locked(&self.leases).values() {
            lease.lose(reason);
        }
    }
}

pub(super) struct Waiter {
    session: Arc<Session>,
    holder: String,
    woken: Arc<Notify>,
}

impl Waiter {
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        locked(&self.session.shared.waiting).remove(&self.holder);
    }
}

/// Whether the server replicates from another one. A simple query, as poolers may not support prepared statements.
async fn is_standby(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let messages = client.simple_query("SELECT pg_is_in_recovery()").await?;
    Ok(messages
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"))))
}

/// One error for the failures of all servers, of the kind of the first that an operator has to act on.
fn in_one(failures: Vec<Error>) -> Error {
    let reasons: Vec<String> = match failures.as_slice() {
        [_] => Vec::new(),
        failures => failures.iter().map(|failure| failure.to_string()).collect(),
    };
    let acts = |failure: &Error| RejectionKind::of(failure) != Some(RejectionKind::Unavailable);
    let first = failures.iter().position(acts).unwrap_or_default();
    match failures.into_iter().nth(first) {
        Some(failure) if reasons.is_empty() => failure,
        Some(failure) => {
            failure.with_reason(|_| format!("none of its servers is a primary: {}", reasons.join("; ")))
        }
        None => unavailable("it names no host".into()),
    }
}

/// Runs the connection and forwards its notifications.
async fn run(mut connection: PostgresConnection, shared: Arc<Shared>) {
    let reason = loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(note))) if note.channel() == "lockkeeper_changed" => {
                shared.changed.send_replace(());
            }
            Some(Ok(AsyncMessage::Notification(note))) => {
                if let Some(woken) = locked(&shared.waiting).get(note.payload()) {
                    woken.notify_one();
                }
            }
            Some(Ok(_)) => {}
            Some(Err(e)) => break format!("the connection ended: {}", in_words(&e)),
            None => break "the connection ended".into(),
        }
    };
    shared.end(&reason);
}

/// Creates the schema if it does not exist, or replaces that of an earlier version.
async fn install(client: &Client) -> Result<(), tokio_postgres::Error> {
    if is_installed(client).await? {
        return Ok(());
    }
    // Serialized, as two concurrent installations would conflict in the catalogue.
    client.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(19277, 0)").await?;
    if !is_installed(client).await? {
        client.batch_execute(SCHEMA).await?;
    }
    client.batch_execute("COMMIT").await
}

/// Whether the schema has this version. A later version is an error: replacing it would remove what it adds.
async fn is_installed(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let comment = "SELECT obj_description(to_regnamespace('lockkeeper')::oid, 'pg_namespace')";
    let row = client.query_one(comment, &[]).await?;
    let comment: Option<String> = row.try_get(0)?;
    let version: Option<u32> = comment.and_then(|comment| comment.strip_prefix("lockkeeper ")?.parse().ok());
    if let Some(later) = version.filter(|version| *version > VERSION) {
        let error = format!(
            "DO $$ BEGIN RAISE 'the schema `lockkeeper` has version {later}, and this program knows versions up to \
             {VERSION}: update it'; END $$"
        );
        client.batch_execute(&error).await?;
    }
    Ok(version == Some(VERSION))
}

/// Resolves when another session of the server of `near` has ended, that is, when its advisory lock is available. Uses a
/// separate connection, which blocks.
pub(super) async fn death_of(near: &Session, session: i64) -> Option<()> {
    let (client, connection) = near.servers.connect(&near.host).await.ok()?;
    let _connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    // If this client is gone, the server must stop waiting.
    client.batch_execute("SET client_connection_check_interval = '1s'; SET lock_timeout = 0").await.ok()?;
    let wait = "SELECT pg_advisory_lock_shared(lockkeeper.life($1))";
    client.query_typed(wait, &[(&session, Type::INT8)]).await.ok()?;
    Some(())
}

/// Ends a connection's task when dropped.
pub(super) struct AbortOnDrop(pub tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn unavailable(reason: String) -> Error {
    Error::unavailable("postgres", reason)
}

/// The address as host:port, for messages.
fn address_of(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        Some(tokio_postgres::config::Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
    };
    format!("{host}:{}", config.get_ports().first().unwrap_or(&5432))
}

/// The server's own message, if there is one.
fn in_words(e: &tokio_postgres::Error) -> String {
    match e.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => std::error::Error::source(e).map_or_else(|| e.to_string(), |source| source.to_string()),
    }
}

fn explain(address: &str, config: &Config, e: tokio_postgres::Error) -> Error {
    kind(&e).error("postgres", explanation(address, config, &e)).caused_by(e)
}

/// The kind of a failure.
fn kind(e: &tokio_postgres::Error) -> RejectionKind {
    match e.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            RejectionKind::Unauthenticated
        }
        None if in_words(e).contains("password missing") => RejectionKind::Unauthenticated,
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => RejectionKind::PermissionDenied,
        // Class 53, insufficient resources: connections, memory, disk.
        Some(code) if code.code().starts_with("53") => RejectionKind::LimitExceeded,
        _ => RejectionKind::Unavailable,
    }
}

fn explanation(address: &str, config: &Config, e: &tokio_postgres::Error) -> String {
    let words = in_words(e);
    if let Some(sentence) = tls::explain(e) {
        return format!("{address}: {sentence}");
    }
    let io = std::error::Error::source(e).and_then(|source| source.downcast_ref::<std::io::Error>());
    let refused = io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
    match e.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            let tls = if words.contains("no encryption") { "; use TLS: sslmode=verify-full" } else { "" };
            format!("{address} does not accept this user and password: {words}{tls}")
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => {
            format!("{address} has no database `{}`", config.get_dbname().unwrap_or_default())
        }
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => format!(
            "{address} does not permit this: {words}. Open it once as a user who may create the schema `lockkeeper`, \
             then grant usage of the schema and all rights on its tables and sequences"
        ),
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => {
            format!("{address} is a read-only standby; name the primary")
        }
        Some(&SqlState::UNDEFINED_OBJECT) => {
            format!("{address} is too old, 14 is the oldest that works: {words}")
        }
        Some(&SqlState::TOO_MANY_CONNECTIONS) => format!("{address} has no connection left: {words}"),
        Some(&SqlState::CANNOT_CONNECT_NOW) => {
            format!("{address} is starting up or shutting down; try again")
        }
        Some(_) => format!("{address}: {words}"),
        None if refused => format!("{address} refuses connections; is PostgreSQL running there?"),
        None if io.is_some() => format!("{address}: {words}; is it PostgreSQL?"),
        None if words.contains("server does not support TLS") => {
            format!("{address} has no TLS; set `ssl = on` and a certificate there, or use sslmode=disable")
        }
        None if e.to_string().contains("TLS") => format!("{address}: {words}; does it use TLS at this port?"),
        // The library needs a password and has none.
        None if words.contains("password missing") => {
            format!(
                "{address} requires a password: write user:password@host, or use ?passfile=FILE or PGPASSWORD"
            )
        }
        None if e.to_string().contains("config") => format!("{address}: {e}: {words}"),
        None => format!(
            "what answers at {address} does not speak PostgreSQL's protocol ({words}); is the port right?"
        ),
    }
}
