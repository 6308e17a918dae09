//! What the checker explores: machines that exchange messages.
//!
//! A mutual exclusion algorithm is one kind ([`super::mutex`]); a specification from the literature can be another.

use crate::property::Property;
use lockkeeper_core::{Mode, Sharing, SiteId, Timestamp};
use smallvec::SmallVec;
use std::hash::Hash;

/// A system of machines, each with a state of its own, that exchange messages.
pub trait Machines: Sync {
    /// The whole state of one machine.
    type Local: Clone + Eq + Hash + Send;
    /// A message under way.
    type Parcel: Clone + Eq + Hash + Ord + Send;

    /// How many machines there are.
    fn machines(&self) -> usize;

    /// Whether messages of one channel arrive in the order sent.
    fn fifo(&self) -> bool;

    /// The machines at the start, and what they have sent by then.
    fn start(&self) -> (Vec<Self::Local>, Vec<Sent<Self::Parcel>>);

    /// What a machine can do of its own accord, by numbers that [`Machines::step`] understands.
    fn choices(&self, who: usize, local: &Self::Local) -> SmallVec<[Choice; 4]>;

    /// Takes a step.
    fn step(&self, who: usize, local: &mut Self::Local, cause: Cause<'_, Self::Parcel>)
    -> Step<Self::Parcel>;

    /// What others need to know of a machine's state.
    fn facts(&self, who: usize, local: &Self::Local) -> Facts;

    /// Who may be inside together.
    fn sharing(&self) -> Sharing {
        Sharing::Mutex
    }

    /// How many tokens travel in a message.
    fn tokens_in(&self, _parcel: &Self::Parcel) -> u32 {
        0
    }

    /// What a message says.
    fn text(&self, parcel: &Self::Parcel) -> String;

    /// What kind of message it is, for the list of those that were never delivered.
    fn word(&self, _parcel: &Self::Parcel) -> usize {
        0
    }

    /// Another machine has entered, excluding all others: the fences that this one knows of are of entries before.
    fn outdate(&self, _local: &mut Self::Local) {}

    /// The same for a message under way.
    fn outdate_parcel(&self, _parcel: &mut Self::Parcel) {}

    /// How many kinds of numbers there are that only matter relative to each other; see [`super::shift`].
    fn scales(&self) -> usize {
        0
    }

    /// Visits every such number of a machine, with its kind.
    fn numbers(&self, _local: &mut Self::Local, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// Visits every such number of a message.
    fn numbers_in(&self, _from: usize, _parcel: &mut Self::Parcel, _visit: &mut dyn FnMut(usize, &mut u64)) {}

    /// What keeps the search finite where nothing else does: states beyond these are not explored.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Whether a machine in this state is beyond what is to be explored.
    fn beyond(&self, _who: usize, _local: &Self::Local) -> bool {
        false
    }

    /// What is counted along the runs.
    fn tallied(&self) -> Tallied {
        Tallied { messages: true, bypass: true }
    }

    /// The only property that is asked about; all of them if nothing is said.
    fn only(&self) -> Option<Property> {
        None
    }

    /// What may go wrong in this system, at most so often in each run.
    fn faults(&self) -> Faults {
        Faults::default()
    }
}

/// What is counted along the runs: of each, the largest count that any run brings to a state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tallied {
    /// The messages sent so far. Only useful where every run comes to an end.
    pub messages: bool,
    /// For each machine that waits, how many others have entered meanwhile.
    pub bypass: bool,
}

/// Bounds of a search that would otherwise have no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most messages under way in one channel.
    pub in_flight: usize,
    /// The largest number, once all of its kind are as small as they can be.
    pub number: u64,
}

/// A message, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent<M> {
    /// Who sends it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    /// What it says.
    pub parcel: M,
}

/// Something that a machine can do of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What; the system's own numbering.
    pub code: u32,
    /// If it is a fault, which kind: there is a budget for each.
    pub fault: Option<Fault>,
    /// A suspicion, and of whom. It is a fault unless that machine has crashed.
    pub suspects: Option<usize>,
    /// Nobody is made to do it, however long it is possible: asking.
    pub free: bool,
}

impl Choice {
    /// Something that is no fault.
    pub fn plain(code: u32) -> Self {
        Self { code, fault: None, suspects: None, free: false }
    }
}

/// Why a machine takes a step.
#[derive(Debug)]
pub enum Cause<'a, M> {
    /// Of its own accord.
    Choice(u32),
    /// A message arrives.
    Message(usize, &'a M),
}

/// What a step did, beside changing the machine's state.
#[derive(Clone, Debug)]
pub struct Step<M> {
    /// What it sent, and to whom.
    pub sends: Vec<(usize, M)>,
    /// What it did.
    pub effect: Effect,
}

/// What a step did.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    /// The machine entered its critical section.
    pub entered: Option<Entry>,
    /// It left it.
    pub exited: bool,
    /// It began to wait.
    pub asked: bool,
    /// It stopped: what is under way to it is lost.
    pub crashed: bool,
    /// It left fences out, to be above those of somebody who may have entered unseen.
    pub skipped_fences: bool,
    /// The rules that it followed, one bit each.
    pub rules: u128,
    /// What is wrong with the machine's state now.
    pub wrong: Option<Breach>,
}

impl Effect {
    /// Whether others could tell the difference if it happened sooner or later.
    pub fn is_visible(&self) -> bool {
        self.entered.is_some() || self.exited || self.crashed || self.skipped_fences || self.wrong.is_some()
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How.
    pub mode: Mode,
    /// What the machine knew of the fences before; see [`Facts::fence`].
    pub fence: i8,
}

/// What others need to know of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// It has asked and not entered.
    pub waiting: bool,
    /// It is inside its critical section.
    pub inside: bool,
    /// How it waits or is inside.
    pub mode: Mode,
    /// The largest fence that it knows of, relative to the latest entry that excluded all others; -1 for any before.
    pub fence: i8,
    /// It has stopped.
    pub down: bool,
    /// The timestamp of its request, where requests are served in that order.
    pub timestamp: Option<Timestamp>,
    /// How many tokens it has.
    pub tokens: u32,
    /// How often it has entered.
    pub entries: u32,
}

/// What can go wrong that is no machine's own doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A site stops for good, or until it restarts.
    Crash,
    /// A message is lost.
    Loss,
    /// A message arrives twice.
    Duplicate,
    /// A crashed site starts from scratch.
    Restart,
    /// An idle site's state is thrown away and made anew, as if nothing had been.
    Forget,
    /// A site is suspected that has not crashed.
    Suspicion,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Crash, Self::Loss, Self::Duplicate, Self::Restart, Self::Forget, Self::Suspicion];
}

/// How often each kind of fault may happen in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// In the order of [`Fault::ALL`].
    pub most: [u8; 6],
}

impl Faults {
    /// How often this kind may happen.
    pub fn of(self, fault: Fault) -> u8 {
        self.most[fault as usize]
    }

    /// The same, with another number for one kind.
    pub fn with(mut self, fault: Fault, most: u8) -> Self {
        self.most[fault as usize] = most;
        self
    }

    /// Whether nothing goes wrong.
    pub fn none(self) -> bool {
        self == Self::default()
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Breach {
    /// What does not hold.
    pub property: Property,
    /// The sites concerned.
    pub sites: Vec<SiteId>,
    /// What happened, in a sentence.
    pub what: String,
}
