//! Who holds and waits in the whole cluster, for those who watch. Other daemons are asked only while somebody does.

use super::book::Book;
use super::peers::Peers;
use super::waits::{POLL, SILENCE};
use super::words::{Answer, Hold, Question, Seen};
use lockkeeper_cluster::{Claim, LockStatus, MemberId, Node, Who};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Changes that come together are told together.
const TOGETHER: Duration = Duration::from_millis(20);
/// How long to wait before asking again, and how often the list of members is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// So many prefixes are asked for one by one; if there are more, everything is.
const MOST_PREFIXES: usize = 64;

/// What all members are known to have said, and when each did.
#[derive(Clone, Default)]
pub(crate) struct Picture(BTreeMap<MemberId, (Instant, Arc<Seen>)>);

/// Somebody at some member.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub node: Node,
    pub who: &'a Who,
    /// For how long it has held or waited by now: members have told of it at different times.
    pub lasts: Duration,
}

impl Picture {
    /// What a survey told.
    pub fn of(survey: Vec<(Node, Vec<LockStatus>)>) -> Self {
        let seen = |(node, table): (Node, Vec<LockStatus>)| {
            (node.id, (Instant::now(), Arc::new(Seen { number: 0, node, table, holds: Vec::new() })))
        };
        Self(survey.into_iter().map(seen).collect())
    }

    /// Every lock that somebody has to do with: who holds it, and who waits for it, whoever has waited longest first.
    pub fn locks(&self) -> BTreeMap<&str, (Vec<At<'_>>, Vec<At<'_>>)> {
        let mut locks: BTreeMap<&str, (Vec<At<'_>>, Vec<At<'_>>)> = BTreeMap::new();
        for (told, seen) in self.0.values() {
            let (node, age) = (seen.node, told.elapsed());
            let lasts = |who: &Who| Duration::from_nanos(who.for_ns) + age;
            for row in &seen.table {
                let (holders, waiters) = locks.entry(&row.lock.name).or_default();
                holders.extend(row.holders.iter().map(|who| At { node, who, lasts: lasts(who) }));
                waiters.extend(row.waiters.iter().map(|who| At { node, who, lasts: lasts(who) }));
            }
        }
        for (holders, waiters) in locks.values_mut() {
            forget_the_past(holders);
            waiters.sort_by_key(|at| std::cmp::Reverse(at.lasts));
        }
        locks
    }

    /// The newest hold on a lock by a lease.
    pub fn leader(&self, lock: &str) -> Option<&Hold> {
        let holds = self.0.values().flat_map(|(_, seen)| &seen.holds);
        holds.filter(|hold| hold.lock == lock).max_by_key(|hold| (hold.fence, hold.version))
    }
}

/// Members are asked one after the other, and one may have told of a hold that another has since: whoever is alone with a fence has nobody below it.
fn forget_the_past(holders: &mut Vec<At<'_>>) {
    let alone = holders.iter().filter(|at| at.who.claim == Claim::Alone).filter_map(|at| at.who.fence);
    if let Some(newest) = alone.max() {
        holders.retain(|at| at.who.fence.is_none_or(|fence| fence >= newest));
    }
}

/// Asks all members while somebody watches.
pub(super) struct Watching {
    book: Arc<Book>,
    peers: Arc<Peers>,
    picture: watch::Sender<Picture>,
    /// How many watch each prefix.
    prefixes: watch::Sender<BTreeMap<String, usize>>,
    running: Mutex<bool>,
    /// Kept, since changes are counted only for those who look.
    tables: OnceLock<watch::Receiver<u64>>,
    /// No two lives begin to count at the same number.
    base: u64,
    me: Weak<Self>,
}

impl Watching {
    pub fn new(book: Arc<Book>, peers: Arc<Peers>) -> Arc<Self> {
        let base = getrandom::u64().unwrap_or_default() | 1;
        Arc::new_cyclic(|me| Self {
            book,
            peers,
            picture: watch::Sender::default(),
            prefixes: watch::Sender::default(),
            running: Mutex::default(),
            tables: OnceLock::new(),
            base,
            me: me.clone(),
        })
    }

    pub fn watch(&self, prefix: &str) -> Watch {
        self.prefixes.send_modify(|prefixes| *prefixes.entry(String::from(prefix)).or_default() += 1);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let (false, Some(me)) = (*running, self.me.upgrade()) {
            *running = true;
            tokio::spawn(me.run());
        }
        let watching = self.me.clone();
        Watch { watching, prefix: String::from(prefix), news: self.picture.subscribe() }
    }

    /// What is asked for: at most so many prefixes.
    fn wanted(&self) -> Vec<String> {
        let prefixes = self.prefixes.borrow();
        if prefixes.len() > MOST_PREFIXES {
            return vec![String::new()];
        }
        prefixes.keys().cloned().collect()
    }

