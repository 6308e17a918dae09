//! The client of a cluster. It has one current link for new requests, and keeps older links while there are holds in
//! their sessions.

use super::address::Daemons;
use super::link::{Link, Next, PendingQuery, PendingRequest, QueryReply, RequestOutcome, reason};
use super::stream::{ClientIdentity, ConnectError, Connected, connect};
use lockkeeper_session::protocol::{DaemonQuery, DaemonReply, FromDaemon, Refusal, Secret, Welcome};
use lockkeeper_session::{LinkEnd, SessionId};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

/// The time limit for establishing a connection to a daemon.
const CONNECT: Duration = Duration::from_secs(2);

/// The reason why a client has no connection to a daemon.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// A daemon refuses the client.
    #[error(transparent)]
    Refused(ConnectError),
    /// The attempts to connect failed, with the last error of each daemon.
    #[error("no daemon can be reached: {}", listed(.0))]
    Unreachable(Vec<ConnectError>),
    /// The query was dropped, because no daemon can be reached.
    #[error("no daemon can be reached")]
    QueryDropped,
    /// The link has ended.
    #[error("{}", reason(*.0))]
    Ended(LinkEnd),
    /// The link has a connection, and needs no second one.
    #[error("the link is connected already")]
    ConnectedAlready,
}

fn listed(failures: &[ConnectError]) -> String {
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    failures.join("; ")
}

/// The client of a cluster.
pub(super) struct Client {
    daemons: Daemons,
    /// The secret from which those of its sessions are derived.
    secret: [u8; 16],
    for_locks: bool,
    current: Mutex<Current>,
    /// Incremented for every change that the daemon reports, and whenever changes may have been missed.
    pub changes: watch::Sender<u64>,
}

struct Current {
    link: Arc<Link>,
    sessions: u64,
    watches: bool,
}

impl Client {
    /// Creates a client and connects it to a daemon.
    pub async fn open(daemons: Daemons, for_locks: bool) -> Result<Arc<Client>, ClientError> {
        let secret: [u8; 16] = random()?;
        // Clients spread over the daemons by default; `in_order` starts with the first one.
        let spread = u64::from_ne_bytes(random()?) % daemons.addresses.len() as u64;
        let first = if daemons.in_order { 0 } else { spread as usize };
        let link = Link::new(session(1), daemons.addresses.len(), first, 0, daemons.delegation);
        let current = Current { link: link.clone(), sessions: 1, watches: false };
        let (current, changes) = (Mutex::new(current), watch::Sender::new(0));
        let client = Arc::new(Client { daemons, secret, for_locks, current, changes });
        let connected = client.dial(&link).await?;
        tokio::spawn(run(Arc::downgrade(&client), link, Some(connected)));
        Ok(client)
    }

