//! Clients. Each requests one lock after another, holds it for a while, and uses it only while its lease is valid.
//!
//! A client runs [`ClientLink`], the state machine of the library. This file decides what the application does. The
//! link decides when messages are repeated, when a daemon is abandoned, and which one is tried next.

use super::spec::{ClusterSpec, MS};
use lockkeeper_lab::simulator::rng::Rng;
use lockkeeper_member::{BugSwitch, Ended, Fence, LockMode, LockName, LockRequest, SessionId, ToMember};
use lockkeeper_session::{ClientLink, ClientSettings, LinkEnd, Progress};

/// A request of a client, from the moment it is made until the lock is released.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// The lock, and how it is requested.
    pub lock_request: LockRequest,
    /// When the client first made the request; the time does not change when the request moves to another session.
    pub since_ns: u64,
    /// The session of the acquisition.
    pub session: SessionId,
    /// The number of the acquisition in that session.
    pub number: u64,
    /// When the hold began, and when the client plans to release it.
    pub inside: Option<(u64, u64)>,
    /// When the client gives up waiting; `None` if it never does.
    pub gives_up_ns: Option<u64>,
    /// When the client repeats the request after its member had no room for the lock.
    pub repeats_at_ns: Option<u64>,
    /// Whether the hold was recorded and promised for its time to live.
    pub recorded: bool,
    /// The second acquisition of the same lock, while the first is held.
    pub nested: Nested,
}

/// A re-entrant acquisition: the session acquires a lock that it already holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nested {
    /// There is none, or it has ended.
    None,
    /// It will be requested at this time.
    Planned(u64),
    /// It has been requested, under this number.
    Waiting(u64),
    /// It has been granted, under this number.
    Held(u64),
}

/// A link of a client, and the state of its simulated connection.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The state machine.
    pub link: ClientLink<Option<BugSwitch>>,
    /// Whether a connection attempt is in progress.
    pub dialing: bool,
    /// The number of the start of the daemon's machine to which the connection was opened.
    pub boot: u64,
    /// The daemon of the first connection.
    pub first: Option<usize>,
    /// Whether another daemon has carried the session since.
    pub has_moved: bool,
}

impl Wire {
    /// The remote end of its connection.
    pub fn peer(&self) -> Peer {
        Peer { daemon: self.link.daemon(), boot: self.boot, session: self.link.session().id() }
    }
}

/// The remote end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The index of the daemon.
    pub daemon: usize,
    /// The number of the start of its machine.
    pub boot: u64,
    /// The session that the connection carries.
    pub session: SessionId,
}

/// A simulated client with its links and its current request.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its links. The last one takes new requests; the earlier ones remain while locks are held through them.
    pub wires: Vec<Wire>,
    /// The current request, if there is one.
    pub request: Option<ClientRequest>,
    /// The last messages of links that have ended, each with its destination.
    pub last_messages: Vec<(Peer, ToMember)>,
    /// When it makes the next request.
    pub next_request_ns: u64,
    /// When its next wake-up is scheduled; `u64::MAX` if none is.
    pub wake_ns: u64,
    number: u64,
    sessions: u64,
    settings: ClientSettings<Option<BugSwitch>>,
    /// Whether a recorded hold was lost with its session.
    pub lost_recorded: bool,
    /// The last request. Clients often repeat it.
    last: Option<LockRequest>,
    rng: Rng,
}

/// How long clients keep an unused delegation. This is about the time between two requests, so that they often use
/// it again.
const MAX_DELEGATION_NS: u64 = 300 * MS;

/// The result of one step of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It has nothing to do at present.
    Waits,
    /// It has made a request, or given one up.
    Speaks,
    /// It starts to use the lock.
    Enters,
    /// It starts to use its re-entrant acquisition.
    EntersNested,
    /// It has released one of two acquisitions of the same lock: the one with this number.
    LeavesOne(u64),
    /// It has released the lock, or has stopped waiting for it.
    Leaves,
    /// It has lost a recorded hold that it had not released.
    LosesRecorded(SessionId),
    /// One of its links has ended.
    LosesLink {
        /// The session of the link.
        session: SessionId,
        /// The index of the daemon of the link.
        daemon: usize,
        /// The reason for the end of the link.
        why: LinkEnd,
        /// Whether a lock was held through the link.
        held: bool,
        /// Whether the session was with one daemon all the time.
        stayed: bool,
    },
}