    /// Follows every member, for as long as anybody watches.
    async fn run(self: Arc<Self>) {
        let mut following: HashMap<MemberId, AbortHandle> = HashMap::new();
        loop {
            {
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                if self.prefixes.borrow().is_empty() {
                    *running = false;
                    following.values().for_each(AbortHandle::abort);
                    self.picture.send_replace(Picture::default());
                    return;
                }
            }
            let mut members = self.peers.others();
            members.push(self.peers.me());
            following.retain(|member, task| {
                let stays = members.contains(member);
                if !stays {
                    task.abort();
                    self.forget(*member);
                }
                stays
            });
            for member in members {
                let follow = || tokio::spawn(self.clone().follow(member)).abort_handle();
                following.entry(member).or_insert_with(follow);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Follows one member.
    async fn follow(self: Arc<Self>, member: MemberId) {
        let mut wanted = self.prefixes.subscribe();
        let mut seen = 0;
        let mut heard_at = Instant::now();
        loop {
            wanted.mark_unchanged();
            let look = self.ask(member, seen);
            let looked = tokio::select! {
                looked = look => looked,
                // Somebody watches something else.
                _ = wanted.changed() => {
                    seen = 0;
                    continue;
                }
            };
            match looked {
                Some(news) => {
                    heard_at = Instant::now();
                    if news.number != seen {
                        seen = news.number;
                        let told = (heard_at, Arc::new(news));
                        self.picture.send_modify(|picture| drop(picture.0.insert(member, told)));
                    }
                }
                None => {
                    if heard_at.elapsed() > SILENCE || self.peers.is_gone(member) {
                        seen = 0;
                        self.forget(member);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn ask(&self, member: MemberId, seen: u64) -> Option<Seen> {
        let prefixes = self.wanted();
        if member == self.peers.me() {
            return Some(self.look(seen, &prefixes).await);
        }
        let question = Question::Look { seen, prefixes };
        match self.peers.ask_once(member, &question, POLL * 3).await {
            Ok(Answer::Look(seen)) => Some(seen),
            _ => None,
        }
    }

    fn forget(&self, member: MemberId) {
        self.picture.send_if_modified(|picture| picture.0.remove(&member).is_some());
    }

    /// What is held and waited for here, once it is not as it was seen before, or after a while.
    pub async fn look(&self, seen: u64, prefixes: &[String]) -> Seen {
        let mut tables = self.tables.get_or_init(|| self.peers.member.tables()).clone();
        let mut changes = self.book.changes.subscribe();
        if self.number(&mut tables, &mut changes) == seen {
            let changed = async {
                tokio::select! {
                    _ = tables.changed() => {}
                    _ = changes.changed() => {}
                }
                tokio::time::sleep(TOGETHER).await;
            };
            let _ = tokio::time::timeout(POLL, changed).await;
        }
        let number = self.number(&mut tables, &mut changes);
        let node = self.peers.member.standing().node;
        if number == seen {
            return Seen { number, node, table: Vec::new(), holds: Vec::new() };
        }
        let wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
        let mut table: Vec<LockStatus> = self.peers.member.table();
        table.retain(|row| wanted(&row.lock.name));
        Seen { number, node, table, holds: self.book.holds(wanted) }
    }

    /// Another number after every change.
    fn number(&self, tables: &mut watch::Receiver<u64>, changes: &mut watch::Receiver<u64>) -> u64 {
        self.base.wrapping_add(*tables.borrow_and_update()).wrapping_add(*changes.borrow_and_update())
    }
}

/// Somebody who watches.
pub(crate) struct Watch {
    watching: Weak<Watching>,
    prefix: String,
    news: watch::Receiver<Picture>,
}

impl Watch {
    /// What is known now.
    pub fn picture(&mut self) -> Picture {
        self.news.borrow_and_update().clone()
    }

    /// Resolves when more is known; `false` if nothing will be.
    pub async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(watching) = self.watching.upgrade() else { return };
        watching.prefixes.send_modify(|prefixes| {
            if let Some(count) = prefixes.get_mut(&self.prefix) {
                *count -= 1;
                if *count == 0 {
                    prefixes.remove(&self.prefix);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_cluster::{Acquisition, SessionId};
    use lockkeeper_member::LockName;

    #[test]
    fn whoever_has_waited_longest_comes_first_whenever_its_member_told_of_it() {
        let told = |member: u32, ago_s: u64, waits_s: u64| {
            let session = SessionId { client: member.into(), number: 1 };
            let waiter = Who {
                acquisition: Acquisition { session, number: 1 },
                claim: Claim::Alone,
                tag: lockkeeper_member::Tag::default(),
                fence: None,
                for_ns: waits_s * 1_000_000_000,
                since_ms: 0,
            };
            let node = Node { id: MemberId(member), incarnation: 1 };
            let row = LockStatus { lock: LockName::new("a"), holders: Vec::new(), waiters: vec![waiter] };
            let seen = Seen { number: 1, node, table: vec![row], holds: Vec::new() };
            (node.id, (Instant::now() - Duration::from_secs(ago_s), Arc::new(seen)))
        };
        // The second one was told of long ago, and has waited for longer by now.
        let picture = Picture([told(1, 0, 50), told(2, 100, 1)].into());
        let locks = picture.locks();
        let members: Vec<u32> = locks["a"].1.iter().map(|at| at.node.id.0).collect();
        assert_eq!(members, [2, 1]);
        assert!(locks["a"].1[0].lasts >= Duration::from_secs(101));
    }
}
