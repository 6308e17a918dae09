//! The clients of the native protocol: their identity, their requests, and the messages queued for them.
//!
//! A client outlives its connections: it keeps its holds until its lease ends. A connection belongs to a client if it
//! presents the client's secret and a token of the same name. The number of the client is chosen here and gives no
//! access.

use super::NATIVE;
use crate::access::Principal;
use crate::audit::Entry as Line;
use crate::front::Front;
use crate::metrics::Counted;
use crate::quotas::{Charge, LockCharge, Resource};
use crate::rights::Action;
use crate::shared::Shared;
use crate::trace::Trace;
use crate::turns::Turn;
use lockkeeper_cluster::{Hears, SessionId, ToClient, ToMember};
use lockkeeper_member::{Acquisition, Ended, LockName, LockRequest, check_name};
use lockkeeper_session::protocol::{FromDaemon, Refusal, Secret};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::Span;

/// A request of a client.
struct Open {
    name: Arc<str>,
    held: bool,
    /// The time of the grant, or of the request while it waits.
    since: Instant,
    /// The span of the request in the logs.
    span: Span,
    charge: LockCharge,
}

/// A message queued for a client.
pub(crate) enum Unread {
    Message(FromDaemon),
    /// A long reply as an encoded frame, with its turn, which ends once the frame is sent.
    Encoded {
        frame: Vec<u8>,
        _turn: Turn,
    },
}

impl Unread {
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
    overrun: bool,
    unread: Vec<Unread>,
    unread_bytes: usize,
    sessions: BTreeMap<u64, (Counted, Charge)>,
    open: BTreeMap<(u64, u64), Open>,
}

/// One client.
pub(crate) struct Client {
    front: Arc<Front>,
    /// The name under which quotas count its usage.
    account: Arc<str>,
    /// The name of its token.
    who: Arc<str>,
    principal: Mutex<Principal>,
    /// The number under which the member knows it.
    number: OnceLock<u64>,
    state: Mutex<State>,
}