impl Client {
    /// Creates a client that connects to a random member.
    pub fn new(number: u64, spec: &ClusterSpec, mut rng: Rng, bug: Option<BugSwitch>) -> Self {
        let member = rng.below(spec.members);
        let next_request_ns = 500 * MS + rng.below(1_500 * MS as usize) as u64;
        let settings = ClientSettings {
            max_delegation_ns: MAX_DELEGATION_NS,
            ..ClientSettings::new(spec.members).with_bugs(bug)
        };
        let mut client = Self {
            wires: Vec::new(),
            request: None,
            last_messages: Vec::new(),
            next_request_ns,
            wake_ns: 0,
            number,
            sessions: 0,
            settings,
            lost_recorded: false,
            last: None,
            rng,
        };
        client.new_link(0, member, 0);
        client
    }

    /// Restarts the process of the client, without any memory of its sessions.
    pub fn restart(&mut self, clock: u64) {
        self.request = None;
        self.wires.clear();
        let member = self.rng.below(self.settings.daemons);
        self.new_link(clock, member, 0);
    }

    fn new_link(&mut self, clock: u64, daemon: usize, lease_ns: u64) {
        let id = SessionId { client: self.number, number: self.sessions };
        self.sessions += 1;
        let link = ClientLink::new(id, self.settings.clone(), daemon, lease_ns, clock);
        self.wires.push(Wire { link, dialing: false, boot: 0, first: None, has_moved: false });
    }

    /// The link with this session.
    pub fn wire(&mut self, session: SessionId) -> Option<&mut Wire> {
        self.wires.iter_mut().find(|wire| wire.link.session().id() == session)
    }

    /// Whether the client may use an acquisition at this reading of its clock.
    pub fn may_use(&self, clock: u64, session: SessionId, number: u64) -> bool {
        let wire = self.wires.iter().find(|wire| wire.link.session().id() == session);
        wire.is_some_and(|wire| wire.link.ended().is_none() && wire.link.session().may_use(clock, number))
    }

    /// Whether a hold is recorded and promised for longer than the lease of its session. An acquisition that the client
    /// has given up is not: its session keeps it only until the release is answered.
    fn is_promised(&self, session: SessionId, number: u64) -> bool {
        let wire = self.wires.iter().find(|wire| wire.link.session().id() == session);
        wire.is_some_and(|wire| {
            let session = wire.link.session();
            matches!(session.progress(number), Some(Progress::Held(_)))
                && session.recorded_ttl_ns(number).is_some()
                && session.hold_until_ns(number) > session.lease_until_ns()
        })
    }

    fn progress(&self, session: SessionId, number: u64) -> Option<&Progress> {
        let wire = self.wires.iter().find(|wire| wire.link.session().id() == session)?;
        wire.link.session().progress(number)
    }

    /// The fence of an acquisition that is held.
    pub fn fence(&self, session: SessionId, number: u64) -> Option<Fence> {
        match self.progress(session, number) {
            Some(Progress::Held(fence)) => *fence,
            _ => None,
        }
    }

