//! The server: connections, calls and their repetition, the tables, and the texts of errors.

use super::grants::Grants;
use super::settings::Settings;
use crate::engine::tls;
use crate::error::RejectionKind;
use crate::{Error, Result};
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, DriverError, Error as MysqlError, IoError, Params, Row, Value};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The time limit for a connection, or for a call with its repetitions.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for the creation of the tables: other clients may be creating them.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// The limit on connections of one [`Server`]. Calls beyond it wait for each other.
const CONNECTIONS: usize = 6;

/// The version of the tables and procedures, which the table `lockkeeper_schema` has.
const VERSION: i64 = 1;
const MAX_VERSION: &str = "SELECT MAX(version) FROM lockkeeper_schema";
const SCHEMA: &str = include_str!("schema.sql");

/// Errors of the server after which the same call can succeed: a changed row, a lock that another client had for too
/// long, a deadlock.
const PASSING: [u16; 3] = [1020, 1205, 1213];

/// Errors of the server while it starts or stops, or after an operator or a limit has ended a statement or a connection.
/// The handlers of a procedure do not run then, so that a transaction may be open: only the end of the connection is
/// certain to undo it.
const STOPPING: [u16; 6] = [1053, 1077, 1079, 1317, 1927, 4031];

pub(super) struct Server {
    settings: Settings,
    /// The id of this instance in the rows of its requests.
    pub client: String,
    pub grants: Grants,
    idle: Mutex<Vec<Conn>>,
    connections: tokio::sync::Semaphore,
}

/// The result of a call.
pub(super) struct Reply {
    pub rows: Vec<Row>,
    /// The number of rows that an update has found.
    pub matched: u64,
    /// The call was sent more than once, and may have taken effect before.
    pub repeated: bool,
}

/// A failed attempt.
enum Failure {
    /// The connection is broken; the call may have taken effect.
    Connection(Error),
    /// The server has undone the call.
    Undone(Error),
    /// The server rejects the call.
    Rejected(Error),
}

