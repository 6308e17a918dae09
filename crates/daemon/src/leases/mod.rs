//! Leases of clients that do not use the native protocol. An HTTP session and an etcd lease are the same thing.
//!
//! A lease lives at one daemon, its home, which holds its locks through a session of its own with the member. The
//! lease ends when its time to live passes without a keep-alive, when it is revoked, and with the daemon. A request
//! that arrives at another daemon is forwarded to the home.
//!
//! | module | contents |
//! |---|---|
//! | `id` | ids of leases |
//! | `words` | operations on leases, their results, and the messages between daemons |
//! | `lease` | one lease |
//! | `book`, `wait` | the leases that live here, and the waits for their locks |
//! | `receipt` | a granted hold whose client has not received the reply yet |
//! | `peers` | requests to other daemons |
//! | `waits` | waits of this daemon's clients for locks by leases that live elsewhere |
//! | `guests` | waits of other daemons' clients for locks by leases that live here |
//! | `watching`, `view` | holders and waiters in the whole cluster, for watch streams |

mod book;
mod guests;
mod id;
mod lease;
mod peers;
mod receipt;
mod view;
mod wait;
mod waits;
mod watching;
mod words;

pub use id::LeaseId;
pub(crate) use receipt::{Granted, Receipt, Undelivered};
pub(crate) use watching::{Shown, Watch};
pub use words::{Asker, Fault, Hold, Life, Listed, Lost, Op, Reply, Slot, Terms, Wanted, Way, Which, key};

use crate::metrics::Metrics;
use crate::quotas::Quotas;
use crate::shared::Shared;
use crate::worker::Worker;
use book::Book;
use guests::Guests;
use lockkeeper_cluster::{MemberId, QueryHandler};
use peers::Peers;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use waits::Waits;
use watching::Watching;
use words::{Answer, Presence, Question};

/// Number of leases with client-chosen ids whose home is remembered.
const MOST_REMEMBERED: usize = 100_000;
/// Number of attempts to reserve an id that another request reserves at the same time.
const TRIES: u32 = 5;

/// All leases of the cluster, as seen from one daemon.
pub struct Leases {
    book: Arc<Book>,
    peers: Arc<Peers>,
    waits: Arc<Waits>,
    guests: Guests,
    watching: Arc<Watching>,
    /// The homes of leases with client-chosen ids.
    elsewhere: Mutex<HashMap<LeaseId, MemberId>>,
    /// Leases created for a single hold, by principal, lock and request.
    alone: Mutex<HashMap<(String, String, Slot), LeaseId>>,
    /// The runtime for requests of other daemons. The member's own threads are reserved for leases and locks.
    runtime: tokio::runtime::Handle,
    me: Weak<Self>,
}

impl Leases {
    /// Creates the lease service and registers it with the member for the requests of other daemons.
    pub(crate) fn new(
        shared: Arc<Shared>,
        metrics: Arc<Metrics>,
        quotas: Arc<Quotas>,
        worker: Arc<Worker>,
    ) -> Arc<Self> {
        let member = shared.member.clone();
        let book = Book::new(shared, metrics, quotas);
        let peers = Arc::new(Peers::new(member.clone()));
        let leases = Arc::new_cyclic(|me: &Weak<Self>| Self {
            waits: Waits::new(peers.clone()),
            guests: Guests::default(),
            watching: Watching::new(book.clone(), peers.clone(), worker),
            book,
            peers,
            elsewhere: Mutex::default(),
            alone: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            me: me.clone(),
        });
        let answers: Weak<dyn QueryHandler> = leases.me.clone();
        member.set_query_handler(answers);
        leases
    }

    /// Number of leases that live here.
    pub fn count(&self) -> usize {
        self.book.count()
    }

