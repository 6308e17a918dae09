//! A client's link: one session with one member, carried by one connection at a time.
//!
//! [`ClientLink`] makes every decision of a client that depends on time or on the network:
//!
//! | decision | rule |
//! |---|---|
//! | when a keep-alive is sent | every fifth of a lease while a connection is open |
//! | when a message is repeated | every half of a lease until it is answered; all of them when a connection opens |
//! | when a session is lost | its lease has expired and no recorded hold is promised, or no member knows it |
//! | when a release is confirmed | it is answered; or no member knows the session, and the hold was usable when it was released |
//! | when a silent daemon is given up | requests wait, and no keep-alive was answered for a lease |
//! | which daemon is tried next | the same one after a broken connection, then the one after it: every member can reach the session |
//! | when the client reports that no daemon can be reached | after five leases, at least 6 s |
//! | which requests move to the next link | those that wait, in the order of the first request |
//! | when an open connection is given up | the lease has expired, and recorded holds are still promised |
//!
//! It is a pure state machine. The library drives it with sockets; the simulator drives it with virtual time.
//!
//! # Duties of a driver
//! 1. While [`connection`](ClientLink::connection) is [`Connection::Connecting`], connect to that daemon and report
//!    the result with [`opened`](ClientLink::opened) or [`not_opened`](ClientLink::not_opened). Report an open
//!    connection that breaks with [`closed`](ClientLink::closed).
//! 2. After every call, send [`take_messages`](ClientLink::take_messages) over the open connection.
//! 3. Call [`poll`](ClientLink::poll) when the client's clock reaches [`wake_ns`](ClientLink::wake_ns).
//! 4. After every call, read [`take_moved`](ClientLink::take_moved): those requests must be made again, in that
//!    order, through a new link that begins with [`next_daemon`](ClientLink::next_daemon). A retired link continues
//!    for its holds.
//! 5. Once [`ended`](ClientLink::ended) returns a reason, send the last messages and drop the link. Every hold is
//!    lost.

use crate::{
    BugSwitch, Bugs, ClientSession, Ended, LockRequest, NoBugs, Progress, SessionId, ToClient, ToMember,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Settings of a client. Times are in nanoseconds of the client's own clock.
#[derive(Clone, Debug)]
pub struct ClientSettings<B: Bugs = NoBugs> {
    /// Number of daemons that the client can try.
    pub daemons: usize,
    /// The pause after each daemon was tried once without success.
    pub pause_ns: u64,
    /// The least time for which daemons are tried before the client reports that none can be reached.
    pub connect_timeout_ns: u64,
    /// The least number of leases for which daemons are tried before the client reports that none can be reached. After
    /// a crash, no member grants a lock until the lease of the crashed member has expired and the other members have
    /// agreed on a view without it.
    pub connect_timeout_leases: u64,
    /// The longest time for which a delegation is kept.
    pub max_delegation_ns: u64,
    /// Bug switches, for the simulator.
    pub bugs: B,
}

impl ClientSettings {
    /// Defaults for a client that knows this many daemons.
    pub fn new(daemons: usize) -> Self {
        const MS: u64 = 1_000_000;
        Self {
            daemons: daemons.max(1),
            pause_ns: 50 * MS,
            connect_timeout_ns: 6_000 * MS,
            connect_timeout_leases: 5,
            max_delegation_ns: crate::MAX_DELEGATION_NS,
            bugs: NoBugs,
        }
    }

    /// The same settings with bug switches, for the simulator.
    pub fn with_bugs<B: Bugs>(self, bugs: B) -> ClientSettings<B> {
        let Self {
            daemons,
            pause_ns,
            connect_timeout_ns,
            connect_timeout_leases,
            max_delegation_ns,
            bugs: NoBugs,
        } = self;
        ClientSettings {
            daemons,
            pause_ns,
            connect_timeout_ns,
            connect_timeout_leases,
            max_delegation_ns,
            bugs,
        }
    }
}

/// The state of a link's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The driver must connect to this daemon now.
    Connecting {
        /// The daemon's place in the list of the client's daemons.
        daemon: usize,
    },
    /// The link waits before it tries the next daemon.
    Pausing {
        /// The daemon's place in the list of the client's daemons.
        daemon: usize,
        /// The end of the pause.
        until_ns: u64,
    },
    /// A connection is open.
    Open {
        /// The daemon's place in the list of the client's daemons.
        daemon: usize,
    },
}