impl Server {
    /// Connects, and creates the tables if needed.
    pub async fn open(settings: Settings) -> Result<Server> {
        let mut server = Server {
            settings,
            client: String::new(),
            grants: Grants::default(),
            idle: Mutex::default(),
            connections: tokio::sync::Semaphore::new(CONNECTIONS),
        };
        let mut connection = server.connect().await?;
        let setting_up = async {
            install(&mut connection).await?;
            connection.query_first::<Row, _>("SELECT UUID()").await
        };
        let client = timeout(SETUP_TIMEOUT, setting_up).await.map_err(|_| {
            let address = &server.settings.address;
            unavailable(format!("{address} did not set up the tables within {SETUP_TIMEOUT:?}"))
        })?;
        let row = client.map_err(|e| server.explain(e))?.ok_or_else(no_rows)?;
        server.client = column(&row, 0)?;
        server.idle().push(connection);
        Ok(server)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Conn>> {
        self.idle.lock().unwrap_or_else(|e| e.into_inner())
    }

    async fn connect(&self) -> Result<Conn> {
        let address = &self.settings.address;
        let connecting = async {
            match (Conn::new(self.settings.opts.clone()).await, &self.settings.without_tls) {
                (Err(MysqlError::Driver(DriverError::NoClientSslFlagFromServer)), Some(without_tls)) => {
                    Conn::new(without_tls.clone()).await
                }
                (connected, _) => connected,
            }
        };
        match timeout(CALL_TIMEOUT, connecting).await {
            Ok(connection) => connection.map_err(|e| self.explain(e)),
            Err(_) => Err(unavailable(format!(
                "{address} did not answer as MySQL does within {CALL_TIMEOUT:?}; is the port right?"
            ))),
        }
    }

    /// Executes a statement. Executing it twice must be harmless.
    pub async fn call(self: &Arc<Self>, sql: &'static str, values: Vec<Value>) -> Result<Reply> {
        self.call_holding(sql, values, ()).await
    }

    /// Executes a statement, and drops `held` when it has ended, also if this future is dropped before.
    pub async fn call_holding(
        self: &Arc<Self>,
        sql: &'static str,
        values: Vec<Value>,
        held: impl Send + 'static,
    ) -> Result<Reply> {
        let server = self.clone();
        let call = tokio::spawn(async move {
            let _held = held;
            server.repeat(sql, values).await
        });
        call.await.unwrap_or_else(|_| Err(unavailable("the runtime of this process has ended")))
    }

    async fn repeat(&self, sql: &str, values: Vec<Value>) -> Result<Reply> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let mut repeated = false;
        loop {
            let error = match self.attempt(sql, &values, deadline).await {
                Ok(reply) => return Ok(Reply { repeated, ..reply }),
                Err(Failure::Rejected(error)) => return Err(error),
                Err(Failure::Undone(error)) => error,
                Err(Failure::Connection(error)) => {
                    repeated = true;
                    error
                }
            };
            if Instant::now() + PAUSE >= deadline {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, sql: &str, values: &[Value], deadline: Instant) -> Result<Reply, Failure> {
        let silent = |_| {
            let address = &self.settings.address;
            Failure::Connection(unavailable(format!("{address} did not answer within {CALL_TIMEOUT:?}")))
        };
        let left = || deadline.saturating_duration_since(Instant::now());
        // The semaphore is never closed.
        let _permit = timeout(left(), self.connections.acquire()).await.map_err(silent)?;
        let idle = self.idle().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let connecting = timeout(left(), self.connect()).await.map_err(silent)?;
                // No call was sent.
                connecting.map_err(|error| match error {
                    Error::Unavailable { .. } => Failure::Undone(error),
                    _ => Failure::Rejected(error),
                })?
            }
        };
        let params = match values {
            [] => Params::Empty,
            values => Params::Positional(values.to_vec()),
        };
        // A connection that is not returned to the idle ones is closed.
        let rows = timeout(left(), connection.exec::<Row, _, _>(sql, params)).await.map_err(silent)?;
        match rows {
            Ok(rows) => {
                let matched = connection.affected_rows();
                self.idle().push(connection);
                Ok(Reply { rows, matched, repeated: false })
            }
            Err(MysqlError::Server(e)) if STOPPING.contains(&e.code) => {
                Err(Failure::Connection(self.explain(MysqlError::Server(e))))
            }
            Err(MysqlError::Server(e)) if PASSING.contains(&e.code) => {
                self.idle().push(connection);
                Err(Failure::Undone(self.explain(MysqlError::Server(e))))
            }
            // The connection is closed, which ends a transaction that the statement has left open.
            Err(MysqlError::Server(e)) => Err(Failure::Rejected(self.explain(MysqlError::Server(e)))),
            Err(error) => {
                // The others are probably broken, too.
                self.idle().clear();
                Err(Failure::Connection(self.explain(error)))
            }
        }
    }

    fn explain(&self, error: MysqlError) -> Error {
        kind(&error).error("mysql", self.explanation(&error)).caused_by(error)
    }

