//! One named lock at one member: its instance in the present view, its local queue, its local holds.

use crate::instance::{Instance, Play, Sent, slots};
use crate::{Acquisition, Fence, LockName, Tag, Words};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use lockkeeper_core::{Ask, Mode, MutualExclusion};

/// Somebody at this member who waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub acquisition: Acquisition,
    pub mode: Mode,
    pub patience_until_ns: Option<u64>,
    pub longest_hold_ns: Option<u64>,
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
    pub slot: usize,
    pub mode: Mode,
    pub fence: Option<Fence>,
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

/// Where one of this member's sites stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Idle,
    Asked(Mode),
    /// Inside; the stamp of the entry if nobody has used it yet.
    Inside(Mode, Option<u64>),
}

/// A grant to be told to a client.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub acquisition: Acquisition,
    pub fence: Option<Fence>,
    pub patience_until_ns: Option<u64>,
    pub longest_until_ns: Option<u64>,
}

/// What a lock wants done after it was looked after. The member uses it again and again.
#[derive(Clone, Debug)]
pub(crate) struct Wants<M> {
    pub grants: Vec<Grant>,
    pub sends: Vec<Sent<Words<M>>>,
    /// Which slots the algorithm has let in, with their stamps.
    pub entered: Vec<(usize, u64)>,
    /// Somebody could be let in if the lease ran.
    pub parked: bool,
    /// Nobody can be let in in this epoch any more.
    pub clock_full: bool,
}

impl<M> Default for Wants<M> {
    fn default() -> Self {
        let (grants, sends, entered) = (Vec::new(), Vec::new(), Vec::new());
        Self { grants, sends, entered, parked: false, clock_full: false }
    }
}

/// What a lock must know to let somebody in.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub now: u64,
    pub epoch: u64,
    pub lease_runs: bool,
    pub local_in_a_row: u32,
    pub largest_clock: u64,
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
    slots: Vec<Slot>,
    pub queue: VecDeque<Waiter>,
    pub holds: Vec<Hold>,
    /// Local entries since the last one that came from the algorithm.
    in_a_row: u32,
    /// Where the table lists this lock among those that are not at rest.
    pub place: usize,
}

impl Active {
    /// Whether nobody here has anything to do with the lock.
    pub fn is_at_rest(&self) -> bool {
        !self.is_busy() && self.slots.iter().all(|slot| *slot == Slot::Idle)
    }

    /// Whether a new wish would not be the first in line.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.holds.is_empty()
    }

    /// What this lock adds to the report: mode and units.
    pub fn held(&self) -> Option<(Mode, u32)> {
        let mode = self.holds.iter().map(|hold| hold.mode).min()?;
        let units = if self.slots.len() == 1 { 1 } else { self.holds.len() as u32 };
        Some((mode, units))
    }

    pub fn hold_mut(&mut self, acquisition: Acquisition) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.is_of(acquisition))
    }
}

impl<P: MutualExclusion> Lock<P> {
    pub fn new(name: LockName) -> Self {
        Self { name, instance: None, active: None }
    }

