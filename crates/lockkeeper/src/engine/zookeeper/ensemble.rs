//! The connection to ZooKeeper: sessions, repetition after a broken connection, texts of errors.

use super::nodes::{LockNode, Root};
use super::relay::Relays;
use crate::engine::EngineUrl;
use crate::engine::request_queue::RequestRecord;
use crate::engine::servers::Servers;
use crate::engine::tls::{self, Tls};
use crate::error::RejectionKind;
use crate::info::now_ms;
use crate::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError};

/// The time limit for servers that do not reply, where no lease limits the wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time to live of the session for queries.
const TTL: Duration = Duration::from_secs(10);
/// The shortest session timeout: a shorter one could not even connect in time. ZooKeeper's own limit is usually 4 s.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// After this time without a reply, the client tries another server.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A session, shared by all holds with the same time to live.
pub(super) struct Session {
    pub client: Client,
    /// The part of the session timeout that a hold may rely on: see the parent module.
    pub believed: Duration,
}

/// The servers, and our sessions with them.
pub(super) struct Ensemble {
    /// The servers, or the relays to them.
    hosts: String,
    /// The relays, with TLS.
    relays: Option<Relays>,
    user: Option<(String, String)>,
    /// The URL, for messages.
    url: EngineUrl,
    pub root: Root,
    /// The sessions, by requested time to live.
    sessions: tokio::sync::Mutex<HashMap<Duration, Arc<Session>>>,
}

impl Ensemble {
    pub async fn open(url: &EngineUrl, servers: Servers, tls: Option<Tls>, root: Root) -> Result<Ensemble> {
        let relays = match tls {
            Some(tls) => Some(Relays::start(url, &servers.hosts, &tls).await?),
            None => None,
        };
        let ensemble = Ensemble {
            hosts: relays.as_ref().map_or_else(|| servers.hosts.join(","), |relays| relays.addresses.clone()),
            relays,
            user: servers.user(url, None)?,
            url: url.clone(),
            root,
            sessions: Default::default(),
        };
        ensemble.make_root().await?;
        ensemble.locks().await?;
        Ok(ensemble)
    }

