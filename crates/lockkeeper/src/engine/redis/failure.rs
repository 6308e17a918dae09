//! Failed requests to Redis: whether another attempt may succeed, and the texts of the errors.

use super::address::Host;
use super::locate::LocateError;
use crate::Error;
use crate::engine::tls;
use crate::error::RejectionKind;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::time::Duration;

/// A failed request.
pub(super) struct Failure {
    /// Whether the connection broke, so that a new one may help.
    pub broken: bool,
    /// Whether the request may succeed once another server has taken over.
    pub passing: bool,
    pub error: Error,
}

/// The errors of a server.
pub(super) struct Failures {
    pub engine: &'static str,
    /// The server, or the servers, for messages.
    pub place: String,
}

impl Failures {
    fn unavailable(&self, reason: String) -> Error {
        Error::unavailable(self.engine, reason)
    }

    /// No reply in time.
    pub fn silent(&self, host: &Host, within: Duration) -> Error {
        let hint = if host.has_tls() { "; does it run, and use TLS at this port?" } else { "" };
        self.unavailable(format!("{} did not answer within {within:?}{hint}", host.address))
    }

    pub fn unexpected_reply(&self, what: &str) -> Error {
        self.unavailable(format!("{}: {what}", self.place))
    }

    /// The search for the server took too long.
    pub fn not_located(&self, within: Duration) -> Failure {
        let error = self.unavailable(format!("{} was not found within {within:?}", self.place));
        Failure { broken: true, passing: true, error }
    }

    /// The search for the server failed.
    pub fn not_found(&self, error: LocateError) -> Failure {
        let place = &self.place;
        match error {
            LocateError::Failed { host, source } => {
                let failure = self.explain_at(&host, source);
                Failure {
                    error: failure.error.with_reason(|why| format!("cannot find {place}: {why}")),
                    ..failure
                }
            }
            error => {
                let passing = matches!(error, LocateError::Silent { .. });
                let error = self.unavailable(format!("cannot find {place}: {error}")).caused_by(error);
                Failure { broken: true, passing, error }
            }
        }
    }

    pub fn explain(&self, host: &Host, e: RedisError) -> Failure {
        self.explain_at(&host.address, e)
    }

    fn explain_at(&self, address: &str, e: RedisError) -> Failure {
        let kind = kind(&e);
        let broken = e.is_io_error();
        let passing = broken || is_failover(&e);
        let error = kind.error(self.engine, explanation(address, &e)).caused_by(e);
        Failure { broken, passing, error }
    }

    /// Completes the error about a server that was reached without TLS, and uses it.
    pub async fn with_tls_hint(&self, failure: Failure, host: &Host) -> Failure {
        let refused = failure.error.to_string().contains("refuses connections");
        if host.has_tls() || refused || !matches!(failure.error, Error::Unavailable { .. }) {
            return failure;
        }
        if !tls::speaks_tls(&host.address).await {
            return failure;
        }
        let text = format!("{} uses TLS; write rediss:// instead of redis://", host.address);
        Failure { passing: false, error: failure.error.with_reason(|_| text), ..failure }
    }
}

/// Whether a server rejects requests because another one has taken over, or is about to.
fn is_failover(e: &RedisError) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    match e.kind() {
        ErrorKind::Server(kind) => {
            matches!(kind, Ask | BusyLoading | ClusterDown | MasterDown | Moved | ReadOnly | TryAgain)
        }
        _ => e.code() == Some("NOREPLICAS"),
    }
}

/// The kind of a failure.
fn kind(e: &RedisError) -> RejectionKind {
    match (e.kind(), e.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            RejectionKind::Unauthenticated
        }
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => RejectionKind::PermissionDenied,
        (_, Some("OOM")) => RejectionKind::LimitExceeded,
        _ if has_no_connection_left(e) => RejectionKind::LimitExceeded,
        _ => RejectionKind::Unavailable,
    }
}

/// Redis reports this limit without a code of its own, and closes the connection.
fn has_no_connection_left(e: &RedisError) -> bool {
    e.to_string().contains("max number of clients")
}

/// Describes a failure for a user. It contains nothing that we sent, and so no password.
fn explanation(address: &str, e: &RedisError) -> String {
    if let Some(sentence) = tls::explain(e) {
        return format!("{address}: {sentence}");
    }
    match (e.kind(), e.code()) {
        _ if e.is_connection_refusal() => {
            format!("{address} refuses connections; is Redis running there?")
        }
        _ if e.is_timeout() => format!("{address} did not answer in time"),
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => {
            format!("{address} does not accept this user and password")
        }
        (_, Some("NOAUTH")) => format!("{address} asks for a password: redis://user:password@host"),
        (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
            format!("{address} does not permit this user to run the keeper script: {e}")
        }
        (_, Some("OOM")) => {
            format!("{address} has no memory left for locks: raise its maxmemory")
        }
        _ if has_no_connection_left(e) => {
            format!("{address} has no connection left: raise its maxclients")
        }
        (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
            format!("{address} is a read-only replica; name the primary")
        }
        (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => {
            format!("{address} is still loading its data; try again")
        }
        (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::ClusterDown), _) => {
            format!("{address} is a member of a Redis Cluster; write redis-cluster://host,host,host")
        }
        (ErrorKind::Parse, _) => {
            format!("what answers at {address} does not speak Redis's protocol; is the port right?")
        }
        _ if e.is_connection_dropped() => {
            format!("{address} closed the connection; is it Redis, without TLS?")
        }
        _ => format!("{address}: {e}"),
    }
}