    /// Polls the links, replaces a retired one, repeats the requests that have moved, and drops links that have
    /// ended.
    fn advance_links(&mut self, clock: u64) -> Option<Step> {
        for wire in &mut self.wires {
            wire.link.poll(clock);
        }
        if let Some(last) = self.wires.last()
            && last.link.is_retired()
        {
            let (daemon, lease_ns) = (last.link.next_daemon(), last.link.lease_ns());
            self.new_link(clock, daemon, lease_ns);
        }
        for place in 0..self.wires.len() {
            let session = self.wires[place].link.session().id();
            for (number, lock_request) in self.wires[place].link.take_moved() {
                self.moved(clock, session, number, lock_request);
            }
        }
        let place = self.wires.iter().position(|wire| wire.link.ended().is_some())?;
        let mut wire = self.wires.remove(place);
        let peer = wire.peer();
        self.last_messages.extend(wire.link.take_messages().map(|message| (peer, message)));
        let (link, stayed) = (wire.link, !wire.has_moved && wire.first == Some(peer.daemon));
        let (session, daemon) = (link.session().id(), link.daemon());
        let mine = self.request.as_ref().filter(|request| request.session == session);
        let held = mine.is_some_and(|request| request.inside.is_some());
        let lost = mine.is_some();
        if mine.is_some_and(|request| request.recorded && request.lock_request.longest_hold_ns.is_none()) {
            self.lost_recorded = true;
        }
        if lost && let Some(request) = self.request.take() {
            self.request_again(clock, request);
        }
        let why = link.ended().unwrap_or(LinkEnd::Closed);
        Some(Step::LosesLink { session, daemon, why, held, stayed })
    }

    /// Handles a waiting request that a link has given up: it is repeated over the newest link.
    fn moved(&mut self, clock: u64, session: SessionId, number: u64, lock_request: LockRequest) {
        match self.request.take() {
            Some(request) if (request.session, request.number) == (session, number) => {
                self.request_again(clock, ClientRequest { lock_request, ..request });
            }
            Some(mut request) if request.nested == Nested::Waiting(number) && request.session == session => {
                // The newest link has another session, which does not hold the lock.
                request.nested = Nested::None;
                self.request = Some(request);
            }
            other => self.request = other,
        }
    }

    fn request_again(&mut self, clock: u64, request: ClientRequest) {
        let Some(wire) = self.wires.last_mut() else { return };
        let session = wire.link.session().id();
        if let Some(number) = wire.link.acquire(clock, request.lock_request.clone()) {
            let (inside, repeats_at_ns, recorded, nested) = (None, None, false, Nested::None);
            self.request =
                Some(ClientRequest { session, number, inside, repeats_at_ns, recorded, nested, ..request });
        }
    }

