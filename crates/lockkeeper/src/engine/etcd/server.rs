//! Talking to etcd: every call limited in time, repeated when it may have been lost, refused in words.

use super::keys::Range;
use crate::engine::servers::Servers;
use crate::lease::NotRenewed;
use crate::{Error, Result};
use etcd_client::{
    Client, ConnectOptions, Error as EtcdError, GetOptions, GetResponse, KeyValue, KvClient, LeaseClient,
    LeaseGrantOptions, Txn, TxnResponse, WatchClient, WatchOptions, WatchStream,
};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a caller waits for a server that does not answer, where no lease says so.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long one call may take before it is sent again, perhaps to another server.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Keys with values per answer: at most 16 KiB each, and gRPC refuses messages over 4 MiB.
const PAGE: i64 = 200;

/// Status codes of gRPC after which the same call may succeed: cancelled, unknown, deadline exceeded,
/// resource exhausted, aborted, internal, unavailable.
const PASSING: [i32; 7] = [1, 2, 4, 8, 10, 13, 14];
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;

/// What to read of each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Keys,
    Values,
}

/// What was in a range, all at one revision of the store.
pub(super) struct Found {
    pub entries: Vec<KeyValue>,
    pub revision: i64,
}

pub(super) struct Server {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
}

impl Server {
    /// Connects. `url` is for messages.
    pub async fn connect(url: &str, servers: Servers) -> Result<Server> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ATTEMPT)
            // So that a watch on a dead connection ends. etcd takes more than one ping in 5 s for an attack.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_auto_token_refresh(true)
            // A member cut off from its cluster must say so instead of leaving watchers in silence.
            .with_require_leader(true);
        if let Some((user, password)) = servers.user {
            options = options.with_user(user, password);
        }
        let connected = persist(PATIENCE, || Client::connect(&servers.hosts, Some(options.clone()))).await;
        let client = connected.map_err(|error| match error {
            Error::Unavailable { engine, reason } => {
                Error::Unavailable { engine, reason: format!("{reason} (at {url})") }
            }
            other => other,
        })?;
        Ok(Server { kv: client.kv_client(), lease: client.lease_client(), watch: client.watch_client() })
    }

    /// Everything in a range, page by page.
    pub async fn scan(&self, range: Range, read: Read) -> Result<Found> {
        self.scan_within(PATIENCE, range, read).await
    }

    pub async fn scan_within(&self, patience: Duration, range: Range, read: Read) -> Result<Found> {
        let mut found = Found { entries: Vec::new(), revision: 0 };
        let mut start = range.start.into_bytes();
        loop {
            let mut options = page(read).with_range(range.end.as_str());
            if found.revision > 0 {
                options = options.with_revision(found.revision);
            }
            let get = || {
                let (mut kv, start, options) = (self.kv.clone(), start.clone(), options.clone());
                async move { kv.get(start, Some(options)).await }
            };
            let mut answer: GetResponse = persist(patience, get).await?;
            if found.revision == 0 {
                found.revision = answer.header().map_or(0, |header| header.revision());
            }
            let more = answer.more();
            found.entries.extend(answer.take_kvs());
            match found.entries.last() {
                Some(last) if more => start = [last.key(), b"\0"].concat(),
                _ => return Ok(found),
            }
        }
    }

    pub async fn transact(&self, patience: Duration, txn: Txn) -> Result<TxnResponse> {
        let call = || {
            let (mut kv, txn) = (self.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        };
        persist(patience, call).await
    }

    /// Grants the lease `id`. True if so; false if somebody else has that id.
    pub async fn grant(&self, id: i64, seconds: i64) -> Result<bool> {
        let mut sent = false;
        let call = || {
            let mut lease = self.lease.clone();
            let again = std::mem::replace(&mut sent, true);
            async move {
                match lease.grant(seconds, Some(LeaseGrantOptions::new().with_id(id))).await {
                    Ok(granted) if granted.ttl() >= seconds => Ok(true),
                    Ok(_) => Err(EtcdError::Internal("the server shortened the lease".into())),
                    // Our own grant, whose answer was lost.
                    Err(error) if is_lease_exists(&error) => Ok(again),
                    Err(error) => Err(error),
                }
            }
        };
        persist(PATIENCE, call).await
    }

    /// One renewal.
    pub async fn renew(&self, id: i64) -> Result<(), NotRenewed> {
        match self.lease.clone().keep_alive(id).await {
            Ok(_) => Ok(()),
            Err(EtcdError::LeaseKeepAliveError(reason)) if reason.contains("not found") => {
                Err(NotRenewed::Gone("etcd says that its lease has ended".into()))
            }
            Err(_) => Err(NotRenewed::TryAgain),
        }
    }

    /// Ends a lease and deletes its keys. True if this call did; false if it had ended before.
    pub async fn revoke(&self, id: i64) -> Result<bool> {
        let mut sent = false;
        let call = || {
            let mut lease = self.lease.clone();
            let again = std::mem::replace(&mut sent, true);
            async move {
                match lease.revoke(id).await {
                    Ok(_) => Ok(true),
                    // Repeated: perhaps the first one did it.
                    Err(EtcdError::GRpcStatus(status)) if status.code() as i32 == NOT_FOUND => Ok(again),
                    Err(error) => Err(error),
                }
            }
        };
        persist(PATIENCE, call).await
    }

    /// Starts to watch; every change from `revision` on will be seen.
    pub async fn watch(&self, patience: Duration, key: &str, options: WatchOptions) -> Result<WatchStream> {
        let call = || {
            let (mut watch, options) = (self.watch.clone(), options.clone());
            async move { watch.watch(key, Some(options)).await }
        };
        persist(patience, call).await
    }
}

