//! One named lock at one member: its instance in the present view, its local queue, its local holds.

use crate::instance::{Instance, Play, Sent};
use crate::{Acquisition, Fence, LockName, Tag, Words};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lockkeeper_core::{Claim, MutualExclusion, SiteId};

/// Somebody at this member who waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub acquisition: Acquisition,
    pub claim: Claim,
    pub patience_until_ns: Option<u64>,
    pub longest_hold_ns: Option<u64>,
    /// How many more entries it would like to make.
    pub more: u32,
    /// Whether it only tries: it waits for no more than an answer from whoever may be keeping the lock unused.
    pub tries: bool,
    pub tag: Tag,
    /// Orders waiters over all locks of the member.
    pub order: u64,
    pub since_ns: u64,
}

/// Somebody at this member who holds the lock.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// Whose; nobody's once it is over and only the report of a frozen member says otherwise: then it goes after the start.
    pub acquisition: Option<Acquisition>,
    /// Further ones, where a session holds it several times.
    pub again: Vec<Acquisition>,
    pub claim: Claim,
    pub fence: Option<Fence>,
    /// How many more entries its client may make by itself; none once it knows that somebody waits.
    pub more: u32,
    /// Whether it ever might.
    pub was_kept: bool,
    pub tag: Tag,
    pub since_ns: u64,
    /// When it is taken back because it lasts too long.
    pub longest_until_ns: Option<u64>,
    /// Taken back: free from this time on, or once the client gives it back.
    pub revoked_until_ns: Option<u64>,
}

impl Hold {
    pub fn acquisitions(&self) -> impl Iterator<Item = Acquisition> + '_ {
        self.acquisition.iter().chain(&self.again).copied()
    }

    pub fn is_of(&self, acquisition: Acquisition) -> bool {
        self.acquisitions().any(|held| held == acquisition)
    }

    /// One of its acquisitions is over.
    pub fn end(&mut self, acquisition: Acquisition) {
        if self.acquisition == Some(acquisition) {
            self.acquisition = self.again.pop();
        } else {
            self.again.retain(|held| *held != acquisition);
        }
    }
}

/// A grant to be told to a client.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub acquisition: Acquisition,
    pub fence: Option<Fence>,
    pub more: u32,
    pub brief: bool,
    pub patience_until_ns: Option<u64>,
    pub longest_until_ns: Option<u64>,
}

/// What a lock wants done after it was looked after. The member uses it again and again.
#[derive(Clone, Debug)]
pub(crate) struct Wants<M> {
    pub grants: Vec<Grant>,
    /// Whose clients are to give back what they may be keeping.
    pub wanted: Vec<Acquisition>,
    pub sends: Vec<Sent<Words<M>>>,
    /// The algorithm has let this member in; the stamp of the entry.
    pub entered: Option<u64>,
    /// Somebody could be let in if the lease ran.
    pub parked: bool,
    /// Nobody can be let in in this epoch any more.
    pub clock_full: bool,
}

impl<M> Default for Wants<M> {
    fn default() -> Self {
        Self {
            grants: Vec::new(),
            wanted: Vec::new(),
            sends: Vec::new(),
            entered: None,
            parked: false,
            clock_full: false,
        }
    }
}

/// What a lock must know to let somebody in.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub now: u64,
    pub epoch: u64,
    pub lease_runs: bool,
    pub rounds: u32,
    pub largest_clock: u64,
    pub most_more: u32,
    pub most_brief: u32,
    /// Wrong on purpose.
    pub sets_nothing_aside: bool,
}

/// A lock at one member. A member knows millions: what most of them do not need is elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Lock<P: MutualExclusion> {
    pub name: LockName,
    /// `None` if this member has had nothing to do with the lock in this view.
    pub instance: Option<Instance<P>>,
    /// `None` while nobody here holds the lock or waits for it.
    pub active: Option<Box<Active>>,
}

/// What somebody at this member has to do with a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Active {
    /// What the algorithm was asked for and has not answered yet.
    asked: Option<Claim>,
    /// How this member is inside, as the algorithm takes it, and how often.
    inside: Option<(Claim, u32)>,
    /// The stamp of the last of these entries, if nobody has used it yet.
    fresh: Option<u64>,
    pub queue: VecDeque<Waiter>,
    pub holds: Vec<Hold>,
    /// Local entries since the last one that came from the algorithm.
    in_a_row: u32,
    /// How many waited here when that one came.
    waited: u32,
    /// Where the table lists this lock among those that are not at rest.
    pub place: usize,
    /// Whether the member remembers that somebody could be let in if the lease ran.
    pub parked: bool,
}

impl Active {
    /// The queue and the holds stay; what the algorithm of an older view knew is forgotten.
    pub fn begin_view(&mut self) {
        self.asked = None;
        self.inside = None;
        self.fresh = None;
        self.in_a_row = 0;
        self.waited = 0;
        self.parked = false;
    }

    /// Whether it is worth being kept for another lock.
    pub fn is_small(&self) -> bool {
        self.queue.capacity() <= 64 && self.holds.capacity() <= 64
    }

    /// Whether nobody here has anything to do with the lock.
    pub fn is_at_rest(&self) -> bool {
        !self.is_busy() && self.asked.is_none() && self.inside.is_none()
    }