    /// The identity under which a link connects. Each link has its own: two links may be connected to one daemon at the
    /// same time, and a daemon serves one connection of each identity.
    fn identity(&self, link: &Link) -> ClientIdentity {
        let mut secret = self.secret;
        for (byte, of_session) in secret.iter_mut().zip(link.session_number().to_le_bytes()) {
            *byte ^= of_session;
        }
        ClientIdentity { secret: Secret::new(secret), for_locks: self.for_locks }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Connects the link to the daemon that the link selects. Returns an error with the reason once the link has
    /// ended.
    async fn dial(self: &Arc<Client>, link: &Arc<Link>) -> Result<Connected, ClientError> {
        let (mut failures, mut unsent) = (BTreeMap::new(), Vec::new());
        loop {
            match link.turn(&mut unsent) {
                Next::Connect(daemon) => {
                    let address = &self.daemons.addresses[daemon];
                    match connect(&self.daemons, address, self.identity(link), CONNECT).await {
                        Ok(connected) => {
                            link.opened(connected.welcome.clone());
                            return Ok(connected);
                        }
                        Err(refused @ ConnectError::Refused { .. }) => {
                            link.rejected();
                            return Err(ClientError::Refused(refused));
                        }
                        Err(failure) => {
                            link.not_opened(&failure.to_string());
                            failures.insert(daemon, failure);
                        }
                    }
                }
                Next::Pause(pause) => tokio::time::sleep(pause).await,
                Next::End(LinkEnd::Unreachable) => {
                    return Err(ClientError::Unreachable(failures.into_values().collect()));
                }
                Next::End(why) => return Err(ClientError::Ended(why)),
                // Only `opened` leads to this state.
                Next::Talk(_) => return Err(ClientError::ConnectedAlready),
            }
            self.move_requests(link);
        }
    }

    /// Sends a lock request through the current link.
    pub fn ask(self: &Arc<Client>, mut pending: PendingRequest) {
        loop {
            match self.link().ask(pending) {
                None => return,
                Some(again) => pending = again,
            }
        }
    }

    /// The current link, or a new one if the current link accepts no more requests.
    pub fn link(self: &Arc<Client>) -> Arc<Link> {
        let mut current = self.lock();
        if current.link.is_retired() {
            self.renew(&mut current);
        }
        current.link.clone()
    }

    fn renew(self: &Arc<Client>, current: &mut Current) {
        current.sessions += 1;
        let id = session(current.sessions);
        let (first, lease_ns) = current.link.hint();
        current.link = Link::new(id, self.daemons.addresses.len(), first, lease_ns, self.daemons.delegation);
        if current.watches {
            current.link.query(PendingQuery::new(DaemonQuery::Watch, oneshot::channel().0));
        }
        tokio::spawn(run(Arc::downgrade(self), current.link.clone(), None));
    }

    /// If a link accepts no more requests, moves its waiting requests to another link, in order.
    fn move_requests(self: &Arc<Client>, from: &Arc<Link>) {
        let Some((pending, query)) = from.take_moving() else { return };
        // Create the next link before any request moves.
        self.link();
        self.changes.send_modify(|changes| *changes += 1);
        for pending in pending {
            self.ask(pending);
        }
        for query in query {
            self.send_query(query);
        }
    }

    /// Sends a query through the current link.
    fn send_query(self: &Arc<Client>, mut query: PendingQuery) {
        while let Some(again) = self.link().query(query) {
            query = again;
        }
    }

    /// Sends a query to a daemon and waits for the reply. The query is repeated if the daemon goes away.
    pub async fn query(self: &Arc<Client>, query: DaemonQuery) -> Result<DaemonReply, ClientError> {
        self.query_once(query).await.map(|answered| answered.reply)
    }

    /// Like [`query`](Self::query), for a query with an effect that must not be taken for another one's: the reply shows
    /// whether it was repeated.
    pub async fn query_once(self: &Arc<Client>, query: DaemonQuery) -> Result<QueryReply, ClientError> {
        let (sender, receiver) = oneshot::channel();
        self.send_query(PendingQuery::new(query, sender));
        receiver.await.map_err(|_| ClientError::QueryDropped)
    }

    /// Like [`query`](Self::query), for a query that waits: if the future is dropped, a message cancels it at the daemon.
    pub async fn query_cancellable(
        self: &Arc<Client>,
        query: DaemonQuery,
    ) -> Result<DaemonReply, ClientError> {
        let _cancel = CancelOnDrop(self.clone());
        self.query(query).await
    }

    /// Subscribes to changes of locks.
    pub async fn watch(self: &Arc<Client>) -> Result<watch::Receiver<u64>, ClientError> {
        let receiver = self.changes.subscribe();
        let began = std::mem::replace(&mut self.lock().watches, true);
        if !began {
            self.query(DaemonQuery::Watch).await?;
        }
        Ok(receiver)
    }

    /// The time to live of a hold for which this one was requested: within the limits of the cluster.
    pub fn ttl_in_force(&self, requested: Duration) -> Duration {
        match self.welcome() {
            Some(Welcome { shortest_ttl_ns, longest_ttl_ns, .. }) => {
                let shortest = Duration::from_nanos(shortest_ttl_ns);
                requested.clamp(shortest, Duration::from_nanos(longest_ttl_ns).max(shortest))
            }
            None => requested,
        }
    }

    /// The greeting of the current daemon, if there is a connection now.
    pub fn welcome(&self) -> Option<Welcome> {
        self.lock().link.welcome()
    }
}

/// Cancels the queries whose callers have stopped waiting, when it is dropped. It is created before the query's future,
/// which is therefore dropped first.
struct CancelOnDrop(Arc<Client>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.lock().link.cancel_queries();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.lock().link.close();
    }
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// The session with this number. The daemon assigns the client's number, which the client does not need.
fn session(number: u64) -> SessionId {
    SessionId { client: 0, number }
}

/// Runs a link until it has ended.
async fn run(client: Weak<Client>, link: Arc<Link>, mut connected: Option<Connected>) {
    let unused = |link: &Link| drop(link.end("it is no longer in use"));
    loop {
        let connection = match connected.take() {
            Some(connected) => connected,
            None => {
                let Some(client) = client.upgrade() else { return unused(&link) };
                match client.dial(&link).await {
                    Ok(connected) => connected,
                    Err(error) => {
                        let why = error.to_string();
                        return end(&client, &link, &why, || RequestOutcome::Unreachable(why.clone()));
                    }
                }
            }
        };
        let broken = exchange(&client, &link, connection).await;
        link.closed();
        let Some(client) = client.upgrade() else { return unused(&link) };
        match broken {
            ExchangeEnd::Ended(why) => {
                return end(&client, &link, reason(why), || RequestOutcome::Unreachable(reason(why).into()));
            }
            ExchangeEnd::Refused(why) => {
                link.rejected();
                return end(&client, &link, reason(LinkEnd::Rejected), || {
                    RequestOutcome::Refused(why.clone())
                });
            }
            // The link decides whether to reconnect or to end.
            ExchangeEnd::Connection => client.move_requests(&link),
        }
    }
}

/// Ends a link. Its requests move to another link, or get this outcome if no link would serve them.
fn end(client: &Arc<Client>, link: &Arc<Link>, why: &str, outcome: impl Fn() -> RequestOutcome) {
    client.move_requests(link);
    for pending in link.end(why) {
        let _ = pending.sender.send(outcome());
    }
}

enum ExchangeEnd {
    /// The link has ended.
    Ended(LinkEnd),
    /// The daemon rejects the session; another daemon would reject it too.
    Refused(Refusal),
    /// The connection broke.
    Connection,
}

/// Exchanges messages until the connection breaks or the link ends.
async fn exchange(client: &Weak<Client>, link: &Arc<Link>, connected: Connected) -> ExchangeEnd {
    let Connected { mut stream, mut frames, welcome } = connected;
    let longest_write = Duration::from_nanos(welcome.lease_ns).max(CONNECT);
    let mut bytes = Vec::new();
    // One timer serves the whole connection: it is reset only to fire earlier, or after it has fired.
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let next = link.turn(&mut bytes);
        if !bytes.is_empty() {
            let written = async {
                stream.write_all(&bytes).await?;
                stream.flush().await
            };
            if !matches!(timeout(longest_write, written).await, Ok(Ok(()))) {
                return ExchangeEnd::Connection;
            }
        }
        let wait = match next {
            Next::Talk(wait) => wait,
            Next::End(why) => return ExchangeEnd::Ended(why),
            Next::Connect(_) | Next::Pause(_) => return ExchangeEnd::Connection,
        };
        if link.is_retired()
            && let Some(client) = client.upgrade()
        {
            client.move_requests(link);
        }
        let wake = Instant::now() + wait;
        if timer.is_elapsed() || wake < timer.deadline() {
            timer.as_mut().reset(wake);
        }
        tokio::select! {
            () = link.wake.notified() => {}
            () = &mut timer => {}
            read = stream.read_buf(&mut frames.arrived) => {
                if !matches!(read, Ok(1..)) {
                    return ExchangeEnd::Connection;
                }
                loop {
                    let message = match frames.take() {
                        Ok(Some(message)) => message,
                        Ok(None) => break,
                        Err(_) => return ExchangeEnd::Connection,
                    };
                    if let FromDaemon::Changed = message
                        && let Some(client) = client.upgrade()
                    {
                        client.changes.send_modify(|changes| *changes += 1);
                    }
                    if let Err(why) = link.receive(message) {
                        return ExchangeEnd::Refused(why);
                    }
                }
            }
        }
    }
}
