//! One named lock at one member: its instance in the present view, its local queue, its local holds.

use crate::instance::{Instance, Sent, ViewContext};
use crate::{Acquisition, Fence, LockContent, LockName, Tag};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lockkeeper_core::{LockMode, MutualExclusion, SiteId};

/// A request of a client of this member that waits for the lock.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub acquisition: Acquisition,
    pub mode: LockMode,
    pub timeout_at_ns: Option<u64>,
    pub longest_hold_ns: Option<u64>,
    /// Number of further entries that the client requested as a delegation.
    pub delegated_entries: u32,
    /// The time to live of the hold, if it is recorded; 0 if it must not be.
    pub ttl_ns: u64,
    /// Whether the request is a non-blocking one: it waits only for the reply to a recall of an idle delegation.
    pub non_blocking: bool,
    pub tag: Tag,
    /// Position of the request among all requests of the member, over all locks.
    pub order: u64,
    pub since_ns: u64,
}

/// A hold of a client of this member.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// The acquisition that holds the lock. `None` once it has ended while the member was frozen: the report still
    /// lists the hold, so it is removed only after the start.
    pub acquisition: Option<Acquisition>,
    /// Further acquisitions of the same session (reentrant requests).
    pub again: Vec<Acquisition>,
    /// Acquisitions that have ended for the client, and whose records may still be in the table. The lock is not free
    /// before they have ended there, too: a view change would give it back to the client.
    pub ending: Vec<Acquisition>,
    /// The number of the first acquisition.
    pub number: u64,
    /// The time to live, if the hold is recorded; 0 if it must not be.
    pub ttl_ns: u64,
    pub mode: LockMode,
    pub fence: Option<Fence>,
    /// Number of further entries that the client may make under its delegation; 0 once a recall was sent.
    pub delegated_entries: u32,
    /// Whether the hold was granted with a delegation.
    pub was_delegated: bool,
    /// Whether the client uses the hold, as far as the member knows: a delegation may be idle.
    pub in_use: bool,
    pub tag: Tag,
    /// The payload of the record, for the hold of a resident client; empty if it must not be recorded.
    pub payload: Vec<u8>,
    /// The deadline of a detached hold in milliseconds of Unix time, for operators: its driver ends it then.
    pub detached_until_ms: Option<u64>,
    pub since_ns: u64,
    /// Deadline after which the hold is revoked, if the request set one.
    pub longest_until_ns: Option<u64>,
    /// Set once the hold is revoked: the lock is free at this time, or earlier if the client releases it.
    pub revoked_until_ns: Option<u64>,
}

impl Hold {
    /// All acquisitions of this hold.
    pub fn acquisitions(&self) -> impl Iterator<Item = Acquisition> + '_ {
        self.acquisition.iter().chain(&self.again).copied()
    }

    /// Whether this acquisition is one of those of the hold.
    pub fn is_of(&self, acquisition: Acquisition) -> bool {
        self.acquisitions().any(|held| held == acquisition)
    }

    /// Whether the hold has ended for its client and in the table.
    pub fn is_over(&self) -> bool {
        self.acquisition.is_none() && self.ending.is_empty()
    }

    /// Removes one acquisition from the hold.
    pub fn end(&mut self, acquisition: Acquisition) {
        if self.acquisition == Some(acquisition) {
            self.acquisition = self.again.pop();
        } else {
            self.again.retain(|held| *held != acquisition);
        }
    }
}

/// A grant to be sent to a client.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub acquisition: Acquisition,
    pub ttl_ns: u64,
    pub fence: Option<Fence>,
    pub delegated_entries: u32,
    /// Whether another client waits already.
    pub contended: bool,
    pub timeout_at_ns: Option<u64>,
    pub longest_until_ns: Option<u64>,
}

/// The actions of one step of a lock. The member reuses the buffers.
#[derive(Clone, Debug)]
pub(crate) struct Effects<M> {
    /// Grants to clients of this member.
    pub grants: Vec<Grant>,
    /// Holds whose delegations are to be recalled.
    pub recalls: Vec<Acquisition>,
    /// Messages to other sites of the lock.
    pub sends: Vec<Sent<LockContent<M>>>,
    /// The stamp of an entry that the algorithm has just granted to this member.
    pub entered: Option<u64>,
    /// Whether a waiter could be granted the lock if the lease ran.
    pub parked: bool,
    /// Whether the fence clock of this epoch is exhausted: no grant is possible before the next view.
    pub clock_full: bool,
}

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self {
            grants: Vec::new(),
            recalls: Vec::new(),
            sends: Vec::new(),
            entered: None,
            parked: false,
            clock_full: false,
        }
    }
}

/// The conditions of a grant: the time, the epoch, the lease, and limits.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub now: u64,
    pub epoch: u64,
    pub lease_runs: bool,
    /// See [`Config::rounds`](crate::Config::rounds).
    pub rounds: u32,
    pub largest_clock: u64,
    /// See [`Config::max_delegated_entries`](crate::Config::max_delegated_entries).
    pub max_delegated_entries: u32,
    /// See [`Config::max_contended_entries`](crate::Config::max_contended_entries).
    pub max_contended_entries: u32,
    /// Bug switch: reserves no fences for the further entries of a delegation.
    pub reserves_no_fences: bool,
}

