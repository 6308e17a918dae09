//! One named lock at one member: its instance in the present view, its local queue, its local holds.

use crate::instance::{Instance, Sent, Start, Steps, slots};
use crate::{Acquisition, Fence, LockName, Tag, Words};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use lockkeeper_core::{Ask, Mode, MutualExclusion};

/// Somebody at this member who waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub acquisition: Acquisition,
    pub mode: Mode,
    pub longest_hold_ns: Option<u64>,
    pub tag: Tag,
    /// Orders waiters over all locks of the member.
    pub order: u64,
}

/// Somebody at this member who holds the lock.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// Whose; several where a session holds it several times.
    pub acquisitions: Vec<Acquisition>,
    pub slot: usize,
    pub mode: Mode,
    pub fence: Option<Fence>,
    pub tag: Tag,
    /// Over, but still in the report of a frozen member: it goes after the start.
    pub ended: bool,
    /// Taken back: free from this time on, or once the client gives it back.
    pub revoked_until_ns: Option<u64>,
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
    pub longest_hold_ns: Option<u64>,
}

/// What a lock wants done after it was looked after.
#[derive(Debug)]
pub(crate) struct Wants<M> {
    pub grants: Vec<Grant>,
    pub sends: Vec<Sent<Words<M>>>,
    /// Somebody could be let in if the lease ran.
    pub parked: bool,
    /// Nobody can be let in in this epoch any more.
    pub clock_full: bool,
}

impl<M> Default for Wants<M> {
    fn default() -> Self {
        Self { grants: Vec::new(), sends: Vec::new(), parked: false, clock_full: false }
    }
}

/// What a lock must know to let somebody in.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub epoch: u64,
    pub lease_runs: bool,
    pub local_in_a_row: u32,
    pub largest_clock: u64,
}

/// A lock at one member.
#[derive(Clone, Debug)]
pub(crate) struct Lock<P: MutualExclusion> {
    /// `None` in a view in which this member has had nothing to do with the lock, and while frozen.
    instance: Option<Instance<P>>,
    slots: Vec<Slot>,
    pub queue: VecDeque<Waiter>,
    pub holds: Vec<Hold>,
    /// Local entries since the last one that came from the algorithm.
    in_a_row: u32,
}

impl<P: MutualExclusion> Lock<P> {
    pub fn new(name: &LockName) -> Self {
        let slots = vec![Slot::Idle; slots(name.kind)];
        Self { instance: None, slots, queue: VecDeque::new(), holds: Vec::new(), in_a_row: 0 }
    }

    pub fn has_instance(&self) -> bool {
        self.instance.is_some()
    }

