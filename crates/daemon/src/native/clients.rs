//! The clients of the native protocol: their identity, their requests, and the messages queued for them.
//!
//! A client outlives its connections: it keeps its holds until its lease ends. A connection belongs to a client if it
//! presents the client's secret and a token of the same name. The number of the client is derived from both and gives no
//! access.

use super::NATIVE;
use super::connection::ConnectionError;
use crate::access::{Denied, Principal};
use crate::audit::{AuditEntry, AuditEvent};
use crate::client_service::ClientService;
use crate::context::DaemonContext;
use crate::list_permits::ListPermit;
use crate::metrics::GaugeGuard;
use crate::quotas::{Charge, Exceeded, LockCharge, Resource};
use crate::rights::Action;
use crate::trace::Trace;
use lockkeeper_cluster::{ClientIdentity, ClientTransport, Proof, SessionId, ToClient, ToMember};
use lockkeeper_member::{Acquisition, BadText, Ended, LockName, LockRequest, check_name};
use lockkeeper_session::protocol::{FromDaemon, Refusal, Secret};
use sha2::{Digest, Sha256};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::Span;

/// The reason why a session or a request of a client is refused.
#[derive(Debug, thiserror::Error)]
enum AdmissionError {
    #[error("bad lock name: {0}")]
    Name(#[source] BadText),
    #[error("bad owner or purpose: {0}")]
    Tag(#[source] BadText),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("more than {limit} requests in a second")]
    Rate { limit: NonZeroU32 },
    #[error("a client holds and waits for at most {most} locks at a time")]
    TooManyLocks { most: usize },
    #[error(transparent)]
    Quota(#[from] Exceeded),
}

/// A request of a client.
struct OpenRequest {
    name: Arc<str>,
    held: bool,
    /// The time of the grant, or of the request while it waits.
    since: Instant,
    /// The span of the request in the logs.
    span: Span,
    charge: LockCharge,
}

/// A message queued for a client.
pub(crate) enum QueuedMessage {
    Message(FromDaemon),
    /// A long reply as an encoded frame, with its permit, which is returned once the frame is sent.
    Encoded {
        frame: Vec<u8>,
        _permit: ListPermit,
    },
}

impl QueuedMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Message(_) => size_of::<Self>(),
            Self::Encoded { frame, .. } => frame.len(),
        }
    }
}

#[derive(Default)]
struct State {
    /// Number of the client's connections so far; only the newest one is served.
    connection: u64,
    /// Wakes the newest connection when a message is queued; wakes a superseded one so that it ends.
    wake: Arc<Notify>,
    connected: bool,
    gone_at: Option<Instant>,
    /// Whether the queue has exceeded its limit because the client reads too slowly.
    overflowed: bool,
    queue: Vec<QueuedMessage>,
    queued_bytes: usize,
    sessions: BTreeMap<u64, (GaugeGuard, Charge)>,
    open: BTreeMap<(u64, u64), OpenRequest>,
}

/// A client of the native protocol, over all its connections.
pub(crate) struct Client {
    service: Arc<ClientService>,
    /// The name under which quotas count its usage.
    account: Arc<str>,
    /// The name of its token.
    who: Arc<str>,
    principal: Mutex<Principal>,
    /// The number under which the members know it.
    number: u64,
    state: Mutex<State>,
}

