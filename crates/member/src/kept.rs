//! What a client may enter again by itself: a right that nobody else wants is left with it for a while.
//!
//! To the member, the client holds the lock all that time, by the same promises as ever: so whoever is inside at the client is as safe as
//! the hold is. What is new are the fences: the member sets aside as many as it allows entries.

use crate::{Fence, Tag, Wish};

/// What may be entered again.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// For what it was granted: others at this client who want the same may use it. The tag is of whoever did last.
    wish: Wish,
    /// How many more entries the grant allowed, and how many of them are left.
    allowed: u32,
    left: u32,
    /// Until then, on the client's clock.
    pub until_ns: u64,
    /// Somebody waits: unused, it is given back at once.
    pub brief: bool,
}

impl Kept {
    pub fn new(wish: Wish, more: u32, brief: bool, until_ns: u64) -> Self {
        Self { wish, allowed: more, left: more, until_ns, brief }
    }

    /// Whether one more entry is allowed at this time.
    pub fn may_go_on(&self, now: u64) -> bool {
        self.left > 0 && now < self.until_ns
    }

    /// Whether a wish is for the same. How long it would wait does not matter: it does not wait.
    pub fn is_for(&self, wish: &Wish) -> bool {
        let same = self.wish.lock == wish.lock && self.wish.claim == wish.claim;
        same && wish.longest_hold_ns.is_none() && !wish.reentrant
    }

    /// One more entry, after the one with that fence, by whoever this is; gives its own.
    pub fn enter(&mut self, now: u64, last: Option<Fence>, tag: &Tag) -> Option<Option<Fence>> {
        if !self.may_go_on(now) {
            return None;
        }
        let fence = match last {
            Some(last) => Some(Fence::new(last.epoch(), last.clock() + 1)?),
            None => None,
        };
        self.left -= 1;
        self.wish.tag.clone_from(tag);
        Some(fence)
    }

    /// Who entered last.
    pub fn into_tag(self) -> Tag {
        self.wish.tag
    }

    /// How many more entries were allowed, and how many of them were made.
    pub fn entries(&self) -> (u32, u32) {
        (self.allowed, self.allowed - self.left)
    }
}
