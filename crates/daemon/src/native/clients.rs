//! The clients that a daemon serves: who they are, what they have asked for, what they have not heard yet.
//!
//! A client outlives its connections: what it holds is its own until its lease ends, and whoever comes under its number
//! must have come with the same token.

use super::NATIVE;
use crate::access::{Permission, Principal};
use crate::audit::Entry;
use crate::front::Front;
use crate::metrics::Counted;
use crate::shared::Shared;
use crate::trace::Trace;
use governor::DefaultDirectRateLimiter;
use lockkeeper_cluster::{Hears, SessionId, ToClient, ToMember};
use lockkeeper_member::{Acquisition, Ended, LockName, Wish};
use lockkeeper_wire::{FromDaemon, How, Refusal};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::Span;

/// What a client has asked for.
struct Open {
    name: Arc<str>,
    held: bool,
    /// Since when it holds, or waits.
    since: Instant,
    /// Follows it through the logs.
    span: Span,
}

#[derive(Default)]
struct State {
    /// Counts the client's connections; only the newest one is served.
    connection: u64,
    /// Tells that one, and no other, that there is something to say, or that it is not the newest any more.
    wake: Arc<Notify>,
    connected: bool,
    gone_at: Option<Instant>,
    /// Lagging behind in its reading by more than the limit.
    overrun: bool,
    unread: Vec<FromDaemon>,
    sessions: BTreeMap<u64, Counted>,
    open: BTreeMap<(u64, u64), Open>,
}

/// One client.
pub(crate) struct Client {
    front: Arc<Front>,
    principal: Principal,
    rate: DefaultDirectRateLimiter,
    sessions: Arc<AtomicUsize>,
    state: Mutex<State>,
}

/// A connection that has just been made.
pub(crate) struct Newest {
    pub client: Arc<Client>,
    pub connection: u64,
    pub wake: Arc<Notify>,
}

