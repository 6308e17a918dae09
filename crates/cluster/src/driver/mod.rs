//! Runs the state machine: one event at a time, and everything that it asks for.
//!
//! There is no task between a client and the machine, nor between the machine and the network: whoever brings an event takes the lock, steps,
//! and carries out what the step asks for. Frames are put into the peers' buffers, questions to consensus are spawned, clients are woken; and
//! once others may have the machine, the buffers are written. So an entry that needs no message costs no switch of tasks, and one that does
//! costs those of whoever receives it. What others ask of it is in `calls`.

mod calls;

use crate::clock::now_ns;
use crate::consensus::Consensus;
use crate::engine::Hears;
use crate::error::{Error, Result};
use crate::local::{Local, Tally};
use crate::metrics::{self, Metrics, name_of, seconds, word};
use crate::net::Net;
use lockkeeper_core::MutualExclusion;
use lockkeeper_member::{
    Body, Config, Event, Frame, LockName, Member, MemberId, Node, Note, Out, PortRequest, SessionId, Table,
    ToClient, ToMember,
};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

type Message<P> = <P as lockkeeper_core::Protocol>::Message;

struct State<P: MutualExclusion> {
    member: Member<P>,
    out: Out<Message<P>>,
    peers: Vec<MemberId>,
    locals: BTreeMap<u64, Local>,
    /// Who carries words to clients outside of this process.
    remotes: HashMap<u64, Arc<dyn Hears>>,
    surveyors: Vec<oneshot::Sender<Vec<(Node, Table)>>>,
    /// For each peer, the view and the number of the next message: what is below was sent before.
    sent: HashMap<Node, (u64, u64)>,
    next_client: u64,
    next_keep_alive_ns: u64,
    /// When the timer wakes.
    armed_ns: u64,
    serving: bool,
    leaving: bool,
    left: bool,
    stopped: Option<String>,
}

/// A member at work.
pub(crate) struct Driver<P: MutualExclusion> {
    me: MemberId,
    config: Config,
    state: Mutex<State<P>>,
    /// How many threads wait for the machine.
    waiting: AtomicUsize,
    around: OnceLock<(Arc<Net>, Consensus)>,
    timer: Notify,
    standings: watch::Sender<u64>,
    /// Counts the steps that may have changed who holds or waits, while somebody wants to know.
    tables: watch::Sender<u64>,
    metrics: Metrics,
}

fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::Unavailable(format!("the system gives no random numbers: {error}")))
}