    /// Whether nobody here has anything to do with the lock.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.holds.is_empty() && self.slots.iter().all(|slot| *slot == Slot::Idle)
    }

    /// Whether a new wish would not be the first in line.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.holds.is_empty()
    }

    /// Begins the instance of a view, with this member's own holds inside.
    pub fn start(&mut self, start: &Start<'_>, wants: &mut Wants<P::Message>) {
        let mut steps = Steps::default();
        self.slots.fill(Slot::Idle);
        let one_slot = self.slots.len() == 1;
        for (number, hold) in self.holds.iter_mut().enumerate() {
            hold.slot = if one_slot { 0 } else { number };
        }
        for &(place, mode, units) in &start.holders {
            if place == start.place {
                let units = (units as usize).min(self.slots.len());
                self.slots[..units].fill(Slot::Inside(mode, None));
            }
        }
        self.in_a_row = 0;
        self.instance = Some(Instance::start(start, &mut steps));
        self.take(steps, wants);
    }

    /// Forgets the instance: its view is over.
    pub fn stop(&mut self) {
        self.instance = None;
        self.slots.fill(Slot::Idle);
    }

    /// What this lock adds to the report: mode and units.
    pub fn held(&self) -> Option<(Mode, u32)> {
        let modes = self.holds.iter().map(|hold| hold.mode);
        let mode = modes.min()?;
        let units = if self.slots.len() == 1 { 1 } else { self.holds.len() as u32 };
        Some((mode, units))
    }

    /// Tells whether the message made sense.
    pub fn message(&mut self, sent: Sent<Words<P::Message>>, wants: &mut Wants<P::Message>) -> bool {
        let mut steps = Steps::default();
        let taken = self.instance.as_mut().is_none_or(|instance| instance.message(sent, &mut steps));
        self.take(steps, wants);
        taken
    }

    fn take(&mut self, steps: Steps<P::Message>, wants: &mut Wants<P::Message>) {
        wants.sends.extend(steps.sends);
        for (slot, stamp) in steps.entered {
            if let Slot::Asked(mode) = self.slots[slot] {
                self.slots[slot] = Slot::Inside(mode, Some(stamp));
                self.in_a_row = 0;
            }
        }
    }

    fn input(&mut self, slot: usize, ask: Ask, wants: &mut Wants<P::Message>) {
        let mut steps = Steps::default();
        let instance = self.instance.as_mut().expect("whoever is looked after has an instance");
        instance.input(slot, ask, &mut steps);
        self.take(steps, wants);
    }

    /// Lets in whoever can be let in, leaves where nobody is left, asks for whoever waits: until there is nothing to do.
    pub fn look_after(&mut self, name: &LockName, rules: Rules, wants: &mut Wants<P::Message>) {
        if self.instance.is_none() {
            return;
        }
        loop {
            let mut changed = false;
            for slot in 0..self.slots.len() {
                changed |= match self.slots[slot] {
                    Slot::Inside(mode, fresh) => self.serve(name, slot, mode, fresh, rules, wants),
                    Slot::Asked(_) => false,
                    Slot::Idle => self.ask(slot, wants),
                };
            }
            if !changed {
                return;
            }
        }
    }

    /// Asks for the first waiter for whom nobody has asked yet.
    fn ask(&mut self, slot: usize, wants: &mut Wants<P::Message>) -> bool {
        let asked = self.slots.iter().filter(|slot| matches!(slot, Slot::Asked(_))).count();
        let Some(mode) = self.queue.get(asked).map(|waiter| waiter.mode) else { return false };
        self.slots[slot] = Slot::Asked(mode);
        self.input(slot, Ask::Request(mode), wants);
        true
    }

    /// A slot that is inside: lets the next one in, or leaves.
    fn serve(
        &mut self,
        name: &LockName,
        slot: usize,
        mode: Mode,
        fresh: Option<u64>,
        rules: Rules,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        let used = self.holds.iter().filter(|hold| hold.slot == slot);
        let (empty, shared) =
            used.fold((true, true), |(_, shared), hold| (false, shared && hold.mode == Mode::Shared));
        let front = self.queue.front().map(|waiter| waiter.mode);
        let fits = match front {
            None => false,
            Some(Mode::Shared) => {
                (empty || shared) && (mode == Mode::Shared || name.kind.sharing().knows(Mode::Shared))
            }
            Some(Mode::Exclusive) => empty && mode == Mode::Exclusive,
        };
        if fits && (fresh.is_some() || self.in_a_row < rules.local_in_a_row) {
            return self.let_in(name, slot, mode, fresh, rules, wants);
        }
        if empty {
            self.slots[slot] = Slot::Idle;
            self.input(slot, Ask::Release, wants);
        }
        empty
    }

    fn let_in(
        &mut self,
        name: &LockName,
        slot: usize,
        mode: Mode,
        fresh: Option<u64>,
        rules: Rules,
        wants: &mut Wants<P::Message>,
    ) -> bool {
        if !rules.lease_runs {
            wants.parked = true;
            return false;
        }
        let instance = self.instance.as_mut().expect("whoever is inside has an instance");
        let clock = fresh.unwrap_or_else(|| instance.stamp(slot));
        let fence = (clock <= rules.largest_clock).then(|| Fence::new(rules.epoch, clock)).flatten();
        let Some(fence) = fence else {
            wants.clock_full = true;
            return false;
        };
        self.slots[slot] = Slot::Inside(mode, None);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let waiter = self.queue.pop_front().expect("the caller has seen it");
        // A permit says nothing about the other permits: it has no fence.
        let fence = name.kind.sharing().conflict(Mode::Exclusive, Mode::Exclusive).then_some(fence);
        let acquisition = waiter.acquisition;
        wants.grants.push(Grant { acquisition, fence, longest_hold_ns: waiter.longest_hold_ns });
        self.holds.push(Hold {
            acquisitions: vec![acquisition],
            slot,
            mode: waiter.mode,
            fence,
            tag: waiter.tag,
            ended: false,
            revoked_until_ns: None,
        });
        true
    }
}
