//! What people want to see of a cluster, put together from what its members tell.

use lockkeeper_cluster::{Member, Node, Result, Table, Who, Why};
use lockkeeper_wire::{ClusterLine, Line, LockLine, MemberLine};
use std::collections::{BTreeMap, BTreeSet};

/// Who holds and waits, over all members that answer: one lock, or all, by name.
pub async fn locks(member: &Member, only: Option<&str>) -> Result<Vec<LockLine>> {
    Ok(lines(&member.survey().await?, only))
}

/// One lock, while it is put together; the waiters with how long they have waited.
#[derive(Default)]
struct Lock {
    holders: Vec<Line>,
    waiters: Vec<(u64, Line)>,
}

fn lines(told: &[(Node, Table)], only: Option<&str>) -> Vec<LockLine> {
    let mut locks: BTreeMap<&str, Lock> = BTreeMap::new();
    for (node, table) in told {
        for row in table.iter().filter(|row| only.is_none_or(|name| *row.lock.name == *name)) {
            let line = |who: &Who| line(node, who);
            let lock = locks.entry(&row.lock.name).or_default();
            lock.holders.extend(row.holders.iter().map(line));
            lock.waiters.extend(row.waiters.iter().map(|who| (who.for_ns, line(who))));
        }
    }
    let lock = |(name, mut lock): (&str, Lock)| {
        // Stable: nobody overtakes another one at its own member.
        lock.waiters.sort_by_key(|(for_ns, _)| std::cmp::Reverse(*for_ns));
        let waiters = lock.waiters.into_iter().map(|(_, line)| line).collect();
        LockLine { name: name.into(), holders: lock.holders, waiters }
    };
    locks.into_iter().map(lock).collect()
}

fn line(node: &Node, who: &Who) -> Line {
    Line {
        acquisition: who.acquisition.to_string(),
        member: node.id.0,
        how: who.claim.into(),
        owner: who.tag.owner.clone(),
        purpose: who.tag.purpose.clone(),
        fence: who.fence.map(|fence| fence.number()),
        since_ms: who.since_ms,
    }
}

/// How the cluster stands, as this member sees it.
pub fn cluster(member: &Member) -> ClusterLine {
    let (standing, voters) = (member.standing(), member.voters());
    let in_view: BTreeSet<u32> =
        standing.view.iter().flat_map(|view| view.members.iter().map(|node| node.id.0)).collect();
    let line = |(id, address): (lockkeeper_cluster::MemberId, String)| MemberLine {
        id: id.0,
        address,
        votes: voters.voters.contains(&id),
        in_view: in_view.contains(&id.0),
        connected: id == member.id() || member.is_connected(id),
    };
    let config = member.config();
    ClusterLine {
        cluster: config.cluster.clone(),
        algorithm: config.algorithm.clone(),
        member: member.id().0,
        serves: standing.serves(),
        trouble: standing.stopped.clone().or(voters.trouble.clone()),
        epoch: standing.view.as_ref().map_or(0, |view| view.epoch),
        lease_ms: u64::try_from(standing.lease.as_millis()).unwrap_or(u64::MAX),
        leader: voters.leader.map(|id| id.0),
        members: member.addresses().into_iter().map(line).collect(),
    }
}

/// Why those wait who wait for a lock: a sentence for each step from one to the next.
pub async fn why(member: &Member, name: &str) -> Result<Vec<String>> {
    let told = member.survey().await?;
    let rows = told.iter().flat_map(|(_, table)| table).filter(|row| *row.lock.name == *name);
    let sessions: BTreeSet<_> =
        rows.flat_map(|row| &row.waiters).map(|waiter| waiter.acquisition.session).collect();
    let mut sentences = Vec::new();
    for session in sessions {
        for sentence in sentences_of(&lockkeeper_member::why(&told, session), &told) {
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
    }
    Ok(sentences)
}

fn sentences_of(why: &Why, told: &[(Node, Table)]) -> Vec<String> {
    let owner = |acquisition| {
        let rows = told.iter().flat_map(|(_, table)| table);
        let mut all = rows.flat_map(|row| row.holders.iter().chain(&row.waiters));
        match all.find(|who| who.acquisition == acquisition) {
            Some(who) if !who.tag.owner.is_empty() => format!("{acquisition} ({})", who.tag.owner),
            _ => acquisition.to_string(),
        }
    };
    let step = |because: &lockkeeper_cluster::Because| {
        let (waiter, holder) = (owner(because.waiter), owner(because.holder));
        format!("{waiter} waits for `{}`, which {holder} holds", because.lock.name)
    };
    let mut sentences: Vec<String> = why.chain.iter().map(step).collect();
    if let Some(from) = why.cycle {
        let circle: Vec<String> =
            why.chain[from..].iter().map(|because| format!("`{}`", because.lock.name)).collect();
        sentences.push(format!(
            "a circle: none of those who wait for {} can go on; release one by force",
            circle.join(", ")
        ));
    }
    sentences
}