/// The options of a read that fits one answer.
pub(super) fn page(read: Read) -> GetOptions {
    let options = GetOptions::new().with_limit(PAGE);
    if read == Read::Keys { options.with_keys_only() } else { options }
}

/// Calls until answered, refused or out of patience. Whatever is called must bear being done twice.
async fn persist<T, F>(patience: Duration, mut call: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, EtcdError>>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let attempt_end = Instant::now() + ATTEMPT.min(patience);
        let reason = match timeout_at(attempt_end, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if is_passing(&error) => words(&error),
            Ok(Err(error)) => return Err(unavailable(words(&error))),
            Err(_) => "no answer".into(),
        };
        if start.elapsed() + pause >= patience {
            return Err(unavailable(format!("{reason}; is it etcd, and does it run?")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn is_passing(error: &EtcdError) -> bool {
    match error {
        EtcdError::GRpcStatus(status) => PASSING.contains(&(status.code() as i32)),
        EtcdError::TransportError(_) | EtcdError::IoError(_) | EtcdError::WatchError(_) => true,
        _ => false,
    }
}

fn is_lease_exists(error: &EtcdError) -> bool {
    matches!(error, EtcdError::GRpcStatus(status) if status.message().contains("lease already exists"))
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable { engine: "etcd", reason: reason.into() }
}

/// What etcd or the transport said, for people. Nothing that we sent is in there, and so no password.
fn words(error: &EtcdError) -> String {
    let EtcdError::GRpcStatus(status) = error else { return chain(error) };
    let message = status.message();
    match message {
        _ if message.contains("invalid user ID or password") => "wrong user or password".into(),
        _ if message.contains("authentication is not enabled") => {
            "the URL names a user, but this server has no authentication".into()
        }
        _ if message.contains("user name is empty") => {
            "this server wants a user and a password: etcd://user:password@host:port".into()
        }
        _ if status.code() as i32 == PERMISSION_DENIED => {
            format!("this user may not read and write the locks' keys ({message})")
        }
        "" => chain(status),
        _ => match std::error::Error::source(status) {
            Some(_) => chain(status),
            None => message.into(),
        },
    }
}

/// An error with its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
