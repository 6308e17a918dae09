//! One Redis server, or the one of several that has the locks: its connections, and the operations of the script.

use super::address::{Access, Host, RedisUrl};
use super::failure::{Failure, Failures};
use super::listener::{Listener, Subscription};
use super::locate::Locator;
use crate::engine::{Detach, DetachedState};
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag, lock_type};
use crate::{Error, Fence, Result};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Script};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The time limit for a connection or a reply where no lease requires a shorter one.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of attempts before a failure is reported, where no other server can take over.
const ATTEMPTS: u32 = 3;

/// The pause before the next attempt while another server takes over.
const PAUSE: Duration = Duration::from_millis(50);

/// The shortest time limit of an attempt, where the request leaves more time and another server may take over.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(500);

/// The prefix of all channels.
const CHANNELS: &str = "lockkeeper:";

static KEEPER: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("keeper.lua")));

/// The server that has the locks. Connects on demand, and again after a connection broke or another server took over.
pub(super) struct Server {
    access: Access,
    locator: Locator,
    failures: Failures,
    /// The prefix of the channels. All databases of a server share its channels, so it contains the database.
    channels: String,
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// Connections with a lower serial are not used any more: their server fell silent, and another one may take over.
    abandoned_below: AtomicU64,
    /// The listener with the address of its server.
    listener: tokio::sync::Mutex<Option<(String, Listener)>>,
}