/// Why a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The client closed it, or it was retired and holds nothing any more.
    Closed,
    /// The session's lease has expired without a renewal.
    Expired,
    /// The member does not know the session any more.
    Unknown,
    /// The daemon answered no keep-alive for a lease.
    Silent,
    /// The connection broke, the daemon could not be reached again, and the session holds nothing.
    Disconnected,
    /// None of the daemons could be reached for long enough.
    Unreachable,
    /// The daemon does not serve this client.
    Rejected,
}

/// One session with one member. See the [module](self).
#[derive(Clone, Debug)]
pub struct ClientLink<B: Bugs = NoBugs> {
    session: ClientSession<B>,
    settings: ClientSettings<B>,
    connection: Connection,
    /// Whether a connection was ever open. From then on the session belongs to that daemon.
    bound: bool,
    /// Number of attempts to connect since `dialing_since_ns`.
    attempts: usize,
    dialing_since_ns: u64,
    /// The length of a lease that the last daemon announced; 0 before the first announcement.
    lease_ns: u64,
    next_keep_alive_ns: u64,
    /// When the present connection opened.
    opened_ns: u64,
    /// The last answer to a keep-alive; before the first one, the moment when the first connection opened.
    answered_ns: u64,
    /// Numbers of acquisitions whose message is not answered, each with the time of its repetition, in that order.
    /// Answered ones are skipped when their time comes.
    unanswered: VecDeque<(u64, u64)>,
    /// The earliest time of the next repetition.
    next_repeat_ns: u64,
    messages: Vec<ToMember>,
    /// Whether the link accepts no more requests.
    retired: bool,
    moved: Vec<(u64, LockRequest)>,
    next_daemon: usize,
    ended: Option<LinkEnd>,
}

/// The shortest interval between two keep-alives.
const SHORTEST_INTERVAL_NS: u64 = 5_000_000;
/// The most messages that are repeated in a fifth of a lease: a client with many waiting requests repeats them in
/// turns.
const MOST_REPEATED: usize = 256;

impl<B: Bugs> ClientLink<B> {
    /// Creates a link with a new session, which connects to the daemon `first`. `lease_ns` is the length of a lease
    /// that a daemon announced to an earlier link; 0 if there was none.
    pub fn new(id: SessionId, settings: ClientSettings<B>, first: usize, lease_ns: u64, now: u64) -> Self {
        let mut session = ClientSession::with_bugs(id, settings.bugs);
        session.max_delegation_ns = settings.max_delegation_ns;
        let first = first % settings.daemons;
        Self {
            session,
            settings,
            connection: Connection::Connecting { daemon: first },
            bound: false,
            attempts: 0,
            dialing_since_ns: now,
            lease_ns,
            next_keep_alive_ns: 0,
            opened_ns: now,
            answered_ns: now,
            unanswered: VecDeque::new(),
            next_repeat_ns: 0,
            messages: Vec::new(),
            retired: false,
            moved: Vec::new(),
            next_daemon: first,
            ended: None,
        }
    }

    /// The session of the link.
    pub fn session(&self) -> &ClientSession<B> {
        &self.session
    }

    /// The state of the connection.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// The daemon to which this link is connected, or to which it tries to connect.
    pub fn daemon(&self) -> usize {
        match self.connection {
            Connection::Connecting { daemon }
            | Connection::Pausing { daemon, .. }
            | Connection::Open { daemon } => daemon,
        }
    }

