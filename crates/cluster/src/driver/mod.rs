//! Runs the state machine: feeds it one event at a time, and carries out the actions that it returns.
//!
//! There is no task between a client and the machine, nor between the machine and the network. The thread that brings
//! an event locks the state, takes the step and carries out its actions: it appends frames to the buffers of the peers,
//! spawns queries to consensus and wakes clients. It writes the buffers after it has unlocked the state. So a grant
//! that needs no message costs no task switch, and one that does costs only the wakeups at the receivers. The calls
//! from outside are in `calls`.

mod calls;
mod clients;
mod health;

use crate::config::ConfigError;
use crate::engine::ClientTransport;
use crate::error::{Error, Result};
use crate::local::{AdoptedHold, Counts, LEASE_RAN_OUT, LocalClient};
use crate::metrics::{self, Metrics, message_name, result_label, seconds};
use crate::net::Net;
use lockkeeper_consensus::Consensus;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Body, Config, Event, Frame, LockName, Member, MemberId, Node, Note, Out, PortRequest, Proof, Reply,
    SessionId, ToClient,
};
use lockkeeper_system::lease_clock::now_ns;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

type Message<P> = <P as lockkeeper_core::Protocol>::Message;

struct State<P: MutualExclusion> {
    member: Member<P>,
    out: Out<Message<P>>,
    peers: Vec<MemberId>,
    locals: BTreeMap<u64, LocalClient>,
    /// The transports of clients outside of this process.
    remotes: HashMap<u64, (Arc<dyn ClientTransport>, Proof)>,
    /// The callers that wait for the replies to their queries, by query.
    query_callers: HashMap<u64, oneshot::Sender<Vec<Reply>>>,
    next_query: u64,
    /// For each peer, the epoch and the number of the next new message. A message with a lower number is a
    /// retransmission.
    sent: HashMap<Node, (u64, u64)>,
    /// The number of the client that was opened last.
    next_client: u64,
    /// The lease of the clients in this process: its end (0 if there is none) and its number.
    lease_until_ns: u64,
    lease_number: u64,
    /// The reason why the previous lease ended.
    lease_ended: &'static str,
    /// Whether holders were warned that this lease is about to end.
    warned: bool,
    /// The time at which the last lease ended.
    without_lease_since_ns: u64,
    /// Whether this member was excluded from a view and has not had a lease since.
    excluded: bool,
    /// Changes of the lease to log, outside of a step.
    lease_changes: Vec<health::LeaseChange>,
    /// Number of incarnations of the member in this process.
    incarnations: u64,
    /// Clients in this process that may have lost holds and have not been examined since, each with the acquisition to
    /// start at.
    stale: VecDeque<(u64, u64)>,
    /// Granted acquisitions whose waiters are not notified yet, because the lease was too short.
    unreported: Vec<(u64, u64)>,
    /// Adopted holds that no caller has taken over yet.
    adopted: Vec<AdoptedHold>,
    /// The clients in this process that have taken over adopted sessions.
    adopted_sessions: HashMap<SessionId, u64>,
    /// The time at which the timer wakes.
    armed_ns: u64,
    serving: bool,
    leaving: bool,
    left: bool,
    stopped: Option<String>,
    /// Whether it stopped because of an internal error.
    failed: bool,
}

/// A running member.
pub(crate) struct Driver<P: MutualExclusion> {
    me: MemberId,
    config: Config,
    state: Mutex<State<P>>,
    /// Number of threads that wait for the lock of the state.
    waiting: AtomicUsize,
    environment: OnceLock<(Arc<Net>, Consensus)>,
    timer: Notify,
    status_changes: watch::Sender<u64>,
    /// Changes when the lease is about to end. Tasks that watch a hold check it then, and need no timers of their own.
    expiring: watch::Sender<u64>,
    /// Changes when the member has adopted holds of clients in other members' processes.
    adoptions: watch::Sender<u64>,
    /// The number of the next change of the table. Changes are recorded from the first subscription on.
    table_versions: watch::Sender<u64>,
    metrics: Metrics,
}

fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::Unavailable(format!("the system gives no random numbers: {error}")))
}

