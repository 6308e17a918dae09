//! What people want to see of a cluster, put together from what its members tell.

use crate::leases::{At, Picture};
use lockkeeper_cluster::{Member, Node, Result, Table, Why};
use lockkeeper_wire::{ClusterLine, Line, LockLine, MemberLine};
use std::collections::BTreeSet;

/// Who holds and waits, over all members that answer: one lock, or all, by name.
pub async fn locks(member: &Member, only: Option<&str>) -> Result<Vec<LockLine>> {
    let picture = Picture::of(member.survey().await?);
    let locks = picture.locks().into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    let lines = |all: Vec<At<'_>>| all.into_iter().map(line).collect();
    let lock = |(name, (holders, waiters)): (&str, _)| LockLine {
        name: name.into(),
        holders: lines(holders),
        waiters: lines(waiters),
    };
    Ok(locks.map(lock).collect())
}

fn line(At { node, who, .. }: At<'_>) -> Line {
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
        algorithm: member.settings().algorithm_text(),
        member: member.id().0,
        serves: standing.serves(),
        trouble: member.trouble().map(|trouble| trouble.to_string()).or(voters.trouble.clone()),
        epoch: standing.view.as_ref().map_or(0, |view| view.epoch),
        lease_ms: u64::try_from(standing.lease.as_millis()).unwrap_or(u64::MAX),
        leader: voters.leader.map(|id| id.0),
        members: member.addresses().into_iter().map(line).collect(),
        settings: lockkeeper_cluster::settings::describe(&member.settings()),
    }
}

/// Why those wait who wait for a lock: a sentence for each step from one to the next. Of locks that must not be seen, neither the names
/// are told nor their holders and waiters.
pub async fn why(member: &Member, name: &str, sees: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let told = member.survey().await?;
    let rows = told.iter().flat_map(|(_, table)| table).filter(|row| *row.lock.name == *name);
    let sessions: BTreeSet<_> =
        rows.flat_map(|row| &row.waiters).map(|waiter| waiter.acquisition.session).collect();
    let mut sentences = Vec::new();
    for session in sessions {
        for sentence in sentences_of(&lockkeeper_member::why(&told, session), &told, &sees) {
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
    }
    Ok(sentences)
}

fn sentences_of(why: &Why, told: &[(Node, Table)], sees: &impl Fn(&str) -> bool) -> Vec<String> {
    let owner = |acquisition| {
        let rows = told.iter().flat_map(|(_, table)| table);
        let mut all = rows.flat_map(|row| row.holders.iter().chain(&row.waiters));
        match all.find(|who| who.acquisition == acquisition) {
            Some(who) if !who.tag.owner.is_empty() => format!("{acquisition} ({})", who.tag.owner),
            _ => acquisition.to_string(),
        }
    };
    let step = |because: &lockkeeper_cluster::Because| {
        if !sees(&because.lock.name) {
            return String::from("the chain goes on with locks that this token may not see");
        }
        let (waiter, holder) = (owner(because.waiter), owner(because.holder));
        format!("{waiter} waits for `{}`, which {holder} holds", because.lock.name)
    };
    let mut sentences: Vec<String> = why.chain.iter().map(step).collect();
    if let Some(from) = why.cycle {
        let named = |because: &lockkeeper_cluster::Because| format!("`{}`", because.lock.name);
        let circle: Vec<String> =
            why.chain[from..].iter().filter(|because| sees(&because.lock.name)).map(named).collect();
        sentences.push(format!(
            "a circle: none of those who wait for {} can go on; release one by force",
            circle.join(", ")
        ));
    }
    sentences
}
