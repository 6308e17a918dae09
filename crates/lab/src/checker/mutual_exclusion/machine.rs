//! The interface of a checked system: machines that exchange messages.
//!
//! A mutual exclusion algorithm is one implementation ([`super::mutex`]); a specification from the literature
//! can be another.

use crate::property::Property;
use lockkeeper_core::{Mode, Sharing, SiteId, Stamp, Timestamp};
use smallvec::SmallVec;
use std::hash::Hash;

/// A system of machines that exchange messages. Each machine has a local state.
pub trait Machines: Sync {
    /// The complete state of one machine.
    type Local: Clone + Eq + Hash + Send;
    /// A message under way.
    type Envelope: Clone + Eq + Hash + Ord + Send;

    /// Number of machines.
    fn machines(&self) -> usize;

    /// Whether the channels are FIFO.
    fn fifo(&self) -> bool;

    /// The initial states of the machines, and the messages that they have sent.
    fn start(&self) -> (Vec<Self::Local>, Vec<Sent<Self::Envelope>>);

    /// The steps that a machine can take without receiving a message, as codes for [`Machines::step`].
    fn choices(&self, who: usize, local: &Self::Local) -> SmallVec<[Choice; 4]>;

    /// Applies a step to a machine's state.
    fn step(
        &self,
        who: usize,
        local: &mut Self::Local,
        cause: Cause<'_, Self::Envelope>,
    ) -> Step<Self::Envelope>;

    /// The part of a machine's state that the properties depend on.
    fn facts(&self, who: usize, local: &Self::Local) -> Facts;

    /// The modes that may be inside together.
    fn sharing(&self) -> Sharing {
        Sharing::Mutex
    }

    /// Number of tokens in a message.
    fn tokens_in(&self, _envelope: &Self::Envelope) -> u32 {
        0
    }

    /// The text of a message.
    fn text(&self, envelope: &Self::Envelope) -> String;

    /// The name of a machine.
    fn name(&self, who: usize) -> String {
        SiteId::new(who).to_string()
    }

    /// The text of a step that a machine takes without receiving a message.
    fn choice_text(&self, who: usize, code: u32) -> String {
        format!("{} takes step {code}", self.name(who))
    }

    /// The index of the message's type, for the list of types that were never delivered.
    fn kind(&self, _envelope: &Self::Envelope) -> usize {
        0
    }

    /// Records that another machine has entered, excluding all others: the fences that this machine knows are
    /// of earlier entries.
    fn outdate(&self, _local: &mut Self::Local) {}

    /// The same for a message under way.
    fn outdate_envelope(&self, _envelope: &mut Self::Envelope) {}

    /// Number of kinds of relative integers: integers that matter only relative to others of their kind, such
    /// as clocks; see [`super::shift`].
    fn scales(&self) -> usize {
        0
    }