/// A new connection of a client.
pub(crate) struct NewConnection {
    pub client: Arc<Client>,
    pub connection: u64,
    pub wake: Arc<Notify>,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The principal, with the current rights of its token.
    pub fn principal(&self) -> Principal {
        self.principal.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn session(&self, number: u64) -> SessionId {
        SessionId { client: self.number, number }
    }

    /// Applies changed rights of the client's token. Holds that they do not cover are revoked, and waits are refused.
    pub fn apply_rights(&self, principal: &Principal) {
        *self.principal.lock().unwrap_or_else(|e| e.into_inner()) = principal.clone();
        let mut state = self.lock();
        let denied =
            |_: &(u64, u64), open: &mut OpenRequest| Action::Acquire.check(principal, &open.name).is_err();
        let waits = |key: &(u64, u64), open: &mut OpenRequest| !open.held && denied(key, open);
        let waiting: Vec<_> = state.open.extract_if(.., waits).collect();
        let mut held = Vec::new();
        for (&key, open) in &mut state.open {
            if denied(&key, open) {
                held.push((key, open.name.clone()));
            }
        }
        for ((session, number), open) in &waiting {
            let why =
                format!("the token `{}` does not allow `acquire` on `{}` any more", self.who, open.name);
            let refused =
                FromDaemon::Refuse { session: *session, number: *number, why: Refusal::Because(why) };
            self.push(&mut state, QueuedMessage::Message(refused));
        }
        // The member may call back at once, and the callback locks the state.
        drop(state);
        let member = &self.service.context.member;
        for ((session, number), _) in waiting {
            member.handle_client_message(self.session(session), ToMember::Release { number });
        }
        for ((session, number), lock) in held {
            let acquisition = Acquisition { session: self.session(session), number };
            member.revoke_here(
                &lock,
                acquisition,
                "the daemon, because the token does not allow it any more",
            );
        }
        member.flush();
    }

    pub fn account(&self) -> &Arc<str> {
        &self.account
    }

    /// Takes the queued messages; an error with the reason if this connection must end.
    pub fn take_queued(&self, connection: u64) -> Result<Vec<QueuedMessage>, ConnectionError> {
        let mut state = self.lock();
        if state.connection != connection {
            return Err(ConnectionError::Superseded);
        }
        if state.overflowed {
            return Err(ConnectionError::Overflow);
        }
        state.queued_bytes = 0;
        Ok(std::mem::take(&mut state.queue))
    }

    /// Queues a message of the daemon itself for the client.
    pub fn send(&self, message: FromDaemon) {
        self.push(&mut self.lock(), QueuedMessage::Message(message));
    }

    /// Queues a long reply as an encoded frame.
    pub fn send_frame(&self, frame: Vec<u8>, list_permit: ListPermit) {
        self.push(&mut self.lock(), QueuedMessage::Encoded { frame, _permit: list_permit });
    }

    fn push(&self, state: &mut State, message: QueuedMessage) {
        // A client without a connection repeats its requests when it reconnects.
        if !state.connected {
            return;
        }
        if state.queued_bytes > self.service.context.limits.unread_bytes {
            state.overflowed = true;
            (state.queue, state.queued_bytes) = (Vec::new(), 0);
        } else {
            state.queued_bytes += message.bytes();
            state.queue.push(message);
        }
        state.wake.notify_one();
    }

    /// Forwards a message of one of the client's sessions to the member, if the client may send it.
    pub fn forward(&self, session: u64, message: ToMember) {
        if let ToMember::KeepAlive { sent_ns, .. } = message
            && self.principal().check_holds().is_err()
        {
            return self.reply_to_keep_alive(session, sent_ns);
        }
        let session = self.session(session);
        match self.admit(session, &message) {
            Ok(()) => self.service.context.member.handle_client_message(session, message),
            Err(why) => {
                self.service.metrics.refuse("request");
                // Acquisitions are numbered from 1; 0 stands for the session itself.
                let number = if let ToMember::Acquire { number, .. } = message { number } else { 0 };
                self.lock().open.remove(&(session.number, number));
                self.send(FromDaemon::Refuse { session: session.number, number, why });
            }
        }
    }

    /// Replies to a keep-alive of a client that may not acquire any lock. It has no session at the member that could
    /// end; its connection is for queries only.
    fn reply_to_keep_alive(&self, session: u64, sent_ns: u64) {
        let duration_ns = u64::try_from(self.service.context.member.lease().as_nanos()).unwrap_or(u64::MAX);
        let (generation, revoked) = (lockkeeper_member::Generation::default(), Vec::new());
        self.send(FromDaemon::Session(
            session,
            ToClient::Alive { generation, sent_ns, duration_ns, revoked, recorded: None },
        ));
    }

    fn admit(&self, session: SessionId, message: &ToMember) -> Result<(), Refusal> {
        match message {
            ToMember::KeepAlive { first, .. } => {
                self.admit_session(session, *first).map_err(|why| Refusal::Because(why.to_string()))
            }
            ToMember::Acquire { number, request, .. } => {
                let admitted = self.admit_request(session, *number, request);
                admitted.map_err(|why| Refusal::Because(why.to_string()))?;
                match self.service.context.member.mode_in_use(&request.lock.name) {
                    Some(mode) if !mode.same_lock_as(request.mode) => Err(Refusal::InUseAs(mode)),
                    _ => Ok(()),
                }
            }
            ToMember::Release { .. } | ToMember::InUse { .. } => Ok(()),
            ToMember::Close => {
                self.end_session(&mut self.lock(), session, AuditEvent::Release, "");
                Ok(())
            }
        }
    }

    fn admit_request(
        &self,
        session: SessionId,
        number: u64,
        request: &LockRequest,
    ) -> Result<(), AdmissionError> {
        let name = &request.lock.name;
        check_name(name).map_err(AdmissionError::Name)?;
        request.tag.check().map_err(AdmissionError::Tag)?;
        self.service.context.check(NATIVE, &self.principal(), Action::Acquire, name)?;
        // A client repeats a request until it receives a reply. A repetition is not counted again.
        self.service.quotas.follow_views();
        let mut state = self.lock();
        if state.open.contains_key(&(session.number, number)) {
            return Ok(());
        }
        let limits = &self.service.context.limits;
        let limit = limits.requests_per_second;
        self.service.check_rate(&self.account).map_err(|_| AdmissionError::Rate { limit })?;
        let most = limits.locks_per_session;
        if state.open.len() >= most {
            return Err(AdmissionError::TooManyLocks { most });
        }
        let charge = self.service.quotas.wait(&self.account, name)?;
        state.open.entry((session.number, number)).or_insert_with(|| {
            let span = self.span(Acquisition { session, number }, request);
            span.in_scope(|| tracing::debug!("asked for"));
            OpenRequest { name: name.clone(), held: false, since: Instant::now(), span, charge }
        });
        Ok(())
    }

    /// The log span of a request, with the same fields as for HTTP.
    fn span(&self, acquisition: Acquisition, request: &LockRequest) -> Span {
        tracing::info_span!(
            "acquire", trace = %Trace::of_tag(&request.tag.owner, &request.tag.purpose).id(), lock = %request.lock.name, %acquisition,
            who = %self.who, by = NATIVE
        )
    }

    fn admit_session(&self, session: SessionId, first: bool) -> Result<(), AdmissionError> {
        if !first {
            return Ok(());
        }
        self.service.context.check(NATIVE, &self.principal(), Action::NewSession, "")?;
        let mut state = self.lock();
        if state.sessions.contains_key(&session.number) {
            return Ok(());
        }
        let charge = self.service.quotas.charge(&self.account, Resource::Sessions)?;
        state.sessions.insert(session.number, (self.service.metrics.session(), charge));
        Ok(())
    }

    fn end_session(&self, state: &mut State, session: SessionId, what: AuditEvent, why: &str) {
        state.sessions.remove(&session.number);
        // Take out the entries of this session. The keys are (session, acquisition), so they form one range.
        let mut rest = state.open.split_off(&(session.number, 0));
        let mut later = rest.split_off(&(session.number.saturating_add(1), 0));
        state.open.append(&mut later);
        for ((_, number), open) in rest {
            open.span.in_scope(|| tracing::debug!(why, "over, with its session"));
            if open.held {
                self.log(session, number, AuditEntry { lock: &open.name, why, ..self.line(what) });
            }
        }
    }

    /// An audit log entry for this client.
    fn line(&self, what: AuditEvent) -> AuditEntry<'_> {
        AuditEntry::new(what, NATIVE, &self.who)
    }

