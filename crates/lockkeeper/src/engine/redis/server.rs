//! One Redis server: its connections, the operations of the script, and the texts of its errors.

use super::listener::{Listener, Subscription};
use crate::engine::{Detach, DetachedState, EngineUrl};
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag, lock_type};
use crate::{Error, Fence, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};
use std::sync::LazyLock;
use std::time::Duration;

/// The time limit for a connection or a reply where no lease requires a shorter one.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of attempts before a failure is reported.
const ATTEMPTS: u32 = 3;

/// The prefix of all keys.
const KEYS: &str = "lockkeeper:";

static KEEPER: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("keeper.lua")));

/// A Redis server. Connects on demand, and again after a connection broke.
pub(super) struct Server {
    engine: &'static str,
    client: redis::Client,
    /// The address as host:port, for messages.
    address: String,
    /// The prefix of the channels. All databases of a server share its channels, so it contains the database.
    channels: String,
    /// The connection with its serial number.
    connection: tokio::sync::Mutex<Option<(u64, MultiplexedConnection)>>,
    listener: tokio::sync::Mutex<Option<Listener>>,
}

/// The reply to an acquire.
pub(super) enum AcquireReply {
    Granted { fence: u64 },
    Busy { look_again: Duration },
}

/// The reply to a release.
pub(super) enum Released {
    Now,
    /// Not held, but the release was sent twice: the first one may have succeeded.
    Perhaps,
    /// The hold had ended before.
    NotHeld,
}

/// The reply to a request to detach a hold.
pub(super) enum DetachReply {
    Stored,
    /// The owner has a detached hold of this lock already.
    OwnerHasOne,
    /// The hold had ended before.
    NotHeld,
}

/// The end of a hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// A detached hold stays until its deadline.
    ToDeadline,
    /// A detached hold ends, too.
    Entirely,
}

/// A lock as the script returns it: its name, its fields, the records of its detached holds, and the server's time.
type LockState = (String, Vec<(String, String)>, Vec<(String, String)>, u64);

/// A hold as the script knows it.
pub(super) struct Hold<'a> {
    pub name: &'a str,
    pub holder: &'a str,
    pub ttl: Duration,
}

impl Server {
    /// Checks the URL of one server, without connecting.
    pub fn new(engine: &'static str, url: &EngineUrl) -> Result<Server> {
        let client = redis::Client::open(url.expose()).map_err(|e| {
            // The client's message may quote the URL with its password.
            let reason = match e.detail() {
                None => e.to_string(),
                Some(_) => "write redis://[user:password@]host[:port][/database]".into(),
            };
            url.bad(reason)
        })?;
        let info = client.get_connection_info();
        let (address, database) = (info.addr().to_string(), info.redis_settings().db());
        Ok(Server {
            engine,
            address,
            channels: format!("{KEYS}{database}:"),
            client,
            connection: tokio::sync::Mutex::new(None),
            listener: tokio::sync::Mutex::new(None),
        })
    }

    /// Checks that the server replies, and is a Redis server.
    pub async fn check(&self) -> Result<()> {
        self.call::<i64>(CALL_TIMEOUT, &["first_end"]).await.map(drop)
    }

    pub async fn acquire(
        &self,
        within: Duration,
        hold: &Hold<'_>,
        mode: LockMode,
        tag: &str,
    ) -> Result<AcquireReply> {
        let (permits, ttl_ms) = (permits(mode).to_string(), hold.ttl.as_millis().to_string());
        let mode_text = mode_text(mode);
        let args = ["acquire", hold.name, &mode_text, &permits, hold.holder, &ttl_ms, tag];
        let (verdict, value): (i64, String) = self.call(within, &args).await?;
        let number = || {
            value.parse::<u64>().map_err(|_| self.unexpected_reply(&format!("acquire answered {value:?}")))
        };
        match verdict {
            1 => Ok(AcquireReply::Granted { fence: number()? }),
            0 => Ok(AcquireReply::Busy { look_again: Duration::from_millis(number()?) }),
            _ => Err(Error::KindMismatch {
                name: hold.name.into(),
                used_as: mode_of(&value).map_or(value, lock_type),
                asked_as: lock_type(mode),
            }),
        }
    }