    /// Creates a lease here. An id chosen by the client must be free at all daemons that reply.
    pub async fn grant(&self, asker: Asker, id: Option<LeaseId>, terms: Terms) -> Result<LeaseId, Fault> {
        let Some(id) = id else {
            let mut id = LeaseId::at(self.peers.me())?;
            loop {
                match self.book.reserve(id) {
                    Ok(reserved) => return self.book.grant(reserved, asker, terms),
                    Err(_) => id = LeaseId::at(self.peers.me())?,
                }
            }
        };
        for attempt in 0..TRIES {
            match self.book.reserve(id) {
                Ok(reserved) => {
                    // A concurrent request for the same id has also reserved it before asking, so at least one of the
                    // two sees the other.
                    let found = self.peers.everybody(|| Question::Has(id)).await;
                    let presence =
                        |answer| if let Answer::Has(presence) = answer { presence } else { Presence::Absent };
                    let found: Vec<Presence> =
                        found.into_iter().map(|(_, answer)| presence(answer)).collect();
                    if found.contains(&Presence::Present) {
                        return Err(Fault::LeaseExists(id));
                    }
                    if !found.contains(&Presence::Reserved) {
                        return self.book.grant(reserved, asker, terms);
                    }
                }
                Err(Presence::Present) => return Err(Fault::LeaseExists(id)),
                Err(_) => {}
            }
            let pause = getrandom::u32().unwrap_or(attempt) % 50;
            tokio::time::sleep(Duration::from_millis(u64::from(pause))).await;
        }
        Err(Fault::LeaseExists(id))
    }

    /// Performs an operation on a lease, at the daemon where it lives.
    pub async fn perform(&self, asker: &Asker, id: LeaseId, op: Op) -> Result<Reply, Fault> {
        if self.book.find(id).is_some() {
            return self.book.perform(asker, id, op);
        }
        let there = |to: MemberId| {
            let (asker, op) = (asker.clone(), op.clone());
            async move {
                match self.peers.ask(to, &Question::Do(asker, id, op)).await? {
                    Answer::Done(done) => done,
                    _ => Err(peers::makes_no_sense(to)),
                }
            }
        };
        self.wherever(id, there).await
    }

    /// Waits for a lock by a lease, at the daemon where the lease lives. Dropping the future gives up the place in
    /// the queue.
    pub(crate) async fn acquire(&self, asker: &Asker, id: LeaseId, wanted: Wanted) -> Result<Granted, Fault> {
        if self.book.find(id).is_some() {
            return self.book.acquire(asker, id, &wanted)?.granted().await;
        }
        let there = |to: MemberId| self.waits.acquire(to, asker.clone(), id, wanted.clone());
        self.wherever(id, there).await
    }

    /// Waits for a lock by a new lease that lives here and ends with the hold. A repeated request finds the lease of
    /// the first attempt. Dropping the future ends the wait and the lease.
    pub(crate) async fn acquire_alone(
        &self,
        asker: &Asker,
        terms: Terms,
        wanted: Wanted,
    ) -> Result<Granted, Fault> {
        let request = (asker.who.clone(), wanted.lock.clone(), wanted.slot.clone());
        let repeats = wanted.slot != Slot::Only;
        let before = self.alone().get(&request).copied().filter(|_| repeats);
        if let Some(id) = before.filter(|id| self.book.find(*id).is_some()) {
            return self.acquire(asker, id, wanted).await;
        }
        let id = self.grant(asker.clone(), None, Terms { one_hold: true, ..terms }).await?;
        if repeats {
            let mut alone = self.alone();
            if alone.len() > 1024 && alone.len() > 2 * self.book.count() {
                alone.retain(|_, id| self.book.find(*id).is_some());
            }
            alone.insert(request, id);
        }
        let waiting = self.book.acquire(asker, id, &wanted);
        match waiting {
            Ok(waiting) => waiting.granted().await,
            Err(fault) => {
                let _ = self.book.perform(asker, id, Op::Revoke);
                Err(fault)
            }
        }
    }

