//! Clients in the member's own process.
//!
//! They keep the same session as a client far away, by the same rules: what is held may be used while the session's lease
//! runs, and the session lives on by keep-alives. Only nothing can be lost on the way.

use lockkeeper_member::{ClientSession, Ended, Fence, LockName, Progress, SessionId, ToClient};
use std::collections::BTreeMap;
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// How a wish came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Held, with this fence.
    Granted(Option<Fence>),
    /// Not held, and not going to be.
    Ended(Ended),
    /// The member does not serve any more.
    Stopped(String),
}

/// Somebody in this process who waits.
pub(crate) struct Waiting {
    told: oneshot::Sender<Outcome>,
    pub lock: LockName,
    pub since_ns: u64,
    pub span: Span,
}

/// Somebody in this process who holds a lock.
struct Hold {
    since_ns: u64,
}

/// How a hold stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Until then, on the lease clock, nobody else can enter.
    Until(u64),
    /// Lost, and why.
    Lost(&'static str),
}

/// One client: a session, and those who wait and hold by it.
pub(crate) struct Local {
    pub session: ClientSession,
    waiting: BTreeMap<u64, Waiting>,
    held: BTreeMap<u64, Hold>,
    /// Tells those who watch their holds that something was lost.
    changes: watch::Sender<()>,
    lost: Option<&'static str>,
    /// With less of a lease than this left, a hold is as good as lost: its holder would be warned at once.
    margin_ns: u64,
}

/// What an owner wants to count.
#[derive(Default)]
pub(crate) struct Tally {
    pub waited_ns: Vec<u64>,
    pub ended: Vec<Ended>,
}

impl Local {
    pub fn new(id: SessionId, margin_ns: u64) -> Self {
        Self {
            session: ClientSession::new(id),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            changes: watch::Sender::new(()),
            lost: None,
            margin_ns,
        }
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// What the member said. Whoever waited for it is woken, if the lease runs; otherwise at the next keep-alive.
    pub fn hear(&mut self, now: u64, said: ToClient, tally: &mut Tally) {
        let number = match &said {
            ToClient::Granted { number, .. } | ToClient::Ended { number, .. } => Some(*number),
            ToClient::Alive { .. } | ToClient::Wanted { .. } | ToClient::NoSession => None,
        };
        // There may be a million holds, and most promises take none of them away.
        let takes_nothing = matches!(&said, ToClient::Alive { revoked, .. } if revoked.is_empty());
        // Nothing is kept here, so there is nothing to be said to it: whoever is in this process asks without a message.
        let _ = self.session.hear(now, said);
        match number {
            Some(number) => self.settle(now, number, tally),
            None => self.settle_all(now, !takes_nothing, tally),
        }
    }

    fn settle_all(&mut self, now: u64, look_at_held: bool, tally: &mut Tally) {
        let waiting: Vec<u64> = self.waiting.keys().copied().collect();
        for number in waiting {
            self.settle(now, number, tally);
        }
        let gone = |number: &u64| !matches!(self.session.progress(*number), Some(Progress::Held(_)));
        if look_at_held && self.held.keys().any(gone) {
            self.changes.send_replace(());
        }
    }

    fn settle(&mut self, now: u64, number: u64, tally: &mut Tally) {
        let outcome = match self.session.progress(number) {
            Some(Progress::Held(fence)) if self.is_worth_holding(now, number) => Outcome::Granted(*fence),
            Some(Progress::Over(how)) => Outcome::Ended(*how),
            _ => {
                if self.held.contains_key(&number) {
                    self.changes.send_replace(());
                }
                return;
            }
        };
        let Some(waiting) = self.waiting.remove(&number) else { return };
        match &outcome {
            Outcome::Granted(_) => {
                self.held.insert(number, Hold { since_ns: now });
                tally.waited_ns.push(now.saturating_sub(waiting.since_ns));
            }
            Outcome::Ended(how) => tally.ended.push(*how),
            Outcome::Stopped(_) => {}
        }
        waiting.span.in_scope(|| tracing::debug!(?outcome, "answered"));
        // Whoever does not listen any more has given up, and says so by itself.
        let _ = waiting.told.send(outcome);
    }

    /// Whether a hold can be used, and for a while.
    pub fn is_worth_holding(&self, now: u64, number: u64) -> bool {
        let left = self.session.lease_until_ns().saturating_sub(now);
        left > self.margin_ns && self.session.may_use(now, number)
    }

    /// A wish that was not answered at once.
    pub fn wait(&mut self, now: u64, number: u64, lock: LockName, span: Span) -> oneshot::Receiver<Outcome> {
        let (told, hears) = oneshot::channel();
        self.waiting.insert(number, Waiting { told, lock, since_ns: now, span });
        hears
    }

    /// A wish that was granted at once.
    pub fn hold(&mut self, now: u64, number: u64) {
        self.held.insert(number, Hold { since_ns: now });
    }

    /// Those who wait for a lock.
    pub fn waiting_for(&self, lock: &LockName) -> impl Iterator<Item = &Waiting> {
        self.waiting.values().filter(move |waiting| waiting.lock == *lock)
    }

    /// Somebody gives up or gives back. Says for how long it was held, and whether it still was; `None` if it only waited.
    pub fn leave(&mut self, now: u64, number: u64) -> Option<(u64, Look)> {
        self.waiting.remove(&number);
        let look = self.look(now, number);
        let hold = self.held.remove(&number);
        self.session.release(number);
        hold.map(|hold| (now.saturating_sub(hold.since_ns), look))
    }

    /// How a hold stands at this moment.
    pub fn look(&self, now: u64, number: u64) -> Look {
        if self.session.may_use(now, number) {
            return Look::Until(self.session.lease_until_ns());
        }
        match self.session.progress(number) {
            Some(Progress::Held(_)) => Look::Lost("the lease ran out"),
            Some(_) => Look::Lost("it was taken back by force, or held for too long"),
            None => Look::Lost(self.lost.unwrap_or("the lease ran out")),
        }
    }

    /// The session is over. Another one follows, in which what waited is asked for again, in the same order. Says whether anything was lost.
    pub fn begin_again(&mut self, why: &'static str) -> bool {
        let id = self.session.id();
        self.session = self.session.again(SessionId { number: id.number + 1, ..id });
        self.lost = Some(why);
        let lost = !self.held.is_empty();
        self.changes.send_replace(());
        lost
    }

    /// Nobody is served any more.
    pub fn stop(&mut self, why: &str) {
        self.begin_again("the member stopped");
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.told.send(Outcome::Stopped(String::from(why)));
        }
    }
}