    /// Advances the client at this true time and this reading of its clock.
    pub fn step(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Step {
        if let Some(step) = self.advance_links(clock) {
            return step;
        }
        if self.request.is_none() && now >= self.next_request_ns {
            self.request = self.request(now, clock, spec);
            return Step::Speaks;
        }
        let Some(request) = &self.request else { return Step::Waits };
        let (session, number) = (request.session, request.number);
        if self.is_promised(session, number)
            && let Some(request) = &mut self.request
        {
            request.recorded = true;
        }
        let Some(request) = &self.request else { return Step::Waits };
        match (self.progress(session, number), request.inside) {
            (Some(Progress::Held(_)), Some((_, until))) if now >= until => self.leave(now, clock),
            (Some(Progress::Held(_)), Some(_)) => self.nest(now, clock),
            (Some(Progress::Held(_)), None) if self.may_use(clock, session, number) => self.enter(now, spec),
            (Some(Progress::Waiting(_)), _) if request.gives_up_ns.is_some_and(|at| now >= at) => {
                self.release(clock, session, number);
                self.done(now);
                Step::Speaks
            }
            (Some(Progress::Ended(Ended::Full { .. })), _) => self.request_later(now, clock),
            (Some(Progress::Releasing | Progress::Ended(_)) | None, entered) => {
                let lost = entered.is_some() && request.recorded;
                let lost = lost && request.lock_request.longest_hold_ns.is_none();
                // The re-entrant acquisition ends with the first one.
                if let Nested::Waiting(nested) | Nested::Held(nested) = request.nested {
                    self.release(clock, session, nested);
                }
                self.done(now);
                if lost { Step::LosesRecorded(session) } else { Step::Leaves }
            }
            _ => Step::Waits,
        }
    }

    /// Repeats a request for which the member had no room, after a pause.
    fn request_later(&mut self, now: u64, clock: u64) -> Step {
        let Some(request) = &mut self.request else { return Step::Waits };
        let at = *request.repeats_at_ns.get_or_insert(now + 100 * MS);
        if now < at {
            return Step::Waits;
        }
        if let Some(request) = self.request.take() {
            self.request_again(clock, request);
        }
        Step::Speaks
    }

    fn enter(&mut self, now: u64, spec: &ClusterSpec) -> Step {
        // Most holds are short, and some are longer than a lease. After the faults have ended there are no long
        // holds, so that waiters can be served in time.
        let long = self.rng.chance(0.15) && now < spec.chaos_ns;
        // Where no recorded hold may be lost, more of them last for several faults.
        let (mean, most) = match (long, spec.spares_recorded_holds()) {
            (true, true) => (5_000.0, 12_000),
            (true, false) => (1_500.0, 4_000),
            (false, _) => (80.0, 4_000),
        };
        let stay = (self.rng.exponential(mean * MS as f64) as u64).min(most * MS);
        let stay = if long { spec.long_stay_ns(now, stay, &mut self.rng) } else { stay };
        let nests = self.rng.below(stay as usize + 1) as u64;
        if let Some(request) = &mut self.request {
            request.inside = Some((now, now + stay));
            if request.lock_request.reentrant {
                request.nested = Nested::Planned(now + nests);
            }
        }
        Step::Enters
    }

    /// Makes the planned re-entrant acquisition, and follows its progress.
    fn nest(&mut self, now: u64, clock: u64) -> Step {
        let Some(request) = &mut self.request else { return Step::Waits };
        let (session, lock_request) = (request.session, request.lock_request.clone());
        match request.nested {
            Nested::Planned(at) if now >= at => {
                request.nested = Nested::None;
                let wire = self.wires.iter_mut().find(|wire| wire.link.session().id() == session);
                let number = wire.and_then(|wire| wire.link.acquire(clock, lock_request));
                if let (Some(request), Some(number)) = (&mut self.request, number) {
                    request.nested = Nested::Waiting(number);
                }
                Step::Speaks
            }
            Nested::Waiting(number) => match self.progress(session, number) {
                Some(Progress::Held(_)) if self.may_use(clock, session, number) => {
                    if let Some(request) = &mut self.request {
                        request.nested = Nested::Held(number);
                    }
                    Step::EntersNested
                }
                Some(Progress::Waiting(_) | Progress::Held(_)) => Step::Waits,
                _ => {
                    if let Some(request) = &mut self.request {
                        request.nested = Nested::None;
                    }
                    Step::Waits
                }
            },
            _ => Step::Waits,
        }
    }

    /// Releases the lock. Of two acquisitions of the same lock, either may be released first.
    fn leave(&mut self, now: u64, clock: u64) -> Step {
        let Some(mut request) = self.request.take() else { return Step::Waits };
        let session = request.session;
        match request.nested {
            Nested::Held(nested) => {
                let stay = self.rng.exponential(50.0 * MS as f64) as u64;
                let leaves = if self.rng.chance(0.5) {
                    nested
                } else {
                    std::mem::replace(&mut request.number, nested)
                };
                self.release(clock, session, leaves);
                request.recorded = false;
                request.nested = Nested::None;
                request.inside = request.inside.map(|(since, _)| (since, now + stay));
                self.request = Some(request);
                return Step::LeavesOne(leaves);
            }
            Nested::Waiting(nested) => self.release(clock, session, nested),
            Nested::None | Nested::Planned(_) => {}
        }
        let kept = self.wire(session).is_some_and(|wire| wire.link.keep_as_delegation(clock, request.number));
        if !kept {
            self.release(clock, session, request.number);
        }
        self.done(now);
        Step::Leaves
    }

    fn release(&mut self, clock: u64, session: SessionId, number: u64) {
        if let Some(wire) = self.wire(session) {
            wire.link.release(clock, number);
        }
    }

    fn done(&mut self, now: u64) {
        self.request = None;
        // Some clients request a lock again at once: they may then use a delegation while others wait.
        let at_once = self.rng.chance(0.2);
        self.next_request_ns =
            if at_once { now } else { now + self.rng.exponential(150.0 * MS as f64) as u64 };
    }

    fn request(&mut self, now: u64, clock: u64, spec: &ClusterSpec) -> Option<ClientRequest> {
        let again = self.last.take().filter(|_| self.rng.chance(0.4));
        let lock_request = again.unwrap_or_else(|| self.lock_request(spec));
        self.last = Some(lock_request.clone());
        let gives_up_ns = self.rng.chance(0.05).then(|| now + self.rng.below(600 * MS as usize) as u64);
        let link = &mut self.wires.last_mut()?.link;
        let session = link.session().id();
        let number = match link.reenter(clock, &lock_request) {
            Some(number) => number,
            None => link.acquire(clock, lock_request.clone())?,
        };
        let nested = Nested::None;
        Some(ClientRequest {
            lock_request,
            since_ns: now,
            session,
            number,
            inside: None,
            gives_up_ns,
            repeats_at_ns: None,
            recorded: false,
            nested,
        })
    }

    fn lock_request(&mut self, spec: &ClusterSpec) -> LockRequest {
        let rng = &mut self.rng;
        if spec.jobs > 0 && rng.chance(0.6) {
            return LockRequest::exclusive(LockName::new(format!("job-{}", rng.below(spec.jobs))));
        }
        let place = rng.below(spec.mutexes + 2);
        // A lock can be requested in every mode, but each name is mostly requested in one.
        let (name, mostly) = match place.checked_sub(spec.mutexes) {
            None => (format!("mutex-{place}"), LockMode::Exclusive),
            Some(0) => ("book".into(), LockMode::Shared),
            Some(_) => ("seats".into(), LockMode::Permit { of: 2 }),
        };
        let mode = match rng.below(10) {
            0 => LockMode::Permit { of: 2 },
            1 => LockMode::Shared,
            2 => LockMode::Exclusive,
            3 if place > spec.mutexes => LockMode::Permit { of: 3 },
            _ => mostly,
        };
        let mut lock_request = LockRequest { mode, ..LockRequest::exclusive(LockName::new(name)) };
        match rng.below(20) {
            0 => lock_request.timeout_ns = Some(0),
            1 => lock_request.timeout_ns = Some(rng.below(800 * MS as usize) as u64),
            2 => lock_request.longest_hold_ns = Some(rng.below(100 * MS as usize) as u64),
            _ => {}
        }
        if rng.chance(0.5) {
            lock_request.delegated_entries = 1 + rng.below(4) as u32;
        }
        lock_request.reentrant = rng.chance(0.15);
        if rng.chance(0.7) {
            let shorter = rng.below(spec.longest_ttl_ns as usize) as u64;
            lock_request.ttl_ns =
                if spec.spares_recorded_holds() { spec.longest_ttl_ns } else { 1_000 * MS + shorter };
        }
        lock_request
    }

    /// The true time of the next step. `when` converts a reading of the client's clock to true time.
    pub fn next_wake(&self, now: u64, when: impl Fn(u64) -> u64) -> u64 {
        let wake = self.wires.iter().map(|wire| wire.link.wake_ns()).min().unwrap_or(u64::MAX);
        let wake = if wake == u64::MAX { u64::MAX } else { when(wake) };
        let own = match &self.request {
            None => self.next_request_ns,
            Some(request) => match (request.inside, request.nested, request.gives_up_ns) {
                (Some((_, until)), Nested::Planned(at), _) => until.min(at),
                (Some((_, until)), ..) => until,
                (None, _, Some(at)) => at.max(now + MS),
                (None, _, None) => u64::MAX,
            },
        };
        let again = self.request.as_ref().and_then(|request| request.repeats_at_ns).unwrap_or(u64::MAX);
        wake.min(own).min(again)
    }
}