impl<P: MutualExclusion> Driver<P> {
    /// Begins a life. It does nothing until it is connected to a network and consensus.
    pub fn start(me: MemberId, config: Config) -> Result<Arc<Self>> {
        let node = Node { id: me, incarnation: random()? };
        let now = now_ns();
        let member = Member::new(node, config.clone(), now).map_err(Error::Config)?;
        let state = State {
            member,
            out: Out::default(),
            peers: config.peers.clone(),
            locals: BTreeMap::new(),
            remotes: HashMap::new(),
            surveyors: Vec::new(),
            sent: HashMap::new(),
            next_client: random()?,
            next_keep_alive_ns: now,
            armed_ns: 0,
            serving: false,
            leaving: false,
            left: false,
            stopped: None,
        };
        let driver = Arc::new(Self {
            me,
            config,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            around: OnceLock::new(),
            timer: Notify::new(),
            standings: watch::Sender::new(0),
            tables: watch::Sender::new(0),
            metrics: Metrics::new(),
        });
        tokio::spawn(tick(Arc::downgrade(&driver)));
        Ok(driver)
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // A step that panicked has left the machine in a state that nobody has thought about: better none than that.
        const PANICKED: &str = "the member's state machine panicked; this process must be restarted";
        match self.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::Poisoned(_)) => panic!("{PANICKED}"),
            Err(TryLockError::WouldBlock) => {}
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state.expect(PANICKED)
    }

    /// The machine, for a turn: at its end, others have theirs, and what was sent is written.
    fn turn(&self) -> Turn<'_, P> {
        Turn { driver: self, state: Some(self.lock()) }
    }

    /// Writes what was sent, with the machine free for others meanwhile.
    fn write(&self) {
        if let Some((net, _)) = self.around.get() {
            net.flush();
        }
    }

    /// One event, and all that comes of it.
    fn step(&self, state: &mut State<P>, event: Event<Message<P>>) {
        if state.stopped.is_some() {
            return;
        }
        let now = now_ns();
        let asked = matches!(event, Event::Client(_, ToMember::Acquire { .. }));
        state.member.handle(now, event, &mut state.out);
        let mut out = std::mem::take(&mut state.out);
        for frame in out.frames.drain(..) {
            self.post(state, &frame);
        }
        if let Some((_, consensus)) = self.around.get() {
            for request in out.port.drain(..) {
                match request {
                    PortRequest::Propose(view) => consensus.propose(view),
                    PortRequest::Confirm { question, term } => consensus.confirm(question, term),
                    PortRequest::StepDown { .. } => consensus.step_down(),
                }
            }
        }
        let (mut tally, mut ended) = (Tally::default(), Vec::new());
        let news = |(_, said): &(SessionId, ToClient)| !matches!(said, ToClient::Alive { .. });
        if (asked || out.clients.iter().any(news)) && self.tables.receiver_count() > 0 {
            self.tables.send_modify(|changes| *changes += 1);
        }
        for (session, said) in out.clients.drain(..) {
            if let Some(remote) = state.remotes.get(&session.client) {
                remote.hear(session, said);
            } else if let Some(local) = state.locals.get_mut(&session.client)
                && local.session.id() == session
            {
                if said == ToClient::NoSession {
                    ended.push(session.client);
                }
                local.hear(now, said, &mut tally);
            }
        }
        self.count(&tally);
        let notes = std::mem::take(&mut out.notes);
        state.out = out;
        for client in ended {
            self.renew_local(state, client, "the lease ran out");
        }
        for note in notes {
            self.note(state, note);
        }
        self.watch(state, now);
    }

    fn count(&self, tally: &Tally) {
        for waited_ns in &tally.waited_ns {
            self.metrics.entries.inc();
            self.metrics.wait.observe(seconds(*waited_ns));
        }
        for how in &tally.ended {
            self.metrics.acquisitions.get_or_create(&metrics::Result { result: word(*how) }).inc();
        }
    }

    /// Tells the timer if it must wake earlier, and those who wait for the member to serve.
    fn watch(&self, state: &mut State<P>, now: u64) {
        if state.member.wake_ns() < state.armed_ns {
            state.armed_ns = 0;
            self.timer.notify_one();
        }
        let serving = state.member.running().is_some() && state.member.lease_left_ns(now) > 0;
        if serving != state.serving {
            state.serving = serving;
            self.standings.send_modify(|changes| *changes += 1);
        }
    }

    /// Puts a frame into its peer's buffer.
    fn post(&self, state: &mut State<P>, frame: &Frame<Message<P>>) {
        if let Body::Link { epoch, packet } = &frame.body
            && let Some((number, message)) = &packet.payload
        {
            let to = Node { id: frame.to, incarnation: frame.life.unwrap_or_default() };
            let next = state.sent.entry(to).or_default();
            if (*epoch, *number) < *next {
                self.metrics.resent.inc();
            } else {
                *next = (*epoch, number + 1);
                let kind = name_of(&message.words);
                self.metrics.messages.get_or_create(&metrics::Word { kind }).inc();
                self.trace(state, &message.lock, "sends", kind, frame.to);
            }
        }
        if let Some((net, _)) = self.around.get() {
            net.send(frame.to, |buffer| {
                let encoded = postcard::to_extend(frame, std::mem::take(buffer));
                *buffer = encoded.expect("a frame has a length, and memory takes it");
            });
        }
    }

    /// Tells whoever traces an acquire which messages it costs.
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
        let span = here.or_else(|| state.remotes.values().find_map(|remote| remote.traced(lock)));
        match span {
            Some(span) => tracing::debug!(parent: &span, %lock, kind, %peer, "{verb}"),
            None => tracing::debug!(%lock, kind, %peer, "{verb}"),
        }
    }

    fn note(&self, state: &mut State<P>, note: Note) {
        match note {
            Note::Wedged { epoch } => tracing::info!(member = %self.me, epoch, "frozen for a view"),
            Note::Reported { .. } => {}
            Note::Refused { from, why } => {
                self.metrics.refused.inc();
                tracing::warn!(member = %self.me, %from, why, "refused a frame");
            }
            Note::Started { view, holds } => {
                let members = view.members.len();
                tracing::info!(member = %self.me, epoch = view.epoch, members, held = holds.len(), "starts a view");
            }
            Note::Installed { epoch } => {
                let members = state.member.running().map_or(0, |view| view.members.len());
                tracing::info!(member = %self.me, epoch, members, "a view starts here");
                self.metrics.view_changes.inc();
                self.metrics.epoch.set(epoch as i64);
                self.metrics.members.set(members as i64);
                // What this very step has sent in the new view may have to be sent again.
                state.sent.retain(|_, &mut (of, _)| of == epoch);
                self.tables.send_modify(|changes| *changes += 1);
                self.standings.send_modify(|changes| *changes += 1);
            }
            Note::Excluded if !state.leaving => self.begin_again(state),
            // Whoever wanted to go is out, one way or the other.
            Note::Excluded | Note::Left => {
                tracing::info!(member = %self.me, "left the cluster");
                state.left = true;
                self.halt(state, "it has left its cluster");
            }
            Note::LeftOut { node, locks } => {
                tracing::warn!(member = %self.me, %node, locks, "a survey leaves locks out: there are too many");
            }
            Note::Survey(told) => {
                let last = state.surveyors.pop();
                for surveyor in state.surveyors.drain(..) {
                    let _ = surveyor.send(told.clone());
                }
                let _ = last.map(|surveyor| surveyor.send(told));
            }
        }
    }

    /// This life is over: whatever was held through it is lost. Another one begins, and joins.
    fn begin_again(&self, state: &mut State<P>) {
        tracing::warn!(member = %self.me, "excluded from the view: begins anew");
        let begun = random().and_then(|incarnation| {
            let node = Node { id: self.me, incarnation };
            let config = Config { peers: state.peers.clone(), ..self.config.clone() };
            Member::new(node, config, now_ns()).map_err(Error::Config)
        });
        match begun {
            Ok(member) => {
                let before = std::mem::replace(&mut state.member, member);
                // It may know millions of locks, and others wait for the machine.
                let _ = std::thread::Builder::new().spawn(move || drop(before));
            }
            Err(error) => return self.halt(state, &error.to_string()),
        }
        self.metrics.lives.inc();
        state.sent.clear();
        state.armed_ns = 0;
        self.timer.notify_one();
        let clients: Vec<u64> = state.locals.keys().copied().collect();
        for client in clients {
            self.renew_local(state, client, "this member was excluded from the view");
        }
        if let Some((_, consensus)) = self.around.get() {
            consensus.tell_again();
        }
    }

    /// A client's session is over; another one follows.
    fn renew_local(&self, state: &mut State<P>, client: u64, why: &'static str) {
        let Some(local) = state.locals.get_mut(&client) else { return };
        if local.begin_again(why) {
            self.metrics.lost_leases.inc();
            tracing::warn!(member = %self.me, why, "locks were lost");
        }
        // A member that leaves opens no sessions.
        if state.leaving {
            return;
        }
        let (id, wishes) = (local.session.id(), local.session.wishes());
        let settled = local.session.settle();
        self.keep_alive(state, client);
        for (number, wish) in wishes {
            self.step(state, Event::Client(id, ToMember::Acquire { number, settled, wish }));
        }
    }

    fn keep_alive(&self, state: &mut State<P>, client: u64) {
        if let Some(local) = state.locals.get_mut(&client) {
            let (id, said) = (local.session.id(), local.session.keep_alive(now_ns()));
            self.step(state, Event::Client(id, said));
        }
    }

    fn keep_all_alive(&self, state: &mut State<P>) {
        let clients: Vec<u64> = state.locals.keys().copied().collect();
        for client in clients {
            let Some(local) = state.locals.get_mut(&client) else { continue };
            if state.leaving && !local.session.is_alive() {
                continue;
            }
            if local.session.is_lost(now_ns()) {
                let id = local.session.id();
                // Nothing of it is used any more, so nobody needs to wait for what was promised.
                self.step(state, Event::Client(id, ToMember::Close));
                // The member answers that the session is over, and another one follows, if it knew of it at all.
                if state.locals.get(&client).is_some_and(|local| local.session.id() == id) {
                    self.renew_local(state, client, "the lease ran out");
                }
            } else {
                self.keep_alive(state, client);
            }
        }
    }

    fn halt(&self, state: &mut State<P>, why: &str) {
        for local in state.locals.values_mut() {
            local.stop(why);
        }
        state.stopped = Some(String::from(why));
        state.surveyors.clear();
        self.standings.send_modify(|changes| *changes += 1);
    }

    /// What needs only time; gives when to come again.
    fn ticks(&self) -> Option<Duration> {
        let state = &mut *self.turn();
        if state.stopped.is_some() {
            return None;
        }
        self.step(state, Event::Tick);
        let now = now_ns();
        if now >= state.next_keep_alive_ns {
            state.next_keep_alive_ns = now + state.member.settings().renewal_ns / 2;
            self.keep_all_alive(state);
        }
        state.armed_ns = state.member.wake_ns().min(state.next_keep_alive_ns);
        Some(Duration::from_nanos(state.armed_ns.saturating_sub(now_ns())))
    }
}

/// A turn at the machine.
struct Turn<'a, P: MutualExclusion> {
    driver: &'a Driver<P>,
    /// There until the end.
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

/// How often the timer lets other tasks run, while others wait for the machine, before it goes on with long work.
const MOST_YIELDS: usize = 64;

/// The member's timer, for as long as the member is there.
async fn tick<P: MutualExclusion>(driver: Weak<Driver<P>>) {
    loop {
        let Some(driver) = driver.upgrade() else { return };
        let Some(after) = driver.ticks() else { return };
        if after.is_zero() {
            // Long work goes on at once; but threads that wait for the machine have their turns first.
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