    /// Renews a lease. Returns false if the server no longer knows this hold.
    pub async fn renew(&self, within: Duration, hold: &Hold<'_>) -> Result<bool> {
        let ttl_ms = hold.ttl.as_millis().to_string();
        self.call(within, &["renew", hold.name, hold.holder, &ttl_ms]).await
    }

    pub async fn release(
        &self,
        within: Duration,
        name: &str,
        holder: &str,
        release: Release,
    ) -> Result<Released> {
        let operation = match release {
            Release::ToDeadline => "release",
            Release::Entirely => "discard",
        };
        let (was_held, sent_twice) = self.call_counted(within, &[operation, name, holder]).await?;
        Ok(match (was_held, sent_twice) {
            (true, _) => Released::Now,
            (false, true) => Released::Perhaps,
            (false, false) => Released::NotHeld,
        })
    }

    /// Makes a hold outlive its process. Repeating it moves the deadline.
    pub async fn detach(
        &self,
        within: Duration,
        name: &str,
        holder: &str,
        detach: &Detach,
    ) -> Result<DetachReply> {
        let args = ["detach", name, holder, &detach.owner, &whole_ms(detach.lasts)];
        Ok(match self.call::<i64>(within, &args).await? {
            1 => DetachReply::Stored,
            0 => DetachReply::OwnerHasOne,
            _ => DetachReply::NotHeld,
        })
    }

    /// The detached hold of an owner; with `lasts`, its deadline is first set to that time from now.
    pub async fn detached(
        &self,
        name: &str,
        owner: &str,
        lasts: Option<Duration>,
    ) -> Result<Option<DetachedState>> {
        let lasts = lasts.map(whole_ms);
        let args = ["detached", name, owner, lasts.as_deref().unwrap_or_default()];
        let args = &args[..3 + usize::from(lasts.is_some())];
        let reply: Vec<String> = self.call(CALL_TIMEOUT, args).await?;
        let state = match &reply[..] {
            [] => return Ok(None),
            [fence, left_ms, mode] => detached_state(fence, left_ms, mode),
            _ => None,
        };
        state.map(Some).ok_or_else(|| self.unexpected_reply(&format!("detached answered {reply:?}")))
    }

    /// Releases the detached hold of an owner. Returns false if it has none, or if its process renews it.
    pub async fn release_as(&self, name: &str, owner: &str) -> Result<bool> {
        let (was_held, sent_twice) = self.call_counted(CALL_TIMEOUT, &["release_as", name, owner]).await?;
        // In a repeated request: the first one may have been executed.
        Ok(was_held || sent_twice)
    }

    pub async fn inspect(&self, name: &str) -> Result<LockInfo> {
        let state = self.call(CALL_TIMEOUT, &["inspect", name]).await?;
        self.lock_info(state)
    }

