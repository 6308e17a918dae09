//! Prediction of repeated requests: the locks for which this client asks for a delegation.
//!
//! A lock that is requested once goes back to the daemon on release. A lock that is requested again shortly after its
//! release is worth a delegation: then only one in `more` + 1 entries costs a message.

use lockkeeper_session::{LockName, MAX_DELEGATION_NS};
use std::collections::BTreeMap;

/// The number of further entries to request: the first time, and at most.
const FIRST: u32 = 16;
const MOST: u32 = 1024;
/// The number of locks that are remembered.
const REMEMBERED: usize = 64;

/// The locks that this client released recently.
#[derive(Default)]
pub(super) struct DelegationPredictor(BTreeMap<LockName, RecentRelease>);

struct RecentRelease {
    left_ns: u64,
    more: u32,
}

impl DelegationPredictor {
    /// The number of further entries to request for a lock; 0 if it was not released recently.
    pub fn more(&self, now: u64, lock: &LockName) -> u32 {
        let lately = |recent: &&RecentRelease| now < recent.left_ns.saturating_add(MAX_DELEGATION_NS);
        self.0.get(lock).filter(lately).map_or(0, |recent| recent.more)
    }

    /// Records a release. `allowed` further entries were granted, and `made` of them have been used.
    pub fn left(&mut self, now: u64, lock: &LockName, allowed: u32, made: u32) {
        // Double the allowance while it is used up (16, 32, 64, …); otherwise aim at twice the number of entries
        // made.
        let more = match allowed {
            0 => FIRST,
            _ if made == allowed => allowed.saturating_mul(2).min(MOST),
            _ => (made * 2).clamp(FIRST, MOST),
        };
        if let Some(recent) = self.0.get_mut(lock) {
            *recent = RecentRelease { left_ns: now, more };
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, recent| now < recent.left_ns.saturating_add(MAX_DELEGATION_NS));
        }
        if self.0.len() < REMEMBERED {
            self.0.insert(lock.clone(), RecentRelease { left_ns: now, more });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_requests_ask_for_longer_delegations() {
        let (mut delegations, lock) = (DelegationPredictor::default(), LockName::new("m"));
        assert_eq!(delegations.more(0, &lock), 0);
        delegations.left(0, &lock, 0, 0);
        assert_eq!(delegations.more(MAX_DELEGATION_NS - 1, &lock), FIRST);
        assert_eq!(delegations.more(MAX_DELEGATION_NS, &lock), 0);
        delegations.left(0, &lock, 64, 64);
        assert_eq!(delegations.more(1, &lock), 128);
        delegations.left(0, &lock, MOST, MOST);
        assert_eq!(delegations.more(1, &lock), MOST);
        delegations.left(0, &lock, MOST, 3);
        assert_eq!(delegations.more(1, &lock), FIRST);
    }

    #[test]
    fn the_number_of_remembered_locks_is_limited() {
        let mut delegations = DelegationPredictor::default();
        for n in 0..1000 {
            delegations.left(n, &LockName::new(format!("{n}")), 0, 0);
        }
        assert!(delegations.0.len() <= REMEMBERED);
        delegations.left(1 << 40, &LockName::new("late"), 0, 0);
        assert_eq!(delegations.0.len(), 1);
    }
}