    fn alone(&self) -> MutexGuard<'_, HashMap<(String, String, Slot), LeaseId>> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `ask` with the daemon where a lease lives.
    async fn wherever<T, F>(&self, id: LeaseId, ask: impl Fn(MemberId) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let likely = self.elsewhere().get(&id).copied().unwrap_or(id.member());
        if self.peers.is_other(likely) {
            match ask(likely).await {
                Err(Fault::NoSuchLease(_)) => {}
                done => return done,
            }
        }
        self.elsewhere().remove(&id);
        let found = self.peers.everybody(|| Question::Has(id)).await;
        let present = found.into_iter().find(|(_, answer)| matches!(answer, Answer::Has(Presence::Present)));
        let Some((at, _)) = present else { return Err(Fault::NoSuchLease(id)) };
        {
            let mut elsewhere = self.elsewhere();
            if elsewhere.len() >= MOST_REMEMBERED {
                elsewhere.clear();
            }
            elsewhere.insert(id, at);
        }
        ask(at).await
    }

    fn elsewhere(&self) -> MutexGuard<'_, HashMap<LeaseId, MemberId>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All leases of all daemons that reply.
    pub async fn list(&self) -> Vec<Listed> {
        let others = self.peers.everybody(|| Question::List).await;
        let mut list = self.book.list();
        for (_, answer) in others {
            if let Answer::List(others) = answer {
                list.extend(others);
            }
        }
        list
    }

    /// The holds of a lock by leases, at all daemons that reply; the newest first.
    pub async fn holders(&self, lock: &str) -> Vec<Hold> {
        let others = self.peers.everybody(|| Question::Holders(String::from(lock))).await;
        let mut holds = self.book.holds_on(lock);
        for (_, answer) in others {
            if let Answer::Holders(others) = answer {
                holds.extend(others);
            }
        }
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.fence));
        holds
    }

    /// Watches the holders and waiters of the locks with these prefixes, in the whole cluster.
    pub(crate) fn watch(&self, prefixes: Vec<String>) -> Watch {
        self.watching.watch(prefixes)
    }

    /// Applies changed tokens: ends leases, holds and waits that their principals may no longer have.
    pub(crate) fn follow_rights(&self) {
        self.book.follow_rights();
    }

    async fn reply(self: Arc<Self>, from: MemberId, question: Question) -> Answer {
        match question {
            Question::Do(asker, id, op) => Answer::Done(self.book.perform(&asker, id, op)),
            Question::Has(id) => Answer::Has(self.book.presence(id)),
            Question::List => Answer::List(self.book.list()),
            Question::Holders(lock) => Answer::Holders(self.book.holds_on(&lock)),
            Question::Acquire { asking, asker, lease, wanted } => {
                let wait = || self.book.acquire(&asker, lease, &wanted);
                Answer::Acquire(self.guests.acquire(&self.book, from, asking, &asker, wait))
            }
            Question::Settle { life, fates } => {
                self.guests.fates(&self.book, life, &fates);
                Answer::Settled
            }
            Question::Outcomes { life, heard } => {
                Answer::Outcomes(self.guests.outcomes(&self.book, life, heard).await)
            }
            Question::Look { from, prefixes } => Answer::Look(self.watching.look(from, prefixes).await),
        }
    }
}

impl QueryHandler for Leases {
    fn handle_query(
        &self,
        from: MemberId,
        question: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>> {
        let me = self.me.upgrade();
        let runtime = self.runtime.clone();
        Box::pin(async move {
            // The empty reply reports that this daemon uses another version.
            let (Some(me), Some(question)) = (me, peers::decode(&question)) else { return Vec::new() };
            // Dropping this future aborts the task: the asking daemon no longer waits for the reply.
            let mut answering = JoinSet::new();
            answering.spawn_on(async move { peers::encode(&me.reply(from, question).await) }, &runtime);
            answering.join_next().await.and_then(Result::ok).unwrap_or_default()
        })
    }
}