    pub async fn list(&self) -> Result<Vec<LockInfo>> {
        let all: Vec<LockState> = self.call(CALL_TIMEOUT, &["list"]).await?;
        let mut all: Vec<LockInfo> =
            all.into_iter().map(|state| self.lock_info(state)).collect::<Result<_>>()?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The time until the first lease ends, of one lock or of all.
    pub async fn first_end(&self, name: Option<&str>) -> Result<Option<Duration>> {
        let args = ["first_end", name.unwrap_or_default()];
        let ms: i64 = self.call(CALL_TIMEOUT, &args[..1 + usize::from(name.is_some())]).await?;
        Ok(u64::try_from(ms).ok().map(Duration::from_millis))
    }

    /// Subscribes to releases of a lock.
    pub async fn when_free(&self, name: &str) -> Result<Subscription> {
        self.subscribe(format!("{}free:{name}", self.channels)).await
    }

    /// Subscribes to changes of one lock or of all.
    pub async fn when_changed(&self, name: Option<&str>) -> Result<Subscription> {
        self.subscribe(match name {
            Some(name) => format!("{}changed:{name}", self.channels),
            None => format!("{}changed", self.channels),
        })
        .await
    }

    async fn subscribe(&self, channel: String) -> Result<Subscription> {
        let mut kept = self.listener.lock().await;
        if let Some(listener) = &*kept
            && let Ok(Some(subscription)) =
                tokio::time::timeout(CALL_TIMEOUT, listener.subscribe(&channel)).await
        {
            return Ok(subscription);
        }
        let pubsub = self.in_time(CALL_TIMEOUT, self.client.get_async_pubsub()).await?;
        let listener = Listener::start(pubsub);
        match tokio::time::timeout(CALL_TIMEOUT, listener.subscribe(&channel)).await {
            Ok(Some(subscription)) => {
                *kept = Some(listener);
                Ok(subscription)
            }
            Ok(None) => Err(self.unexpected_reply(&format!("cannot subscribe to the channel `{channel}`"))),
            Err(_) => Err(self.silent(CALL_TIMEOUT)),
        }
    }

    /// Runs one operation of the script. It is repeated if the connection turns out to be broken, as all operations
    /// are idempotent.
    async fn call<T: FromRedisValue>(&self, within: Duration, args: &[&str]) -> Result<T> {
        self.call_counted(within, args).await.map(|(value, _)| value)
    }

    /// The same, and whether it was sent more than once.
    async fn call_counted<T: FromRedisValue>(&self, within: Duration, args: &[&str]) -> Result<(T, bool)> {
        let mut broken = None;
        for attempt in 1.. {
            let (serial, connection) = self.connect(within, broken).await?;
            match self.call_on(connection, within, args).await {
                Err(failure) if failure.broken && attempt < ATTEMPTS => broken = Some(serial),
                Err(failure) => return Err(failure.error),
                Ok(value) => return Ok((value, attempt > 1)),
            }
        }
        Err(self.silent(within))
    }

    async fn call_on<T: FromRedisValue>(
        &self,
        mut connection: MultiplexedConnection,
        within: Duration,
        args: &[&str],
    ) -> Result<T, Failure> {
        let mut keeper = KEEPER.key(KEYS);
        keeper.arg(&self.channels).arg(args);
        match tokio::time::timeout(within, keeper.invoke_async(&mut connection)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(e)) => Err(Failure { broken: e.is_io_error(), error: self.explain(&e) }),
            Err(_) => Err(Failure { broken: true, error: self.silent(within) }),
        }
    }

    /// The current connection, or a new one in place of `broken`.
    async fn connect(&self, within: Duration, broken: Option<u64>) -> Result<(u64, MultiplexedConnection)> {
        let mut kept = self.connection.lock().await;
        let serial = match &*kept {
            Some((serial, connection)) if Some(*serial) != broken => {
                return Ok((*serial, connection.clone()));
            }
            Some((serial, _)) => serial + 1,
            None => 0,
        };
        // No timeouts in the client: each operation has its own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = self.in_time(within, connecting).await?;
        *kept = Some((serial, connection.clone()));
        Ok((serial, connection))
    }