/// A lock at one member. A member may know millions of locks, so the state that idle locks do not need is boxed in
/// [`Active`].
#[derive(Clone, Debug)]
pub(crate) struct Lock<P: MutualExclusion> {
    pub name: LockName,
    /// The site of the algorithm; `None` if this member has not used the lock in this view.
    pub instance: Option<Instance<P>>,
    /// `None` while no client of this member holds the lock or waits for it.
    pub active: Option<Box<Active>>,
}

/// The state of a lock that clients of this member hold or wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Active {
    /// The mode requested from the algorithm, until the algorithm grants it.
    requested: Option<LockMode>,
    /// The mode in which this member is inside, from the algorithm's point of view, and the number of its entries.
    inside: Option<(LockMode, u32)>,
    /// The stamp of the last entry, if no hold has used it yet.
    fresh: Option<u64>,
    pub queue: VecDeque<Waiter>,
    pub holds: Vec<Hold>,
    /// Number of local grants since the last entry that the algorithm granted.
    in_a_row: u32,
    /// Length of the local queue at that entry.
    waited: u32,
    /// Index of this lock in the table's list of active locks.
    pub place: usize,
    /// Whether the lock is in the member's list of locks that could grant if the lease ran.
    pub parked: bool,
}

impl Active {
    /// Resets the state of the algorithm. The queue and the holds stay.
    pub fn begin_view(&mut self) {
        self.requested = None;
        self.inside = None;
        self.fresh = None;
        self.in_a_row = 0;
        self.waited = 0;
        self.parked = false;
    }

    /// Whether the allocation is small enough to be reused for another lock.
    pub fn is_small(&self) -> bool {
        self.queue.capacity() <= 64 && self.holds.capacity() <= 64
    }

    /// Whether the lock is idle: no waiter, no hold, and nothing requested from the algorithm.
    pub fn is_at_rest(&self) -> bool {
        !self.is_busy() && self.requested.is_none() && self.inside.is_none()
    }

    /// Whether a client of this member holds the lock or waits for it.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.holds.is_empty()
    }

    /// Whether a request in this mode would have to wait for a local waiter or holder.
    pub fn is_in_the_way_of(&self, mode: LockMode) -> bool {
        !self.queue.is_empty() || self.holds.iter().any(|hold| hold.mode.conflicts(mode))
    }

    /// Whether only delegations that may be idle stand between a request and the lock.
    pub fn is_perhaps_unused(&self) -> bool {
        self.queue.is_empty()
            && self.holds.iter().all(|hold| hold.delegated_entries > 0 && hold.revoked_until_ns.is_none())
    }

    /// The lock's entry in the report: the mode and the number of holds. Simultaneous holds always have the same
    /// mode.
    pub fn held(&self) -> Option<(LockMode, u32)> {
        let mode = self.holds.first()?.mode;
        Some((mode, self.holds.len() as u32))
    }

    /// The hold of an acquisition.
    pub fn hold_mut(&mut self, acquisition: Acquisition) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.is_of(acquisition))
    }

    /// The mode and number of entries, if one of the entries has no hold: it is fresh, or its hold was released.
    fn unused(&self) -> Option<(LockMode, u32)> {
        self.inside.filter(|&(_, count)| count as usize > self.holds.len())
    }
}

impl<P: MutualExclusion> Lock<P> {
    pub fn new(name: LockName) -> Self {
        Self { name, instance: None, active: None }
    }