    /// Whether somebody here holds the lock or waits for it.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.holds.is_empty()
    }

    /// Whether such a claim would have to wait for somebody here.
    pub fn is_in_the_way_of(&self, claim: Claim) -> bool {
        !self.queue.is_empty() || self.holds.iter().any(|hold| hold.claim.conflicts(claim))
    }

    /// Whether nothing is in the way but what a client may be keeping unused.
    pub fn is_perhaps_unused(&self) -> bool {
        self.queue.is_empty()
            && self.holds.iter().all(|hold| hold.more > 0 && hold.revoked_until_ns.is_none())
    }

    /// What this lock adds to the report: how, and how many. Those who are inside together are so in the same way.
    pub fn held(&self) -> Option<(Claim, u32)> {
        let claim = self.holds.first()?.claim;
        Some((claim, self.holds.len() as u32))
    }

    pub fn hold_mut(&mut self, acquisition: Acquisition) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.is_of(acquisition))
    }

    /// An entry that nobody uses any more, or yet.
    fn unused(&self) -> Option<(Claim, u32)> {
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

    /// Begins the instance of a view, with this member inside so often.
    pub fn start(&mut self, own: Option<(Claim, u32)>, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        if let Some(active) = &mut self.active {
            active.inside = own;
        }
        self.instance = Some(Instance::start(&self.name, play, wants));
    }

    /// Tells whether the message made sense.
    pub fn message(
        &mut self,
        from: SiteId,
        clock: u64,
        words: Words<P::Message>,
        play: &mut Play<P>,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let taken = match (&mut self.instance, words) {
            (Some(instance), Words::Said(message)) => instance.message(from, clock, message, play, wants),
            // What was to be done is done: there is an instance.
            _ => true,
        };
        self.take_entered(wants);
        taken
    }

    fn take_entered(&mut self, wants: &mut Wants<P::Message>) {
        let entered = wants.entered.take();
        if let Some(active) = &mut self.active
            && entered.is_some()
            && let Some(claim) = active.asked.take()
        {
            active.inside = Some((claim, active.inside.map_or(1, |(_, count)| count + 1)));
            active.fresh = entered;
            active.in_a_row = 0;
            active.waited = active.queue.len() as u32;
        }
    }

    /// Lets in whoever can be let in, leaves where nobody is left, asks for whoever waits: until there is nothing to do.
    pub fn look_after(&mut self, rules: Rules, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        while self.go_on(rules, play, wants) {}
        self.ask_back(wants);
    }

    /// Somebody waits: whoever may be keeping the lock is to give it back.
    fn ask_back(&mut self, wants: &mut Wants<P::Message>) {
        let (Some(active), Some(instance)) = (&mut self.active, &self.instance) else { return };
        if active.queue.is_empty() && !instance.is_wanted() {
            return;
        }
        for hold in active.holds.iter_mut().filter(|hold| hold.more > 0) {
            hold.more = 0;
            wants.wanted.extend(hold.acquisition);
        }
    }

    /// One of these; tells whether something was to be done.
    fn go_on(&mut self, rules: Rules, play: &mut Play<P>, wants: &mut Wants<P::Message>) -> bool {
        let (Some(active), Some(instance)) = (&mut self.active, &mut self.instance) else { return false };
        let first = active.queue.front().map(|waiter| waiter.claim);
        if let Some((claim, count)) = active.unused() {
            // Alone, one can follow another without the algorithm, for a while: others may wait elsewhere.
            let turn = active.waited.saturating_mul(rules.rounds);
            let follows = claim == Claim::Alone && active.in_a_row < turn;
            if first == Some(claim) && (active.fresh.is_some() || follows) {
                return self.let_in(rules, wants);
            }
            active.fresh = None;
            active.inside = (count > 1).then_some((claim, count - 1));
            instance.release(claim, play, wants);
            self.take_entered(wants);
            return true;
        }
        let Some(claim) = first else { return false };
        let alone = active.inside.is_some_and(|(claim, _)| claim == Claim::Alone);
        if alone || active.asked.is_some() {
            return false;
        }
        active.asked = Some(claim);
        instance.request(claim, play, wants);
        self.take_entered(wants);
        true
    }

    /// The first in line gets the entry that nobody uses.
    fn let_in(&mut self, rules: Rules, wants: &mut Wants<P::Message>) -> bool {
        let (Some(active), Some(instance)) = (&mut self.active, &mut self.instance) else { return false };
        if !rules.lease_runs {
            wants.parked = true;
            return false;
        }
        let clock = active.fresh.unwrap_or_else(|| instance.stamp());
        let fence = (clock <= rules.largest_clock).then(|| Fence::new(rules.epoch, clock)).flatten();
        let Some(fence) = fence else {
            wants.clock_full = true;
            return false;
        };
        let Some(waiter) = active.queue.pop_front() else { return false };
        active.fresh = None;
        active.in_a_row = active.in_a_row.saturating_add(1);
        let others_wait = !active.queue.is_empty() || instance.is_wanted();
        let more = waiter.more.min(if others_wait { rules.most_brief } else { rules.most_more });
        let more = if clock + u64::from(more) <= rules.largest_clock { more } else { 0 };
        if !rules.sets_nothing_aside {
            instance.set_aside(more.into());
        }
        let fence = waiter.claim.has_fence().then_some(fence);
        let acquisition = waiter.acquisition;
        let longest_until_ns = waiter.longest_hold_ns.map(|longest| rules.now.saturating_add(longest));
        let patience_until_ns = waiter.patience_until_ns;
        wants.grants.push(Grant {
            acquisition,
            fence,
            more,
            brief: others_wait,
            patience_until_ns,
            longest_until_ns,
        });
        active.holds.push(Hold {
            acquisition: Some(acquisition),
            again: Vec::new(),
            claim: waiter.claim,
            fence,
            more: if others_wait { 0 } else { more },
            was_kept: more > 0,
            tag: waiter.tag,
            since_ns: rules.now,
            longest_until_ns,
            revoked_until_ns: None,
        });
        true
    }
}
