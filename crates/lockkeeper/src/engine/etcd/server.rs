//! Requests to etcd. Each has a time limit, is repeated when its reply may have been lost, and fails with a reason.

use super::connection::Connection;
use super::keys::Range;
use super::requests::{Read, page};
use crate::engine::EngineUrl;
use crate::engine::servers::Servers;
use crate::lease::NotRenewed;
use crate::{Error, Result};
use futures_util::{Stream, StreamExt, stream};
use lockkeeper_etcd_api::etcdserverpb::kv_client::KvClient;
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::watch_client::WatchClient;
use lockkeeper_etcd_api::etcdserverpb::watch_request::RequestUnion;
use lockkeeper_etcd_api::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use lockkeeper_etcd_api::mvccpb::KeyValue;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, Streaming};

/// The time limit for a request that is not limited by a lease.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for one attempt, before the request is sent again, perhaps to another server.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The keys of a range, all at one revision of the store.
pub(super) struct Found {
    pub entries: Vec<KeyValue>,
    pub revision: i64,
}

/// A client of an etcd cluster.
pub(super) struct Server {
    connection: Connection,
}

impl Server {
    /// Connects, and authenticates the user that the URL names. `url` is for error messages.
    pub async fn connect(url: &EngineUrl, servers: Servers) -> Result<Server> {
        let connection = Connection::new(&servers.hosts, servers.user)
            .map_err(|error| url.bad(format!("a host is no address of a server: {error}")))?;
        let authenticated = persist(CALL_TIMEOUT, || connection.authenticate(None)).await;
        authenticated.map_err(|error| match error {
            Error::Unavailable { engine, reason } => {
                Error::Unavailable { engine, reason: format!("{reason} (at {url})") }
            }
            other => other,
        })?;
        Ok(Server { connection })
    }

    /// Reads all keys of a range, page by page.
    pub async fn scan(&self, range: Range, read: Read) -> Result<Found> {
        self.scan_within(CALL_TIMEOUT, range, read).await
    }

    pub async fn scan_within(&self, limit: Duration, range: Range, read: Read) -> Result<Found> {
        let mut found = Found { entries: Vec::new(), revision: 0 };
        let mut request = page(&range, read);
        loop {
            let send = || {
                self.connection.call(|service| {
                    let request = request.clone();
                    async move { KvClient::new(service).range(request).await }
                })
            };
            let reply = persist(limit, send).await?.into_inner();
            if found.revision == 0 {
                found.revision = reply.header.map_or(0, |header| header.revision);
                // The pages that follow are read at the same revision.
                request.revision = found.revision;
            }
            found.entries.extend(reply.kvs);
            match found.entries.last() {
                Some(last) if reply.more => request.key = [&last.key[..], b"\0"].concat(),
                _ => return Ok(found),
            }
        }
    }

    pub async fn transact(&self, limit: Duration, request: TxnRequest) -> Result<TxnResponse> {
        let send = || {
            self.connection.call(|service| {
                let request = request.clone();
                async move { KvClient::new(service).txn(request).await }
            })
        };
        Ok(persist(limit, send).await?.into_inner())
    }

    /// Grants the lease `id`. False if another client has a lease of that id.
    pub async fn grant(&self, id: i64, seconds: i64) -> Result<bool> {
        let mut sent = false;
        let send = || {
            let again = std::mem::replace(&mut sent, true);
            async move {
                let request = LeaseGrantRequest { ttl: seconds, id };
                let send = |service| async move { LeaseClient::new(service).lease_grant(request).await };
                match self.connection.call(send).await {
                    Ok(granted) => Ok(Some(granted.into_inner().ttl)),
                    // This is our own grant, whose reply was lost.
                    Err(status) if status.message().contains("lease already exists") => {
                        Ok(again.then_some(seconds))
                    }
                    Err(status) => Err(status),
                }
            }
        };
        match persist(CALL_TIMEOUT, send).await? {
            None => Ok(false),
            Some(granted) if granted >= seconds => Ok(true),
            Some(granted) => Err(unavailable(format!(
                "it granted a lease of {granted} s although {seconds} s were requested"
            ))),
        }
    }