impl<P: MutualExclusion> Driver<P> {
    /// Starts the first incarnation. It does nothing until it is connected to a network and to consensus.
    pub fn start(me: MemberId, config: Config) -> Result<Arc<Self>> {
        let node = Node { id: me, incarnation: random()? };
        let now = now_ns();
        let member = Member::new(node, config.clone(), now).map_err(ConfigError::Member)?;
        let state = State {
            member,
            out: Out::default(),
            peers: config.peers.clone(),
            locals: BTreeMap::new(),
            remotes: HashMap::new(),
            query_callers: HashMap::new(),
            next_query: 0,
            sent: HashMap::new(),
            next_client: random()?,
            lease_until_ns: 0,
            lease_number: 0,
            lease_ended: LEASE_RAN_OUT,
            warned: false,
            without_lease_since_ns: now,
            excluded: false,
            lease_changes: Vec::new(),
            incarnations: 0,
            stale: VecDeque::new(),
            unreported: Vec::new(),
            adopted: Vec::new(),
            adopted_sessions: HashMap::new(),
            armed_ns: 0,
            serving: false,
            leaving: false,
            left: false,
            stopped: None,
            failed: false,
        };
        let driver = Arc::new(Self {
            me,
            config,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            environment: OnceLock::new(),
            timer: Notify::new(),
            status_changes: watch::Sender::new(0),
            expiring: watch::Sender::new(0),
            adoptions: watch::Sender::new(0),
            table_versions: watch::Sender::new(0),
            metrics: Metrics::new(),
        });
        tokio::spawn(tick(Arc::downgrade(&driver)));
        Ok(driver)
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        let locked = match self.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let state = self.state.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                state
            }
        };
        locked.unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            // The panic may have left the state half changed: the member stops and grants nothing from it.
            self.fail(&mut state, "the code around its state machine panicked");
            state
        })
    }

    /// Locks the state for a turn. At its end the state is unlocked, and then the sent frames are written.
    fn turn(&self) -> Turn<'_, P> {
        Turn { driver: self, state: Some(self.lock()) }
    }

    /// Writes the sent frames, while other threads may use the state.
    fn write(&self) {
        if let Some((net, _)) = self.environment.get() {
            net.flush();
        }
    }

    /// Handles one event and carries out the resulting actions. A panic in a step may leave the machine in an
    /// inconsistent state, so the member stops.
    fn step(&self, state: &mut State<P>, event: Event<Message<P>>) {
        if state.stopped.is_some() {
            return;
        }
        let step = AssertUnwindSafe(|| self.take_step(state, event));
        if let Err(panic) = catch_unwind(step) {
            let why = format!("a step of its state machine panicked: {}", health::message(panic.as_ref()));
            self.fail(state, &why);
        }
    }

    fn take_step(&self, state: &mut State<P>, event: Event<Message<P>>) {
        let now = now_ns();
        self.metrics.steps.of(&event).inc();
        // Before the event, which may bring a new lease: a gap between two leases ends the holds of the first, and the
        // new lease must not hide the gap.
        self.end_lease_if_over(state, now);
        state.member.handle(now, event, &mut state.out);
        self.follow_lease(state, now);
        let mut out = std::mem::take(&mut state.out);
        for frame in out.frames.drain(..) {
            self.send_frame(state, &frame);
        }
        if let Some((_, consensus)) = self.environment.get() {
            for request in out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => consensus.propose(view),
                    PortRequest::Confirm { number: query, term } => consensus.confirm(query, term),
                    PortRequest::Write(write) => consensus.write(write),
                    PortRequest::StepDown { .. } => consensus.step_down(),
                }
            }
        }
        let (mut counts, mut ended) = (Counts::default(), Vec::new());
        if let Some(next) = state.member.next_change() {
            self.table_versions.send_if_modified(|before| std::mem::replace(before, next) != next);
        }
        let lease = self.lease(state, now);
        for (session, message) in out.clients.drain(..) {
            let client = state.adopted_sessions.get(&session).copied().unwrap_or(session.client);
            if let Some((remote, _)) = state.remotes.get(&session.client) {
                remote.deliver(session, message);
            } else if let Some(local) = state.locals.get_mut(&client)
                && local.session.id() == session
            {
                if message == ToClient::NoSession {
                    ended.push(client);
                } else if let ToClient::Granted { number, .. } = message {
                    if local.receive(lease, message, &mut counts) {
                        state.unreported.push((client, number));
                    }
                } else {
                    local.receive(lease, message, &mut counts);
                }
            }
        }
        self.report_grants(state, lease, &mut counts);
        self.count(&counts);
        let notes = std::mem::take(&mut out.notes);
        state.out = out;
        for client in ended {
            self.end_local(state, client);
        }
        for note in notes {
            self.handle_note(state, note);
        }
        self.watch(state, now);
    }

    fn count(&self, counts: &Counts) {
        for waited_ns in &counts.waited_ns {
            self.metrics.entries.inc();
            self.metrics.wait.observe(seconds(*waited_ns));
        }
        for how in &counts.ended {
            self.metrics
                .acquisitions
                .get_or_create(&metrics::ResultLabel { result: result_label(*how) })
                .inc();
        }
    }

    /// Wakes the timer if it must fire earlier, and notifies callers that wait for the member to serve.
    fn watch(&self, state: &mut State<P>, now: u64) {
        if state.member.wake_ns() < state.armed_ns {
            state.armed_ns = 0;
            self.timer.notify_one();
        }
        let serving = state.member.running().is_some() && state.member.lease_left_ns(now) > 0;
        if serving != state.serving {
            state.serving = serving;
            self.status_changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Appends a frame to the buffer of its peer.
    fn send_frame(&self, state: &mut State<P>, frame: &Frame<Message<P>>) {
        if let Body::Link { epoch, packet } = &frame.body
            && let Some((number, message)) = &packet.payload
        {
            let to = Node { id: frame.to, incarnation: frame.incarnation.unwrap_or_default() };
            // Example: messages 4 and 5 of epoch 7 have been sent, so `next` is (7, 6). Message 5 of epoch 7 is now a
            // retransmission; message 1 of epoch 8 is new, because epochs are compared first.
            let next = state.sent.entry(to).or_default();
            if (*epoch, *number) < *next {
                self.metrics.resent.inc();
            } else {
                *next = (*epoch, number + 1);
                let kind = message_name(&message.content);
                self.metrics.messages.get_or_create(&metrics::KindLabel { kind }).inc();
                self.trace(state, &message.lock, "sends", kind, frame.to);
            }
        }
        if let Some((net, consensus)) = self.environment.get() {
            let cluster = consensus.cluster_id();
            net.send(frame.to, |buffer| {
                buffer.extend_from_slice(&cluster.to_le_bytes());
                let encoded = postcard::to_extend(frame, std::mem::take(buffer));
                *buffer = encoded.expect("a frame can be encoded into memory");
            });
        }
    }

    /// Warns once for each view change after which the cluster's settings differ from this member's configuration.
    fn compare_settings(&self, state: &State<P>) {
        let differences = self.config.cluster.differences(state.member.settings());
        if !differences.is_empty() {
            tracing::warn!(
                member = %self.me,
                "the configuration of this member is not what the cluster has decided: {differences}. The cluster's settings \
                 count; `lockkeeper cluster set` changes them for all members"
            );
        }
    }

    /// Logs a message of the algorithm, in the span of an acquire that waits for this lock if there is one.
    fn trace(
        &self,
        state: &State<P>,
        lock: &LockName,
        verb: &'static str,
        kind: &'static str,
        peer: MemberId,
    ) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let here = state.locals.values().find_map(|local| local.waiting_for(lock).next());
        let here = here.map(|waiting| waiting.span.clone());
        let span = here.or_else(|| state.remotes.values().find_map(|(remote, _)| remote.wait_span(lock)));
        match span {
            Some(span) => tracing::debug!(parent: &span, %lock, kind, %peer, "{verb}"),
            None => tracing::debug!(%lock, kind, %peer, "{verb}"),
        }
    }

    fn handle_note(&self, state: &mut State<P>, note: Note) {
        match note {
            Note::Frozen { epoch } => tracing::info!(member = %self.me, epoch, "frozen for a view"),
            Note::Reported { .. } => {}
            Note::Refused { from, why } => {
                self.metrics.refused.inc();
                tracing::warn!(member = %self.me, %from, why = why.as_str(), "refused a frame");
            }
            Note::Started { view, holds } => {
                let members = view.members.len();
                tracing::info!(member = %self.me, epoch = view.epoch, members, held = holds.len(), "starts a view");
            }
            Note::Installed { epoch } => {
                let members = state.member.running().map_or(0, |view| view.members.len());
                tracing::info!(member = %self.me, epoch, members, "a view starts here");
                self.compare_settings(state);
                self.metrics.view_changes.inc();
                self.metrics.epoch.set(epoch as i64);
                self.metrics.members.set(members as i64);
                // Keep only the numbers of the new view: this very step may have sent messages in it, and these may
                // have to be retransmitted.
                state.sent.retain(|_, &mut (of, _)| of == epoch);
                self.adopt_locals(state);
                self.status_changes.send_modify(|changes| *changes += 1);
            }
            Note::Excluded if !state.leaving => self.begin_again(state),
            // A leaving member is out of the view, whether it left in order or was excluded.
            Note::Excluded | Note::Left => {
                tracing::info!(member = %self.me, "left the cluster");
                state.left = true;
                self.halt(state, "it has left its cluster");
            }
            Note::Replies(number, replies) => {
                if let Some(caller) = state.query_callers.remove(&number) {
                    let _ = caller.send(replies);
                }
            }
        }
    }

    /// Starts a new incarnation, which joins the cluster again. All holds of the previous one are lost.
    fn begin_again(&self, state: &mut State<P>) {
        tracing::warn!(member = %self.me, "excluded from the view: starts a new incarnation");
        let begun = random().and_then(|incarnation| {
            let node = Node { id: self.me, incarnation };
            let config = Config { peers: state.peers.clone(), ..self.config.clone() };
            Member::new(node, config, now_ns()).map_err(|why| ConfigError::Member(why).into())
        });
        match begun {
            Ok(member) => {
                let before = std::mem::replace(&mut state.member, member);
                // Change numbers continue with a gap, so a reader from the previous incarnation has to read the whole
                // table again.
                if let Some(next) = before.next_change() {
                    state.member.begin_journal(next + 1);
                    self.table_versions.send_replace(next + 1);
                }
                // The old state may contain millions of locks. It is freed on another thread, so that callers need not
                // wait for it.
                let _ = std::thread::Builder::new().spawn(move || drop(before));
            }
            Err(error) => return self.fail(state, &error.to_string()),
        }
        self.metrics.incarnations.inc();
        state.sent.clear();
        state.armed_ns = 0;
        self.timer.notify_one();
        state.excluded = true;
        self.end_lease(state, now_ns(), "this member was excluded from the view");
        state.incarnations += 1;
        self.examine_all_clients(state);
        if let Some((_, consensus)) = self.environment.get() {
            consensus.repeat_events();
        }
    }

    fn halt(&self, state: &mut State<P>, why: &str) {
        for local in state.locals.values_mut() {
            local.stop(why);
        }
        state.stopped = Some(String::from(why));
        state.lease_until_ns = 0;
        state.query_callers.clear();
        state.stale.clear();
        state.unreported.clear();
        self.status_changes.send_modify(|changes| *changes += 1);
    }

    /// Handles expired timers and pending work. Returns the time until the next call; `None` if the member has stopped.
    fn ticks(&self) -> Option<Duration> {
        let state = &mut *self.turn();
        if state.stopped.is_some() {
            return None;
        }
        self.step(state, Event::Tick);
        self.examine_some_clients(state);
        let now = now_ns();
        self.end_unclaimed(state, now);
        let lease_ns = self.warn_of_end(state, now);
        // If clients remain to be examined, call again at once. Other threads get the lock in between.
        let stale_ns = if state.stale.is_empty() { u64::MAX } else { now };
        state.armed_ns = state.member.wake_ns().min(lease_ns).min(stale_ns);
        Some(Duration::from_nanos(state.armed_ns.saturating_sub(now)))
    }
}

