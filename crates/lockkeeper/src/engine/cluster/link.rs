//! A session with one daemon: what is waited for, what is held, and the connection that carries it.
//!
//! The session itself, and when what it holds may be used, is [`ClientSession`], the pure half that the lab runs too. A link gives it
//! a connection, again if the connection breaks, and tells those who wait and hold what becomes of it.

use super::clock::now_ns;
use super::habits::Habits;
use crate::lease::{self, Lease};
use lockkeeper_member::{
    ClientSession, Ended, Fence, LockName, Progress, SessionId, ToClient, ToMember, Wish,
};
use lockkeeper_wire::{Answer, Ask, FromDaemon, Refusal, ToDaemon, Welcome};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How a wish came out.
pub(super) enum Outcome {
    Granted(Option<Fence>, Lease),
    Ended(Ended),
    Refused(Refusal),
    /// No daemon can be reached.
    Unreachable(String),
}

/// Somebody who waits. Where it waits changes when its daemon goes away.
pub(super) struct Wishing {
    pub wish: Wish,
    pub told: oneshot::Sender<Outcome>,
    pub place: Arc<Mutex<Place>>,
}

/// Somebody who waits for an answer.
pub(super) struct Asked {
    pub ask: Ask,
    pub told: oneshot::Sender<Answer>,
}

/// Where somebody waits or holds.
pub(super) struct Place {
    pub link: Arc<Link>,
    pub number: u64,
    pub given_up: bool,
}

impl Place {
    /// Gives up, or gives back, wherever that is by now.
    pub fn leave(place: &Mutex<Place>) -> Option<oneshot::Receiver<()>> {
        let mut place = place.lock().unwrap_or_else(|e| e.into_inner());
        place.given_up = true;
        let (link, number) = (place.link.clone(), place.number);
        drop(place);
        link.release(number)
    }
}

struct State {
    session: ClientSession,
    wishing: BTreeMap<u64, Wishing>,
    held: BTreeMap<u64, Held>,
    /// Which locks to keep for a while; `None` if none.
    habits: Option<Habits>,
    /// Whether the connection looks after what is kept.
    keeps: bool,
    releasing: BTreeMap<u64, oneshot::Sender<()>>,
    asked: BTreeMap<u64, Asked>,
    next_question: u64,
    unsent: Vec<u8>,
    /// What the daemon said when the connection came about that stands now.
    welcome: Option<Welcome>,
    /// It takes no more wishes: it goes on for what is held through it.
    retired: bool,
    over: bool,
}

/// What somebody holds.
struct Held {
    lease: Lease,
    lock: LockName,
}

/// A session with one daemon.
pub(super) struct Link {
    state: Mutex<State>,
    /// Something is to be sent, or the link is over.
    pub wake: Notify,
}

