//! Delegations: a lock that no other client waits for stays with its client for a while, which may enter it again
//! without messages.
//!
//! To the member, the client holds the lock all that time, under the leases of its session, so every entry at the
//! client is as safe as the hold. The entries get consecutive fences, which the member reserves with the grant.

use crate::{Fence, LockRequest, Tag};

/// A delegation, at its client.
#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    /// The request that was granted. Other callers at this client with an equal request may use the delegation. The
    /// tag is that of the last one.
    request: LockRequest,
    /// Number of further entries that the grant allowed, and how many of them are left.
    allowed: u32,
    left: u32,
    /// Expiry, on the client's clock.
    pub until_ns: u64,
    /// Another client waits already: an idle delegation ends at once.
    pub contended: bool,
}

impl Delegation {
    pub fn new(request: LockRequest, entries: u32, contended: bool, until_ns: u64) -> Self {
        Self { request, allowed: entries, left: entries, until_ns, contended }
    }

    /// Whether one more entry is allowed now.
    pub fn allows_entry(&self, now: u64) -> bool {
        self.left > 0 && now < self.until_ns
    }

    /// Whether the delegation serves a request. Its timeout does not matter, because the request does not wait.
    pub fn serves(&self, request: &LockRequest) -> bool {
        let same = self.request.lock == request.lock && self.request.mode == request.mode;
        same && request.longest_hold_ns.is_none() && !request.reentrant
    }

    /// Makes one more entry for the caller with this tag. `last` is the fence of the previous entry. Returns the
    /// fence of the new one.
    pub fn enter(&mut self, now: u64, last: Option<Fence>, tag: &Tag) -> Option<Option<Fence>> {
        if !self.allows_entry(now) {
            return None;
        }
        let fence = match last {
            Some(last) => Some(Fence::new(last.epoch(), last.clock() + 1)?),
            None => None,
        };
        self.left -= 1;
        self.request.tag.clone_from(tag);
        Some(fence)
    }

    /// The tag of the last caller that entered.
    pub fn into_tag(self) -> Tag {
        self.request.tag
    }

    /// Number of further entries that the grant allowed, and how many of them were made.
    pub fn entries(&self) -> (u32, u32) {
        (self.allowed, self.allowed - self.left)
    }
}
