//! Room in the table of locks. A member drops no lock by itself, because another member may still depend on the
//! lock's state; idle locks are dropped when a view starts. So a member whose table fills with idle locks requests a
//! view with the same members.
//!
//! # Why this cannot repeat without progress
//! A view starts with the locks that clients use at that moment, and the member counts these and every further name
//! that its clients request. It requests the next view when a part of the counted locks is idle. Clients have then
//! released at least that many locks since the view started. A table full of locks in use causes no view change: new
//! names are refused until some locks are released.

use crate::member::Member;
use crate::{BugSwitch, Bugs, Ended, LockName};
use lockkeeper_core::MutualExclusion;

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Number of different locks that the clients of this member may use at a time.
    pub(crate) fn most_own_locks(&self) -> usize {
        let members =
            if self.applied.epoch > 0 { self.applied.members.len() } else { self.config.peers.len() };
        self.config.most_own_locks(members)
    }

    /// Rejects a client's request if the lock is new and the table has no room for it.
    pub(crate) fn admit(&self, lock: &LockName) -> Result<(), Ended> {
        if !lock.is_served() {
            return Err(Ended::Refused);
        }
        let most = self.most_own_locks();
        let known = self.locks.find(lock);
        if known.is_some_and(|id| self.locks.get(id).active.is_some()) {
            return Ok(());
        }
        let room = self.locks.active_count() < most && (known.is_some() || self.locks.own_count() < most);
        if room { Ok(()) } else { Err(Ended::Full { limit: u32::try_from(most).unwrap_or(u32::MAX) }) }
    }

    /// Whether a view change with the same members is worth its cost, because it drops many idle locks.
    pub(crate) fn table_is_full(&self, now: u64) -> bool {
        if self.config.has(BugSwitch::TableNeverReclaimed) || self.running().is_none() {
            return false;
        }
        let (most, own) = (self.most_own_locks(), self.locks.own_count());
        let idle = own.saturating_sub(self.locks.active_count());
        if own >= most - most / 4 && idle >= most.div_ceil(4) {
            return true;
        }
        // Most locks are in use. A view change that frees only a few is acceptable once per settle time.
        let settled = now >= self.installed_ns.saturating_add(self.config.cluster.settle_ns);
        settled && (self.message_waits || own >= most && idle >= most.div_ceil(16))
    }

    /// Notifies the leader at once if a view change is worth its cost, instead of with the next renewal.
    pub(crate) fn check_capacity(&mut self, now: u64) {
        if !self.table_full_sent && self.table_is_full(now) {
            self.table_full_sent = true;
            self.renew_at_once(now);
        }
    }

    /// Records that a message of another member waits at its sender, because the table has no room for its lock.
    pub(crate) fn defer_message(&mut self, now: u64) {
        self.message_waits = true;
        self.check_capacity(now);
    }
}
