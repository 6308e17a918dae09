//! Clients in the member's own process.
//!
//! They are [resident](lockkeeper_member::Member::open_resident) clients: what they hold may be used while the member's own lease runs. Nothing
//! is sent and nothing is renewed for a single session, so time passes at no cost however many sessions there are.

use lockkeeper_member::{ClientSession, Ended, Fence, LockName, Progress, SessionId, ToClient};
use std::collections::BTreeMap;
use tokio::sync::{oneshot, watch};
use tracing::Span;

/// So many ended acquisitions are kept at most beside those that are not over.
const MOST_ENDED: usize = 64;

/// How a wish came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Held, with this fence.
    Granted(Option<Fence>),
    /// Not held, and not going to be.
    Ended(Ended),
    /// It was granted in a session that is over, before the waiter was told: it must be asked for again.
    AskAgain,
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

/// A hold that its holder knows of.
struct Hold {
    since_ns: u64,
    /// The number of the lease under which it was granted.
    lease: u64,
    /// Why it is lost, once that was found out.
    lost: Option<&'static str>,
}

/// How a hold stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Until then, on the lease clock, nobody else can enter.
    Until(u64),
    /// Lost, and why.
    Lost(&'static str),
}

/// The member's lease, as its clients in this process see it. One comparison with it decides about every hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub now_ns: u64,
    /// The end of the lease; 0 if there is none.
    pub until_ns: u64,
    /// Counts the leases of this process. A lease that was renewed in time keeps its number; after a gap there is another one, and what was
    /// held under the one before is lost.
    pub number: u64,
    /// Why the lease before this one was lost.
    pub ended: &'static str,
    /// With less than this left, a hold is as good as lost: its holder would be warned at once.
    pub margin_ns: u64,
}

impl Lease {
    pub fn runs(&self) -> bool {
        self.now_ns < self.until_ns
    }

    /// Whether it runs for long enough to tell a client of a grant.
    pub fn is_worth_telling(&self) -> bool {
        self.until_ns.saturating_sub(self.now_ns) > self.margin_ns
    }
}

/// One client: a session, and those who wait and hold by it.
pub(crate) struct Local {
    pub session: ClientSession,
    /// The member's life in which the session is open there.
    pub open_in: Option<u64>,
    waiting: BTreeMap<u64, Waiting>,
    held: BTreeMap<u64, Hold>,
    /// Tells those who watch their holds that something was lost.
    changes: watch::Sender<()>,
    /// Acquisitions that have ended since the session last forgot such.
    ended: usize,
    lost: Option<&'static str>,
}

/// What an owner wants to count.
#[derive(Default)]
pub(crate) struct Tally {
    pub waited_ns: Vec<u64>,
    pub ended: Vec<Ended>,
}