    pub fn is_busy(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.is_busy())
    }

    /// Starts the instance of a view. `own` are the entries with which this member starts inside.
    pub fn start(
        &mut self,
        own: Option<(LockMode, u32)>,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) {
        if let Some(active) = &mut self.active {
            active.inside = own;
        }
        self.instance = Some(Instance::start(&self.name, context, effects));
    }

    /// Handles a message of the algorithm. Returns `false` if the message is invalid.
    pub fn message(
        &mut self,
        from: SiteId,
        clock: u64,
        content: LockContent<P::Message>,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) -> bool {
        let taken = match (&mut self.instance, content) {
            (Some(instance), LockContent::Algorithm(message)) => {
                instance.message(from, clock, message, context, effects)
            }
            // The caller has created the instance, and `LockContent::Wake` needs nothing more.
            _ => true,
        };
        self.take_entered(effects);
        taken
    }

    /// Records an entry that the algorithm has granted.
    fn take_entered(&mut self, effects: &mut Effects<P::Message>) {
        let entered = effects.entered.take();
        if let Some(active) = &mut self.active
            && entered.is_some()
            && let Some(mode) = active.requested.take()
        {
            // One more entry: readers and permits of one member may be inside several times.
            active.inside = Some((mode, active.inside.map_or(1, |(_, count)| count + 1)));
            active.fresh = entered;
            active.in_a_row = 0;
            active.waited = active.queue.len() as u32;
        }
    }

    /// Advances the lock until no transition is possible: grants, releases to the algorithm, requests. Then recalls
    /// delegations that are in the way.
    pub fn advance(&mut self, rules: Rules, context: &mut ViewContext<P>, effects: &mut Effects<P::Message>) {
        while self.advance_once(rules, context, effects) {}
        self.recall_delegations(effects);
    }

    /// Recalls all delegations if another client waits for the lock, here or at another member.
    fn recall_delegations(&mut self, effects: &mut Effects<P::Message>) {
        let (Some(active), Some(instance)) = (&mut self.active, &self.instance) else { return };
        if active.queue.is_empty() && !instance.is_wanted() {
            return;
        }
        for hold in active.holds.iter_mut().filter(|hold| hold.delegated_entries > 0) {
            hold.delegated_entries = 0;
            effects.recalls.extend(hold.acquisition);
        }
    }

    /// Makes one transition. Returns `false` if none is possible.
    fn advance_once(
        &mut self,
        rules: Rules,
        context: &mut ViewContext<P>,
        effects: &mut Effects<P::Message>,
    ) -> bool {
        let (Some(active), Some(instance)) = (&mut self.active, &mut self.instance) else { return false };
        let first = active.queue.front().map(|waiter| waiter.mode);
        if let Some((mode, count)) = active.unused() {
            // An exclusive entry can pass from one local client to the next without the algorithm. Other members may
            // wait too, so this ends after `rounds` grants for each client that waited at the entry. With 3 waiters
            // and 2 rounds: after 6 grants, the next one needs the algorithm again.
            let turn = active.waited.saturating_mul(rules.rounds);
            let follows = mode == LockMode::Exclusive && active.in_a_row < turn;
            if first == Some(mode) && (active.fresh.is_some() || follows) {
                return self.grant_first_waiter(rules, effects);
            }
            // No local waiter can use the entry: give it back to the algorithm.
            active.fresh = None;
            active.inside = (count > 1).then_some((mode, count - 1));
            instance.release(mode, context, effects);
            self.take_entered(effects);
            return true;
        }
        let Some(mode) = first else { return false };
        let alone = active.inside.is_some_and(|(mode, _)| mode == LockMode::Exclusive);
        if alone || active.requested.is_some() {
            return false;
        }
        active.requested = Some(mode);
        instance.request(mode, context, effects);
        self.take_entered(effects);
        true
    }

    /// Grants an unused entry to the first waiter of the local queue. Returns `false` if the lease or the fence clock
    /// does not allow it.
    fn grant_first_waiter(&mut self, rules: Rules, effects: &mut Effects<P::Message>) -> bool {
        let (Some(active), Some(instance)) = (&mut self.active, &mut self.instance) else { return false };
        if !rules.lease_runs {
            effects.parked = true;
            return false;
        }
        let clock = active.fresh.unwrap_or_else(|| instance.stamp());
        let fence = (clock <= rules.largest_clock).then(|| Fence::new(rules.epoch, clock)).flatten();
        let Some(fence) = fence else {
            effects.clock_full = true;
            return false;
        };
        let Some(waiter) = active.queue.pop_front() else { return false };
        active.fresh = None;
        active.in_a_row = active.in_a_row.saturating_add(1);
        let others_wait = !active.queue.is_empty() || instance.is_wanted();
        let delegated_entries = waiter.delegated_entries.min(if others_wait {
            rules.max_contended_entries
        } else {
            rules.max_delegated_entries
        });
        // The delegation's entries take the fences `clock + 1 ..= clock + more`; without room for all of them there
        // is no delegation.
        let delegated_entries =
            if clock + u64::from(delegated_entries) <= rules.largest_clock { delegated_entries } else { 0 };
        if !rules.reserves_no_fences {
            instance.set_aside(delegated_entries.into());
        }
        let fence = waiter.mode.has_fence().then_some(fence);
        let acquisition = waiter.acquisition;
        let longest_until_ns = waiter.longest_hold_ns.map(|longest| rules.now.saturating_add(longest));
        let timeout_at_ns = waiter.timeout_at_ns;
        effects.grants.push(Grant {
            acquisition,
            ttl_ns: waiter.ttl_ns,
            fence,
            delegated_entries,
            contended: others_wait,
            timeout_at_ns,
            longest_until_ns,
        });
        active.holds.push(Hold {
            acquisition: Some(acquisition),
            again: Vec::new(),
            ending: Vec::new(),
            number: acquisition.number,
            ttl_ns: waiter.ttl_ns,
            mode: waiter.mode,
            fence,
            delegated_entries: if others_wait { 0 } else { delegated_entries },
            was_delegated: delegated_entries > 0,
            in_use: delegated_entries == 0,
            tag: waiter.tag,
            payload: Vec::new(),
            detached_until_ms: None,
            since_ns: rules.now,
            longest_until_ns,
            revoked_until_ns: None,
        });
        true
    }
}