    async fn in_time<T>(
        &self,
        within: Duration,
        future: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T> {
        match tokio::time::timeout(within, future).await {
            Ok(done) => done.map_err(|e| self.explain(&e)),
            Err(_) => Err(self.silent(within)),
        }
    }

    fn lock_info(&self, (name, fields, records, now_ms): LockState) -> Result<LockInfo> {
        let mode = fields.iter().find(|(field, _)| field == "kind").and_then(|(_, mode)| mode_of(mode));
        let mut holders = Vec::new();
        for (holder, about) in fields.iter().filter(|(field, _)| field != "kind") {
            let record = records.iter().find(|(detached, _)| detached == holder);
            let detached = record.and_then(|(_, record)| detached(record, now_ms));
            let participant = mode.and_then(|mode| participant(mode, about, detached));
            holders.push(
                participant.ok_or_else(|| self.unexpected_reply(&format!("the lock `{name}` is damaged")))?,
            );
        }
        holders.sort_by_key(|holder| holder.fence);
        Ok(LockInfo { name, holders, waiters: Vec::new() })
    }

    fn unavailable(&self, reason: String) -> Error {
        Error::Unavailable { engine: self.engine, reason }
    }

    fn silent(&self, within: Duration) -> Error {
        self.unavailable(format!("{} did not answer within {within:?}", self.address))
    }

    fn unexpected_reply(&self, what: &str) -> Error {
        self.unavailable(format!("{}: {what}", self.address))
    }

    fn explain(&self, e: &RedisError) -> Error {
        let address = &self.address;
        self.unavailable(match (e.kind(), e.code()) {
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
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
                format!("{address} is a read-only replica; name the primary")
            }
            (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => {
                format!("{address} is still loading its data; try again")
            }
            (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::ClusterDown), _) => {
                format!(
                    "{address} is a member of a Redis Cluster, which is not supported; name a single server"
                )
            }
            (ErrorKind::Parse, _) => {
                format!("what answers at {address} does not speak Redis's protocol; is the port right?")
            }
            _ if e.is_connection_dropped() => {
                format!("{address} closed the connection; is it Redis, without TLS?")
            }
            _ => format!("{address}: {e}"),
        })
    }
}

/// A failed call; `broken` if a new connection may help.
struct Failure {
    broken: bool,
    error: Error,
}

fn permits(mode: LockMode) -> u32 {
    match mode {
        LockMode::Exclusive | LockMode::Shared => 1,
        LockMode::Permit { of } => of,
    }
}

/// The mode as the script stores it.
fn mode_text(mode: LockMode) -> String {
    match mode {
        LockMode::Exclusive | LockMode::Shared => "exclusive".into(),
        LockMode::Permit { of } => format!("permits {of}"),
    }
}

fn mode_of(text: &str) -> Option<LockMode> {
    match text.strip_prefix("permits ") {
        Some(of) => Some(LockMode::Permit { of: of.parse().ok()? }),
        None => (text == "exclusive").then_some(LockMode::Exclusive),
    }
}

/// Parses "FENCE SINCE TAG".
fn participant(mode: LockMode, about: &str, detached: Option<Detached>) -> Option<Participant> {
    let mut parts = about.splitn(3, ' ');
    let fence: u64 = parts.next()?.parse().ok()?;
    let since_ms = parts.next()?.parse().ok()?;
    let tag: Tag = serde_json::from_str(parts.next()?).ok()?;
    Some(Participant { tag, mode, since_ms, fence: Fence::new(fence), detached })
}

/// Parses "DEADLINE LEASE OWNER"; `None` if the deadline has passed.
fn detached(record: &str, now_ms: u64) -> Option<Detached> {
    let mut parts = record.splitn(3, ' ');
    let deadline_ms: u64 = parts.next()?.parse().ok()?;
    let left = Duration::from_millis(deadline_ms.checked_sub(now_ms)?);
    Some(Detached::ending_in(parts.nth(1)?, left))
}

fn detached_state(fence: &str, left_ms: &str, mode: &str) -> Option<DetachedState> {
    let (fence, left) = (Fence::new(fence.parse().ok()?), Duration::from_millis(left_ms.parse().ok()?));
    Some(DetachedState { mode: mode_of(mode)?, fence, left })
}

/// The duration in milliseconds, rounded up: a lock is kept for at least the requested time.
fn whole_ms(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}