/// A new connection of a client.
pub(crate) struct Newest {
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
        SessionId { client: self.number.get().copied().unwrap_or_default(), number }
    }

    /// Applies changed rights of the client's token. Holds that they do not cover are revoked, and waits are refused.
    pub fn follow(&self, principal: &Principal) {
        *self.principal.lock().unwrap_or_else(|e| e.into_inner()) = principal.clone();
        let mut state = self.lock();
        let denied = |_: &(u64, u64), open: &mut Open| Action::Acquire.check(principal, &open.name).is_err();
        let waits = |place: &(u64, u64), open: &mut Open| !open.held && denied(place, open);
        let waiting: Vec<_> = state.open.extract_if(.., waits).collect();
        let mut held = Vec::new();
        for (&place, open) in &mut state.open {
            if denied(&place, open) {
                held.push((place, open.name.clone()));
            }
        }
        for ((session, number), open) in &waiting {
            let why =
                format!("the token `{}` does not allow `acquire` on `{}` any more", self.who, open.name);
            let refused =
                FromDaemon::Refuse { session: *session, number: *number, why: Refusal::Because(why) };
            self.push(&mut state, Unread::Message(refused));
        }
        // The member may call back at once, and the callback locks the state.
        drop(state);
        let member = &self.front.shared.member;
        for ((session, number), _) in waiting {
            member.say(self.session(session), ToMember::Release { number });
        }
        for ((session, number), lock) in held {
            member.revoke_here(&lock, Acquisition { session: self.session(session), number });
        }
        member.flush();
    }

    pub fn account(&self) -> &Arc<str> {
        &self.account
    }

    /// Takes the queued messages; an error with the reason if this connection must end.
    pub fn take_unread(&self, connection: u64) -> Result<Vec<Unread>, &'static str> {
        let mut state = self.lock();
        if state.connection != connection {
            return Err("the client has a newer connection");
        }
        if state.overrun {
            return Err("the client reads too slowly");
        }
        state.unread_bytes = 0;
        Ok(std::mem::take(&mut state.unread))
    }

    /// Queues a message of the daemon itself for the client.
    pub fn tell(&self, said: FromDaemon) {
        self.push(&mut self.lock(), Unread::Message(said));
    }

    /// Queues a long reply as an encoded frame.
    pub fn tell_frame(&self, frame: Vec<u8>, turn: Turn) {
        self.push(&mut self.lock(), Unread::Encoded { frame, _turn: turn });
    }

    fn push(&self, state: &mut State, said: Unread) {
        // A client without a connection repeats its requests when it reconnects.
        if !state.connected {
            return;
        }
        if state.unread_bytes > self.front.shared.limits.unread_bytes {
            state.overrun = true;
            (state.unread, state.unread_bytes) = (Vec::new(), 0);
        } else {
            state.unread_bytes += said.bytes();
            state.unread.push(said);
        }
        state.wake.notify_one();
    }

    /// Forwards a message of one of the client's sessions to the member, if the client may send it.
    pub fn say(&self, session: u64, said: ToMember) {
        if let ToMember::KeepAlive { sent_ns, .. } = said
            && self.principal().check_holds().is_err()
        {
            return self.answer_keep_alive(session, sent_ns);
        }
        let session = self.session(session);
        match self.admit(session, &said) {
            Ok(()) => self.front.shared.member.say(session, said),
            Err(why) => {
                self.front.metrics.refuse("request");
                // Acquisitions are numbered from 1; 0 stands for the session itself.
                let number = if let ToMember::Acquire { number, .. } = said { number } else { 0 };
                self.lock().open.remove(&(session.number, number));
                self.tell(FromDaemon::Refuse { session: session.number, number, why });
            }
        }
    }

    /// Replies to a keep-alive of a client that may not acquire any lock. It has no session at the member that could
    /// end; its connection is for queries only.
    fn answer_keep_alive(&self, session: u64, sent_ns: u64) {
        let duration_ns = u64::try_from(self.front.shared.member.lease().as_nanos()).unwrap_or(u64::MAX);
        let (generation, revoked) = (lockkeeper_member::Generation::default(), Vec::new());
        self.tell(FromDaemon::Session(
            session,
            ToClient::Alive { generation, sent_ns, duration_ns, revoked },
        ));
    }

    fn admit(&self, session: SessionId, said: &ToMember) -> Result<(), Refusal> {
        match said {
            ToMember::KeepAlive { first, .. } => {
                self.admit_session(session, *first).map_err(Refusal::Because)
            }
            ToMember::Acquire { number, request: wish, .. } => {
                self.admit_wish(session, *number, wish).map_err(Refusal::Because)?;
                match self.front.shared.member.mode_in_use(&wish.lock.name) {
                    Some(mode) if !mode.same_lock_as(wish.mode) => Err(Refusal::InUseAs(mode)),
                    _ => Ok(()),
                }
            }
            ToMember::Release { .. } | ToMember::InUse { .. } => Ok(()),
            ToMember::Close => {
                self.end_session(&mut self.lock(), session, "release", "");
                Ok(())
            }
        }
    }

    fn admit_wish(&self, session: SessionId, number: u64, wish: &LockRequest) -> Result<(), String> {
        let name = &wish.lock.name;
        check_name(name).map_err(|why| format!("bad lock name: {why}"))?;
        wish.tag.check().map_err(|why| format!("bad owner or purpose: {why}"))?;
        let allowed = self.front.shared.check(NATIVE, &self.principal(), Action::Acquire, name);
        allowed.map_err(|denied| denied.to_string())?;
        // A client repeats a request until it receives a reply. A repetition is not counted again.
        self.front.quotas.follow_views();
        let mut state = self.lock();
        if state.open.contains_key(&(session.number, number)) {
            return Ok(());
        }
        let limits = &self.front.shared.limits;
        let rate = limits.requests_per_second;
        self.front.check_rate(&self.account).map_err(|_| format!("more than {rate} requests in a second"))?;
        let most = limits.locks_per_session;
        if state.open.len() >= most {
            return Err(format!("a client holds and waits for at most {most} locks at a time"));
        }
        let charge = self.front.quotas.wait(&self.account, name).map_err(|exceeded| exceeded.to_string())?;
        state.open.entry((session.number, number)).or_insert_with(|| {
            let span = self.span(Acquisition { session, number }, wish);
            span.in_scope(|| tracing::debug!("asked for"));
            Open { name: name.clone(), held: false, since: Instant::now(), span, charge }
        });
        Ok(())
    }

    /// The log span of a request, with the same fields as for HTTP.
    fn span(&self, acquisition: Acquisition, wish: &LockRequest) -> Span {
        tracing::info_span!(
            "acquire", trace = %Trace::of_tag(&wish.tag.owner, &wish.tag.purpose).id(), lock = %wish.lock.name, %acquisition,
            who = %self.who, by = NATIVE
        )
    }

    fn admit_session(&self, session: SessionId, first: bool) -> Result<(), String> {
        if !first {
            return Ok(());
        }
        let allowed = self.front.shared.check(NATIVE, &self.principal(), Action::NewSession, "");
        allowed.map_err(|denied| denied.to_string())?;
        let mut state = self.lock();
        if state.sessions.contains_key(&session.number) {
            return Ok(());
        }
        let charge = self.front.quotas.charge(&self.account, Resource::Sessions);
        let charge = charge.map_err(|exceeded| exceeded.to_string())?;
        state.sessions.insert(session.number, (self.front.metrics.session(), charge));
        Ok(())
    }

    fn end_session(&self, state: &mut State, session: SessionId, what: &'static str, why: &str) {
        state.sessions.remove(&session.number);
        // Take out the entries of this session. The keys are (session, acquisition), so they form one range.
        let mut rest = state.open.split_off(&(session.number, 0));
        let mut later = rest.split_off(&(session.number.saturating_add(1), 0));
        state.open.append(&mut later);
        for ((_, number), open) in rest {
            open.span.in_scope(|| tracing::debug!(why, "over, with its session"));
            if open.held {
                self.log(session, number, Line { lock: &open.name, why, ..self.line(what) });
            }
        }
    }

    /// An audit log entry for this client.
    fn line(&self, what: &'static str) -> Line<'_> {
        Line::new(what, NATIVE, &self.who)
    }

    fn log(&self, session: SessionId, number: u64, line: Line<'_>) {
        if self.front.shared.audit.is_kept() {
            let acquisition = Some(Acquisition { session, number }.to_string());
            self.front.shared.audit.write(&Line { acquisition, ..line });
        }
    }

    fn note(&self, state: &mut State, session: SessionId, said: &ToClient) {
        match said {
            ToClient::Alive { .. } | ToClient::Recall { .. } => {}
            ToClient::Granted { number, fence, delegated_entries: more, .. } => {
                if let Some(open) = state.open.get_mut(&(session.number, *number))
                    && !std::mem::replace(&mut open.held, true)
                {
                    let asked = std::mem::replace(&mut open.since, Instant::now());
                    open.charge.grant();
                    let name = open.name.clone();
                    let fence = fence.map(|fence| fence.number());
                    open.span.in_scope(|| tracing::debug!(fence, "granted"));
                    self.front.shared.member.entered(asked.elapsed());
                    self.front.metrics.waited(&name, asked.elapsed());
                    let more = (*more > 0).then_some(*more);
                    self.log(session, *number, Line { lock: &name, fence, more, ..self.line("grant") });
                }
            }
            ToClient::Ended { number, outcome: how } => {
                let Some(open) = state.open.remove(&(session.number, *number)) else { return };
                open.span.in_scope(|| tracing::debug!(?how, "over"));
                if open.held {
                    self.front.shared.member.left(open.since.elapsed());
                    self.front.metrics.held(&open.name, open.since.elapsed());
                }
                match how {
                    Ended::Revoked if open.held => {
                        let why = "taken back by force, or held for too long";
                        self.log(session, *number, Line { lock: &open.name, why, ..self.line("lost") });
                    }
                    _ if open.held => {
                        self.log(session, *number, Line { lock: &open.name, ..self.line("release") });
                    }
                    _ => {}
                }
            }
            ToClient::NoSession => self.end_session(state, session, "lost", "its session is over"),
        }
    }
}