    /// The options of new nodes. With a user in the URL the nodes belong to that user; otherwise they are open to
    /// all.
    pub fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(if self.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() })
    }

    pub async fn make_root(&self) -> Result<()> {
        let session = self.session(TTL).await?;
        let options = self.options(CreateMode::Persistent);
        self.ask(|| session.client.mkdir(self.root.path(), &options)).await?.map_err(|e| self.refused(&e))
    }

    /// The session for queries.
    pub async fn query_session(&self) -> Result<Arc<Session>> {
        self.session(TTL).await
    }

    /// A session that has not ended as far as we know.
    pub async fn session(&self, ttl: Duration) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&ttl)
            && !session.client.state().is_terminated()
        {
            return Ok(session.clone());
        }
        // Unused sessions end here.
        sessions.retain(|ttl, session| *ttl == TTL || Arc::strong_count(session) > 1);
        let client = self.connect(ttl).await?;
        let believed = client.session_timeout() * 3 / 4;
        let session = Arc::new(Session { client, believed });
        sessions.insert(ttl, session.clone());
        Ok(session)
    }

    /// Opens a new session.
    pub async fn connect(&self, ttl: Duration) -> Result<Client> {
        let start = Instant::now();
        loop {
            let session_timeout = ttl.max(SESSION_MIN);
            let mut connector = Client::connector()
                .with_session_timeout(session_timeout)
                .with_connection_timeout(SILENCE_MAX.min(session_timeout * 2 / 5))
                .with_fail_eagerly();
            if let Some((user, password)) = &self.user {
                connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
            }
            let left = CALL_TIMEOUT.saturating_sub(start.elapsed());
            let error = match timeout(left, connector.connect(&self.hosts)).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error @ (ZkError::AuthFailed | ZkError::BadArguments(_)))) => {
                    return Err(self.refused(&error));
                }
                Ok(Err(ZkError::NoHosts)) => "no server replies as ZooKeeper does".into(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".into(),
            };
            if start.elapsed() >= CALL_TIMEOUT {
                return Err(self.not_connected(&error).await);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The error for servers that do not answer as ZooKeeper.
    async fn not_connected(&self, error: &str) -> Error {
        let url = &self.url;
        if let Some(relays) = &self.relays {
            let cause = relays.failure().map(|failure| format!(": {failure}")).unwrap_or_default();
            return unavailable(format!("{error} at {url}{cause}; is it ZooKeeper, and does it run?"));
        }
        for host in self.hosts.split(',') {
            if tls::speaks_tls(host).await {
                return unavailable(format!(
                    "{host} answers in TLS; write zookeeper+tls:// instead of zookeeper://"
                ));
            }
        }
        unavailable(format!("{error} at {url}; is it ZooKeeper, and does it run?"))
    }

    /// The nodes of all locks, in use or not.
    pub async fn locks(&self) -> Result<Vec<LockNode>> {
        let session = self.session(TTL).await?;
        let root = self.root.path();
        let found = self.ask(|| fresh_children(&session.client, root)).await?;
        let children = found.map_err(|e| self.refused(&e))?;
        Ok(children.iter().map(|child| self.root.child(child)).collect())
    }

    /// All holders and waiters of a lock, by zxid.
    pub async fn records(&self, lock: &LockNode) -> Result<Vec<(i64, RequestRecord)>> {
        let session = self.session(TTL).await?;
        let client = &session.client;
        let children = match self.ask(|| fresh_children(client, lock.path())).await? {
            Err(ZkError::NoNode) => return Ok(Vec::new()),
            children => children.map_err(|e| self.refused(&e))?,
        };
        // A request is sent when its future is created: send all of them, then wait for the replies.
        let read_all = || {
            let replies: Vec<_> = children.iter().map(|child| client.get_data(&lock.child(child))).collect();
            async move {
                let mut records = Vec::new();
                for reply in replies {
                    match reply.await {
                        Ok((data, stat)) => records.push((stat.czxid, data)),
                        Err(ZkError::NoNode) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(records)
            }
        };
        let found = self.ask(read_all).await?.map_err(|e| self.refused(&e))?;
        let parse = |(zxid, data): (i64, Vec<u8>)| Some((zxid, serde_json::from_slice(&data).ok()?));
        Ok(in_place(found.into_iter().filter_map(parse).collect()))
    }

    /// Calls [`retry`] with a time limit.
    pub async fn ask<T, F>(&self, call: impl FnMut() -> F) -> Result<Result<T, ZkError>>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let asked = timeout(CALL_TIMEOUT, retry(call)).await;
        asked.map_err(|_| unavailable(format!("no answer at {}; does it run?", self.url)))
    }

    /// The error for a final reply of the server.
    pub fn refused(&self, error: &ZkError) -> Error {
        let root = self.root.path();
        let kind = match (error, &self.user) {
            // ZooKeeper accepts any password, and denies the access to nodes of another one.
            (ZkError::NoAuth, Some(_)) => RejectionKind::PermissionDenied,
            (ZkError::NoAuth, None) | (ZkError::AuthFailed, _) => RejectionKind::Unauthenticated,
            (ZkError::QuotaExceeded, _) => RejectionKind::LimitExceeded,
            _ => RejectionKind::Unavailable,
        };
        let reason = match (error, &self.user) {
            (ZkError::NoAuth, Some((user, _))) => {
                format!("the user {user:?} may not use the locks below {root}, or the password is wrong")
            }
            (ZkError::NoAuth, None) => {
                format!("the locks below {root} belong to a user: zookeeper://user:password@host:port")
            }
            (ZkError::AuthFailed, _) => "the server does not accept this user and password".into(),
            (ZkError::Unimplemented, _) => "the server is older than 3.6".into(),
            (error, _) => error.to_string(),
        };
        kind.error("zookeeper", reason).caused_by(error.clone())
    }
}

/// Puts detached holds in the places of their ephemeral nodes, and leaves out those whose deadline has passed. For
/// display: this machine's clock decides.
fn in_place(mut records: Vec<(i64, RequestRecord)>) -> Vec<(i64, RequestRecord)> {
    let (now_ms, mut detached) = (now_ms(), HashSet::new());
    records.retain(|(_, record)| record.detached.as_ref().is_none_or(|it| it.until_ms > now_ms));
    for (number, record) in &mut records {
        if let Some(hold) = &record.detached {
            *number = hold.fence as i64;
            detached.insert(record.tag.holder.clone());
        }
    }
    records.retain(|(_, record)| record.detached.is_some() || !detached.contains(&record.tag.holder));
    records
}

/// The children of a node, as the leader currently knows them.
pub(super) async fn fresh_children(client: &Client, path: &str) -> Result<Vec<String>, ZkError> {
    let (synced, children) = (client.sync(path), client.list_children(path));
    synced.await?;
    children.await
}

/// Repeats a request while the connection breaks. Executing the request twice must be harmless.
pub(super) async fn retry<T, F>(mut call: impl FnMut() -> F) -> Result<T, ZkError>
where
    F: Future<Output = Result<T, ZkError>>,
{
    loop {
        match call().await {
            Err(error) if is_passing(&error) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// Whether the connection broke: the request may have been executed or not, and the session may continue. The client
/// has no single error for that; errors of the socket are `Custom`.
pub(super) fn is_passing(error: &ZkError) -> bool {
    use ZkError::{ConnectionLoss, Custom, Throttled, Timeout, UnexpectedError};
    matches!(error, ConnectionLoss | Custom(_) | Throttled | Timeout | UnexpectedError(_))
}

/// Whether the error means that the session is over.
pub(super) fn is_session_end(error: &ZkError) -> bool {
    use ZkError::{AuthFailed, ClientClosed, SessionExpired, SessionMoved};
    matches!(error, SessionExpired | SessionMoved | ClientClosed | AuthFailed)
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::unavailable("zookeeper", reason)
}
