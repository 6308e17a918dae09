//! How locks, and those who want them, are shown.

use super::sessions::milliseconds;
use crate::listing::{self, LockView};
use lockkeeper_cluster::Claim;
use serde::Serialize;
use utoipa::ToSchema;

/// A lock, and who has to do with it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LockState {
    /// The lock.
    pub name: String,
    /// Who holds it.
    pub holders: Vec<Party>,
    /// Who waits for it, whoever has waited longest first.
    pub waiters: Vec<Party>,
    /// How many more hold it or wait for it, where there are too many to be shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Somebody who holds a lock or waits for one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Party {
    /// Names it, to take it away or to ask why it waits.
    acquisition: String,
    /// By way of which member.
    member: u32,
    /// `exclusive`, `shared` or `permit`.
    #[schema(value_type = String, example = "exclusive")]
    mode: &'static str,
    /// Of how many permits, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    /// What it said of itself.
    owner: String,
    /// What it said that it is for.
    purpose: String,
    /// With which fence, if it holds and has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// For how long it has held or waited.
    for_ms: u64,
}

impl Party {
    fn new(party: &listing::Party) -> Self {
        let who = &party.who;
        Self {
            acquisition: who.acquisition.to_string(),
            member: party.node.id.0,
            mode: match who.claim {
                Claim::Alone => "exclusive",
                Claim::Shared => "shared",
                Claim::Permit(_) => "permit",
            },
            permits: if let Claim::Permit(permits) = who.claim { Some(permits) } else { None },
            owner: who.tag.owner.clone(),
            purpose: who.tag.purpose.clone(),
            fence: who.fence.map(|fence| fence.number()),
            for_ms: milliseconds(party.lasts()),
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

/// Stands for what a token may not see.
const HIDDEN: &str = "?";

/// Why somebody waits.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Why {
    /// Each waits for the lock that the next one holds.
    chain: Vec<Because>,
    /// Whether they wait for each other in a circle: nobody in it will ever get in.
    deadlock: bool,
}

/// One step of an explanation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Because {
    /// The acquisition that waits; `?` if the token may not see the lock.
    waiter: String,
    /// The lock; `?` if the token may not see it.
    lock: String,
    /// The acquisition that holds it; `?` if the token may not see the lock.
    holder: String,
}

impl Why {
    /// Of locks that must not be seen, neither the names are shown nor their holders and waiters, nor how many there are.
    pub fn new(why: Option<lockkeeper_member::Why>, sees: impl Fn(&str) -> bool) -> Self {
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