/// A connection to the server that has the locks.
#[derive(Clone)]
struct Connection {
    /// Incremented with each new connection.
    serial: u64,
    host: Host,
    connection: MultiplexedConnection,
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
    /// The client of the server that the URL names or leads to. It has not connected yet.
    pub fn new(engine: &'static str, url: RedisUrl) -> Server {
        let access = url.access.clone();
        let locator = Locator::new(url);
        Server {
            failures: Failures { engine, place: locator.description() },
            channels: format!("{CHANNELS}{}:", access.info.db()),
            access,
            locator,
            connection: tokio::sync::Mutex::new(None),
            abandoned_below: AtomicU64::new(0),
            listener: tokio::sync::Mutex::new(None),
        }
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

    /// Runs a command other than the script.
    pub async fn command<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T> {
        let run = async {
            let Connection { host, mut connection, .. } = self.connect(CALL_TIMEOUT, None).await?;
            self.in_time(CALL_TIMEOUT, &host, command.query_async(&mut connection)).await
        };
        run.await.map_err(|failure: Failure| failure.error)
    }

    /// The server or servers that the URL names, for messages.
    pub fn place(&self) -> &str {
        &self.failures.place
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
        let start = Instant::now();
        let mut broken = None;
        loop {
            // BEFORE the listener is locked: the search for the server may take long.
            let failure = match self.connect(CALL_TIMEOUT, broken).await {
                Ok(connection) => {
                    broken = Some(connection.serial);
                    match self.subscribe_at(connection.host, &channel).await {
                        Ok(subscription) => return Ok(subscription),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            if !(self.locator.fails_over() && failure.passing && start.elapsed() + PAUSE < CALL_TIMEOUT) {
                return Err(failure.error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn subscribe_at(&self, host: Host, channel: &str) -> Result<Subscription, Failure> {
        let limit = self.attempt(CALL_TIMEOUT);
        let mut kept = self.listener.lock().await;
        if let Some((address, listener)) = &*kept
            && *address == host.address
            && let Ok(Some(subscription)) = tokio::time::timeout(limit, listener.subscribe(channel)).await
        {
            return Ok(subscription);
        }
        let pubsub = self.in_time(limit, &host, self.access.subscribe(&host)).await?;
        let listener = Listener::start(pubsub, host.address.clone());
        match tokio::time::timeout(limit, listener.subscribe(channel)).await {
            Ok(Some(subscription)) => {
                *kept = Some((host.address, listener));
                Ok(subscription)
            }
            Ok(None) => {
                let error = self.unexpected_reply(&format!("cannot subscribe to the channel `{channel}`"));
                Err(Failure { broken: true, passing: true, error })
            }
            Err(_) => Err(Failure { broken: true, passing: true, error: self.failures.silent(&host, limit) }),
        }
    }

    /// Runs one operation of the script. It is repeated if the connection turns out to be broken, as all operations
    /// are idempotent.
    async fn call<T: FromRedisValue>(&self, within: Duration, args: &[&str]) -> Result<T> {
        self.call_counted(within, args).await.map(|(value, _)| value)
    }

    /// The same, and whether an earlier attempt may have been executed. Where another server may take over, it is repeated for as long
    /// as one attempt may take.
    async fn call_counted<T: FromRedisValue>(&self, within: Duration, args: &[&str]) -> Result<(T, bool)> {
        let (mut broken, mut sent) = (None, 0);
        // Whether an earlier attempt may have been executed: its connection broke before the reply.
        let mut perhaps_done = false;
        let attempt = self.attempt(within);
        let start = Instant::now();
        loop {
            let (failure, connected) = match self.connect(within, broken).await {
                Err(failure) => (failure, false),
                Ok(connection) => {
                    sent += 1;
                    broken = Some(connection.serial);
                    let serial = connection.serial;
                    match self.call_on(connection, attempt, args).await {
                        Ok(value) => return Ok((value, perhaps_done)),
                        Err(failure) => {
                            perhaps_done |= failure.broken;
                            if failure.broken {
                                self.abandon(serial);
                            }
                            (failure, true)
                        }
                    }
                }
            };
            let again = match self.locator.fails_over() {
                true => failure.passing && start.elapsed() + PAUSE < within,
                false => connected && failure.broken && sent < ATTEMPTS,
            };
            if !again {
                return Err(failure.error);
            }
            if self.locator.fails_over() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The time limit of one attempt. Where another server may take over, a silent server must leave time to find it.
    fn attempt(&self, within: Duration) -> Duration {
        match self.locator.fails_over() {
            true => within.min((within / 3).max(SHORTEST_ATTEMPT)),
            false => within,
        }
    }

    /// Where another server may take over, no later call uses this connection.
    fn abandon(&self, serial: u64) {
        if self.locator.fails_over() {
            self.abandoned_below.fetch_max(serial + 1, Ordering::Relaxed);
        }
    }

    /// The longest time for which a waiter relies on its subscription. Where another server may take over, the one that
    /// was subscribed to may have fallen silent.
    pub fn longest_wait(&self) -> Duration {
        match self.locator.fails_over() {
            true => CALL_TIMEOUT,
            false => Duration::MAX,
        }
    }

    /// Whether a subscription is one at the server that is used now.
    pub async fn is_current(&self, subscription: &Subscription) -> bool {
        let kept = self.connection.lock().await;
        kept.as_ref().is_none_or(|current| current.host.address == subscription.server())
    }

    async fn call_on<T: FromRedisValue>(
        &self,
        connection: Connection,
        within: Duration,
        args: &[&str],
    ) -> Result<T, Failure> {
        let Connection { host, mut connection, .. } = connection;
        let mut keeper = KEEPER.key(self.locator.keys());
        keeper.arg(&self.channels).arg(args);
        self.in_time(within, &host, keeper.invoke_async(&mut connection)).await
    }

    /// The current connection, or a new one in place of `broken`.
    async fn connect(&self, within: Duration, broken: Option<u64>) -> Result<Connection, Failure> {
        let mut kept = self.connection.lock().await;
        let serial = match &*kept {
            Some(current)
                if Some(current.serial) != broken
                    && current.serial >= self.abandoned_below.load(Ordering::Relaxed) =>
            {
                return Ok(current.clone());
            }
            Some(current) => current.serial + 1,
            None => 0,
        };
        let found = tokio::time::timeout(within, self.locator.find(&self.access)).await;
        let host = match found {
            Ok(found) => found.map_err(|error| self.failures.not_found(error))?,
            Err(_) => return Err(self.failures.not_located(within)),
        };
        let connecting = self.access.connect(&host, &self.access.info);
        let limit = if kept.is_none() { within } else { self.attempt(within) };
        let connection = match self.in_time(limit, &host, connecting).await {
            Ok(connection) => connection,
            // Only for the first connection: later ones have a time limit.
            Err(failure) if kept.is_none() => {
                return Err(self.failures.with_tls_hint(failure, &host).await);
            }
            Err(failure) => return Err(failure),
        };
        let connection = Connection { serial, host, connection };
        *kept = Some(connection.clone());
        Ok(connection)
    }

    async fn in_time<T>(
        &self,
        within: Duration,
        host: &Host,
        future: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(within, future).await {
            Ok(done) => done.map_err(|e| self.failures.explain(host, e)),
            Err(_) => Err(Failure { broken: true, passing: true, error: self.failures.silent(host, within) }),
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

    fn unexpected_reply(&self, what: &str) -> Error {
        self.failures.unexpected_reply(what)
    }
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
