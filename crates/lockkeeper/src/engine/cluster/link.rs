//! A session with one daemon: its waiting requests, its holds, and the bytes to be sent over its connection.
//!
//! [`ClientLink`], the pure state machine that the simulator runs too, makes all decisions that depend on time: when
//! to repeat a message, when to give a daemon up, and which requests move to another daemon. A [`Link`] adds the
//! callers that wait or hold.

use super::delegations::DelegationPredictor;
use super::revocation::{LinkHold, withhold};
use crate::lease::{self, Lease};
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, DetachedCommand, FromDaemon, Refusal, ToDaemon, Welcome,
};
use lockkeeper_session::{
    ClientLink, ClientSettings, Connection, Ended, Fence, LinkEnd, LockRequest, Progress, SessionId, ToClient,
};
use lockkeeper_system::lease_clock::now_ns;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The outcome of a lock request.
pub(super) enum RequestOutcome {
    Granted(Option<Fence>, Lease),
    Ended(Ended),
    Refused(Refusal),
    /// No daemon can be reached.
    Unreachable(String),
}

/// A waiting lock request. It moves to another link when its daemon goes away.
pub(super) struct PendingRequest {
    pub request: LockRequest,
    pub sender: oneshot::Sender<RequestOutcome>,
    pub location: Arc<Mutex<RequestLocation>>,
}

/// A query that waits for its reply.
pub(super) struct PendingQuery {
    query: DaemonQuery,
    sender: oneshot::Sender<QueryReply>,
    /// Number of times it was sent.
    sent: u32,
}

/// The reply to a query.
pub(super) struct QueryReply {
    pub reply: DaemonReply,
    /// Whether the query was sent more than once: a daemon may have performed it before the one that replied.
    pub repeated: bool,
}

impl PendingQuery {
    pub fn new(query: DaemonQuery, sender: oneshot::Sender<QueryReply>) -> Self {
        Self { query, sender, sent: 0 }
    }

    fn send(&mut self, number: u64, unsent: &mut Vec<u8>) {
        self.sent += 1;
        lockkeeper_session::protocol::encode(&ToDaemon::Query(number, self.query.clone()), unsent);
    }

    /// Whether this is a request for a detached hold whose caller has stopped waiting.
    fn is_cancelled(&self) -> bool {
        matches!(self.query, DaemonQuery::HoldAs(_)) && self.sender.is_closed()
    }
}

/// The current location of a request or hold: its link, and its number there.
pub(super) struct RequestLocation {
    pub link: Arc<Link>,
    pub number: u64,
    pub given_up: bool,
}

impl RequestLocation {
    /// Cancels the request or releases the hold, on the link where it is now.
    pub fn leave(location: &Mutex<RequestLocation>) -> Option<oneshot::Receiver<()>> {
        let mut location = location.lock().unwrap_or_else(|e| e.into_inner());
        location.given_up = true;
        let (link, number) = (location.link.clone(), location.number);
        drop(location);
        link.release(number)
    }
}

struct State {
    link: ClientLink,
    pending: BTreeMap<u64, PendingRequest>,
    held: BTreeMap<u64, LinkHold>,
    /// The prediction of repeated requests; `None` if delegations are turned off.
    delegations: Option<DelegationPredictor>,
    /// Whether the connection's task has set its timer for the expiry of delegations.
    timer_set: bool,
    releasing: BTreeMap<u64, oneshot::Sender<()>>,
    query: BTreeMap<u64, PendingQuery>,
    next_query: u64,
    unsent: Vec<u8>,
    /// The daemon's greeting on the current connection.
    welcome: Option<Welcome>,
    /// Requests that must move to another link, in order.
    moving: Vec<PendingRequest>,
    /// Whether the client knows that this link accepts no more requests.
    replaced: bool,
}

/// A session with one daemon.
pub(super) struct Link {
    state: Mutex<State>,
    /// Notified when there are bytes to send, or the link has ended.
    pub wake: Notify,
}