impl Local {
    pub fn new(id: SessionId) -> Self {
        Self {
            session: ClientSession::new(id),
            open_in: None,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            changes: watch::Sender::new(()),
            ended: 0,
            lost: None,
        }
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The member answers about an acquisition. `true` if it was granted and the lease is too short to tell the waiter now.
    pub fn hear(&mut self, lease: Lease, said: ToClient, tally: &mut Tally) -> bool {
        let (ToClient::Granted { number, .. } | ToClient::Ended { number, .. }) = said else { return false };
        // Resident sessions keep nothing for later entries, so there is nothing to answer.
        let _ = self.session.hear(lease.now_ns, said);
        self.settle(lease, number, tally)
    }

    /// Tells the waiter what became of its acquisition, if that is decided. `true` if it is granted and must wait for a longer lease.
    pub fn settle(&mut self, lease: Lease, number: u64, tally: &mut Tally) -> bool {
        let outcome = match self.session.progress(number) {
            Some(Progress::Held(fence)) => {
                if !lease.is_worth_telling() {
                    return self.waiting.contains_key(&number);
                }
                Outcome::Granted(*fence)
            }
            Some(Progress::Over(how)) => Outcome::Ended(*how),
            _ => {
                if self.held.contains_key(&number) {
                    self.changes.send_replace(());
                }
                return false;
            }
        };
        if let Outcome::Ended(_) = outcome {
            self.forget_ended(lease.now_ns);
        }
        let Some(waiting) = self.waiting.remove(&number) else { return false };
        match &outcome {
            Outcome::Granted(_) => {
                self.hold(lease, number);
                tally.waited_ns.push(lease.now_ns.saturating_sub(waiting.since_ns));
            }
            Outcome::Ended(how) => tally.ended.push(*how),
            Outcome::AskAgain | Outcome::Stopped(_) => {}
        }
        waiting.span.in_scope(|| tracing::debug!(?outcome, "answered"));
        // A waiter that does not listen any more has given up, and releases the acquisition by itself.
        let _ = waiting.told.send(outcome);
        false
    }

    /// Bounds what the session remembers of acquisitions that are over, at a constant cost for each.
    fn forget_ended(&mut self, now: u64) {
        self.ended += 1;
        if self.ended > MOST_ENDED.max(self.waiting.len() + self.held.len()) {
            self.ended = 0;
            // The message is of no use here: making it forgets what is over.
            let _ = self.session.keep_alive(now);
        }
    }

    /// A wish that was not answered at once.
    pub fn wait(&mut self, now: u64, number: u64, lock: LockName, span: Span) -> oneshot::Receiver<Outcome> {
        let (told, hears) = oneshot::channel();
        self.waiting.insert(number, Waiting { told, lock, since_ns: now, span });
        hears
    }

    /// A wish that was granted, and whose holder knows it.
    pub fn hold(&mut self, lease: Lease, number: u64) {
        self.held.insert(number, Hold { since_ns: lease.now_ns, lease: lease.number, lost: None });
    }

    /// Those who wait for a lock.
    pub fn waiting_for(&self, lock: &LockName) -> impl Iterator<Item = &Waiting> {
        self.waiting.values().filter(move |waiting| waiting.lock == *lock)
    }

    /// Somebody gives up or gives back. Says for how long it was held, and whether it still was; `None` if it only waited.
    pub fn leave(&mut self, lease: Lease, number: u64) -> Option<(u64, Look)> {
        self.waiting.remove(&number);
        let look = self.look(lease, number);
        let hold = self.held.remove(&number);
        self.session.release(number);
        hold.map(|hold| (lease.now_ns.saturating_sub(hold.since_ns), look))
    }

    /// How a hold stands at this moment.
    pub fn look(&self, lease: Lease, number: u64) -> Look {
        let hold = self.held.get(&number);
        if let Some(why) = hold.and_then(|hold| hold.lost) {
            return Look::Lost(why);
        }
        match self.session.progress(number) {
            Some(Progress::Held(_)) => match hold {
                Some(hold) if hold.lease == lease.number && lease.runs() => Look::Until(lease.until_ns),
                Some(hold) if hold.lease != lease.number => Look::Lost(lease.ended),
                _ => Look::Lost("the lease ran out"),
            },
            Some(_) => Look::Lost("it was taken back by force, or held for too long"),
            None => Look::Lost(self.lost.unwrap_or("the lease ran out")),
        }
    }

    /// Whether its session is open in an earlier life of the member.
    pub fn is_of_earlier_life(&self, life: u64) -> bool {
        self.open_in.is_some_and(|open_in| open_in != life)
    }

    /// Finds holds of earlier leases, which are lost, and tells their holders: from this number on, at most so many. Gives their numbers, and
    /// where to go on if there may be more.
    pub fn lose_earlier(&mut self, lease: Lease, from: u64, most: usize) -> (Vec<u64>, Option<u64>) {
        let (mut lost, mut next) = (Vec::new(), None);
        for (looked_at, (&number, hold)) in self.held.range_mut(from..).enumerate() {
            if looked_at == most {
                next = Some(number);
                break;
            }
            if hold.lost.is_none() && hold.lease != lease.number {
                hold.lost = Some(lease.ended);
                lost.push(number);
            }
        }
        if !lost.is_empty() {
            self.changes.send_replace(());
        }
        (lost, next)
    }

    /// The session is over. Another one follows, in which what waited is asked for again, in the same order. Says whether anything was lost.
    pub fn begin_again(&mut self, why: &'static str) -> bool {
        let id = self.session.id();
        // The next session knows nothing of a grant that the waiter was not told of.
        let granted =
            |number: &u64, _: &mut Waiting| matches!(self.session.progress(*number), Some(Progress::Held(_)));
        for (_, waiting) in self.waiting.extract_if(.., granted) {
            let _ = waiting.told.send(Outcome::AskAgain);
        }
        self.session = self.session.again(SessionId { number: id.number + 1, ..id });
        self.open_in = None;
        self.lost = Some(why);
        for hold in self.held.values_mut() {
            hold.lost.get_or_insert(why);
        }
        self.changes.send_replace(());
        !self.held.is_empty()
    }

    /// Nobody is served any more.
    pub fn stop(&mut self, why: &str) {
        self.begin_again("the member stopped");
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.told.send(Outcome::Stopped(String::from(why)));
        }
    }
}
