//! Replies for operators and observers, assembled from the replies of all members.

use crate::access::Principal;
use crate::snapshots::{Snapshot, Snapshots};
use lockkeeper_cluster::{
    LockMode, LockName, LockStatus, Member, MemberId, Node, Participant, Query, Reply, Result, SessionId,
    WaitExplanation,
};
use lockkeeper_session::protocol::{ClusterLine, LockLine, MemberLine, ParticipantLine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of waiters of one lock for which an explanation is given.
const MOST_EXPLAINED: usize = 16;

/// A holder of a lock, or a waiter, at some member.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub node: Node,
    /// The time at which the member's reply arrived.
    received_at: Instant,
    pub who: Participant,
}

impl Party {
    /// The time for which it has held or waited by now. The replies of different members arrive at different times.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(self.who.for_ns) + self.received_at.elapsed()
    }

    /// Whether both show the same, apart from the time that has passed.
    fn is_same(&self, other: &Self) -> bool {
        let shown = |party: &Self| (party.node, party.who.acquisition, party.who.mode, party.who.fence);
        let state = |party: &Self| (party.who.detached_until_ms, party.who.in_jeopardy);
        shown(self) == shown(other) && state(self) == state(other) && self.who.tag == other.who.tag
    }
}

/// One lock, as the whole cluster sees it.
#[derive(Clone, Debug)]
pub(crate) struct LockView {
    pub name: Arc<str>,
    pub holders: Vec<Party>,
    /// The client that has waited longest comes first.
    pub waiters: Vec<Party>,
    /// Number of further holders and waiters that did not fit into a reply.
    pub left_out: u64,
}

impl LockView {
    pub fn new(name: Arc<str>) -> Self {
        Self { name, holders: Vec::new(), waiters: Vec::new(), left_out: 0 }
    }

    /// Merges the rows of several members.
    pub fn of(name: Arc<str>, rows: impl IntoIterator<Item = (Node, Instant, LockStatus)>) -> Self {
        let mut view = Self::new(name);
        rows.into_iter().for_each(|(node, received_at, row)| view.add(node, received_at, row));
        view.sort();
        view
    }

    /// Adds the row of one member. The caller must call [`settle`](Self::settle) after the last row.
    pub fn add(&mut self, node: Node, received_at: Instant, row: LockStatus) {
        let party = |who| Party { node, received_at, who };
        self.holders.extend(row.holders.into_iter().map(party));
        self.waiters.extend(row.waiters.into_iter().map(party));
        self.left_out += u64::from(row.left_out);
    }

    /// Removes stale holders and sorts the waiters. Members reply at different times, so one may still report a hold
    /// that has passed to a client of another member. An exclusive hold with fence F excludes every hold with a lower
    /// fence.
    pub fn sort(&mut self) {
        // Example: member 1 replied "held with fence 7"; the lock then passed to a client of member 2, which replied
        // "held with fence 8". Fence 8 is exclusive, so the hold with fence 7 is over.
        let alone = self.holders.iter().filter(|party| party.who.mode == LockMode::Exclusive);
        if let Some(newest) = alone.filter_map(|party| party.who.fence).max() {
            self.holders.retain(|party| party.who.fence.is_none_or(|fence| fence >= newest));
        }
        self.waiters.sort_by_key(|party| std::cmp::Reverse(party.age()));
    }

    /// Whether both show the same, apart from the time that has passed.
    pub fn is_same(&self, other: &Self) -> bool {
        let same = |one: &[Party], other: &[Party]| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same(other))
        };
        self.left_out == other.left_out
            && same(&self.holders, &other.holders)
            && same(&self.waiters, &other.waiters)
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// The approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let party =
            |party: &Party| size_of::<Party>() + party.who.tag.owner.len() + party.who.tag.purpose.len();
        let parties = self.holders.iter().chain(&self.waiters).map(party);
        size_of::<Self>() + self.name.len() + parties.sum::<usize>()
    }

    /// The lock as a line of the native protocol.
    pub fn line(&self) -> LockLine {
        let lines = |all: &[Party]| all.iter().map(line).collect();
        LockLine { name: self.name.to_string(), holders: lines(&self.holders), waiters: lines(&self.waiters) }
    }
}