    pub fn is_busy(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.is_busy())
    }

    /// Gives it a queue and holds: empty ones, or those of the view before.
    pub fn activate(&mut self, mut active: Box<Active>) {
        active.slots.clear();
        active.slots.resize(slots(self.name.kind), Slot::Idle);
        active.in_a_row = 0;
        self.active = Some(active);
    }

    /// Begins the instance of a view, with this member's own holds inside, which it is given so many of.
    pub fn start(&mut self, own: Option<(Mode, u32)>, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        if let Some(active) = &mut self.active {
            let one_slot = active.slots.len() == 1;
            for (number, hold) in active.holds.iter_mut().enumerate() {
                hold.slot = if one_slot { 0 } else { number };
            }
            if let Some((mode, units)) = own {
                let units = (units as usize).min(active.slots.len());
                active.slots[..units].fill(Slot::Inside(mode, None));
            }
        }
        self.instance = Some(Instance::start(&self.name, play, wants));
        self.take_entered(wants);
    }

    /// Tells whether the message made sense.
    pub fn message(
        &mut self,
        sent: Sent<Words<P::Message>>,
        play: &mut Play<P>,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let taken = self.instance.as_mut().is_none_or(|instance| instance.message(sent, play, wants));
        self.take_entered(wants);
        taken
    }

    fn take_entered(&mut self, wants: &mut Wants<P::Message>) {
        for (slot, stamp) in wants.entered.drain(..) {
            if let Some(active) = &mut self.active
                && let Slot::Asked(mode) = active.slots[slot]
            {
                active.slots[slot] = Slot::Inside(mode, Some(stamp));
                active.in_a_row = 0;
            }
        }
    }

    fn input(&mut self, slot: usize, ask: Ask, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        let instance = self.instance.as_mut().expect("whoever is looked after has an instance");
        instance.input(slot, ask, play, wants);
        self.take_entered(wants);
    }

    /// Lets in whoever can be let in, leaves where nobody is left, asks for whoever waits: until there is nothing to do.
    pub fn look_after(&mut self, rules: Rules, play: &mut Play<P>, wants: &mut Wants<P::Message>) {
        loop {
            let mut changed = false;
            let mut slot = 0;
            while let Some(active) = &self.active
                && let Some(&standing) = active.slots.get(slot)
                && self.instance.is_some()
            {
                changed |= match standing {
                    Slot::Inside(mode, fresh) => self.serve(slot, mode, fresh, rules, play, wants),
                    Slot::Asked(_) => false,
                    Slot::Idle => self.ask(slot, play, wants),
                };
                slot += 1;
            }
            if !changed {
                return;
            }
        }
    }

    /// Asks for the first waiter for whom nobody has asked yet.
    fn ask(&mut self, slot: usize, play: &mut Play<P>, wants: &mut Wants<P::Message>) -> bool {
        let Some(active) = &mut self.active else { return false };
        let asked = active.slots.iter().filter(|slot| matches!(slot, Slot::Asked(_))).count();
        let Some(mode) = active.queue.get(asked).map(|waiter| waiter.mode) else { return false };
        active.slots[slot] = Slot::Asked(mode);
        self.input(slot, Ask::Request(mode), play, wants);
        true
    }

    /// A slot that is inside: lets the next one in, or leaves.
    fn serve(
        &mut self,
        slot: usize,
        mode: Mode,
        fresh: Option<u64>,
        rules: Rules,
        play: &mut Play<P>,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let Some(active) = &mut self.active else { return false };
        let used = active.holds.iter().filter(|hold| hold.slot == slot);
        let (empty, shared) =
            used.fold((true, true), |(_, shared), hold| (false, shared && hold.mode == Mode::Shared));
        let front = active.queue.front().map(|waiter| waiter.mode);
        let fits = match front {
            None => false,
            Some(Mode::Shared) => {
                (empty || shared) && (mode == Mode::Shared || self.name.kind.sharing().knows(Mode::Shared))
            }
            Some(Mode::Exclusive) => empty && mode == Mode::Exclusive,
        };
        if fits && (fresh.is_some() || active.in_a_row < rules.local_in_a_row) {
            return self.let_in(slot, mode, fresh, rules, wants);
        }
        if empty {
            active.slots[slot] = Slot::Idle;
            self.input(slot, Ask::Release, play, wants);
        }
        empty
    }

    fn let_in(
        &mut self,
        slot: usize,
        mode: Mode,
        fresh: Option<u64>,
        rules: Rules,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let (Some(active), Some(instance)) = (&mut self.active, &mut self.instance) else { return false };
        if !rules.lease_runs {
            wants.parked = true;
            return false;
        }
        let clock = fresh.unwrap_or_else(|| instance.stamp(slot));
        let fence = (clock <= rules.largest_clock).then(|| Fence::new(rules.epoch, clock)).flatten();
        let Some(fence) = fence else {
            wants.clock_full = true;
            return false;
        };
        let Some(waiter) = active.queue.pop_front() else { return false };
        active.slots[slot] = Slot::Inside(mode, None);
        active.in_a_row = active.in_a_row.saturating_add(1);
        // A permit says nothing about the other permits: it has no fence.
        let conflicts = self.name.kind.sharing().conflict(Mode::Exclusive, Mode::Exclusive);
        let fence = conflicts.then_some(fence);
        let acquisition = waiter.acquisition;
        let longest_until_ns = waiter.longest_hold_ns.map(|longest| rules.now.saturating_add(longest));
        let patience_until_ns = waiter.patience_until_ns;
        wants.grants.push(Grant { acquisition, fence, patience_until_ns, longest_until_ns });
        active.holds.push(Hold {
            acquisition: Some(acquisition),
            again: Vec::new(),
            slot,
            mode: waiter.mode,
            fence,
            tag: waiter.tag,
            since_ns: rules.now,
            longest_until_ns,
            revoked_until_ns: None,
        });
        true
    }
}