    fn log(&self, session: SessionId, number: u64, line: AuditEntry<'_>) {
        if self.service.context.audit.is_enabled() {
            let acquisition = Some(Acquisition { session, number }.to_string());
            self.service.context.audit.write(&AuditEntry { acquisition, ..line });
        }
    }

    fn record(&self, state: &mut State, session: SessionId, message: &ToClient) {
        match message {
            ToClient::Alive { .. }
            | ToClient::Recall { .. }
            | ToClient::Recorded { .. }
            | ToClient::RevokedBy { .. }
            | ToClient::Resumed { .. } => {}
            ToClient::Granted { number, fence, delegated_entries: more, .. } => {
                if let Some(open) = state.open.get_mut(&(session.number, *number))
                    && !std::mem::replace(&mut open.held, true)
                {
                    let requested_at = std::mem::replace(&mut open.since, Instant::now());
                    open.charge.grant();
                    let name = open.name.clone();
                    let fence = fence.map(|fence| fence.number());
                    open.span.in_scope(|| tracing::debug!(fence, "granted"));
                    self.service.context.member.count_grant(requested_at.elapsed());
                    self.service.metrics.waited(&name, requested_at.elapsed());
                    let more = (*more > 0).then_some(*more);
                    self.log(
                        session,
                        *number,
                        AuditEntry { lock: &name, fence, more, ..self.line(AuditEvent::Grant) },
                    );
                }
            }
            ToClient::Ended { number, outcome: how } => {
                let Some(open) = state.open.remove(&(session.number, *number)) else { return };
                open.span.in_scope(|| tracing::debug!(?how, "over"));
                if open.held {
                    self.service.context.member.count_hold_end(open.since.elapsed());
                    self.service.metrics.held(&open.name, open.since.elapsed());
                }
                match how {
                    Ended::Revoked if open.held => {
                        let why = "taken back by force, or held for too long";
                        self.log(
                            session,
                            *number,
                            AuditEntry { lock: &open.name, why, ..self.line(AuditEvent::Lost) },
                        );
                    }
                    _ if open.held => {
                        self.log(
                            session,
                            *number,
                            AuditEntry { lock: &open.name, ..self.line(AuditEvent::Release) },
                        );
                    }
                    _ => {}
                }
            }
            ToClient::NoSession => self.end_session(state, session, AuditEvent::Lost, "its session is over"),
        }
    }
}

