//! Requests to etcd. Each has a time limit, is repeated when its reply may have been lost, and fails with a reason.

use super::connection::Connection;
use super::keys::Range;
use super::requests::{Read, page};
use crate::engine::EngineUrl;
use crate::engine::options::TLS;
use crate::engine::servers::{Login, Servers};
use crate::engine::tls::{self, Tls};
use crate::error::RejectionKind;
use crate::lease::NotRenewed;
use crate::{Error, Result};
use futures_util::{Stream, StreamExt, stream};
use lockkeeper_etcd_api::etcdserverpb::cluster_client::ClusterClient;
use lockkeeper_etcd_api::etcdserverpb::kv_client::KvClient;
use lockkeeper_etcd_api::etcdserverpb::lease_client::LeaseClient;
use lockkeeper_etcd_api::etcdserverpb::maintenance_client::MaintenanceClient;
use lockkeeper_etcd_api::etcdserverpb::watch_client::WatchClient;
use lockkeeper_etcd_api::etcdserverpb::watch_request::RequestUnion;
use lockkeeper_etcd_api::etcdserverpb::{
    AlarmMember, AlarmRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, Member, MemberListRequest, TxnRequest, TxnResponse, WatchCreateRequest,
    WatchRequest, WatchResponse,
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
    /// Connects, authenticates the user, and checks that it may read this range. `url` is for error messages.
    pub async fn connect(url: &EngineUrl, servers: Servers, range: Range) -> Result<Server> {
        let user = servers.user(url, user_of_environment())?;
        let tls = tls_of(url, &servers)?;
        let connection = Connection::new(&servers.hosts, user, tls.as_ref())
            .map_err(|error| url.bad(format!("a host is no address of a server: {error}")))?;
        let server = Server { connection };
        // The first request also finds out whether the server wants a user.
        let first = async {
            persist(CALL_TIMEOUT, || server.connection.authenticate(None)).await?;
            server.scan(range, Read::Keys).await
        };
        if let Err(error) = first.await {
            let error = with_tls_hint(error, &servers.hosts, tls.as_ref()).await;
            return Err(error.with_reason(|reason| format!("{reason} (at {url})")));
        }
        Ok(server)
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

    /// The members of the cluster.
    pub async fn members(&self) -> Result<Vec<Member>> {
        let send = || {
            self.connection.call(|service| async move {
                ClusterClient::new(service).member_list(MemberListRequest { linearizable: true }).await
            })
        };
        Ok(persist(CALL_TIMEOUT, send).await?.into_inner().members)
    }

    /// The alarms that members have raised.
    pub async fn alarms(&self) -> Result<Vec<AlarmMember>> {
        let send = || {
            self.connection.call(|service| async move {
                MaintenanceClient::new(service).alarm(AlarmRequest::default()).await
            })
        };
        Ok(persist(CALL_TIMEOUT, send).await?.into_inner().alarms)
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

/// Completes the error about servers that use TLS although this client does not, or the reverse.
async fn with_tls_hint(error: Error, hosts: &[String], tls: Option<&Tls>) -> Error {
    if !matches!(error, Error::Unavailable { .. }) || error.to_string().contains("refused") {
        return error;
    }
    for host in hosts {
        match tls {
            None if tls::speaks_tls(host).await => {
                return error.with_reason(|_| format!("{host} uses TLS; write etcds:// instead of etcd://"));
            }
            None => {}
            Some(tls) => {
                if let Some(sentence) = tls.complaint(host).await {
                    return error.with_reason(|_| format!("{host}: {sentence}"));
                }
            }
        }
    }
    error
}

/// The settings of TLS, if the scheme asks for it.
fn tls_of(url: &EngineUrl, servers: &Servers) -> Result<Option<Tls>> {
    match url.scheme() {
        Some("etcds" | "etcd+tls") => {
            let tls = Tls::of(url, &servers.options)?;
            match servers.hosts.iter().all(|host| tls.to(host).is_some()) {
                true => Ok(Some(tls)),
                false => Err(url.bad("a host is no name that a certificate can have")),
            }
        }
        _ if TLS.iter().any(|name| servers.options.get(name).is_some()) => {
            Err(url.bad("ca, cert and key are for TLS: write etcds:// instead of etcd://"))
        }
        _ => Ok(None),
    }
}

/// `ETCDCTL_USER`, which is `user` or `user:password`, and `ETCDCTL_PASSWORD`.
fn user_of_environment() -> Option<Login> {
    let given = std::env::var("ETCDCTL_USER").ok().filter(|user| !user.is_empty())?;
    let password = || std::env::var("ETCDCTL_PASSWORD").ok();
    Some(match given.split_once(':') {
        Some((user, password)) => Login { user: user.into(), password: Some(password.into()) },
        None => Login { password: password(), user: given },
    })
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
        let failure = match timeout_at(attempt_end, send()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) if is_passing(&status) => rejection(status),
            Ok(Err(status)) => return Err(rejection(status)),
            Err(_) => unavailable("no answer"),
        };
        if start.elapsed() + pause >= limit {
            return Err(match &failure {
                Error::Unavailable { .. } => {
                    failure.with_reason(|reason| format!("{reason}; is it etcd, and does it run?"))
                }
                _ => failure,
            });
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
    Error::unavailable("etcd", reason)
}

/// The error for a failed request.
fn rejection(status: Status) -> Error {
    kind(&status).error("etcd", error_text(&status)).caused_by(status)
}

/// The kind of a rejection. etcd reports wrong credentials with various codes.
fn kind(status: &Status) -> RejectionKind {
    const CREDENTIALS: [&str; 3] =
        ["invalid user ID or password", "authentication is not enabled", "user name is empty"];
    match status.code() {
        _ if CREDENTIALS.iter().any(|text| status.message().contains(text)) => RejectionKind::Unauthenticated,
        Code::Unauthenticated => RejectionKind::Unauthenticated,
        Code::PermissionDenied => RejectionKind::PermissionDenied,
        Code::ResourceExhausted => RejectionKind::LimitExceeded,
        _ => RejectionKind::Unavailable,
    }
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
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(sentence) = tls::explain(error) {
        return sentence;
    }
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