impl Link {
    /// A new session, which keeps locks for a while or does not.
    pub fn new(id: SessionId, keeps: bool) -> Arc<Link> {
        let state = State {
            session: ClientSession::new(id),
            wishing: BTreeMap::new(),
            held: BTreeMap::new(),
            habits: keeps.then(Habits::default),
            keeps: false,
            releasing: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_question: 0,
            unsent: Vec::new(),
            welcome: None,
            retired: false,
            over: false,
        };
        Arc::new(Link { state: Mutex::new(state), wake: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Asks for a lock; gives the wish back if the link takes no more.
    pub fn ask(self: &Arc<Link>, wishing: Wishing) -> Option<Wishing> {
        let mut state = self.lock();
        if state.over || state.retired {
            return Some(wishing);
        }
        let mut place = wishing.place.lock().unwrap_or_else(|e| e.into_inner());
        if place.given_up {
            return None;
        }
        let now = now_ns();
        if let Some(number) = state.session.enter_again(now, &wishing.wish) {
            (place.link, place.number) = (self.clone(), number);
            drop(place);
            state.wishing.insert(number, wishing);
            settle(&mut state, now, number);
            return None;
        }
        let mut wish = wishing.wish.clone();
        wish.more = state.habits.as_ref().map_or(0, |habits| habits.more(now, &wish.lock));
        let number = state.session.acquire(wish.clone());
        (place.link, place.number) = (self.clone(), number);
        drop(place);
        state.wishing.insert(number, wishing);
        let settled = state.session.settle();
        self.say(&mut state, ToMember::Acquire { number, settled, wish });
        None
    }

    /// Gives back what is held, or up what is waited for. The receiver resolves when the daemon has confirmed the release; it fails if the
    /// hold was lost before. `None` if nothing has to be confirmed.
    fn release(&self, number: u64) -> Option<oneshot::Receiver<()>> {
        let mut state = self.lock();
        let state = &mut *state;
        state.wishing.remove(&number);
        let held = state.held.remove(&number);
        if state.over || state.session.progress(number).is_none() {
            return None;
        }
        if let (Some(held), Some(habits)) = (held, &mut state.habits) {
            let now = now_ns();
            let (allowed, made) = state.session.entries(number);
            habits.left(now, &held.lock, allowed, made);
            if !state.retired && state.session.put_down(now, number) {
                // Whoever waits is not kept waiting: unless somebody enters again before the connection's turn, it goes back.
                if !std::mem::replace(&mut state.keeps, true) || state.session.is_brief(number) {
                    self.wake.notify_one();
                }
                return None;
            }
        }
        let (told, hears) = oneshot::channel();
        state.releasing.insert(number, told);
        state.session.release(number);
        self.say(state, ToMember::Release { number });
        Some(hears)
    }

    /// In how long something that is kept is to be looked after again, if anything is; what is over by now is given back.
    pub fn look_after_kept(&self) -> Option<Duration> {
        let mut state = self.lock();
        if !state.keeps {
            return None;
        }
        let now = now_ns();
        self.stop_keeping(&mut state, now);
        let until = state.session.keeps_until_ns();
        state.keeps = until.is_some();
        until.map(|until| Duration::from_nanos(until.saturating_sub(now)))
    }

    /// Keeps nothing any more whose time is over; nothing at all at [`u64::MAX`].
    fn stop_keeping(&self, state: &mut State, now: u64) {
        for said in state.session.stop_keeping(now) {
            self.say(state, said);
        }
    }

    /// Asks the daemon something; gives the question back if the link is over.
    pub fn question(&self, asked: Asked) -> Option<Asked> {
        let mut state = self.lock();
        if state.over {
            return Some(asked);
        }
        // Whoever looks sees what is used, and nothing that is only kept.
        self.stop_keeping(&mut state, u64::MAX);
        state.next_question += 1;
        let number = state.next_question;
        if state.welcome.is_some() {
            lockkeeper_wire::encode(&ToDaemon::Ask(number, asked.ask.clone()), &mut state.unsent);
            self.wake.notify_one();
        }
        state.asked.insert(number, asked);
        None
    }

    /// To the member, if there is a connection; otherwise it is said when there is one.
    fn say(&self, state: &mut State, said: ToMember) {
        if state.welcome.is_some() {
            lockkeeper_wire::encode(&ToDaemon::Say(state.session.id(), said), &mut state.unsent);
            self.wake.notify_one();
        }
    }

    /// A connection stands: everything that is not answered is said again.
    pub fn connected(&self, welcome: Welcome) {
        let mut state = self.lock();
        let state = &mut *state;
        state.welcome = Some(welcome);
        state.unsent.clear();
        let id = state.session.id();
        for said in state.session.say(now_ns()) {
            lockkeeper_wire::encode(&ToDaemon::Say(id, said), &mut state.unsent);
        }
        for (number, asked) in &state.asked {
            lockkeeper_wire::encode(&ToDaemon::Ask(*number, asked.ask.clone()), &mut state.unsent);
        }
    }

    pub fn disconnected(&self) {
        let mut state = self.lock();
        state.welcome = None;
        state.unsent = Vec::new();
    }

    pub fn welcome(&self) -> Option<Welcome> {
        self.lock().welcome.clone()
    }

    /// What is to be sent now, in exchange for an empty buffer.
    pub fn take_unsent(&self, empty: &mut Vec<u8>) {
        empty.clear();
        std::mem::swap(&mut self.lock().unsent, empty);
    }

    /// Keeps the session alive. `false` if it is over.
    pub fn keep_alive(&self) -> bool {
        let mut state = self.lock();
        if state.session.is_lost(now_ns()) {
            return false;
        }
        let said = state.session.keep_alive(now_ns());
        self.say(&mut state, said);
        true
    }

    /// Whether somebody holds something through this link.
    pub fn is_used(&self) -> bool {
        let state = self.lock();
        !state.held.is_empty() || !state.releasing.is_empty()
    }

    /// The daemon says something. `Err` if the link is of no more use for new wishes, and why.
    pub fn hear(&self, said: FromDaemon) -> Result<(), NoMore> {
        let mut state = self.lock();
        match said {
            FromDaemon::Hear(session, said) if session == state.session.id() => {
                self.hear_member(&mut state, said)
            }
            FromDaemon::Hear(..) => Ok(()),
            FromDaemon::Refuse { session, number, why } if session == state.session.id() => {
                let _ = state.session.hear(now_ns(), ToClient::Ended { number, how: Ended::Refused });
                if number == 0 {
                    return Err(NoMore::Refused(why));
                }
                if let Some(wishing) = state.wishing.remove(&number) {
                    let _ = wishing.told.send(Outcome::Refused(why));
                }
                Ok(())
            }
            FromDaemon::Refuse { .. } | FromDaemon::Changed => Ok(()),
            FromDaemon::Answer(number, answer) => {
                if let Some(asked) = state.asked.remove(&number) {
                    let _ = asked.told.send(answer);
                }
                Ok(())
            }
        }
    }

    fn hear_member(&self, state: &mut State, said: ToClient) -> Result<(), NoMore> {
        let now = now_ns();
        let answered = match &said {
            ToClient::Granted { number, .. }
            | ToClient::Wanted { number }
            | ToClient::Ended { number, .. } => Some(*number),
            ToClient::Alive { .. } | ToClient::NoSession => None,
        };
        let leaving = matches!(said, ToClient::Ended { how: Ended::Leaving, .. });
        if let Some(answer) = state.session.hear(now, said) {
            self.say(state, answer);
        }
        if state.session.is_lost(now) {
            return Err(NoMore::Lost(String::from("the daemon does not know the session any more")));
        }
        match answered {
            Some(_) if leaving => return Err(NoMore::Leaving),
            Some(number) => settle(state, now, number),
            None => {
                let waiting: Vec<u64> = state.wishing.keys().copied().collect();
                for number in waiting {
                    settle(state, now, number);
                }
                let left = Duration::from_nanos(state.session.lease_until_ns().saturating_sub(now));
                let sent = lease::now();
                state.held.retain(|&number, held| match state.session.may_use(now, number) {
                    true => held.lease.renewed(sent, left),
                    false => {
                        held.lease.lose(TAKEN_BACK);
                        false
                    }
                });
            }
        }
        Ok(())
    }

    /// From now on it takes no more wishes. Gives those who wait, to be asked for elsewhere, in order. The daemon hears that nobody
    /// wants them here any more, now or when it is reached again: otherwise it would grant them one day, to nobody.
    pub fn retire(&self) -> Vec<Wishing> {
        let mut state = self.lock();
        state.retired = true;
        self.stop_keeping(&mut state, u64::MAX);
        let wishing = std::mem::take(&mut state.wishing);
        for &number in wishing.keys() {
            state.session.release(number);
            self.say(&mut state, ToMember::Release { number });
        }
        wishing.into_values().collect()
    }

    /// Whether it takes no more wishes.
    pub fn is_retired(&self) -> bool {
        let state = self.lock();
        state.retired || state.over
    }

    /// Takes the questions that are not answered.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().asked).into_values().collect()
    }

    /// It is over: whatever was held is lost, whoever releases need not wait.
    pub fn end(&self, why: &str) {
        let mut state = self.lock();
        state.over = true;
        for (_, held) in std::mem::take(&mut state.held) {
            held.lease.lose(why);
        }
        state.releasing.clear();
        self.wake.notify_one();
    }

    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// The client leaves in order: the last words to the daemon.
    pub fn close(&self) {
        let mut state = self.lock();
        self.say(&mut state, ToMember::Close);
        state.over = true;
        self.wake.notify_one();
    }
}

/// Why a link is of no more use for new wishes.
pub(super) enum NoMore {
    /// Its session is over, and what it held is lost.
    Lost(String),
    /// Its daemon does not serve it.
    Refused(Refusal),
    /// Its daemon is leaving: what is held may be kept, for a while.
    Leaving,
}

const TAKEN_BACK: &str = "it was taken back by force, or held for too long";

/// Tells whoever waits for this acquisition, if it is decided: a grant counts once the lease runs, and for a while.
fn settle(state: &mut State, now: u64, number: u64) {
    let left = Duration::from_nanos(state.session.lease_until_ns().saturating_sub(now));
    let outcome = match state.session.progress(number) {
        Some(Progress::Held(fence)) if state.session.may_use(now, number) => {
            let lease = Lease::expiring(lease::now(), left);
            let Some(wishing) = state.wishing.get(&number).filter(|_| lease.is_valid()) else { return };
            let lock = wishing.wish.lock.clone();
            state.held.insert(number, Held { lease: lease.clone(), lock });
            Outcome::Granted(*fence, lease)
        }
        Some(Progress::Leaving) => {
            if let Some(held) = state.held.remove(&number) {
                held.lease.lose(TAKEN_BACK);
            }
            return;
        }
        Some(Progress::Over(how)) => {
            let how = *how;
            if let Some(confirm) = state.releasing.remove(&number)
                && how == Ended::Released
            {
                let _ = confirm.send(());
            }
            if let Some(held) = state.held.remove(&number) {
                held.lease.lose(TAKEN_BACK);
            }
            Outcome::Ended(how)
        }
        _ => return,
    };
    if let Some(wishing) = state.wishing.remove(&number)
        && let Err(Outcome::Granted(..)) = wishing.told.send(outcome)
    {
        // Nobody waits any more: whoever gave up gives it back.
        state.held.remove(&number);
    }
}