/// The holders and waiters of one lock, over all members that reply. Members look up only this lock.
pub(crate) async fn read_lock(member: &Member, name: &str) -> Result<LockView> {
    Ok(read_lock_with_missing(member, name).await?.0)
}

/// The same, with the members that did not reply.
pub(crate) async fn read_lock_with_missing(member: &Member, name: &str) -> Result<(LockView, Vec<MemberId>)> {
    let name: Arc<str> = Arc::from(name);
    let replies = member.query(Query::One(LockName::new(name.clone()))).await?;
    let (received_at, silent) = (Instant::now(), missing_members(member, &replies));
    let rows = |reply: Reply| reply.locks.into_iter().map(move |row| (reply.node, received_at, row));
    Ok((LockView::of(name, replies.into_iter().flat_map(rows)), silent))
}

/// The members of the view that did not reply to a query in time.
pub(crate) fn missing_members(member: &Member, replies: &[Reply]) -> Vec<MemberId> {
    let view = member.status().view.map(|view| view.members).unwrap_or_default();
    let is_silent = |node: &Node| replies.iter().all(|reply| reply.node.id != node.id);
    view.into_iter().filter(is_silent).map(|node| node.id).collect()
}

fn line(party: &Party) -> ParticipantLine {
    let who = &party.who;
    ParticipantLine {
        acquisition: who.acquisition.to_string(),
        member: party.node.id.0,
        mode: who.mode,
        owner: who.tag.owner.clone(),
        purpose: who.tag.purpose.clone(),
        fence: who.fence.map(|fence| fence.number()),
        since_ms: who.since_ms,
        detached_until_ms: who.detached_until_ms,
        in_jeopardy: who.in_jeopardy,
    }
}

/// The address of a member that does not listen for other members.
const NO_ADDRESS: &str = "none";

/// All known members with the addresses at which other members reach them, or [`NO_ADDRESS`].
pub(crate) fn addresses(member: &Member) -> BTreeMap<MemberId, String> {
    let mut addresses = member.addresses();
    if member.address().is_none()
        && let Some(own) = addresses.get_mut(&member.id())
    {
        *own = String::from(NO_ADDRESS);
    }
    addresses
}

/// The state of the cluster, as this member sees it.
pub fn cluster(member: &Member) -> ClusterLine {
    let (standing, voters) = (member.status(), member.voters());
    let in_view: BTreeSet<u32> =
        standing.view.iter().flat_map(|view| view.members.iter().map(|node| node.id.0)).collect();
    let line = |(id, address): (MemberId, String)| MemberLine {
        id: id.0,
        address,
        votes: voters.voters.contains(&id),
        in_view: in_view.contains(&id.0),
        connected: id == member.id() || member.is_connected(id),
    };
    let config = member.config();
    ClusterLine {
        cluster: config.cluster.clone(),
        algorithm: member.settings().algorithm_text(),
        member: member.id().0,
        serves: standing.serves(),
        trouble: member.not_serving().map(|trouble| trouble.to_string()).or(voters.obstacle.clone()),
        epoch: standing.view.as_ref().map_or(0, |view| view.epoch),
        lease_ms: u64::try_from(standing.lease.as_millis()).unwrap_or(u64::MAX),
        leader: voters.leader.map(|id| id.0),
        members: addresses(member).into_iter().map(line).collect(),
        settings: lockkeeper_cluster::settings::describe(&member.settings()),
    }
}