    /// Visits every relative integer of a machine, with its kind.
    fn numbers(&self, _local: &mut Self::Local, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// Visits every relative integer of a message.
    fn numbers_in(
        &self,
        _from: usize,
        _envelope: &mut Self::Envelope,
        _visit: &mut dyn FnMut(usize, &mut u64),
    ) {
    }

    /// Visits every time and ticket of a machine; see [`super::symmetry`].
    fn stamps(&self, _local: &mut Self::Local, _visit: &mut dyn FnMut(Stamp<'_>)) {}

    /// Visits every time and ticket of a message.
    fn stamps_in(&self, _from: usize, _envelope: &mut Self::Envelope, _visit: &mut dyn FnMut(Stamp<'_>)) {}

    /// Replaces the numbers of machines in a machine's state.
    fn rename(&self, _local: &mut Self::Local, _to: &dyn Fn(SiteId) -> SiteId) {}

    /// Drops the parts of a machine's state that matter only for further requests, if it makes none.
    fn settle(&self, _local: &mut Self::Local) {}

    /// The bounds that make an infinite search finite: states beyond them are not explored. `None`: no
    /// bounds.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Whether a machine in this state exceeds the bounds.
    fn beyond(&self, _who: usize, _local: &Self::Local) -> bool {
        false
    }

    /// The counters along runs.
    fn tallied(&self) -> Tallied {
        Tallied { messages: true, bypass: true }
    }

    /// The only property to check. `None`: all properties.
    fn only(&self) -> Option<Property> {
        None
    }

    /// The maximum number of faults of each kind in a run.
    fn faults(&self) -> Faults {
        Faults::default()
    }
}

/// The counters along runs. A state stores the maximum of each counter over all runs that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tallied {
    /// The messages sent so far. Only useful if every run ends.
    pub messages: bool,
    /// For each waiting machine, the number of entries of others since its request.
    pub bypass: bool,
}

/// The bounds of a search that would otherwise be infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of messages under way in one channel.
    pub in_flight: usize,
    /// The maximum of a relative integer after normalisation; see [`super::shift`].
    pub number: u64,
}

/// A message with its sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent<M> {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The message.
    pub envelope: M,
}

/// A step that a machine can take without receiving a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The code of the step, in the numbering of the system.
    pub code: u32,
    /// The kind of fault, if the step is one. Each kind has a budget.
    pub fault: Option<Fault>,
    /// The suspected machine, if the step is a suspicion. A suspicion is a fault unless that machine has
    /// crashed.
    pub suspects: Option<usize>,
    /// Whether fairness does not require the step, however long it stays possible. Requests are of this kind.
    pub free: bool,
}

impl Choice {
    /// A step that is not a fault and that fairness requires.
    pub fn plain(code: u32) -> Self {
        Self { code, fault: None, suspects: None, free: false }
    }
}

/// The cause of a step.
#[derive(Debug)]
pub enum Cause<'a, M> {
    /// A choice of the machine itself, by its code.
    Choice(u32),
    /// The arrival of a message: sender, message.
    Message(usize, &'a M),
}

/// The result of a step, apart from the machine's new state.
#[derive(Clone, Debug)]
pub struct Step<M> {
    /// The messages sent, each with its receiver.
    pub sends: Vec<(usize, M)>,
    /// The other effects.
    pub effect: Effect,
}

/// The effects of a step that the properties depend on.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    /// The machine entered its critical section.
    pub entered: Option<Entry>,
    /// The machine left its critical section.
    pub exited: bool,
    /// The machine began to wait.
    pub asked: bool,
    /// The machine crashed: messages under way to it are lost.
    pub crashed: bool,
    /// The machine skipped fences, to be above those of a machine that may have entered unobserved.
    pub skipped_fences: bool,
    /// The rules that fired, one bit each.
    pub rules: u128,
    /// The violation in the machine's new state, if there is one.
    pub wrong: Option<Violation>,
}

impl Effect {
    /// Whether the order of this step and steps of other machines can matter.
    pub fn is_visible(&self) -> bool {
        self.entered.is_some() || self.exited || self.crashed || self.skipped_fences || self.wrong.is_some()
    }
}

/// An entry into the critical section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The mode of the hold.
    pub mode: Mode,
    /// The largest fence that the machine knew before; see [`Facts::fence`].
    pub fence: i8,
}

/// The part of a machine's state that the properties depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The machine has requested and not entered.
    pub waiting: bool,
    /// The machine is inside its critical section.
    pub inside: bool,
    /// The mode of its request or hold.
    pub mode: Mode,
    /// The largest fence that it knows, relative to the latest entry that excluded all others: -1 for any
    /// earlier one.
    pub fence: i8,
    /// The machine has crashed.
    pub down: bool,
    /// The timestamp of its request, if the algorithm grants in timestamp order.
    pub timestamp: Option<Timestamp>,
    /// Number of tokens that it has.
    pub tokens: u32,
    /// Number of its entries.
    pub entries: u32,
}

/// A fault of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A site stops, for ever or until it restarts.
    Crash,
    /// A message is lost.
    Loss,
    /// A message is delivered twice.
    Duplicate,
    /// A crashed site starts again with an initial state.
    Restart,
    /// An idle site loses its state and gets an initial one.
    Forget,
    /// A site that has not crashed is suspected.
    Suspicion,
}

impl Fault {
    /// All kinds of faults.
    pub const ALL: [Self; 6] =
        [Self::Crash, Self::Loss, Self::Duplicate, Self::Restart, Self::Forget, Self::Suspicion];
}

/// The maximum number of faults of each kind in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The maxima, in the order of [`Fault::ALL`].
    pub most: [u8; 6],
}

impl Faults {
    /// The maximum number of faults of this kind.
    pub fn of(self, fault: Fault) -> u8 {
        self.most[fault as usize]
    }

    /// Sets the maximum of one kind.
    pub fn with(mut self, fault: Fault, most: u8) -> Self {
        self.most[fault as usize] = most;
        self
    }

    /// Whether no fault may happen.
    pub fn none(self) -> bool {
        self == Self::default()
    }
}

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// The violated property.
    pub property: Property,
    /// The sites concerned.
    pub sites: Vec<SiteId>,
    /// A sentence that describes the violation.
    pub what: String,
}