    /// Sends one renewal.
    pub async fn renew(&self, id: i64) -> Result<(), NotRenewed> {
        let send = |service| async move {
            let request = kept_open(LeaseKeepAliveRequest { id });
            let mut replies = LeaseClient::new(service).lease_keep_alive(request).await?.into_inner();
            replies.message().await
        };
        match self.connection.call(send).await {
            Ok(Some(reply)) if reply.ttl > 0 => Ok(()),
            Ok(Some(_)) => Err(NotRenewed::Gone("etcd reports that its lease has ended".into())),
            Ok(None) => Err(NotRenewed::TryAgain("the server closed the stream of renewals".into())),
            Err(status) => Err(NotRenewed::TryAgain(error_text(&status))),
        }
    }

    /// Revokes a lease, which deletes its keys. Returns true if this call ended it, false if it had ended before.
    pub async fn revoke(&self, id: i64) -> Result<bool> {
        let mut sent = false;
        let send = || {
            let again = std::mem::replace(&mut sent, true);
            async move {
                let request = LeaseRevokeRequest { id };
                let send = |service| async move { LeaseClient::new(service).lease_revoke(request).await };
                match self.connection.call(send).await {
                    Ok(_) => Ok(true),
                    // In a repeated request: the first one may have been executed.
                    Err(status) if status.code() == Code::NotFound => Ok(again),
                    Err(status) => Err(status),
                }
            }
        };
        persist(CALL_TIMEOUT, send).await
    }

    /// The rest of a lease; `None` if it has ended.
    pub async fn time_to_live(&self, id: i64) -> Result<Option<Duration>> {
        let send = || async move {
            let request = LeaseTimeToLiveRequest { id, keys: false };
            let send = |service| async move { LeaseClient::new(service).lease_time_to_live(request).await };
            match self.connection.call(send).await {
                Err(status) if status.code() == Code::NotFound => Ok(None),
                reply => Ok(u64::try_from(reply?.into_inner().ttl).ok().filter(|seconds| *seconds > 0)),
            }
        };
        Ok(persist(CALL_TIMEOUT, send).await?.map(Duration::from_secs))
    }

    /// Starts a watch. The stream has every change from the start revision on.
    pub async fn watch(
        &self,
        limit: Duration,
        request: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>> {
        let send = || {
            self.connection.call(|service| {
                let create = RequestUnion::CreateRequest(request.clone());
                let request = kept_open(WatchRequest { request_union: Some(create) });
                async move { WatchClient::new(service).watch(request).await }
            })
        };
        Ok(persist(limit, send).await?.into_inner())
    }
}

/// A stream of one message that stays open until it is dropped: etcd ends watches when their client closes its side.
fn kept_open<T: Send + 'static>(message: T) -> impl Stream<Item = T> + Send + 'static {
    stream::iter([message]).chain(stream::pending())
}

/// Sends a request until it succeeds, is rejected, or `limit` has passed. Executing the request twice must be
/// harmless.
async fn persist<T, F>(limit: Duration, mut send: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, Status>>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let attempt_end = Instant::now() + ATTEMPT.min(limit);
        let reason = match timeout_at(attempt_end, send()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) if is_passing(&status) => error_text(&status),
            Ok(Err(status)) => return Err(unavailable(error_text(&status))),
            Err(_) => "no answer".into(),
        };
        if start.elapsed() + pause >= limit {
            return Err(unavailable(format!("{reason}; is it etcd, and does it run?")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Whether the same request may succeed later.
fn is_passing(status: &Status) -> bool {
    use Code::{Aborted, Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable, Unknown};
    let passing = [Cancelled, Unknown, DeadlineExceeded, ResourceExhausted, Aborted, Internal, Unavailable];
    passing.contains(&status.code())
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable { engine: "etcd", reason: reason.into() }
}

/// Describes an error of etcd or of the transport for a user. It contains nothing that we sent, and so no password.
fn error_text(status: &Status) -> String {
    let message = status.message();
    match message {
        _ if message.contains("invalid user ID or password") => "wrong user or password".into(),
        _ if message.contains("authentication is not enabled") => {
            "the URL names a user, but this server has no authentication".into()
        }
        _ if message.contains("user name is empty") => {
            "this server wants a user and a password: etcd://user:password@host:port".into()
        }
        _ if status.code() == Code::PermissionDenied => {
            format!("this user may not read and write the locks' keys ({message})")
        }
        "" => chain(status),
        _ => match std::error::Error::source(status) {
            Some(_) => chain(status),
            None => message.into(),
        },
    }
}

/// An error with its causes, without repetitions.
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