impl Hears for Client {
    fn hear(&self, session: SessionId, said: ToClient) {
        let mut state = self.lock();
        self.note(&mut state, session, &said);
        self.push(&mut state, Unread::Message(FromDaemon::Session(session.number, said)));
    }

    fn traced(&self, lock: &LockName) -> Option<Span> {
        let state = self.lock();
        let mut waits = state.open.values().filter(|open| !open.held && open.name == lock.name);
        waits.next().map(|open| open.span.clone())
    }
}

/// The identity of a client: the name of its token and its own secret.
type Identity = (Arc<str>, Secret);

/// All clients of a daemon.
pub struct Clients {
    front: Arc<Front>,
    clients: Mutex<HashMap<Identity, Arc<Client>>>,
}

impl Clients {
    /// A daemon without clients.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front, clients: Mutex::default() }
    }

    /// The state that all protocols use.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.front.shared
    }

    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// Connects a client, for the first time or again, and supersedes its earlier connections.
    pub(crate) fn connect(
        &self,
        secret: Secret,
        principal: Principal,
        peer: Option<IpAddr>,
    ) -> Result<Newest, String> {
        let account = self.front.account(&principal, peer);
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        let client = match clients.entry((principal.name().clone(), secret)) {
            Entry::Occupied(client) => client.get().clone(),
            Entry::Vacant(place) => {
                let client = Arc::new(Client {
                    front: self.front.clone(),
                    account,
                    who: principal.name().clone(),
                    principal: Mutex::new(principal.clone()),
                    number: OnceLock::new(),
                    state: Mutex::default(),
                });
                let number = self.front.shared.member.attach(client.clone());
                let _ = client.number.set(number.map_err(|error| error.to_string())?);
                place.insert(client).clone()
            }
        };
        let mut state = client.lock();
        state.connection += 1;
        (state.connected, state.gone_at, state.overrun) = (true, None, false);
        (state.unread, state.unread_bytes) = (Vec::new(), 0);
        std::mem::take(&mut state.wake).notify_one();
        let (connection, wake) = (state.connection, state.wake.clone());
        drop((state, clients));
        // Its token may allow less than at the previous connection.
        client.follow(&principal);
        Ok(Newest { client, connection, wake })
    }

    /// Handles the end of a client's connection. The client may still be alive, so its holds stay until its lease
    /// expires. Sessions without holds and waits are closed at once.
    pub(crate) fn disconnect(&self, client: &Client, connection: u64) {
        let mut state = client.lock();
        if state.connection != connection {
            return;
        }
        (state.connected, state.gone_at) = (false, Some(Instant::now()));
        (state.unread, state.unread_bytes) = (Vec::new(), 0);
        let idle = if state.open.is_empty() { std::mem::take(&mut state.sessions) } else { BTreeMap::new() };
        drop(state);
        for session in idle.into_keys() {
            self.front.shared.member.say(client.session(session), ToMember::Close);
        }
        self.front.shared.member.flush();
    }

    /// Forgets clients that have been disconnected for at least `after`: their sessions have ended.
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
                        "lost",
                        "the client stopped sending keep-alives",
                    );
                }
                drop(state);
                self.front.shared.member.detach(client.session(0).client);
            }
            !gone
        });
    }
}