/// The next step of a link's task.
pub(super) enum Next {
    /// Connect to the daemon with this index.
    Connect(usize),
    /// Wait before the next attempt.
    Pause(Duration),
    /// Send the bytes, then receive for at most this time.
    Talk(Duration),
    /// Stop: the link has ended.
    End(LinkEnd),
}

/// The longest time between two calls of [`Link::turn`].
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Link {
    /// Creates a link that first connects to the daemon with index `first`. `timer_set` turns delegations on.
    pub fn new(id: SessionId, daemons: usize, first: usize, lease_ns: u64, timer_set: bool) -> Arc<Link> {
        let link = ClientLink::new(id, ClientSettings::new(daemons), first, lease_ns, now_ns());
        let state = State {
            link,
            pending: BTreeMap::new(),
            held: BTreeMap::new(),
            delegations: timer_set.then(DelegationPredictor::default),
            timer_set: false,
            releasing: BTreeMap::new(),
            query: BTreeMap::new(),
            next_query: 0,
            unsent: Vec::new(),
            welcome: None,
            moving: Vec::new(),
            replaced: false,
        };
        Arc::new(Link { state: Mutex::new(state), wake: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Encodes the link's messages, collects the requests that moved, and wakes the link's task if there is work for
    /// it.
    fn flush(&self, state: &mut State) {
        if self.flush_quietly(state) {
            self.wake.notify_one();
        }
    }

    fn flush_quietly(&self, state: &mut State) -> bool {
        let State { link, unsent, pending, moving, .. } = state;
        let (session, before) = (link.session().id().number, unsent.len());
        for message in link.take_messages() {
            lockkeeper_session::protocol::encode(&ToDaemon::Session(session, message), unsent);
        }
        if link.ended().is_some() {
            moving.extend(std::mem::take(pending).into_values());
        } else if link.is_retired() {
            moving.extend(link.take_moved().into_iter().filter_map(|(number, _)| pending.remove(&number)));
        }
        unsent.len() > before || link.is_retired()
    }

    /// Sends a lock request. Returns it if the link accepts no more requests.
    pub fn ask(self: &Arc<Link>, pending: PendingRequest) -> Option<PendingRequest> {
        let mut state = self.lock();
        if state.link.is_retired() {
            return Some(pending);
        }
        let mut location = pending.location.lock().unwrap_or_else(|e| e.into_inner());
        if location.given_up {
            return None;
        }
        let now = now_ns();
        // A delegated lock is entered again without a message.
        if let Some(number) = state.link.reenter(now, &pending.request) {
            (location.link, location.number) = (self.clone(), number);
            drop(location);
            state.pending.insert(number, pending);
            settle(&mut state, now, number);
            return None;
        }
        let mut request = pending.request.clone();
        request.delegated_entries =
            state.delegations.as_ref().map_or(0, |delegations| delegations.more(now, &request.lock));
        let Some(number) = state.link.acquire(now, request) else {
            drop(location);
            return Some(pending);
        };
        (location.link, location.number) = (self.clone(), number);
        drop(location);
        state.pending.insert(number, pending);
        self.flush(&mut state);
        None
    }

    /// Releases a hold or cancels a waiting request. The receiver resolves when the daemon has confirmed the release,
    /// and fails if the hold was lost before. `None` if no confirmation is needed.
    fn release(&self, number: u64) -> Option<oneshot::Receiver<()>> {
        let mut state = self.lock();
        let state = &mut *state;
        state.pending.remove(&number);
        let held = state.held.remove(&number);
        if state.link.ended().is_some() || state.link.session().progress(number).is_none() {
            return None;
        }
        let now = now_ns();
        // A revoked hold is not kept for later requests.
        let held = held.filter(|held| !held.revoked);
        if let (Some(held), Some(delegations)) = (held, &mut state.delegations) {
            let (allowed, made) = state.link.session().entries(number);
            delegations.left(now, &held.lock, allowed, made);
            if state.link.keep_as_delegation(now, number) {
                // A brief delegation goes back at the connection's next turn, unless a caller enters again before, so
                // that waiters are not delayed.
                if !std::mem::replace(&mut state.timer_set, true) || state.link.session().is_contended(number)
                {
                    self.wake.notify_one();
                }
                return None;
            }
        }
        let (sender, receiver) = oneshot::channel();
        state.releasing.insert(number, sender);
        state.link.release(now, number);
        self.flush(state);
        Some(receiver)
    }

    /// Sends a query to the daemon. Returns it if the link has ended.
    pub fn query(&self, mut query: PendingQuery) -> Option<PendingQuery> {
        let mut state = self.lock();
        if state.link.ended().is_some() {
            return Some(query);
        }
        // Return idle delegations first, so that the reply shows only locks in use.
        state.link.end_delegations(now_ns());
        self.flush(&mut state);
        state.next_query += 1;
        let number = state.next_query;
        if state.welcome.is_some() {
            query.send(number, &mut state.unsent);
            self.wake.notify_one();
        }
        state.query.insert(number, query);
        None
    }

    /// Cancels at the daemon the requests for detached holds whose callers have stopped waiting. Each is answered
    /// nevertheless: a hold that was granted meanwhile must be withdrawn.
    pub fn cancel_queries(&self) {
        let mut state = self.lock();
        let State { query, unsent, welcome: Some(_), .. } = &mut *state else { return };
        for number in query.iter().filter(|(_, query)| query.is_cancelled()).map(|(number, _)| *number) {
            lockkeeper_session::protocol::encode(&ToDaemon::Cancel(number), unsent);
        }
        self.wake.notify_one();
    }

    /// Withdraws a detached hold that was granted to a caller that has stopped waiting.
    fn withdraw(&self, state: &mut State, query: DaemonQuery, reply: DaemonReply) {
        let (DaemonQuery::HoldAs(request), DaemonReply::Detached { hold: Some(_), .. }) = (query, reply)
        else {
            return;
        };
        let (lock, owner, command) = (request.lock, request.owner, DetachedCommand::Withdraw);
        state.next_query += 1;
        let query = DaemonQuery::Detached { lock, owner, command };
        lockkeeper_session::protocol::encode(&ToDaemon::Query(state.next_query, query), &mut state.unsent);
        self.wake.notify_one();
    }

    /// Handles a new connection: repeats all messages that have not been answered.
    pub fn opened(&self, welcome: Welcome) {
        let mut state = self.lock();
        let state = &mut *state;
        state.link.opened(now_ns(), welcome.lease_ns);
        state.welcome = Some(welcome);
        state.unsent.clear();
        self.flush(state);
        state.query.retain(|_, query| !query.is_cancelled());
        let State { query, unsent, .. } = state;
        for (number, query) in query {
            query.send(*number, unsent);
        }
    }

    /// Handles a failed attempt to connect to the daemon.
    pub fn not_opened(&self, failure: &str) {
        let mut state = self.lock();
        state.held.values().for_each(|held| held.lease.renewal_failed(failure));
        state.link.not_opened(now_ns());
        self.flush(&mut state);
    }

    /// Handles a rejection: neither this daemon nor any other serves this client.
    pub fn rejected(&self) {
        let mut state = self.lock();
        state.link.rejected(now_ns());
        self.flush(&mut state);
    }

    /// Handles the loss of the connection.
    pub fn closed(&self) {
        let mut state = self.lock();
        state.welcome = None;
        state.unsent = Vec::new();
        state.held.values().for_each(|held| held.lease.renewal_failed(reason(LinkEnd::Disconnected)));
        state.link.closed(now_ns());
        self.flush(&mut state);
    }

    pub fn welcome(&self) -> Option<Welcome> {
        self.lock().welcome.clone()
    }

    /// Runs all expired timers, and returns the next step of the link's task. Swaps the bytes to be sent into
    /// `unsent`.
    pub fn turn(&self, unsent: &mut Vec<u8>) -> Next {
        let mut state = self.lock();
        let state = &mut *state;
        let now = now_ns();
        state.link.poll(now);
        self.flush_quietly(state);
        state.timer_set = state.link.session().next_delegation_end_ns().is_some();
        unsent.clear();
        std::mem::swap(&mut state.unsent, unsent);
        if let Some(why) = state.link.ended() {
            return Next::End(why);
        }
        let wait = Duration::from_nanos(state.link.wake_ns().saturating_sub(now)).min(LONGEST_WAIT);
        match state.link.connection() {
            Connection::Connecting { daemon } => Next::Connect(daemon),
            Connection::Pausing { .. } => Next::Pause(wait),
            Connection::Open { .. } => Next::Talk(wait),
        }
    }

    /// Handles a message of the daemon. Returns the reason if the daemon rejects the session.
    pub fn receive(&self, message: FromDaemon) -> Result<(), Refusal> {
        let mut state = self.lock();
        let own = state.link.session().id().number;
        match message {
            FromDaemon::Session(session, message) if session == own => {
                self.receive_from_member(&mut state, message)
            }
            FromDaemon::Session(..) => {}
            FromDaemon::Refuse { session, number, why } if session == own => {
                if number == 0 {
                    return Err(why);
                }
                state.link.receive(now_ns(), ToClient::Ended { number, outcome: Ended::Refused });
                if let Some(pending) = state.pending.remove(&number) {
                    let _ = pending.sender.send(RequestOutcome::Refused(why));
                }
                self.flush(&mut state);
            }
            FromDaemon::Refuse { .. } | FromDaemon::Changed => {}
            FromDaemon::Reply(number, answer) => {
                if let Some(PendingQuery { query, sender, sent }) = state.query.remove(&number)
                    && let Err(unwanted) = sender.send(QueryReply { reply: answer, repeated: sent > 1 })
                {
                    self.withdraw(&mut state, query, unwanted.reply);
                }
            }
        }
        Ok(())
    }

    fn receive_from_member(&self, state: &mut State, message: ToClient) {
        let now = now_ns();
        let Some(message) = withhold(&mut state.held, message) else { return };
        let answered = match &message {
            ToClient::Granted { number, .. }
            | ToClient::Recall { number }
            | ToClient::Ended { number, .. } => Some(*number),
            ToClient::Alive { .. }
            | ToClient::Recorded { .. }
            | ToClient::Resumed { .. }
            | ToClient::RevokedBy { .. }
            | ToClient::NoSession => None,
        };
        state.link.receive(now, message);
        // Requests that moved to another link are not settled here.
        self.flush_quietly(state);
        if state.link.ended().is_some() {
            return;
        }
        match answered {
            Some(number) => settle(state, now, number),
            None => {
                let waiting: Vec<u64> = state.pending.keys().copied().collect();
                for number in waiting {
                    settle(state, now, number);
                }
                let State { link, held, .. } = state;
                let sent = lease::now();
                held.retain(|&number, held| match link.session().may_use(now, number) {
                    // The member that has adopted a session may not know that a hold was revoked.
                    true if held.is_over() => {
                        link.release(now, number);
                        false
                    }
                    true => held.lease.renewed(sent, time_left(link, now, number)) || held.revoked,
                    false => {
                        held.lease.lose(held.revocation());
                        false
                    }
                });
            }
        }
    }

    /// The number of the link's session.
    pub fn session_number(&self) -> u64 {
        self.lock().link.session().id().number
    }

    /// Whether the link accepts no more requests.
    pub fn is_retired(&self) -> bool {
        self.lock().link.is_retired()
    }

    /// The daemon that the next link should try first, and the lease that the last daemon announced.
    pub fn hint(&self) -> (usize, u64) {
        let state = self.lock();
        (state.link.next_daemon(), state.link.lease_ns())
    }

    /// Takes the requests and queries that must move to another link. `None` if there are none and the client already
    /// knows that this link accepts no more of them.
    pub fn take_moving(&self) -> Option<(Vec<PendingRequest>, Vec<PendingQuery>)> {
        let mut state = self.lock();
        let fails = matches!(state.link.ended(), Some(LinkEnd::Unreachable | LinkEnd::Rejected));
        if !state.link.is_retired() || fails {
            return None;
        }
        let replaced = std::mem::replace(&mut state.replaced, true);
        let (moving, query) = (std::mem::take(&mut state.moving), std::mem::take(&mut state.query));
        let query: Vec<PendingQuery> = query.into_values().filter(|query| !query.is_cancelled()).collect();
        let none = replaced && moving.is_empty() && query.is_empty();
        (!none).then_some((moving, query))
    }

    /// Ends the link: all holds are lost. A pending release is confirmed if no member knows the session any more, and
    /// the hold was valid until the release. Returns the requests that no link serves.
    pub fn end(&self, why: &str) -> Vec<PendingRequest> {
        let mut state = self.lock();
        state.link.close(now_ns());
        self.flush(&mut state);
        for (_, held) in std::mem::take(&mut state.held) {
            held.lease.lose(why);
        }
        for (number, confirm) in std::mem::take(&mut state.releasing) {
            if let Some(Progress::Ended(Ended::Released)) = state.link.session().progress(number) {
                let _ = confirm.send(());
            }
        }
        state.query.clear();
        std::mem::take(&mut state.moving)
    }

    /// Closes the session: queues the last messages to the daemon.
    pub fn close(&self) {
        let mut state = self.lock();
        state.link.close(now_ns());
        self.flush(&mut state);
    }
}

/// The reason for the loss of a hold whose link ended.
pub(super) fn reason(end: LinkEnd) -> &'static str {
    match end {
        LinkEnd::Closed => "it was closed",
        LinkEnd::Expired => "its lease expired without a renewal",
        LinkEnd::Unknown => "the daemon does not know the session any more",
        LinkEnd::Silent => "the daemon answered no keep-alive",
        LinkEnd::Disconnected => "the connection to the daemon broke",
        LinkEnd::Unreachable => "no daemon can be reached",
        LinkEnd::Rejected => "the daemon does not serve the session",
    }
}

/// The time for which a hold is valid if no keep-alive is answered any more.
fn time_left(link: &ClientLink, now: u64, number: u64) -> Duration {
    Duration::from_nanos(link.session().hold_until_ns(number).saturating_sub(now))
}

/// Notifies the caller that waits for this acquisition if it is decided. A grant counts only while the session's
/// lease is valid.
fn settle(state: &mut State, now: u64, number: u64) {
    let left = time_left(&state.link, now, number);
    let outcome = match state.link.session().progress(number) {
        Some(Progress::Held(fence)) if state.link.session().may_use(now, number) => {
            let lease = Lease::expiring(lease::now(), left);
            let Some(pending) = state.pending.get(&number).filter(|_| lease.is_valid()) else { return };
            let lock = pending.request.lock.clone();
            state
                .held
                .insert(number, LinkHold { lease: lease.clone(), lock, revoked: false, revoked_by: None });
            RequestOutcome::Granted(*fence, lease)
        }
        Some(Progress::Releasing) => {
            if let Some(held) = state.held.remove(&number) {
                held.lease.lose(held.revocation());
            }
            return;
        }
        Some(Progress::Ended(how)) => {
            let how = *how;
            if let Some(confirm) = state.releasing.remove(&number)
                && how == Ended::Released
            {
                let _ = confirm.send(());
            }
            if let Some(held) = state.held.remove(&number) {
                held.lease.lose(held.revocation());
            }
            RequestOutcome::Ended(how)
        }
        _ => return,
    };
    if let Some(pending) = state.pending.remove(&number)
        && let Err(RequestOutcome::Granted(..)) = pending.sender.send(outcome)
    {
        // The caller has stopped waiting, and releases the lock itself.
        state.held.remove(&number);
    }
}