    /// The length of a lease that the last daemon announced; 0 before the first announcement.
    pub fn lease_ns(&self) -> u64 {
        self.lease_ns
    }

    /// Whether the link accepts no more requests.
    pub fn is_retired(&self) -> bool {
        self.retired || self.ended.is_some()
    }

    /// The reason why the link has ended; `None` while it has not.
    pub fn ended(&self) -> Option<LinkEnd> {
        self.ended
    }

    /// The daemon that the next link should try first.
    pub fn next_daemon(&self) -> usize {
        self.next_daemon
    }

    /// The messages to send now, in order. Empty without a connection.
    pub fn take_messages(&mut self) -> impl Iterator<Item = ToMember> + '_ {
        self.messages.drain(..)
    }

    /// The requests to make again through another link, in order, with their numbers in this one.
    pub fn take_moved(&mut self) -> Vec<(u64, LockRequest)> {
        core::mem::take(&mut self.moved)
    }

    fn has(&self, bug: BugSwitch) -> bool {
        self.settings.bugs.has(bug)
    }

    fn is_open(&self) -> bool {
        matches!(self.connection, Connection::Open { .. })
    }

    /// The interval at which a message is repeated.
    fn repeat_ns(&self) -> u64 {
        (self.lease_ns / 2).max(SHORTEST_INTERVAL_NS)
    }

    /// Sends a message that is not repeated.
    fn send(&mut self, message: ToMember) {
        if self.is_open() {
            self.messages.push(message);
        }
    }

    /// Sends a message, and repeats it until the acquisition of this number is answered.
    fn send_until_answered(&mut self, now: u64, number: u64, message: ToMember) {
        if self.is_open() {
            self.messages.push(message);
            self.unanswered.push_back((now.saturating_add(self.repeat_ns()), number));
        }
    }

    // ---- Reports of the driver about connections.

    /// Handles an open connection. `lease_ns` is the length of a lease that the daemon announced.
    pub fn opened(&mut self, now: u64, lease_ns: u64) {
        let Connection::Connecting { daemon } = self.connection else { return };
        if self.ended.is_some() {
            return;
        }
        self.connection = Connection::Open { daemon };
        self.lease_ns = lease_ns;
        self.opened_ns = now;
        if !core::mem::replace(&mut self.bound, true) {
            self.answered_ns = now;
        }
        self.messages.clear();
        self.send_all(now);
        self.plan_keep_alive(now, lease_ns);
    }

    /// Sends a keep-alive and every message that is not answered.
    fn send_all(&mut self, now: u64) {
        self.unanswered.clear();
        let all = self.session.all_messages(now);
        let due = now.saturating_add(self.repeat_ns());
        let numbers = all.iter().filter_map(|message| match message {
            ToMember::Acquire { number, .. } | ToMember::Release { number } => Some(*number),
            _ => None,
        });
        self.unanswered.extend(numbers.map(|number| (due, number)));
        self.messages.extend(all);
    }

    /// Handles a failed attempt to connect.
    pub fn not_opened(&mut self, now: u64) {
        let Connection::Connecting { daemon } = self.connection else { return };
        if self.ended.is_some() {
            return;
        }
        let paused = now.saturating_add(self.settings.pause_ns);
        if self.bound {
            // Waiting requests move to another link. Holds survive if any member is reached before they lapse: every
            // member relays the messages of a session to the member that has it.
            self.retire(now, daemon + 1);
            if !self.session.is_used() {
                self.end(now, LinkEnd::Disconnected, daemon + 1);
            }
            self.try_next_daemon(now, daemon);
            return self.check_session(now);
        }
        self.attempts += 1;
        let next = (daemon + 1) % self.settings.daemons;
        if !self.attempts.is_multiple_of(self.settings.daemons) {
            self.connection = Connection::Connecting { daemon: next };
        } else if now.saturating_sub(self.dialing_since_ns) > self.connect_timeout_ns() {
            self.end(now, LinkEnd::Unreachable, next);
        } else {
            self.connection = Connection::Pausing { daemon: next, until_ns: paused };
        }
    }

    /// Connects to the daemon after this one, with a pause after each daemon was tried once.
    fn try_next_daemon(&mut self, now: u64, daemon: usize) {
        self.attempts += 1;
        let next = (daemon + 1) % self.settings.daemons;
        self.connection = if self.attempts.is_multiple_of(self.settings.daemons) {
            Connection::Pausing { daemon: next, until_ns: now.saturating_add(self.settings.pause_ns) }
        } else {
            Connection::Connecting { daemon: next }
        };
    }

    /// The time for which daemons are tried before the link reports that none can be reached.
    fn connect_timeout_ns(&self) -> u64 {
        let leases = self.lease_ns.saturating_mul(self.settings.connect_timeout_leases);
        self.settings.connect_timeout_ns.max(leases)
    }

    /// Handles a rejection: the daemon does not serve this client, and no other daemon would.
    pub fn rejected(&mut self, now: u64) {
        self.end(now, LinkEnd::Rejected, self.daemon() + 1);
    }

    /// Handles a broken connection. The session may still exist at the daemon, so the link connects to the same one
    /// first.
    pub fn closed(&mut self, now: u64) {
        if let Connection::Open { daemon } = self.connection {
            self.connection = Connection::Connecting { daemon };
            self.messages.clear();
            self.check_session(now);
        }
    }

    // ---- The application's requests.

    /// Requests a lock. Returns the number of the acquisition; `None` if the link accepts no more requests.
    pub fn acquire(&mut self, now: u64, request: LockRequest) -> Option<u64> {
        if self.is_retired() {
            return None;
        }
        let number = self.session.acquire(request.clone());
        let settled = self.session.settle();
        self.send_until_answered(now, number, ToMember::Acquire { number, settled, request });
        Some(number)
    }

    /// Releases a hold, or cancels a request.
    pub fn release(&mut self, now: u64, number: u64) {
        self.session.release_at(now, number);
        if matches!(self.session.progress(number), Some(Progress::Releasing)) {
            self.send_until_answered(now, number, ToMember::Release { number });
        }
    }

    /// Enters a lock again under an idle delegation, without a message: see [`ClientSession::reenter`].
    pub fn reenter(&mut self, now: u64, request: &LockRequest) -> Option<u64> {
        self.session.reenter(now, request)
    }

    /// Leaves a hold and keeps it as an idle delegation, where that is allowed: see [`ClientSession::keep_as_delegation`].
    pub fn keep_as_delegation(&mut self, now: u64, number: u64) -> bool {
        !self.is_retired() && self.session.keep_as_delegation(now, number)
    }

    /// Ends every delegation: idle ones are released.
    pub fn end_delegations(&mut self, now: u64) {
        self.end_delegations_until(now, u64::MAX);
    }

    /// Ends the delegations that have expired by `expired_ns`.
    fn end_delegations_until(&mut self, now: u64, expired_ns: u64) {
        for message in self.session.end_delegations(expired_ns) {
            self.answer(now, message);
        }
    }

    /// Sends a message about a delegation.
    fn answer(&mut self, now: u64, message: ToMember) {
        match message {
            ToMember::Release { number } => self.send_until_answered(now, number, message),
            // The member does not answer `InUse`.
            _ => self.send(message),
        }
    }

    /// Closes the session. The client must not use its holds any more.
    pub fn close(&mut self, now: u64) {
        self.end(now, LinkEnd::Closed, self.daemon());
    }

    // ---- Messages and time.

    /// Handles a message of the member.
    pub fn receive(&mut self, now: u64, message: ToClient) {
        if self.ended.is_some() || !self.is_open() {
            return;
        }
        let mut revoked = Vec::new();
        let mut duration = None;
        match &message {
            ToClient::Alive { revoked: numbers, duration_ns, .. } => {
                revoked.clone_from(numbers);
                duration = Some(*duration_ns);
            }
            ToClient::Ended { number, outcome: Ended::Revoked } => revoked.push(*number),
            ToClient::Ended { outcome: Ended::Leaving, .. } => self.retire(now, self.daemon() + 1),
            _ => {}
        }
        let resumes = matches!(message, ToClient::Resumed { .. });
        for answer in self.session.receive(now, message) {
            self.answer(now, answer);
        }
        if resumes {
            // The new member of the session knows its recorded holds, and nothing else.
            self.send_all(now);
        }
        for number in revoked {
            // The member lists a revoked hold in every answer to a keep-alive until the client releases it, so this
            // release is not repeated otherwise.
            if matches!(self.session.progress(number), Some(Progress::Releasing)) {
                self.send(ToMember::Release { number });
            }
        }
        if let Some(duration) = duration {
            self.answered_ns = now;
            self.plan_keep_alive(now, duration);
        }
        self.check_session(now);
    }

    /// Schedules the next keep-alive: a lease shorter than the full one is renewed earlier.
    fn plan_keep_alive(&mut self, now: u64, duration_ns: u64) {
        let interval = (duration_ns.min(self.lease_ns) / 5).max(SHORTEST_INTERVAL_NS);
        let next = now.saturating_add(interval);
        self.next_keep_alive_ns =
            if self.next_keep_alive_ns > now { self.next_keep_alive_ns.min(next) } else { next };
    }

    /// Handles all timers that have expired by `now`.
    pub fn poll(&mut self, now: u64) {
        if self.ended.is_some() {
            return;
        }
        self.end_delegations_until(now, now);
        self.check_session(now);
        if self.retired && self.is_open() && !self.session.is_used() {
            self.close(now);
        }
        match self.connection {
            Connection::Pausing { daemon, until_ns } if now >= until_ns => {
                self.connection = Connection::Connecting { daemon };
            }
            Connection::Open { .. } if self.ended.is_none() => {
                if now >= self.next_keep_alive_ns {
                    let message = self.session.keep_alive(now);
                    self.send(message);
                    self.next_keep_alive_ns = now + (self.lease_ns / 5).max(SHORTEST_INTERVAL_NS);
                }
                self.repeat(now);
            }
            _ => {}
        }
    }

    /// Resends the unanswered messages whose retry time has passed, at most [`MOST_REPEATED`] at a time.
    fn repeat(&mut self, now: u64) {
        let mut repeated = 0;
        // `unanswered` is in the order of the repetition times, so the first one that is not due ends the loop.
        while let Some(&(due, number)) = self.unanswered.front() {
            let message = match self.session.progress(number) {
                Some(Progress::Waiting(_) | Progress::Releasing) if now < due.max(self.next_repeat_ns) => {
                    return;
                }
                Some(Progress::Waiting(request)) => {
                    let request = request.clone();
                    Some(ToMember::Acquire { number, settled: self.session.settle(), request })
                }
                Some(Progress::Releasing) => Some(ToMember::Release { number }),
                _ => None,
            };
            self.unanswered.pop_front();
            if let Some(message) = message.filter(|_| !self.has(BugSwitch::RequestsSentOnce)) {
                self.send_until_answered(now, number, message);
                repeated += 1;
            }
            if repeated == MOST_REPEATED {
                self.next_repeat_ns = now.saturating_add((self.lease_ns / 5).max(SHORTEST_INTERVAL_NS));
            }
        }
    }

    /// Ends the link if its session is lost, or if the daemon is silent while requests wait.
    fn check_session(&mut self, now: u64) {
        if self.ended.is_some() {
            return;
        }
        let next = self.daemon() + 1;
        if self.session.is_lost(now) {
            let expired = self.session.has_expired(now);
            // The daemon answered that it does not know the session, so it is reachable: the next link opens a new
            // session there.
            return match expired {
                true => self.end(now, LinkEnd::Expired, next),
                false => self.end(now, LinkEnd::Unknown, self.daemon()),
            };
        }
        for number in core::mem::take(&mut self.session.lapsed) {
            self.send_until_answered(now, number, ToMember::Release { number });
        }
        if self.session.has_only_recorded_holds() {
            // The daemon has answered no keep-alive for a whole lease. Another one may reach the session's member, or
            // the member that adopts the session.
            self.retire(now, next);
            if let Connection::Open { daemon } = self.connection
                && now >= self.gives_up_ns()
            {
                self.messages.clear();
                self.try_next_daemon(now, daemon);
            }
        }
        if self.silent_from_ns().is_some_and(|at| now >= at) {
            self.end(now, LinkEnd::Silent, next);
        }
    }

    /// The time at which a connection over which no keep-alive was answered is given up, while recorded holds are
    /// promised.
    fn gives_up_ns(&self) -> u64 {
        self.opened_ns.max(self.answered_ns).saturating_add(self.lease_ns.max(SHORTEST_INTERVAL_NS))
    }

    /// Whether the connection is lost, or silent for a lease, while holds are still valid.
    pub fn is_in_jeopardy(&self) -> bool {
        let connected = self.is_open() && !self.session.has_only_recorded_holds();
        self.ended.is_none() && !connected && self.session.is_used()
    }

    /// The time at which the link gives up the daemon if it stays silent. A session with a lease ends with that lease
    /// instead.
    fn silent_from_ns(&self) -> Option<u64> {
        if !self.bound || self.session.is_alive() || self.has(BugSwitch::SilentLinkKept) {
            return None;
        }
        // Without a lease nothing is usable, so a caller waits for every acquisition that has not ended.
        let needed = self.retired || self.session.is_busy();
        needed.then(|| self.answered_ns.saturating_add(self.lease_ns.max(SHORTEST_INTERVAL_NS)))
    }

    /// When to call [`poll`](Self::poll) next, at the latest.
    pub fn wake_ns(&self) -> u64 {
        if self.ended.is_some() {
            return u64::MAX;
        }
        let mut wake = self.silent_from_ns().unwrap_or(u64::MAX);
        if self.session.is_alive() {
            wake = wake.min(self.session.next_expiry_ns());
        }
        match self.connection {
            Connection::Connecting { .. } => {}
            Connection::Pausing { until_ns, .. } => wake = wake.min(until_ns),
            Connection::Open { .. } => {
                if self.session.has_only_recorded_holds() {
                    wake = wake.min(self.gives_up_ns());
                }
                wake = wake.min(self.next_keep_alive_ns);
                let due = self.unanswered.front().map_or(u64::MAX, |&(due, _)| due);
                wake = wake.min(due.max(self.next_repeat_ns));
            }
        }
        wake.min(self.session.next_delegation_end_ns().unwrap_or(u64::MAX))
    }

    /// Stops accepting requests. Those that wait move to another link, which connects to `next` first. They are
    /// cancelled at this daemon, now or when it is reached again; otherwise it would grant them later, and no caller
    /// would use the grant.
    fn retire(&mut self, now: u64, next: usize) {
        if core::mem::replace(&mut self.retired, true) {
            return;
        }
        self.next_daemon = next % self.settings.daemons;
        self.end_delegations(now);
        let waiting = self.session.waiting_requests();
        for (number, _) in &waiting {
            self.session.release(*number);
            self.send_until_answered(now, *number, ToMember::Release { number: *number });
        }
        self.moved.extend(waiting);
    }

    /// Ends the link. Requests that wait move to another one, which connects to `next` first.
    fn end(&mut self, now: u64, why: LinkEnd, next: usize) {
        if self.ended.is_some() {
            return;
        }
        self.retire(now, next);
        self.messages.clear();
        self.send(ToMember::Close);
        self.ended = Some(why);
    }
}
