//! The JSON of locks, their holders and their waiters.

use super::sessions::milliseconds;
use crate::listing::{self, LockView};
use lockkeeper_cluster::LockMode;
use serde::Serialize;

/// A lock with its holders and waiters.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct LockState {
    /// The lock's name.
    pub name: String,
    /// The holders.
    pub holders: Vec<Party>,
    /// The waiters; the client that has waited longest comes first.
    pub waiters: Vec<Party>,
    /// Number of further holders and waiters that are omitted.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A holder or waiter of a lock.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Party {
    /// The id of the acquisition, for a forced release or to query why it waits.
    acquisition: String,
    /// The member that serves the client.
    member: u32,
    /// `exclusive`, `shared` or `permit`.
    #[cfg_attr(test, schema(value_type = String, example = "exclusive"))]
    mode: &'static str,
    /// The total number of permits, in the mode `permit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    /// The owner, as given by the client.
    owner: String,
    /// The purpose, as given by the client.
    purpose: String,
    /// The fence of a hold, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// The time for which it has held or waited.
    for_ms: u64,
    /// The deadline of a detached hold, in milliseconds of Unix time: its owner holds the lock until then without a
    /// client.
    #[serde(skip_serializing_if = "Option::is_none")]
    detached_until_ms: Option<u64>,
    /// Whether the client of the hold is disconnected, or has sent nothing since its member crashed or left. If it does
    /// not come back, the hold ends with its time to live.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_jeopardy: bool,
}

impl Party {
    fn new(party: &listing::Party) -> Self {
        let who = &party.who;
        Self {
            acquisition: who.acquisition.to_string(),
            member: party.node.id.0,
            mode: match who.mode {
                LockMode::Exclusive => "exclusive",
                LockMode::Shared => "shared",
                LockMode::Permit { .. } => "permit",
            },
            permits: if let LockMode::Permit { of: permits } = who.mode { Some(permits) } else { None },
            owner: who.tag.owner.clone(),
            purpose: who.tag.purpose.clone(),
            fence: who.fence.map(|fence| fence.number()),
            for_ms: milliseconds(party.age()),
            detached_until_ms: who.detached_until_ms,
            in_jeopardy: who.in_jeopardy,
        }
    }
}

impl LockState {
    pub fn of(lock: &LockView) -> Self {
        let show = |all: &[listing::Party]| all.iter().map(Party::new).collect();
        Self {
            name: lock.name.to_string(),
            holders: show(&lock.holders),
            waiters: show(&lock.waiters),
            left_out: lock.left_out,
        }
    }
}

/// Placeholder for locks that a token may not see.
const HIDDEN: &str = "?";

/// The reason why a client waits.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Why {
    /// The steps: each waiter waits for a lock whose holder is the next waiter.
    chain: Vec<Because>,
    /// Whether the chain contains a cycle, which never resolves by itself.
    deadlock: bool,
}

/// One step of a chain.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Because {
    /// The acquisition that waits; `?` if the token may not see the lock.
    waiter: String,
    /// The lock; `?` if the token may not see it.
    lock: String,
    /// The acquisition that holds it; `?` if the token may not see the lock.
    holder: String,
}

impl Why {
    /// Replaces consecutive locks that the caller may not see by one placeholder, so that neither their names,
    /// holders and waiters nor their number are revealed.
    pub fn new(why: Option<lockkeeper_member::WaitExplanation>, sees: impl Fn(&str) -> bool) -> Self {
        let Some(why) = why else { return Self::default() };
        let mut chain: Vec<Because> = Vec::new();
        for because in why.chain {
            if sees(&because.lock.name) {
                let (waiter, holder) = (because.waiter.to_string(), because.holder.to_string());
                chain.push(Because { waiter, lock: because.lock.name.to_string(), holder });
            } else if chain.last().is_none_or(|last| last.lock != HIDDEN) {
                let hidden = || String::from(HIDDEN);
                chain.push(Because { waiter: hidden(), lock: hidden(), holder: hidden() });
            }
        }
        Self { chain, deadlock: why.cycle.is_some() }
    }
}
