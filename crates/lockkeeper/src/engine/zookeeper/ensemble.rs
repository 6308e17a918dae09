//! Talking to ZooKeeper: sessions, repetition after a broken connection, errors in words.

use super::nodes::{LockNode, Root};
use crate::engine::EngineUrl;
use crate::engine::line::Record;
use crate::engine::servers::Servers;
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as ZkError};

/// How long a caller waits for servers that do not answer, where no lease says so.
const PATIENCE: Duration = Duration::from_secs(5);
/// The session for looking only.
const TTL: Duration = Duration::from_secs(10);
/// Below this a session could not even connect in time; ZooKeeper's own limit is usually 4 s.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// After so long without an answer another server is tried.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A session, shared by all holds of one time to live.
pub(super) struct Session {
    pub client: Client,
    /// How much of the session timeout a hold may count on: see the parent module.
    pub believed: Duration,
}

/// The servers and our sessions with them.
pub(super) struct Ensemble {
    hosts: String,
    user: Option<(String, String)>,
    /// For messages.
    url: EngineUrl,
    pub root: Root,
    /// By time to live asked for.
    sessions: tokio::sync::Mutex<HashMap<Duration, Arc<Session>>>,
}

impl Ensemble {
    pub async fn open(url: &EngineUrl, servers: Servers, root: Root) -> Result<Ensemble> {
        let ensemble = Ensemble {
            hosts: servers.hosts.join(","),
            user: servers.user,
            url: url.clone(),
            root,
            sessions: Default::default(),
        };
        ensemble.make_root().await?;
        ensemble.locks().await?;
        Ok(ensemble)
    }

    /// With a user in the URL the locks belong to that user, and otherwise to everybody.
    pub fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(if self.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() })
    }

    pub async fn make_root(&self) -> Result<()> {
        let session = self.session(TTL).await?;
        let options = self.options(CreateMode::Persistent);
        self.ask(|| session.client.mkdir(self.root.path(), &options)).await?.map_err(|e| self.refused(&e))
    }

    /// A session that has not ended, as far as we know.
    pub async fn session(&self, ttl: Duration) -> Result<Arc<Session>> {
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&ttl)
            && !session.client.state().is_terminated()
        {
            return Ok(session.clone());
        }
        // Sessions that nobody uses any more end here.
        sessions.retain(|ttl, session| *ttl == TTL || Arc::strong_count(session) > 1);
        let client = self.connect(ttl).await?;
        let believed = client.session_timeout() * 3 / 4;
        let session = Arc::new(Session { client, believed });
        sessions.insert(ttl, session.clone());
        Ok(session)
    }

    /// A session of its own.
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
            let left = PATIENCE.saturating_sub(start.elapsed());
            let error = match timeout(left, connector.connect(&self.hosts)).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error @ (ZkError::AuthFailed | ZkError::BadArguments(_)))) => {
                    return Err(self.refused(&error));
                }
                Ok(Err(ZkError::NoHosts)) => "nobody answers as ZooKeeper does".into(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".into(),
            };
            if start.elapsed() >= PATIENCE {
                let url = &self.url;
                return Err(unavailable(format!("{error} at {url}; is it ZooKeeper, and does it run?")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The nodes of all locks, in use or not.
    pub async fn locks(&self) -> Result<Vec<LockNode>> {
        let session = self.session(TTL).await?;
        let root = self.root.path();
        let found = self.ask(|| fresh_children(&session.client, root)).await?;
        let children = found.map_err(|e| self.refused(&e))?;
        Ok(children.iter().map(|child| self.root.child(child)).collect())
    }

    /// Everybody who holds or waits for a lock, by zxid.
    pub async fn records(&self, lock: &LockNode) -> Result<Vec<(i64, Record)>> {
        let session = self.session(TTL).await?;
        let client = &session.client;
        let children = match self.ask(|| fresh_children(client, lock.path())).await? {
            Err(ZkError::NoNode) => return Ok(Vec::new()),
            children => children.map_err(|e| self.refused(&e))?,
        };
        // Requests leave when their futures are made: all at once, and then the answers.
        let ask_all = || {
            let asked: Vec<_> = children.iter().map(|child| client.get_data(&lock.child(child))).collect();
            async move {
                let mut records = Vec::new();
                for answer in asked {
                    match answer.await {
                        Ok((data, stat)) => records.push((stat.czxid, data)),
                        Err(ZkError::NoNode) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(records)
            }
        };
        let found = self.ask(ask_all).await?.map_err(|e| self.refused(&e))?;
        let parse = |(zxid, data): (i64, Vec<u8>)| Some((zxid, serde_json::from_slice(&data).ok()?));
        Ok(found.into_iter().filter_map(parse).collect())
    }

    /// [`persist`], for as long as a caller has patience.
    async fn ask<T, F>(&self, call: impl FnMut() -> F) -> Result<Result<T, ZkError>>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let asked = timeout(PATIENCE, persist(call)).await;
        asked.map_err(|_| unavailable(format!("no answer at {}; does it run?", self.url)))
    }

    /// A final answer of the server, for people.
    pub fn refused(&self, error: &ZkError) -> Error {
        let root = self.root.path();
        unavailable(match (error, &self.user) {
            (ZkError::NoAuth, Some((user, _))) => {
                format!("the user {user:?} may not use the locks below {root}, or the password is wrong")
            }
            (ZkError::NoAuth, None) => {
                format!("the locks below {root} belong to a user: zookeeper://user:password@host:port")
            }
            (ZkError::AuthFailed, _) => "the server does not accept this user and password".into(),
            (ZkError::Unimplemented, _) => "the server is older than 3.6".into(),
            (error, _) => error.to_string(),
        })
    }
}

/// The children of a node as the leader knows them by now.
pub(super) async fn fresh_children(client: &Client, path: &str) -> Result<Vec<String>, ZkError> {
    let (synced, children) = (client.sync(path), client.list_children(path));
    synced.await?;
    children.await
}

/// Asks again while the connection breaks. Whatever is asked must bear being done twice.
pub(super) async fn persist<T, F>(mut call: impl FnMut() -> F) -> Result<T, ZkError>
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

/// Whether the request may or may not have been served, and the session may go on: the connection broke. The client
/// has no single error for that; what the system said about a socket is `Custom`.
pub(super) fn is_passing(error: &ZkError) -> bool {
    use ZkError::{ConnectionLoss, Custom, Throttled, Timeout, UnexpectedError};
    matches!(error, ConnectionLoss | Custom(_) | Throttled | Timeout | UnexpectedError(_))
}

/// Whether the session is over, whatever was asked.
pub(super) fn is_session_end(error: &ZkError) -> bool {
    use ZkError::{AuthFailed, ClientClosed, SessionExpired, SessionMoved};
    matches!(error, SessionExpired | SessionMoved | ClientClosed | AuthFailed)
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable { engine: "zookeeper", reason: reason.into() }
}