    fn explanation(&self, error: &MysqlError) -> String {
        let Settings { address, database, .. } = &self.settings;
        if let Some(sentence) = tls::explain(error) {
            // The names of the options of MySQL's own clients.
            let sentence = sentence.replace("option ca; PostgreSQL: sslrootcert", "option ssl-ca").replace(
                "options cert and key; PostgreSQL: sslcert and sslkey",
                "options ssl-cert and ssl-key",
            );
            return format!("{address}: {sentence}");
        }
        match error {
            MysqlError::Server(e) => match e.code {
                1045 | 1698 => format!(
                    "{address} does not accept this user and password, or requires TLS of this user \
                     (?ssl-mode=VERIFY_IDENTITY)"
                ),
                1049 => format!("{address} has no database `{database}`"),
                1044 | 1142 | 1143 | 1227 | 1370 => format!(
                    "{address} does not permit this: {}. Open it once as a user who may create tables and procedures in \
                     `{database}`, then grant SELECT, INSERT, UPDATE, DELETE and EXECUTE on it",
                    e.message
                ),
                1290 | 1792 | 1836 => {
                    format!("{address} is read-only; name the server that accepts writes ({})", e.message)
                }
                1040 | 1203 | 1226 => format!("{address} has no connection left: {}", e.message),
                _ => format!("{address}: {} (error {})", e.message, e.code),
            },
            MysqlError::Io(IoError::Io(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                format!("{address} refuses connections; is MySQL running there?")
            }
            MysqlError::Io(IoError::Io(e)) => format!("{address}: {e}; is it MySQL?"),
            MysqlError::Io(IoError::Tls(e)) => format!("{address}: {e}"),
            MysqlError::Driver(DriverError::NoClientSslFlagFromServer) => {
                format!("{address} has no TLS; configure its certificate, or use ssl-mode=DISABLED")
            }
            // The library's text for this error does not name the cause.
            MysqlError::Driver(DriverError::ConnectionClosed) => {
                format!("{address} closed the connection; is it MySQL?")
            }
            other => {
                format!(
                    "what answers at {address} does not speak MySQL's protocol ({other}); is the port right?"
                )
            }
        }
    }
}

/// The kind of a failure.
fn kind(error: &MysqlError) -> RejectionKind {
    match error {
        MysqlError::Server(e) => match e.code {
            1045 | 1698 => RejectionKind::Unauthenticated,
            1044 | 1142 | 1143 | 1227 | 1370 => RejectionKind::PermissionDenied,
            1040 | 1203 | 1226 => RejectionKind::LimitExceeded,
            _ => RejectionKind::Unavailable,
        },
        _ => RejectionKind::Unavailable,
    }
}

/// Creates the tables and procedures if they do not exist.
async fn install(connection: &mut Conn) -> Result<(), MysqlError> {
    if is_installed(connection).await? {
        return Ok(());
    }
    // Serialized, as the server has no transactions for tables and procedures. The lock ends with the connection.
    let lock = "SELECT GET_LOCK(CONCAT('lockkeeper ', MD5(DATABASE())), 20)";
    connection.query_drop(lock).await?;
    if !is_installed(connection).await? {
        for statement in SCHEMA.split("\n//\n") {
            connection.query_drop(statement).await?;
        }
    }
    connection.query_drop("DO RELEASE_LOCK(CONCAT('lockkeeper ', MD5(DATABASE())))").await
}

/// Whether the tables have this version. A later version is an error: replacing it would remove what it adds.
async fn is_installed(connection: &mut Conn) -> Result<bool, MysqlError> {
    let version: Option<i64> = match connection.query_first::<Row, _>(MAX_VERSION).await {
        // No such table.
        Err(MysqlError::Server(e)) if e.code == 1146 => None,
        row => row?.and_then(|row| row.get_opt::<Option<i64>, _>(0)?.ok()?),
    };
    if let Some(later) = version.filter(|version| *version > VERSION) {
        let text = format!(
            "the tables of Lockkeeper have version {later}, and this program knows versions up to {VERSION}: update it"
        );
        connection.query_drop(format!("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{text}'")).await?;
    }
    Ok(version == Some(VERSION))
}

/// A parameter of a call.
pub(super) fn value(value: impl Into<Value>) -> Value {
    value.into()
}

/// The value of a column.
pub(super) fn column<T: FromValue>(row: &Row, index: usize) -> Result<T> {
    row.get_opt(index).and_then(|value| value.ok()).ok_or_else(no_rows)
}

pub(super) fn no_rows() -> Error {
    unavailable("the tables `lockkeeper_…` have rows of another form; are they of another version?")
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::unavailable("mysql", reason)
}