impl Client {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What the client has not heard yet; `None` if this connection is to end, and why.
    pub fn take_unread(&self, connection: u64) -> Result<Vec<FromDaemon>, &'static str> {
        let mut state = self.lock();
        if state.connection != connection {
            return Err("the client has a newer connection");
        }
        if state.overrun {
            return Err("the client reads too slowly");
        }
        Ok(std::mem::take(&mut state.unread))
    }

    /// Something for the client, beside what the member says.
    pub fn tell(&self, said: FromDaemon) {
        self.push(&mut self.lock(), said);
    }

    fn push(&self, state: &mut State, said: FromDaemon) {
        // Whoever is away asks again when it comes back.
        if !state.connected {
            return;
        }
        const BYTES: usize = size_of::<FromDaemon>();
        if state.unread.len() * BYTES > self.front.shared.limits.unread_bytes {
            state.overrun = true;
            state.unread = Vec::new();
        } else {
            state.unread.push(said);
        }
        state.wake.notify_one();
    }

    /// The client says something to the member. What it may not say, the member does not hear.
    pub fn say(&self, session: SessionId, said: ToMember) {
        match self.admit(session, &said) {
            Ok(()) => self.front.shared.member.say(session, said),
            Err(why) => {
                self.front.metrics.refuse("request");
                // Acquisitions are counted from 1: 0 is the session itself.
                let number = if let ToMember::Acquire { number, .. } = said { number } else { 0 };
                self.lock().open.remove(&(session.number, number));
                self.tell(FromDaemon::Refuse { session, number, why });
            }
        }
    }

    fn admit(&self, session: SessionId, said: &ToMember) -> Result<(), Refusal> {
        match said {
            ToMember::KeepAlive { first, .. } => {
                self.admit_session(session, *first).map_err(Refusal::Because)
            }
            ToMember::Acquire { number, wish, .. } => {
                self.admit_wish(session, *number, wish).map_err(Refusal::Because)?;
                match self.front.shared.member.claimed(&wish.lock.name).map(How::from) {
                    Some(how) if !how.goes_with(wish.claim.into()) => Err(Refusal::InUseAs(how)),
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

    fn admit_wish(&self, session: SessionId, number: u64, wish: &Wish) -> Result<(), String> {
        let name = &wish.lock.name;
        let allowed = self.front.shared.check(NATIVE, &self.principal, Permission::Acquire, name);
        allowed.map_err(|denied| denied.to_string())?;
        // A client repeats a request until it is answered: that is not another request.
        let mut state = self.lock();
        if state.open.contains_key(&(session.number, number)) {
            return Ok(());
        }
        let limits = &self.front.shared.limits;
        let rate = limits.requests_per_second;
        self.rate.check().map_err(|_| format!("more than {rate} requests in a second"))?;
        let most = limits.locks_per_session;
        if state.open.len() >= most {
            return Err(format!("a client holds and waits for at most {most} locks at a time"));
        }
        state.open.entry((session.number, number)).or_insert_with(|| {
            let span = self.span(Acquisition { session, number }, wish);
            span.in_scope(|| tracing::debug!("asked for"));
            Open { name: name.clone(), held: false, since: Instant::now(), span }
        });
        Ok(())
    }

    /// What the wish is called in the logs, as the same wish by way of HTTP would be.
    fn span(&self, acquisition: Acquisition, wish: &Wish) -> Span {
        tracing::info_span!(
            "acquire", trace = %Trace::of_tag(&wish.tag.owner, &wish.tag.purpose).id(), lock = %wish.lock.name, %acquisition,
            who = %self.principal.name(), by = NATIVE
        )
    }

    fn admit_session(&self, session: SessionId, first: bool) -> Result<(), String> {
        let mut state = self.lock();
        if !first || state.sessions.contains_key(&session.number) {
            return Ok(());
        }
        let most = self.front.shared.limits.sessions;
        if self.sessions.fetch_add(1, Ordering::Relaxed) >= most {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("this daemon serves at most {most} sessions"));
        }
        state.sessions.insert(session.number, self.front.metrics.session());
        Ok(())
    }

    fn end_session(&self, state: &mut State, session: SessionId, what: &'static str, why: &str) {
        if state.sessions.remove(&session.number).is_some() {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
        }
        let mut rest = state.open.split_off(&(session.number, 0));
        let mut later = rest.split_off(&(session.number.saturating_add(1), 0));
        state.open.append(&mut later);
        for ((_, number), open) in rest {
            open.span.in_scope(|| tracing::debug!(why, "over, with its session"));
            if open.held {
                self.log(session, number, Entry { lock: &open.name, why, ..self.line(what) });
            }
        }
    }

    /// A line for the audit log: what happened to this client.
    fn line(&self, what: &'static str) -> Entry<'_> {
        Entry::new(what, NATIVE, self.principal.name())
    }

    fn log(&self, session: SessionId, number: u64, line: Entry<'_>) {
        if self.front.shared.audit.is_kept() {
            let acquisition = Some(Acquisition { session, number }.to_string());
            self.front.shared.audit.write(&Entry { acquisition, ..line });
        }
    }

    fn note(&self, state: &mut State, session: SessionId, said: &ToClient) {
        match said {
            ToClient::Alive { .. } | ToClient::Wanted { .. } => {}
            ToClient::Granted { number, fence, more, .. } => {
                if let Some(open) = state.open.get_mut(&(session.number, *number))
                    && !std::mem::replace(&mut open.held, true)
                {
                    let asked = std::mem::replace(&mut open.since, Instant::now());
                    let name = open.name.clone();
                    let fence = fence.map(|fence| fence.number());
                    open.span.in_scope(|| tracing::debug!(fence, "granted"));
                    self.front.shared.member.entered(asked.elapsed());
                    self.front.metrics.waited(&name, asked.elapsed());
                    let more = (*more > 0).then_some(*more);
                    self.log(session, *number, Entry { lock: &name, fence, more, ..self.line("grant") });
                }
            }
            ToClient::Ended { number, how } => {
                let Some(open) = state.open.remove(&(session.number, *number)) else { return };
                open.span.in_scope(|| tracing::debug!(?how, "over"));
                if open.held {
                    self.front.shared.member.left(open.since.elapsed());
                    self.front.metrics.held(&open.name, open.since.elapsed());
                }
                match how {
                    Ended::Revoked if open.held => {
                        let why = "taken back by force, or held for too long";
                        self.log(session, *number, Entry { lock: &open.name, why, ..self.line("lost") });
                    }
                    _ if open.held => {
                        self.log(session, *number, Entry { lock: &open.name, ..self.line("release") });
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
        self.push(&mut state, FromDaemon::Hear(session, said));
    }

    fn traced(&self, lock: &LockName) -> Option<Span> {
        let state = self.lock();
        let mut waits = state.open.values().filter(|open| !open.held && open.name == lock.name);
        waits.next().map(|open| open.span.clone())
    }
}

/// All clients of a daemon.
pub struct Clients {
    front: Arc<Front>,
    sessions: Arc<AtomicUsize>,
    clients: Mutex<HashMap<u64, Arc<Client>>>,
}

impl Clients {
    /// Nobody yet.
    pub fn new(front: Arc<Front>) -> Self {
        Self { front, sessions: Arc::default(), clients: Mutex::default() }
    }

    /// What every way of asking needs.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.front.shared
    }

    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// A client connects, for the first time or again. Its connection is the newest now.
    pub(crate) fn connect(&self, number: u64, principal: Principal) -> Result<Newest, String> {
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        let client = match clients.get(&number) {
            Some(client) if client.principal.name() != principal.name() => {
                return Err(String::from("another client has this number; choose another one"));
            }
            Some(client) => client.clone(),
            None => {
                let client = Arc::new(Client {
                    front: self.front.clone(),
                    principal,
                    rate: self.front.new_rate(),
                    sessions: self.sessions.clone(),
                    state: Mutex::default(),
                });
                if !self.front.shared.member.attach(number, client.clone()) {
                    return Err(String::from(
                        "a client of the daemon itself has this number; choose another one",
                    ));
                }
                clients.insert(number, client.clone());
                client
            }
        };
        let mut state = client.lock();
        state.connection += 1;
        (state.connected, state.gone_at, state.overrun) = (true, None, false);
        state.unread.clear();
        std::mem::take(&mut state.wake).notify_one();
        let (connection, wake) = (state.connection, state.wake.clone());
        drop(state);
        Ok(Newest { client, connection, wake })
    }

    /// A connection of a client has ended. That proves nothing: what the client holds is waited out. But if it has asked for nothing, there is
    /// nothing to wait for.
    pub(crate) fn disconnect(&self, number: u64, client: &Client, connection: u64) {
        let mut state = client.lock();
        if state.connection != connection {
            return;
        }
        (state.connected, state.gone_at) = (false, Some(Instant::now()));
        state.unread = Vec::new();
        let idle = if state.open.is_empty() { std::mem::take(&mut state.sessions) } else { BTreeMap::new() };
        drop(state);
        for session in idle.into_keys() {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            self.front.shared.member.say(SessionId { client: number, number: session }, ToMember::Close);
        }
        self.front.shared.member.flush();
    }

    /// Forgets whoever has been away for so long: its sessions are over.
    pub(crate) fn forget(&self, after: Duration) {
        let mut clients = self.clients.lock().unwrap_or_else(|e| e.into_inner());
        clients.retain(|number, client| {
            let mut state = client.lock();
            let gone = state.gone_at.is_some_and(|at| at.elapsed() >= after);
            if gone {
                let over: Vec<u64> = state.sessions.keys().copied().collect();
                for session in over {
                    let session = SessionId { client: *number, number: session };
                    client.end_session(&mut state, session, "lost", "the client fell silent");
                }
                drop(state);
                let hears: Arc<dyn Hears> = client.clone();
                self.front.shared.member.detach(*number, &hears);
            }
            !gone
        });
    }
}