/// Exclusive access to the state of the machine. Dropping it unlocks the state and writes the sent frames.
struct Turn<'a, P: MutualExclusion> {
    driver: &'a Driver<P>,
    /// `Some` until it is dropped.
    state: Option<MutexGuard<'a, State<P>>>,
}

impl<P: MutualExclusion> Deref for Turn<'_, P> {
    type Target = State<P>;

    fn deref(&self) -> &State<P> {
        self.state.as_ref().expect("the turn is not over")
    }
}

impl<P: MutualExclusion> DerefMut for Turn<'_, P> {
    fn deref_mut(&mut self) -> &mut State<P> {
        self.state.as_mut().expect("the turn is not over")
    }
}

impl<P: MutualExclusion> Drop for Turn<'_, P> {
    fn drop(&mut self) {
        self.state = None;
        self.driver.write();
    }
}

/// Maximum number of times that the timer yields to other tasks while threads wait for the lock, before it continues
/// with long work.
const MOST_YIELDS: usize = 64;

/// The timer task of a member. It ends when the member is dropped.
async fn tick<P: MutualExclusion>(driver: Weak<Driver<P>>) {
    loop {
        let Some(driver) = driver.upgrade() else { return };
        let after = driver.ticks();
        driver.log_lease_changes();
        let Some(after) = after else { return };
        if after.is_zero() {
            // Long work continues at once, but threads that wait for the lock go first.
            for _ in 0..MOST_YIELDS {
                tokio::task::yield_now().await;
                if driver.waiting.load(Ordering::Relaxed) == 0 {
                    break;
                }
            }
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(after) => {}
            () = driver.timer.notified() => {}
        }
    }
}