/// Explains why the waiters of a lock wait: one sentence for each step of the chain from a waiter to its holder.
/// Names, holders and waiters of locks that the principal may not see are omitted.
pub(crate) async fn why(
    snapshots: &Snapshots,
    name: &str,
    who: &Principal,
) -> std::result::Result<Vec<String>, crate::leases::LeaseError> {
    let (name, who) = (String::from(name), who.clone());
    snapshots.read(move |snapshot| explain(snapshot, &name, |lock| who.sees(lock))).await
}

fn explain(snapshot: &Snapshot, name: &str, sees: impl Fn(&str) -> bool) -> Vec<String> {
    let Some(lock) = snapshot.find(name) else { return Vec::new() };
    let waiting: BTreeSet<SessionId> =
        lock.waiters.iter().map(|party| party.who.acquisition.session).collect();
    let chains: Vec<WaitExplanation> =
        waiting.into_iter().take(MOST_EXPLAINED).map(|session| snapshot.why(session)).collect();
    let steps = chains.iter().flat_map(|why| &why.chain);
    let mut owners: BTreeMap<_, String> =
        steps.flat_map(|step| [step.waiter, step.holder]).map(|who| (who, who.to_string())).collect();
    for party in snapshot.locks.iter().flat_map(|lock| lock.holders.iter().chain(&lock.waiters)) {
        let owner = &party.who.tag.owner;
        if let Some(text) = owners.get_mut(&party.who.acquisition).filter(|_| !owner.is_empty()) {
            *text = format!("{} ({owner})", party.who.acquisition);
        }
    }
    let mut described = BTreeSet::new();
    let sentences = chains.iter().flat_map(|why| describe_chain(why, &owners, &sees));
    sentences.filter(|sentence| described.insert(sentence.clone())).collect()
}

fn describe_chain(
    why: &WaitExplanation,
    owners: &BTreeMap<lockkeeper_cluster::Acquisition, String>,
    sees: &impl Fn(&str) -> bool,
) -> Vec<String> {
    let step = |because: &lockkeeper_cluster::WaitCause| {
        if !sees(&because.lock.name) {
            return String::from("the chain continues with locks that this token may not see");
        }
        let (waiter, holder) = (&owners[&because.waiter], &owners[&because.holder]);
        format!("{waiter} waits for `{}`, which {holder} holds", because.lock.name)
    };
    let mut sentences: Vec<String> = why.chain.iter().map(step).collect();
    if let Some(from) = why.cycle {
        let named = |because: &lockkeeper_cluster::WaitCause| format!("`{}`", because.lock.name);
        let cycle: Vec<String> =
            why.chain[from..].iter().filter(|because| sees(&because.lock.name)).map(named).collect();
        sentences.push(format!(
            "deadlock: the waiters for {} wait in a cycle; release one of these locks by force",
            cycle.join(", ")
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_cluster::Acquisition;
    use lockkeeper_member::Tag;

    #[test]
    fn waiters_are_sorted_by_wait_time_across_replies_of_different_ages() {
        let received_at = |member: u32, ago_s: u64, waits_s: u64| {
            let session = SessionId { client: member.into(), number: 1 };
            let waiter = Participant {
                acquisition: Acquisition { session, number: 1 },
                mode: LockMode::Exclusive,
                tag: Tag::default(),
                fence: None,
                for_ns: waits_s * 1_000_000_000,
                since_ms: 0,
                detached_until_ms: None,
                in_jeopardy: false,
            };
            let node = Node { id: MemberId(member), incarnation: 1 };
            let row =
                LockStatus { lock: LockName::new("a"), holders: vec![], waiters: vec![waiter], left_out: 0 };
            (node, Instant::now() - Duration::from_secs(ago_s), row)
        };
        // The second row is 100 s old, so its waiter has waited for longer by now.
        let view = LockView::of(Arc::from("a"), [received_at(1, 0, 50), received_at(2, 100, 1)]);
        let members: Vec<u32> = view.waiters.iter().map(|party| party.node.id.0).collect();
        assert_eq!(members, [2, 1]);
        assert!(view.waiters[0].age() >= Duration::from_secs(101));
    }
}