impl ClientTransport for Client {
    fn deliver(&self, session: SessionId, message: ToClient) {
        let mut state = self.lock();
        self.record(&mut state, session, &message);
        self.push(&mut state, QueuedMessage::Message(FromDaemon::Session(session.number, message)));
    }

    fn wait_span(&self, lock: &LockName) -> Option<Span> {
        let state = self.lock();
        let mut waits = state.open.values().filter(|open| !open.held && open.name == lock.name);
        waits.next().map(|open| open.span.clone())
    }
}

/// The identity of a client: the name of its token and its own secret.
type Identity = (Arc<str>, Secret);

/// The reason why a client cannot connect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("another client has the same number: use another secret")]
    NumberInUse,
}

/// The identity of a client towards the members: a hash of the name of its token and its secret. Every daemon computes the
/// same one, so that the client's sessions can be reached through any of them.
fn identity(who: &str, secret: Secret) -> ClientIdentity {
    let mut hash = Sha256::new();
    hash.update(b"lockkeeper client 1");
    hash.update((who.len() as u64).to_le_bytes());
    hash.update(who.as_bytes());
    hash.update(secret.bytes());
    let hash: [u8; 32] = hash.finalize().into();
    let (mut proof, mut number) = ([0; 16], [0; 8]);
    proof.copy_from_slice(&hash[..16]);
    number.copy_from_slice(&hash[16..24]);
    let number = u64::from_le_bytes(number) & !SessionId::RESIDENT;
    ClientIdentity { number, proof: Proof(proof) }
}

/// All clients of a daemon.
pub struct Clients {
    service: Arc<ClientService>,
    clients: Mutex<HashMap<Identity, Arc<Client>>>,
}

impl Clients {
    /// A daemon without clients.
    pub fn new(service: Arc<ClientService>) -> Self {
        Self { service, clients: Mutex::default() }
    }

    /// The state that all protocols use.
    pub fn context(&self) -> &Arc<DaemonContext> {
        &self.service.context
    }

    pub(crate) fn service(&self) -> &Arc<ClientService> {
        &self.service
    }

    /// Connects a client, for the first time or again, and supersedes its earlier connections.
    pub(crate) fn connect(
        &self,
        secret: Secret,
        principal: Principal,
        peer: Option<IpAddr>,
    ) -> Result<NewConnection, ConnectError> {
        let account = self.service.account(&principal, peer);
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        let client = match clients.entry((principal.name().clone(), secret)) {
            Entry::Occupied(client) => client.get().clone(),
            Entry::Vacant(vacant) => {
                let identity = identity(principal.name(), secret);
                let client = Arc::new(Client {
                    service: self.service.clone(),
                    account,
                    who: principal.name().clone(),
                    principal: Mutex::new(principal.clone()),
                    number: identity.number,
                    state: Mutex::default(),
                });
                if !self.service.context.member.attach(identity, client.clone()) {
                    return Err(ConnectError::NumberInUse);
                }
                vacant.insert(client).clone()
            }
        };
        let mut state = client.lock();
        state.connection += 1;
        (state.connected, state.gone_at, state.overflowed) = (true, None, false);
        (state.queue, state.queued_bytes) = (Vec::new(), 0);
        std::mem::take(&mut state.wake).notify_one();
        let (connection, wake) = (state.connection, state.wake.clone());
        drop((state, clients));
        // Its token may allow less than at the previous connection.
        client.apply_rights(&principal);
        Ok(NewConnection { client, connection, wake })
    }

    /// Handles the end of a client's connection. The client may still be alive, so its holds stay until its lease
    /// expires. Sessions without holds and waits are closed at once.
    pub(crate) fn disconnect(&self, client: &Client, connection: u64) {
        let mut state = client.lock();
        if state.connection != connection {
            return;
        }
        (state.connected, state.gone_at) = (false, Some(Instant::now()));
        (state.queue, state.queued_bytes) = (Vec::new(), 0);
        let idle = if state.open.is_empty() { std::mem::take(&mut state.sessions) } else { BTreeMap::new() };
        drop(state);
        for session in idle.into_keys() {
            self.service.context.member.handle_client_message(client.session(session), ToMember::Close);
        }
        self.service.context.member.flush();
    }

    /// Drops clients that have been disconnected for at least `after`: their sessions have ended.
    pub(crate) fn forget(&self, after: Duration) {
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        clients.retain(|_, client| {
            let mut state = client.lock();
            let gone = state.gone_at.is_some_and(|at| at.elapsed() >= after);
            if gone {
                let over: Vec<u64> = state.sessions.keys().copied().collect();
                for session in over {
                    client.end_session(
                        &mut state,
                        client.session(session),
                        AuditEvent::Lost,
                        "the client stopped sending keep-alives",
                    );
                }
                drop(state);
                self.service.context.member.detach(client.session(0).client);
            }
            !gone
        });
    }
}
